"""The act of waiting for a message. It does not poll: it sleeps until whoever brings a message wakes it.

A wait is an object with a small life: it is registered in the store, is woken, looks again, and is given up. A call
that blocks drives one and sleeps on a wake-up of its own; an event loop drives thousands and sleeps on one descriptor.

A wait is first registered and then looks once more, so that a message which comes in between wakes it. Those that would
take any message of a queue wait in turn: a message wakes one of them, and one that was woken and leaves while there are
messages passes that on. A check each second covers a wake-up that was lost; where many wait, they share the checks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import random
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from qmcore.definitions import OpenSpace
from qmcore.errors import QueueError, Resource, SystemFailureError, may_pass
from qmcore.message import PARKED_UNTIL
from qmcore.port import Unit, Volume, Wakeup, WakeupAddress
from qmcore.probe import Point
from qmcore.purpose import Purpose
from qmcore.records import Nothing, Owner
from qmcore.times import MICROS, Clock

logger = logging.getLogger("qmadmin.engine")

T = TypeVar("T")
W = TypeVar("W", bound=WakeupAddress)

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

    The arguments are those of a `Wait`. Only the first try needs the store; later ones wait for it, too.
    """
    found = attempt()
    if not isinstance(found, Nothing):
        return found

    def wakeup(wait: Wait[T, Wakeup]) -> Wakeup:
        return volume.wakeups.new(in_turn=wait.in_turn)

    wait = Wait(attempt, found, wakeup, volume, opened, clock, seconds, stop, do_housekeeping, in_turn=in_turn)
    try:
        while isinstance(found, Nothing) and not wait.is_over():
            found = wait.look(woken=_sleep(volume, wait))
        return found
    finally:
        wait.give_up()


def _sleep(volume: Volume, wait: Wait[T, Wakeup]) -> bool:
    """Sleep until a wait is woken or wants to look anyway; return whether it was woken."""
    seconds = wait.seconds()
    if seconds <= 0:
        return False
    if wait.wakeup is not None:
        return sleep(volume, wait.wakeup, seconds)
    pause(volume, seconds)
    return False


