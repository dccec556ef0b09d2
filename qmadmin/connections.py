"""What an application gives for a call to join its own database transaction, as types alone.

Of what need not be installed it is said which attributes tell it: a type that a checker cannot find makes all unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from sqlite3 import Connection as Sqlite3Connection

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session


class PsycopgConnection(Protocol):
    """A connection of psycopg 3."""

    @property
    def pgconn(self) -> Any:
        """The connection of libpq."""

    def pipeline(self) -> Any:
        """Begin to send without waiting for answers."""

    def tpc_recover(self) -> list[Any]:
        """Return the two-phase transactions that are prepared."""


class PsycopgAsyncConnection(Protocol):
    """A connection of psycopg 3 for asyncio."""

    @property
    def pgconn(self) -> Any:
        """The connection of libpq."""

    def pipeline(self) -> Any:
        """Begin to send without waiting for answers."""

    async def tpc_recover(self) -> list[Any]:
        """Return the two-phase transactions that are prepared."""


class DjangoConnection(Protocol):
    """One of `django.db.connections`."""

    @property
    def in_atomic_block(self) -> bool:
        """Whether it is inside `atomic()`."""

    @property
    def on_commit(self) -> Any:
        """What has a function called once the transaction is committed."""


class DjangoConnectionProxy(Protocol):
    """What `django.db.connection` is: it stands for the connection of the thread."""

    def __getattr__(self, item: Any, /) -> Any:
        """Return an attribute of the connection of the thread."""

    def __delattr__(self, name: Any, /) -> Any:
        """Delete one."""

    def __contains__(self, key: Any, /) -> Any:
        """Return what the connection of the thread says."""


_OfDjango: TypeAlias = "DjangoConnection | DjangoConnectionProxy"

ApplicationConnection: TypeAlias = (
    "Connection | Session | scoped_session[Any] | PsycopgConnection | Sqlite3Connection | _OfDjango"
)
"""A connection that calls can join: of SQLAlchemy (or its session), psycopg 3, sqlite3, or `django.db.connection`."""


class TwoPhaseConnection(Protocol):
    """A connection of any driver that has the calls of PEP 249 for two phases."""

    @property
    def cursor(self) -> Any:
        """What makes a cursor."""

    @property
    def xid(self) -> Any:
        """What makes the identifier of a transaction."""

    @property
    def tpc_begin(self) -> Any:
        """What begins a transaction under an identifier."""

    @property
    def tpc_prepare(self) -> Any:
        """What prepares it."""

    @property
    def tpc_commit(self) -> Any:
        """What commits it, prepared or not."""

    @property
    def tpc_rollback(self) -> Any:
        """What rolls it back."""

    @property
    def tpc_recover(self) -> Any:
        """What lists the transactions that are prepared."""


DatabaseConnection: TypeAlias = "ApplicationConnection | TwoPhaseConnection"
"""What `qmadmin.transaction` takes: a connection that calls can join; or one of SQLAlchemy to whatever database it
reaches; or of any driver with the calls of PEP 249 for two phases (tpc_begin and others)."""

AsyncApplicationConnection: TypeAlias = (
    "AsyncConnection | AsyncSession | async_scoped_session[Any] | PsycopgAsyncConnection"
)
"""A connection that awaited calls can join: for asyncio, of SQLAlchemy (or its session) or psycopg 3."""
