"""The file of the manifest, a JSON document that is read strictly, and its seal.

The seal is a digest, which shows damage, or a signature with a key, which shows tampering too.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from qmadmin.archive import Fault, refused
from qmadmin.archive.columns import DELIVERIES, MINOR, STATES
from qmadmin.archive.manifest import (
    ArchivedQueue,
    ArchivedSpace,
    ArchiveSource,
    Content,
    Count,
    LeftOut,
    Manifest,
    PartEntry,
    Portion,
    check_part_name,
)
from qmadmin.archive.manifest_fields import Fields, definition_of, document, told_definition
from qmcore import times
from qmcore.bulk_rows import Adopted
from qmcore.message import State
from qmcore.names import storable
from qmcore.numbers import SEQUENCE_MAX
from qmcore.queue import QueueDefinition
from qmcore.space import SpaceDefinition

FORMAT: Final = "qmadmin-archive"
VERSION: Final = 1
NAME: Final = "manifest.json"
"""The file of the manifest. An archive without it is not finished."""

OCTETS: Final = "octets"
"""How bodies are encoded: not at all."""

_CONTENT_SINCE: Final = 1
"""The minor version that added the field `content`."""

_STATES: Final = tuple(state.value for state in STATES)
_MEMORY: Final = {delivery: memory for memory, delivery in DELIVERIES.items()}


def to_json(manifest: Manifest) -> bytes:
    """Return the file of a manifest."""
    return (json.dumps(_told(manifest), indent=1, ensure_ascii=False) + "\n").encode()


def from_json(data: bytes) -> Manifest:
    """Read the file of a manifest; each fault has a sentence of its own."""
    found = document(data)
    minor = _minor(found)
    return Fields(found, "the manifest").whole(functools.partial(_manifest, minor))


def _manifest(minor: int, fields: Fields) -> Manifest:
    for known in ("format", "version"):
        fields.given(known)
    fields.word("bodies", (OCTETS,))
    return Manifest(
        minor=fields.number("minor"),
        archive=fields.hexadecimal("archive", 32),
        created_us=fields.moment("created_at"),
        release=fields.text("release"),
        source=fields.part("source", "the source of the manifest", _source),
        selection=fields.object("selection"),
        content=_content(fields) if minor >= _CONTENT_SINCE else Content.ALL,
        spaces=fields.parts("spaces", "queue space", functools.partial(_space, minor)),
        parts=fields.parts("parts", "part", _part),
    )


def _minor(found: Mapping[str, Any]) -> int:
    """Return the minor version of a manifest of this format in a version that this release reads."""
    if found.get("format") != FORMAT:
        raise refused(Fault.FORMAT, f"the manifest is of the format {found.get('format')!r}, not {FORMAT!r}")
    version, minor = found.get("version"), found.get("minor")
    if version != VERSION or isinstance(version, bool):
        raise refused(
            Fault.VERSION,
            f"the archive has version {version!r} of the format, this release reads version {VERSION}",
            hint=f"Use {_release(found)} or a newer one.",
        )
    if isinstance(minor, int) and minor > MINOR:
        raise refused(
            Fault.VERSION,
            f"the archive has version {version}.{minor} of the format, this release reads up to {VERSION}.{MINOR}",
            hint=f"Use {_release(found)} or a newer one.",
        )
    return minor if isinstance(minor, int) else 0


def _release(found: Mapping[str, Any]) -> str:
    """Return the name of a release that reads a manifest of another version."""
    release = found.get("release")
    return f"release {release} of qmadmin, which wrote it," if isinstance(release, str) else "the release that wrote it"


def _told(manifest: Manifest) -> dict[str, Any]:
    source = manifest.source
    return {
        "format": FORMAT,
        "version": VERSION,
        "minor": manifest.minor,
        "archive": manifest.archive,
        "created_at": times.iso(manifest.created_us),
        "release": manifest.release,
        "bodies": OCTETS,
        "source": {
            "device": storable(source.device),
            "device_id": source.device_id,
            "kind": source.kind,
            "page_size": source.page_size,
            "snapshot_at": times.iso(source.snapshot_us),
        },
        "selection": dict(manifest.selection),
        **({"content": manifest.content.value} if manifest.minor >= _CONTENT_SINCE else {}),
        "spaces": [_told_space(space, manifest.minor) for space in manifest.spaces],
        "parts": [_told_part(part) for part in manifest.parts],
    }


def _told_space(space: ArchivedSpace, minor: int) -> dict[str, Any]:
    return {
        "definition": told_definition(space.definition, minor),
        "incarnation": space.incarnation,
        "first": space.first,
        "last": space.last,
        "adopted": [dataclasses.asdict(piece) for piece in space.adopted],
        "left_out": dataclasses.asdict(space.left_out),
        "queues": [
            {
                "definition": told_definition(queue.definition, minor),
                "enqueue_enabled": queue.enqueue_enabled,
                "dequeue_enabled": queue.dequeue_enabled,
                "counts": [_told_count(count) for count in queue.counts],
            }
            for queue in space.queues
        ],
    }


def _told_count(count: Count | Portion) -> dict[str, Any]:
    told = dataclasses.asdict(count)
    told["state"] = count.state.value
    told["delivery"] = DELIVERIES[told.pop("memory")]
    return told


def _told_part(part: PartEntry) -> dict[str, Any]:
    return {
        "name": part.name,
        "rows": part.rows,
        "size": part.size,
        "sha256": part.sha256,
        "portions": [_told_count(portion) for portion in part.portions],
    }


# ---- from JSON ------------------------------------------------------------------------------------------------------


def _content(fields: Fields) -> Content:
    return Content(fields.word("content", tuple(content.value for content in Content)))


def _source(fields: Fields) -> ArchiveSource:
    return ArchiveSource(
        device=fields.text("device"),
        device_id=fields.text("device_id"),
        kind=fields.text("kind"),
        page_size=fields.number("page_size", 1),
        snapshot_us=fields.moment("snapshot_at"),
    )


def _space(minor: int, fields: Fields) -> ArchivedSpace:
    definition = fields.part("definition", f"the definition of {fields.where}", definition_of(SpaceDefinition, minor))
    name = f"queue space {definition.name!r}"
    return ArchivedSpace(
        definition=definition,
        incarnation=fields.hexadecimal("incarnation", 16),
        first=fields.number("first", 0, SEQUENCE_MAX),
        last=fields.number("last", 0, SEQUENCE_MAX),
        adopted=fields.parts("adopted", f"adopted piece of {name}", _adopted),
        queues=fields.parts("queues", f"{name}, queue", functools.partial(_queue, minor)),
        left_out=fields.part("left_out", f"what is left out of {name}", _left_out),
    )


def _adopted(fields: Fields) -> Adopted:
    return Adopted(
        incarnation=fields.hexadecimal("incarnation", 16),
        first=fields.number("first", 0, SEQUENCE_MAX),
        last=fields.number("last", 0, SEQUENCE_MAX),
        shift=fields.number("shift", -SEQUENCE_MAX, SEQUENCE_MAX),
    )


def _left_out(fields: Fields) -> LeftOut:
    return LeftOut(**{field.name: fields.number(field.name) for field in dataclasses.fields(LeftOut)})


def _queue(minor: int, fields: Fields) -> ArchivedQueue:
    definition = fields.part("definition", f"the definition of {fields.where}", definition_of(QueueDefinition, minor))
    return ArchivedQueue(
        definition=definition,
        enqueue_enabled=fields.flag("enqueue_enabled"),
        dequeue_enabled=fields.flag("dequeue_enabled"),
        counts=fields.parts("counts", f"queue {definition.name!r}, count", _count),
    )


def _count(fields: Fields) -> Count:
    return Count(*_standing(fields), *_quantities(fields))


def _part(fields: Fields) -> PartEntry:
    name = check_part_name(fields.text("name"))
    return PartEntry(
        name=name,
        rows=fields.number("rows"),
        size=fields.number("size"),
        sha256=fields.hexadecimal("sha256", 64),
        portions=fields.parts("portions", f"part {name!r}, portion", _portion),
    )


def _portion(fields: Fields) -> Portion:
    return Portion(
        fields.text("space"),
        fields.text("queue"),
        *_standing(fields),
        *_quantities(fields),
        fields.number("first", 0, SEQUENCE_MAX),
        fields.number("last", 0, SEQUENCE_MAX),
    )


def _standing(fields: Fields) -> tuple[State, bool]:
    return State(fields.word("state", _STATES)), _MEMORY[fields.word("delivery", tuple(_MEMORY))]


def _quantities(fields: Fields) -> tuple[int, int, int]:
    return fields.number("messages"), fields.number("pages"), fields.number("size")


# ---- the seal -------------------------------------------------------------------------------------------------------

PLAIN: Final = "manifest.sha256"
"""The file of the digest, as sha256sum(1) writes and checks it."""

SIGNED: Final = "manifest.hmac"
"""The file that replaces it if a key was given: HMAC-SHA256, in the same form."""

SEALS: Final[tuple[str, ...]] = (PLAIN, SIGNED)
"""The two files of seals, one of which an archive has."""

KEY_BYTES: Final = (16, 4096)
"""The minimum and the maximum bytes of a key."""

_LINE: Final = re.compile(rb"([0-9a-f]{64})  " + re.escape(NAME).encode() + rb"\n")


def key_of(path: Path) -> bytes:
    """Return the key in a file: all of its bytes."""
    try:
        with path.open("rb") as file:
            key = file.read(KEY_BYTES[1] + 1)
    except FileNotFoundError:
        raise refused(
            Fault.UNREADABLE, f"there is no file {str(path)!r} with a key", hint="Name the file that contains the key."
        ) from None
    except OSError as error:
        raise refused(Fault.UNREADABLE, f"the key file {str(path)!r} cannot be read: {error.strerror}") from None
    return checked_key(key)


def checked_key(key: bytes) -> bytes:
    """Return a key if it has 16 to 4096 bytes."""
    if not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]:
        raise refused(Fault.BAD_KEY, f"a key has {KEY_BYTES[0]} to {KEY_BYTES[1]} bytes, this one {len(key)}")
    return key


def seal(data: bytes, key: bytes | None) -> tuple[str, bytes]:
    """Return the name of the file that seals a manifest, and its content."""
    digest = hashlib.sha256(data).hexdigest() if key is None else _signature(data, checked_key(key))
    return PLAIN if key is None else SIGNED, f"{digest}  {NAME}\n".encode()


def check_seal(data: bytes, seals: Mapping[str, bytes], key: bytes | None) -> None:
    """Refuse a manifest that does not match its seal; `seals` are the existing files of seals, by their names."""
    if SIGNED in seals:
        if key is None:
            raise refused(Fault.KEY_NEEDED, "the archive is signed, and no key was given to check it with")
        if not hmac.compare_digest(_digest(SIGNED, seals), _signature(data, checked_key(key))):
            raise refused(Fault.FORGED, "the manifest was not signed with this key, or was altered afterwards")
        return
    if PLAIN not in seals:
        raise refused(Fault.NO_SEAL, f"the archive lacks {PLAIN}, which shows whether its manifest was altered")
    if key is not None:
        raise refused(Fault.NOT_SIGNED, "the archive is not signed, so that the given key proves nothing")
    if _digest(PLAIN, seals) != hashlib.sha256(data).hexdigest():
        raise refused(Fault.ALTERED, f"the manifest was altered: it does not have the digest that {PLAIN} says")


def _digest(name: str, seals: Mapping[str, bytes]) -> str:
    found = _LINE.fullmatch(seals[name])
    if found is None:
        raise refused(Fault.BAD_SEAL, f"{name} is not a digest of the manifest")
    return found[1].decode()


def _signature(data: bytes, key: bytes) -> str:
    return hmac.new(key, data, hashlib.sha256).hexdigest()
