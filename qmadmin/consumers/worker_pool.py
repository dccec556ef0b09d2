"""The worker threads of a queue, and the limit of concurrent calls over all queues."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from qmadmin.consumers import Wording
from qmadmin.consumers.processor import PollResult, Processor
from qmcore.errors import NoSpaceError

if TYPE_CHECKING:
    from qmadmin.consumers.consumer import Stop

_LOST_MAX: Final = 10
"""The number of threads with calls that do not return at which a queue is paused."""

_LOST_SECONDS: Final = 3600.0
"""How many seconds it is paused then, unless the handlers are loaded again."""

_IDLE_SECONDS: Final = 60.0
"""How many seconds an idle thread is kept."""

_FEW_SECONDS: Final = 1.0
"""How many seconds a pool uses fewer workers when the queue space has no transaction for each."""


@dataclasses.dataclass(eq=False)
class WorkerPool:
    """The workers of a queue, each a thread: they take messages while there are any, and then sleep until started.

    `changed` is called, from any thread, when the thread that starts workers has to act: a worker has found no message,
    or cannot go on. `failed` takes an error after which nothing can go on.
    """

    processor: Processor
    limit: ConcurrencyLimit
    stop: Stop
    wording: Wording
    changed: Callable[[], None]
    failed: Callable[[BaseException], None]

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._is_ended = False
        self._messages_left: int | None = None
        self._tickets = 0
        self._polling = 0
        self._busy = 0
        self._idle = 0
        self._lost = 0
        self._next_begin = 0.0
        self._few = 0
        self._few_until = 0.0

    @property
    def queue(self) -> str:
        """The queue."""
        return self.processor.queue

    def has_no_poll(self) -> bool:
        """Return whether no worker polls for messages although one could."""
        with self._changed:
            return not self._tickets and not self._polling and self._has_room() and not self.processor.backoff.left()

    def start_one(self) -> None:
        """Make one more worker poll for messages, if the limit allows it."""
        with self._changed:
            if not self._has_room() or self.processor.backoff.left():
                return
            self._tickets += 1
            if self._idle < self._tickets and not self._has_new_thread():
                self._tickets -= 1
            self._changed.notify()

    def _has_new_thread(self) -> bool:
        """Start a thread, if the system allows one more; without it the other threads go on."""
        try:
            threading.Thread(target=self._work, name=f"{self.wording.thread} {self.queue}", daemon=True).start()
        except RuntimeError as error:
            self.processor.backoff.begin(f"no thread can be started: {error}")
            return False
        self._idle += 1
        return True

    def limit_to(self, messages: int) -> None:
        """Take no more than this number of further messages."""
        with self._changed:
            self._messages_left = messages

    def is_at_rest(self) -> bool:
        """Return whether no worker is busy."""
        return self._busy + self._tickets == 0

    def end(self) -> None:
        """Make the workers take no further message, and end after the current one."""
        with self._changed:
            self._is_ended = True
            self._tickets = 0
            self._changed.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait until no worker is busy; return whether that happened within the seconds."""
        with self._changed:
            return self._changed.wait_for(self.is_at_rest, seconds)

    # ---- a worker ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (polls := self._is_started()) is not None:
            found = PollResult.NOTHING
            try:
                while polls:
                    found = self._poll()
                    polls = found is PollResult.MESSAGE and self._begins_poll()
            except BaseException as error:  # noqa: BLE001 - the main thread decides what it means
                self.failed(error)
            if found is PollResult.ABANDONED:
                self._note_return()
                return
            self._rest()

    def _is_started(self) -> bool | None:
        """Wait to be started; return whether a poll has begun with it. None if this thread has to end.

        No other thread can see the ticket taken and the poll not yet begun, and start another one for it.
        """
        with self._changed:
            started = self._changed.wait_for(lambda: self._tickets or self._is_ended, _IDLE_SECONDS)
            self._idle -= 1
            if self._is_ended or not started:
                return None
            self._tickets -= 1
            self._busy += 1
            return self._begins_poll()

    def _rest(self) -> None:
        with self._changed:
            self._busy -= 1
            self._idle += 1
            self._changed.notify_all()
        self.changed()

    def _begins_poll(self) -> bool:
        """Begin to poll for a message, if that is allowed."""
        with self._changed:
            if self.has_ended() or self.processor.backoff.left() or self._messages_left == 0:
                return False
            if self.processor.policy.pace and self._polling:
                # Another worker waits for the time of the next call already, and starts one more then.
                return False
            if self._messages_left is not None:
                self._messages_left -= 1
            self._polling += 1
            return True

    def _poll(self) -> PollResult:
        poll = Poll(self, self.processor)
        try:
            self._keep_pace()
            with self.limit.permit(self.queue, poll.processor.head_priority) as poll.release_permit:
                return PollResult.NOTHING if self.has_ended() else poll.processor.process(poll)
        except NoSpaceError as error:
            self._use_fewer_workers(f"{error.name}: {error.message}")
            return PollResult.NOTHING
        finally:
            poll.end()

    def end_poll(self) -> None:
        """Note that a worker no longer polls."""
        with self._changed:
            self._polling -= 1

    def pass_on(self, *, ends_poll: bool) -> None:
        """Start another worker at the moment in which one ends its poll, so that no third one is started."""
        with self._changed:
            if ends_poll:
                self.end_poll()
            self.start_one()

    def can_go_on(self, processor: Processor) -> bool:
        """Return whether a worker may take its next message at once, without checking anything but the queue."""
        return not (
            self.has_ended()
            or self.processor is not processor
            or self._messages_left is not None
            or processor.policy.pace
            or processor.backoff.left()
            or self.limit.is_counted
        )

    def has_ended(self) -> bool:
        """Return whether the workers may take no further message."""
        return self._is_ended or bool(self.stop.asked)

    def _keep_pace(self) -> None:
        """Wait until the next call may begin, if the policy has a time between two calls."""
        pace = self.processor.policy.pace
        if pace:
            with self._changed:
                begin = max(self._next_begin, time.monotonic())
                self._next_begin = begin + pace
                self._changed.wait_for(lambda: self._is_ended, begin - time.monotonic())

    def _has_room(self) -> bool:
        policy = self.processor.policy
        if policy.pace and (self._polling or self._tickets):
            return False
        workers = min(policy.workers, self._few) if time.monotonic() < self._few_until else policy.workers
        return not self._is_ended and self._busy + self._tickets < workers and self._messages_left != 0

    def _use_fewer_workers(self, reason: str) -> None:
        """Use fewer workers for a while; if this is the only one, pause the queue for the reason."""
        with self._changed:
            self._few, self._few_until = max(self._busy - 1, 0), time.monotonic() + _FEW_SECONDS
            is_alone = not self._few
        if is_alone:
            self._few_until = 0.0
            self.processor.backoff.begin(reason)

    def _note_return(self) -> None:
        """Note that a call has returned after all, whose thread was replaced."""
        with self._changed:
            self._lost -= 1

    def replace_one(self) -> None:
        """Replace a thread whose call does not return."""
        with self._changed:
            self._busy -= 1
            self._lost += 1
            self._changed.notify_all()
        if self._lost >= _LOST_MAX:
            reason = f"{self._lost} calls of its {self.wording.handler} did not return"
            self.processor.backoff.begin(reason, _LOST_SECONDS)
        self.changed()


