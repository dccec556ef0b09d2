"""Why an archive is refused: each fault, the diagnostic that it is, and what to do about it."""

from __future__ import annotations

import enum
from typing import Any, Final

from qmcore.errors import (
    Alternative,
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    OperatingSystemError,
    QueueError,
    ReleaseError,
    SystemFailureError,
)

_AGAIN: Final = "Copy the archive again from where it was written, or export again."


class Fault(enum.StrEnum):
    """Why an archive is refused, or cannot be written; the fact `fault` of a diagnostic is one of these."""

    NO_DIRECTORY = "no-directory"
    NOT_EMPTY = "not-empty"
    EMPTY = "empty"
    UNFINISHED = "unfinished"
    NO_SEAL = "no-seal"
    BAD_SEAL = "bad-seal"
    ALTERED = "altered"
    FORGED = "forged"
    KEY_NEEDED = "key-needed"
    NOT_SIGNED = "not-signed"
    BAD_KEY = "bad-key"
    FORMAT = "format"
    VERSION = "version"
    MANIFEST = "manifest"
    PART_NAME = "part-name"
    MISSING_PART = "missing-part"
    EXTRA_FILE = "extra-file"
    LINK = "link"
    NO_FILE = "no-file"
    UNREADABLE = "unreadable"
    UNWRITABLE = "unwritable"
    UNREACHABLE = "unreachable"
    SIZE = "size"
    DIGEST = "digest"
    PARQUET = "parquet"
    SCHEMA = "schema"
    ROWS = "rows"
    CONTENTS = "contents"


_TOLD: Final[dict[Fault, tuple[type[QueueError], str]]] = {
    Fault.NO_DIRECTORY: (BadResourceError, "Name the directory that the archive was written to."),
    Fault.NOT_EMPTY: (InUseError, "Name a directory that does not exist or is empty."),
    Fault.EMPTY: (BadResourceError, "Name the directory that the archive was written to."),
    Fault.UNFINISHED: (BadResourceError, "Its export was not finished. Export again."),
    Fault.NO_SEAL: (SystemFailureError, _AGAIN),
    Fault.BAD_SEAL: (SystemFailureError, _AGAIN),
    Fault.ALTERED: (SystemFailureError, _AGAIN),
    Fault.FORGED: (
        SystemFailureError,
        "Give the key that it was written with; if that is the key, do not trust the archive.",
    ),
    Fault.KEY_NEEDED: (InvalidArgumentError, "Give the file of the key that it was written with."),
    Fault.NOT_SIGNED: (InvalidArgumentError, "Leave the key out, if it does not have to be signed."),
    Fault.BAD_KEY: (InvalidArgumentError, "Make one with: head -c 32 /dev/urandom > FILE."),
    Fault.FORMAT: (BadResourceError, "Name the directory that the archive was written to."),
    Fault.VERSION: (ReleaseError, ""),
    Fault.MANIFEST: (SystemFailureError, _AGAIN),
    Fault.PART_NAME: (SystemFailureError, "Do not trust the archive."),
    Fault.MISSING_PART: (SystemFailureError, _AGAIN),
    Fault.EXTRA_FILE: (SystemFailureError, "Move away what does not belong to the archive."),
    Fault.LINK: (SystemFailureError, "Put the file itself into the directory."),
    Fault.NO_FILE: (SystemFailureError, _AGAIN),
    Fault.UNREADABLE: (OperatingSystemError, "Grant the permission, or check the disk."),
    Fault.UNWRITABLE: (OperatingSystemError, "Make room, or grant the permission, and export again."),
    Fault.UNREACHABLE: (
        OperatingSystemError,
        "Look at the address; --conf, or the file core-site.xml in HADOOP_CONF_DIR, say of Spark what is there.",
    ),
    Fault.SIZE: (SystemFailureError, _AGAIN),
    Fault.DIGEST: (SystemFailureError, _AGAIN),
    Fault.PARQUET: (SystemFailureError, _AGAIN),
    Fault.SCHEMA: (SystemFailureError, _AGAIN),
    Fault.ROWS: (SystemFailureError, _AGAIN),
    Fault.CONTENTS: (SystemFailureError, _AGAIN),
}


_ALTERNATIVES: Final = {Fault.UNFINISHED: Alternative.RESUME, Fault.KEY_NEEDED: Alternative.KEY}


def refused(
    fault: Fault, sentence: str, *, hint: str = "", alternative: Alternative | None = None, **facts: Any
) -> QueueError:
    """Return the diagnostic for a fault; `facts` say of which archive, part and so on."""
    diagnostic, remedy = _TOLD[fault]
    instead = alternative or _ALTERNATIVES.get(fault)
    return diagnostic(sentence, hint=hint or remedy, alternative=instead, fault=fault, **facts)
