"""What schema version 5 adds: identifiers of volumes, and what is known of prepared and suspended transactions.

Each volume has an identifier, and a number by which an older copy of it is known.

Whoever upgrades a device gives each volume an identifier, and enters it in the device list (`sqlite/upgrading.py`,
`postgres/upgrading.py`).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Compared byte by byte, as all texts.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns."""
    schema = op.get_context().version_table_schema
    for table, of_volume, of_opened in (
        ("device", "random; the volume's own", "grows: an older copy has a lower one"),
        ("entry", "identifier of the volume at the path", "the number that it has at least"),
    ):
        op.add_column(
            table, sa.Column("volume", _TEXT, nullable=False, server_default="", comment=of_volume), schema=schema
        )
        op.add_column(
            table,
            sa.Column("opened", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment=of_opened),
            schema=schema,
        )
    branches = (
        sa.Column("prepared_at", sa.BigInteger(), nullable=True),
        sa.Column(
            "queues",
            _TEXT,
            nullable=True,
            comment="numbers of those in which it has messages, once it is suspended or prepared",
        ),
        sa.Column("consumer", _TEXT, nullable=True, comment="who has them, once it is prepared"),
        sa.Column(
            "nonpersistent", sa.BigInteger(), nullable=True, comment="messages in memory that it had as it was prepared"
        ),
        sa.Column("secret", _TEXT, nullable=True, comment="by which it is resumed, while it is suspended"),
        sa.Column("suspended_at", sa.BigInteger(), nullable=True),
        sa.Column(
            "decider",
            _TEXT,
            nullable=True,
            comment="who decides on it, for recovery; none: another coordinator ends it",
        ),
    )
    for column in branches:
        op.add_column("trans", column, schema=schema)
    op.create_index(
        "trans_by_xid",
        "trans",
        ["space_id", "xid_format", "xid_global", "xid_branch"],
        unique=True,
        schema=schema,
        sqlite_where=sa.text("xid_format IS NOT NULL"),
        postgresql_where=sa.text("xid_format IS NOT NULL"),
    )
    op.create_table(
        "heuristic",
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("xid_format", sa.BigInteger(), nullable=False),
        sa.Column("xid_global", sa.LargeBinary(), nullable=False),
        sa.Column("xid_branch", sa.LargeBinary(), nullable=False),
        sa.Column("trans_id", sa.BigInteger(), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), nullable=False),
        sa.Column("state", _TEXT, nullable=False, comment="heuristic commit, heuristic rollback"),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("prepared_at", sa.BigInteger(), nullable=False),
        sa.Column("consumer", _TEXT, nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_by", _TEXT, nullable=False),
        sa.Column("decider", _TEXT, nullable=True, comment="as in trans"),
        sa.Column(
            "decided",
            _TEXT,
            nullable=True,
            comment="committed, rolled back: what was decided, if it differs and is known",
        ),
        sa.PrimaryKeyConstraint("space_id", "xid_format", "xid_global", "xid_branch"),
        schema=schema,
        sqlite_with_rowid=False,
        comment="how prepared transactions were ended without the decision of their coordinators, which are to be told",
    )
    op.create_table(
        "decision",
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column(
            "xid_global",
            sa.LargeBinary(),
            nullable=False,
            comment="ends with the number of the branch that decided",
        ),
        sa.Column(
            "xid_branch",
            sa.LargeBinary(),
            nullable=False,
            comment="who is to be told; empty: the caller",
        ),
        sa.Column("place", _TEXT, nullable=False, comment="where that branch is prepared"),
        sa.Column("decided_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("space_id", "xid_global", "xid_branch"),
        schema=schema,
        sqlite_with_rowid=False,
        comment="decisions to commit distributed transactions, as long as somebody is to be told",
    )
    op.create_table(
        "era",
        sa.Column("space_id", sa.Integer(), nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False, comment="random, so that no restored copy has a later one"),
        sa.Column("decisions", sa.BigInteger(), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("space_id", "id"),
        schema=schema,
        sqlite_with_rowid=False,
        comment=(
            "how many decisions coordinators have made; fewer than a prepared branch knows of: the volume was set back"
        ),
    )
