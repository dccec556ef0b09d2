"""What schema version 4 adds: how the retry delay of a queue grows, and its default delay."""

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
    """Add the columns, by which queues go on as they did."""
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
