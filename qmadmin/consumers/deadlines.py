"""The deadlines of running calls: a thread that acts when a call has taken too long."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from qmadmin.consumers import Call, Failure, too_late

if TYPE_CHECKING:
    from qmadmin.transacting import Transaction
    from qmcore.queue import RetryPolicy

T = TypeVar("T")

_LONGEST_SLEEP = 3600.0
_A_MOMENT = 0.0005


class Deadline:
    """A time of the monotonic clock, and an action that is done then unless the watch has ended before.

    Either it ends or it acts, never both. `acted` is whether it has acted.
    """

    __slots__ = ("_act", "_token", "acted", "at")

    def __init__(self, at: float, act: Callable[[], None]) -> None:
        self.at = at
        self.acted = False
        self._act = act
        # The thread that takes the only item has decided. The act may be an exception in the thread that ends the
        # watch, which would leave a lock taken.
        self._token = [True]

    def end(self) -> bool:
        """End the watch; return False if it acts, or has acted, because its time is over."""
        try:
            return self._token.pop()
        except IndexError:
            return False

    def act(self) -> None:
        """Act, unless it has ended."""
        if self.end():
            try:
                self._act()
            finally:
                self.acted = True


class Deadlines:
    """Makes watches act when their time has come, in a thread that runs from the first watch to `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._condition = threading.Condition()
        self._watches: set[Deadline] = set()
        self._wakes_at = 0.0
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, watch: Deadline) -> None:
        """Watch from now on. Nothing acts before the lock is free again."""
        with self._condition:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._keep, name=self._name, daemon=True)
                self._thread.start()
            self._watches.add(watch)
            if watch.at < self._wakes_at:
                # Set here, not found by the thread: a call that is over before the thread is awake would leave it
                # with nothing to wake for, and each call after it would wake it again.
                self._wakes_at = watch.at
                self._condition.notify()

    def remove(self, watch: Deadline) -> None:
        """Forget a watch that has ended or acted."""
        self._watches.discard(watch)

    def within(self, call: Call, act: Callable[[], T]) -> T:
        """Call a function; when the time of the call is over an exception is raised in it, never after it has returned.

        Raises Failure then, and otherwise what the function raises.
        """
        thread = threading.get_ident()
        watch = Deadline(time.monotonic() + call.left(), functools.partial(_raise_in, thread, _TimeIsUp))
        result: list[T] = []
        error: BaseException | None = None
        try:
            self.add(watch)
            try:
                result.append(act())
            except BaseException as raised:  # noqa: BLE001 - whatever it is, the watch ends first
                error = raised
            if not watch.end():
                _await_exception(watch, thread)
                raise Failure(too_late(call)) from None
        except _TimeIsUp:
            raise Failure(too_late(call)) from None
        else:
            if error is not None:
                raise error
            return result[0]
        finally:
            self.remove(watch)
            # The exception refers to this frame, which must not refer to it in turn.
            error = None

    def close(self) -> None:
        """End the thread; no watch acts any more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _keep(self) -> None:
        with self._condition:
            while not self._is_closed:
                left = self._wakes_at - time.monotonic()
                if left > 0:
                    self._condition.wait(left)
                else:
                    self._wakes_at = self._act()

    def _act(self) -> float:
        """Make those act whose time has come; return the time of the next one."""
        wakes_at = time.monotonic() + _LONGEST_SLEEP
        # A call that ends removes its watch at any time.
        for watch in list(self._watches):
            if watch.at <= time.monotonic():
                self._watches.discard(watch)
                watch.act()
            else:
                wakes_at = min(wakes_at, watch.at)
        return wakes_at


class _TimeIsUp(BaseException):
    """The call has taken too long. Not an Exception, because a function may catch those for reasons of its own."""


def _await_exception(watch: Deadline, thread: int) -> None:
    """Wait until the exception of a watch has been raised in this thread; here, if it has not been before.

    One more is raised instead of cancelling the pending one: CPython 3.11 would otherwise check for it at each step for
    the rest of the process, and hang at the first function that a debugger traces.
    """
    try:
        while not watch.acted:
            time.sleep(_A_MOMENT)
        _raise_in(thread, _TimeIsUp)
        while True:
            time.sleep(_A_MOMENT)
    except _TimeIsUp:
        return


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread, in place of one that has not been raised yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


LATE_SECONDS = 3.0
"""How many seconds a handler has to end a call by itself when its time is over."""


@dataclasses.dataclass(slots=True, eq=False)
class RunningCall:
    """A running call, in its transaction. Either its own thread or the main thread ends it, which is decided once.

    `abandoned` is called if the main thread does, with the reason if that counts as a try of the message, else None.
    """

    call: Call
    transaction: Transaction
    abandoned: Callable[[str | None], None]
    retry_policy: RetryPolicy
    _ended: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def end(self) -> bool:
        """Return whether the caller has to end the call; only the first caller gets True."""
        return self._ended.acquire(blocking=False)


class RunningCalls:
    """The running calls; none begins after all were given back."""

    def __init__(self) -> None:
        self._is_over = False
        self._lock = threading.Lock()
        self._calls: set[RunningCall] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, running: RunningCall) -> bool:
        """Note a call that begins; return False if it must not, because all were given back."""
        with self._lock:
            if not self._is_over:
                self._calls.add(running)
            return not self._is_over

    def end(self, running: RunningCall) -> bool:
        """Note that a call has returned; return False if it is too late and its transaction was rolled back."""
        self._calls.discard(running)
        return running.end()

    def give_up_late(self) -> None:
        """Roll back the transactions of overdue calls; that counts as a try of their messages."""
        for running in [each for each in self._calls.copy() if each.call.left() < -LATE_SECONDS]:
            if running.end():
                self._calls.discard(running)
                reason = too_late(running.call)
                running.transaction.give_up(reason, only=running.call.request.msgid, retry_policy=running.retry_policy)
                running.abandoned(reason)

    def next_late(self) -> float:
        """Return the seconds until a running call has to be given up."""
        return min((each.call.left() + LATE_SECONDS for each in self._calls.copy()), default=float("inf"))

    def return_all(self, reason: str) -> int:
        """Roll back the transactions of all calls, because they cannot be waited for; that does not count as a try."""
        with self._lock:
            self._is_over = True
        returned = [running for running in self._calls.copy() if running.end()]
        for running in returned:
            self._calls.discard(running)
            running.transaction.return_untried(reason)
            running.abandoned(None)
        return len(returned)
