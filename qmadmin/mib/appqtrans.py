"""T_APPQTRANS: transactions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from qmadmin.mib.declare import STATE, Attribute, Code, Mark, MibClass, MibError, Request, Subject, common, opened
from qmcore.attached import TransactionInfo
from qmcore.records import Outcome

_XID = "TA_XID"
_STATES = {Outcome.ACTIVE: "ACT", Outcome.PREPARED: "REA", Outcome.COMMITTED: "DEC"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSubject(Subject):
    """A transaction, and its queue space."""

    info: TransactionInfo

    @property
    def state(self) -> str:
        """Its state in three letters."""
        return _STATES[self.info.state]


def _select(request: Request) -> Iterator[TransactionSubject]:
    wanted = request.keys.get("xid")
    with opened(request) as space:
        for info in space.transactions():
            if wanted in (None, info.id):
                yield TransactionSubject(device=request.device, space=space.name, info=info)


def _end(request: Request) -> None:
    """Refuse: only a prepared transaction can be ended for its owner, and this release prepares none."""
    xid = request.keys["xid"]
    found = next(_select(request), None)
    if found is None:
        raise MibError(
            Code.TAEINVAL, _XID, f"queue space {request.keys['space']!r} has no transaction {xid}; it may have ended"
        )
    raise MibError(
        Code.TAESUPPORT,
        STATE,
        f"transaction {xid} is {found.info.state.value} and not prepared, and only a prepared one has a heuristic end",
        hint="Wait until its process has ended it; the transactions of a process that dies are rolled back.",
    )


T_APPQTRANS: MibClass[TransactionSubject] = MibClass(
    name="T_APPQTRANS",
    noun="transaction",
    about="Transactions that are open on a queue space, from their first dequeue on.",
    states={
        "ACT": "its process is using it",
        "REA": "it is prepared",
        "DEC": "it is committed, but not yet in the memory for non-persistent messages",
    },
    meanings={
        "HAB": "roll back a prepared transaction, whatever its coordinator decides; refused for others",
        "HCO": "commit a prepared transaction, whatever its coordinator decides; refused for others",
    },
    select=_select,
    actions={"HAB": _end, "HCO": _end},
    destructive={"HAB", "HCO"},
    attributes=(
        Attribute(
            name=_XID,
            permissions="R--R--R--",
            values="1 to 78 characters",
            about="The identifier of the transaction.",
            marks=Mark.KEY | Mark.SET_KEY,
            get=lambda subject: subject.info.id,
            field="xid",
        ),
        *common(
            "GET ACT, REA, DEC; SET HAB, HCO",
            marks=Mark.KEY | Mark.NEEDED | Mark.SET_KEY,
            permissions="R-XR-XR--",
        ),
    ),
)
