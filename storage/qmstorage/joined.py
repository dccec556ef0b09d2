"""Connections that applications give for calls to join: of a driver, or under SQLAlchemy or Django.

All of them come down to the connection of a driver. What differs is how a transaction begins, and who tells that it was
committed. No library is imported here: whoever has not loaded one has no connection of it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from qmcore.errors import AbortedError, InvalidArgumentError

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session, scoped_session

    from qmstorage.application_transactions import ApplicationTransaction


T = TypeVar("T")


class Joined:
    """A connection of the application: that of a driver, by itself or under a library. This one is by itself."""

    announces_ends = False
    """Whether each end of a transaction is told, a rollback too."""

    def __init__(self, driver: Any, handle: object | None, library: str) -> None:
        """Take also the `handle` by which its transactions are known: it is referred to weakly, or there is none."""
        self.driver = driver
        """The connection of the driver, as a cursor that is not for asyncio uses it."""
        self.original = driver
        """The same as its library knows it."""
        self.handle = handle
        self.library = library
        self._call: Callable[[Callable[[], Any]], Any] | None = None

    def use(self, driver: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        """Have the connection of the driver used as another one, and by works that are called so."""
        self.driver, self._call = driver, call

    def call(self, work: Callable[[], T]) -> T:
        """Do a work with the connection of the driver, where that may be used; for asyncio, while nobody else does."""
        if self._call is None:
            return work()
        result: T = self._call(work)
        return result

    @property
    def is_in_savepoint(self) -> bool:
        """Whether the library has made a savepoint of which the driver does not know."""
        return False

    def reference(self) -> Callable[[], Any] | None:
        """Return what returns the driver's connection as long as there is one; nothing if it cannot be referred to."""
        return None if self.handle is None else weakref.ref(self.original)

    def begin(self) -> Callable[[], None] | None:
        """Have the library begin a transaction where it has not; return what undoes that."""
        return None

    def listen(self, transaction: ApplicationTransaction) -> None:
        """Have the ends of all transactions on this connection told, where they are."""

    def await_commit(self, transaction: ApplicationTransaction) -> None:
        """See to it that what is owed after the commit of the transaction that is open is done."""
        transaction.follow_silent_end()


class OfSqlAlchemy(Joined):
    """One of SQLAlchemy."""

    announces_ends = True

    def __init__(self, connection: Connection) -> None:
        from sqlalchemy import TwoPhaseTransaction
        from sqlalchemy.exc import InvalidRequestError

        if connection.closed:
            raise closed()
        if isinstance(connection.get_transaction(), TwoPhaseTransaction):
            raise in_two_phases()
        try:
            driver = connection.connection.driver_connection
        except InvalidRequestError as error:
            raise broken("SQLAlchemy's", error) from error
        super().__init__(driver, connection, f"{connection.dialect.name} through {connection.dialect.driver}")
        self._connection = connection

    @property
    def is_in_savepoint(self) -> bool:
        """Whether a savepoint was made."""
        return self._connection.in_nested_transaction()

    def reference(self) -> Callable[[], Any]:
        """Return what returns the driver's connection that it is on at present."""
        referred = weakref.ref(self._connection)

        def driver() -> Any:
            connection = referred()
            # What was invalidated would be connected again.
            is_gone = connection is None or connection.closed or connection.invalidated
            return None if connection is None or is_gone else connection.connection.driver_connection

        return driver

    def begin(self) -> Callable[[], None] | None:
        """Begin a transaction where none is open."""
        return None if self._connection.in_transaction() else self._connection.begin().rollback

    def listen(self, transaction: ApplicationTransaction) -> None:
        """Have the ends told by events."""
        from sqlalchemy import event

        # A cycle between the two would keep a connection that nobody has any more.
        event.listen(
            self._connection,
            "commit",
            lambda its: transaction.before_commit(its.connection.driver_connection, its.connection.rollback),
        )
        event.listen(self._connection, "rollback", lambda _: transaction.end())

    def await_commit(self, transaction: ApplicationTransaction) -> None:
        """Do nothing: the events come."""


class OfDjango(Joined):
    """One of Django."""

    def __init__(self, wrapper: Any) -> None:
        from django.db import DatabaseError

        which = f"Django's connection {wrapper.alias!r}"
        try:
            wrapper.validate_thread_sharing()
        except DatabaseError as error:
            raise of_another_thread(which) from error
        if wrapper.connection is None:
            raise outside_atomic(which) if not wrapper.in_atomic_block else closed(which)
        if not wrapper.in_atomic_block:
            raise outside_atomic(which)
        if wrapper.needs_rollback:
            raise aborted(f"the transaction of {which}")
        driver = wrapper.connection
        super().__init__(driver, wrapper, f"{wrapper.vendor} through {type(driver).__module__.partition('.')[0]}")
        self._wrapper = wrapper

    def reference(self) -> Callable[[], Any]:
        """Return what returns the driver's connection that it is on at present."""
        referred = weakref.ref(self._wrapper)
        return lambda: getattr(referred(), "connection", None)

    def await_commit(self, transaction: ApplicationTransaction) -> None:
        """Have it told of a commit: for each call, as Django forgets what belongs to a savepoint that is undone."""
        hook = _CommitHookOfDjango(self._wrapper, transaction)
        self._wrapper.on_commit(hook.committed)
        transaction.commit_hook = weakref.ref(hook)


