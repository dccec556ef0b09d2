"""A volume as it stood at one moment, on a connection of its own, while others go on writing."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from qmcore.errors import InvalidArgumentError, NotOpenError
from qmcore.port import Unit
from qmstorage.sqlite import files, translate
from qmstorage.sqlite.memory_files import MemoryFiles
from qmstorage.sqlite.unit import SqliteUnit
from qmstorage.statements import Texts

T = TypeVar("T")


def refuse_token(token: str) -> None:
    """Refuse the name of another snapshot."""
    if token:
        raise InvalidArgumentError(f"no snapshot of an SQLite file has a name, so that there is none called {token!r}")


_PAGES_AT_A_TIME = 256
"""Pages copied at a time. A fork waits for the end of a step."""


class OpenSnapshots:
    """The open snapshots of a volume: a fork finds each of them either complete and registered, or not at all."""

    def __init__(self) -> None:
        self.registering = threading.Lock()
        self._open: list[SqliteSnapshot] = []
        self._paused: list[SqliteSnapshot] = []

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def one(self, path: str, memory: Collection[str]) -> Iterator[SqliteSnapshot]:
        """Open a new one."""
        with contextlib.ExitStack() as stack:
            with self.registering:
                connection = stack.enter_context(files.reading(path))
                made = stack.enter_context(contextlib.closing(SqliteSnapshot(path, connection, memory)))
                self._open.append(made)
            try:
                yield made
            finally:
                made.close()
                with self.registering:
                    self._open.remove(made)

    def pause(self, seconds: float) -> bool:
        """Keep everybody from using those that are not paused yet; False where that takes longer."""
        for each in [each for each in self._open if each not in self._paused]:
            if not each.pause(seconds):
                return False
            self._paused.append(each)
        return True

    def resume(self) -> None:
        """Allow the use of all of them again."""
        while self._paused:
            self._paused.pop().resume()

    def give_to_parent(self) -> None:
        """Close, in a forked process, what belongs to the parent."""
        for each in self._open:
            each.give_to_parent()

    def close(self) -> None:
        """Close all of them."""
        for each in list(self._open):
            each.close()


class SqliteSnapshot:
    """A read transaction that stays open: what is written meanwhile is not in it, and no writer waits for it.

    The log cannot be reused while it is open, and so grows with what others write; so does that of each memory.
    """

    token = ""
    """None: SQLite cannot share a snapshot between connections."""

    def __init__(self, path: str, connection: sqlite3.Connection, memory: Collection[str] = ()) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._turnstile = threading.Lock()
        """Taken before the lock, so that a fork which waits for the lock is the next to get it."""
        self._closed = False
        self._texts = Texts(files.DIALECT)
        self._connection = connection
        self._memory_files = MemoryFiles(path, connection)
        spaces = SqliteUnit(connection.cursor(), self._texts).spaces.listed() if memory else []
        self._memory_files.attach_to_read(space for space in spaces if space.name in memory)
        self._connection.execute("BEGIN")
        # The snapshot is taken by the first query, not before.
        self._connection.execute("SELECT count(*) FROM device").fetchone()
        self._memory_files.look()

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work`, which changes nothing. A fork of this process waits for it, or until it calls `run_unlocked`."""
        with self._in_use() as connection:
            return work(SqliteUnit(connection.cursor(), self._texts, self._memory_files.texts))

    def integrity(self, step: Callable[[int], None]) -> list[str]:
        """Return what is wrong with the file itself; `step` gets the percent that are done."""
        with self._in_use() as connection:
            return list(integrity(connection, lambda percent: self.run_unlocked(lambda: step(percent))))

    def copy_to(self, path: str, step: Callable[[int], None]) -> None:
        """Write all of it to a file, which must be empty; `step` gets the percent that are done."""

        def progress(_status: int, remaining: int, total: int) -> None:
            self.run_unlocked(lambda: step((total - remaining) * 100 // total if total else 100))
            if self._closed:
                raise self._not_open()

        with self._in_use() as connection:
            try:
                copy(connection, path, progress)
            except sqlite3.Error as error:
                # What is wrong with the source is found by its own checks.
                raise translate.from_copying(error, path) from error

    def release(self) -> None:
        """End the read transaction, so that the log can be reused."""
        with self._in_use() as connection:
            connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def deferring_forks(self) -> Iterator[Callable[[Callable[[], None]], None]]:
        """Defer forks of this process while SQLite works on other files.

        Yields a function that calls another one and allows forks meanwhile; call it every now and then.
        """
        with self._turn():
            yield self.run_unlocked

    def close(self) -> None:
        """Close the snapshot."""
        with self._turn():
            self._closed = True
            self._connection.close()

    def pause(self, seconds: float) -> bool:
        """Wait until it is not in use and keep it so, because the process is about to fork."""
        if not self._turnstile.acquire(timeout=seconds):
            return False
        if not self._lock.acquire(timeout=seconds):
            self._turnstile.release()
            return False
        return True

    def resume(self) -> None:
        """Allow its use again."""
        self._lock.release()
        self._turnstile.release()

    def give_to_parent(self) -> None:
        """Close, in a forked process, what belongs to the parent."""
        self._closed = True
        self._connection.close()
        self._lock, self._turnstile = threading.Lock(), threading.Lock()

    def run_unlocked(self, call: Callable[[], None]) -> None:
        """Call, within `read`, what may fork; a fork that waits goes first."""
        self._lock.release()
        try:
            call()
        finally:
            with self._turnstile:
                self._lock.acquire()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with self._turnstile:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def _not_open(self) -> NotOpenError:
        return NotOpenError(f"device {self._path!r} was closed while it was being read", path=self._path)

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[sqlite3.Connection]:
        with self._turn():
            if self._closed:
                raise self._not_open()
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise translate.from_sqlite(error, self._path) from error


def copy(
    source: sqlite3.Connection, path: str, progress: Callable[[int, int, int], None], *, name: str = "main"
) -> None:
    """Write all of a file, or of one that is attached by a name, to an empty one; `progress` as sqlite3's backup."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as target:
        # Nobody sees the file before it is complete.
        target.execute("PRAGMA journal_mode = OFF")
        target.execute("PRAGMA synchronous = OFF")
        source.backup(target, pages=_PAGES_AT_A_TIME, progress=progress, name=name, sleep=0)


def integrity(connection: sqlite3.Connection, step: Callable[[int], None]) -> Iterator[str]:
    """Yield what SQLite finds wrong with a file: its pages, its tables with their indexes, its foreign keys."""
    try:
        yield from _integrity(connection, step)
    except sqlite3.DatabaseError as error:
        # It is so damaged that it cannot even be read to its end.
        if isinstance(error, sqlite3.OperationalError):
            raise
        yield str(error)


def _integrity(connection: sqlite3.Connection, step: Callable[[int], None]) -> Iterator[str]:
    pages = [row[0] for row in connection.execute("PRAGMA quick_check") if row[0] != "ok"]
    yield from pages
    step(40)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    seen = set(pages)
    for at, table in enumerate(tables, 1):
        for (line,) in connection.execute(f'PRAGMA integrity_check("{table}")'):
            if line != "ok" and line not in seen:
                yield line
        step(40 + 55 * at // len(tables))
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} names a {parent} that is not there"
    step(100)