class Wait(Generic[T, W]):
    """A wait for what an attempt brings, after one that has `found` nothing.

    Whoever drives it lets it `look` as often as it is woken, and when its `seconds` are over, until a look has found
    something, or raises, or the wait `is_over`. In the end, or whenever it likes, it lets it `give_up`. It is used by
    one call at a time, from whichever thread.

    `new_wakeup` makes what it is woken by, that of a thread or one of an event loop's set. The wait ends after so many
    `seconds`, or when `stop` says so. `do_housekeeping` is done after a second in which nothing was changed, or after
    several where many wait. `in_turn` tells that the attempt takes any message of one queue, so that one of all who
    wait so is enough for one message.
    """

    wakeup: W | None = None
    """By what it is woken, where it is registered."""

    _rows: Collection[tuple[int, str]] = ()
    """As what it is in the store, or may be."""

    def __init__(
        self,
        attempt: Callable[[], T | Nothing],
        found: Nothing,
        new_wakeup: Callable[[Wait[T, W]], W],
        volume: Volume,
        opened: OpenSpace,
        clock: Clock,
        seconds: float,
        stop: Callable[[], bool] | None = None,
        do_housekeeping: Callable[[], None] = lambda: None,
        *,
        in_turn: bool = False,
    ) -> None:
        self.in_turn = in_turn
        self._attempt = attempt
        self._found = found
        self._new_wakeup = new_wakeup
        self._volume = volume
        self._opened = opened
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self._stop = stop
        self._do_housekeeping = do_housekeeping
        self._owner: Owner | None = None
        """For whom it is registered. Others may take us for dead, and then no longer know of it."""
        self._before: object = None
        self._looks_at = -math.inf
        self._hears_from = -math.inf
        self._is_deaf = False
        self._pause = CHECK_SECONDS
        self._longest = 0.0
        self._failure: QueueError | None = None

    def is_over(self) -> bool:
        """Return whether the time is over, or whoever waits wants no more.

        Raises what kept it from looking, where that lasted until then.
        """
        is_over = self._left() <= 0 or (self._stop is not None and self._stop())
        if is_over and self._failure is not None:
            raise self._failure
        return is_over

    def seconds(self) -> float:
        """Return how many seconds to sleep at most until it wants to look, woken or not; 0 or less is now."""
        if self._failure is None and (self._owner is None or self._owner is not self._opened.me):
            return 0.0
        pause = self._looks_at - self._clock.monotonic()
        return min(self._left(), pause, seconds_until(self._found.next_due_us, self._clock))

    def look(self, *, woken: bool = False) -> T | Nothing:
        """Look for a message, and return what was found. Where it was not `woken`, only if it may have missed that.

        The first look registers the wait before, and so does one that finds it registered no more. A store that is
        away, or locked by others, is waited for: nothing was found. Raises what the attempt raises, and
        SystemFailureError where as many wait already as the queue space has actions for.
        """
        try:
            found = self._looked(woken=woken)
            self._failure = None
        except QueueError as error:
            if not may_pass(error):
                raise
            return self._put_off(error)
        if isinstance(found, Nothing):
            self._found = found
        return found

    def register(self) -> None:
        """Have the store record that it waits, so that whoever brings a message wakes it.

        Raises SystemFailureError where as many wait already as the queue space has actions for.
        """
        if self._rows:
            # Of an owner that was taken for dead.
            self.give_up()
        opened, owner = self._opened, self._opened.owner
        self.wakeup = wakeup = self._new_wakeup(self)
        # Before they are recorded, as an interrupt may come right behind that.
        self._rows = rows = [(queue_id, wakeup.address) for queue_id in self._found.queue_ids]
        left = list(opened.left_waits)
        gone = set(left)

        def record(unit: Unit) -> int:
            _remove(unit, opened, gone)
            waits = take_action(unit, opened, owner)
            for queue_id, address in rows:
                unit.waits.add(queue_id, address, owner.id)
            # In case that this is done twice.
            gone.update(rows)
            return waits

        waits = self._volume.write(record, Purpose.TIDY)
        opened.left_waits.difference_update(left)
        now = self._clock.monotonic()
        opened.counted_waits = now, waits
        self._owner = owner
        self._hears_from = now + self._volume.wakeups.deaf_seconds
        self._pause = CHECK_SECONDS

    def give_up(self) -> None:
        """Wait no longer: nobody wakes it any more, and what it may have been woken for is passed on."""
        # Before the rows: whoever brings a message from now on must not take this one for woken.
        self._close_wakeup()
        if self._rows:
            try:
                self._volume.write(self._forget, Purpose.TIDY)
            except QueueError:
                # A message may have been taken meanwhile, and must reach the caller.
                self._opened.left_waits.update(self._rows)
        self.wakeup, self._rows, self._owner = None, (), None

    def __del__(self) -> None:
        if self._rows:
            # An interrupt came in between. Nothing is written here, where it may be the middle of anything.
            self._close_wakeup()
            self._opened.left_waits.update(self._rows)

    def _close_wakeup(self) -> None:
        if self.wakeup is not None:
            with contextlib.suppress(OSError):
                self.wakeup.close()

    def _left(self) -> float:
        """Return the seconds that are left; less than nothing where they are over."""
        return self._end - self._clock.monotonic()

    def _looked(self, *, woken: bool) -> T | Nothing:
        if self._owner is None or self._owner is not self._opened.owner:
            self.register()
        elif woken:
            self._pause = CHECK_SECONDS
        elif not self._may_have_missed():
            # What comes back by this wakes us.
            self._do_housekeeping()
            return self._found
        # Before the attempt: what comes behind it is a change.
        self._before = self._volume.changes()
        found = self._attempt()
        now = self._clock.monotonic()
        self._is_deaf = now < self._hears_from
        self._looks_at = self._hears_from if self._is_deaf else now + self._pause
        self._longest = 0.0
        return found

    def _may_have_missed(self) -> bool:
        """Return whether there may be something of which nobody has told it: what is due, or what was changed."""
        self._pause = CHECK_SECONDS
        is_due = seconds_until(self._found.next_due_us, self._clock) <= 0
        if self._is_deaf or is_due or self._left() <= 0:
            return True
        # As long as nothing is changed, as many wait.
        self._longest = self._longest or self._longest_pause()
        # Those who were woken by the same must not look at the same time, and all be asleep in between.
        self._pause = max(random.uniform(0.75, 1.0) * self._longest, CHECK_SECONDS)  # noqa: S311 - it keeps no secret
        self._looks_at = self._clock.monotonic() + self._pause
        # Where nothing at all was changed, there is nothing to try. What was changed may be nothing to those who
        # wait: hundreds do, and must not all try each second where others are busy.
        return self._before is None or self._volume.changes() != self._before

    def _longest_pause(self) -> float:
        """Return how long to sleep at most while nothing is changed."""
        counted_at, waits = self._opened.counted_waits
        now = self._clock.monotonic()
        # Once for all that wait in this process: to count thousands takes a while. Where it cannot be asked what has
        # changed, each look is a journey, and few need no other one.
        if now - counted_at >= CHECK_SECONDS and (self._before is not None or waits * _APART_SECONDS > CHECK_SECONDS):
            waits = sum(self._volume.read(lambda unit: unit.waits.of_space(self._opened.space.id)).values())
            self._opened.counted_waits = now, waits
        return min(max(waits * _APART_SECONDS, CHECK_SECONDS), _LONGEST_SECONDS)

    def _put_off(self, error: QueueError) -> Nothing:
        """Look again in a second: the store may be back, or free, by then."""
        self.give_up()
        if self._failure is None and not error.unreachable:
            # Of a server that is away the store tells. Who is in the way should not be so unseen.
            logger.warning("a wait goes on: %s", error)
        self._failure = error
        self._found = dataclasses.replace(self._found, next_due_us=None)
        self._looks_at = self._clock.monotonic() + CHECK_SECONDS
        return self._found

    def _forget(self, unit: Unit) -> None:
        for queue_id, address in self._rows:
            unit.waits.remove(queue_id, address)
            if self.in_turn:
                # It may have been woken for what is left.
                unit.waits.pass_on(self._opened.space.id, queue_id)


