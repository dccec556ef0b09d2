"""What is defined on a volume: the device, its pages, its queue spaces and queues. A part of `schema`."""

from __future__ import annotations

from typing import Any, Final

from qmstorage.sql import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

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
    Column("volume", Text, nullable=False, server_default="", comment="random; the volume's own"),
    Column(
        "opened", BigInteger, nullable=False, server_default=text("0"), comment="grows: an older copy has a lower one"
    ),
)

entry = Table(
    "entry",
    metadata,
    Column("dlindex", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("first_page", BigInteger, nullable=False),
    Column("pages", BigInteger, nullable=False),
    Column("volume", Text, nullable=False, server_default="", comment="identifier of the volume at the path"),
    Column("opened", BigInteger, nullable=False, server_default=text("0"), comment="the number that it has at least"),
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

space = Table(
    "space",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("incarnation", Text, nullable=False, comment="first half of the message ids"),
    Column("ipc_key", BigInteger, nullable=False),
    Column("pages", BigInteger, nullable=False),
    Column("queues", BigInteger, nullable=False),
    Column("transactions", BigInteger, nullable=False),
    Column("processes", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("error_queue", Text, nullable=False),
    Column("blocking", BigInteger, nullable=False),
    Column("actions", BigInteger, nullable=False),
    Column("memory", BigInteger, nullable=False),
    Column("overflow", BigInteger, nullable=False),
    Column("handles", BigInteger, nullable=False),
    Column("cursors", BigInteger, nullable=False),
    Column("owners", BigInteger, nullable=False),
    Column("temporary_queues", BigInteger, nullable=False),
    Column("filter_memory", BigInteger, nullable=False),
    Column("initialized", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint("id BETWEEN 1 AND 32767", name="id"),
)

queue = Table(
    "queue",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("space_id", Integer, ForeignKey("space.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("ordering", Text, nullable=False),
    Column("out_of_order", Text, nullable=False),
    Column("retries", BigInteger, nullable=False),
    Column("retry_delay", BigInteger, nullable=False, comment="seconds"),
    Column("high", Text, nullable=False),
    Column("low", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("memory_high", Text, nullable=False),
    Column("memory_low", Text, nullable=False),
    Column("memory_command", Text, nullable=False),
    Column("delivery", Text, nullable=False, comment="default: persist or nonpersist"),
    Column("expiration", BigInteger, comment="default lifetime in seconds"),
    Column("error_queue", Text, comment="instead of the queue space's"),
    Column("keep_expired", Boolean, nullable=False, comment="expired messages go to the error queue"),
    Column("grouping", Boolean, nullable=False, comment="messages of one transaction stay together"),
    Column("retention", BigInteger, nullable=False, comment="seconds that consumed messages are kept; -1: forever"),
    Column("enqueue_enabled", Boolean, nullable=False),
    Column("dequeue_enabled", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False, comment="another number after each change"),
    Column("created_at", BigInteger, nullable=False),
    Column(
        "import_id",
        BigInteger,
        nullable=False,
        comment="0; else the import that fills it, less than 0 where it replaced it: hidden",
    ),
    Column("retry_growth", Text, nullable=False, server_default="none", comment="of the delay: linear or exponential"),
    Column("retry_factor", Double, nullable=False, server_default=text("2"), comment="of exponential growth"),
    Column("retry_maximum", BigInteger, nullable=False, server_default=text("0"), comment="seconds; 0: none"),
    Column("retry_jitter", Double, nullable=False, server_default=text("0"), comment="the most taken off, 0 to 1"),
    Column("default_delay", BigInteger, nullable=False, server_default=text("0"), comment="seconds"),
    Column(
        "multiple_consumers",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="each message is for all that subscribe",
    ),
    Column(
        "parent_id",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="of a consumer: the queue that it subscribes to; else 0. It is defined as that is",
    ),
    Column("going", Boolean, nullable=False, server_default=false(), comment="a consumer that has unsubscribed"),
    Column("ended_in", BigInteger, comment="on PostgreSQL, of one that is going: the number of the transaction"),
    Column("rule", Text, nullable=False, server_default="", comment="of a consumer: what is true of its messages"),
    Column(
        "topics", Text, nullable=False, server_default="", comment="of a consumer: patterns, a JSON array; or empty"
    ),
    UniqueConstraint("space_id", "name", "import_id"),
    # A number that was a destroyed queue's must not find that queue's leftovers in another process's memory.
    sqlite_autoincrement=True,
)

schedule = Table(
    "schedule",
    metadata,
    Column("space_id", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("queue", Text, nullable=False, comment="its name: it may be destroyed and made again"),
    Column("rule", Text, nullable=False, comment="when: fields of cron, or every and a span"),
    Column("timezone", Text, nullable=False),
    Column("missed", Text, nullable=False, comment="moments that nobody was there for: once or skip"),
    Column("paused", Boolean, nullable=False),
    Column("counted_from", BigInteger, nullable=False, comment="when an interval begins"),
    Column("next_at", BigInteger, comment="the next due moment; none: paused, or never"),
    Column("body", LargeBinary, comment="of its messages"),
    Column("options", Text, nullable=False, comment="JSON object: what its messages ask for, and their type"),
    Column("created_at", BigInteger, nullable=False),
    Column("last_at", BigInteger, comment="the due moment of the last message"),
    Column("last_msgid", Text),
    PrimaryKeyConstraint("space_id", "name"),
)
Index("schedule_by_moment", schedule.c.space_id, schedule.c.next_at, schedule.c.name)
