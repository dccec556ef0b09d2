"""The act of dequeuing in a transaction: what is taken is held, and gone when the transaction commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qmcore.acts import plain
from qmcore.acts.dequeue import first_ready, nothing, reserved_queue, rest_of_group, take
from qmcore.acts.housekeeping import freshen
from qmcore.acts.identifying import choices
from qmcore.acts.stores import stores
from qmcore.acts.transaction_part import NO_USE, Branch, left_numbers, record_once, reserve
from qmcore.message import Message
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery, Queue
from qmcore.records import Holding, Nothing, Place, Role, Use
from qmcore.seen import CHANGES, Seen
from qmcore.selection import FIRST, Choice, Selection
from qmcore.shortcut import PlainHeld
from qmcore.space import Space
from qmcore.store import Store


def dequeue(
    volume: Volume,
    branch: Branch,
    name: str,
    selection: Selection,
    limit: int,
    now: int,
    *,
    body: bool = True,
    role: Role = Role.DEQUEUED,
) -> list[Message] | Nothing:
    """Take at most `limit` messages and let the transaction hold them: to consume them, or to lock them only."""

    def held(unit: Unit) -> tuple[list[Held], Sequence[int]] | Nothing:
        queue = reserved_queue(unit, branch.opened, name)
        if not freshen(unit, branch.opened, queue, now):
            return Nothing((queue.id,), None, unfinished=True)
        return hold(unit, branch, queue, selection, limit, body=body, role=role) or nothing(unit, queue)

    # Noted before: whatever interrupts us behind the commit, the rollback looks for what is held.
    branch.may_hold = True
    is_plain = limit == 1 and body and role is Role.DEQUEUED and selection is FIRST
    plainly = _held_plainly(volume, branch, name, now) if is_plain else None
    taken = plainly or volume.write(held, Purpose.HOLDING)
    return taken if isinstance(taken, Nothing) else note(branch, *taken, role)


class Held(NamedTuple):
    """A message that the transaction holds now; `locks`: it has locked others with it, or it alone.

    `use` is the room that it gives back when it is consumed.
    """

    message: Message
    queue_id: int
    delivery: Delivery
    use: Use
    locks: bool


def hold(
    unit: Unit,
    branch: Branch,
    queue: Queue,
    selection: Selection,
    limit: int,
    *,
    body: bool = True,
    role: Role = Role.DEQUEUED,
) -> tuple[list[Held], Sequence[int]] | None:
    """Let the transaction hold at most `limit` messages of a reserved queue; None where there are none.

    Return them and the sequence numbers that the transaction has for what it enqueues: `note` both when that is done.
    """
    found = _take(unit, branch, queue, selection, limit, role)
    if not found:
        return None
    record_once(unit, branch)
    branch.queue_ids.add(queue.id)
    branch.may_lock = branch.may_lock or role is Role.LOCKED or queue.definition.grouping
    # Numbers for the replies come with this commit, so that they need none of their own.
    reserved = branch.reserved or reserve(unit, branch, 1)
    space = branch.opened.definitions(unit).space
    return _hold(branch, space, queue, found, role, body=body), reserved


def note(branch: Branch, found: Sequence[Held], reserved: Sequence[int], role: Role = Role.DEQUEUED) -> list[Message]:
    """Note what the transaction holds since a commit, and return the messages."""
    branch.recorded = True
    branch.reserved = reserved
    for item in found:
        branch.locks = branch.locks or item.locks
        if role is Role.DEQUEUED:
            branch.holds[item.delivery] = branch.holds.get(item.delivery, NO_USE).plus(item.use)
    return [item.message for item in found]


class _Found(NamedTuple):
    """A message that was found: where, and whether the transaction has locked it already."""

    store: Store
    place: Place
    locked: bool = False


def _held_plainly(
    volume: Volume, branch: Branch, name: str, now: int
) -> tuple[list[Held], Sequence[int]] | Nothing | None:
    """Do the same with the first message of a queue in the short way; None: nothing was done."""
    if volume.shortcut is None or branch.recorded:
        return None
    departure = plain.departure_from(branch.opened, name, now)
    if departure is None:
        return None
    branch.reserved = branch.reserved or left_numbers(branch, 1)
    before = set(branch.queue_ids)
    # Noted before, as above.
    branch.queue_ids.add(departure.queue_id)
    last_change = CHANGES.last
    held = plain.hold(volume, branch, departure)
    if isinstance(held, PlainHeld):
        branch.seen = Seen(held.level, now, last_change)
        message = held.message
        use = Use(1, held.pages, message.size)
        found = Held(message, departure.queue_id, message.delivery, use, locks=False)
        return [found], branch.reserved or held.sequences
    branch.queue_ids = before
    return held


def _take(unit: Unit, branch: Branch, queue: Queue, selection: Selection, limit: int, role: Role) -> list[_Found]:
    """Take what is selected: of what the transaction has locked already, if it is to be consumed, and of `ready`."""
    found: list[_Found] = []
    if branch.locks and role is Role.DEQUEUED:
        found = _take_locked(unit, branch, queue, selection, limit)
        # The rest of a group comes before what has arrived since, whatever its order, and alone.
        if found and queue.definition.grouping:
            return found
    return found + _take_ready(unit, branch, queue, selection, limit - len(found))


def _take_ready(unit: Unit, branch: Branch, queue: Queue, selection: Selection, limit: int) -> list[_Found]:
    if limit <= 0:
        return []
    return [_Found(item.store, item.place) for item in take(unit, branch.opened, queue, selection, limit)]


def _take_locked(unit: Unit, branch: Branch, queue: Queue, selection: Selection, limit: int) -> list[_Found]:
    """Take what the transaction has locked, and in its turn what stands before that in the order."""
    space = branch.opened.definitions(unit).space
    found: list[_Found] = []
    for choice in choices(unit, space, queue, selection):
        while len(found) < limit and (locked := _first_locked(unit, branch, space, queue, choice)):
            ready = None if queue.definition.grouping else first_ready(unit, space, queue, choice)
            if ready is not None and ready < locked.place.order_key:
                found += _take_ready(unit, branch, queue, selection, 1)
            else:
                locked.store.dequeue_locked(branch.id, locked.place)
                found.append(locked)
    return found


def _first_locked(unit: Unit, branch: Branch, space: Space, queue: Queue, choice: Choice) -> _Found | None:
    locked = [
        _Found(store, holding.place, locked=True)
        for store in stores(unit, queue.space_id)
        if (holding := store.first_locked(branch.id, space, queue.id, choice)) is not None
    ]
    return min(locked, key=lambda found: found.place.order_key, default=None)


def _hold(branch: Branch, space: Space, queue: Queue, found: Sequence[_Found], role: Role, *, body: bool) -> list[Held]:
    """Let the transaction hold messages, and lock the others of their groups."""
    read: dict[int, tuple[Message, int]] = {}
    locks = role is Role.LOCKED
    for store in dict.fromkeys(item.store for item in found):
        its = [item for item in found if item.store is store]
        read |= _read(store, space, queue, [item.place for item in its], body=body)
        new = [item.place for item in its if not item.locked]
        _hold_read(store, branch, new, read, role)
        if queue.definition.grouping:
            others = [other for place in new for other in rest_of_group(store, queue, place)]
            _hold_read(store, branch, others, _read(store, space, queue, others, body=False), Role.LOCKED)
            locks = locks or bool(others)
    return [_held(queue, *read[item.place.message_id], locks=locks) for item in found]


def _read(
    store: Store, space: Space, queue: Queue, places: Sequence[Place], *, body: bool
) -> dict[int, tuple[Message, int]]:
    """Return messages and their pages by their numbers."""
    rows = store.read(space, queue.name, places, body=body)
    return {place.message_id: row for place, row in zip(places, rows, strict=True)}


def _hold_read(
    store: Store, branch: Branch, places: Sequence[Place], read: Mapping[int, tuple[Message, int]], role: Role
) -> None:
    holdings = []
    for place in places:
        message, pages = read[place.message_id]
        holdings.append(Holding(place, pages, message.size, message.expires_us))
        if message.expires_us is not None:
            store.unmake_expiring(place.queue_id, place.message_id, message.expires_us)
    store.hold(branch.id, holdings, role)


def _held(queue: Queue, message: Message, pages: int, *, locks: bool) -> Held:
    # What is kept for the record when it is consumed gives no room back.
    frees = 0 if queue.definition.retention and message.delivery is Delivery.PERSIST else pages
    return Held(message, queue.id, message.delivery, Use(1, frees, message.size), locks)
