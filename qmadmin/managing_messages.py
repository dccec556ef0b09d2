"""Messages of a queue for administrators: listed, read one after the other, counted, changed and moved."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from qmadmin.attachment import SpaceHandle
from qmadmin.audit import destructive
from qmcore import times
from qmcore.acts import looking, manage_messages
from qmcore.acts.manage_messages import Chosen, Progress
from qmcore.acts.stores import stores
from qmcore.checks import check_int
from qmcore.condition import Condition, Operator, compared
from qmcore.damage import is_damage
from qmcore.errors import InUseError, InvalidArgumentError, QueueError
from qmcore.message import PRIORITY_RANGE, Message, MessageInfo, State, checked_id
from qmcore.port import Unit
from qmcore.queue import Delivery, Queue
from qmcore.records import Changeable, Cursor, Part

if TYPE_CHECKING:
    from qmadmin.attachment import Attachment


T = TypeVar("T")

_AT_A_TIME = 500


def ignore_count(_count: int) -> None:
    """Ignore how many messages a listing leaves out; the log has them."""


class BrowseCursor:
    """The messages that were in a queue when the cursor was made, and can be dequeued when their turn comes.

    It is an iterator that holds no lock: each message is read when its turn comes, and skipped if it is gone, or a
    transaction holds it, by then. Later messages are not shown. `exhausted` is true at the end, and `left_out` is how
    many damaged messages have been skipped so far, which qcheck finds.
    """

    def __init__(
        self, attachment: Attachment, queue: str, condition: Condition | None, check_open: Callable[[], None]
    ) -> None:
        self._attachment = attachment
        self._queue = queue
        self._check_open = check_open
        self._exhausted = False
        self.left_out = 0
        self._order = attachment.volume.read(lambda unit: self._known(unit).definition.order)
        self._newest = attachment.volume.read(lambda unit: unit.counters.last_sequence(attachment.opened.space.id))
        self._places = listed(attachment, queue, State.READY, condition, self._pass_over)

    @property
    def exhausted(self) -> bool:
        """Whether the cursor is at its end."""
        return self._exhausted

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        self._check_open()
        for (key, _), _info in self._places:
            assert isinstance(key, bytes)  # noqa: S101 - ready messages are listed by their keys
            if self._order.sequence_in(key) > self._newest:
                continue
            found = self._read(key)
            if found is not None:
                return found
        self._exhausted = True
        raise StopIteration

    def _pass_over(self, count: int) -> None:
        self.left_out += count

    def _read(self, key: bytes) -> Message | None:
        try:
            return self._attachment.volume.read(lambda unit: self._message(unit, key))
        except QueueError as error:
            if not is_damage(error):
                raise
            self._pass_over(1)
            return None

    def _message(self, unit: Unit, key: bytes) -> Message | None:
        known = self._attachment.opened.definitions(unit)
        queue = known.taker(self._queue)
        for store in stores(unit, known.space.id):
            found = store.messages.peek(known.space, queue.name, queue.id, key)
            if found is not None:
                return found
        return None

    def _known(self, unit: Unit) -> Queue:
        return self._attachment.opened.definitions(unit).taker(self._queue)


def listed(
    attachment: Attachment,
    queue: str,
    state: State,
    condition: Condition | None,
    left_out: Callable[[int], None] = ignore_count,
) -> Iterator[tuple[Cursor, MessageInfo]]:
    """Yield the messages of a queue in one state from all stores, in their order, with their cursors.

    `left_out` is called with the number of damaged messages that are not listed.
    """

    def in_store(number: int) -> Iterator[tuple[Cursor, MessageInfo]]:
        return parts_of(
            lambda at: attachment.volume.read(
                lambda unit: looking.listing(unit, attachment.opened, number, queue, state, at, _AT_A_TIME, condition)
            ),
            left_out,
        )

    return heapq.merge(*map(in_store, range(looking.STORES)), key=lambda item: item[0])


def parts_of(read: Callable[[Cursor | None], Part[T]], left_out: Callable[[int], None]) -> Iterator[tuple[Cursor, T]]:
    """Yield a listing that is read in parts, each after a cursor; `left_out` is called with the number left out."""
    cursor: Cursor | None = None
    while True:
        part = read(cursor)
        if part.left_out:
            left_out(part.left_out)
        if not part:
            return
        yield from part
        cursor = part[-1][0]


def parsed(condition: str | Condition | None) -> Condition | None:
    """Return a condition that may have been given as text."""
    if condition is None or isinstance(condition, Condition):
        return condition
    from qmcore.condition_parser import parse

    return parse(condition)


def _ignore_progress(_count: int) -> None:
    """Ignore the progress of a change."""


class ManagingMessages(SpaceHandle):
    """Calls that change and move messages that no transaction holds.

    Each method applies to the messages of a queue that meet a condition, or to all, and with `delivery` only to the
    persistent or the non-persistent ones; it returns their number. They are determined when the call begins, and
    changed a thousand at a time; `progress` is called with the number so far.
    """

    def count(
        self,
        queue: str,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        states: Sequence[State] = manage_messages.CHANGEABLE,
    ) -> int:
        """Return how many messages a change would affect, of those in the given states."""
        return len(self._chosen(queue, condition, delivery, states))

    def refuse_held(self, queue: str, msgid: str) -> None:
        """Raise InUseError if a transaction holds the message with that identifier, so that it cannot be changed."""
        its = compared("msgid", Operator.EQUAL, checked_id(msgid))
        for _, info in listed(self._attachment, queue, State.HELD, its):
            raise InUseError(
                f"a transaction holds message {info.msgid} of queue {queue!r}",
                hint="Wait until the transaction has ended; qprinttrans lists it.",
                queue=queue,
                msgid=info.msgid,
            )

    @destructive("queue {handle.name}/{queue}", "priority {priority}", outcome="priority of {} changed")
    def change_priority(
        self,
        queue: str,
        priority: int,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        progress: Progress = _ignore_progress,
    ) -> int:
        """Give messages another priority, 1 to 100."""
        number = check_int(priority, "priority", *PRIORITY_RANGE)
        return self._change(queue, condition, delivery, progress, priority=number)

    @destructive("queue {handle.name}/{queue}", "available {when}", outcome="time of availability of {} changed")
    def change_availability(
        self,
        queue: str,
        when: datetime | float | timedelta,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        progress: Progress = _ignore_progress,
    ) -> int:
        """Give messages another time of availability: an aware datetime, or seconds from now."""
        moment = self._moment(when, "time of availability")
        return self._change(queue, condition, delivery, progress, available_us=moment, until_us=moment)

    @destructive("queue {handle.name}/{queue}", "make parked messages available", outcome="{} unparked")
    def unpark(
        self,
        queue: str,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        progress: Progress = _ignore_progress,
    ) -> int:
        """Make parked messages available, in the places where they stood.

        Other messages stay as they are. Of a queue that groups messages the rest of their groups comes with them, and
        is counted too.
        """
        chosen = self._chosen(queue, condition, delivery, (State.PARKED,))
        return self._run(manage_messages.unpark, chosen, self._now, progress)

    @destructive("queue {handle.name}/{queue}", "expires {when}", outcome="time of expiry of {} changed")
    def change_expiry(
        self,
        queue: str,
        when: datetime | float | timedelta | None,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        progress: Progress = _ignore_progress,
    ) -> int:
        """Give messages another time of expiry: an aware datetime, seconds from now, or None for never."""
        moment = None if when is None else self._moment(when, "time of expiry")
        return self._change(queue, condition, delivery, progress, expires_us=moment)

    @destructive("queue {handle.name}/{queue}", "to queue {target}", outcome="{} moved")
    def move(
        self,
        queue: str,
        target: str,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        progress: Progress = _ignore_progress,
        outlived: Progress = _ignore_progress,
    ) -> int:
        """Move messages to another queue of the queue space.

        They keep everything that their senders asked for, their tries begin again, and they get new identifiers and a
        record of the old ones. In an error queue a message does not expire; when it leaves, it has its expiry again, or
        none if that has passed. `outlived` is called with the number of messages whose expiry has passed. Messages that
        nobody would get in a queue for several stay and are not counted; NoRecipientsError is raised if that is so of
        all. Raises BadQueueError if there is no such queue.
        """
        chosen = self._chosen(queue, condition, delivery)
        moved = self._run(manage_messages.move_to, chosen, target, self._now, progress)
        outlived(moved.outlived)
        return moved.messages

    @destructive("queue {handle.name}/{queue}", "back to the queues they came from", outcome="{} moved back")
    def requeue(
        self,
        queue: str,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        progress: Progress = _ignore_progress,
        outlived: Progress = _ignore_progress,
    ) -> int:
        """Move messages back to the queues that they were moved from, for example from the error queue.

        Messages that were never moved, or whose queue no longer exists or has nobody who would get them, stay and are
        not counted. The others change as with `move`, which also describes `outlived`.
        """
        chosen = self._chosen(queue, condition, delivery)
        moved = self._run(manage_messages.requeue, chosen, self._now, progress)
        outlived(moved.outlived)
        return moved.messages

    def _change(
        self,
        queue: str,
        condition: str | Condition | None,
        delivery: Delivery | None,
        progress: Progress,
        **fields: Any,
    ) -> int:
        chosen = self._chosen(queue, condition, delivery)

        def changed(found: Changeable) -> Changeable:
            return dataclasses.replace(found, **fields)

        return self._run(manage_messages.change, chosen, changed, progress)

    def _chosen(
        self,
        queue: str,
        condition: str | Condition | None,
        delivery: Delivery | None,
        states: Sequence[State] = manage_messages.CHANGEABLE,
    ) -> Chosen:
        restriction = parsed(condition)
        self._release_due(queue)
        return self._run(manage_messages.choose, queue, restriction, delivery, states)

    def _moment(self, when: datetime | float | timedelta, what: str) -> int:
        if isinstance(when, datetime):
            return times.from_datetime(when)
        if isinstance(when, bool):
            raise InvalidArgumentError(f"the {what} must be a datetime or seconds from now, got {when!r}")
        return self._now + times.span(when, what)
