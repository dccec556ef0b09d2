"""The act of waiting for a message. It does not poll: it sleeps until whoever brings a message wakes it.

A waiter first records its wake-up and then looks once more, so that a message which comes in between wakes it. Waiters
that would take any message of a queue wait in turn: a message wakes one of them, and one that was woken and leaves
while there are messages passes that on. A check each second covers a wake-up that was lost; where many wait, they share
the checks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from qmcore.definitions import OpenSpace
from qmcore.errors import QueueError, Resource, SystemFailureError, may_pass
from qmcore.port import Unit, Volume, Wakeup
from qmcore.probe import Point
from qmcore.purpose import Purpose
from qmcore.records import Nothing, Owner
from qmcore.times import MICROS, Clock

logger = logging.getLogger("qmadmin.engine")

T = TypeVar("T")

CHECK_SECONDS = 1.0
"""How long a waiter sleeps at most before it looks by itself, where few wait."""

_APART_SECONDS = 0.15
"""How far apart those looks are, about, where many wait: of seven and more waiters each sleeps the longer."""

_LONGEST_SECONDS = 15.0
"""How long each sleeps at most, however many they are: what it waits for may be nothing to the others."""


def wait_for(
    attempt: Callable[[], T | Nothing],
    volume: Volume,
    opened: OpenSpace,
    clock: Clock,
    seconds: float,
    stop: Callable[[], bool] | None = None,
    do_housekeeping: Callable[[], None] = lambda: None,
    *,
    in_turn: bool = False,
) -> T | Nothing:
    """Try `attempt` until it brings something, the seconds are over or `stop` says so; 0 seconds tries once.

    A store that is lost on the way, or locked by others, is waited for too, as long as there is time; only the first
    try needs it. `do_housekeeping` is called after a second in which nothing was changed, or after several where many
    wait. `in_turn` tells that the attempt takes any message of one queue, so that one of all who wait so is enough for
    one message.
    """
    found = attempt()
    wait = _Wait(attempt, volume, opened, clock, clock.monotonic() + seconds, stop, do_housekeeping, in_turn)
    failure: QueueError | None = None
    while isinstance(found, Nothing) and not wait.is_over():
        try:
            found = wait.try_at_each_wakeup(found)
            failure = None
        except QueueError as error:
            if not may_pass(error):
                raise
            if failure is None and not error.unreachable:
                # Of a server that is away the store tells. Who is in the way should not be so unseen.
                logger.warning("a wait goes on: %s", error)
            failure = error
            pause(volume, min(wait.left(), CHECK_SECONDS))
    if failure is not None:
        raise failure
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Wait(Generic[T]):
    """What is tried, where, until when, and what may end it before."""

    attempt: Callable[[], T | Nothing]
    volume: Volume
    opened: OpenSpace
    clock: Clock
    end: float
    stop: Callable[[], bool] | None
    do_housekeeping: Callable[[], None]
    in_turn: bool

    def left(self) -> float:
        """Return the seconds that are left; less than nothing where they are over."""
        return self.end - self.clock.monotonic()

    def is_over(self) -> bool:
        """Tell whether the time is over, or whoever waits wants no more."""
        return self.left() <= 0 or (self.stop is not None and self.stop())

    def try_at_each_wakeup(self, found: Nothing) -> T | Nothing:
        """Wait on one wake-up; it ends early where others have taken us for dead, and no longer know of it."""
        volume, owner = self.volume, self.opened.owner
        with listening(volume, self.opened, found.queue_ids, in_turn=self.in_turn) as wakeup:
            hears_from = self.clock.monotonic() + volume.deaf_seconds
            seconds = CHECK_SECONDS
            while True:
                # Before the attempt: what comes behind it is a change.
                before = volume.changes()
                result = self.attempt()
                if not isinstance(result, Nothing) or self.is_over() or self.opened.owner is not owner:
                    return result
                deaf = hears_from - self.clock.monotonic()
                seconds = self._sleep(wakeup, result, before, deaf if deaf > 0 else seconds)

    def _sleep(self, wakeup: Wakeup, found: Nothing, before: object, seconds: float) -> float:
        """Sleep until there may be something: it was woken, a message is due, or something has changed.

        The latter is looked for after the seconds, and then now and then. Returns after how many to look the next time.
        """
        longest, volume = 0.0, self.volume
        while not self.is_over() and (due := seconds_until(found.next_due_us, self.clock)) > 0:
            if sleep(volume, wakeup, min(self.left(), seconds, due)) or before is None:
                break
            # As long as nothing is changed, as many wait.
            longest = longest or self._longest_pause()
            # Those who were woken by the same must not look at the same time, and all be asleep in between.
            seconds = max(random.uniform(0.75, 1.0) * longest, CHECK_SECONDS)  # noqa: S311 - it keeps no secret
            # Where nothing at all was changed, there is nothing to try. What was changed may be nothing to those who
            # wait: hundreds do, and must not all try each second where others are busy.
            if volume.changes() != before:
                return seconds
            # What comes back by this wakes us.
            self.do_housekeeping()
        return CHECK_SECONDS

    def _longest_pause(self) -> float:
        """Return how long to sleep at most while nothing is changed."""
        waits = self.volume.read(lambda unit: unit.waits(self.opened.space.id))
        return min(max(sum(waits.values()) * _APART_SECONDS, CHECK_SECONDS), _LONGEST_SECONDS)


def pause(volume: Volume, seconds: float) -> None:
    """Sleep, unless the process is woken before."""
    wakeup = volume.wakeup()
    try:
        sleep(volume, wakeup, seconds)
    finally:
        wakeup.close()


def sleep(volume: Volume, wakeup: Wakeup, seconds: float) -> bool:
    """Sleep until woken or until the seconds are over; return whether it was woken."""
    probe = volume.probe
    if probe.actions:
        probe.reach(Point.BEFORE_WAIT, seconds)
    is_woken = wakeup.wait(seconds)
    if probe.actions:
        probe.reach(Point.AFTER_WAIT, is_woken)
    return is_woken


def seconds_until(moment_us: int | None, clock: Clock) -> float:
    """Return the seconds until a time, which may have passed; None is far away."""
    return float("inf") if moment_us is None else max((moment_us - clock.now()) / MICROS, 0.0)


@contextlib.contextmanager
def listening(
    volume: Volume, opened: OpenSpace, queue_ids: Sequence[int], *, in_turn: bool = False
) -> Iterator[Wakeup]:
    """Register a wake-up for messages that come to one of the queues, or in turn with others who wait so.

    Raises SystemFailureError where as many wait already as the queue space has actions for.
    """
    owner = opened.owner
    wakeup = volume.wakeup(in_turn=in_turn)
    rows = [(queue_id, wakeup.address) for queue_id in queue_ids]
    left = list(opened.left_waits)
    gone = set(left)

    def record(unit: Unit) -> None:
        for queue_id, address in gone:
            unit.remove_waiter(queue_id, address)
        take_action(unit, opened, owner)
        for queue_id, address in rows:
            unit.add_waiter(queue_id, address, owner.id)
        # In case that this is done twice.
        gone.update(rows)

    def forget(unit: Unit) -> None:
        for queue_id, address in rows:
            unit.remove_waiter(queue_id, address)
            if in_turn:
                # It may have been woken for what is left.
                unit.pass_on(opened.space.id, queue_id)

    try:
        volume.write(record, Purpose.TIDY)
        opened.left_waits.difference_update(left)
        yield wakeup
    finally:
        # A message may have been taken meanwhile, and must reach the caller whatever becomes of the wake-up: rows that
        # stay behind go with the next wait, or with their owner.
        with contextlib.suppress(OSError):
            wakeup.close()
        try:
            volume.write(forget, Purpose.TIDY)
        except QueueError:
            opened.left_waits.update(rows)


def take_action(unit: Unit, opened: OpenSpace, owner: Owner) -> None:
    """Note a wait, or refuse it: one beyond that of each process and the actions of the queue space.

    Raises SystemFailureError.
    """
    space = opened.definitions(unit).space
    waits = unit.waits(space.id)
    waits[owner.id] = waits.get(owner.id, 0) + 1
    used, limit = sum(count - 1 for count in waits.values()), space.definition.actions
    if waits[owner.id] > 1 and used > limit:
        raise SystemFailureError(
            f"queue space {space.name!r} has {used - 1} of {limit} actions in use, which waits beyond the first of each"
            " process take, and cannot take 1 more",
            hint="Wait in fewer threads at a time, or give the queue space more actions with -A.",
            space=space.name,
            resource=Resource.ACTIONS,
            used=used - 1,
            limit=limit,
        )
    opened.note_use(unit, "actions", used)
