"""The tables of schema version 1.

What a step did never changes, so it names every table itself: those in `qmstorage.schema` are always the newest.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "adopted",
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("first_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("shift", sa.BigInteger(), nullable=False, comment="added to a foreign sequence number to give ours"),
        sa.PrimaryKeyConstraint("space_id", "incarnation", "first_sequence", "shift", name=op.f("adopted_pkey")),
        comment="message ids of other queue spaces that imports keep valid",
    )
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
            comment="grows: the newest is never deleted",
        ),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("uid", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False, comment="as it was given"),
        sa.Column("target", sa.Text(), nullable=False, comment="what it is about, such as queue QS/q1"),
        sa.Column("outcome", sa.Text(), nullable=True, comment="none: it did not come to its end, or is still at it"),
        sa.PrimaryKeyConstraint("id", name=op.f("audit_pkey")),
        comment="destructive commands; only the volume that QMCONFIG names has any",
    )
    op.create_table(
        "chunk",
        sa.Column(
            "body_id",
            sa.BigInteger(),
            nullable=False,
            comment="the number that the message had when it was enqueued",
        ),
        sa.Column("number", sa.Integer(), nullable=False, comment="from 0"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("body_id", "number", name=op.f("chunk_pkey")),
        comment="large bodies, and those that a transaction enqueues and its process does not keep",
    )
    op.create_table(
        "counter",
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("queue_id", sa.Integer(), nullable=False, comment="0: the queue space as a whole"),
        sa.Column(
            "slot",
            sa.Integer(),
            nullable=False,
            comment="0; on PostgreSQL also one for each session, which has its share",
        ),
        sa.Column(
            "generation", sa.BigInteger(), nullable=False, comment="another number after each change of a definition"
        ),
        sa.Column("sequence", sa.BigInteger(), nullable=False, comment="the last sequence number that was given"),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("enqueued", sa.BigInteger(), nullable=False),
        sa.Column("dequeued", sa.BigInteger(), nullable=False),
        sa.Column("expired", sa.BigInteger(), nullable=False),
        sa.Column("discarded", sa.BigInteger(), nullable=False),
        sa.Column("moved", sa.BigInteger(), nullable=False, comment="to another queue, or elsewhere"),
        sa.PrimaryKeyConstraint("space_id", "queue_id", "slot", name=op.f("counter_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "device",
        sa.Column("id", sa.Text(), nullable=False, comment="random; the same in every volume of the device"),
        sa.Column("main", sa.Boolean(), nullable=False, comment="true in the file that QMCONFIG names"),
        sa.Column("page_size", sa.Integer(), nullable=False),
        sa.Column("durability", sa.Text(), nullable=False, comment="full, or relaxed: no fsync per commit"),
        sa.Column(
            "group_name", sa.Text(), nullable=False, comment="group that may read and write; empty: the owner only"
        ),
        sa.Column("commands", sa.Boolean(), nullable=False, comment="whether capacity commands run"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column(
            "partitions", sa.Integer(), nullable=False, comment="tables that messages are split into; 0: not split"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("device_pkey")),
    )
    op.create_table(
        "due",
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("available_at", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("order_key", sa.LargeBinary(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", "available_at", "message_id", name=op.f("due_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index("due_by_message", "due", ["message_id"], unique=False)
    op.create_table(
        "entry",
        sa.Column("dlindex", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("first_page", sa.BigInteger(), nullable=False),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("dlindex", name=op.f("entry_pkey")),
    )
    op.create_table(
        "expiring",
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", "expires_at", "message_id", name=op.f("expiring_pkey")),
        comment="messages with an expiry that no transaction holds",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "extent",
        sa.Column("space", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("dlindex", sa.Integer(), nullable=False),
        sa.Column("first_page", sa.BigInteger(), nullable=False),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("space", "number", name=op.f("extent_pkey")),
        sa.UniqueConstraint("dlindex", "first_page", name=op.f("extent_dlindex_first_page_key")),
    )
    op.create_table(
        "forwarding",
        sa.Column("owner_id", sa.BigInteger(), nullable=False),
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column(
            "calls", sa.BigInteger(), nullable=False, comment="since the forwarder began, as all that is counted"
        ),
        sa.Column("successes", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column(
            "retries", sa.BigInteger(), nullable=False, comment="failures after which the message is tried again"
        ),
        sa.Column(
            "refused", sa.BigInteger(), nullable=False, comment="calls that were no try: the service could not work"
        ),
        sa.Column("dropped_replies", sa.BigInteger(), nullable=False, comment="for which there was no reply queue"),
        sa.Column("in_flight", sa.BigInteger(), nullable=False, comment="calls that run"),
        sa.Column("workers", sa.BigInteger(), nullable=False, comment="most calls at the same time"),
        sa.Column("rate", sa.BigInteger(), nullable=False, comment="messages in the last minute"),
        sa.Column(
            "p50_us", sa.BigInteger(), nullable=True, comment="microseconds that half of the last calls took at most"
        ),
        sa.Column("p95_us", sa.BigInteger(), nullable=True),
        sa.Column("p99_us", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("last_error_us", sa.BigInteger(), nullable=True),
        sa.Column("paused_until_us", sa.BigInteger(), nullable=True, comment="the queue is not served before"),
        sa.Column("trouble", sa.Text(), nullable=False, comment="why it is not"),
        sa.Column("changed_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner_id", "queue_id", name=op.f("forwarding_pkey")),
        comment="what forwarders tell of their work on queues, for as long as they are attached",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "held",
        sa.Column("trans_id", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("order_key", sa.LargeBinary(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column(
            "role",
            sa.SmallInteger(),
            nullable=False,
            comment="0: dequeued, 1: to be enqueued by the commit, 2: locked",
        ),
        sa.Column(
            "delay",
            sa.BigInteger(),
            nullable=True,
            comment="of one that is to be enqueued: from the commit, microseconds",
        ),
        sa.Column(
            "lifetime",
            sa.BigInteger(),
            nullable=True,
            comment="of one that is to be enqueued: from the commit, microseconds",
        ),
        sa.PrimaryKeyConstraint("queue_id", "trans_id", "message_id", name=op.f("held_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "held_locked", "held", ["queue_id", "trans_id", "order_key"], unique=False, sqlite_where=sa.text("role = 2")
    )
    op.create_table(
        "history",
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("consumed_at", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("consumer", sa.Text(), nullable=False),
        sa.Column("trans_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("queue_id", "consumed_at", "message_id", name=op.f("history_pkey")),
        comment="messages that are kept after they were consumed",
        sqlite_with_rowid=False,
    )
    op.create_index("history_by_message", "history", ["message_id"], unique=False)
    op.create_table(
        "import_batch",
        sa.Column("import_id", sa.BigInteger(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False, comment="file of the archive"),
        sa.Column("first_row", sa.BigInteger(), nullable=False, comment="in that file, from 0"),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("import_id", "part", "first_row", name=op.f("import_batch_pkey")),
        comment="what of an archive is loaded, until its import is done",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "import_job",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
            comment="random, so that none is used twice",
        ),
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("archive", sa.Text(), nullable=False, comment="the identifier of the archive"),
        sa.Column("plan", sa.Text(), nullable=False, comment="JSON: what is imported, and as what"),
        sa.Column("state", sa.Text(), nullable=False, comment="loading, merging, done, or abandoned"),
        sa.Column(
            "shift", sa.BigInteger(), nullable=False, comment="added to a sequence number of the archive to give ours"
        ),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("import_job_pkey")),
        comment="imports, also those that are done: an archive is not imported twice by mistake",
    )
    op.create_table(
        "message",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
            comment="space << 48 | sequence",
        ),
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("order_key", sa.LargeBinary(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("enqueued_at", sa.BigInteger(), nullable=False),
        sa.Column("available_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("urcode", sa.BigInteger(), nullable=False),
        sa.Column("appkey", sa.BigInteger(), nullable=False),
        sa.Column("corrid", sa.LargeBinary(), nullable=True),
        sa.Column("reply_queue", sa.Text(), nullable=True),
        sa.Column("failure_queue", sa.Text(), nullable=True),
        sa.Column("error_queue", sa.Text(), nullable=True),
        sa.Column("delivery_asked", sa.Text(), nullable=True, comment="by its sender: persist, nonpersist or default"),
        sa.Column("reply_delivery", sa.Text(), nullable=True, comment="asked for replies, likewise"),
        sa.Column("client_id", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("subtype", sa.Text(), nullable=True),
        sa.Column("group_id", sa.BigInteger(), nullable=True, comment="the first of the messages that stay together"),
        sa.Column("origin_queue", sa.Text(), nullable=True),
        sa.Column("origin_msgid", sa.Text(), nullable=True),
        sa.Column("origin_reason", sa.Text(), nullable=True),
        sa.Column("origin_error", sa.Text(), nullable=True),
        sa.Column("moved_at", sa.BigInteger(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=True, comment="JSON object"),
        sa.Column(
            "body_id", sa.BigInteger(), nullable=True, comment="where the body is kept apart: its number in chunk"
        ),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("message_pkey")),
    )
    op.create_index(
        "message_by_corrid",
        "message",
        ["queue_id", "corrid", "order_key"],
        unique=False,
        sqlite_where=sa.text("corrid IS NOT NULL"),
    )
    op.create_index(
        "message_by_group",
        "message",
        ["queue_id", "group_id"],
        unique=False,
        sqlite_where=sa.text("group_id IS NOT NULL"),
    )
    op.create_table(
        "owner",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False, comment="process id and start time"),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("boot", sa.Text(), nullable=False),
        sa.Column(
            "lock", sa.Text(), nullable=False, comment="name of the file that the process has locked while it lives"
        ),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("owner_pkey")),
    )
    op.create_table(
        "ready",
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("order_key", sa.LargeBinary(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", "order_key", name=op.f("ready_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "space",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False, comment="first half of the message ids"),
        sa.Column("ipc_key", sa.BigInteger(), nullable=False),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.Column("queues", sa.BigInteger(), nullable=False),
        sa.Column("transactions", sa.BigInteger(), nullable=False),
        sa.Column("processes", sa.BigInteger(), nullable=False),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("error_queue", sa.Text(), nullable=False),
        sa.Column("blocking", sa.BigInteger(), nullable=False),
        sa.Column("actions", sa.BigInteger(), nullable=False),
        sa.Column("memory", sa.BigInteger(), nullable=False),
        sa.Column("overflow", sa.BigInteger(), nullable=False),
        sa.Column("handles", sa.BigInteger(), nullable=False),
        sa.Column("cursors", sa.BigInteger(), nullable=False),
        sa.Column("owners", sa.BigInteger(), nullable=False),
        sa.Column("temporary_queues", sa.BigInteger(), nullable=False),
        sa.Column("filter_memory", sa.BigInteger(), nullable=False),
        sa.Column("initialized", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id BETWEEN 1 AND 32767", name=op.f("space_id_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("space_pkey")),
        sa.UniqueConstraint("name", name=op.f("space_name_key")),
    )
    op.create_table(
        "threshold",
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("memory", sa.Boolean(), nullable=False, comment="the limit for non-persistent messages"),
        sa.Column("value", sa.BigInteger(), nullable=False, comment="the use that reached the high limit, in its unit"),
        sa.Column(
            "claimed_by",
            sa.BigInteger(),
            nullable=True,
            comment="the owner that is to run the command; none: it was started",
        ),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("queue_id", "memory", name=op.f("threshold_pkey")),
        comment="queues whose high limit was reached, until their use is down at the low limit",
    )
    op.create_table(
        "trans",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
            comment="random, so that none is used twice",
        ),
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "state",
            sa.Text(),
            nullable=False,
            comment="active, prepared, committed (until memory follows), or heuristic",
        ),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline", sa.BigInteger(), nullable=True),
        sa.Column("xid_format", sa.BigInteger(), nullable=True),
        sa.Column("xid_global", sa.LargeBinary(), nullable=True),
        sa.Column("xid_branch", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("trans_pkey")),
    )
    op.create_table(
        "waiter",
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", "address", name=op.f("waiter_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "queue",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ordering", sa.Text(), nullable=False),
        sa.Column("out_of_order", sa.Text(), nullable=False),
        sa.Column("retries", sa.BigInteger(), nullable=False),
        sa.Column("retry_delay", sa.BigInteger(), nullable=False, comment="seconds"),
        sa.Column("high", sa.Text(), nullable=False),
        sa.Column("low", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("memory_high", sa.Text(), nullable=False),
        sa.Column("memory_low", sa.Text(), nullable=False),
        sa.Column("memory_command", sa.Text(), nullable=False),
        sa.Column("delivery", sa.Text(), nullable=False, comment="default: persist or nonpersist"),
        sa.Column("expiration", sa.BigInteger(), nullable=True, comment="default lifetime in seconds"),
        sa.Column("error_queue", sa.Text(), nullable=True, comment="instead of the queue space's"),
        sa.Column("keep_expired", sa.Boolean(), nullable=False, comment="expired messages go to the error queue"),
        sa.Column("grouping", sa.Boolean(), nullable=False, comment="messages of one transaction stay together"),
        sa.Column(
            "retention", sa.BigInteger(), nullable=False, comment="seconds that consumed messages are kept; -1: forever"
        ),
        sa.Column("enqueue_enabled", sa.Boolean(), nullable=False),
        sa.Column("dequeue_enabled", sa.Boolean(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="another number after each change"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column(
            "import_id",
            sa.BigInteger(),
            nullable=False,
            comment="0; else the import that fills it, less than 0 where it replaced it: hidden",
        ),
        sa.ForeignKeyConstraint(["space_id"], ["space.id"], name=op.f("queue_space_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("queue_pkey")),
        sa.UniqueConstraint("space_id", "name", "import_id", name=op.f("queue_space_id_name_import_id_key")),
        sqlite_autoincrement=True,
    )
