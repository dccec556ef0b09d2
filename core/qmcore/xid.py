"""Identifiers of the branches of a distributed transaction, as X/Open has them."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from qmcore.errors import InvalidArgumentError

GTRID_MAX: Final = 64
"""Bytes of a global transaction's identifier."""
BQUAL_MAX: Final = 64
"""Bytes of a branch qualifier."""
_FORMAT_MAX: Final = 2**31 - 1
_TEXT: Final = re.compile(r"([0-9]{1,10}):((?:[0-9a-fA-F]{2})*):((?:[0-9a-fA-F]{2})*)")
_SHOWN: Final = 100
"""Characters of a wrong text that are shown."""


class Xid(NamedTuple):
    """The identifier of a branch: the format of the two others, the global transaction's identifier, the qualifier.

    `format_id` has 31 bits, `gtrid` 1 to 64 bytes, `bqual` 0 to 64, by which the branches of one global transaction
    differ. `str` gives a text that `Xid.of` reads, and commands take: the format and both others in hexadecimal digits,
    with colons in between.
    """

    format_id: int
    gtrid: bytes
    bqual: bytes = b""

    def __str__(self) -> str:
        return f"{self.format_id}:{self.gtrid.hex()}:{self.bqual.hex()}"

    @classmethod
    def of(cls, value: Any) -> Xid:
        """Return an identifier of its three parts, in any sequence, or of its text. Texts of parts are in UTF-8.

        Raises InvalidArgumentError where a part is too long or has the wrong type.
        """
        if isinstance(value, str):
            return _read(value)
        try:
            format_id, gtrid, bqual = value
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                f"an xid has three parts, a format identifier, a global transaction and a branch, got {value!r}"
            ) from None
        if isinstance(format_id, bool) or not isinstance(format_id, int) or not 0 <= format_id <= _FORMAT_MAX:
            raise InvalidArgumentError(
                f"the format identifier of an xid is an integer from 0 to {_FORMAT_MAX}, got {format_id!r}"
            )
        return cls(
            format_id,
            _part(gtrid, "the global transaction identifier of an xid", 1, GTRID_MAX),
            _part(bqual, "the branch qualifier of an xid", 0, BQUAL_MAX),
        )


def _part(value: Any, what: str, least: int, most: int) -> bytes:
    if isinstance(value, str):
        try:
            found = value.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"{what} is not a text that UTF-8 can encode: {value!r}") from None
    elif isinstance(value, bytes | bytearray | memoryview):
        found = bytes(value)
    else:
        raise InvalidArgumentError(f"{what} is bytes or a text, got {value!r}")
    if not least <= len(found) <= most:
        raise InvalidArgumentError(f"{what} has {least} to {most} bytes, got {len(found)}")
    return found


def _read(text: str) -> Xid:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidArgumentError(
            f"{text[:_SHOWN]!r} is not the text of an xid",
            hint="It is a number and two rows of hexadecimal digits with colons in between, as qprinttrans shows it.",
        )
    number, gtrid, bqual = found.groups()
    return Xid.of((int(number), bytes.fromhex(gtrid), bytes.fromhex(bqual)))
