"""What whoever comes next does for all: release what is due, remove what has expired, end what was left behind."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial

from qmcore.acts import following, in_doubt, scheduling, subscriptions, sweeping, thresholds
from qmcore.acts.expiry import expire, forget_outlived, has_outlived, kept_from
from qmcore.acts.returning import Cause, Ending, give_back
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.errors import BadQueueError, OperatingSystemError, OutcomeUnknownError, QueueError, SystemFailureError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Queue
from qmcore.records import Outcome, Owner, TransactionRecord
from qmcore.times import Clock

logger = logging.getLogger("qmadmin.engine")

STEP = 1000
"""Messages that are released or removed in one database transaction."""


def freshen(unit: Unit, opened: OpenSpace, queue: Queue, now: int) -> bool:
    """Release and remove what is due and what has expired in a queue; False: a step was done, and there is more."""
    done = True
    for store in stores(unit, queue.space_id):
        due, expired = store.states.pending_work(queue.id, queue.messages_of, now)
        if expired:
            done = expire(unit, opened, store, queue, now, STEP) < STEP
        if due and done:
            done = store.states.release_due(queue.id, now, STEP) < STEP
        if not done:
            return False
    # What a queue has retained that retains no more is left to those who look at it: consumers need not ask for it.
    return not queue.definition.retention or _forget(unit, opened, queue, now)


def freshen_now(volume: Volume, opened: OpenSpace, name: str, now: int) -> None:
    """Release and remove all that is due and expired in a queue, before somebody looks at it from outside."""

    def pending(unit: Unit) -> bool:
        return _has_work(unit, opened.definitions(unit).named(name), now)

    is_pending = volume.read(pending)
    if _may_write(volume):
        freshen_each(volume, opened, [name] if is_pending else (), now)
        sweeping.sweep(volume, opened)


def freshen_all(volume: Volume, opened: OpenSpace, now: int) -> None:
    """Do the same in all queues that have something to do."""
    if _may_write(volume):
        freshen_each(volume, opened, volume.read(lambda unit: queues_with_work(unit, opened, now)), now)
        sweeping.sweep(volume, opened)


def _may_write(volume: Volume) -> bool:
    """Return whether what is due may be done here, and need not wait for a transaction that this thread has joined."""
    return not volume.readonly and not volume.is_joined()


def freshen_each(volume: Volume, opened: OpenSpace, names: Iterable[str], now: int, *, one_step: bool = False) -> None:
    """Release and remove what is due and expired in queues: all of it, or of each queue one step."""

    def step(unit: Unit, name: str) -> bool:
        known = opened.definitions(unit)
        queue = known.named(name)
        return freshen(unit, opened, queue, now) and _forget(unit, opened, queue, now)

    for name in names:
        # It may be destroyed by now.
        with contextlib.suppress(BadQueueError):
            while not volume.write(partial(step, name=name), Purpose.TIDY):
                if one_step:
                    break


def queues_with_work(unit: Unit, opened: OpenSpace, now: int) -> list[str]:
    """Return the names of the queues in which something is due or has expired, or whose retention is over for some."""
    known = opened.definitions(unit)
    due = {
        queue_id for store in stores(unit, known.space.id) for queue_id, at in store.states.first_moments() if at <= now
    }
    for queue_id, consumed in unit.history.first_consumed():
        queue = known.by_id.get(queue_id)
        before = None if queue is None else kept_from(queue.definition.retention, now)
        if before is not None and consumed < before:
            due.add(queue_id)
    return [known.by_id[queue_id].name for queue_id in sorted(due & known.by_id.keys())]


def _forget(unit: Unit, opened: OpenSpace, queue: Queue, now: int) -> bool:
    return forget_outlived(unit, opened, queue, now, STEP) < STEP


def run(volume: Volume, opened: OpenSpace, clock: Clock, *, one_step: bool) -> bool:
    """Do what is due in all queues, or one step of it, and end what others have left: all that one look finds.

    Return whether this process is recorded as attached, as it is unless others have taken it for dead.
    """
    due: list[str] = []
    scheduled: list[str] = []
    messages = 0

    def looked(unit: Unit) -> None:
        nonlocal messages
        due[:] = queues_with_work(unit, opened, clock.now())
        scheduled[:] = scheduling.due(unit, opened, clock.now())
        messages = _messages_in_both(unit, opened)

    attached = end_what_was_left(volume, opened, clock, looked)
    if attached and messages > opened.highest.get("messages", 0):
        note = partial(opened.note_use, limit="messages", used=messages)
        # The next look notes it, if there are as many by then.
        with contextlib.suppress(QueueError):
            volume.write(note, Purpose.TIDY)
    for name in due:
        # What is in the way there is told to those who use that queue.
        with contextlib.suppress(QueueError):
            freshen_each(volume, opened, [name], clock.now(), one_step=one_step)
    with contextlib.suppress(QueueError):
        sweeping.sweep(volume, opened, patiently=False, most=sweeping.MOST_STEPS if one_step else None)
    with contextlib.suppress(QueueError):
        subscriptions.part_with_those_going(volume, opened, STEP, one_step=one_step)
    if attached:
        # Behind what makes room for them.
        scheduling.make_due(volume, opened, scheduled, clock)
    return attached


def end_what_was_left(
    volume: Volume, opened: OpenSpace, clock: Clock, looked: Callable[[Unit], None] = lambda _unit: None
) -> bool:
    """Roll back the transactions of processes that died or left, and those whose time is over.

    `looked` is called in the look for them. Return whether this process is recorded as attached, as it is unless others
    have taken it for dead.
    """
    space_id = opened.space.id

    def look(unit: Unit) -> tuple[list[Owner], list[TransactionRecord], bool]:
        looked(unit)
        records = unit.transactions.of_space(space_id)
        opened.has_distributed = in_doubt.has_distributed(unit, space_id, records)
        return unit.owners.of_space(space_id), records, _is_left_behind(unit, opened)

    owners, records, left = volume.read(look)
    living = volume.liveness.living(owners)
    dead = [owner for owner in owners if owner.id not in living]
    doomed = _doomed(volume, owners, dead, records, clock)
    attached = opened.me is not None and opened.me.id in {owner.id for owner in owners}
    if not dead and not doomed and not left:
        return attached

    now = clock.now()

    def end(unit: Unit) -> list[list[str] | None]:
        for transaction_id, owner_id, cause in doomed:
            if unit.transactions.end(transaction_id, owner_id):
                queue_ids = opened.definitions(unit).by_id
                give_back(unit, opened, transaction_id, queue_ids, now, Ending(cause))
        wakeups = [unit.owners.remove(owner.id) for owner in dead]
        thresholds.start_what_was_left(unit, opened)
        return wakeups

    wakeups = volume.write(end, Purpose.TIDY)
    _let_memory_follow(volume, opened, now)
    for owner, left_wakeups in zip(dead, wakeups, strict=True):
        volume.liveness.release(owner, left_wakeups or ())
        if left_wakeups is not None:
            space = opened.space.name
            logger.warning("%s %d died while it was attached to queue space %r", owner.role, owner.pid, space)
    return attached


def _messages_in_both(unit: Unit, opened: OpenSpace) -> int:
    """Return how many messages disk and memory hold, each of which counts the most of its own; 0 without memory."""
    both = stores(unit, opened.space.id)
    return sum(store.counters.level(opened.space.id).messages for store in both) if len(both) > 1 else 0


def _let_memory_follow(volume: Volume, opened: OpenSpace, now: int) -> None:
    """Let memory follow the disk. Where it cannot, as when it is full, that keeps nobody from working on disk."""
    try:
        # Once to follow, and once to forget what it had to follow.
        for _ in range(2):
            if not volume.read(lambda unit: following.has_to_follow(unit, opened)):
                return
            volume.write(lambda unit: following.let_memory_follow(unit, opened, now), Purpose.FOLLOWING)
    except (OperatingSystemError, SystemFailureError, OutcomeUnknownError) as error:
        logger.error("the memory of queue space %r is behind the disk: %s", opened.space.name, error)  # noqa: TRY400


def _doomed(
    volume: Volume, owners: list[Owner], dead: list[Owner], records: list[TransactionRecord], clock: Clock
) -> list[tuple[int, int, Cause]]:
    """Return the transactions that have to be rolled back, their owners, and why."""
    active = [record for record in records if record.state is Outcome.ACTIVE]
    known_owners = {owner.id for owner in owners}
    causes = {owner.id: Cause.DEATH if volume.liveness.is_same_boot(owner) else Cause.RESTART for owner in dead}
    causes |= {record.owner_id: Cause.LEFT for record in active if record.owner_id not in known_owners}
    late = _overdue(volume, [record for record in active if record.owner_id not in causes], clock)
    return [
        (record.id, record.owner_id, causes.get(record.owner_id, Cause.TIMEOUT))
        for record in active
        if record.owner_id in causes or record.id in late
    ]


def _overdue(volume: Volume, records: list[TransactionRecord], clock: Clock) -> set[int]:
    """Return the transactions whose time is over.

    The clock that all share may have been set since this process looked at it: it looks before it ends one.
    """
    if not _whose_time_is_over(records, clock):
        return set()
    volume.compare_clocks()
    return _whose_time_is_over(records, clock)


def _whose_time_is_over(records: list[TransactionRecord], clock: Clock) -> set[int]:
    return {
        record.id
        for record in records
        if record.deadline_us is not None and clock.is_over(record.started_us, record.deadline_us)
    }


def _is_left_behind(unit: Unit, opened: OpenSpace) -> bool:
    """Return whether memory has to follow the disk, or a capacity command was not started."""
    attached = {owner.id for owner in unit.owners.of_space(opened.space.id)}
    claimed = any(owner_id not in attached for _, owner_id in unit.capacity_commands.of_space(opened.space.id))
    return claimed or following.has_to_follow(unit, opened)


def _has_work(unit: Unit, queue: Queue, now: int) -> bool:
    if any(any(store.states.pending_work(queue.id, queue.messages_of, now)) for store in stores(unit, queue.space_id)):
        return True
    return has_outlived(unit, queue, now)
