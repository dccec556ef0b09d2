"""The machine-independent archive of queue spaces, version 1: its format, and how it is written, checked and read.

An archive is a directory: parts, which are Parquet files of messages (`columns` declares their columns, `rows` converts
the rows of a store to them and back), a manifest, which describes everything else (`manifest`), and the seal of the
manifest (`manifest_file`, with its file). `writing` writes an archive or one part, whose file may be anywhere;
`reading` opens, verifies and reads it. Here stand the reasons for which an archive is refused: each fault, its
diagnostic, and its remedy.

Nothing here depends on a device. The manual page is qmadmin-archive(5).
"""

from __future__ import annotations

import enum
from typing import Any, Final, Self

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
    """Why an archive is refused, or cannot be written; the fact `fault` of a diagnostic is one of these.

    Each has its diagnostic, and what to do about it.
    """

    diagnostic: type[QueueError]
    remedy: str

    def __new__(cls, value: str, diagnostic: type[QueueError], remedy: str) -> Self:
        """Make a member."""
        member = str.__new__(cls, value)
        member._value_, member.diagnostic, member.remedy = value, diagnostic, remedy
        return member

    NO_DIRECTORY = "no-directory", BadResourceError, "Name the directory that the archive was written to."
    NOT_EMPTY = "not-empty", InUseError, "Name a directory that does not exist or is empty."
    EMPTY = "empty", BadResourceError, "Name the directory that the archive was written to."
    UNFINISHED = "unfinished", BadResourceError, "Its export was not finished. Export again."
    NO_SEAL = "no-seal", SystemFailureError, _AGAIN
    BAD_SEAL = "bad-seal", SystemFailureError, _AGAIN
    ALTERED = "altered", SystemFailureError, _AGAIN
    FORGED = (
        "forged",
        SystemFailureError,
        "Give the key that it was written with; if that is the key, do not trust the archive.",
    )
    KEY_NEEDED = "key-needed", InvalidArgumentError, "Give the file of the key that it was written with."
    NOT_SIGNED = "not-signed", InvalidArgumentError, "Leave the key out, if it does not have to be signed."
    BAD_KEY = "bad-key", InvalidArgumentError, "Make one with: head -c 32 /dev/urandom > FILE."
    FORMAT = "format", BadResourceError, "Name the directory that the archive was written to."
    VERSION = "version", ReleaseError, ""
    MANIFEST = "manifest", SystemFailureError, _AGAIN
    PART_NAME = "part-name", SystemFailureError, "Do not trust the archive."
    MISSING_PART = "missing-part", SystemFailureError, _AGAIN
    EXTRA_FILE = "extra-file", SystemFailureError, "Move away what does not belong to the archive."
    LINK = "link", SystemFailureError, "Put the file itself into the directory."
    NO_FILE = "no-file", SystemFailureError, _AGAIN
    UNREADABLE = "unreadable", OperatingSystemError, "Grant the permission, or check the disk."
    UNWRITABLE = "unwritable", OperatingSystemError, "Make room, or grant the permission, and export again."
    UNREACHABLE = (
        "unreachable",
        OperatingSystemError,
        "Look at the address; --conf, or the file core-site.xml in HADOOP_CONF_DIR, say of Spark what is there.",
    )
    SIZE = "size", SystemFailureError, _AGAIN
    DIGEST = "digest", SystemFailureError, _AGAIN
    PARQUET = "parquet", SystemFailureError, _AGAIN
    SCHEMA = "schema", SystemFailureError, _AGAIN
    ROWS = "rows", SystemFailureError, _AGAIN
    CONTENTS = "contents", SystemFailureError, _AGAIN


_ALTERNATIVES: Final = {Fault.UNFINISHED: Alternative.RESUME, Fault.KEY_NEEDED: Alternative.KEY}


def refused(
    fault: Fault, sentence: str, *, hint: str = "", alternative: Alternative | None = None, **facts: Any
) -> QueueError:
    """Return the diagnostic for a fault; `facts` say of which archive, part and so on."""
    instead = alternative or _ALTERNATIVES.get(fault)
    return fault.diagnostic(sentence, hint=hint or fault.remedy, alternative=instead, fault=fault, **facts)


def refused_part(fault: Fault, part: str, what: str) -> QueueError:
    """Return the diagnostic for a fault of a part; `what` is the sentence without its subject."""
    return refused(fault, f"part {part!r} {what}", part=part)
