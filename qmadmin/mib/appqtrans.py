"""T_APPQTRANS: transactions of queue spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qmadmin.mib.declare import (
    STATE,
    Attribute,
    Code,
    Mark,
    MibClass,
    MibError,
    Request,
    Subject,
    common,
    opened,
    written_moment,
)
from qmcore.attached import TransactionInfo
from qmcore.records import Outcome
from qmcore.values import dataclass

_XID = "TA_XID"
_STATES = {
    Outcome.ACTIVE: "ACT",
    Outcome.SUSPENDED: "SUS",
    Outcome.PREPARED: "REA",
    Outcome.COMMITTED: "DEC",
    Outcome.HEURISTIC_ROLLBACK: "HAB",
    Outcome.HEURISTIC_COMMIT: "HCO",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSubject(Subject):
    """A transaction, and its queue space."""

    info: TransactionInfo

    @property
    def state(self) -> str:
        """Its state in three letters."""
        return _STATES[self.info.state]


def _transactions(request: Request) -> Iterator[TransactionSubject]:
    wanted, branch = request.keys.get("xid"), request.keys.get("branch")
    with opened(request) as space:
        for info in space.transactions():
            if wanted in (None, info.id) and branch in (None, info.name):
                yield TransactionSubject(device=request.device, space=space.name, info=info)


def _end(request: Request, *, commits: bool) -> TransactionSubject | None:
    """End a prepared transaction heuristically; its record stays, and is the object of the answer."""
    xid = request.keys["xid"]
    found = next(_transactions(request), None)
    if found is None:
        raise MibError(
            Code.TAEINVAL, _XID, f"queue space {request.keys['space']!r} has no transaction {xid}; it may have ended"
        )
    if found.info.state is not Outcome.PREPARED:
        raise MibError(
            Code.TAESUPPORT,
            STATE,
            f"transaction {xid} is {found.info.state.value} and not prepared, and only a prepared one has a heuristic"
            " end",
            hint="Wait until its process has ended it; the transactions of a process that dies are rolled back.",
        )
    with opened(request) as space:
        (space.commit_transaction if commits else space.abort_transaction)(found.info.name)
    return next(_transactions(request), None)


def _of_branch(
    name: str, values: str, about: str, get: Callable[[TransactionInfo], str | None], field: str = ""
) -> Attribute[TransactionSubject]:
    """Return an attribute of ours, which is only read, and left out where there is nothing to tell."""
    return Attribute(
        name=name,
        values=values,
        about=about,
        permissions="R--R--R--",
        marks=Mark.KEY if field else Mark.NONE,
        get=lambda subject: get(subject.info),
        field=field,
    )


def _told_moment(micros: int | None) -> str | None:
    return None if micros is None else written_moment(micros)


T_APPQTRANS: MibClass[TransactionSubject] = MibClass(
    name="T_APPQTRANS",
    noun="transaction",
    about="Transactions of a queue space: open (from the first dequeue on), suspended, prepared, ended heuristically.",
    states={
        "ACT": "its process is using it",
        "SUS": "its process has suspended it, and nobody has resumed it",
        "REA": "it is prepared",
        "DEC": "it is committed, but not yet in the memory for non-persistent messages",
        "HAB": "it was rolled back without the decision of its coordinator, which has not asked since",
        "HCO": "it was committed without the decision of its coordinator, which has not asked since",
    },
    meanings={
        "HAB": "roll back a prepared transaction, whatever its coordinator decides; refused for others",
        "HCO": "commit a prepared transaction, whatever its coordinator decides; refused for others",
    },
    select=_transactions,
    actions={"HAB": lambda request: _end(request, commits=False), "HCO": lambda request: _end(request, commits=True)},
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
            "GET ACT, SUS, REA, DEC, HAB, HCO; SET HAB, HCO",
            marks=Mark.KEY | Mark.NEEDED | Mark.SET_KEY,
            permissions="R-XR-XR--",
        ),
        _of_branch(
            "TA_XOPENXID",
            "a number and two rows of hexadecimal digits, with colons in between",
            "The xid by which its coordinator knows it; omitted where it has none.",
            lambda info: None if info.xid is None else str(info.xid),
            "branch",
        ),
        _of_branch(
            "TA_SUSPENDTIME",
            "a time",
            "Since when it is suspended; omitted where it is not.",
            lambda info: _told_moment(info.suspended_us),
        ),
        _of_branch(
            "TA_PREPARETIME",
            "a time",
            "Since when it is prepared; omitted where it is not.",
            lambda info: _told_moment(info.prepared_us),
        ),
        _of_branch(
            "TA_TRANOWNER",
            "a program, its process and its machine",
            "Whose it is, or was; omitted where nobody knows.",
            lambda info: info.whose or None,
        ),
        _of_branch("TA_OWNERALIVE", "Y, N", "Whether that process lives.", lambda info: "Y" if info.lives else "N"),
        _of_branch(
            "TA_ENDTIME",
            "a time",
            "When it was ended heuristically; omitted where it was not.",
            lambda info: _told_moment(info.ended_us),
        ),
        _of_branch(
            "TA_ENDEDBY",
            "a user, the program, its process and its machine",
            "Who ended it heuristically; omitted where it was not.",
            lambda info: info.ended_by or None,
        ),
        _of_branch(
            "TA_DECIDER",
            "a queue space and its device",
            "Who decides on it, and is asked by recovery, or that its abort is presumed; omitted where another"
            " coordinator decides.",
            lambda info: info.decider or None,
        ),
        _of_branch(
            "TA_DECIDED",
            "committed | rolled back",
            "What was decided, where it was ended otherwise and that is known.",
            lambda info: info.decided or None,
        ),
    ),
)