class _CommitHookOfDjango:
    """What Django is to call after a commit, and drops with a rollback."""

    def __init__(self, wrapper: Any, transaction: ApplicationTransaction) -> None:
        self._wrapper = wrapper
        self._transaction = transaction

    @property
    def is_to_come(self) -> bool:
        """Whether the transaction is open: it is not any more when what others want to be called is called first."""
        return bool(self._wrapper.in_atomic_block)

    def committed(self) -> None:
        # Django's tests can run this in a transaction, which they roll back.
        if not self.is_to_come:
            self._transaction.after_commit()


def is_a(value: object, module: str, *names: str) -> bool:
    """Return whether it is of one of the classes, of a module that may be loading in another thread just now."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(
        value, tuple(filter(None, (getattr(loaded, name, None) for name in names)))
    )


def of_session(session: Session | scoped_session[Session]) -> Connection:
    """Return the connection of a session of SQLAlchemy, which begins a transaction on it."""
    from sqlalchemy.exc import InvalidRequestError, UnboundExecutionError

    try:
        return session.connection()
    except UnboundExecutionError as error:
        raise InvalidArgumentError(
            "the session has no engine of its own that its connection could be of",
            hint="Give session.connection(bind_arguments={'mapper': ...}) with a class of the right database.",
        ) from error
    except InvalidRequestError as error:
        raise broken("the session's", error) from error


def shown(kind: type) -> str:
    """Return the name of a type."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# ---- refusals --------------------------------------------------------------------------------------------------------


def elsewhere(joined: Joined, device: str, hint: str) -> InvalidArgumentError:
    """Return the diagnostic for a connection to another kind of database than that of a device."""
    return InvalidArgumentError(f"the connection leads to {joined.library}, the device is {device}", hint=hint)


def commits_by_itself() -> InvalidArgumentError:
    """Return the diagnostic for a connection in autocommit, in which no transaction is open."""
    return InvalidArgumentError(
        "the connection commits each statement by itself (AUTOCOMMIT), so that there is no transaction to join",
        hint="Begin a transaction on it, or use another isolation level.",
    )


def outside_atomic(which: str) -> InvalidArgumentError:
    """Return the diagnostic for a connection of Django that commits each statement by itself."""
    return InvalidArgumentError(
        f"{which} is not inside atomic(), so that there is no transaction to join",
        hint="Make the call in a block of django.db.transaction.atomic(), or set ATOMIC_REQUESTS.",
    )


def in_two_phases() -> InvalidArgumentError:
    """Return the diagnostic for a two-phase transaction of the application."""
    return InvalidArgumentError(
        "the connection is in a two-phase transaction, which could not be prepared with messages in it",
        hint="Use qmadmin.transaction with the queue space and the connection, or a transaction of one phase.",
    )


def of_another_thread(which: str) -> InvalidArgumentError:
    """Return the diagnostic for a connection that only the thread that made it may use."""
    return InvalidArgumentError(
        f"{which} was made in another thread, which alone may use it", hint="Give a connection of this thread."
    )


def aborted(which: str) -> AbortedError:
    """Return the diagnostic for a transaction that can only be rolled back."""
    return AbortedError(
        f"{which} can only be rolled back, because a statement in it has failed",
        hint="Roll it back and run it again; what may fail belongs into a savepoint of its own.",
    )


def closed(which: str = "the connection") -> InvalidArgumentError:
    """Return the diagnostic for a connection that is closed."""
    return InvalidArgumentError(f"{which} is closed", hint="Give an open one.")


def broken(whose: str, error: Exception) -> AbortedError:
    """Return the diagnostic for a transaction that a library says can only be rolled back."""
    reason = str(error).partition("\n")[0]
    return AbortedError(f"{whose} transaction can only be rolled back: {reason}", hint="Roll it back and run it again.")


def for_asyncio(connection: object) -> InvalidArgumentError:
    """Return the diagnostic for a connection for asyncio in a call that is not awaited."""
    return InvalidArgumentError(
        f"a connection for asyncio, as {shown(type(connection))} is, cannot be joined by a call that is not awaited",
        hint="Give it to a call of qmadmin.aio, outside of run_sync().",
    )
