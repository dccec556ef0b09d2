"""The threads that work for a queue, and how many calls run at the same time over all queues."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from qmadmin.consumers.policy import Wording
from qmadmin.consumers.processor import Found, Processor
from qmadmin.consumers.stop import Stop
from qmcore.errors import NoSpaceError

_LOST_MAX: Final = 10
"""Threads whose calls do not come back, beyond which a queue is not served any more."""

_LOST_SECONDS: Final = 3600.0
"""How long it is not served then, unless the handlers are loaded again."""

_IDLE_SECONDS: Final = 60.0
"""How long a thread that has nothing to do is kept."""

_FEW_SECONDS: Final = 1.0
"""How long a pool does with fewer workers when the queue space has no room for a transaction of each."""


@dataclasses.dataclass(eq=False)
class WorkerPool:
    """The workers of a queue, each a thread: they take messages while there are any, and then sleep until started.

    `changed` is called, from any thread, when something has changed that the thread which starts workers has to know: a
    worker has found no message, or cannot go on. `failed` takes an error after which nothing can go on.
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

    def is_unwatched(self) -> bool:
        """Return whether nobody polls for messages here although somebody could."""
        with self._changed:
            return not self._tickets and not self._polling and self._has_room() and not self.processor.backoff.left()

    def start_one(self) -> None:
        """Start one more worker polling for messages, if there may be one more."""
        with self._changed:
            if not self._has_room() or self.processor.backoff.left():
                return
            self._tickets += 1
            if self._idle < self._tickets and not self._has_new_thread():
                self._tickets -= 1
            self._changed.notify()

    def _has_new_thread(self) -> bool:
        """Start a thread, if the system lets us have one more; where there are others they go on."""
        try:
            threading.Thread(target=self._work, name=f"{self.wording.thread} {self.queue}", daemon=True).start()
        except RuntimeError as error:
            self.processor.backoff.begin(f"no thread can be started: {error}")
            return False
        self._idle += 1
        return True

    def limit_to(self, messages: int) -> None:
        """Take no more than so many further messages."""
        with self._changed:
            self._messages_left = messages

    def is_at_rest(self) -> bool:
        """Return whether no worker has anything in hand."""
        return self._busy + self._tickets == 0

    def end(self) -> None:
        """Let the workers take no further message, and end when they are done with what they have in hand."""
        with self._changed:
            self._is_ended = True
            self._tickets = 0
            self._changed.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait until no worker has anything in hand; return whether that came within the seconds."""
        with self._changed:
            return self._changed.wait_for(self.is_at_rest, seconds)

    # ---- a worker ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (polls := self._is_started()) is not None:
            found = Found.NOTHING
            try:
                while polls:
                    found = self._poll()
                    polls = found is Found.MESSAGE and self._begins_poll()
            except BaseException as error:  # noqa: BLE001 - the main thread decides what becomes of it
                self.failed(error)
            if found is Found.ABANDONED:
                self._come_back()
                return
            self._rest()

    def _is_started(self) -> bool | None:
        """Wait to be started; return whether a poll has begun by that. None where there is no more for this thread.

        Nobody can see the ticket gone and the poll not yet begun, and start another one for it.
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
        """Begin to poll for a message, if that may be."""
        with self._changed:
            if self.has_ended() or self.processor.backoff.left() or self._messages_left == 0:
                return False
            if self.processor.policy.pace and self._polling:
                # One waits for the time of the next call already, and starts another when it comes.
                return False
            if self._messages_left is not None:
                self._messages_left -= 1
            self._polling += 1
            return True

    def _poll(self) -> Found:
        poll = _Poll(self, self.processor)
        try:
            self._keep_pace()
            with self.limit.permit(self.queue, poll.processor.head_priority) as poll.release_permit:
                return Found.NOTHING if self.has_ended() else poll.processor.process(poll)
        except NoSpaceError as error:
            self._do_with_fewer(f"{error.name}: {error.message}")
            return Found.NOTHING
        finally:
            poll.end()

    def end_poll(self) -> None:
        """Note that a worker polls no more."""
        with self._changed:
            self._polling -= 1

    def pass_on(self, *, ends_poll: bool) -> None:
        """Start another worker polling at the moment in which one ends its poll, so that nobody starts a third."""
        with self._changed:
            if ends_poll:
                self.end_poll()
            self.start_one()

    def can_go_on(self, processor: Processor) -> bool:
        """Return whether a worker may take its next message at once, without a look at anything but the queue."""
        return not (
            self.has_ended()
            or self.processor is not processor
            or self._messages_left is not None
            or processor.policy.pace
            or processor.backoff.left()
            or self.limit.is_counted
        )

    def has_ended(self) -> bool:
        """Return whether the workers are to take no further message."""
        return self._is_ended or bool(self.stop.asked)

    def _keep_pace(self) -> None:
        """Wait until the next call may begin, where there is to be some time between two of them."""
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

    def _do_with_fewer(self, reason: str) -> None:
        """Leave the work to the other workers for a while; without any, pause for the reason."""
        with self._changed:
            self._few, self._few_until = max(self._busy - 1, 0), time.monotonic() + _FEW_SECONDS
            is_alone = not self._few
        if is_alone:
            self._few_until = 0.0
            self.processor.backoff.begin(reason)

    def _come_back(self) -> None:
        """Note that a call has come back after all, whose place another thread has taken."""
        with self._changed:
            self._lost -= 1

    def lose_one(self) -> None:
        """Let another thread take the place of one whose call does not come back."""
        with self._changed:
            self._busy -= 1
            self._lost += 1
            self._changed.notify_all()
        if self._lost >= _LOST_MAX:
            reason = f"{self._lost} calls of its {self.wording.handler} did not return"
            self.processor.backoff.begin(reason, _LOST_SECONDS)
        self.changed()


class _Poll:
    """A worker's poll for a message, and what it tells of one that is found."""

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
        """Let another thread take the place of this one, which does not come back."""
        self.release_permit()
        self._pool.lose_one()

    def has_ended(self) -> bool:
        """Return whether no further call is to be begun."""
        return self._pool.has_ended()

    def can_go_on(self) -> bool:
        """Return whether the next message may be taken with the commit of one that is done."""
        return self._pool.can_go_on(self.processor)

    def end(self) -> None:
        """Note that nothing is polled for any more; once is enough."""
        if self._is_open:
            self._is_open = False
            self._pool.end_poll()


_IN_TURN: Final = 10
"""Each so many-th permit goes to who has waited longest, so that what is less urgent comes to its turn, too."""


class ConcurrencyLimit:
    """So many workers may be busy at a time, over all queues; each holds a permit.

    A queue that has none of them comes before those that have, and takes its first one also where others want a
    second; for each queue without any a permit is kept free, so that a slow handler delays its own queue only. That
    needs as many permits as there are queues.
    """

    def __init__(self, total: float = math.inf) -> None:
        self._total = total
        self._queues: set[str] = set()
        self._taken: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self._handed_out = 1

    def serve(self, queues: set[str], total: float) -> None:
        """Know the queues that share the permits, and how many there are."""
        with self._lock:
            self._queues, self._total = queues, total
            self._hand_out()

    @property
    def is_counted(self) -> bool:
        """Whether there may be too few permits, so that somebody else may come first."""
        return self._total != math.inf

    @contextlib.contextmanager
    def permit(self, queue: str, priority: Callable[[], int]) -> Iterator[Callable[[], None]]:
        """Wait for a permit and hold it. Of those who wait alike, the highest priority comes first.

        What it gives is called to return the permit early, from any thread, for a holder who does not come back.
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
        """Take a permit if there is one and nobody waits."""
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
