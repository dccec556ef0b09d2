"""The act of sweeping: messages go of which no consumer has a place any more, and are counted out of their queue.

On a store where consumers work beside each other, each only notes that it is done with a message, so that none waits
for another. Until somebody sweeps, such a message takes room, and is in no list: whoever asks for counts, or would be
refused for want of room, sweeps first.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from qmcore.definitions import OpenSpace
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.records import Swept

STEP: Final = 1000
"""Places that are looked at in one database transaction."""

MOST_STEPS: Final = 20
"""Steps of whoever does something else, and looks after the queue space by the way."""


def sweep(volume: Volume, opened: OpenSpace, *, patiently: bool = True, most: int | None = None) -> int:
    """Sweep a queue space, at most so many steps; return how many messages have gone.

    Whoever does so `patiently` waits a little for others who are at it, and counts what they have done. It is done in
    database transactions of its own, also for an application that has one open: in that it would keep others from
    sweeping, and what has gone from being counted out, until that is committed.
    """
    if not (volume.sweeps and has_queues_for_several(opened)):
        return 0
    gone, beyond, steps = 0, 0, 0
    while most is None or steps < most:
        step = partial(_step, opened=opened, beyond=beyond, patiently=patiently and not steps)
        swept = volume.write(step, Purpose.TIDY)
        gone, beyond, steps = gone + swept.gone, swept.last, steps + 1
        if swept.looked < STEP:
            break
    return gone


def sweep_alone(unit: Unit, space_id: int) -> None:
    """Sweep a queue space in a unit that is alone, before it is told how much that holds."""
    beyond = 0
    while (swept := unit.shares.sweep(space_id, beyond, STEP, patiently=False)).looked == STEP:
        beyond = swept.last


def has_queues_for_several(opened: OpenSpace) -> bool:
    """Return whether a queue space has queues for several consumers, as far as this process knows."""
    known = opened.known
    return known is not None and any(queue.definition.multiple_consumers for queue in known.queues.values())


def _step(unit: Unit, opened: OpenSpace, beyond: int, *, patiently: bool) -> Swept:
    return unit.shares.sweep(opened.space.id, beyond, STEP, patiently=patiently)
