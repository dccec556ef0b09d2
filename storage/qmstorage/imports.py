"""Imports in SQL: their records, their batches, and their hidden queues."""

from __future__ import annotations

from qmcore.numbers import random_number
from qmcore.purpose import alone
from qmcore.queue import Queue
from qmcore.records import ImportRecord, Use
from qmstorage.queues import queue_of
from qmstorage.schema import counter, forwarding, import_batch, import_job, queue
from qmstorage.sql import bindparam, delete, func, literal, select, update
from qmstorage.statements import Row, given, insert_into
from qmstorage.unit_part import UnitPart

_ADD = insert_into(import_job)
_OF_SPACE = (
    select(import_job)
    .where(given(import_job.c.space_id, "of_space"))
    .order_by(import_job.c.started_at, import_job.c.id)
)
_ITS = given(import_job.c.id, "of_import")
_ONE = select(import_job).where(_ITS)
_SET_STAGE = update(import_job).where(_ITS).values(state=bindparam("stage"), ended_at=bindparam("ended"))
_REMOVE = delete(import_job).where(_ITS)
_OF_IMPORT = given(import_batch.c.import_id, "of_import")
_BATCHES = select(*import_batch.columns).where(_OF_IMPORT)
_FORGET = delete(import_batch).where(_OF_IMPORT)
_TO_BE_LOADED_AGAIN = literal(-1)
"""Stands for the number of messages of a batch that has to be loaded again."""
_RELOAD = (
    update(import_batch)
    .where(_OF_IMPORT, func.substr(import_batch.c.part, 1, bindparam("length")) == bindparam("prefix"))
    .values(messages=_TO_BE_LOADED_AGAIN)
)
_RAISE_SEQUENCE = (
    update(counter)
    .where(given(counter.c.space_id, "of_space"), counter.c.queue_id == 0, counter.c.slot == 0)
    .values(sequence=bindparam("last"))
)
_HIDDEN = select(*queue.columns).where(given(queue.c.space_id, "of_space"), queue.c.import_id != 0)
_IMPORT_ID = queue.columns.keys().index("import_id")
_NAMES = select(queue.c.name).where(given(queue.c.space_id, "of_space"), queue.c.import_id == 0)
_PROMISED = (
    select(func.count())
    .select_from(queue)
    .where(given(queue.c.space_id, "of_space"), queue.c.import_id > 0, queue.c.name.not_in(_NAMES))
)
_HIDE = (
    update(queue)
    .where(given(queue.c.id, "of_queue"))
    .values(import_id=bindparam("by_import"), version=bindparam("new_version"))
)
_FORGET_FORWARDINGS = delete(forwarding).where(given(forwarding.c.queue_id, "of_queue"))

_KEY = (_OF_IMPORT, given(import_batch.c.part, "of_part"), given(import_batch.c.first_row, "of_row"))
_FIND_BATCH = select(import_batch.c.messages).where(*_KEY)
_ADD_BATCH = insert_into(import_batch)
_CHANGE_BATCH = (
    update(import_batch)
    .where(*_KEY)
    .values(messages=bindparam("new_messages"), pages=bindparam("new_pages"), size=bindparam("new_size"))
)


