"""Capacity limits of queues: at the high limit a command is claimed, once; it is armed again at the low limit.

The transaction that reaches the limit claims the command in its own commit, and its process starts it afterwards. What
was claimed by a process that died is started by whoever finds it.
"""

from __future__ import annotations

from collections.abc import Iterator

from qmcore.acts.stores import stores
from qmcore.definitions import Definitions, OpenSpace
from qmcore.limits import Threshold
from qmcore.limits import Unit as LimitUnit
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import CommandClaim, Use
from qmcore.store import Store


def note_arrival(unit: Unit, opened: OpenSpace, queue: Queue, store: Store, now: int) -> None:
    """Claim the capacity commands whose high limit an arrival in the queue has reached."""
    for claim in _reached(unit, opened, queue, store):
        if opened.me is not None and unit.claim_command(claim, opened.me.id, now):
            unit.afterwards(lambda claim=claim: opened.start(opened, claim))  # type: ignore[misc]


def is_watched(queue: Queue) -> bool:
    """Return whether the queue has a capacity limit with a command."""
    return bool(queue.definition.threshold.command or queue.definition.memory_threshold.command)


def note_departure(unit: Unit, opened: OpenSpace, queue: Queue, store: Store) -> None:
    """Arm the capacity commands again whose low limit a departure from the queue has reached."""
    if not is_watched(queue):
        return
    known = opened.definitions(unit)
    for memory, threshold in _concerned(unit, queue, store):
        if not unit.is_tripped(queue.id, memory=memory):
            continue
        use = _use(unit, known, queue, memory, threshold)
        if threshold.low.is_undercut(
            messages=use.messages, pages=use.pages, size=use.size, capacity=_capacity(known, memory)
        ):
            unit.rearm(queue.id, memory=memory)


def note_memory_lost(unit: Unit, opened: OpenSpace) -> None:
    """Arm again what the loss of all non-persistent messages has brought down to its low limit."""
    memory = unit.memory(opened.space.id)
    if memory is not None:
        for queue in opened.definitions(unit).queues.values():
            note_departure(unit, opened, queue, memory)


def note_growth(unit: Unit, opened: OpenSpace) -> None:
    """Arm again what has come down to its low limit because the queue space has more room than before."""
    for queue in opened.definitions(unit).queues.values():
        if queue.definition.threshold.high.unit is LimitUnit.PERCENT:
            note_departure(unit, opened, queue, unit)


def settle(unit: Unit, opened: OpenSpace, claim: CommandClaim) -> None:
    """Note that a command was started; it is armed again at once where the use went down meanwhile."""
    unit.settle_claim(claim)
    queue = opened.definitions(unit).by_id.get(claim.queue_id)
    if queue is not None:
        for store in stores(unit, opened.space.id):
            note_departure(unit, opened, queue, store)


def start_what_was_left(unit: Unit, opened: OpenSpace) -> None:
    """Start the capacity commands that were claimed by processes that are no longer attached."""
    if opened.me is None:
        return
    # Asked in this order: whoever has claimed has attached before.
    claims = unit.claims(opened.space.id)
    attached = {owner.id for owner in unit.owners.of_space(opened.space.id)} if claims else set()
    for claim, owner_id in claims:
        if owner_id not in attached and unit.take_over(claim, owner_id, opened.me.id):
            unit.afterwards(lambda claim=claim: opened.start(opened, claim))  # type: ignore[misc]


def _reached(unit: Unit, opened: OpenSpace, queue: Queue, store: Store) -> list[CommandClaim]:
    found: list[CommandClaim] = []
    if not is_watched(queue):
        return found
    known = opened.definitions(unit)
    for memory, threshold in _concerned(unit, queue, store):
        use, capacity = _use(unit, known, queue, memory, threshold), _capacity(known, memory)
        high = threshold.high
        if high.is_reached(messages=use.messages, pages=use.pages, size=use.size, capacity=capacity):
            value = high.measure(messages=use.messages, pages=use.pages, size=use.size, capacity=capacity)
            found.append(CommandClaim(queue_id=queue.id, memory=memory, value=value))
    return found


def _concerned(unit: Unit, queue: Queue, store: Store) -> Iterator[tuple[bool, Threshold]]:
    """Yield the limits that a change in a store can reach; a number of messages counts those of both."""
    on_disk = store is unit
    persistent, memory = queue.definition.threshold, queue.definition.memory_threshold
    if persistent.command and (on_disk or persistent.high.unit is LimitUnit.MESSAGES):
        yield False, persistent
    if memory.command and not on_disk:
        yield True, memory


def _use(unit: Unit, known: Definitions, queue: Queue, memory: bool, threshold: Threshold) -> Use:
    in_memory = unit.memory(known.space.id)
    if memory:
        return in_memory.use(queue) if in_memory is not None else Use(0, 0, 0)
    use = unit.use(queue)
    if threshold.high.unit is LimitUnit.MESSAGES and in_memory is not None:
        return Use(use.messages + in_memory.use(queue).messages, use.pages, use.size)
    return use


def _capacity(known: Definitions, memory: bool) -> int:
    definition = known.space.definition
    return definition.memory // known.page_size if memory else definition.capacity
