"""Commands on the transactions of the open queue space."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qmadmin.console import counted
from qmadmin.console.results import Column, Line, Outcome, table_of
from qmadmin.shell.declare import Confirmation, Group, Needs, Positional
from qmadmin.shell.kinds import Candidate, Given, Number
from qmadmin.shell.notices import UsageError

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmcore.attached import TransactionInfo

TRANSACTIONS = Group("Transactions", "transactions")


@TRANSACTIONS.command("qprinttrans", short="qpt", needs=Needs.OPEN_SPACE, shows_only=True)
def qprinttrans(session: Session) -> Outcome:
    """List the outstanding transactions of the open queue space, the oldest first.

    It shows the index that qcommittrans and qaborttrans use, the identifier and state of the transaction, when it was
    begun, its process and whether that is alive, and how many messages it has dequeued, has locked, and has enqueued
    that are stored in the queue space already. Others can see a transaction from its first dequeue on.

        qprinttrans
    """
    space = session.opened()
    infos = space.transactions()
    session.transactions = tuple(info.id for info in infos)
    if infos:
        return table_of(infos, _COLUMNS)
    return session.nothing(f"Queue space '{space.name}' has no outstanding transactions", _COLUMNS)


_COLUMNS = (
    Column("index", "Index", right=True),
    Column("transaction", "Transaction", of="id"),
    Column("state", "State"),
    Column("since", "Since", of="since_us"),
    Column("role", "Owner", of=lambda info: info.owner and info.owner.role),
    Column("pid", "Process", right=True, of=lambda info: info.owner and info.owner.pid),
    Column("host", "Host", of=lambda info: info.owner and info.owner.host),
    Column("alive", "Alive", of=lambda info: "yes" if info.owner and info.owner.alive else "no"),
    Column("dequeued", "Dequeued", right=True),
    Column("locked", "Locked", right=True),
    Column("enqueued", "Enqueued", right=True, of="spilled"),
)


@dataclasses.dataclass(frozen=True)
class TransactionIndex(Number):
    """The index of a transaction in the last listing."""

    what: str = "transaction index"

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the transactions of the last listing."""
        return [Candidate(str(index), name) for index, name in enumerate(session.transactions)]


TRANINDEX = Positional(
    "tranindex",
    TransactionIndex(),
    "The index of the transaction in the last list of qprinttrans.",
    "Transaction index: ",
)


def _meant(session: Session, given: Given) -> TransactionInfo:
    """Return the transaction with an index of the last listing, as it is now."""
    index: int = given["tranindex"]
    if index >= len(session.transactions):
        raise UsageError(f"The last list of transactions has no index {index}", hint="List them with qprinttrans.")
    name = session.transactions[index]
    for info in session.opened().transactions():
        if info.id == name:
            return info
    raise UsageError(f"Transaction {index} ({name}) has ended meanwhile", hint="List them again with qprinttrans.")


def _described(info: TransactionInfo) -> str:
    count = info.dequeued + info.locked + info.spilled
    whose = f" of {info.owner}" if info.owner else ""
    return f"transaction {info.index} ({info.id}){whose} with {counted(count, 'message')}"


@TRANSACTIONS.command(
    "qcommittrans",
    TRANINDEX,
    short="qcommit",
    needs=Needs.OPEN_SPACE,
    confirm=Confirmation(
        lambda session, given: f"Commit {_described(_meant(session, given))}", "Transaction not committed"
    ),
)
def qcommittrans(session: Session, tranindex: int) -> Outcome:
    """Commit a prepared transaction, whatever its coordinator decides.

    An active transaction is refused: only its own process can commit it. This release does not prepare transactions.

        qcommittrans 0
    """
    info = _meant(session, {"tranindex": tranindex})
    session.opened().commit_transaction(info.id)
    return Line(f"Transaction {tranindex} committed", {"transaction": info.id})


@TRANSACTIONS.command(
    "qaborttrans",
    TRANINDEX,
    short="qabort qrollbacktrans",
    needs=Needs.OPEN_SPACE,
    confirm=Confirmation(
        lambda session, given: f"Roll back {_described(_meant(session, given))}", "Transaction not rolled back"
    ),
)
def qaborttrans(session: Session, tranindex: int) -> Outcome:
    """Roll back a transaction, even one that its process is still using.

    The messages that it has dequeued come back and have used up a try; a message without tries left goes to the error
    queue, or stays if there is none. The next dequeue or the commit of its process is refused with QMEABORTED. In
    Tuxedo only a prepared transaction can be rolled back by others.

        qaborttrans 0
    """
    info = _meant(session, {"tranindex": tranindex})
    session.opened().abort_transaction(info.id)
    return Line(f"Transaction {tranindex} rolled back", {"transaction": info.id})
