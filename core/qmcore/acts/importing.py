"""The act of importing an archive into a queue space, so that nobody sees a part of it.

`begin` records the import, hides the queues that it fills, reserves their room and a block of sequence numbers. `load`
stores one batch in one short transaction, and again does nothing. `publish` reveals the queues in one tiny transaction.
`merge` then moves messages into queues that were there before, and `abandon` gives an import up.

Whatever is cut short is found again by `begin` with the same plan, and goes on where it was. All of these can be done
twice without harm, as `Purpose.BULK` and `Purpose.STAGE` promise.

A hidden queue is charged for all that it will hold from the beginning on. How many messages it was given so far is
counted as what was enqueued in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from qmcore.acts import thresholds
from qmcore.acts.import_merge import (
    abandon,
    hidden_by,
    job_of,
    merge,
    over,
    refuse_several,
    refuse_unlike,
    take_out_of_memory,
)
from qmcore.acts.import_plan import queue_of, refuse_known, refuse_unfit, refuse_ungranted
from qmcore.acts.manage_queues import refuse_held
from qmcore.acts.renumbering import Renumbering, sums
from qmcore.acts.room import refuse_overflow
from qmcore.acts.stores import stores
from qmcore.bulk_rows import SEQUENCE, Row
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import InUseError, InvalidArgumentError, NoSpaceError, ProtocolError, Resource
from qmcore.imports import (
    NOTHING,
    ImportJob,
    ImportPlan,
    Mode,
    PlannedQueue,
    Source,
    Stage,
    TimePolicy,
    Times,
    total,
)
from qmcore.message import State
from qmcore.numbers import SEQUENCE_MAX, random_number
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Queue
from qmcore.records import ImportRecord, Use
from qmcore.store import MemoryStore, Store
from qmcore.values import dataclass

__all__ = [
    "Group",
    "ImportJob",
    "ImportPlan",
    "Mode",
    "PlannedQueue",
    "Source",
    "Stage",
    "TimePolicy",
    "Times",
    "abandon",
    "begin",
    "check",
    "imports",
    "load",
    "load_batch",
    "loaded_batches",
    "merge",
    "publish",
]

Group: TypeAlias = tuple[Source, State, bool, Sequence[Row]]
"""Messages of a batch: their queue in the archive, their state, whether they are non-persistent, and the rows."""

_IN_MEMORY = "memory:"
"""Stands before the name of a part in the record of what a batch has brought into memory."""


def check(unit: Unit, opened: OpenSpace, plan: ImportPlan, *, begins: bool = False) -> None:
    """Refuse what `begin` would refuse, and change nothing.

    Where it `begins` after this, the queues are not asked here whether they take messages: they are asked once.
    """
    known = opened.definitions(unit)
    records = unit.imports.of_space(known.space.id)
    if _going(records, plan) is None:
        refuse_known(plan, [job_of(unit, record) for record in records])
        refuse_unfit(unit, known, plan)
        if not begins:
            refuse_ungranted(known, plan)
        _refuse_overflow(unit, known, unit, plan.use)
        if plan.memory_use != NOTHING:
            _refuse_overflow(unit, known, _memory(unit, known, plan.memory_use), plan.memory_use)


def begin(unit: Unit, opened: OpenSpace, plan: ImportPlan, now: int) -> ImportJob:
    """Record an import and keep its room; the unit is alone on the volume.

    One of an identical plan that has begun and is not done is returned as it is: it goes on. Where non-persistent
    messages that it had loaded are lost, as by a restart, their batches count as not loaded.

    Raises InvalidArgumentError where a queue exists already that is to be created, where messages are to be appended to
    a queue of another order or grouping, or where queues of the archive were imported before and the plan is not
    `again`; InUseError where another import is under way that fills one of the queues, or takes the same ones of the
    archive, or was given up and is still there, and where a transaction holds a message of a queue that is to be
    replaced; BadQueueError where messages are to be appended to a queue that is not there; NoSpaceError where the queue
    space has no room for all of it, which is charged from now on.
    """
    known = opened.definitions(unit)
    records = unit.imports.of_space(known.space.id)
    going = _going(records, plan)
    if going is not None:
        _make_up_for_lost_memory(unit, known, job_of(unit, going))
        return job_of(unit, going)
    refuse_known(plan, [job_of(unit, record) for record in records])
    refuse_unfit(unit, known, plan)
    refuse_ungranted(known, plan)
    new = ImportRecord(
        id=random_number() + 1,
        space_id=known.space.id,
        archive=plan.archive,
        plan=plan.to_json(),
        stage=Stage.LOADING.value,
        shift=_shift(unit, known, plan),
        started_us=now,
        ended_us=None,
    )
    unit.imports.add(new)
    for planned in plan.queues:
        _hide(unit, known, planned, new)
    opened.note_use(unit, "queues", len(known.queues) + unit.imports.promised_queues(known.space.id))
    _charge(unit, known, unit, plan.use)
    if plan.memory_use != NOTHING:
        _charge(unit, known, _memory(unit, known, plan.memory_use), plan.memory_use)
    return job_of(unit, new)


def load_batch(
    volume: Volume,
    job: ImportJob,
    batch: tuple[str, int],
    groups: Sequence[Group],
) -> bool:
    """Store a batch of messages in the hidden queues; False: it is there already, and nothing was done.

    `batch` names it: the file of the archive, and the number of its first row in it, from 0. The rows are as they are
    in the archive; their numbers, order keys, times and pages become those of the queue space. Held ones are taken for
    ready. A time that has passed is no reason not to load a message.

    It is one short transaction beside those of others, which is not brought to the disk at once: what is lost is loaded
    again. Raises AbortedError where the import was published or given up meanwhile, and InvalidArgumentError for
    messages that are not in the plan.
    """
    # Before the transaction, for which others wait.
    brought = _as_ours(job, groups)
    return volume.write(lambda unit: _load(unit, job, batch, brought), Purpose.BULK)


def load(unit: Unit, job: ImportJob, batch: tuple[str, int], groups: Sequence[Group]) -> bool:
    """Do the same in a unit, which takes longer; it may be concurrent and need not be durable."""
    return _load(unit, job, batch, _as_ours(job, groups))


@dataclass(frozen=True, slots=True)
class _Brought:
    """Messages of one queue in one state, as they are to be stored."""

    source: Source
    state: State
    memory: bool
    rows: list[Row]


def _load(unit: Unit, job: ImportJob, batch: tuple[str, int], brought: Sequence[_Brought]) -> bool:
    record = unit.imports.find(job.id)
    if record is None or record.stage != Stage.LOADING.value:
        raise over(job, record)
    part, first_row = batch
    is_new = False
    for in_memory, prefix in ((False, ""), (True, _IN_MEMORY)):
        mine = [each for each in brought if each.memory is in_memory]
        if in_memory and not mine:
            continue
        if unit.imports.add_batch(job.id, prefix + part, first_row, total(Use(*sums(each.rows)) for each in mine)):
            is_new = True
            store = _memory_of(unit, job) if in_memory else unit
            for each in mine:
                queue_id = job.queues[each.source]
                store.bulk_load.load(job.space_id, queue_id, each.state, each.rows)
                store.bulk_load.adjust(job.space_id, queue_id, NOTHING, passed=len(each.rows))
    return is_new


def loaded_batches(unit: Unit, job: ImportJob) -> frozenset[tuple[str, int]]:
    """Return the batches that need not be loaded again."""
    found = unit.imports.batches(job.id)
    again = {(part.removeprefix(_IN_MEMORY), first) for part, first, use in found if use is None}
    return frozenset((part, first) for part, first, _ in found if not part.startswith(_IN_MEMORY)) - again


def publish(unit: Unit, opened: OpenSpace, job: ImportJob, now: int) -> ImportJob:
    """Let everybody see what was loaded; the unit is alone on the volume and durable. Again does nothing.

    Those who wait for a queue that is replaced are told. Where queues were appended to or replaced, the import is
    MERGING then, else DONE.

    Raises ProtocolError where not all that was planned is loaded; InUseError where a queue was created meanwhile that
    stands in the way, or a transaction holds a message of one that is to be replaced; BadQueueError where a queue is
    gone that messages are appended to; AbortedError where the import was given up.
    """
    record = unit.imports.find(job.id)
    if record is None or record.stage == Stage.ABANDONED.value:
        raise over(job, record)
    if record.stage != Stage.LOADING.value:
        return job_of(unit, record)
    hidden = hidden_by(unit, job)
    _refuse_incomplete(unit, job, hidden)
    known = opened.definitions(unit)
    is_done = True
    for planned in job.plan.queues:
        is_done = _publish_one(unit, known, job, planned, hidden[planned.key]) and is_done
    for piece in job.plan.adopted:
        unit.spaces.adopt(job.space_id, dataclasses.replace(piece, shift=piece.shift + job.shift))
    unit.imports.forget_batches(job.id)
    stage = Stage.DONE if is_done else Stage.MERGING
    unit.imports.set_stage(job.id, stage.value, now if is_done else None)
    for planned in job.plan.queues:
        if planned.mode is not Mode.APPEND:
            _note_arrival(unit, opened, planned.name, now)
    return job_of(unit, dataclasses.replace(record, stage=stage.value, ended_us=now if is_done else None))


def imports(unit: Unit, space_id: int) -> list[ImportJob]:
    """Return the imports of a queue space, the oldest first, also those that are done."""
    return [job_of(unit, record) for record in unit.imports.of_space(space_id)]


# ---- beginning -------------------------------------------------------------------------------------------------------


def _shift(unit: Unit, known: Definitions, plan: ImportPlan) -> int:
    """Keep a block of sequence numbers, and return how far those of the archive are from it.

    They never become less: a key may have numbers of messages that were consumed long before the first one that is
    carried, and these have to stay numbers too.
    """
    if not plan.count:
        return 0
    last = unit.counters.last_sequence(known.space.id)
    if max(last + 1, plan.first) + plan.count - 1 > SEQUENCE_MAX:
        raise InvalidArgumentError(
            f"queue space {known.space.name!r} has given {last} of {SEQUENCE_MAX} sequence numbers, and the import"
            f" takes {plan.count}",
            hint="Import into another queue space.",
            space=known.space.name,
        )
    return unit.imports.reserve_block(known.space.id, plan.first, plan.count) - plan.first


def _hide(unit: Unit, known: Definitions, planned: PlannedQueue, record: ImportRecord) -> None:
    new = unit.imports.add_queue(queue_of(known, planned), record.started_us, record.id)
    unit.bulk_load.adjust(known.space.id, new.id, planned.charged)
    memory = unit.memory(known.space.id)
    if memory is not None:
        memory.counters.add(known.space.id, new.id)
        memory.bulk_load.adjust(known.space.id, new.id, planned.memory_use)


def _going(records: Iterable[ImportRecord], plan: ImportPlan) -> ImportRecord | None:
    """Return the import of an identical plan that has begun and is not done."""
    text, under_way = plan.to_json(), (Stage.LOADING.value, Stage.MERGING.value)
    return next((record for record in records if record.plan == text and record.stage in under_way), None)


def _refuse_overflow(unit: Unit, known: Definitions, store: Store, use: Use) -> None:
    refuse_overflow(unit, known, store, total((store.counters.level(known.space.id), use)), use)


def _charge(unit: Unit, known: Definitions, store: Store, use: Use) -> None:
    store.counters.charge(known.space.id, messages=use.messages, pages=use.pages, size=use.size)
    refuse_overflow(unit, known, store, store.counters.level(known.space.id), use)


def _memory(unit: Unit, known: Definitions, wanted: Use) -> MemoryStore:
    memory = unit.memory(known.space.id)
    if memory is None or not known.space.definition.memory:
        raise NoSpaceError(
            f"queue space {known.space.name!r}",
            Resource.MEMORY,
            used=0,
            limit=0,
            wanted=wanted.pages * known.page_size,
            detail=", which the non-persistent messages of the import need",
        )
    return memory


def _make_up_for_lost_memory(unit: Unit, known: Definitions, job: ImportJob) -> None:
    """Have non-persistent messages loaded again, all of them, where some are lost or were brought twice."""
    if job.state is not Stage.LOADING or job.plan.memory_use == NOTHING:
        return
    memory = _memory(unit, known, job.plan.memory_use)
    counted = memory.counters.counted(job.space_id)
    there = sum(
        memory.bulk_load.passed(job.space_id, queue_id) for queue_id in job.queues.values() if queue_id in counted
    )
    brought = sum(
        use.messages for part, _, use in unit.imports.batches(job.id) if part.startswith(_IN_MEMORY) and use is not None
    )
    if there == brought and counted.issuperset(job.queues.values()):
        return
    for planned in job.plan.queues:
        queue_id = job.queues[planned.key]
        take_out_of_memory(memory, job.space_id, queue_id)
        memory.counters.add(job.space_id, queue_id)
        memory.bulk_load.adjust(job.space_id, queue_id, planned.memory_use)
    _charge(unit, known, memory, job.plan.memory_use)
    unit.imports.reload_batches(job.id, _IN_MEMORY)


# ---- loading ---------------------------------------------------------------------------------------------------------


def _as_ours(job: ImportJob, groups: Sequence[Group]) -> list[_Brought]:
    return [each for group in groups for each in _group_as_ours(job, *group)]


def _group_as_ours(job: ImportJob, source: Source, state: State, memory: bool, rows: Sequence[Row]) -> list[_Brought]:
    planned = next((planned for planned in job.plan.queues if planned.key == source), None)
    if planned is None:
        raise InvalidArgumentError(f"queue {source[1]!r} is not in the plan of the import", queue=source[1])
    numbers = [row[SEQUENCE] for row in rows]
    if numbers and not job.plan.first <= min(numbers) <= max(numbers) <= job.plan.last:
        raise InvalidArgumentError(
            f"messages of queue {source[1]!r} have numbers from {min(numbers)} to {max(numbers)}, and the plan of the"
            f" import is for {job.plan.first} to {job.plan.last}",
            queue=source[1],
        )
    if memory and state is State.CONSUMED:
        raise InvalidArgumentError("consumed messages are kept on disk only", queue=source[1])
    renumbering = Renumbering(
        order=planned.definition.order,
        shift=job.shift,
        policy=job.plan.times.policy,
        by_us=job.plan.times.shift(job.started_us),
        started_us=job.started_us,
        page_size=job.page_size,
    )
    as_ready = State.READY if state is State.HELD else state
    return [_Brought(source, becomes, memory, ours) for becomes, ours in renumbering.rows(as_ready, rows) if ours]


def _memory_of(unit: Unit, job: ImportJob) -> MemoryStore:
    memory = unit.memory(job.space_id)
    if memory is None:
        raise InvalidArgumentError(
            "the memory of the queue space, which the non-persistent messages of the import need, is not open",
            hint="Open the queue space in this process.",
        )
    return memory


# ---- publishing ------------------------------------------------------------------------------------------------------


def _refuse_incomplete(unit: Unit, job: ImportJob, hidden: dict[Source, Queue]) -> None:
    memory = unit.memory(job.space_id)
    counted = memory.counters.counted(job.space_id) if memory is not None else set()
    for planned in job.plan.queues:
        queue_id = hidden[planned.key].id
        wanted = planned.use.messages + planned.retained.messages
        _refuse_lacking(planned, unit.bulk_load.passed(job.space_id, queue_id), wanted, "messages")
        if planned.memory_use.messages:
            there = memory.bulk_load.passed(job.space_id, queue_id) if memory is not None and queue_id in counted else 0
            _refuse_lacking(planned, there, planned.memory_use.messages, "non-persistent messages")
    wanted_use = total(
        use for planned in job.plan.queues for use in (planned.use, planned.retained, planned.memory_use)
    )
    if job_of(unit, _record_of(unit, job)).loaded != wanted_use:
        raise ProtocolError(
            "the import is not what was planned: its messages have other pages or bytes together",
            hint="Verify the archive, give the import up, and begin it again.",
            archive=job.archive,
        )


def _refuse_lacking(planned: PlannedQueue, there: int, wanted: int, what: str) -> None:
    if there != wanted:
        raise ProtocolError(
            f"the import is not complete: queue {planned.name!r} has {there} of {wanted} {what}",
            hint="Run the import again, which resumes it.",
            queue=planned.name,
            there=there,
            wanted=wanted,
        )


def _record_of(unit: Unit, job: ImportJob) -> ImportRecord:
    record = unit.imports.find(job.id)
    if record is None:
        raise over(job, None)
    return record


def _publish_one(unit: Unit, known: Definitions, job: ImportJob, planned: PlannedQueue, hidden: Queue) -> bool:
    """Let everybody see a queue; False where something has to follow."""
    existing = known.queues.get(planned.name)
    if planned.mode is Mode.APPEND:
        refuse_unlike(known.queue(planned.name), planned)
        return False
    if existing is not None:
        if planned.mode is Mode.CREATE:
            raise InUseError(
                f"queue {planned.name!r} was created while the import was under way",
                hint="Destroy or move it and publish again, or give the import up.",
                queue=planned.name,
            )
        refuse_several(existing)
        refuse_held(unit, existing)
        unit.imports.conceal(existing, job.id)
        unit.waits.notify(existing.id)
    unit.imports.reveal(hidden)
    return existing is None


def _note_arrival(unit: Unit, opened: OpenSpace, name: str, now: int) -> None:
    queue = opened.definitions(unit).queue(name)
    for store in stores(unit, queue.space_id):
        thresholds.note_arrival(unit, opened, queue, store, now)
