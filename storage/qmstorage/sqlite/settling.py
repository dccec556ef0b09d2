"""What becomes of what transactions hold and bring on SQLite: it is looked at first, and then changed."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import add, attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from qmcore.purpose import WrongPurposeError
from qmcore.records import Outcome, Role, Use
from qmcore.refusals import STALE, Reason, Refused
from qmcore.transitions import NO_LIMIT, Admit, Admitted, Arrival, Commit, Committed, Reached, Removal, Route, Source
from qmstorage import claiming, disposing, settling
from qmstorage.schema import held, history, trans
from qmstorage.sql import bindparam, insert, literal, select, update
from qmstorage.sqlite.counters import COUNT, COUNT_OUT, MAIN
from qmstorage.sqlite.holdings import HELD, use_of
from qmstorage.statements import Row, given, written
from qmstorage.transactions import ACTIVE_OF_OWNER, END

if TYPE_CHECKING:
    from qmstorage.sqlite.transitions import Transitions

_OF_TRANSACTION: Final = (given(held.c.queue_id, "of_queue"), given(held.c.trans_id, "of_trans"))
_HOLDS: Final = select(held.c.message_id).where(*_OF_TRANSACTION).limit(1)
_RETAIN: Final = insert(history).from_select(
    ["queue_id", "consumed_at", "message_id", "consumer", "trans_id"],
    select(
        held.c.queue_id,
        bindparam("consumed", type_=history.c.consumed_at.type),
        held.c.message_id,
        bindparam("by", type_=history.c.consumer.type),
        held.c.trans_id,
    ).where(
        given(held.c.queue_id, "of_queue"), given(held.c.trans_id, "of_trans"), written(held.c.role, Role.DEQUEUED)
    ),
)
_MARK_COMMITTED: Final = (
    update(trans).where(*ACTIVE_OF_OWNER).values(state=literal(Outcome.COMMITTED.value)).returning(trans.c.id)
)
_NOTHING: Final = Use(0, 0, 0)

_DEQUEUED: Final = Role.DEQUEUED
_HELD: Final = HELD[_DEQUEUED]
_Gone: TypeAlias = tuple[Source, Sequence[Row], Use]
"""Messages that a transaction holds of a queue: the number, the pages and the size of each, and of all."""
_Coming: TypeAlias = tuple[Route, Sequence[Arrival]]
_levels_of: Final = attrgetter("levels")


def admit(unit: Transitions, command: Admit) -> Admitted | Refused:
    """Say whether there is room for what a transaction enqueues, and give it numbers."""
    main = unit.counters.row(command.guard.space_id)
    if main is None or main[0] != command.guard.generation:
        return STALE
    _, _, *level = main
    return settling.admit(unit, command, Use(*level))


def commit(unit: Transitions, command: Commit) -> Committed | Refused:
    """Commit a transaction: what it holds goes, and what it brings arrives."""
    if not unit.purpose.settles:
        raise WrongPurposeError(unit.purpose, "commits a transaction")
    guard, transaction_id, _, _, sources, _, locks, stored, _, brings = command
    space_id, execute, texts = guard.space_id, unit.cursor.execute, unit.texts.in_order
    # Where the transaction has spilled messages, somebody has mostly looked just now.
    main: Row | None = unit.counters.row(space_id) if stored else execute(texts[MAIN], (space_id,)).fetchone()
    if main is None or main[0] != guard.generation:
        return STALE
    gone: list[_Gone] = []
    for source in sources:
        its = execute(texts[_HELD], (source.queue_id, transaction_id)).fetchall()
        if its:
            its_pages = its_size = 0
            for _, pages, size in its:
                its_pages += pages
                its_size += size
            gone.append((source, its, Use(len(its), its_pages, its_size)))
    coming: Sequence[_Coming] = brings
    refused = _refusal(unit, command, main, gone, coming)
    if refused is not None:
        return refused
    now, last = unit.clock.now(), main[1]
    reached: list[Reached] = []
    changes = _consume(unit, command, gone, now)
    if guard.memory_pages or locks or stored or any(map(_levels_of, sources)):
        # What goes is counted before what comes: limits may be reached in between.
        _count_all(unit, space_id, changes)
        changes = {}
        coming = _end_in_part(unit, command, now, reached)
        last = unit.counters.last_sequence(space_id) if coming else last
    for route, arrivals in coming:
        count, pages, size = len(arrivals), 0, 0
        for _, its_size, its_pages, _, _ in arrivals:
            pages += its_pages
            size += its_size
        queue_id, change = route.queue_id, [count, count, pages, size, count, 0]
        before = changes.get(queue_id)
        changes[queue_id] = change if before is None else list(map(add, before, change))
        unit.states.stand(guard, route, range(last + 1, last + count + 1), arrivals, now)
        last += count
        if route.consumers:
            unit.counters.come_to_places(space_id, route.consumers, count=count, pages=pages, size=size)
    _count_all(unit, space_id, changes)
    for route, _ in coming:
        if route.levels:
            commands = unit.capacity_commands
            reached += commands.claim_reached(guard, route, now, on_disk=True, in_memory=False)
    return Committed(reached)


def _end(unit: Transitions, command: Commit) -> Reason | None:
    """End the transaction on disk; where it has a part in memory, leave a record for that to follow.

    Return why it cannot be committed, if so; nothing was changed then.
    """
    if not command.recorded:
        return None if unit.owners.is_attached(command.owner_id) else Reason.GIVEN_UP
    transaction_id, owner_id = command.transaction_id, command.owner_id
    if command.guard.memory_pages and _has_part_in_memory(unit, command):
        ended = unit.one(_MARK_COMMITTED, trans_id=transaction_id, of_owner=owner_id) is not None
    else:
        ended = unit.cursor.execute(unit.texts.in_order[END], (transaction_id, owner_id)).rowcount > 0
    return None if ended else Reason.GIVEN_UP


def _held_in_memory(unit: Transitions, command: Commit) -> Use:
    """Return how much the transaction has dequeued in memory, which gives its room back."""
    memory = unit.memory(command.guard.space_id) if command.guard.memory_pages else None
    if memory is None:
        return _NOTHING
    its = (
        memory.holdings.use_held(command.transaction_id, source.queue_id, Role.DEQUEUED)[0]
        for source in command.sources
    )
    return functools.reduce(Use.plus, its, _NOTHING)


def _consume(unit: Transitions, command: Commit, gone: Sequence[_Gone], now: int) -> dict[int, list[int]]:
    """Consume what the transaction holds, and return what changes in the counters of each queue."""
    changes, transaction_id = {}, command.transaction_id
    for source, its, (count, pages, size) in gone:
        queue_id, _, retains, _, _, parent_id = source
        if parent_id:
            _consume_places(unit, command, source, its)
        elif retains:
            of_it = {"of_trans": transaction_id, "of_queue": queue_id}
            unit.run(_RETAIN, consumed=now, by=command.guard.consumer, **of_it)
            unit.holdings.release_held(transaction_id, queue_id, _DEQUEUED)
            # The room of what is kept is given back when it is forgotten.
            changes[queue_id] = [0, -count, 0, -size, 0, count]
        else:
            unit.holdings.delete_these(its, transaction_id, queue_id, _DEQUEUED)
            changes[queue_id] = [0, -count, -pages, -size, 0, count]
    return changes


def _consume_places(unit: Transitions, command: Commit, source: Source, its: Sequence[Row]) -> None:
    """Let go the places of a consumer that the transaction holds, and the messages of which no other has one."""
    last = set(unit.shares.part(source.queue_id, [number for number, _, _ in its], Removal.DEQUEUED))
    gone = [each for each in its if each[0] in last]
    unit.holdings.release_held(command.transaction_id, source.queue_id, _DEQUEUED)
    for number, _, _, expires in unit.messages.charged([number for number, _, _ in gone]):
        if expires is not None:
            unit.states.unmake_expiring(source.parent_id, number, expires)
    unit.messages.discard_all([number for number, _, _ in gone])
    disposing.count_places_out(unit, command.guard, source, use_of(its), use_of(gone), "dequeued")


def _count_all(unit: Transitions, space_id: int, changes: Mapping[int, Sequence[int]]) -> None:
    """Count what changes in queues, and in the queue space as a whole."""
    execute, texts = unit.cursor.execute, unit.texts.in_order
    whole: Sequence[int] = ()
    for queue_id, change in changes.items():
        execute(texts[COUNT], (*change, space_id, queue_id))
        whole = list(map(add, whole, change)) if whole else change
    if whole:
        execute(texts[COUNT_OUT], (*whole, space_id))


def _refusal(
    unit: Transitions, command: Commit, main: Row, gone: Sequence[_Gone], coming: Sequence[_Coming]
) -> Refused | None:
    """Return why a transaction cannot be committed; None where it can, and its record is taken away."""
    guard, transaction_id, owner_id, _, _, holds, _, stored, spilled, _ = command
    count = pages = others = 0
    taken: Counter[int] = Counter()
    for source, its, (_, its_pages, _) in gone:
        count += len(its)
        if source.parent_id:
            # Only what nobody else has gives its room back.
            left = unit.shares.left([number for number, _, _ in its])
            taken.update(number for number, _, _ in its)
            last = [each for each in its if left.get(each[0], 1) == taken[each[0]]]
            others += len(its) - len(last)
            pages += use_of(last).pages
        elif not source.retains:
            pages += its_pages
    if count < holds.messages or (spilled and settling.lacks_spilled(unit, command)):
        is_active = unit.transactions.is_active(transaction_id, owner_id)
        return Refused(Reason.LOST if is_active else Reason.GIVEN_UP)
    count -= others
    # With the room that is freed by then.
    messages, used = main[2] - count, main[3] - pages
    if guard.messages < NO_LIMIT and ((coming and guard.memory_pages) or stored):
        freed_in_memory = _held_in_memory(unit, command)
        refused = settling.overflow_of_spilled(unit, command, Use(count, pages, 0), freed_in_memory)
        if refused is not None:
            return refused
        messages += unit.memory_level(guard.space_id).messages - freed_in_memory.messages
    wanted = wanted_pages = 0
    for _, arrivals in coming:
        wanted += len(arrivals)
        for _, _, its_pages, _, _ in arrivals:
            wanted_pages += its_pages
    if (coming or stored) and messages + wanted > guard.messages:
        return Refused(Reason.MESSAGES, messages, guard.messages, wanted)
    if wanted and used + wanted_pages > guard.pages:
        return Refused(Reason.PAGES, used, guard.pages, wanted_pages)
    reason = _end(unit, command)
    return None if reason is None else Refused(reason)


def _end_in_part(unit: Transitions, command: Commit, now: int, reached: list[Reached]) -> Sequence[_Coming]:
    """End what the transaction has in memory, has locked and has spilled; return what is still to come.

    What it held on disk has gone.
    """
    stores = claiming.stores_of(unit, command.guard)
    for store in stores:
        if store is not unit:
            for source in command.sources:
                settling.consume_in_memory(command, store, source)
        if command.locks:
            settling.give_back_locked(command, store, now)
    settling.rearm_levels(unit, command)
    if not command.stored:
        return command.brings
    # What stands in the store already comes first.
    brings = settling.keep_with_spilled(unit, command, command.brings)
    for route in command.stored:
        reached += settling.stand_spilled(unit, command, route, now)
    return brings


def _has_part_in_memory(unit: Transitions, command: Commit) -> bool:
    memory = unit.memory(command.guard.space_id)
    queue_ids = {*(source.queue_id for source in command.sources), *(route.queue_id for route in command.stored)}
    return memory is not None and any(
        memory.one(_HOLDS, of_trans=command.transaction_id, of_queue=queue_id) for queue_id in queue_ids
    )
