"""A database of an application that qmadmin knows only by PEP 249: by its driver alone, or by SQLAlchemy.

It is recognized by its table of decisions. With the driver's calls for two phases (TPC) it prepares; without them, or
where the server does not prepare, it decides. What PEP 249 does not tell is not known here: whether anything was
changed, and whether a commit is on the disk.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from qmcore.application_database import TABLE, DatabaseFacts
from qmcore.errors import AbortedError, ProtocolError, QueueError, SystemFailureError
from qmcore.two_phase import OUR_FORMAT
from qmcore.xid import Xid
from qmstorage import joined, participants, xid_forms
from qmstorage.decision_table import CREATE, IDENTITY
from qmstorage.participating_connections import has_begun

if TYPE_CHECKING:
    from qmcore.port import Volume

T = TypeVar("T")

_MARK: Final = "qmadmin_transaction"
_TRIAL: Final = b"qmadmin trial "
"""What the identifier of a transaction begins with that only tries whether the database prepares."""
_RANDOM: Final = 8


class Participant(participants.Participant):
    """A database that is known by the driver of its connection, and by SQLAlchemy where that has made it."""

    lists_others = True
    is_named_at_begin = True

    _xid: Xid | None = None
    """Under which the transaction has begun, where it prepares."""
    _is_prepared = False
    """Whether it is prepared, or may be."""
    _is_marked = False

    @property
    def _driver(self) -> Any:
        return self._its.driver

    @property
    def _dialect(self) -> Any:
        return self._its.dialect

    @property
    def _errors(self) -> Any:
        """What has the exceptions of PEP 249 among its names."""
        return _errors_of(self._its.dialect.loaded_dbapi)

    @property
    def integrity_error(self) -> type[Exception]:
        """What the driver raises for a key that is there already."""
        found: type[Exception] = self._errors.IntegrityError
        return found

    def refuse_closed(self) -> None:
        """Refuse a connection that is closed, or in a transaction, where its driver tells."""
        if self._driver is not None and getattr(self._driver, "closed", False):
            raise joined.closed()
        if self._its.has_transaction():
            raise has_begun()

    def identify(self) -> None:
        """Learn the name of the database: where it is, or by which table it is known."""
        if self._commits_by_itself():
            raise participants.refuse_automatic()
        url = self._its.url
        if url is not None:
            self.name = str(url)
            if url.database == ":memory:":
                self.cannot_decide = "a database in memory is gone with its process"
        else:
            self.name = self._its.module
            self._refuse_open()
            self.name = f"{self._its.module}:{self._identity().hex()}"

    def _commits_by_itself(self) -> bool:
        if getattr(self._driver, "autocommit", None) is True:
            return True
        with contextlib.suppress(NotImplementedError):
            return bool(self._dialect.detect_autocommit_setting(self._driver))
        return False

    def _refuse_open(self) -> None:
        """Refuse a transaction that is open: the driver does, by the rules of PEP 249, where another one begins."""
        driver = self._driver

        def begin() -> None:
            try:
                driver.tpc_begin(xid_forms.new(driver))
                driver.tpc_rollback()
            except self._errors.ProgrammingError as error:
                raise has_begun() from error
            except BaseException:
                with contextlib.suppress(self._errors.Error):
                    driver.tpc_rollback()
                raise

        self.do(begin)

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
        form, why = self._tried(identity)
        return DatabaseFacts(identity.hex(), why, identity, form)

    def know(self, facts: DatabaseFacts) -> None:
        """Take what the process knows of it already."""
        self._form = xid_forms.FORMS.get(facts.xid_form)

    _form: xid_forms.Form | None = None
    """How the driver takes identifiers."""

    def _tried(self, identity: bytes) -> tuple[str, str]:
        """Return in which form the driver takes an identifier, or why the database cannot prepare."""
        if not xid_forms.has_calls(self._driver):
            return "", f"the driver {self._its.module} has no calls for two phases"
        why = ""
        for form in xid_forms.FORMS.values():
            xid = Xid(OUR_FORMAT, _TRIAL + identity + os.urandom(_RANDOM), os.urandom(_RANDOM))
            try:
                self._roll_back_driver()
                if self._tries(form, xid):
                    return form.name, ""
            except BaseException as error:
                with contextlib.suppress(self._errors.Error):
                    self._driver.tpc_rollback()
                if not isinstance(error, (self._errors.Error, ValueError, TypeError)):
                    raise
                why = _words(error)
            finally:
                with contextlib.suppress(self._errors.Error):
                    self._roll_back_driver()
        # Unless the connection is lost, by which nothing is tried.
        self.alone(lambda: self.run(IDENTITY))
        return "", f"it has prepared nothing that recovery could find: {why or 'tpc_recover() does not give it'}"

    def _tries(self, form: xid_forms.Form, xid: Xid) -> bool:
        """Prepare a transaction in which nothing is done, and roll it back; return whether recovery would find it."""
        driver = self._driver
        driver.tpc_begin(form.made(driver, xid))
        self.run(IDENTITY)
        driver.tpc_prepare()
        try:
            found = form.found(driver)
        except self._errors.Error:
            # As PEP 249 has it, nothing but its end may follow now.
            return form.is_standard
        finally:
            driver.tpc_rollback()
        return xid in found

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
        self._refuse_open()
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
            raise self._refusal(error.orig or error) from error

    # ---- a transaction -----------------------------------------------------------------------------------------------

    def begin(self, xid: Xid | None = None) -> None:
        """Begin the transaction of the application, under its identifier where it is to prepare."""
        self._xid = xid
        super().begin()

    def begin_marked(self) -> None:
        """Begin the transaction; without a library with a savepoint in it, which no other one has."""
        self._roll_back_driver()
        if self._its.url is not None:
            self._begin()
            return
        try:
            for statement in ("SAVEPOINT", "RELEASE SAVEPOINT"):
                self._begin() if statement == "SAVEPOINT" else None
                self.run(f"{statement} {_MARK}")
            self.run(f"SAVEPOINT {_MARK}")
            self._is_marked = True
        except self._errors.DatabaseError:
            # It has none: the driver alone refuses the application's own commit.
            self._end_driver()
            self._begin()

    def _begin(self) -> None:
        if self._xid is None:
            self._dialect.do_begin(self._driver)
        else:
            self._driver.tpc_begin(self._formed.made(self._driver, self._xid))

    @property
    def _formed(self) -> xid_forms.Form:
        assert self._form is not None, f"it is not known how {self.name} takes identifiers"  # noqa: S101
        return self._form

    def is_marked(self) -> bool:
        """Return whether the transaction is still the one that was begun; AbortedError where nothing works in it."""
        try:
            self.do(lambda: self.run(IDENTITY))
        except SystemFailureError as error:
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
            except self._errors.DatabaseError:
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
        self.do(self._driver.tpc_prepare)

    def commit(self) -> None:
        """Commit the transaction, prepared or not."""
        if self._xid is None:
            super().commit()
            return
        self.do(self._driver.tpc_commit)
        self._xid, self._is_prepared = None, False
        self._its.finish()
        self._is_open = False

    def roll_back(self) -> None:
        """Roll it back, also when it is prepared; nothing is done where it has ended."""
        xid, is_prepared = self._xid, self._is_prepared
        try:
            if xid is not None:
                self._xid, self._is_prepared = None, False
                with contextlib.suppress(self._errors.Error):
                    self._driver.tpc_rollback()
                if is_prepared:
                    # Whether it was prepared may be unknown, as after an interrupt.
                    self.end_prepared(xid, commits=False)
        finally:
            self.leave()

    def leave(self) -> None:
        """Let go of the connection; where its transaction may be prepared, nothing but its end may follow on it."""
        if not self._is_open:
            return
        xid, is_prepared = self._xid, self._is_prepared
        self._xid, self._is_prepared = None, False
        with contextlib.suppress(self._errors.Error):
            if xid is not None and not is_prepared:
                self._driver.tpc_rollback()
        try:
            self._roll_back_driver()
        except self._errors.Error:
            if is_prepared:
                self._driver.close()
        try:
            super().leave()
        except Exception:
            if not is_prepared:
                raise

    def let_go(self) -> None:
        """Have the driver end what it has open, without a commit."""
        self.do(self._roll_back_driver)

    def _end_driver(self) -> None:
        if self._xid is not None:
            self._driver.tpc_rollback()
        self._roll_back_driver()

    def _roll_back_driver(self) -> None:
        self._dialect.do_rollback(self._driver)

    # ---- recovery ----------------------------------------------------------------------------------------------------

    def end_prepared(self, xid: Xid, *, commits: bool) -> None:
        """Commit or roll back what is prepared; nothing is done where there is none."""
        driver, form = self._driver, self._formed

        def end() -> None:
            self._roll_back_driver()
            try:
                (driver.tpc_commit if commits else driver.tpc_rollback)(form.made(driver, xid))
            except self._errors.Error:
                self._roll_back_driver()
                if xid in form.found(driver):
                    raise
            finally:
                with contextlib.suppress(self._errors.Error):
                    self._roll_back_driver()

        self.do(end)

    def prepared(self) -> list[tuple[Xid, float | None]]:
        """Return the transactions of ours that the driver lists, also those of other databases of the server."""
        form = self._formed

        def listed() -> list[Xid]:
            self._roll_back_driver()
            found = form.found(self._driver)
            self._roll_back_driver()
            return found

        return [(xid, None) for xid in self.do(listed) if not self._is_trial(xid)]

    def _is_trial(self, xid: Xid) -> bool:
        """Return whether it is a trial of whatever process; one of this database is rolled back, as it may be dead."""
        if not xid.gtrid.startswith(_TRIAL):
            return False
        if xid.gtrid.startswith(_TRIAL + self.table.identity()):
            with contextlib.suppress(QueueError):
                self.end_prepared(xid, commits=False)
        return True

    # ---- statements --------------------------------------------------------------------------------------------------

    def run(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        from sqlalchemy import text

        compiled = text(statement).compile(dialect=self._dialect)
        order = compiled.positiontup
        cursor = self._driver.cursor()
        try:
            cursor.execute(str(compiled), values if order is None else tuple(values[name] for name in order))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            cursor.close()

    def alone(self, work: Callable[[], T]) -> T:
        """Do a work in a transaction of its own, which is committed; what the library has begun begins anew."""

        def do() -> T:
            self._roll_back_driver()
            self._dialect.do_begin(self._driver)
            try:
                result = work()
                self._dialect.do_commit(self._driver)
            except BaseException:
                with contextlib.suppress(self._errors.Error):
                    self._roll_back_driver()
                raise
            return result

        return self.do(do)

    def do(self, work: Callable[[], T]) -> T:
        """Do a work, whose errors of the database are raised as ours."""
        try:
            return work()
        except (self._errors.Error, OSError) as error:
            raise self._refusal(error) from error

    def _refusal(self, error: BaseException) -> QueueError:
        errors = self._errors
        is_closed = bool(getattr(self._driver, "closed", False))
        is_lost = is_closed or isinstance(error, (errors.InterfaceError, OSError))
        if is_lost or isinstance(error, (errors.OperationalError, errors.InternalError)):
            return SystemFailureError(
                f"database {self.name!r} failed: {_words(error)}",
                hint="Repeat all of it when the database is back.",
                unreachable=is_lost,
            )
        hint = "Run all of it again, once what keeps it from that is mended."
        return AbortedError(f"database {self.name!r} has refused the transaction: {_words(error)}", hint=hint)


@functools.cache
def _errors_of(dbapi: Any) -> SimpleNamespace:
    """Return the exceptions of a driver; what a dialect does not name is that of the first one's module, or nothing."""
    behind = sys.modules[dbapi.Error.__module__]
    return SimpleNamespace(**{name: getattr(dbapi, name, getattr(behind, name, ())) for name in _NAMES})


_NAMES: Final = (
    "Error",
    "DatabaseError",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "OperationalError",
    "ProgrammingError",
)


def _words(error: BaseException) -> str:
    first = error.args[0] if error.args else ""
    # One of them gives the fields of the server's message.
    words = first.get("M", "") if isinstance(first, dict) else str(error)
    return words.strip().partition("\n")[0] or type(error).__name__
