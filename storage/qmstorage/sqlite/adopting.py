"""An SQLite database of an application, which becomes a device beside the application's tables."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qmcore.errors import BadResourceError
from qmstorage import schema
from qmstorage.sql import made

if TYPE_CHECKING:
    from qmcore.errors import QueueError

_HEADER: Final = b"SQLite format 3\0"
_ENCODING: Final = "UTF-8"
_NAMES_SHOWN: Final = 5

_LEFT_ALONE: Final = "Make the device in a file of its own; this one is left alone."


def may_be_database(path: str) -> bool:
    """Return whether a file begins as a database of SQLite does."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


def refuse_unfit(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database of an application that cannot become a device: what it has stays as it is.

    Raises BadResourceError where names of tables would collide, another program has marked the file as its own, or its
    texts are encoded in another way.
    """
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    if mark:
        raise _unfit(f"{path!r} is marked as a file of another program (application_id {mark & 0xFFFFFFFF:#x})", path)
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    if encoding != _ENCODING:
        raise _unfit(f"the texts of database {path!r} are in {encoding}, and those of a device in {_ENCODING}", path)
    ours = {name.lower() for name in _names()}
    taken = [
        (kind, name)
        for kind, name in connection.execute("SELECT type, name FROM sqlite_master ORDER BY name")
        if name.lower() in ours
    ]
    if taken:
        told = ", ".join(f"{kind} {name!r}" for kind, name in taken[:_NAMES_SHOWN])
        more = f" and {len(taken) - _NAMES_SHOWN} more" if len(taken) > _NAMES_SHOWN else ""
        raise _unfit(f"database {path!r} has {told}{more}, whose names a device needs itself", path)


def _names() -> Iterator[str]:
    """Give the names of all tables and indexes that a device has, or may have for a while."""
    for table in made(schema.metadata).sorted_tables:
        yield table.name
        yield from (str(index.name) for index in table.indexes)
    # The one is in the memory of queue spaces, which is attached; the other is there while disk space is allocated.
    yield from ("residence", "allocation")


def _unfit(sentence: str, path: str) -> QueueError:
    return BadResourceError(sentence, hint=_LEFT_ALONE, path=path)


@contextlib.contextmanager
def journal_mode_kept(connection: sqlite3.Connection) -> Iterator[None]:
    """Give a database of an application the journal back that it had, if it does not become a device after all."""
    (before,) = connection.execute("PRAGMA journal_mode").fetchone()
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute(f"PRAGMA journal_mode = {before}")
        raise
