"""The seal of the manifest: a digest that tells damage, or a signature with a key that tells tampering too."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from qmadmin.archive import manifest_file
from qmadmin.archive.faults import Fault, refused

PLAIN: Final = "manifest.sha256"
"""The file of the digest, as sha256sum(1) writes and checks it."""

SIGNED: Final = "manifest.hmac"
"""The file that is there instead where a key was given: HMAC-SHA256, in the same form."""

SEALS: Final[tuple[str, ...]] = (PLAIN, SIGNED)
"""The files of which an archive has one."""

KEY_BYTES: Final = (16, 4096)
"""How many bytes a key has at least and at most."""

_LINE: Final = re.compile(rb"([0-9a-f]{64})  " + re.escape(manifest_file.NAME).encode() + rb"\n")


def key_of(path: Path) -> bytes:
    """Return the key that a file holds: all of its bytes."""
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
    return PLAIN if key is None else SIGNED, f"{digest}  {manifest_file.NAME}\n".encode()


def check(data: bytes, seals: Mapping[str, bytes], key: bytes | None) -> None:
    """Refuse a manifest that is not as it was sealed; `seals` are the files of seals that there are, by their names."""
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
