"""Capacity commands: whoever reaches a high limit claims the command, and at the low limit it is armed again."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from sqlalchemy import bindparam, func, select

from qmcore.limits import CapacityLimit, Unit
from qmcore.records import CommandClaim, Use
from qmcore.transitions import Guard, Level, Reached, Route, Source
from qmstorage.schema import expiring, message
from qmstorage.statements import given
from qmstorage.unit import MemoryStore, SqlUnit

_EXPIRED = (
    select(func.count(), func.coalesce(func.sum(message.c.pages), 0), func.coalesce(func.sum(message.c.size), 0))
    .join_from(expiring, message, message.c.id == expiring.c.message_id)
    .where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= bindparam("now"))
)


def claim_reached(
    unit: SqlUnit, guard: Guard, route: Route, now: int, *, on_disk: bool, in_memory: bool
) -> list[Reached]:
    """Claim the commands of limits that an arrival has reached, in one of the stores or in both, and return them.

    What has expired by now does not count. Nothing is claimed by whoever is not attached.
    """
    found = []
    for level in route.levels:
        is_concerned = in_memory if level.memory else on_disk or Unit(level.unit) is Unit.MESSAGES
        value = _value(unit, guard, route, level, now) if is_concerned and guard.owner_id is not None else None
        if value is None or guard.owner_id is None:
            continue
        claim = CommandClaim(queue_id=route.queue_id, memory=level.memory, value=value)
        if unit.claim_command(claim, guard.owner_id, now):
            found.append(Reached(route.queue_id, level.memory, value))
    return found


def rearm(unit: SqlUnit, guard: Guard, source: Source, *, on_disk: bool, in_memory: bool) -> None:
    """Arm the commands again whose low limit a departure has reached, from one of the stores or from both."""
    for level in source.levels:
        is_concerned = in_memory if level.memory else on_disk or Unit(level.unit) is Unit.MESSAGES
        if is_concerned and unit.is_tripped(source.queue_id, memory=level.memory):
            messages, pages, size = _sum(
                store.use_of(guard.space_id, source.queue_id) for store in _stores(unit, guard, level)
            )
            low = CapacityLimit(level.at, Unit(level.unit))
            if low.is_undercut(messages=messages, pages=pages, size=size, capacity=level.capacity):
                unit.rearm(source.queue_id, memory=level.memory)


def _value(unit: SqlUnit, guard: Guard, route: Route, level: Level, now: int) -> int | None:
    """Return the use of a queue, in the unit of a limit that it reaches now; None where it does not.

    What has expired is counted last: there may be much of it.
    """
    limit, its = CapacityLimit(level.at, Unit(level.unit)), list(_stores(unit, guard, level))
    used = _sum(store.use_of(guard.space_id, route.queue_id) for store in its)
    if _measure(limit, used, level) < level.at or unit.is_tripped(route.queue_id, memory=level.memory):
        return None
    expired = _sum(Use(*store.all(_EXPIRED, of_queue=route.queue_id, now=now)[0]) for store in its)
    value = _measure(limit, used.plus(Use(-expired.messages, -expired.pages, -expired.size)), level)
    return value if value >= level.at else None


def _measure(limit: CapacityLimit, use: Use, level: Level) -> int:
    return limit.measure(messages=use.messages, pages=use.pages, size=use.size, capacity=level.capacity)


def _sum(uses: Iterable[Use]) -> Use:
    return functools.reduce(Use.plus, uses, Use(0, 0, 0))


def _stores(unit: SqlUnit, guard: Guard, level: Level) -> Iterator[SqlUnit | MemoryStore]:
    """Yield the stores of which a limit counts the messages: a number of messages counts those of both."""
    memory = unit.memory(guard.space_id) if guard.memory_pages else None
    if not level.memory:
        yield unit
    if memory is not None and (level.memory or Unit(level.unit) is Unit.MESSAGES):
        yield memory
