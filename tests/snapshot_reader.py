"""What a worker process does in tests of snapshots: it returns which messages its reader has, and their states."""

from __future__ import annotations

from qmadmin.transfer.snapshot import SnapshotReader
from qmcore.acts.stores import stores
from qmcore.bulk_rows import BODY, SEQUENCE, Run
from qmcore.message import STORED, State
from qmcore.port import Unit
from qmcore.space import Space


def seen(reader: SnapshotReader, name: str) -> list[tuple[int, int, str, State]]:
    """Return of all messages of a queue space the body, which is a number, sequence number, queue and state."""

    def found(unit: Unit, space: Space) -> list[tuple[int, int, str, State]]:
        return sorted(
            (int(row[BODY]), row[SEQUENCE], queue.name, state)
            for queue in unit.queues.of_space(space.id)
            for number, store in enumerate(stores(unit, space.id))
            for state in STORED
            for rows in store.bulk_read.rows(space, queue, Run(queue.name, state, bool(number), None, None, 0))
            for row in rows
        )

    return reader.read(name, found)
