"""Threads that wait beside the one that asks: for disks, and for servers.

To make a thread takes longer than many a disk. So they are kept for as long as the device is open; one is made where
all others are at work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Act: TypeAlias = Callable[[], object]

_MOST: Final = 64
"""How many threads there are at most; what is to be done beside waits for one of them."""


class SideThreads:
    """The threads of one device, in one process.

    Where none can be had, since the device is closed or the main thread has ended, each act is done by the one that
    asks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._stopped = False

    def do(self, beside: Sequence[Act], here: Sequence[Act], then: Sequence[Act]) -> None:
        """Do acts beside each other; those that are to be done `here` are done by this thread, one after the other.

        When these are done, what is to be done `then` is, beside each other. Returns when nobody is at work any more,
        also after an interrupt, and raises what one of them has raised.
        """
        waits: list[Future[object]] = []
        try:
            for act in beside:
                self._begin(act, waits)
            for act in here:
                act()
            for act in then[1:]:
                self._begin(act, waits)
            for act in then[:1]:
                act()
            for wait in waits:
                wait.result()
        finally:
            for wait in waits:
                wait.exception()

    def stop(self) -> None:
        """End the threads when they are done; what is to be done from now on is done by the one that asks."""
        with self._lock:
            self._stopped = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def _begin(self, act: Act, waits: list[Future[object]]) -> None:
        """Have an act done by another thread, which is to be waited for, or do it."""
        future = None
        try:
            # Nobody may stop them between the look and the start.
            with self._lock:
                if not self._stopped:
                    # Few programs have transactions over so many volumes.
                    from concurrent.futures import Future, ThreadPoolExecutor

                    if self._pool is None:
                        self._pool = ThreadPoolExecutor(_MOST, "qmadmin-beside")
                    future = Future[object]()
                    self._pool.submit(_fulfil, future, act)
        except RuntimeError:
            # After the end of the main thread there are no new ones, nor where there are too many. A thread that is
            # there already may have taken the act all the same.
            if future is not None and future.cancel():
                future = None
        if future is None:
            act()
        else:
            waits.append(future)


def _fulfil(future: Future[object], act: Act) -> None:
    """Do an act, unless the one who asked for it does so."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(act())
    except BaseException as error:  # noqa: BLE001 - whoever waits raises it
        future.set_exception(error)