class Poll:
    """A worker's poll for a message, and its notes on the message that it finds."""

    def __init__(self, pool: WorkerPool, processor: Processor) -> None:
        self.processor = processor
        self.release_permit: Callable[[], None] = lambda: None
        self._pool = pool
        self._is_open = True

    def taken(self) -> None:
        """Note that there is a message; there may be more where it came from."""
        was_open, self._is_open = self._is_open, False
        self._pool.pass_on(ends_poll=was_open)

    def abandoned(self) -> None:
        """Replace this thread, whose call does not return."""
        self.release_permit()
        self._pool.replace_one()

    def has_ended(self) -> bool:
        """Return whether no further call may begin."""
        return self._pool.has_ended()

    def can_go_on(self) -> bool:
        """Return whether the next message may be taken with the commit of the current one."""
        return self._pool.can_go_on(self.processor)

    def end(self) -> None:
        """Note that the poll has ended; further calls do nothing."""
        if self._is_open:
            self._is_open = False
            self._pool.end_poll()


_IN_TURN: Final = 10
"""Each permit of this number goes to the worker that has waited longest, so that lower priorities are served too."""


class ConcurrencyLimit:
    """Limits the number of busy workers over all queues; each holds a permit.

    A queue without a permit comes before those that have one; and for each queue without any a permit is reserved, so
    that a slow handler delays only its own queue. That requires as many permits as there are queues.
    """

    def __init__(self, total: float = math.inf) -> None:
        self._total = total
        self._queues: set[str] = set()
        self._taken: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self._handed_out = 1

    def serve(self, queues: set[str], total: float) -> None:
        """Set the queues that share the permits, and the number of permits."""
        with self._lock:
            self._queues, self._total = queues, total
            self._hand_out()

    @property
    def is_counted(self) -> bool:
        """Whether there may be too few permits, so that another worker may come first."""
        return self._total != math.inf

    @contextlib.contextmanager
    def permit(self, queue: str, priority: Callable[[], int]) -> Iterator[Callable[[], None]]:
        """Wait for a permit and hold it. Among equal waiters the highest priority comes first.

        The yielded function returns the permit early, from any thread, for a holder that does not return.
        """
        if not self.is_counted:
            yield lambda: None
            return
        if not self._take(queue):
            self._wait(_Waiting(queue, priority()))
        held = [queue]

        def release() -> None:
            with self._lock:
                if held:
                    self._taken[held.pop()] -= 1
                    self._hand_out()

        try:
            yield release
        finally:
            release()

    def _take(self, queue: str) -> bool:
        """Take a permit if one is free and no worker waits."""
        with self._lock:
            takes = not self._waiting and self._may_take(queue)
            if takes:
                self._taken[queue] += 1
            return takes

    def _wait(self, waiting: _Waiting) -> None:
        with self._lock:
            self._waiting.append(waiting)
            self._hand_out()
        waiting.turn.wait()

    def _hand_out(self) -> None:
        """Give free permits to those whose turn it is."""
        while chosen := self._next():
            self._waiting.remove(chosen)
            self._taken[chosen.queue] += 1
            self._handed_out += 1
            chosen.turn.set()

    def _next(self) -> _Waiting | None:
        may = [each for each in self._waiting if self._may_take(each.queue)]
        if may and self._handed_out % _IN_TURN == 0:
            return may[0]
        return min(may, key=lambda each: (self._taken[each.queue], -each.priority), default=None)

    def _may_take(self, queue: str) -> bool:
        free = self._total - self._taken.total()
        if self._taken[queue] == 0 or len(self._queues) > self._total:
            return free >= 1
        kept = sum(1 for other in self._queues if self._taken[other] == 0)
        return free > kept


@dataclasses.dataclass(slots=True, eq=False)
class _Waiting:
    """A worker that waits for a permit."""

    queue: str
    priority: int
    turn: threading.Event = dataclasses.field(default_factory=threading.Event)
