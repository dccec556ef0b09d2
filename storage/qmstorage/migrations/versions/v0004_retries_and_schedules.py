"""What schema version 4 adds: growing retry delays, default delays, which messages were given back, and schedules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Compared byte by byte, as all texts.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns, by which queues go on as they did, and the table."""
    schema = op.get_context().version_table_schema
    for column in (
        sa.Column(
            "retry_growth", _TEXT, nullable=False, server_default="none", comment="of the delay: linear or exponential"
        ),
        sa.Column(
            "retry_factor", sa.Double(), nullable=False, server_default=sa.text("2"), comment="of exponential growth"
        ),
        sa.Column(
            "retry_maximum", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="seconds; 0: none"
        ),
        sa.Column(
            "retry_jitter",
            sa.Double(),
            nullable=False,
            server_default=sa.text("0"),
            comment="the most taken off, 0 to 1",
        ),
        sa.Column("default_delay", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="seconds"),
    ):
        op.add_column("queue", column, schema=schema)
    op.add_column(
        "due",
        sa.Column(
            "given_back",
            sa.SmallInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="1: a consumer that gave it back keeps it from being ready; 0: its sender, or an administrator",
        ),
        schema=schema,
    )
    # Earlier releases gave nothing back for later that was not tried.
    due = sa.table("due", sa.column("retries"), sa.column("given_back"), schema=schema)
    op.execute(sa.update(due).values(given_back=sa.text("1")).where(due.c.retries > sa.text("0")))
    op.create_index(
        "due_given_back",
        "due",
        ["queue_id", "given_back", "available_at"],
        schema=schema,
        sqlite_where=sa.text("given_back = 1"),
        postgresql_where=sa.text("given_back = 1"),
    )
    op.create_table(
        "schedule",
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("queue", _TEXT, nullable=False, comment="its name: it may be destroyed and made again"),
        sa.Column("rule", _TEXT, nullable=False, comment="when: fields of cron, or every and a span"),
        sa.Column("timezone", _TEXT, nullable=False),
        sa.Column("missed", _TEXT, nullable=False, comment="moments that nobody was there for: once or skip"),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("counted_from", sa.BigInteger(), nullable=False, comment="when an interval begins"),
        sa.Column("next_at", sa.BigInteger(), comment="the next due moment; none: paused, or never"),
        sa.Column("body", sa.LargeBinary(), comment="of its messages"),
        sa.Column("options", _TEXT, nullable=False, comment="JSON object: what its messages ask for, and their type"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), comment="the due moment of the last message"),
        sa.Column("last_msgid", _TEXT),
        sa.PrimaryKeyConstraint("space_id", "name", name=op.f("schedule_pkey")),
        schema=schema,
    )
    op.create_index("schedule_by_moment", "schedule", ["space_id", "next_at", "name"], schema=schema)
