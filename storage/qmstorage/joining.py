"""Working in a transaction of the application's own, on its connection to the same SQLite file.

What is enqueued or dequeued stands or falls with that transaction. Those who wait are told, and capacity commands run,
once it is committed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, event

from qmcore.errors import InvalidArgumentError, QueueError
from qmcore.port import Unit
from qmstorage import translate
from qmstorage.runner import Texts
from qmstorage.unit import SqlUnit

if TYPE_CHECKING:
    from qmstorage.volume import SqliteVolume

T = TypeVar("T")

_FULL = 2
"""PRAGMA synchronous: each commit is brought to the disk."""


def write_on(volume: SqliteVolume, texts: Texts, connection: object, work: Callable[[Unit], T]) -> T:
    """Run `work` in the transaction of a SQLAlchemy connection to the file of the volume."""
    if not isinstance(connection, Connection):
        raise InvalidArgumentError(
            f"the connection must be a SQLAlchemy Connection, got {type(connection).__name__}",
            hint="Of a Session, give session.connection().",
        )
    driver = _driver_of(connection, volume.path)
    cursor = driver.cursor()
    unit = SqlUnit(cursor, texts)
    try:
        if not driver.in_transaction:
            # SQLAlchemy has begun a transaction; the driver begins it late, and not for writing.
            if not connection.in_transaction():
                connection.begin()
            cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("SAVEPOINT qmadmin")
        try:
            result = work(unit)
        except BaseException:
            cursor.execute("ROLLBACK TO qmadmin")
            raise
        finally:
            cursor.execute("RELEASE qmadmin")
    except sqlite3.Error as error:
        raise translate.from_sqlite(error, volume.path) from error
    finally:
        cursor.close()
    if unit.arrivals or unit.actions:
        follower = volume.followers.get(connection)
        if follower is None:
            follower = volume.followers[connection] = Follower(connection, volume)
        follower.follow(unit)
    return result


def _driver_of(connection: Connection, path: str) -> sqlite3.Connection:
    driver: Any = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        raise InvalidArgumentError(f"the connection leads to {connection.dialect.name}, the device is an SQLite file")
    file = next((row[2] for row in driver.execute("PRAGMA database_list") if row[1] == "main"), "")
    if not file or not Path(file).samefile(path):
        raise InvalidArgumentError(
            f"the connection leads to {file or 'a database in memory'!r}, the queue space is on {path!r}",
            hint="Keep the tables of the application in the same file, or use a transaction of the queue space.",
            path=path,
        )
    (level,) = driver.execute("PRAGMA synchronous").fetchone()
    if level < _FULL:
        raise InvalidArgumentError(
            f"the connection to {path!r} does not bring each commit to the disk (PRAGMA synchronous is {level})",
            hint="Execute PRAGMA synchronous=FULL when the connection is made.",
            path=path,
        )
    return driver


class Follower:
    """What is to be done when the application commits; it is forgotten when it rolls back."""

    def __init__(self, connection: Connection, volume: SqliteVolume) -> None:
        self._volume = volume
        self._arrivals: set[int] = set()
        self._actions: list[Callable[[], None]] = []
        event.listen(connection, "commit", self._committing)
        event.listen(connection, "rollback", self._rolled_back)

    def follow(self, unit: SqlUnit) -> None:
        """Remember what a unit has to have done once it is committed."""
        self._arrivals |= unit.arrivals
        self._actions += unit.actions

    def _committing(self, _: Connection) -> None:
        arrivals, actions = self._arrivals, self._actions
        self._arrivals, self._actions = set(), []
        if arrivals or actions:
            # The event comes before the commit. A write of ours waits until the application has let the file go.
            threading.Thread(target=self._after, args=(arrivals, actions), name="qmadmin-follow", daemon=True).start()

    def _rolled_back(self, _: Connection) -> None:
        self._arrivals, self._actions = set(), []

    def _after(self, arrivals: set[int], actions: list[Callable[[], None]]) -> None:
        def tell(unit: Unit) -> None:
            for queue_id in arrivals:
                unit.notify(queue_id)

        try:
            self._volume.write(tell, durable=False)
            for action in actions:
                action()
        except QueueError:
            # Waiters look by themselves within a second, and housekeeping starts what was claimed.
            return
