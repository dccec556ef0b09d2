"""The threads that work for a queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from qmadmin.consumers.processor import Found
from qmcore.errors import NoSpaceError

if TYPE_CHECKING:
    from qmadmin.consumers.concurrency_limit import Places
    from qmadmin.consumers.processor import Feed

_LOST_MAX: Final = 10
"""Threads whose calls do not come back, beyond which a queue is not served any more."""

_LOST_SECONDS: Final = 3600.0
"""How long it is not served then, unless the services are loaded again."""

_IDLE_SECONDS: Final = 60.0
"""How long a thread that has nothing to do is kept."""

_FEW_SECONDS: Final = 1.0
"""How long a crew does with fewer workers when the queue space has no room for a transaction of each."""


class Crew:
    """The workers of a queue, each a thread: they take messages while there are any, and then sleep until roused.

    `told` is called, from any thread, when something has changed that whoever rouses the crew wants to know: a worker
    has found no message, or cannot go on. `failed` takes an error after which nothing can go on.
    """

    def __init__(
        self, feed: Feed, places: Places, told: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        self.feed = feed
        self._places = places
        self._told = told
        self._failed = failed
        self._changed = threading.Condition()
        self._is_ended = False
        self._limit: int | None = None
        self._tickets = 0
        self._looking = 0
        self._busy = 0
        self._idle = 0
        self._lost = 0
        self._next_begin = 0.0
        self._few = 0
        self._few_until = 0.0

    @property
    def queue(self) -> str:
        """The queue."""
        return self.feed.queue

    @property
    def busy(self) -> int:
        """How many workers look for a message or are at a call."""
        return self._busy + self._tickets

    def wants_watching(self) -> bool:
        """Tell whether nobody looks for messages here although somebody could."""
        with self._changed:
            return not self._tickets and not self._looking and self._has_room() and not self.feed.pause.left()

    def rouse(self) -> None:
        """Have one more worker look for messages, if there may be one more."""
        with self._changed:
            if not self._has_room() or self.feed.pause.left():
                return
            self._tickets += 1
            if self._idle < self._tickets and not self._has_started_one():
                self._tickets -= 1
            self._changed.notify()

    def _has_started_one(self) -> bool:
        """Start a thread, if the system lets us have one more; where there are others they go on."""
        try:
            threading.Thread(target=self._work, name=f"tmqforward {self.queue}", daemon=True).start()
        except RuntimeError as error:
            self.feed.pause.begin(f"no thread can be started: {error}")
            return False
        self._idle += 1
        return True

    def only(self, messages: int) -> None:
        """Let no more than so many further messages be taken."""
        with self._changed:
            self._limit = messages

    def is_at_rest(self) -> bool:
        """Tell whether no worker has anything in hand."""
        return self.busy == 0

    def end(self) -> None:
        """Let the workers take no further message, and end when they are done with what they have in hand."""
        with self._changed:
            self._is_ended = True
            self._tickets = 0
            self._changed.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait until no worker has anything in hand; tell whether that came within the seconds."""
        with self._changed:
            return self._changed.wait_for(self.is_at_rest, seconds)

    # ---- a worker ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (looks := self._is_roused()) is not None:
            found = Found.NOTHING
            try:
                while looks:
                    found = self._forward()
                    looks = found is Found.MESSAGE and self._begins_look()
            except BaseException as error:  # noqa: BLE001 - the main thread decides what becomes of it
                self._failed(error)
            if found is Found.ABANDONED:
                self._come_back()
                return
            self._leave()

    def _is_roused(self) -> bool | None:
        """Wait to be roused; tell whether a look has begun by that. None where there is no more to do for this thread.

        Nobody can see the ticket gone and the look not yet begun, and rouse another one for it.
        """
        with self._changed:
            roused = self._changed.wait_for(lambda: self._tickets or self._is_ended, _IDLE_SECONDS)
            self._idle -= 1
            if self._is_ended or not roused:
                return None
            self._tickets -= 1
            self._busy += 1
            return self._begins_look()

    def _leave(self) -> None:
        with self._changed:
            self._busy -= 1
            self._idle += 1
            self._changed.notify_all()
        self._told()

    def _begins_look(self) -> bool:
        """Begin to look for a message, if that may be."""
        with self._changed:
            if self._is_ended or self.feed.pause.left() or self._limit == 0:
                return False
            if self.feed.terms.pace and self._looking:
                # One waits for the time of the next call already, and rouses another when it comes.
                return False
            if self._limit is not None:
                self._limit -= 1
            self._looking += 1
            return True

    def _forward(self) -> Found:
        look = _Look(self, self.feed)
        try:
            self._keep_pace()
            with self._places.one_for(self.queue, look.feed.head_priority) as look.leave_place:
                return Found.NOTHING if self._is_ended else look.feed.forward(look)
        except NoSpaceError as error:
            self._do_with_fewer(f"{error.name}: {error.message}")
            return Found.NOTHING
        finally:
            look.ends()

    def ends_look(self) -> None:
        """Note that a worker looks no more."""
        with self._changed:
            self._looking -= 1

    def looks_on(self, *, ends_look: bool) -> None:
        """Have another worker look, in the moment in which one ends its look, so that nobody else can rouse a third."""
        with self._changed:
            if ends_look:
                self.ends_look()
            self.rouse()

    def goes_on(self, feed: Feed) -> bool:
        """Tell whether a worker may take its next message at once, without a look at anything but the queue."""
        return not (
            self._is_ended
            or self.feed is not feed
            or self._limit is not None
            or feed.terms.pace
            or feed.pause.left()
            or self._places.are_counted
        )

    def has_ended(self) -> bool:
        """Tell whether the workers are to take no further message."""
        return self._is_ended

    def _keep_pace(self) -> None:
        """Wait until the next call may begin, where there is to be some time between two of them."""
        pace = self.feed.terms.pace
        if pace:
            with self._changed:
                begin = max(self._next_begin, time.monotonic())
                self._next_begin = begin + pace
                self._changed.wait_for(lambda: self._is_ended, begin - time.monotonic())

    def _has_room(self) -> bool:
        if self.feed.terms.pace and (self._looking or self._tickets):
            return False
        workers = self.feed.terms.workers
        if time.monotonic() < self._few_until:
            workers = min(workers, self._few)
        return not self._is_ended and self._busy + self._tickets < workers and self._limit != 0

    def _do_with_fewer(self, trouble: str) -> None:
        """Leave the work to the other workers for a while; without any, pause because of the trouble."""
        with self._changed:
            self._few, self._few_until = max(self._busy - 1, 0), time.monotonic() + _FEW_SECONDS
            is_alone = not self._few
        if is_alone:
            self._few_until = 0.0
            self.feed.pause.begin(trouble)

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
            self.feed.pause.begin(f"{self._lost} calls of its service did not return", _LOST_SECONDS)
        self._told()


class _Look:
    """A worker's look for a message, and what it tells of one that is found."""

    def __init__(self, crew: Crew, feed: Feed) -> None:
        self.feed = feed
        self.leave_place: Callable[[], None] = _nothing
        self._crew = crew
        self._is_open = True

    def taken(self) -> None:
        """Note that there is a message; there may be more where it came from."""
        was_open, self._is_open = self._is_open, False
        self._crew.looks_on(ends_look=was_open)

    def abandoned(self) -> None:
        """Let another thread take the place of this one, which does not come back."""
        self.leave_place()
        self._crew.lose_one()

    def has_ended(self) -> bool:
        """Tell whether no further call is to be begun."""
        return self._crew.has_ended()

    def goes_on(self) -> bool:
        """Tell whether the next message may be taken with the commit of one that is done."""
        return self._crew.goes_on(self.feed)

    def ends(self) -> None:
        """Note that nothing is looked for any more; once is enough."""
        if self._is_open:
            self._is_open = False
            self._crew.ends_look()


def _nothing() -> None:
    pass
