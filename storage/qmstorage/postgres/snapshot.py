"""A volume as it stood at one moment, in a session of its own, while others go on writing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors, sql

from qmcore.errors import InvalidArgumentError, NotOpenError
from qmcore.port import Unit
from qmstorage.postgres import translate
from qmstorage.postgres.sessions import our_types

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresUnit
    from qmstorage.statements import Texts

T = TypeVar("T")


_NO_LIMITS = (
    # It is idle while others read, for as long as that takes. Older servers do not know all of these.
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN"
    " ('idle_in_transaction_session_timeout', 'statement_timeout', 'transaction_timeout')"
)


class PostgresSnapshot:
    """A read transaction that stays open: what is written meanwhile is not in it, and no writer waits for it.

    The server cannot reclaim what is deleted while it is open.
    """

    def __init__(
        self,
        path: str,
        connection: psycopg.Connection[Any],
        unit: Callable[[Any, int, Mapping[int, Texts]], PostgresUnit],
        of: str = "",
    ) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.Lock()
        self._closed = False
        our_types(connection.adapters)
        self._unit = unit
        self.memories: Mapping[int, Texts] = {}
        """The texts of statements on the memories that are read too, by the numbers of their queue spaces."""
        self._token = ""
        with self._translating():
            connection.execute(_NO_LIMITS)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if of:
                self._join(of)
            # The snapshot is taken by the first query, not before.
            connection.execute("SELECT 1")

    @property
    def token(self) -> str:
        """The name by which others, also in other processes, join the snapshot."""
        with self._lock, self._translating():
            if not self._token:
                ((self._token,),) = self._connection.execute("SELECT pg_export_snapshot()").fetchall()
            return self._token

    def _join(self, of: str) -> None:
        try:
            self._connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(of))
        except (errors.InvalidParameterValue, errors.UndefinedObject) as error:
            raise InvalidArgumentError(
                f"nobody has a snapshot {of!r} of device {self._path!r}, or no longer",
                hint="Whoever began it has to keep it until all others have joined.",
                path=self._path,
            ) from error

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work`, which changes nothing."""
        with self._lock, self._translating():
            return work(self._unit(self._connection.cursor(binary=True), 0, self.memories))

    def run_unlocked(self, call: Callable[[], None]) -> None:
        """Call, within `read`, what may fork: a fork leaves the session to the parent."""
        call()

    def integrity(self, step: Callable[[int], None]) -> list[str]:
        """Return nothing: the server takes care of its own files, and pg_amcheck checks them on demand."""
        step(100)
        return []

    def copy_to(self, path: str, step: Callable[[int], None]) -> None:
        """Refuse: the database has better tools."""
        del path, step
        raise InvalidArgumentError(
            f"device {self._path!r} is in a database, which qbackup does not copy",
            hint="Use pg_dump with --schema, or the backup of the whole server.",
            path=self._path,
        )

    def release(self) -> None:
        """End the read transaction, so that the server can reclaim what was deleted meanwhile."""
        with self._lock, self._translating():
            self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def deferring_forks(self) -> Iterator[Callable[[Callable[[], None]], None]]:
        """Defer no fork: no file is open here."""
        yield self.run_unlocked

    def close(self) -> None:
        """Close the snapshot."""
        self._closed = True
        with contextlib.suppress(psycopg.Error):
            self._connection.close()

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        if self._closed:
            raise NotOpenError(f"device {self._path!r} was closed while it was being read", path=self._path)
        try:
            yield
        except psycopg.Error as error:
            raise translate.from_psycopg(error, self._path) from error
