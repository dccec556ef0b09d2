"""What is defined on a volume: the device, its pages, its queue spaces and queues. A part of `schema`."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from qmcore import queue as queues
from qmcore import space as spaces
from qmcore.attributes import Attribute

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits; SQLite makes only a column that is declared INTEGER its row number."""

NARROW: Final[dict[str, Any]] = {"sqlite_with_rowid": False}
"""Rows are kept in the primary key itself."""

device = Table(
    "device",
    metadata,
    Column("id", Text, primary_key=True, comment="random; the same in every volume of the device"),
    Column("main", Boolean, nullable=False, comment="true in the file that QMCONFIG names"),
    Column("page_size", Integer, nullable=False),
    Column("durability", Text, nullable=False, comment="full, or relaxed: no fsync per commit"),
    Column("group_name", Text, nullable=False, comment="group that may read and write; empty: the owner only"),
    Column("commands", Boolean, nullable=False, comment="whether capacity commands run"),
    Column("created_at", BigInteger, nullable=False),
    Column("partitions", Integer, nullable=False, comment="tables that messages are split into; 0: not split"),
    Column("home", Text, comment="the database that the volume was last written in; none on SQLite"),
)

entry = Table(
    "entry",
    metadata,
    Column("dlindex", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("first_page", BigInteger, nullable=False),
    Column("pages", BigInteger, nullable=False),
)

extent = Table(
    "extent",
    metadata,
    Column("space", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("dlindex", Integer, nullable=False),
    Column("first_page", BigInteger, nullable=False),
    Column("pages", BigInteger, nullable=False),
    PrimaryKeyConstraint("space", "number"),
    UniqueConstraint("dlindex", "first_page"),
)

_TYPES: Final = {str: Text, int: BigInteger, bool: Boolean}
_COMMENTS: Final = {
    "retry_delay": "seconds",
    "delivery": "default: persist or nonpersist",
    "expiration": "default lifetime in seconds",
    "keep_expired": "expired messages go to the error queue",
    "grouping": "messages of one transaction stay together",
    "retention": "seconds that consumed messages are kept; -1: forever",
}


def _column(known: Attribute, name: str = "") -> Column[Any]:
    """Return the column of an attribute, which an upgrade brings to the tables of devices."""
    comment, nullable = _COMMENTS.get(known.name), known.kind.may_be_none
    return Column(name or known.name, _TYPES[known.kind.plain_type], nullable=nullable, comment=comment)


space = Table(
    "space",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("incarnation", Text, nullable=False, comment="first half of the message ids"),
    *(_column(known) for known in spaces.ATTRIBUTES.values() if known.name not in ("name", "initialized")),
    Column("initialized", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint("id BETWEEN 1 AND 32767", name="id"),
)

queue = Table(
    "queue",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("space_id", Integer, ForeignKey("space.id"), nullable=False),
    *(
        _column(known, "ordering" if known.name == "order" else "")
        for known in queues.ATTRIBUTES.values()
        if known.name != "error_queue"
    ),
    Column("error_queue", Text, comment="instead of the queue space's"),
    Column("version", BigInteger, nullable=False, comment="another number after each change"),
    Column("created_at", BigInteger, nullable=False),
    Column(
        "import_id",
        BigInteger,
        nullable=False,
        comment="0; else the import that fills it, less than 0 where it replaced it: hidden",
    ),
    UniqueConstraint("space_id", "name", "import_id"),
    # A number that was a destroyed queue's must not find that queue's leftovers in another process's memory.
    sqlite_autoincrement=True,
)
