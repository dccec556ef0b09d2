"""Queue spaces on PostgreSQL, where a sequence of the database numbers the messages of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmcore import numbers
from qmcore.space import Space, SpaceDefinition
from qmstorage.spaces import Spaces

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresUnit


class SharedSpaces(Spaces):
    """Queue spaces as administrators define them."""

    unit: PostgresUnit

    def add(self, definition: SpaceDefinition, incarnation: str, created_us: int) -> Space:
        """Record a queue space, its counters at zero."""
        made = super().add(definition, incarnation, created_us)
        sequence = self.unit.counters.sequence_name(made.id)
        self.cursor.execute(f"DROP SEQUENCE IF EXISTS {sequence}")
        self.cursor.execute(f"CREATE SEQUENCE {sequence} MAXVALUE {numbers.SEQUENCE_MAX}")
        return made

    def remove(self, space_id: int) -> None:
        """Remove a queue space with everything in it."""
        super().remove(space_id)
        self.cursor.execute(f"DROP SEQUENCE {self.unit.counters.sequence_name(space_id)}")
