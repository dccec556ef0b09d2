"""When the clients of a measurement begin, when they stop, and how long each of their operations took."""

from __future__ import annotations

import mmap
import os
import time

from benchmarks.subject import GoesOn

_PAUSE = 0.0005
"""Seconds that a consumer rests when it has found nothing."""


class Clock:
    """When a client began and last succeeded, how often it did, and how long each time took."""

    def __init__(self, seconds: float) -> None:
        self.begun = self.ended = self._begun = time.monotonic()
        self.took: list[int] = []
        """Microseconds of each operation that found a message."""
        self._deadline = self.begun + seconds

    @property
    def operations(self) -> int:
        """How many operations found a message."""
        return len(self.took)

    def begin(self) -> None:
        """Let an operation begin."""
        self._begun = time.monotonic()

    def tick(self) -> bool:
        """Count the operation; return whether there is time for more."""
        self.ended = time.monotonic()
        self.took.append(round((self.ended - self._begun) * 1e6))
        return self.ended < self._deadline

    def is_over(self) -> bool:
        """Return whether there is no time for more."""
        return time.monotonic() > self._deadline


class Counts:
    """How much each consumer has taken, in memory that all of them share."""

    def __init__(self, consumers: int) -> None:
        self._memory = memoryview(mmap.mmap(-1, 8 * max(consumers, 1))).cast("Q")

    def add(self, consumer: int) -> None:
        """Count an operation of a consumer."""
        self._memory[consumer] += 1

    def total(self) -> int:
        """Return what all consumers have done together."""
        return sum(self._memory)


class Start:
    """Lets all processes of clients begin at once, when the last of them is ready."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._ready = os.pipe()
        self._go = os.pipe()

    def wait(self) -> None:
        """In a process of clients: say that it is ready, and wait for the start."""
        os.close(self._go[1])
        os.write(self._ready[1], b"r")
        os.read(self._go[0], 1)

    def give(self) -> None:
        """In the parent: wait for all of them that live, and start them."""
        os.close(self._ready[1])
        missing = self._processes
        while missing and (some := os.read(self._ready[0], missing)):
            missing -= len(some)
        for end in (self._ready[0], self._go[0], self._go[1]):
            os.close(end)


def until_made(share: int, clock: Clock) -> GoesOn:
    """Return what lets a producer go on until it has made its share, or the time is over."""
    begun = False

    def goes_on(_found: bool) -> bool:
        nonlocal begun
        more = clock.tick() if begun else True
        begun = True
        clock.begin()
        return more and clock.operations < share

    return goes_on


def until_taken(counts: Counts, number: int, operations: int, clock: Clock) -> GoesOn:
    """Return what lets a consumer go on until all together have done so much, or the time is over."""
    begun = False

    def goes_on(found: bool) -> bool:
        nonlocal begun
        if not begun:
            begun = True
        elif found:
            counts.add(number)
            if not clock.tick():
                return False
        elif clock.is_over():
            return False
        else:
            time.sleep(_PAUSE)
        clock.begin()
        return counts.total() < operations

    return goes_on


def so_many_times(count: int) -> GoesOn:
    """Return what lets a client go on so many times."""
    left = iter(range(count))
    return lambda _found: next(left, None) is not None


def shares(total: int, parts: int) -> list[int]:
    """Return the shares of producers that are to make so much together."""
    return [total // parts + (number < total % parts) for number in range(parts)]