def forget_left(volume: Volume, opened: OpenSpace) -> None:
    """Take waits out of the store that ended while it could not be told, or were interrupted when they told it."""
    left = list(opened.left_waits)
    if left:
        volume.write(lambda unit: _remove(unit, opened, left), Purpose.TIDY)
        opened.left_waits.difference_update(left)


def _remove(unit: Unit, opened: OpenSpace, rows: Collection[tuple[int, str]]) -> None:
    for queue_id, address in rows:
        unit.waits.remove(queue_id, address)
        unit.waits.pass_on(opened.space.id, queue_id)


def pause(volume: Volume, seconds: float) -> None:
    """Sleep, unless the process is woken before."""
    wakeup = volume.wakeups.new()
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
    """Return the seconds until a message becomes available, which may have passed; None is never, as when parked."""
    if moment_us is None or moment_us == PARKED_UNTIL:
        return float("inf")
    return max((moment_us - clock.now()) / MICROS, 0.0)


def take_action(unit: Unit, opened: OpenSpace, owner: Owner) -> int:
    """Note a wait, or refuse it: one beyond that of each process and the actions of the queue space.

    Returns how many waits there are with it.

    Raises SystemFailureError.
    """
    space = opened.definitions(unit).space
    waits = unit.waits.of_space(space.id)
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
    return sum(waits.values())
