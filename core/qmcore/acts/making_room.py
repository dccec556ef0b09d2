"""Making room: what has expired, or was kept long enough, goes before something is refused for want of room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from qmcore.acts.expiry import expire
from qmcore.acts.retention import forget_outlived
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.errors import NoSpaceError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Queue

T = TypeVar("T")

_STEP = 1000


def with_room(volume: Volume, spaces: Sequence[OpenSpace], now: int, act: Callable[[], T], on: object = None) -> T:
    """Do what needs room; where there is none, remove what has expired and do it again.

    It is removed in database transactions of its own, or in the transaction of the application's connection `on`.
    """
    try:
        return act()
    except NoSpaceError:
        if sum(make_room(volume, opened, now, on) for opened in spaces) == 0:
            raise
        return act()


def make_room(volume: Volume, opened: OpenSpace, now: int, on: object = None) -> int:
    """Remove all that has expired or outlived its retention, a step at a time; return how many messages it was."""

    def step(unit: Unit) -> int:
        return sum(_clean(unit, opened, queue, now) for queue in opened.definitions(unit).queues.values())

    def run() -> int:
        if on is not None:
            return volume.write_on(on, step)
        return volume.write(step, Purpose.TIDY)

    total = 0
    while count := run():
        total += count
    return total


def _clean(unit: Unit, opened: OpenSpace, queue: Queue, now: int) -> int:
    expired = sum(expire(unit, opened, store, queue, now, _STEP) for store in stores(unit, queue.space_id))
    return expired + forget_outlived(unit, opened, queue, now, _STEP)
