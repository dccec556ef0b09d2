"""The forms in which drivers take, and give back, identifiers of two-phase transactions (PEP 249).

A driver keeps all three parts, or only the middle one, as pg8000 does. That has the whole then, as psycopg makes one
text of the three for PostgreSQL; so each of these drivers can end what another one has prepared.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from qmcore.two_phase import OUR_FORMAT
from qmcore.xid import Xid

_CALLS: Final = ("xid", "tpc_begin", "tpc_prepare", "tpc_commit", "tpc_rollback", "cursor", "commit", "rollback")
_RECOVER: Final = "tpc_recover"
_PARTS: Final = 3


class Form(NamedTuple):
    """How a driver takes an identifier."""

    name: str
    is_standard: bool
    """Whether it is that of PEP 249: all parts by themselves."""
    made: Callable[[Any, Xid], Any]
    """Makes one for a connection."""
    read: Callable[[Any, str, str], Xid]
    """Returns the one whose parts were listed; ValueError for one that is not ours."""

    def found(self, driver: Any) -> list[Xid]:
        """Return those of ours that a connection lists as prepared."""
        xids = []
        for its in driver.tpc_recover():
            try:
                xids.append(self.read(its[0], _text(its[1]), _text(its[2])))
            except (ValueError, binascii.Error):
                continue
        return xids


def has_calls(driver: object) -> bool:
    """Return whether a connection has the calls for two phases, and recovery."""
    return prepares(driver) and callable(getattr(driver, _RECOVER, None))


def prepares(driver: object) -> bool:
    """Return whether a connection has the calls for two phases, be it without recovery."""
    return all(callable(getattr(driver, name, None)) for name in _CALLS)


def new(driver: Any) -> Any:
    """Return an identifier that nobody has."""
    return driver.xid(OUR_FORMAT, os.urandom(8).hex(), os.urandom(8).hex())


def _text(part: object) -> str:
    return part.decode("ascii", "replace") if isinstance(part, bytes) else str(part or "")


def _made_whole(driver: Any, xid: Xid) -> Any:
    gtrid, bqual = (base64.b64encode(part.hex().encode()).decode() for part in (xid.gtrid, xid.bqual))
    return driver.xid(0, f"{xid.format_id}_{gtrid}_{bqual}", "")


def _read_whole(_format: Any, gtrid: str, _bqual: str) -> Xid:
    parts = gtrid.split("_")
    if len(parts) != _PARTS or parts[0] != str(OUR_FORMAT):
        raise ValueError(gtrid)
    its, branch = (bytes.fromhex(base64.b64decode(part, validate=True).decode("ascii")) for part in parts[1:])
    return Xid(OUR_FORMAT, its, branch)


def _made_of_parts(driver: Any, xid: Xid) -> Any:
    # In hexadecimal digits, as drivers take texts.
    return driver.xid(xid.format_id, xid.gtrid.hex(), xid.bqual.hex())


def _read_parts(format_id: Any, gtrid: str, bqual: str) -> Xid:
    if format_id != OUR_FORMAT:
        raise ValueError(format_id)
    return Xid(OUR_FORMAT, bytes.fromhex(gtrid), bytes.fromhex(bqual))


FORMS: Final = {
    # A driver that keeps all parts takes no text as long as the whole one. The other way round one that does not would
    # prepare what it cannot end.
    form.name: form
    for form in (
        Form("whole", False, _made_whole, _read_whole),
        Form("parts", True, _made_of_parts, _read_parts),
    )
}
"""By their names, in the order in which they are tried."""
