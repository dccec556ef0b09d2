"""Commands on the transactions of a queue space: those that are open, prepared, or were ended heuristically."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from qmadmin.console import counted
from qmadmin.console.results import Column, Line, Notice, Outcome, table_of
from qmadmin.shell.declare import Confirmation, Group, Needs, Positional
from qmadmin.shell.kinds import Candidate, Given, Kind
from qmadmin.shell.notices import UsageError
from qmcore import records
from qmcore.errors import UnknownXidError
from qmcore.times import MICROS, show
from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmcore.attached import DecisionInfo, TransactionInfo

TRANSACTIONS = Group("Transactions", needs=Needs.OPEN_SPACE)

_ID_LENGTH: Final = 16


@TRANSACTIONS.command("qprinttrans", short="qpt", shows_only=True)
def qprinttrans(session: Session) -> Outcome:
    """List the outstanding transactions of the open queue space, the oldest first.

    It shows the index, identifier and xid, which the other commands take, the state, process and messages: dequeued,
    locked, and enqueued as far as they are stored already. Of a prepared one it shows since when, and whose it was; of
    one that was ended heuristically when, and by whom; of a suspended one since when; and who decides on a branch, or
    that its abort is presumed, and whether the decider can be reached now, for which six seconds are waited at most.
    `never` means that only an administrator can end the branch, because it is in a copy, or an earlier state of its
    decider was restored; a warning says why. Others can see a transaction from its first dequeue on.

        qprinttrans
    """
    space = session.opened()
    infos = space.transactions(ask_deciders=True)
    session.transactions = tuple(info.id for info in infos)
    columns = _columns(session.device.clock.now())
    if infos:
        unreached = [
            Notice.warning(f"transaction {info.name} {_waits(info)}: {info.unreached}")
            for info in infos
            if info.unreached
        ]
        return [*unreached, table_of(infos, columns)]
    return session.nothing(f"Queue space '{space.name}' has no outstanding transactions", columns)


def _waits(info: TransactionInfo) -> str:
    from qmcore.attached import DeciderReach  # Programs that list no transactions need not load it.

    return "does not end by itself" if info.reached is DeciderReach.NEVER else "waits for its decider"


def _columns(now_us: int) -> tuple[Column, ...]:
    return (
        Column("index", "Index", right=True),
        Column("transaction", "Transaction", of="id"),
        Column("state", "State"),
        Column("since", "Since", of="since_us"),
        Column("role", "Owner", of=lambda info: info.owner and info.owner.role),
        Column("pid", "Process", right=True, of=lambda info: info.owner and info.owner.pid),
        Column("host", "Host", of=lambda info: info.owner and info.owner.host),
        Column("alive", "Alive", of=lambda info: "yes" if info.lives else "no"),
        Column("dequeued", "Dequeued", right=True),
        Column("locked", "Locked", right=True),
        Column("enqueued", "Enqueued", right=True, of="spilled"),
        Column("age", "Age (s)", right=True, of=lambda info: max(0, now_us - info.since_us) // MICROS),
        Column("xid", "Xid", of=lambda info: None if info.xid is None else str(info.xid)),
        Column("prepared", "Prepared", of="prepared_us"),
        Column("whose", "Whose", of=lambda info: info.consumer or None),
        Column("ended", "Ended", of="ended_us"),
        Column("ended_by", "Ended by", of=lambda info: info.ended_by or None),
        Column("suspended", "Suspended", of="suspended_us"),
        Column("decider", "Decider", of=lambda info: info.decider or None),
        Column("reached", "Reached", of=lambda info: info.reached and info.reached.value),
        Column("decided", "Decided", of=lambda info: info.decided or None),
    )


class TransactionName(Kind[str]):
    """A transaction by its index in the last listing, its identifier, or its xid."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the text, which is one of the three."""
        if ":" in text:
            return str(Xid.of(text))
        if _is_id(text) or (text.isascii() and text.isdigit()):
            return text.lower()
        raise UsageError(
            f"The transaction must be an index, an identifier of {_ID_LENGTH} hexadecimal digits, or an xid: {text!r}",
            hint="List them with qprinttrans.",
        )

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the transactions of the last listing."""
        return [Candidate(str(index), name) for index, name in enumerate(session.transactions)]


def _is_id(text: str) -> bool:
    return len(text) == _ID_LENGTH and all(digit in "0123456789abcdefABCDEF" for digit in text)


TRANINDEX = Positional(
    "tranindex",
    TransactionName(),
    "The index of the transaction in the last list of qprinttrans, its identifier, or its xid.",
    "Transaction index: ",
)


def _meant(session: Session, given: Given) -> TransactionInfo:
    """Return the transaction that was named, as it is now."""
    text: str = given["tranindex"]
    space, name = session.opened(), text
    if ":" not in text and not _is_id(text):
        index = int(text) if len(text) < _ID_LENGTH else len(session.transactions)
        if index >= len(session.transactions):
            raise UsageError(f"The last list of transactions has no index {text}", hint="List them with qprinttrans.")
        name = session.transactions[index]
    for info in space.transactions():
        if name in (info.id, info.name):
            return info
    if name != text:
        raise UsageError(f"Transaction {text} ({name}) has ended meanwhile", hint="List them again with qprinttrans.")
    raise UnknownXidError(
        f"queue space {space.name!r} has no transaction {name}; it may have ended", hint="List them with qprinttrans."
    )


def _described(info: TransactionInfo) -> str:
    whose = f" of {info.whose}" if info.whose else ""
    since = f", prepared {show(info.prepared_us)}," if info.prepared_us is not None else ""
    return f"transaction {info.index} ({info.name}){whose}{since} with {counted(info.messages, 'message')}"


def _asking(verb: str) -> Callable[[Session, Given], str]:
    def action(session: Session, given: Given) -> str:
        info = _meant(session, given)
        if info.state is not records.Outcome.PREPARED:
            return f"{verb} {_described(info)}"
        if info.presumes_abort:
            return (
                f"{verb} {_described(info)}, on which nobody decides: its process may end it otherwise while it lives"
            )
        if info.decider:
            return f"{verb} {_described(info)}, as {info.decider} has decided, or heuristically if that cannot be asked"
        return f"{verb} {_described(info)}, without the decision of its coordinator, which may be the opposite"

    return action


def _refusing(*, commits: bool) -> Callable[[Session, Given], None]:
    def refuse(session: Session, given: Given) -> None:
        session.opened().refuse_end(_meant(session, given).name, commits=commits)

    return refuse


def _done(given: str, info: TransactionInfo, how: str, *, heuristic: bool) -> Line:
    heuristically = " heuristically" if heuristic else ""
    return Line(f"Transaction {given} {how}{heuristically}", {"transaction": info.id})


@TRANSACTIONS.command(
    "qcommittrans",
    TRANINDEX,
    short="qcommit",
    confirm=Confirmation(_asking("Commit"), "Transaction not committed", _refusing(commits=True)),
)
def qcommittrans(session: Session, tranindex: str) -> Outcome:
    """Commit a prepared transaction in place of its coordinator.

    If qmadmin itself decides on it elsewhere, that is asked first, and the opposite is refused. Otherwise the messages
    take effect whatever the coordinator decides, and who did this and when is kept until it has asked, or qforgettrans
    forgets it. If it rolls back, its other resources differ from this one, and it is told so. An active transaction is
    refused: only its own process can commit it.

        qcommittrans 0
        qcommittrans 7:6f72646572:31
    """
    info = _meant(session, {"tranindex": tranindex})
    heuristic = session.opened().commit_transaction(info.name)
    return _done(tranindex, info, "committed", heuristic=heuristic)


@TRANSACTIONS.command(
    "qaborttrans",
    TRANINDEX,
    short="qabort qrollbacktrans",
    confirm=Confirmation(_asking("Roll back"), "Transaction not rolled back", _refusing(commits=False)),
)
def qaborttrans(session: Session, tranindex: str) -> Outcome:
    """Roll back a transaction, even one that its process is still using.

    The messages that it has dequeued come back and have used up a try; a message without tries left goes to the error
    queue, or stays if there is none. The process of an active one gets QMEABORTED. In Tuxedo only a prepared one can
    be rolled back by others; of such an end the same is kept as with qcommittrans.

        qaborttrans 0
    """
    info = _meant(session, {"tranindex": tranindex})
    heuristic = session.opened().abort_transaction(info.name)
    return _done(tranindex, info, "rolled back", heuristic=heuristic)


def _decision(session: Session, given: Given) -> DecisionInfo | None:
    """Return the decision that is meant, of which a branch is to be told; None for anything else."""
    text: str = given["tranindex"]
    if ":" not in text:
        return None
    return next((info for info in session.opened().decisions() if str(info.xid) == text), None)


def _forgetting(session: Session, given: Given) -> str:
    decision = _decision(session, given)
    if decision is not None:
        return (
            f"Forget that {decision.participant} is to be told of transaction {decision.xid}, which was decided"
            f" {show(decision.decided_us)}; if it cannot be told now, and still has it prepared, it may roll it back"
        )
    info = _meant(session, given)
    if info.ended_us is None:
        raise UsageError(
            f"Transaction {given['tranindex']} ({info.name}) is {info.state.value}, and was not ended heuristically",
            hint="End it with qcommittrans or qaborttrans.",
        )
    how = "committed" if info.state is records.Outcome.HEURISTIC_COMMIT else "rolled back"
    return (
        f"Forget that transaction {info.index} ({info.name}) was {how} by {info.ended_by}, {show(info.ended_us)}; its"
        " coordinator will not learn it"
    )


@TRANSACTIONS.command(
    "qforgettrans",
    TRANINDEX,
    short="qforget",
    confirm=Confirmation(_forgetting, "Transaction not forgotten"),
    extension=True,
)
def qforgettrans(session: Session, tranindex: str) -> Outcome:
    """Forget how a transaction was ended by qcommittrans or qaborttrans in place of its coordinator.

    Do this when the coordinator will never ask, or when what differs in its other resources has been put right by hand.
    If it asks afterwards, it is told that the transaction is unknown.

    By the xid in a warning of qcheck it also gives up a decision of which a branch in another queue space was not told:
    when that is gone for ever. It is told now if it can be reached.

        qforgettrans 0
    """
    if decision := _decision(session, {"tranindex": tranindex}):
        session.opened().tpc_forget(decision.xid)
        return Line(f"Transaction {tranindex} forgotten", {"transaction": tranindex})
    info = _meant(session, {"tranindex": tranindex})
    session.opened().tpc_forget(info.name)
    return Line(f"Transaction {tranindex} forgotten", {"transaction": info.id})
