"""Capacity commands, in SQL: whoever reaches a high limit claims the command, and at the low limit it is armed again.

There is a row for each limit that was reached.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from qmcore.limits import CapacityLimit, Unit
from qmcore.records import Use
from qmcore.transitions import Guard, Level, Reached, Route, Source
from qmstorage.schema import expiring, message, queue, threshold
from qmstorage.sql import bindparam, delete, func, null, select, update
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import UnitPart

if TYPE_CHECKING:
    from qmstorage.unit import MemoryStore, SqlUnit

_ITS = (given(threshold.c.queue_id, "of_queue"), given(threshold.c.memory, "of_memory"))
_CLAIM = insert_into(threshold)
_CLAIMS = (
    select(threshold.c.queue_id, threshold.c.memory, threshold.c.value, threshold.c.claimed_by)
    .join_from(threshold, queue, threshold.c.queue_id == queue.c.id)
    .where(given(queue.c.space_id, "of_space"), threshold.c.claimed_by.is_not(None))
)
_TAKE_OVER = (
    update(threshold)
    .where(*_ITS, given(threshold.c.claimed_by, "of_owner"))
    .values(claimed_by=bindparam("new_owner"))
    .returning(threshold.c.queue_id)
)
_IS_CLAIMED = select(threshold.c.queue_id).where(*_ITS, threshold.c.claimed_by.is_not(None))
_SETTLE = update(threshold).where(*_ITS).values(claimed_by=null())
REARM = delete(threshold).where(*_ITS, threshold.c.claimed_by.is_(None)).returning(threshold.c.queue_id)
_IS_TRIPPED = select(threshold.c.queue_id).where(*_ITS)
_EXPIRED = (
    select(func.count(), func.coalesce(func.sum(message.c.pages), 0), func.coalesce(func.sum(message.c.size), 0))
    .join_from(expiring, message, message.c.id == expiring.c.message_id)
    .where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= bindparam("now"))
)


class CapacityCommands(UnitPart):
    """High limits that were reached, and which owner is to start their commands."""

    def claim_reached(
        self, guard: Guard, route: Route, now_us: int, *, on_disk: bool, in_memory: bool
    ) -> Sequence[Reached]:
        """Claim the commands of limits that an arrival has reached, in one of the stores or in both, and return them.

        What has expired by now does not count. Nothing is claimed by whoever is not attached.
        """
        found = []
        for level in route.levels:
            is_concerned = in_memory if level.memory else on_disk or Unit(level.unit) is Unit.MESSAGES
            value = self._value(guard, route, level, now_us) if is_concerned and guard.owner_id is not None else None
            if value is None or guard.owner_id is None:
                continue
            reached = Reached(route.queue_id, level.memory, value)
            if self.claim(reached, guard.owner_id, now_us):
                found.append(reached)
        return found

    def rearm_reached(self, guard: Guard, source: Source, *, on_disk: bool, in_memory: bool) -> None:
        """Arm the commands again whose low limit a departure has reached, from one of the stores or from both."""
        for level in source.levels:
            is_concerned = in_memory if level.memory else on_disk or Unit(level.unit) is Unit.MESSAGES
            if is_concerned and self.is_tripped(source.queue_id, memory=level.memory):
                stores = _stores(self.unit, guard, level)
                messages, pages, size = _sum(store.counters.use_of(guard.space_id, source.queue_id) for store in stores)
                low = CapacityLimit(level.at, Unit(level.unit))
                if low.is_undercut(messages=messages, pages=pages, size=size, capacity=level.capacity):
                    self.rearm(source.queue_id, memory=level.memory)

    def claim(self, claim: Reached, owner_id: int, now_us: int) -> bool:
        """Claim that a capacity command is started by this owner; False where the limit was reached before."""
        if self.is_tripped(claim.queue_id, memory=claim.memory):
            return False
        self.run(
            _CLAIM,
            queue_id=claim.queue_id,
            memory=claim.memory,
            value=claim.value,
            claimed_by=owner_id,
            claimed_at=now_us,
        )
        return True

    def of_space(self, space_id: int) -> list[tuple[Reached, int]]:
        """Return the capacity commands that were claimed and not started yet, each with its owner."""
        return [(Reached(row[0], bool(row[1]), row[2]), row[3]) for row in self.all(_CLAIMS, of_space=space_id)]

    def take_over(self, claim: Reached, of_owner: int, owner_id: int) -> bool:
        """Claim what another owner had claimed; False where a third one did."""
        values = {"of_queue": claim.queue_id, "of_memory": claim.memory, "of_owner": of_owner}
        return self.one(_TAKE_OVER, new_owner=owner_id, **values) is not None

    def is_claimed(self, claim: Reached) -> bool:
        """Return whether the command is still to be started: its queue may be gone, or its claim undone."""
        return self.one(_IS_CLAIMED, of_queue=claim.queue_id, of_memory=claim.memory) is not None

    def settle(self, claim: Reached) -> None:
        """Note that the command was started."""
        self.run(_SETTLE, of_queue=claim.queue_id, of_memory=claim.memory)

    def rearm(self, queue_id: int, *, memory: bool) -> bool:
        """Rearm a high limit; False where it was not reached, or its command is not started yet."""
        return self.one(REARM, of_queue=queue_id, of_memory=memory) is not None

    def is_tripped(self, queue_id: int, *, memory: bool) -> bool:
        """Return whether the high limit was reached and the use has not been down at the low limit since."""
        return self.one(_IS_TRIPPED, of_queue=queue_id, of_memory=memory) is not None

    def _value(self, guard: Guard, route: Route, level: Level, now: int) -> int | None:
        """Return the use of a queue, in the unit of a limit that it reaches now; None where it does not.

        What has expired is counted last: there may be much of it.
        """
        limit, its = CapacityLimit(level.at, Unit(level.unit)), list(_stores(self.unit, guard, level))
        used = _sum(store.counters.use_of(guard.space_id, route.queue_id) for store in its)
        if _measure(limit, used, level) < level.at or self.is_tripped(route.queue_id, memory=level.memory):
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
