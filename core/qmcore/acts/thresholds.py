"""Capacity limits of queues: at the high limit a command is claimed, once; it is armed again at the low limit.

The transaction that reaches the limit claims the command in its own commit, and its process starts it afterwards. What
was claimed by a process that died is started by whoever finds it.
"""

from __future__ import annotations

from qmcore.acts.routes import route_of, source_of
from qmcore.acts.sending import start_afterwards
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.limits import Unit as LimitUnit
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.store import Store
from qmcore.transitions import Reached


def note_arrival(unit: Unit, opened: OpenSpace, queue: Queue, store: Store, now: int) -> None:
    """Claim the capacity commands whose high limit an arrival in the queue has reached."""
    known, on_disk = opened.definitions(unit), store is unit
    its = opened.guard(known), route_of(known, queue), now
    start_afterwards(unit, opened, unit.capacity_commands.claim_reached(*its, on_disk=on_disk, in_memory=not on_disk))


def note_departure(unit: Unit, opened: OpenSpace, queue: Queue, store: Store) -> None:
    """Arm the capacity commands again whose low limit a departure from the queue has reached."""
    known, on_disk = opened.definitions(unit), store is unit
    its = opened.guard(known), source_of(known, queue)
    unit.capacity_commands.rearm_reached(*its, on_disk=on_disk, in_memory=not on_disk)


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


def settle(unit: Unit, opened: OpenSpace, claim: Reached) -> None:
    """Note that a command was started; it is armed again at once where the use went down meanwhile."""
    unit.capacity_commands.settle(claim)
    queue = opened.definitions(unit).by_id.get(claim.queue_id)
    if queue is not None:
        for store in stores(unit, opened.space.id):
            note_departure(unit, opened, queue, store)


def start_what_was_left(unit: Unit, opened: OpenSpace) -> None:
    """Start the capacity commands that were claimed by processes that are no longer attached."""
    if opened.me is None:
        return
    # Asked in this order: whoever has claimed has attached before.
    claims = unit.capacity_commands.of_space(opened.space.id)
    attached = {owner.id for owner in unit.owners.of_space(opened.space.id)} if claims else set()
    for claim, owner_id in claims:
        if owner_id not in attached and unit.capacity_commands.take_over(claim, owner_id, opened.me.id):
            start_afterwards(unit, opened, [claim])
