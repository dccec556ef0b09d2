"""What schema version 2 adds: the home of a volume, what a message was before it was moved, and the highest use.

Columns are added at the end, which rewrites no row: the step takes as long with a hundred million
messages as with none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Compared byte by byte, as all texts.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns and the table."""
    schema = op.get_context().version_table_schema
    for table, column in (
        ("device", sa.Column("home", _TEXT)),
        ("message", sa.Column("first_msgid", _TEXT)),
        ("message", sa.Column("expires_before", sa.BigInteger())),
        ("counter", sa.Column("highest", sa.BigInteger(), nullable=False, server_default=sa.text("0"))),
    ):
        op.add_column(table, column, schema=schema)
    op.create_table(
        "highest",
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("resource", _TEXT, nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("space_id", "resource", name=op.f("highest_pkey")),
        schema=schema,
        sqlite_with_rowid=False,
    )
