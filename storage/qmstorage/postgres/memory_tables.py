"""Memory of queue spaces: non-persistent messages, in unlogged tables.

A crash of the server empties all of them at once, including the table of the queue spaces that have such messages.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from qmcore.port import Unit
from qmcore.purpose import Purpose
from qmcore.queue import Queue
from qmcore.space import Space
from qmstorage.postgres.tables import DIALECT, memory_schema, quoted
from qmstorage.postgres.unit import PostgresUnit
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmstorage.postgres.volume import PostgresVolume


class MemoryTables:
    """The queue spaces of one volume whose non-persistent messages this process may use."""

    def __init__(self, volume: PostgresVolume, schema: str) -> None:
        self._volume = volume
        self.attached: dict[int, Texts] = {}
        """The texts of statements on the memories that are attached, by the numbers of their queue spaces."""
        self._schema = memory_schema(schema)
        self._texts = Texts(DIALECT, quoted(self._schema), quoted(schema))
        self._users: dict[int, int] = {}
        self._changing = threading.Lock()
        self._residence = f"{quoted(self._schema)}.residence"

    def attach(self, space: Space, queues: Sequence[Queue]) -> bool:
        """Attach the memory of a queue space, created if need be; return whether it was.

        A reader sees persistent messages only: a standby has no others.
        """
        if self._volume.readonly:
            return False

        def made(unit: Unit) -> bool:
            ours = _ours(unit)
            add = f"INSERT INTO {self._residence} VALUES ({space.id}) ON CONFLICT DO NOTHING RETURNING space_id"  # noqa: S608 - ours
            if ours.asked(add) is None:
                return False
            memory = ours.memory_of(self._texts)
            for queue_id in {0, *(queue.id for queue in queues)}:
                memory.counters.add(space.id, queue_id)
            return True

        was_made = self._volume.write(made, Purpose.HOLDING)
        with self._changing:
            self._users[space.id] = self._users.get(space.id, 0) + 1
            self.attached[space.id] = self._texts
        return was_made

    def detach(self, space: Space) -> None:
        """Detach the memory of a queue space, once for each time that it was attached."""
        with self._changing:
            left = self._users.pop(space.id, 0) - 1
            if left > 0:
                self._users[space.id] = left
            else:
                self.attached.pop(space.id, None)

    def remove(self, space: Space, *, unused: bool = False) -> None:
        """Remove the non-persistent messages of a queue space; with `unused` only where no process is attached."""

        def removed(unit: Unit) -> None:
            if unused and unit.owners.of_space(space.id):
                return
            ours = _ours(unit)
            ours.memory_of(self._texts).clear(space.id, unit.queues.of_space(space.id))
            ours.asked(f"DELETE FROM {self._residence} WHERE space_id = {space.id} RETURNING space_id")  # noqa: S608 - ours

        self._volume.write(removed, Purpose.ADMINISTRATION)

    def of_spaces(self, unit: Unit, names: Collection[str]) -> dict[int, Texts]:
        """Return the texts of statements on the memories of queue spaces, by their numbers, of those that have one."""
        found = (space.id for space in unit.spaces.listed() if space.name in names)
        has = f"SELECT FROM {self._residence} WHERE space_id = "
        return {space_id: self._texts for space_id in found if _ours(unit).asked(f"{has}{space_id}") is not None}

    def files(self, space: Space) -> list[tuple[str, int]]:
        """Return the schema that holds the non-persistent messages of all queue spaces, and its size in bytes."""
        return [] if self._volume.readonly else self._volume.read(lambda unit: self._sizes(unit, space))

    def _sizes(self, unit: Unit, space: Space) -> list[tuple[str, int]]:
        size = (
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"  # noqa: S608 - names of ours
            f" WHERE relkind = 'r' AND relnamespace = '{quoted(self._schema)}'::regnamespace"
            f" AND EXISTS (SELECT FROM {self._residence} WHERE space_id = {space.id})"
        )
        found = _ours(unit).asked(size)
        return [] if found is None or found[0] is None else [(self._schema, int(found[0]))]


def _ours(unit: Unit) -> PostgresUnit:
    assert isinstance(unit, PostgresUnit)  # noqa: S101 - the volume made it
    return unit
