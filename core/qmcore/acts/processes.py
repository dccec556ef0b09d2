"""The act of attaching to a queue space, and of leaving it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qmcore.acts import scheduling, thresholds
from qmcore.acts.housekeeping import end_what_was_left
from qmcore.definitions import OpenSpace
from qmcore.errors import NoSpaceError, Resource
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.records import Owner
from qmcore.times import Clock

ADMINISTRATORS: Final = frozenset(("qmadmin", "MIB", "recovery"))
"""The roles of those of whom one is let in where as many processes are attached as the queue space allows."""


def attach(volume: Volume, opened: OpenSpace, role: str, clock: Clock) -> None:
    """Attach this process to a queue space; what processes that died have left is ended first.

    Nobody may have been attached for long: the messages of schedules that are due by now are made.
    """
    scheduled: list[str] = []

    def looked(unit: Unit) -> None:
        scheduled[:] = scheduling.due(unit, opened, clock.now())

    end_what_was_left(volume, opened, clock, looked)
    owner = volume.liveness.new_owner(opened.space.id, role, clock.now())

    def record(unit: Unit) -> int:
        space = opened.definitions(unit).space
        owners = [*unit.owners.of_space(space.id), owner]
        count, limit = _counted(owners) - 1, space.definition.processes
        if count >= limit:
            raise NoSpaceError(f"queue space {space.name!r}", Resource.PROCESSES, used=count, limit=limit)
        unit.owners.add(owner)
        opened.note_use(unit, "processes", len(owners))
        return space.definition.memory

    try:
        # Asked where we are recorded: from then on, the memory of the queue space is as it is.
        memory = volume.write(record, Purpose.HOLDING)
    except BaseException:
        volume.liveness.release(owner)
        raise
    opened.me = owner
    if memory:
        try:
            _attach_memory(volume, opened, clock)
        except BaseException:
            opened.me = None
            detach(volume, opened, owner, clock)
            raise
    scheduling.make_due(volume, opened, scheduled, clock)


def _counted(owners: Sequence[Owner]) -> int:
    """Return how many processes the limit counts: all but one of the administrators."""
    return len(owners) - any(owner.role in ADMINISTRATORS for owner in owners)


def _attach_memory(volume: Volume, opened: OpenSpace, clock: Clock) -> None:
    """Open the memory of the queue space; whoever removes one that nobody uses sees by now that we do."""

    def note(unit: Unit) -> None:
        thresholds.note_memory_lost(unit, opened)

    if volume.memories.attach(opened.space, volume.read(lambda unit: unit.queues.of_space(opened.space.id))):
        volume.write(note, Purpose.TIDY)
    end_what_was_left(volume, opened, clock)


def detach(volume: Volume, opened: OpenSpace, owner: Owner, clock: Clock) -> None:
    """Leave the queue space; transactions that are open are rolled back."""
    try:
        volume.write(lambda unit: unit.owners.remove(owner.id), Purpose.TIDY)
    finally:
        # Where the store refuses, as on a full disk, others find out by the lock that we have left.
        volume.liveness.release(owner)
    try:
        end_what_was_left(volume, opened, clock)
    finally:
        volume.memories.detach(opened.space)
