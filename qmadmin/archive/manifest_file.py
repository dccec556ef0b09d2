"""The file of the manifest: a JSON document, which is read strictly."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from qmadmin.archive.columns import DELIVERIES, MINOR, STATES
from qmadmin.archive.definitions import definition_of
from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.fields import Fields, document
from qmadmin.archive.manifest import (
    ArchivedQueue,
    ArchivedSpace,
    Content,
    Count,
    LeftOut,
    Manifest,
    PartEntry,
    Portion,
    Source,
    check_part_name,
)
from qmcore import times
from qmcore.attributes import plain
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
"""The minor version that brought the field `content`."""

_STATES: Final = tuple(state.value for state in STATES)
_MEMORY: Final = {delivery: memory for memory, delivery in DELIVERIES.items()}


def to_json(manifest: Manifest) -> bytes:
    """Return the file of a manifest."""
    return (json.dumps(_told(manifest), indent=1, ensure_ascii=False) + "\n").encode()


def from_json(data: bytes) -> Manifest:
    """Read the file of a manifest; each fault is told in a sentence of its own."""
    found = document(data)
    minor = _minor(found)
    fields = Fields(found, "the manifest")
    for known in ("format", "version"):
        fields.given(known)
    fields.word("bodies", (OCTETS,))
    manifest = Manifest(
        minor=fields.number("minor"),
        archive=fields.hexadecimal("archive", 32),
        created_us=fields.moment("created_at"),
        release=fields.text("release"),
        source=_source(fields.part("source", "the source of the manifest")),
        selection=fields.object("selection"),
        content=_content(fields) if minor >= _CONTENT_SINCE else Content.ALL,
        spaces=tuple(_space(each) for each in fields.parts("spaces", "queue space")),
        parts=tuple(_part(each) for each in fields.parts("parts", "part")),
    )
    fields.end()
    return manifest


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
    """Return how a release is called that reads a manifest of another version."""
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
        "spaces": [_told_space(space) for space in manifest.spaces],
        "parts": [_told_part(part) for part in manifest.parts],
    }


def _told_space(space: ArchivedSpace) -> dict[str, Any]:
    return {
        "definition": plain(space.definition),
        "incarnation": space.incarnation,
        "first": space.first,
        "last": space.last,
        "adopted": [dataclasses.asdict(piece) for piece in space.adopted],
        "left_out": dataclasses.asdict(space.left_out),
        "queues": [
            {
                "definition": plain(queue.definition),
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


def _source(fields: Fields) -> Source:
    source = Source(
        device=fields.text("device"),
        device_id=fields.text("device_id"),
        kind=fields.text("kind"),
        page_size=fields.number("page_size", 1),
        snapshot_us=fields.moment("snapshot_at"),
    )
    fields.end()
    return source


def _space(fields: Fields) -> ArchivedSpace:
    definition = definition_of(fields.part("definition", f"the definition of {fields.where}"), SpaceDefinition)
    name = f"queue space {definition.name!r}"
    space = ArchivedSpace(
        definition=definition,
        incarnation=fields.hexadecimal("incarnation", 16),
        first=fields.number("first", 0, SEQUENCE_MAX),
        last=fields.number("last", 0, SEQUENCE_MAX),
        adopted=tuple(_adopted(each) for each in fields.parts("adopted", f"adopted piece of {name}")),
        queues=tuple(_queue(each) for each in fields.parts("queues", f"{name}, queue")),
        left_out=_left_out(fields.part("left_out", f"what is left out of {name}")),
    )
    fields.end()
    return space


def _adopted(fields: Fields) -> Adopted:
    adopted = Adopted(
        incarnation=fields.hexadecimal("incarnation", 16),
        first=fields.number("first", 0, SEQUENCE_MAX),
        last=fields.number("last", 0, SEQUENCE_MAX),
        shift=fields.number("shift", -SEQUENCE_MAX, SEQUENCE_MAX),
    )
    fields.end()
    return adopted


def _left_out(fields: Fields) -> LeftOut:
    left_out = LeftOut(**{field.name: fields.number(field.name) for field in dataclasses.fields(LeftOut)})
    fields.end()
    return left_out


def _queue(fields: Fields) -> ArchivedQueue:
    definition = definition_of(fields.part("definition", f"the definition of {fields.where}"), QueueDefinition)
    queue = ArchivedQueue(
        definition=definition,
        enqueue_enabled=fields.flag("enqueue_enabled"),
        dequeue_enabled=fields.flag("dequeue_enabled"),
        counts=tuple(_count(each) for each in fields.parts("counts", f"queue {definition.name!r}, count")),
    )
    fields.end()
    return queue


def _count(fields: Fields) -> Count:
    count = Count(*_standing(fields), *_quantities(fields))
    fields.end()
    return count


def _part(fields: Fields) -> PartEntry:
    name = check_part_name(fields.text("name"))
    part = PartEntry(
        name=name,
        rows=fields.number("rows"),
        size=fields.number("size"),
        sha256=fields.hexadecimal("sha256", 64),
        portions=tuple(_portion(each) for each in fields.parts("portions", f"part {name!r}, portion")),
    )
    fields.end()
    return part


def _portion(fields: Fields) -> Portion:
    portion = Portion(
        fields.text("space"),
        fields.text("queue"),
        *_standing(fields),
        *_quantities(fields),
        fields.number("first", 0, SEQUENCE_MAX),
        fields.number("last", 0, SEQUENCE_MAX),
    )
    fields.end()
    return portion


def _standing(fields: Fields) -> tuple[State, bool]:
    return State(fields.word("state", _STATES)), _MEMORY[fields.word("delivery", tuple(_MEMORY))]


def _quantities(fields: Fields) -> tuple[int, int, int]:
    return fields.number("messages"), fields.number("pages"), fields.number("size")
