"""Making room: what has expired, or was kept long enough, goes before something is refused for want of room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from qmcore.acts.expiry import expire
from qmcore.acts.retention import forget_outlived
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.errors import NoSpaceError
from qmcore.port import Unit, Volume, always
from qmcore.queue import Queue

T = TypeVar("T")

_STEP = 1000


Run: TypeAlias = Callable[[Callable[[Unit], int]], int]
"""Runs work in a database transaction, or as a part of one."""


def with_room(volume: Volume, spaces: Sequence[OpenSpace], now: int, act: Callable[[], T], run: Run | None = None) -> T:
    """Do what needs room; where there is none, remove what has expired and do it again.

    `run` is what the removal runs in: by default a database transaction of its own for each step.
    """
    try:
        return act()
    except NoSpaceError:
        by_itself: Run = lambda step: volume.write(step, durable=False, concurrent=True, repeatable=always)  # noqa: E731 - the default of an argument
        if sum(_make_room(run or by_itself, opened, now) for opened in spaces) == 0:
            raise
        return act()


def _make_room(run: Run, opened: OpenSpace, now: int) -> int:
    """Remove all that has expired or outlived its retention, a step at a time; return how many messages it was."""

    def step(unit: Unit) -> int:
        return sum(_clean(unit, opened, queue, now) for queue in opened.definitions(unit).queues.values())

    total = 0
    while count := run(step):
        total += count
    return total


def _clean(unit: Unit, opened: OpenSpace, queue: Queue, now: int) -> int:
    expired = sum(expire(unit, opened, store, queue, now, _STEP) for store in stores(unit, queue.space_id))
    return expired + forget_outlived(unit, opened, queue, now, _STEP)
