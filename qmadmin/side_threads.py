"""Threads that wait beside the one that asks: for disks, and for servers.

To make a thread takes longer than many a disk. So they are kept for as long as the device is open; one is made where
all others are at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Act: TypeAlias = Callable[[], object]

_MOST: Final = 64
"""How many threads there are at most; what is to be done beside waits for one of them."""


class SideThreads:
    """The threads of one device, in one process."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def do(self, beside: Sequence[Act], here: Sequence[Act], then: Sequence[Act]) -> None:
        """Do acts beside each other; those that are to be done `here` are done by this thread, one after the other.

        When these are done, what is to be done `then` is, beside each other. Returns when nobody is at work any more,
        also after an interrupt, and raises what one of them has raised.
        """
        waits: list[Future[object]] = []
        try:
            waits.extend(map(self._begun, beside))
            for act in here:
                act()
            waits.extend(map(self._begun, then[1:]))
            for act in then[:1]:
                act()
            for wait in waits:
                wait.result()
        finally:
            for wait in waits:
                wait.exception()

    def stop(self) -> None:
        """End the threads when they are done."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def _begun(self, act: Act) -> Future[object]:
        if self._pool is None:
            # Few programs have transactions over so many volumes.
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(_MOST, "qmadmin-beside")
        return self._pool.submit(act)
