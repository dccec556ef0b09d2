"""What tests of imports stand on: rows of an archive made by hand, and a queue space that they are imported into."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from qmadmin.space import QueueSpace
from qmcore.acts import importing
from qmcore.acts.importing import ImportJob, ImportPlan, PlannedQueue, Source
from qmcore.bulk_rows import BODY, COLUMNS, HEADERS, Adopted, Row
from qmcore.message import State, pages_of
from qmcore.order import QueueOrder
from qmcore.purpose import Purpose
from qmcore.queue import QueueDefinition
from qmcore.records import Use
from tests.fix_store import attachment_of, queue_definition

ARCHIVE = "a" * 32
FOREIGN = "f" * 16
"""The incarnation of the queue space that the archive is of."""

SOURCE = ("THERE", "Q")
BEGAN = 1_700_000_000_000_000
"""When the messages of the archive were enqueued."""

_PLAIN: dict[str, Any] = {
    "priority": 50,
    "enqueued_at": BEGAN,
    "urcode": 0,
    "appkey": 0,
    "type": "CARRAY",
    "retries": 0,
}


def carried_row(sequence: int, body: bytes | None = b"", *, order: str = "fifo", **values: Any) -> Row:
    """Return a message as an archive has it; its key is the ordinary one unless another is given."""
    row = dict.fromkeys(COLUMNS) | _PLAIN | {"sequence": sequence, "body": body} | values
    size = 0 if body is None else len(body)
    row |= {"size": size, "pages": pages_of(size, row["headers"], 4096)}
    if row["order_key"] is None:
        available = row["available_at"]
        row["order_key"] = QueueOrder.parse(order).key(
            priority=row["priority"],
            available_at=row["enqueued_at"] if available is None else available,
            expires_at=row["expires_at"],
            sequence=sequence,
        )
    return tuple(row[name] for name in COLUMNS)


def rows_of(texts: Sequence[str], first: int = 101, **values: Any) -> list[Row]:
    """Return messages of these bodies, numbered one after the other."""
    return [carried_row(first + at, text.encode(), **values) for at, text in enumerate(texts)]


def use_of(rows: Sequence[Row]) -> Use:
    """Return what rows are charged for."""
    sizes = [len(row[BODY] or b"") for row in rows]
    pages = [pages_of(size, row[HEADERS], 4096) for size, row in zip(sizes, rows, strict=True)]
    return Use(len(rows), sum(pages), sum(sizes))


def planned(
    rows: Sequence[Row] = (),
    definition: QueueDefinition | None = None,
    *,
    memory: Sequence[Row] = (),
    retained: Sequence[Row] = (),
    source: str = "Q",
    **changes: Any,
) -> PlannedQueue:
    """Return the plan for a queue that gets these rows."""
    return PlannedQueue(
        source_space=SOURCE[0],
        source=source,
        definition=definition or queue_definition(source),
        use=use_of(rows),
        memory_use=use_of(memory),
        retained=use_of(retained),
        **{"dequeue_enabled": True} | changes,
    )


def plan_of(*queues: PlannedQueue, first: int = 101, last: int = 200, **changes: Any) -> ImportPlan:
    """Return the plan of an import of messages whose numbers are 101 to 200, if nothing else is said."""
    adopted = (Adopted(FOREIGN, first, last, 0),)
    return ImportPlan(
        **{"archive": ARCHIVE, "queues": queues, "first": first, "last": last, "adopted": adopted} | changes
    )


class Importer:
    """Imports into a queue space, an act at a time."""

    def __init__(self, space: QueueSpace) -> None:
        self.space = space
        self.volume = attachment_of(space).volume
        self.opened = attachment_of(space).opened
        self.job: ImportJob | None = None

    @property
    def now(self) -> int:
        return self.space._device.clock.now()

    @property
    def at_work(self) -> ImportJob:
        assert self.job is not None
        return self.job

    def begin(self, plan: ImportPlan) -> ImportJob:
        self.job = self.volume.write(lambda unit: importing.begin(unit, self.opened, plan, self.now), Purpose.STAGE)
        return self.job

    def load(
        self,
        rows: Sequence[Row],
        *,
        batch: tuple[str, int] = ("part-0", 0),
        state: State = State.READY,
        memory: bool = False,
        source: Source = SOURCE,
    ) -> bool:
        return self.load_groups([(source, state, memory, rows)], batch)

    def load_groups(
        self, groups: Sequence[tuple[Source, State, bool, Sequence[Row]]], batch: tuple[str, int] = ("part-0", 0)
    ) -> bool:
        return importing.load_batch(self.volume, self.at_work, batch, groups)

    def loaded(self) -> frozenset[tuple[str, int]]:
        return self.volume.read(lambda unit: importing.loaded_batches(unit, self.at_work))

    def publish(self) -> ImportJob:
        self.job = self.volume.write(
            lambda unit: importing.publish(unit, self.opened, self.at_work, self.now), Purpose.STAGE
        )
        return self.job

    def merge(self, limit: int = 1000) -> int:
        return self.volume.write(
            lambda unit: importing.merge(unit, self.opened, self.at_work, limit, self.now), Purpose.STAGE
        )

    def abandon(self, limit: int = 1000) -> int:
        return self.volume.write(lambda unit: importing.abandon(unit, self.opened, self.at_work, limit), Purpose.STAGE)

    def jobs(self) -> list[ImportJob]:
        return self.volume.read(lambda unit: importing.imports(unit, self.opened.space.id))

    def all_of(self, rows: Sequence[Row], definition: QueueDefinition | None = None, **changes: Any) -> ImportJob:
        """Import a queue at one go."""
        state = changes.pop("state", State.READY)
        self.begin(plan_of(planned(rows, definition), **changes))
        self.load(rows, state=state)
        return self.publish()

    def rows(self, name: str) -> int:
        """Return how many rows a table has."""
        from tests.fix_store import rows_of

        return self.volume.read(lambda unit: rows_of(unit, name))


def faults_of(space: QueueSpace) -> list[str]:
    """Return what is wrong with what is stored of a queue space, on disk and in memory."""
    attachment = attachment_of(space)

    def found(unit: Any) -> list[str]:
        known = attachment.opened.definitions(unit)
        stores = [unit, *([unit.memory(known.space.id)] if unit.memory(known.space.id) else [])]
        queues, hidden = unit.queues.of_space(known.space.id), unit.imports.hidden_queues(known.space.id)
        return [
            fault.sentence
            for store in stores
            for fault in store.soundness.faults(known.space, queues, 4096, lambda: None, hidden)
        ]

    return attachment.volume.read(found)


def changed(plan: ImportPlan, **changes: Any) -> ImportPlan:
    return dataclasses.replace(plan, **changes)
