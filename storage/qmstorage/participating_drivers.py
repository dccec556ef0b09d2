"""A database of an application that qmadmin knows only by PEP 249: by its driver alone, or by SQLAlchemy.

It is recognized by its table of decisions. With the driver's calls for two phases (TPC) it prepares; without them, or
where the server does not prepare, it decides. What PEP 249 does not tell is not known here: whether anything was
changed, and whether a commit is on the disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from qmcore.application_database import TABLE, DatabaseFacts
from qmcore.errors import AbortedError, ProtocolError, QueueError
from qmcore.xid import Xid
from qmstorage import joined, participants
from qmstorage.decision_table import CREATE, IDENTITY
from qmstorage.driver_calls import TRIAL, DriverCalls
from qmstorage.participating_connections import ParticipatingConnection, has_begun
from qmstorage.xid_forms import FORMS

if TYPE_CHECKING:
    from qmcore.port import Volume

T = TypeVar("T")

_MARK: Final = "qmadmin_transaction"


class Participant(participants.Participant):
    """A database that is known by the driver of its connection, and by SQLAlchemy where that has made it."""

    lists_others = True
    is_named_at_begin = True

    def __init__(self, connection: Any, its: ParticipatingConnection) -> None:
        super().__init__(connection, its)
        self._calls = DriverCalls(its)
        self.integrity_error = self._calls.errors.IntegrityError

    _xid: Xid | None = None
    """Under which the transaction has begun, where it prepares."""
    _is_prepared = False
    """Whether it is prepared, or may be."""
    _is_marked = False

    def refuse_closed(self) -> None:
        """Refuse a connection that is closed, or in a transaction, where its driver tells."""
        if self._calls.driver is not None and getattr(self._calls.driver, "closed", False):
            raise joined.closed()
        if self._its.has_transaction():
            raise has_begun()

    def identify(self) -> None:
        """Learn the name of the database: where it is, or by which table it is known."""
        if self._calls.commits_by_itself():
            raise participants.refuse_automatic()
        url = self._its.url
        if url is not None:
            self.name = str(url)
            if url.database == ":memory:":
                self.cannot_decide = "a database in memory is gone with its process"
        else:
            self.name = self._its.module
            self.do(self._calls.refuse_open)
            self.name = f"{self._its.module}:{self._identity().hex()}"

    def _identity(self) -> bytes:
        """Return the identity of the table; ProtocolError where there is none that can be read."""
        try:
            self.alone(lambda: self.run(IDENTITY))
        except QueueError as error:
            if error.unreachable:
                raise
            raise ProtocolError(
                f"database {self.name!r} needs the table {TABLE}, by which alone it is known again, and that cannot be"
                f" read: {error.__cause__}",
                hint="Make it once with qmadmin.create_decision_table(connection).",
            ) from error
        return self.table.identity()

    # ---- what it is, and can -----------------------------------------------------------------------------------------

    def facts(self) -> DatabaseFacts:
        """Ask the database what it is, and try whether it prepares."""
        identity = self._identity()
        form, why = self._calls.tried(identity)
        if not form:
            # Unless the connection is lost, by which nothing is tried.
            self.alone(lambda: self.run(IDENTITY))
        return DatabaseFacts(identity.hex(), why, identity, form)

    def properties(self) -> tuple[str, str]:
        """Not asked: `facts` knows both."""
        raise AssertionError

    def has_table(self) -> bool:
        """Not asked: it is known by its table."""
        raise AssertionError

    def create_table(self) -> None:
        """Create it: by SQLAlchemy with the types of its dialect, in what is open; else in a transaction of its own."""
        if self._its.url is not None:
            self._create_by_sqlalchemy()
            return
        self.refuse_closed()
        self.name = self._its.module
        self.do(self._calls.refuse_open)
        try:
            self.alone(lambda: self.run(IDENTITY))
        except QueueError as error:
            if error.unreachable:
                raise
            self.alone(lambda: self.run(CREATE))

    def _create_by_sqlalchemy(self) -> None:
        from sqlalchemy.exc import DBAPIError

        from qmstorage.decision_table import described

        is_open = self._its.has_transaction()
        if is_open:
            self._its.take()
        else:
            self._its.open()
        self.name = str(self._its.url)
        try:
            self.do(lambda: described().create(self._its.connection, checkfirst=True))
            if not is_open:
                self.do(self._its.commit)
        except DBAPIError as error:
            self._its.roll_back() if not is_open else None
            raise self._calls.refusal(error.orig or error, self.name) from error

    # ---- a transaction -----------------------------------------------------------------------------------------------

    def begin(self, xid: Xid | None = None) -> None:
        """Begin the transaction of the application, under its identifier where it is to prepare."""
        self._xid = xid
        super().begin()

    def begin_marked(self) -> None:
        """Begin the transaction; without a library with a savepoint in it, which no other one has."""
        self._calls.roll_back()
        if self._its.url is not None:
            self._calls.begin(self.xid_form, self._xid)
            return
        try:
            for statement in ("SAVEPOINT", "RELEASE SAVEPOINT"):
                self._calls.begin(self.xid_form, self._xid) if statement == "SAVEPOINT" else None
                self.run(f"{statement} {_MARK}")
            self.run(f"SAVEPOINT {_MARK}")
            self._is_marked = True
        except self._calls.errors.DatabaseError:
            # It has none: the driver alone refuses the application's own commit.
            if self._xid is not None:
                self._calls.driver.tpc_rollback()
            self._calls.roll_back()
            self._calls.begin(self.xid_form, self._xid)

    def is_marked(self) -> bool:
        """Return whether the transaction is still the one that was begun; AbortedError where nothing works in it."""
        try:
            self.do(lambda: self.run(IDENTITY))
        except QueueError as error:
            if error.unreachable:
                raise
            raise AbortedError(
                f"the transaction on {self.name!r} can only be rolled back: {error.__cause__}",
                hint="Run all of it again; what may fail belongs into a savepoint of its own.",
            ) from error
        if self._is_marked:
            self._is_marked = False
            try:
                self.run(f"RELEASE SAVEPOINT {_MARK}")
            except self._calls.errors.DatabaseError:
                return False
        return True

    def has_written(self) -> bool:
        """Return True: a driver does not tell."""
        return True

    def is_of(self, volume: Volume) -> bool:
        """Return False: no call on a queue space joins a transaction by such a connection."""
        del volume
        return False

    def prepare(self, xid: Xid) -> None:
        """Prepare the transaction, which has begun under the identifier."""
        assert xid == self._xid, f"{xid} is not {self._xid}"  # noqa: S101
        self._is_prepared = True
        self.do(self._calls.driver.tpc_prepare)

    def commit(self) -> None:
        """Commit the transaction, prepared or not."""
        if self._xid is None:
            super().commit()
            return
        self.do(self._calls.driver.tpc_commit)
        self._xid, self._is_prepared = None, False
        self._its.finish()
        self._is_open = False

    def roll_back(self) -> None:
        """Roll it back, also when it is prepared; nothing is done where it has ended."""
        xid, is_prepared = self._xid, self._is_prepared
        self._calls.close_if_interrupted()
        try:
            if xid is not None:
                self._xid, self._is_prepared = None, False
                with contextlib.suppress(self._calls.errors.Error):
                    self._calls.driver.tpc_rollback()
                if is_prepared:
                    # Whether it was prepared may be unknown, as after an interrupt.
                    self.end_prepared(xid, commits=False)
        finally:
            self.leave()

    def leave(self) -> None:
        """Let go of the connection; where its transaction may be prepared, nothing but its end may follow on it."""
        if not self._is_open:
            return
        is_closed = self._calls.close_if_interrupted()
        xid, is_prepared = self._xid, self._is_prepared
        self._xid, self._is_prepared = None, False
        with contextlib.suppress(self._calls.errors.Error):
            if xid is not None and not is_prepared:
                self._calls.driver.tpc_rollback()
        try:
            self._calls.roll_back()
        except self._calls.errors.Error:
            if is_prepared:
                self._calls.close()
        try:
            super().leave()
        except Exception:
            if not (is_prepared or is_closed):
                raise

    def let_go(self) -> None:
        """Have the driver end what it has open, without a commit."""
        self.do(self._calls.roll_back)

    # ---- recovery ----------------------------------------------------------------------------------------------------

    def end_prepared(self, xid: Xid, *, commits: bool) -> None:
        """Commit or roll back what is prepared; nothing is done where there is none."""
        driver, form = self._calls.driver, FORMS[self.xid_form]

        def end() -> None:
            self._calls.roll_back()
            try:
                (driver.tpc_commit if commits else driver.tpc_rollback)(form.made(driver, xid))
            except self._calls.errors.Error:
                self._calls.roll_back()
                if xid in form.found(driver):
                    raise
            finally:
                with contextlib.suppress(self._calls.errors.Error):
                    self._calls.roll_back()

        self.do(end)

    def prepared(self) -> list[tuple[Xid, float | None]]:
        """Return the transactions of ours that the driver lists, also those of other databases of the server."""
        form = FORMS[self.xid_form]

        def listed() -> list[Xid]:
            self._calls.roll_back()
            found = form.found(self._calls.driver)
            self._calls.roll_back()
            return found

        found = self.do(listed)
        its = TRIAL + self.table.identity()
        for xid in found:
            if xid.gtrid.startswith(its):
                # Whose process may be dead.
                with contextlib.suppress(QueueError):
                    self.end_prepared(xid, commits=False)
        return [(xid, None) for xid in found if not xid.gtrid.startswith(TRIAL)]

    # ---- statements --------------------------------------------------------------------------------------------------

    def run(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        return self._calls.run(statement, values)

    def alone(self, work: Callable[[], T]) -> T:
        """Do a work in a transaction of its own, which is committed; what the library has begun begins anew."""

        def do() -> T:
            self._calls.roll_back()
            self._calls.dialect.do_begin(self._calls.driver)
            try:
                result = work()
                self._calls.dialect.do_commit(self._calls.driver)
            except BaseException:
                self._calls.close_if_interrupted()
                with contextlib.suppress(self._calls.errors.Error):
                    self._calls.roll_back()
                raise
            return result

        return self.do(do)

    def do(self, work: Callable[[], T]) -> T:
        """Do a work, whose errors of the database are raised as ours."""
        try:
            return work()
        except (self._calls.errors.Error, OSError) as error:
            raise self._calls.refusal(error, self.name) from error