class Imports(UnitPart):
    """Imports, what of them is loaded, and the queues that they hide."""

    @alone
    def add(self, record: ImportRecord) -> None:
        """Record the start of an import."""
        self.run(
            _ADD,
            id=record.id,
            space_id=record.space_id,
            archive=record.archive,
            plan=record.plan,
            state=record.stage,
            shift=record.shift,
            started_at=record.started_us,
            ended_at=record.ended_us,
        )

    def of_space(self, space_id: int) -> list[ImportRecord]:
        """Return the imports of a queue space, the oldest first."""
        return [_record(row) for row in self.all(_OF_SPACE, of_space=space_id)]

    def find(self, import_id: int) -> ImportRecord | None:
        """Return what is recorded of an import."""
        row = self.one(_ONE, of_import=import_id)
        return None if row is None else _record(row)

    @alone
    def set_stage(self, import_id: int, stage: str, ended_us: int | None = None) -> None:
        """Record how far an import is, and when it ended."""
        self.run(_SET_STAGE, of_import=import_id, stage=stage, ended=ended_us)

    @alone
    def remove(self, import_id: int) -> None:
        """Forget an import and its batches."""
        self.forget_batches(import_id)
        self.run(_REMOVE, of_import=import_id)

    def add_batch(self, import_id: int, part: str, first_row: int, use: Use) -> bool:
        """Record that a batch is loaded; False where it was before."""
        found = self.one(_FIND_BATCH, of_import=import_id, of_part=part, of_row=first_row)
        if found is None:
            own = {"import_id": import_id, "part": part, "first_row": first_row}
            self.run(_ADD_BATCH, **own, messages=use.messages, pages=use.pages, size=use.size)
        elif found[0] < 0:
            own = {"of_import": import_id, "of_part": part, "of_row": first_row}
            self.run(_CHANGE_BATCH, **own, new_messages=use.messages, new_pages=use.pages, new_size=use.size)
        return found is None or found[0] < 0

    def batches(self, import_id: int) -> list[tuple[str, int, Use | None]]:
        """Return the batches that are loaded; None for one that has to be loaded again."""
        rows = self.all(_BATCHES, of_import=import_id)
        return [(part, first, None if use[0] < 0 else Use(*use)) for _, part, first, *use in rows]

    def forget_batches(self, import_id: int) -> None:
        """Forget which batches were loaded."""
        self.run(_FORGET, of_import=import_id)

    def reload_batches(self, import_id: int, prefix: str) -> None:
        """Record that the batches of parts whose names begin with `prefix` have to be loaded again."""
        self.run(_RELOAD, of_import=import_id, length=len(prefix), prefix=prefix)

    @alone
    def reserve_block(self, space_id: int, least: int, count: int) -> int:
        """Reserve `count` consecutive sequence numbers, from `least` or later; return the first."""
        first = max(self.unit.counters.last_sequence(space_id) + 1, least)
        self.run(_RAISE_SEQUENCE, of_space=space_id, last=first + count - 1)
        return first

    def add_queue(self, hidden: Queue, created_us: int, import_id: int) -> Queue:
        """Record a hidden queue of an import, its counters at zero."""
        return self.unit.queues.record(hidden, created_us, import_id)

    def hidden_queues(self, space_id: int) -> list[tuple[int, Queue]]:
        """Return the hidden queues of a queue space, each with its import; less than 0 where the import replaced it."""
        rows = sorted(self.all(_HIDDEN, of_space=space_id))
        return [(row[_IMPORT_ID], queue_of(row)) for row in rows]

    def promised_queues(self, space_id: int) -> int:
        """Return how many queues imports will add whose names are not in use."""
        return int(self.all(_PROMISED, of_space=space_id)[0][0])

    def reveal(self, hidden: Queue) -> None:
        """Make a hidden queue visible, and change the generation."""
        self._hide(hidden, 0)

    def conceal(self, old: Queue, import_id: int) -> None:
        """Hide a queue that an import has replaced, and change the generation."""
        self.run(_FORGET_FORWARDINGS, of_queue=old.id)
        self._hide(old, -import_id)

    def _hide(self, which: Queue, import_id: int) -> None:
        self.run(_HIDE, of_queue=which.id, by_import=import_id, new_version=random_number())
        self.unit.change_generation(which.space_id)


def _record(row: Row) -> ImportRecord:
    number, space_id, archive, plan, stage, shift, started, ended = row
    return ImportRecord(
        id=number,
        space_id=space_id,
        archive=archive,
        plan=plan,
        stage=stage,
        shift=shift,
        started_us=started,
        ended_us=ended,
    )
