"""The tables of a volume, as they are since schema version 6.

A message row is written once and deleted once; its state is a row in one narrow table: `ready`, `due`, `held` or
`history`. Numbers of messages are 15 bits of queue space and 48 bits of sequence number, so that a message id finds its
row by arithmetic. Times are UTC microseconds.
"""

from __future__ import annotations

from typing import Final

from qmstorage.definition_tables import NARROW, NUMBER, device, entry, extent, metadata, queue, schedule, space
from qmstorage.sql import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    literal_column,
    text,
)
from qmstorage.transaction_tables import decision, era, heuristic, trans

__all__ = [
    "APPLICATION_ID",
    "IN_MEMORY",
    "IS_GIVEN_BACK",
    "IS_LOCKED",
    "REVISION",
    "VERSION",
    "adopted",
    "audit",
    "chunk",
    "counter",
    "decision",
    "device",
    "due",
    "entry",
    "era",
    "expiring",
    "extent",
    "forwarding",
    "held",
    "heuristic",
    "highest",
    "history",
    "import_batch",
    "import_job",
    "message",
    "metadata",
    "owner",
    "queue",
    "ready",
    "residence",
    "schedule",
    "share",
    "space",
    "spent",
    "threshold",
    "trans",
    "version",
    "waiter",
]

VERSION: Final = 6
"""The schema version of a volume that this release reads and writes: the last step of the migrations."""

REVISION: Final = f"{VERSION:04d}"

APPLICATION_ID: Final = 0x514D4131
"""What marks an SQLite file as ours in its header ("QMA1")."""

