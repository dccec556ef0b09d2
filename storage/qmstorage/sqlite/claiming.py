"""What is claimed on SQLite, and what becomes of it.

Nothing is changed before it is known that all of it can be: which messages there are, that they can be read, and that
the transaction that is to hold them may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from qmcore.message_rows import BODY_ID, EXPIRES, ID, PAGES, SIZE, fault_in
from qmcore.records import Outcome, Place, Role, Use
from qmcore.refusals import STALE, Reason, Refused
from qmcore.transitions import Claim, Claimed, Empty, Guard, Holder, Removal, Source, Taken
from qmstorage import claiming, disposing, rows
from qmstorage.claiming import Read, Store
from qmstorage.messages import Sound
from qmstorage.schema import held, owner, ready, trans
from qmstorage.sql import Integer, bindparam, delete, exists, func, insert, select
from qmstorage.sqlite.counters import MAIN
from qmstorage.sqlite.states import FACTS_IN_ORDER, IN_ORDER
from qmstorage.statements import Row, given
from qmstorage.states import PENDING_WORK
from qmstorage.transactions import written_state

if TYPE_CHECKING:
    from qmstorage.sqlite.transitions import Transitions

_ROLES: Final = {role.value: role for role in Role}

_MAIN_OF_QUEUE: Final = MAIN.add_columns(*PENDING_WORK.selected_columns)
"""All that is counted of a queue space, and whether something is due or has expired in a queue."""
_OF_TRANSACTION: Final = ("id", "space_id", "owner_id", "started_at", "deadline")
_OPEN: Final = (
    select(func.count())
    .select_from(trans)
    .where(given(trans.c.space_id, "of_space"), trans.c.state != written_state(Outcome.COMMITTED))
)
_MAY_BEGIN: Final = (
    exists().where(given(owner.c.id, "of_owner")),
    _OPEN.scalar_subquery() < bindparam("most", type_=Integer()),
)
_RECORD: Final = [bindparam(name, type_=trans.c[name].type) for name in _OF_TRANSACTION]
_BEGIN: Final = insert(trans).from_select(
    [*_OF_TRANSACTION, "state"], select(*_RECORD, written_state(Outcome.ACTIVE)).where(*_MAY_BEGIN)
)
"""Records an active transaction, where its owner was not given up and the queue space has fewer than `most`."""
_TAKE: Final = delete(ready).where(given(ready.c.queue_id, "of_queue"), given(ready.c.order_key, "of_key"))
_OF_SPILLED: Final = ("delay", "lifetime", "consumers")
_HOLD: Final = insert(held).values(
    {column.name: bindparam(column.name) for column in held.columns if column.name not in _OF_SPILLED}
)


def claim(unit: Transitions, command: Claim) -> Claimed | Empty | Refused:
    """Take messages out of a queue: they go for good, or a transaction holds them."""
    guard, source, choices, limit, body, is_tidy, holder = command
    space_id, queue_id, is_special = guard.space_id, source.queue_id, guard.memory_pages or source.retains
    execute, texts = unit.cursor.execute, unit.texts.in_order
    now = unit.clock.now()
    # In the order of its text: both questions are for a queue and for the time.
    values = queue_id, now, source.parent_id or queue_id, now, space_id
    main: Row | None = execute(texts[_MAIN_OF_QUEUE], values).fetchone()
    if main is None or main[0] != guard.generation:
        return STALE
    _, _, *level, has_due, has_expired = main
    if not is_tidy and (has_due or has_expired or (is_special and claiming.is_untidy(unit, command, now))):
        return Empty(queue_id, None, held=False, is_untidy=True)
    if choices or is_special or source.grouping or (holder is not None and holder.locks):
        taken = claiming.read(claiming.choose(unit, command), source, body=body)
    else:
        taken = _first(unit, queue_id, limit, body=body)
    if isinstance(taken, Refused):
        return taken
    if not taken:
        return claiming.nothing(unit, command)
    if holder is None:
        return _consume(unit, command, taken, now)
    return _hold(unit, command, holder, taken, Use(*level))


def _first(unit: Transitions, queue_id: int, limit: int, *, body: bool) -> list[Read] | Refused:
    """Return what the first ready messages of a queue are, as `read` does."""
    statement = IN_ORDER if body else FACTS_IN_ORDER
    its = []
    for each in unit.cursor.execute(unit.texts.in_order[statement], (queue_id,)).fetchmany(limit):
        number, key, retries = each[:3]
        row: Row = each[3:]
        if row[ID] is None or row[BODY_ID] is not None:
            row, fault = unit.messages.whole(None if row[ID] is None else row, retries, body=body)
        else:
            fault = fault_in(row, retries)
        if fault is not None:
            return Refused(Reason.DAMAGED, queue_id, wanted=number, what=fault)
        its.append((key, retries, row))
    return [Read(unit, its, False)] if its else []


def begin_holding(unit: Transitions, guard: Guard, holder: Holder) -> int | Refused:
    """Make a transaction known, or see that it still is; return how many there are, where they are the most yet."""
    if not holder.recorded:
        transaction_id, owner_id, started_us, deadline_us, _, transactions, highest, *_ = holder
        its = transaction_id, guard.space_id, owner_id, started_us, deadline_us
        values = (*its, owner_id, guard.space_id, min(transactions, highest))
        if unit.cursor.execute(unit.texts.in_order[_BEGIN], values).rowcount:
            return 0
    return claiming.begin_holding(unit, guard, holder)


def _consume(unit: Transitions, command: Claim, parts: Sequence[Read], now: int) -> Claimed:
    """Delete messages for good, or keep them for the record where their queue says so."""
    guard, source = command.guard, command.source
    if source.parent_id:
        return _consume_places(unit, command, parts)
    for store, its, _ in parts:
        _take_out(store, source, its)
        pages = size = 0
        for _, _, row in its:
            pages += row[PAGES]
            size += row[SIZE]
        if source.retains and store is unit:
            for each in its:
                unit.history.retain(Place(each[2][ID], source.queue_id, each[0], each[1]), now, guard.consumer)
            # The room of what is kept is given back when it is forgotten.
            pages = 0
        else:
            _remove(store, its)
        # Counted once: each change of a counter leaves a dead row behind on stores that keep old ones for readers.
        store.counters.leave(guard.space_id, source.queue_id, count=len(its), pages=pages, size=size, how="dequeued")
    if source.levels:
        stores = [part.store is unit for part in parts]
        unit.capacity_commands.rearm_reached(guard, source, on_disk=True in stores, in_memory=False in stores)
    return Claimed(_taken_of(unit, parts))


def _consume_places(unit: Transitions, command: Claim, parts: Sequence[Read]) -> Claimed:
    """Let go the places that a consumer has of messages, and what no other has a place of."""
    source = command.source
    for store, its, _ in parts:
        _take_out(store, source, its)
        gone = set(store.shares.part(source.queue_id, [row[ID] for _, _, row in its], Removal.DEQUEUED))
        last = [each for each in its if each[2][ID] in gone]
        for _, _, row in last:
            if row[EXPIRES] is not None:
                store.states.unmake_expiring(source.parent_id, row[ID], row[EXPIRES])
        _remove(store, last)
        disposing.count_places_out(store, command.guard, source, _use_of(its), _use_of(last), "dequeued")
    return Claimed(_taken_of(unit, parts))


def _use_of(its: Sequence[Sound]) -> Use:
    return Use(len(its), sum(row[PAGES] for _, _, row in its), sum(row[SIZE] for _, _, row in its))


def _hold(unit: Transitions, command: Claim, holder: Holder, parts: Sequence[Read], level: Use) -> Claimed | Refused:
    """Let a transaction hold messages, and lock the others of their groups."""
    source, role = command.source, _ROLES[holder.role]
    others: Sequence[Read] = ()
    if source.grouping:
        found = claiming.read(claiming.others_of_groups(source, parts), source, body=False)
        if isinstance(found, Refused):
            return found
        others = found
    transactions = begin_holding(unit, command.guard, holder)
    if isinstance(transactions, Refused):
        return transactions
    for store, its, is_locked in parts:
        if is_locked:
            for _, _, row in its:
                store.holdings.dequeue_locked(holder.transaction_id, source.queue_id, row[ID])
        else:
            _take_out(store, source, its)
            _let_hold(store, holder.transaction_id, source.queue_id, its, role)
    for store, its, _ in others:
        _take_out(store, source, its)
        _let_hold(store, holder.transaction_id, source.queue_id, its, Role.LOCKED)
    # Numbers for the replies come with this commit, so that they need none of their own.
    sequences = unit.counters.reserve(command.guard.space_id, holder.numbers) if holder.numbers else ()
    locks = role is Role.LOCKED or bool(others)
    return Claimed(_taken_of(unit, parts), locks, sequences, transactions, level)


def _take_out(store: Store, source: Source, its: Sequence[Sound]) -> None:
    """Take messages out of `ready`, by their keys, and forget when they expire, unless others have them too."""
    execute, text = store.cursor.execute, store.texts.in_order[_TAKE]
    queue_id, is_alone = source.queue_id, not source.parent_id
    for key, _, row in its:
        execute(text, (queue_id, key))
        if row[EXPIRES] is not None and is_alone:
            store.states.unmake_expiring(queue_id, row[ID], row[EXPIRES])


def _remove(store: Store, its: Sequence[Sound]) -> None:
    """Delete the rows of messages, and the bodies that are kept apart."""
    execute, text = store.cursor.execute, store.texts.in_order[rows.FORGET]
    for _, _, row in its:
        execute(text, (row[ID],))
        if row[BODY_ID] is not None:
            store.bodies.discard(row[BODY_ID])


def _let_hold(store: Store, transaction_id: int, queue_id: int, its: Sequence[Sound], role: Role) -> None:
    """Let the transaction hold messages of a queue that were taken out of `ready`."""
    execute, text = store.cursor.execute, store.texts.in_order[_HOLD]
    for key, retries, row in its:
        held = row[ID], queue_id, key, retries, row[PAGES], row[SIZE], row[EXPIRES], int(role)
        execute(text, (transaction_id, *held))


def _taken_of(unit: Transitions, parts: Sequence[Read]) -> list[Taken]:
    """Return messages in the order of their keys."""
    if len(parts) > 1:
        return claiming.taken_of(unit, parts)
    store, its, _ = parts[0]
    in_memory, taken = store is not unit, []
    for _, retries, row in its:
        taken.append(Taken(row, retries, in_memory))
    return taken
