"""Acts on schedules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from qmcore.definitions import OpenSpace
from qmcore.errors import BadResourceError, InvalidArgumentError
from qmcore.message import PLAIN_CONTROLS
from qmcore.port import Unit
from qmcore.schedule import Schedule


def create(unit: Unit, opened: OpenSpace, wanted: Schedule, now: int) -> Schedule:
    """Create a schedule; an interval counts from now.

    Raises BadQueueError where its queue does not exist, InvalidArgumentError where its name is taken, or its rule is
    none or never comes.
    """
    known = opened.definitions(unit)
    known.queue(wanted.queue)
    if unit.schedules.find(known.space.id, wanted.name) is not None:
        raise InvalidArgumentError(
            f"schedule {wanted.name!r} exists already in queue space {known.space.name!r}",
            hint="Change it, or choose another name.",
            schedule=wanted.name,
        )
    new = _due_next(opened, dataclasses.replace(wanted, created_us=now, counted_from_us=now), now)
    unit.schedules.add(known.space.id, new)
    return new


def change(
    unit: Unit, opened: OpenSpace, name: str, now: int, fields: Mapping[str, Any], kind: str | None = None
) -> Schedule:
    """Give a schedule other values of some fields; with another rule it goes on with the next moment of that.

    An interval that is given, too, counts from now. `kind` is the type of a new body whose control information stays.
    """
    known = opened.definitions(unit)
    old = find(unit, opened, name)
    if "queue" in fields:
        known.queue(fields["queue"])
    changed = dataclasses.replace(old, **fields)
    # A type of the application's own stays.
    if kind is not None and old.control.type in PLAIN_CONTROLS:
        changed = dataclasses.replace(changed, control=dataclasses.replace(old.control, type=kind))
    if "rule" in fields:
        changed = dataclasses.replace(changed, counted_from_us=now)
    if (old.rule, old.timezone, old.counted_from_us) != (changed.rule, changed.timezone, changed.counted_from_us):
        changed = _due_next(opened, changed, now)
    unit.schedules.change(known.space.id, changed)
    return changed


def pause(unit: Unit, opened: OpenSpace, name: str) -> Schedule:
    """Let a schedule make no message until it is resumed."""
    paused = dataclasses.replace(find(unit, opened, name), paused=True, next_us=None)
    unit.schedules.change(opened.space.id, paused)
    return paused


def resume(unit: Unit, opened: OpenSpace, name: str, now: int) -> Schedule:
    """Let a schedule go on with its next moment, counted from now; what was due meanwhile is not made up for."""
    resumed = _due_next(opened, dataclasses.replace(find(unit, opened, name), paused=False), now)
    unit.schedules.change(opened.space.id, resumed)
    return resumed


def delete(unit: Unit, opened: OpenSpace, name: str) -> None:
    """Delete a schedule; the messages that it has made stay."""
    find(unit, opened, name)
    unit.schedules.remove(opened.space.id, name)


def find(unit: Unit, opened: OpenSpace, name: str) -> Schedule:
    """Return the schedule of that name, or raise BadResourceError."""
    space = opened.definitions(unit).space
    found = unit.schedules.find(space.id, name)
    if found is None:
        raise BadResourceError(
            f"there is no schedule {name!r} in queue space {space.name!r}",
            hint="List the schedules with qschedule, or create it with qschedulecreate.",
            schedule=name,
        )
    return found


def listed(unit: Unit, opened: OpenSpace) -> list[Schedule]:
    """Return the schedules by name."""
    return unit.schedules.of_space(opened.definitions(unit).space.id)


def of_queue(unit: Unit, opened: OpenSpace, queue: str) -> list[str]:
    """Return the names of the schedules whose messages go to a queue, be it one that does not exist."""
    space_id = opened.definitions(unit).space.id
    return [name for name, target in unit.schedules.queues(space_id) if target == queue]


def _due_next(opened: OpenSpace, schedule: Schedule, now: int) -> Schedule:
    """Return a schedule that goes on behind now, and behind the last moment for which it has made a message."""
    if opened.following is None:
        raise InvalidArgumentError(f"whoever has opened queue space {opened.space.name!r} reads no rules of schedules")
    # The clock may have been set back.
    next_us = opened.following(schedule, max(now, schedule.last_us or now))
    if next_us is None:
        raise InvalidArgumentError(
            f"the rule {schedule.rule!r} of schedule {schedule.name!r} never comes",
            hint="Choose a day that there is in one of its months.",
            schedule=schedule.name,
        )
    return dataclasses.replace(schedule, next_us=None if schedule.paused else next_us)
