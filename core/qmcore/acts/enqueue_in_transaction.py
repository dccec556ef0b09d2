"""The act of enqueuing in a transaction: messages are accepted now, and come to stand in their queues at the commit.

A transaction holds no database transaction. What it enqueues is kept by its process, or spilled where it gets too
large: then the store has it as the transaction's own, and nobody sees it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from qmcore.acts.enqueue import Accepted, Outgoing, Runs, accepted, add_to_runs, arrival_of
from qmcore.acts.expiry import make_room, with_room
from qmcore.acts.room import RecentLevel
from qmcore.acts.sending import send
from qmcore.acts.settling_recipients import note_settled
from qmcore.acts.transaction_part import (
    NO_USE,
    RESERVED_AT_A_TIME,
    Branch,
    adds,
    bytes_kept,
    count_brought,
    count_pending,
    holder_of,
    left_numbers,
)
from qmcore.definitions import CHANGES, Definitions, OpenSpace
from qmcore.errors import NoSpaceError
from qmcore.port import Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.records import Role, Use
from qmcore.transitions import Admit, Admitted, Arrival, Command, Enqueue, Guard, Route

_sequence_of: Final = attrgetter("arrival.sequence")

SPILL_BYTES = 8 * 1024 * 1024
"""What a transaction enqueues is kept by its process up to this many bytes, and above them in the store."""


@dataclasses.dataclass(slots=True)
class _Asked:
    """What is to be enqueued, and how the queues accept it by the definitions that were known last."""

    branch: Branch
    outgoing: Sequence[Outgoing]
    moment: float
    """When that is, by the monotonic clock."""
    numbers: int
    """How many sequence numbers the transaction lacks."""
    items: list[Accepted] = dataclasses.field(default_factory=list)


def enqueue(volume: Volume, branch: Branch, outgoing: Sequence[Outgoing]) -> list[str]:
    """Let the transaction enqueue messages when it commits, and return the identifiers that they will have."""
    kept = branch.kept_bytes + sum(map(bytes_kept, outgoing))
    if len(branch.reserved) < len(outgoing):
        branch.reserved = left_numbers(branch, len(outgoing))
    lacks = len(branch.reserved) < len(outgoing)
    asked = _Asked(branch, outgoing, volume.clock.monotonic(), max(len(outgoing), RESERVED_AT_A_TIME) if lacks else 0)
    try:
        _ask(volume, asked)
    except NoSpaceError:
        if make_room(volume, branch.opened, volume.clock.now()) == 0:
            raise
        _ask(volume, asked)
    items = asked.items
    if kept > SPILL_BYTES:
        now, all_of_it = volume.clock.now(), [*branch.pending, *items]
        with_room(volume, [branch.opened], now, lambda: _spill(volume, branch, all_of_it, items))
    else:
        branch.pending += items
        branch.kept_bytes = kept
        count_brought(branch, items)
    return list(map(branch.opened.space.naming, map(_sequence_of, items)))


def bring_to_memory(volume: Volume, branch: Branch, now: int) -> None:
    """Put non-persistent messages into memory before the commit, so that they can follow it whatever happens."""
    bound = [item for item in branch.pending if item.delivery is Delivery.NONPERSIST]
    with_room(volume, [branch.opened], now, lambda: _spill(volume, branch, bound))


def leave_to_store(volume: Volume, branch: Branch) -> None:
    """Leave all to the store that the process keeps of what the transaction enqueues.

    Raises NoSpaceError where there is no room for it any more; what is persistent stays with the process then.
    """
    now = volume.clock.now()
    if Delivery.NONPERSIST in branch.brings:
        bring_to_memory(volume, branch, now)
    if branch.pending:
        with_room(
            volume,
            [branch.opened],
            now,
            lambda: _send_to_store(volume, branch, branch.pending, _all_spilled, branch),
        )


def spills_of_all(guard: Guard, known: Definitions, branch: Branch) -> list[Command]:
    """Return what leaves all to the store that the process keeps, if there is room beside what the transaction frees.

    It is all persistent: what is not was brought to memory before.
    """
    if not branch.pending:
        return []
    holds = branch.holds.get(Delivery.PERSIST, NO_USE)
    frees = Use(-holds.messages, -holds.pages, -holds.size), NO_USE
    return [admission(guard, frees, branch.pending, 0), *spills(guard, known, branch, branch.pending)]


def by_queue(known: Definitions, items: Sequence[Accepted]) -> list[tuple[Route, list[Arrival]]]:
    """Return how messages come that were accepted before, each with its number: for each queue, in one order.

    A queue has several routes where its consumers want different ones of the messages.
    """
    if len(items) == 1:
        (item,) = items
        route, arrival = (item.route, item.arrival) if item.known is known else arrival_of(known, item)
        return [(route, [arrival])]
    runs: dict[int, Runs] = {}
    for item in items:
        route, arrival = arrival_of(known, item)
        its = runs.get(route.queue_id)
        if its is None:
            runs[route.queue_id] = [(route, [arrival])]
        elif its[-1][0] is route:
            its[-1][1].append(arrival)
        else:
            add_to_runs(its, route, arrival)
    # In one order everywhere: their capacity limits are rows that others may want, too.
    return [run for queue_id in sorted(runs) for run in runs[queue_id]]


# ---- acceptance ------------------------------------------------------------------------------------------------------


def _ask(volume: Volume, asked: _Asked) -> None:
    """Have a store say that there is room, and give what is needed of it; where nothing is, nobody is asked."""
    branch, behind = asked.branch, CHANGES.last
    # Where no number is needed either, nothing changes.
    purpose = Purpose.HOLDING if asked.numbers else None
    results = send(volume, branch.opened, _admissions, asked, purpose=purpose)
    if results:
        (admitted,) = results
        assert isinstance(admitted, Admitted)  # noqa: S101 - that is what was asked
        branch.reserved = admitted.sequences or branch.reserved
        branch.level = RecentLevel(admitted.level, asked.moment, behind)
        if asked.numbers or admitted.places:
            asked.items = _completed(asked.items, branch.reserved, admitted.places)
    branch.reserved = branch.reserved[len(asked.items) :]


def _admissions(opened: OpenSpace, known: Definitions, asked: _Asked) -> list[Command]:
    """Return what the store is asked: nothing where it is known that there is room, and no number is needed."""
    branch, guard = asked.branch, opened.guard(known)
    asked.items = items = accepted(known, asked.outgoing, () if asked.numbers else branch.reserved)
    level = branch.level
    if level is not None and not (asked.numbers or guard.memory_pages):
        its, pages, has_before = adds(branch, Delivery.PERSIST), 0, False
        for item in items:
            pages += item.arrival.pages
            has_before = has_before or bool(item.arrival.terms.before)
        if not has_before and level.has_room(its.messages + len(items), its.pages + pages, guard, asked.moment):
            return []
    return [admission(guard, _has(guard, branch), items, asked.numbers)]


def _has(guard: Guard, branch: Branch) -> tuple[Use, Use]:
    in_memory = adds(branch, Delivery.NONPERSIST) if guard.memory_pages else NO_USE
    return adds(branch, Delivery.PERSIST), in_memory


def admission(guard: Guard, has: tuple[Use, Use], items: Sequence[Accepted], numbers: int) -> Admit:
    """Return the question whether there is room for messages, beside what the transaction `has`: on disk, in memory."""
    more, more_in_memory = [0, 0, 0], [0, 0, 0]
    before = []
    for _, _, route, (_, size, pages, terms, _) in items:
        its = more_in_memory if terms.memory else more
        its[0] += 1
        its[1] += pages
        its[2] += size
        if terms.before:
            before.append((route.queue_id, terms.before))
    return Admit(guard, has, (Use(*more), Use(*more_in_memory)), numbers, before)


def _completed(items: Sequence[Accepted], sequences: Sequence[int], places: Sequence[bytes]) -> list[Accepted]:
    """Return messages with their numbers, and with the places of those that others stand before."""
    found, left = [], iter(places)
    for (outgoing, known, route, arrival), sequence in zip(items, sequences, strict=False):
        body, size, pages, terms, _ = arrival
        if terms.before:
            terms = terms._replace(place=next(left), before=())
        found.append(Accepted(outgoing, known, route, Arrival(body, size, pages, terms, sequence)))
    return found


# ---- spilling --------------------------------------------------------------------------------------------------------


def _spill(volume: Volume, branch: Branch, items: Sequence[Accepted], new: Sequence[Accepted] = ()) -> None:
    """Leave messages to the store, and keep them no longer; those that are `new` need room."""
    _send_to_store(volume, branch, items, _spilled, (branch, items, new))


def _send_to_store(
    volume: Volume,
    branch: Branch,
    items: Sequence[Accepted],
    build: Callable[[OpenSpace, Definitions, Any], list[Command]],
    asked: Any,
) -> None:
    """Leave messages to the store by commands that begin with an admission, and keep them no longer."""
    with branch.at_risk():
        branch.may_spill = True
        _, *results = send(volume, branch.opened, build, asked, purpose=Purpose.HOLDING)
    branch.recorded = True
    # It was of the time before.
    branch.level = None
    for result in results:
        branch.opened.know_transactions(result.transactions)
    gone = {item.arrival.sequence for item in items}
    branch.spilled += sum(item.delivery is Delivery.PERSIST for item in items)
    branch.pending = [item for item in branch.pending if item.arrival.sequence not in gone]
    count_pending(branch)


def _spilled(
    opened: OpenSpace, known: Definitions, asked: tuple[Branch, Sequence[Accepted], Sequence[Accepted]]
) -> list[Command]:
    branch, items, new = asked
    guard = opened.guard(known)
    return [admission(guard, _has(guard, branch), new, 0), *spills(guard, known, branch, items)]


def _all_spilled(opened: OpenSpace, known: Definitions, branch: Branch) -> list[Command]:
    return spills_of_all(opened.guard(known), known, branch)


def spills(guard: Guard, known: Definitions, branch: Branch, items: Sequence[Accepted]) -> list[Command]:
    """Return what leaves messages to the store until the commit, and note for which queues it has some then."""
    holder = holder_of(branch, known.space, Role.ENQUEUED, 0)
    commands: list[Command] = []
    for route, arrivals in by_queue(known, items):
        if route.consumers:
            note_settled(known, branch, route.queue_id)
        branch.spilled_to.add(route.queue_id)
        commands.append(Enqueue(guard, route, arrivals, holder))
        # The first one makes it known.
        holder = holder._replace(recorded=True)
    return commands
