"""What is claimed: which messages of a queue are meant, and whether a transaction may hold them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from qmcore.message_rows import GROUP, ID
from qmcore.order import rank
from qmcore.records import Outcome, Role, TransactionRecord
from qmcore.refusals import Reason, Refused
from qmcore.selection import FIRST_CHOICE, Choice
from qmcore.transitions import Claim, Empty, Guard, Holder, Source, Taken
from qmcore.xid import Xid
from qmstorage.messages import Sound
from qmstorage.statements import Row
from qmstorage.unit import MemoryStore, SqlUnit

Store: TypeAlias = SqlUnit | MemoryStore

_LOOKS: Final = 3
"""How often messages are looked for that others take meanwhile."""


class Part(NamedTuple):
    """Messages of one store that are meant, of each its number, its key and its retries.

    `is_locked`: the transaction has locked them already, and they are not ready.
    """

    store: Store
    found: Sequence[Row]
    is_locked: bool = False


class Read(NamedTuple):
    """The same with what they are; with their bodies, where those are wanted."""

    store: Store
    its: Sequence[Sound]
    is_locked: bool


def stores_of(unit: SqlUnit, guard: Guard) -> Sequence[Store]:
    """Return the stores of a queue space, the one on disk first."""
    memory = unit.memory(guard.space_id) if guard.memory_pages else None
    return (unit,) if memory is None else (unit, memory)


def is_untidy(unit: SqlUnit, command: Claim, now: int) -> bool:
    """Return whether something in the queue is due or has expired, or was kept for long enough."""
    queue_id, retention = command.source.queue_id, command.source.retention_us
    messages_of = command.source.messages_of
    if any(any(store.states.pending_work(queue_id, messages_of, now)) for store in stores_of(unit, command.guard)):
        return True
    return command.source.retains and retention is not None and unit.history.has_outlived(queue_id, now - retention)


def nothing(unit: SqlUnit, command: Claim) -> Empty:
    """Return that there is no message, and when there may be one."""
    queue_id, stores = command.source.queue_id, stores_of(unit, command.guard)
    due = [moment for store in stores if (moment := store.states.next_due(queue_id)) is not None]
    return Empty(queue_id, min(due, default=None), any(store.holdings.held_in(queue_id) for store in stores))


def choose(unit: SqlUnit, command: Claim) -> list[Part]:
    """Return the messages that are meant, where they are not simply the first ones on disk."""
    parts: list[Part] = []
    left = command.limit
    for choice in command.choices or (FIRST_CHOICE,):
        if left > 0:
            parts += _chosen(unit, command, choice, left)
            left = command.limit - sum(len(part.found) for part in parts)
    return parts


def read(parts: Sequence[Part], source: Source, *, body: bool) -> list[Read] | Refused:
    """Return messages with what they are, or refuse the first that is damaged."""
    result: list[Read] = []
    for store, found, is_locked in parts:
        its = sound(store, source, store.messages.sound(found, body=body), is_locked=is_locked)
        if isinstance(its, Refused):
            return its
        result += its
    return result


def sound(
    store: Store, source: Source, its: list[Sound] | tuple[int, str], *, is_locked: bool = False
) -> list[Read] | Refused:
    """Return messages that were read, or refuse the one that is damaged."""
    if isinstance(its, tuple):
        return Refused(Reason.DAMAGED, source.queue_id, wanted=its[0], what=its[1])
    return [Read(store, its, is_locked)] if its else []


def begin_holding(unit: SqlUnit, guard: Guard, holder: Holder, xid: Xid | None = None) -> int | Refused:
    """Make a transaction known, or see that it still is; return how many there are, where that is more than ever.

    `xid` is its identifier, where it is known by one from its beginning on.
    """
    if holder.recorded:
        return 0 if unit.transactions.is_active(holder.transaction_id, holder.owner_id) else Refused(Reason.GIVEN_UP)
    if not unit.owners.is_attached(holder.owner_id):
        return Refused(Reason.GIVEN_UP)
    count = unit.transactions.count(guard.space_id)
    if count >= holder.transactions:
        return Refused(Reason.TRANSACTIONS, count, holder.transactions, 1)
    is_more = count + 1 > holder.highest
    if is_more:
        unit.highest.raise_to(guard.space_id, "transactions", count + 1)
    unit.transactions.add(
        TransactionRecord(
            id=holder.transaction_id,
            space_id=guard.space_id,
            owner_id=holder.owner_id,
            state=Outcome.ACTIVE,
            started_us=holder.started_us,
            deadline_us=holder.deadline_us,
            xid=xid,
        )
    )
    return count + 1 if is_more else 0


# ---- which -----------------------------------------------------------------------------------------------------------


def _chosen(unit: SqlUnit, command: Claim, choice: Choice, limit: int) -> list[Part]:
    """Return messages that are chosen: of what the transaction has locked already, and of what is ready.

    What is not taken is not locked: others would pass it over, and find nothing.
    """
    source, holder, stores = command.source, command.holder, stores_of(unit, command.guard)
    its = source.queue_id, source.messages_of
    mine: list[Part] = []
    if holder is not None and holder.locks and holder.role == Role.DEQUEUED:
        for store in stores:
            locked = store.holdings.locked(holder.transaction_id, source.queue_id, choice, limit)
            mine.append(Part(store, locked, is_locked=True))
        # The rest of a group comes before what has arrived since, whatever its order, and alone.
        if source.grouping and any(part.found for part in mine):
            return _first_of(mine, limit)
    is_of_one_group = source.grouping and limit > 1
    if not (is_of_one_group or mine or len(stores) > 1):
        return _first_of([Part(unit, unit.states.choose(*its, choice, limit))], limit)

    def look(most: int) -> list[Part]:
        seen = [Part(store, store.states.choose(*its, choice, most, locks=False)) for store in stores]
        return _first_of([*mine, *seen], most)

    for _ in range(_LOOKS):
        found = _of_one_group(source, choice, look, limit) if is_of_one_group else look(limit)
        parts = [
            part if part.is_locked else part._replace(found=part.store.states.locked_ready(source.queue_id, part.found))
            for part in found
        ]
        parts = [part for part in parts if part.found]
        if parts or not found:
            return parts
    return []


def _of_one_group(source: Source, choice: Choice, look: Callable[[int], list[Part]], limit: int) -> list[Part]:
    """Return messages of the group of the first one that is chosen.

    Messages that are grouped stand on disk only. What came there from a queue without groups may stand in memory.
    """
    in_order = _in_order(look(1))
    if not in_order:
        return []
    store, first = in_order[0]
    group_id = store.messages.group_of(first[0])
    if group_id is None:
        return [Part(store, [first])]
    if choice is FIRST_CHOICE:
        rest = [row for row in store.states.ready_of_group(source.queue_id, group_id) if row[0] != first[0]]
        return [Part(store, [first, *rest][:limit])]
    found, most = [first], 1
    while len(found) == most < limit:
        # As many as there were once more: how large the group is is not known.
        most = min(2 * most, limit)
        in_order = _in_order(look(most))
        found = [
            row
            for _, row in itertools.takewhile(lambda each: each[0].messages.group_of(each[1][0]) == group_id, in_order)
        ]
    return [Part(store, found)]


def others_of_groups(source: Source, parts: Sequence[Read]) -> list[Part]:
    """Return the ready messages that are of a group of messages which are taken."""
    others = []
    for store, its, is_locked in parts:
        known = {row[ID] for _, _, row in its}
        groups = {row[GROUP] for _, _, row in its if not is_locked} - {None}
        rows = [row for group_id in groups for row in store.states.ready_of_group(source.queue_id, group_id or 0)]
        found = [row for row in rows if row[0] not in known]
        others += [Part(store, found)] if found else []
    return others


def _in_order(parts: Sequence[Part]) -> list[tuple[Store, Row]]:
    """Return messages in the order of their keys, each with its store."""
    found = [(part.store, row) for part in parts for row in part.found]
    return sorted(found, key=lambda each: rank(each[1][1]))


def _first_of(parts: Sequence[Part], limit: int) -> list[Part]:
    """Return the first messages of several parts in the order of their keys."""
    if sum(len(part.found) for part in parts) > limit:
        first = {row[0] for _, row in _in_order(parts)[:limit]}
        parts = [part._replace(found=[row for row in part.found if row[0] in first]) for part in parts]
    return [part for part in parts if part.found]


# ---- what becomes of them --------------------------------------------------------------------------------------------


def taken_of(unit: SqlUnit, parts: Sequence[Read]) -> list[Taken]:
    """Return messages in the order of their keys."""
    keyed = [(key, Taken(row, retries, store is not unit)) for store, its, _ in parts for key, retries, row in its]
    return [taken for _, taken in sorted(keyed, key=lambda each: rank(each[0]))]