message = Table(
    "message",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=False, comment="space << 48 | sequence"),
    Column("queue_id", Integer, nullable=False),
    Column("order_key", LargeBinary, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("enqueued_at", BigInteger, nullable=False),
    Column("available_at", BigInteger),
    Column("expires_at", BigInteger),
    Column("pages", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("urcode", BigInteger, nullable=False),
    Column("appkey", BigInteger, nullable=False),
    Column("corrid", LargeBinary),
    Column("reply_queue", Text),
    Column("failure_queue", Text),
    Column("error_queue", Text),
    Column("delivery_asked", Text, comment="by its sender: persist, nonpersist or default"),
    Column("reply_delivery", Text, comment="asked for replies, likewise"),
    Column("client_id", Text),
    Column("type", Text, nullable=False),
    Column("subtype", Text),
    Column("group_id", BigInteger, comment="the first of the messages that stay together"),
    Column("origin_queue", Text),
    Column("origin_msgid", Text),
    Column("origin_reason", Text),
    Column("origin_error", Text),
    Column("moved_at", BigInteger),
    Column("headers", Text, comment="JSON object"),
    Column("body_id", BigInteger, comment="where the body is kept apart: its number in chunk"),
    Column("body", LargeBinary),
    # Behind the body, because a column is only ever added at the end: where they are empty no body is passed over.
    Column("first_msgid", Text, comment="of one that was moved: its identifier before the first move"),
    Column("expires_before", BigInteger, comment="of one in an error queue: the expiry that it had before"),
)
Index(
    "message_by_corrid",
    message.c.queue_id,
    message.c.corrid,
    message.c.order_key,
    # An option of another dialect here would load that dialect at every start, which takes a tenth of a second.
    sqlite_where=message.c.corrid.is_not(None),
)
Index("message_by_group", message.c.queue_id, message.c.group_id, sqlite_where=message.c.group_id.is_not(None))

chunk = Table(
    "chunk",
    metadata,
    Column("body_id", BigInteger, nullable=False, comment="the number that the message had when it was enqueued"),
    Column("number", Integer, nullable=False, comment="from 0"),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("body_id", "number"),
    comment="large bodies, and those that a transaction enqueues and its process does not keep",
)

share = Table(
    "share",
    metadata,
    Column("message_id", NUMBER, primary_key=True, autoincrement=False),
    Column("places", Integer, nullable=False, comment="how many are left"),
    comment="messages of a queue for several that came with more than one place",
)

spent = Table(
    "spent",
    metadata,
    Column("message_id", BigInteger, nullable=False),
    Column("consumer_id", Integer, nullable=False),
    Column("how", SmallInteger, nullable=False, comment="0: dequeued, 1: expired, 2: discarded, 3: moved"),
    Column("at", BigInteger, nullable=False),
    PrimaryKeyConstraint("message_id", "consumer_id"),
    comment="on PostgreSQL: places that are over and were not subtracted in share yet",
    **NARROW,
)

ready = Table(
    "ready",
    metadata,
    Column("queue_id", Integer, nullable=False),
    Column("order_key", LargeBinary, nullable=False),
    Column("message_id", BigInteger, nullable=False),
    Column("retries", Integer, nullable=False),
    PrimaryKeyConstraint("queue_id", "order_key"),
    **NARROW,
)

due = Table(
    "due",
    metadata,
    Column("queue_id", Integer, nullable=False),
    Column("available_at", BigInteger, nullable=False),
    Column("message_id", BigInteger, nullable=False),
    Column("order_key", LargeBinary, nullable=False),
    Column("retries", Integer, nullable=False),
    Column(
        "given_back",
        SmallInteger,
        nullable=False,
        server_default=text("0"),
        comment="1: a consumer that gave it back keeps it from being ready; 0: its sender, or an administrator",
    ),
    PrimaryKeyConstraint("queue_id", "available_at", "message_id"),
    **NARROW,
)
Index("due_by_message", due.c.message_id)
IS_GIVEN_BACK: Final = due.c.given_back == literal_column("1")
"""Written out, or the index of those which are given back cannot be used."""
# With the column of its condition, without which SQLite prefers the primary key, and reads all that are delayed.
Index("due_given_back", due.c.queue_id, due.c.given_back, due.c.available_at, sqlite_where=IS_GIVEN_BACK)

expiring = Table(
    "expiring",
    metadata,
    Column("queue_id", Integer, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("message_id", BigInteger, nullable=False),
    PrimaryKeyConstraint("queue_id", "expires_at", "message_id"),
    comment="messages with an expiry that no transaction holds",
    **NARROW,
)

held = Table(
    "held",
    metadata,
    Column("trans_id", BigInteger, nullable=False),
    Column("message_id", BigInteger, nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("order_key", LargeBinary, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("pages", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("role", SmallInteger, nullable=False, comment="0: dequeued, 1: to be enqueued by the commit, 2: locked"),
    Column("delay", BigInteger, comment="of one that is to be enqueued: from the commit, microseconds"),
    Column("lifetime", BigInteger, comment="of one that is to be enqueued: from the commit, microseconds"),
    Column(
        "consumers", LargeBinary, comment="of one that is to be enqueued for several: their numbers, 4 bytes for each"
    ),
    PrimaryKeyConstraint("queue_id", "trans_id", "message_id"),
    **NARROW,
)
IS_LOCKED: Final = held.c.role == literal_column("2")
"""Written out, or the index of those which are locked cannot be used."""
Index("held_locked", held.c.queue_id, held.c.trans_id, held.c.order_key, sqlite_where=IS_LOCKED)

history = Table(
    "history",
    metadata,
    Column("queue_id", Integer, nullable=False),
    Column("consumed_at", BigInteger, nullable=False),
    Column("message_id", BigInteger, nullable=False),
    Column("consumer", Text, nullable=False),
    Column("trans_id", BigInteger),
    PrimaryKeyConstraint("queue_id", "consumed_at", "message_id"),
    comment="messages that are kept after they were consumed",
    **NARROW,
)
Index("history_by_message", history.c.message_id)

counter = Table(
    "counter",
    metadata,
    Column("space_id", Integer, nullable=False),
    Column("queue_id", Integer, nullable=False, comment="0: the queue space as a whole"),
    Column("slot", Integer, nullable=False, comment="0; on PostgreSQL also one for each session, which has its share"),
    Column("generation", BigInteger, nullable=False, comment="another number after each change of a definition"),
    Column("sequence", BigInteger, nullable=False, comment="the last sequence number that was given"),
    Column("messages", BigInteger, nullable=False),
    Column("pages", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("enqueued", BigInteger, nullable=False),
    Column("dequeued", BigInteger, nullable=False),
    Column("expired", BigInteger, nullable=False),
    Column("discarded", BigInteger, nullable=False),
    Column("moved", BigInteger, nullable=False, comment="to another queue, or elsewhere"),
    Column(
        "highest",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="of the queue space: the most messages at one time, unless there are more by now",
    ),
    PrimaryKeyConstraint("space_id", "queue_id", "slot"),
    **NARROW,
)

highest = Table(
    "highest",
    metadata,
    Column("space_id", Integer, nullable=False),
    Column("resource", Text, nullable=False, comment="queues, transactions, processes, actions, or messages"),
    Column("value", BigInteger, nullable=False, comment="the most at one time"),
    PrimaryKeyConstraint("space_id", "resource"),
    comment="how much of a queue space's limits was in use at most; messages of disk and memory together, each of which"
    " counts its own in counter",
    **NARROW,
)

threshold = Table(
    "threshold",
    metadata,
    Column("queue_id", Integer, nullable=False),
    Column("memory", Boolean, nullable=False, comment="the limit for non-persistent messages"),
    Column("value", BigInteger, nullable=False, comment="the use that reached the high limit, in its unit"),
    Column("claimed_by", BigInteger, comment="the owner that is to run the command; none: it was started"),
    Column("claimed_at", BigInteger),
    PrimaryKeyConstraint("queue_id", "memory"),
    comment="queues whose high limit was reached, until their use is down at the low limit",
)

owner = Table(
    "owner",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=False),
    Column("space_id", Integer, nullable=False),
    Column("process", Text, nullable=False, comment="process id and start time"),
    Column("pid", BigInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("boot", Text, nullable=False),
    Column("lock", Text, nullable=False, comment="name of the file that the process has locked while it lives"),
    Column("role", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
)

waiter = Table(
    "waiter",
    metadata,
    Column("queue_id", Integer, nullable=False),
    Column("address", Text, nullable=False),
    Column("owner_id", BigInteger, nullable=False),
    PrimaryKeyConstraint("queue_id", "address"),
    **NARROW,
)

forwarding = Table(
    "forwarding",
    metadata,
    Column("owner_id", BigInteger, nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("calls", BigInteger, nullable=False, comment="since the forwarder began, as all that is counted"),
    Column("successes", BigInteger, nullable=False),
    Column("failures", BigInteger, nullable=False),
    Column("retries", BigInteger, nullable=False, comment="failures after which the message is tried again"),
    Column("refused", BigInteger, nullable=False, comment="calls that were no try: the service could not work"),
    Column("dropped_replies", BigInteger, nullable=False, comment="for which there was no reply queue"),
    Column("in_flight", BigInteger, nullable=False, comment="calls that run"),
    Column("workers", BigInteger, nullable=False, comment="most calls at the same time"),
    Column("rate", BigInteger, nullable=False, comment="messages in the last minute"),
    Column("p50_us", BigInteger, comment="microseconds that half of the last calls took at most"),
    Column("p95_us", BigInteger),
    Column("p99_us", BigInteger),
    Column("last_error", Text, nullable=False),
    Column("last_error_us", BigInteger),
    Column("paused_until_us", BigInteger, comment="the queue is not served before"),
    Column("trouble", Text, nullable=False, comment="why it is not"),
    Column("changed_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("owner_id", "queue_id"),
    comment="what forwarders tell of their work on queues, for as long as they are attached",
    **NARROW,
)

adopted = Table(
    "adopted",
    metadata,
    Column("space_id", Integer, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("first_sequence", BigInteger, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("shift", BigInteger, nullable=False, comment="added to a foreign sequence number to give ours"),
    PrimaryKeyConstraint("space_id", "incarnation", "first_sequence", "shift"),
    comment="message ids of other queue spaces that imports keep valid",
)

import_job = Table(
    "import_job",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=False, comment="random, so that none is used twice"),
    Column("space_id", Integer, nullable=False),
    Column("archive", Text, nullable=False, comment="the identifier of the archive"),
    Column("plan", Text, nullable=False, comment="JSON: what is imported, and as what"),
    Column("state", Text, nullable=False, comment="loading, merging, done, or abandoned"),
    Column("shift", BigInteger, nullable=False, comment="added to a sequence number of the archive to give ours"),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    comment="imports, also those that are done: an archive is not imported twice by mistake",
)

import_batch = Table(
    "import_batch",
    metadata,
    Column("import_id", BigInteger, nullable=False),
    Column("part", Text, nullable=False, comment="file of the archive"),
    Column("first_row", BigInteger, nullable=False, comment="in that file, from 0"),
    Column("messages", BigInteger, nullable=False),
    Column("pages", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    PrimaryKeyConstraint("import_id", "part", "first_row"),
    comment="what of an archive is loaded, until its import is done",
    **NARROW,
)

audit = Table(
    "audit",
    metadata,
    Column("id", NUMBER, primary_key=True, comment="grows: the newest is never deleted"),
    Column("at", BigInteger, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("uid", BigInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("command", Text, nullable=False, comment="as it was given"),
    Column("target", Text, nullable=False, comment="what it is about, such as queue QS/q1"),
    Column("outcome", Text, comment="none: it did not come to its end, or is still at it"),
    comment="destructive commands; only the volume that QMCONFIG names has any",
)

IN_MEMORY: Final = (message, chunk, ready, due, expiring, held, counter)
"""The tables that the memory of a queue space has too, for its non-persistent messages."""

residence = Table(
    "residence",
    MetaData(),
    Column("device_id", Text, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("boot", Text, nullable=False),
    comment="whose memory this is, and since which start of the machine",
)

version = Table(
    "alembic_version",
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
