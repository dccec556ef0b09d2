"""The act of watching queues for long: a wake-up that stays registered while its owner is at work.

A wait registers its wake-up and removes it each time. Whoever serves queues for hours would do that for each message; a
watch keeps its wake-up, and unregisters queues that it need not hear of for now, so that those who bring messages wake
nobody in vain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Self

from qmcore.acts.dequeue import first_ready
from qmcore.acts.stores import stores
from qmcore.acts.waiting import sleep, take_action
from qmcore.definitions import OpenSpace
from qmcore.errors import QueueError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.records import Owner
from qmcore.selection import FIRST_CHOICE
from qmcore.values import dataclass


class Watch:
    """A wake-up of this process for messages that come to the queues that it was registered for."""

    def __init__(self, volume: Volume, opened: OpenSpace) -> None:
        self._volume = volume
        self._opened = opened
        self._wakeup = volume.wakeups.new()
        self._owner: Owner | None = None
        self._queue_ids: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(self, queue_ids: Iterable[int]) -> bool:
        """Be told of messages of these queues, too; return whether that is new, so that one has to look again.

        Raises SystemFailureError where as many wait already as the queue space has actions for.
        """
        owner = self._opened.owner
        if owner is not self._owner:
            # What others took for dead has no wake-ups any more.
            self._owner, self._queue_ids = owner, set()
        new = set(queue_ids) - self._queue_ids
        if not new:
            return False
        is_first = not self._queue_ids

        def record(unit: Unit) -> None:
            if is_first:
                take_action(unit, self._opened, owner)
            for queue_id in new:
                # In case that this is done twice.
                unit.waits.remove(queue_id, self._wakeup.address)
                unit.waits.add(queue_id, self._wakeup.address, owner.id)

        self._volume.write(record, Purpose.TIDY)
        self._queue_ids |= new
        return True

    def unregister(self, queue_ids: Iterable[int]) -> None:
        """Be told of messages of these queues no longer."""
        old = self._queue_ids & set(queue_ids)
        if old and self._opened.owner is self._owner:
            self._forget(old)
        self._queue_ids -= old

    def wait(self, seconds: float) -> bool:
        """Sleep until woken or until the seconds are over; return whether it was woken."""
        return sleep(self._volume, self._wakeup, seconds)

    def close(self) -> None:
        """Remove the wake-up. Rows that cannot be removed go with their owner."""
        with contextlib.suppress(OSError):
            self._wakeup.close()
        with contextlib.suppress(QueueError):
            self.unregister(tuple(self._queue_ids))

    def _forget(self, queue_ids: Collection[int]) -> None:
        def forget(unit: Unit) -> None:
            for queue_id in queue_ids:
                unit.waits.remove(queue_id, self._wakeup.address)

        self._volume.write(forget, Purpose.TIDY)


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at queues has found.

    `found` are the names of those that a dequeue should be tried on, `empty` the numbers of the others, and
    `next_due_us` tells when the next of these has a message, as far as that is known.
    """

    found: tuple[str, ...]
    empty: frozenset[int]
    next_due_us: int | None


def look(unit: Unit, opened: OpenSpace, names: Sequence[str], now: int) -> Look:
    """Look which queues have messages. One that is absent or stopped counts as if it had: the dequeue tells why."""
    takers = opened.definitions(unit).takers
    found: list[str] = []
    empty: dict[int, int | None] = {}
    for name in names:
        queue = takers.get(name)
        if queue is None or not queue.dequeue_enabled or first_ready(unit, queue, FIRST_CHOICE) is not None:
            found.append(name)
            continue
        due = min(
            (at for store in stores(unit, queue.space_id) if (at := store.states.next_due(queue.id))), default=None
        )
        if due is not None and due <= now:
            found.append(name)
        else:
            empty[queue.id] = due
    soonest = min((due for due in empty.values() if due is not None), default=None)
    return Look(tuple(found), frozenset(empty), soonest)
