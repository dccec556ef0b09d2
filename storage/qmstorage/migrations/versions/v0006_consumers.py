"""What schema version 6 adds: queues for several consumers, their consumers, and the places that a message has left."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns, by which queues go on as they did, and the table."""
    schema = op.get_context().version_table_schema
    for column in (
        sa.Column(
            "multiple_consumers",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="each message is for all that subscribe",
        ),
        sa.Column(
            "parent_id",
            sa.Integer(),
            nullable=False,
            server_default=sa.text("0"),
            comment="of a consumer: the queue that it subscribes to; else 0. It is defined as that is",
        ),
        sa.Column(
            "going", sa.Boolean(), nullable=False, server_default=sa.false(), comment="a consumer that has unsubscribed"
        ),
        sa.Column(
            "ended_in", sa.BigInteger(), comment="on PostgreSQL, of one that is going: the number of the transaction"
        ),
        sa.Column(
            "rule", _TEXT, nullable=False, server_default="", comment="of a consumer: what is true of its messages"
        ),
        sa.Column(
            "topics",
            _TEXT,
            nullable=False,
            server_default="",
            comment="of a consumer: patterns, a JSON array; or empty",
        ),
    ):
        op.add_column("queue", column, schema=schema)
    op.add_column(
        "held",
        sa.Column(
            "consumers",
            sa.LargeBinary(),
            comment="of one that is to be enqueued for several: their numbers, 4 bytes for each",
        ),
        schema=schema,
    )
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "share",
        sa.Column("message_id", number, autoincrement=False, nullable=False),
        sa.Column("places", sa.Integer(), nullable=False, comment="how many are left"),
        sa.PrimaryKeyConstraint("message_id", name=op.f("share_pkey")),
        schema=schema,
        comment="messages of a queue for several that came with more than one place",
    )
    op.create_table(
        "spent",
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("consumer_id", sa.Integer(), nullable=False),
        sa.Column("how", sa.SmallInteger(), nullable=False, comment="0: dequeued, 1: expired, 2: discarded, 3: moved"),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("message_id", "consumer_id", name=op.f("spent_pkey")),
        schema=schema,
        comment="on PostgreSQL: places that are over and were not subtracted in share yet",
        sqlite_with_rowid=False,
    )
    if op.get_context().dialect.name == "postgresql":
        # Each row is written once and deleted once, as in the tables of messages.
        for table, more in ("share", ""), ("spent", ", vacuum_index_cleanup = on"):
            op.execute(
                f'ALTER TABLE "{schema}".{table} SET (autovacuum_vacuum_scale_factor = 0,'
                " autovacuum_vacuum_threshold = 20000, autovacuum_analyze_scale_factor = 0.2,"
                f" autovacuum_vacuum_cost_delay = 0{more})"
            )
