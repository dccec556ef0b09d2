"""What schema version 5 adds: the identifier of each volume, and the number by which an older copy of it is known.

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
