"""Databases of applications that take part in transactions over several resources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from qmcore.application_database import DatabaseFacts
from qmcore.errors import InvalidArgumentError, ProtocolError
from qmstorage.decision_table import CREATE, DecisionTable
from qmstorage.participating_connections import ParticipatingConnection

if TYPE_CHECKING:
    from qmcore.xid import Xid

T = TypeVar("T")


class Participant(ABC):
    """The database of an application with the connection that takes part; what differs is the affair of each store."""

    name = ""
    """What the database is called, once its connection is open."""
    cannot_decide = ""
    is_commit_sent = False
    """Whether the commit of the transaction may be on its way."""
    has_begun = False
    is_named_at_begin = False
    lists_others = False
    xid_form = ""
    integrity_error: type[Exception]
    """What the driver raises for a key that is there already."""
    to_be_durable: Sequence[tuple[str, Mapping[str, object]]] = ()
    """Statements that have the commit of the transaction be on the disk, whatever the application has set in it."""

    def __init__(self, connection: Any, its: ParticipatingConnection) -> None:
        self.connection = connection
        self._its = its
        self._is_open = False
        self.joinable: object = None
        """The connection by which calls on a queue space in the database join the transaction, once it is open."""

    @property
    def table(self) -> DecisionTable:
        """Its table of decisions, which may not be there."""
        # Not kept: a cycle would keep the connection of the application.
        return DecisionTable(self)

    def open(self, *, belongs: bool = False) -> None:
        """Take the connection for the transaction. Raises InvalidArgumentError where it has one open, or is closed.

        One that was lost is not closed by the application: that raises SystemFailureError, as the server may be away.
        Where it `belongs` to others, who end it, it is the one that is open, or that the library begins.
        """
        if belongs:
            self._its.take()
            self.identify()
            return
        self.refuse_closed()
        self.do(self._its.open)
        self._is_open = True
        try:
            self.identify()
            self.joinable = self._its.joinable(self.connection)
        except BaseException:
            self.leave()
            raise

    def facts(self) -> DatabaseFacts:
        """Ask the database what it is, and can."""

        def ask() -> tuple[str, str, bool]:
            return (*self.properties(), self.has_table())

        instance, cannot_prepare, has_table = self.alone(ask)
        return DatabaseFacts(instance, cannot_prepare, self.table.identity() if has_table else b"")

    def begin(self, xid: Xid | None = None) -> None:
        """Begin the transaction of the application."""
        del xid
        self.has_begun = True
        self.do(self.begin_marked)

    def is_open(self) -> bool:
        """Return whether the connection is taken for the transaction, which has not ended."""
        return self._is_open

    def has_changed(self) -> bool:
        """Return whether the transaction has changed anything; ProtocolError where the application has ended it."""
        if not self._its.has_ended():
            self._its.flush()
        if self._its.has_ended() or not self.is_marked():
            raise _ended_by_application(self.name)
        return self.has_written()

    def commit(self) -> None:
        """Commit the transaction, on the disk."""
        self.is_commit_sent = True
        self.do(self._its.commit)
        self._is_open = False

    def sync_committed(self) -> None:  # noqa: B027 - what a server commits is on its disk
        """Bring what was committed to the disk, where that does not do it by itself."""

    def roll_back(self) -> None:
        """Roll it back, also when it is prepared; nothing is done where it has ended."""
        self.leave()

    def leave(self) -> None:
        """Let go of the connection, which has no transaction open then; what is prepared stays prepared."""
        if self._is_open:
            self._is_open = False
            self._its.roll_back()

    def let_go(self) -> None:
        """Have the driver end what it has open, without a commit: the library does not know of it."""
        self.do(self._its.driver.rollback)

    def create_table(self) -> None:
        """Create it, in the transaction that is open on the connection, else in one that is committed."""
        is_open = self.do(self._its.has_transaction)
        if is_open:
            self._its.take()
        else:
            self._its.open()

        def create() -> None:
            if not self.has_table():
                self.run(CREATE)

        self.do(create)
        if not is_open:
            self.do(self._its.commit)

    # ---- of each store -----------------------------------------------------------------------------------------------

    @abstractmethod
    def refuse_closed(self) -> None:
        """Refuse a connection that is closed, of another thread, or in a transaction."""

    @abstractmethod
    def identify(self) -> None:
        """Learn the name of the database, and whether commits on the connection are on the disk."""

    @abstractmethod
    def properties(self) -> tuple[str, str]:
        """Return what no copy of the database has, and why it cannot prepare."""

    @abstractmethod
    def begin_marked(self) -> None:
        """Begin the transaction, with a mark by which it is known again."""

    @abstractmethod
    def is_marked(self) -> bool:
        """Return whether the transaction that is open has the mark."""

    @abstractmethod
    def has_written(self) -> bool:
        """Return whether the transaction has changed anything."""

    @abstractmethod
    def has_table(self) -> bool:
        """Return whether there is a table of decisions."""

    @abstractmethod
    def run(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement, whose parameters are written `:name`; return its rows."""

    def run_all(self, statements: Sequence[tuple[str, Mapping[str, object]]]) -> list[list[tuple[Any, ...]]]:
        """Run statements, each with its parameters; return the rows of each."""
        return [self.run(statement, **values) for statement, values in statements]

    @abstractmethod
    def alone(self, work: Callable[[], T]) -> T:
        """Do a work in a transaction of its own, which is committed, on the disk."""

    @abstractmethod
    def do(self, work: Callable[[], T]) -> T:
        """Do a work, whose errors of the database are raised as ours."""


def refuse_automatic() -> InvalidArgumentError:
    """Return the diagnostic for a connection that commits each statement by itself."""
    return InvalidArgumentError(
        "the connection commits each statement by itself (autocommit), and takes no part in a transaction",
        hint="Make it without autocommit, or give another one.",
    )


def _ended_by_application(name: str) -> ProtocolError:
    return ProtocolError(
        f"the application has ended the transaction on {name!r} itself: what it committed there stays committed, and"
        " all else of the transaction is rolled back",
        hint="Leave commit and rollback to the block of qmadmin.transaction, or to the caller of the handler.",
    )
