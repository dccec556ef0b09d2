"""What schema version 3 adds, on PostgreSQL alone: functions that let messages arrive.

No table changes, and no statement stands here: whoever makes or upgrades a volume makes the functions as the release
has them. A volume that has been upgraded from any version so has those of a fresh one.
"""

from __future__ import annotations

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change no table."""
