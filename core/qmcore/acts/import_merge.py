"""What may follow the publication of an import, or its end: both a limited number of messages at a time."""

from __future__ import annotations

from qmcore.acts import thresholds
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.errors import AbortedError, InvalidArgumentError, ProtocolError
from qmcore.imports import ImportJob, ImportPlan, PlannedQueue, Source, Stage, total
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import ImportRecord, Use
from qmcore.store import MemoryStore, Store


def merge(unit: Unit, opened: OpenSpace, job: ImportJob, limit: int, now: int) -> int:
    """Move about `limit` messages of a published import into the queues that they are appended to.

    What the import has replaced is removed in the same way. Return about how many messages are left; at 0 the import is
    DONE. A message keeps its number and its place in the order, and is seen in its queue from now on. The unit is alone
    on the volume. Raises BadQueueError where a queue that messages are appended to is gone, and InvalidArgumentError
    where one of another order stands in its place: with a queue such as it was, it goes on.
    """
    record = unit.imports.find(job.id)
    if record is None or record.stage == Stage.ABANDONED.value:
        raise over(job, record)
    if record.stage == Stage.LOADING.value:
        raise ProtocolError("the import is not published yet", archive=job.archive)
    done = left = 0
    for import_id, queue in unit.imports.hidden_queues(job.space_id):
        if abs(import_id) != job.id:
            continue
        for store in _stores_of(unit, queue):
            if done < limit:
                done += (
                    _remove_some(store, queue, limit - done)
                    if import_id < 0
                    else _merge_some(unit, opened, store, job, queue, limit - done, now)
                )
        if done < limit:
            _forget(unit, queue)
        else:
            left += _left(unit, queue, replaced=import_id < 0)
    if done < limit:
        unit.imports.set_stage(job.id, Stage.DONE.value, now)
        return 0
    return max(left, 1)


def abandon(unit: Unit, opened: OpenSpace, job: ImportJob, limit: int) -> int:
    """Give up an import that was not published: delete at most `limit` of its messages.

    Return about how many are left; at 0 nothing of the import is there any more, and its room is given back. From the
    first call on nothing can be loaded. The unit is alone on the volume. Raises ProtocolError where it was published.
    """
    del opened
    record = unit.imports.find(job.id)
    if record is None:
        return 0
    if record.stage not in (Stage.LOADING.value, Stage.ABANDONED.value):
        raise ProtocolError(
            "the import was published and cannot be given up any more",
            hint="Let the merge finish, then destroy the queues that are not wanted.",
            archive=job.archive,
        )
    unit.imports.set_stage(job.id, Stage.ABANDONED.value)
    queues = [queue for import_id, queue in unit.imports.hidden_queues(job.space_id) if import_id == job.id]
    done = left = 0
    for queue in queues:
        for store in _stores_of(unit, queue):
            gone, _ = store.bulk_load.empty(queue.id, limit - done)
            store.bulk_load.adjust(queue.space_id, queue.id, Use(0, 0, 0), passed=-gone)
            done += gone
        left += _left(unit, queue, replaced=False)
    if done >= limit:
        return max(left, 1)
    for queue in queues:
        _forget(unit, queue)
    unit.imports.remove(job.id)
    return 0


def job_of(unit: Unit, record: ImportRecord) -> ImportJob:
    """Return an import as it is recorded."""
    plan = ImportPlan.from_json(record.plan)
    filled = {
        queue.name: queue.id
        for import_id, queue in unit.imports.hidden_queues(record.space_id)
        if import_id == record.id
    }
    return ImportJob(
        id=record.id,
        space_id=record.space_id,
        archive=record.archive,
        plan=plan,
        state=Stage(record.stage),
        shift=record.shift,
        page_size=unit.device.info().page_size,
        started_us=record.started_us,
        ended_us=record.ended_us,
        queues={planned.key: filled[planned.name] for planned in plan.queues if planned.name in filled},
        loaded=total(use for _, _, use in unit.imports.batches(record.id) if use is not None),
    )


def hidden_by(unit: Unit, job: ImportJob) -> dict[Source, Queue]:
    """Return the queues that an import hides, by what they are in the archive."""
    names = {queue.name: queue for import_id, queue in unit.imports.hidden_queues(job.space_id) if import_id == job.id}
    return {planned.key: names[planned.name] for planned in job.plan.queues if planned.name in names}


