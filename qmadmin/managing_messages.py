"""The calls of administrators on the messages of a queue."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

from qmadmin.attachment import SpaceHandle
from qmadmin.audit import destructive
from qmadmin.browsing import listed
from qmadmin.dequeuing import parsed
from qmcore import times
from qmcore.acts import manage_messages
from qmcore.acts.manage_messages import Chosen, Progress
from qmcore.checks import check_int
from qmcore.condition import Condition, Operator, compared
from qmcore.errors import InUseError, InvalidArgumentError
from qmcore.message import PRIORITY_RANGE, State, checked_id
from qmcore.queue import Delivery
from qmcore.records import Changeable


def _ignore_progress(_count: int) -> None:
    """Ignore the progress of a change."""


class ManagingMessages(SpaceHandle):
    """Calls that change and move messages that no transaction holds.

    Each method applies to the messages of a queue that meet a condition, or to all, and with `delivery` only to the
    persistent or the non-persistent ones; it returns their number. They are determined when the call begins, and
    changed a thousand at a time; `progress` is called with the number so far.
    """

    def count(self, queue: str, *, condition: str | Condition | None = None, delivery: Delivery | None = None) -> int:
        """Return how many messages a change would affect."""
        return len(self._chosen(queue, condition, delivery))

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
        none if that has passed. `outlived` is called with the number of messages whose expiry has passed. Raises
        BadQueueError if there is no such queue.
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

        Messages that were never moved, or whose queue no longer exists, stay and are not counted. The others change as
        with `move`, which also describes `outlived`.
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

    def _chosen(self, queue: str, condition: str | Condition | None, delivery: Delivery | None) -> Chosen:
        restriction = parsed(condition)
        self._release_due(queue)
        return self._run(manage_messages.choose, queue, restriction, delivery)

    def _moment(self, when: datetime | float | timedelta, what: str) -> int:
        if isinstance(when, datetime):
            return times.from_datetime(when)
        if isinstance(when, bool):
            raise InvalidArgumentError(f"the {what} must be a datetime or seconds from now, got {when!r}")
        return self._now + times.span(when, what)
