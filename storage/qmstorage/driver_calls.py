"""What is called on a connection of which no more is known than PEP 249 says."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from types import SimpleNamespace
from typing import Any, Final

from qmcore.errors import AbortedError, QueueError, SystemFailureError
from qmcore.two_phase import OUR_FORMAT
from qmcore.xid import Xid
from qmstorage import xid_forms
from qmstorage.decision_table import IDENTITY
from qmstorage.participating_connections import ParticipatingConnection, has_begun

TRIAL: Final = b"qmadmin trial "
"""What the identifier of a transaction begins with that only tries whether the database prepares."""
_RANDOM: Final = 8


class DriverCalls:
    """The calls of a driver, and of the dialect by which SQLAlchemy speaks to it."""

    def __init__(self, its: ParticipatingConnection) -> None:
        self._its = its
        self.dialect = its.dialect
        # Which the caller handles, as in a block of except: it has interrupted nothing of this.
        self._handled = sys.exc_info()[1]

    @property
    def driver(self) -> Any:
        """The connection of the driver, once it is open."""
        return self._its.driver

    @property
    def errors(self) -> Any:
        """What has the exceptions of PEP 249 among its names."""
        return _errors_of(self.dialect.loaded_dbapi)

    def commits_by_itself(self) -> bool:
        """Return whether the connection commits each statement by itself, where the driver or its dialect tells."""
        if getattr(self.driver, "autocommit", None) is True:
            return True
        with contextlib.suppress(NotImplementedError):
            return bool(self.dialect.detect_autocommit_setting(self.driver))
        return False

    def refuse_open(self) -> None:
        """Refuse a transaction that is open: the driver does, by the rules of PEP 249, where another one begins."""
        driver = self.driver
        try:
            driver.tpc_begin(xid_forms.new(driver))
            driver.tpc_rollback()
        except self.errors.ProgrammingError as error:
            raise has_begun() from error
        except BaseException:
            self._end_two_phases()
            raise

    def tried(self, identity: bytes) -> tuple[str, str]:
        """Return in which form the driver takes an identifier, or why the database cannot prepare."""
        if not xid_forms.has_calls(self.driver):
            return "", f"the driver {self._its.module} has no calls for two phases"
        why = ""
        for form in xid_forms.FORMS.values():
            xid = Xid(OUR_FORMAT, TRIAL + identity + os.urandom(_RANDOM), os.urandom(_RANDOM))
            try:
                self.roll_back()
                if self._tries(form, xid):
                    return form.name, ""
            except BaseException as error:
                self._end_two_phases()
                if not isinstance(error, (self.errors.Error, ValueError, TypeError)):
                    raise
                why = _words(error)
            finally:
                with contextlib.suppress(self.errors.Error):
                    self.roll_back()
        return "", f"it has prepared nothing that recovery could find: {why or 'tpc_recover() does not give it'}"

    def _tries(self, form: xid_forms.Form, xid: Xid) -> bool:
        """Prepare a transaction in which nothing is done, and roll it back; return whether recovery would find it."""
        driver = self.driver
        driver.tpc_begin(form.made(driver, xid))
        self.run(IDENTITY, {})
        driver.tpc_prepare()
        try:
            found = form.found(driver)
        except self.errors.Error:
            # As PEP 249 has it, nothing but its end may follow now.
            return form.is_standard
        finally:
            driver.tpc_rollback()
        return xid in found

    def begin(self, form: str, xid: Xid | None) -> None:
        """Begin a transaction, under its identifier where it has one, which the driver takes in a form."""
        if xid is None:
            self.dialect.do_begin(self.driver)
        else:
            self.driver.tpc_begin(xid_forms.FORMS[form].made(self.driver, xid))

    def roll_back(self) -> None:
        """Roll back what is open in one phase."""
        self.dialect.do_rollback(self.driver)

    def _end_two_phases(self) -> None:
        """Roll back what has begun in two phases, after an error."""
        self.close_if_interrupted()
        with contextlib.suppress(self.errors.Error):
            self.driver.tpc_rollback()

    def close_if_interrupted(self) -> bool:
        """Close a connection where what is handled now began with an exception from outside, as Ctrl-C.

        It may be in the middle of a statement, which no driver tells, and from which a driver need not find back.
        Returns whether it is closed.
        """
        error = sys.exc_info()[1]
        while isinstance(error, Exception) and error is not self._handled:
            error = error.__context__
        if error is None or error is self._handled or isinstance(error, GeneratorExit):
            return False
        self.close()
        return True

    def close(self) -> None:
        """Close the connection, in whatever state it is."""
        with contextlib.suppress(Exception):
            self.driver.close()

    def run(self, statement: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        from sqlalchemy import text

        compiled = text(statement).compile(dialect=self.dialect)
        order = compiled.positiontup
        cursor = self.driver.cursor()
        try:
            cursor.execute(str(compiled), values if order is None else tuple(values[name] for name in order))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            cursor.close()

    def refusal(self, error: BaseException, name: str) -> QueueError:
        """Return an error of the driver as ours."""
        errors = self.errors
        is_closed = bool(getattr(self.driver, "closed", False))
        is_lost = is_closed or isinstance(error, (errors.InterfaceError, OSError))
        if is_lost or isinstance(error, (errors.OperationalError, errors.InternalError)):
            return SystemFailureError(
                f"database {name!r} failed: {_words(error)}",
                hint="Repeat all of it when the database is back.",
                unreachable=is_lost,
            )
        hint = "Run all of it again, once what keeps it from that is mended."
        return AbortedError(f"database {name!r} has refused the transaction: {_words(error)}", hint=hint)


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