def over(job: ImportJob, record: ImportRecord | None) -> AbortedError:
    """Return the diagnostic for an import that is loaded no more."""
    gone = record is None or record.stage == Stage.ABANDONED.value
    return AbortedError(
        f"the import of archive {job.archive} {'was given up' if gone else 'is published'}: nothing is loaded any more",
        hint="An attempt that comes so late has nothing to do: leave it.",
        archive=job.archive,
        published=not gone,
    )


def refuse_several(target: Queue) -> None:
    """Refuse to append to a queue for several consumers, or to replace it: archives do not say who they are."""
    if target.definition.multiple_consumers:
        raise InvalidArgumentError(
            f"queue {target.name!r} is for several consumers, and no messages are imported there",
            hint="Import them as a queue of another name.",
            queue=target.name,
        )


def refuse_unlike(target: Queue, planned: PlannedQueue) -> None:
    """Refuse to append messages to a queue that does not order or group them in the same way, or is for several."""
    refuse_several(target)
    for what, is_so, wanted in (
        ("order", target.definition.order, planned.definition.order),
        ("grouping", target.definition.grouping, planned.definition.grouping),
    ):
        if is_so != wanted:
            raise InvalidArgumentError(
                f"the {what} of queue {target.name!r} is {is_so}, and that of the messages to be appended is {wanted}",
                hint="Import them as a queue of another name.",
                queue=target.name,
            )


def take_out_of_memory(memory: MemoryStore, space_id: int, queue_id: int) -> None:
    """Delete what a queue has in memory, and give back the room that was kept for it there."""
    if queue_id not in memory.counters.counted(space_id):
        # What is not counted was lost, and may have been loaded in part after that.
        memory.counters.add(space_id, queue_id)
    memory.abandon(space_id, queue_id)


def _merge_some(unit: Unit, opened: OpenSpace, store: Store, job: ImportJob, queue: Queue, limit: int, now: int) -> int:
    target = opened.definitions(unit).queue(queue.name)
    refuse_unlike(target, next(planned for planned in job.plan.queues if planned.name == queue.name))
    moved, use = store.bulk_load.rehome(queue.id, target.id, limit)
    if moved:
        out = Use(-use.messages, -use.pages, -use.size)
        store.bulk_load.adjust(queue.space_id, queue.id, out, passed=-moved)
        store.bulk_load.adjust(queue.space_id, target.id, use, passed=moved)
        unit.waits.notify(target.id)
        thresholds.note_arrival(unit, opened, target, store, now)
    return moved


def _remove_some(store: Store, queue: Queue, limit: int) -> int:
    gone, use = store.bulk_load.empty(queue.id, limit)
    if gone:
        store.counters.leave(
            queue.space_id, queue.id, count=use.messages, pages=use.pages, size=use.size, how="discarded"
        )
    return gone


def _forget(unit: Unit, queue: Queue) -> None:
    """Remove a hidden queue that has no messages, and give back the room that is still kept for it."""
    for store in _stores_of(unit, queue):
        kept = store.counters.use(queue)
        out = Use(-kept.messages, -kept.pages, -kept.size)
        store.counters.charge(queue.space_id, messages=out.messages, pages=out.pages, size=out.size)
        store.bulk_load.adjust(queue.space_id, queue.id, out)
    memory = unit.memory(queue.space_id)
    if memory is not None:
        take_out_of_memory(memory, queue.space_id, queue.id)
    unit.queues.remove(queue)


def _left(unit: Unit, queue: Queue, *, replaced: bool) -> int:
    found = _stores_of(unit, queue)
    if replaced:
        return sum(store.counters.use(queue).messages for store in found)
    return sum(store.bulk_load.passed(queue.space_id, queue.id) for store in found)


def _stores_of(unit: Unit, queue: Queue) -> list[Store]:
    """Return the stores in which a queue is counted: its part of a memory may be lost."""
    memory = unit.memory(queue.space_id)
    found = [store for store in stores(unit, queue.space_id) if store is not memory]
    if memory is not None and queue.id in memory.counters.counted(queue.space_id):
        found.append(memory)
    return found
