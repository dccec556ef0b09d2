"""An open queue space, as applications and administrators use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from qmadmin.audit import destructive, tell
from qmadmin.browsing import ignore_count, listed, parts_of
from qmadmin.console.plurals import counted
from qmadmin.dequeuing import Consuming, parsed, seconds_of
from qmadmin.enqueuing import Producing
from qmadmin.forwardings import Forwardings
from qmadmin.managing_messages import Changing
from qmadmin.open_transactions import refuse_nesting
from qmadmin.outstanding import Outstanding
from qmadmin.transacting import Transaction
from qmadmin.watching import QueueWatch
from qmcore import times
from qmcore.acts import housekeeping, looking, manage_queues, purging, retention, waiting
from qmcore.condition import Condition
from qmcore.errors import InUseError, SystemFailureError
from qmcore.message import STORED, ConsumedMessage, Message, MessageInfo, State
from qmcore.queue import Delivery, Queue, QueueDefinition, QueueUsage
from qmcore.space import SpaceDefinition

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmcore.port import Unit
    from qmcore.records import Cursor, Part

_LISTED_AT_A_TIME = 500
_STOP_CHECK_SECONDS = 0.05


class QueueSpace(Producing, Consuming, Changing, Outstanding, Forwardings):
    """An open queue space. Safe for several threads; closing it, or its device, ends waiting calls.

    Calls inside `with space.transaction():` belong to that transaction; others take effect at once.
    """

    @property
    def definition(self) -> SpaceDefinition:
        """The present definition of the queue space."""
        return self._read(lambda unit: self._attachment.opened.definitions(unit).space.definition)

    def transaction(self, timeout: float | timedelta | None = None) -> Transaction:
        """Return a transaction, to be used as `with space.transaction() as tx:`.

        It commits at the end of the block and rolls back on an exception. After `timeout` seconds it is rolled back, by
        itself or by others; None means no limit. Transactions do not nest (ProtocolError).
        """
        self._check_open()
        refuse_nesting(self._device, self.name)
        return Transaction(self._device, timeout, self.name)

    def create_queue(self, definition: QueueDefinition) -> Queue:
        """Create a queue.

        If a capacity command is not run as this user, a warning in the log says so. Raises InvalidArgumentError if the
        name is taken, NoSpaceError if the queue space has reached its number of queues.
        """
        attachment = self._attachment
        now = self._device.clock.now()
        created = attachment.volume.write(lambda unit: manage_queues.create(unit, attachment.opened, definition, now))
        self._device.warn_of_commands(attachment.volume, self.name, definition)
        return created

    @destructive("queue {handle.name}/{name}")
    def destroy_queue(self, name: str, *, purge: bool = False, force: bool = False, dry_run: bool = False) -> None:
        """Destroy a queue.

        Raises InUseError while it has messages, unless `purge` or `force`; while other processes are attached to the
        queue space, unless `force`; and while a transaction holds one of its messages. With `dry_run` nothing is
        destroyed, and only the error is raised that would be.
        """
        self._freshen(name)
        attachment = self._attachment
        me, now = attachment.owner, self._device.clock.now()
        if dry_run:
            self._read(
                lambda unit: manage_queues.refuse_in_use(
                    unit, attachment.opened, name, me, now, purge=purge, force=force
                )
            )
            return
        messages = self._messages_in_words(name)
        attachment.volume.write(
            lambda unit: manage_queues.destroy(unit, attachment.opened, name, me, now, purge=purge, force=force)
        )
        tell(f"destroyed with {messages}")

    def _messages_in_words(self, queue: str) -> str:
        """Return how many messages go with a queue."""
        try:
            return counted(self.usage(queue).messages, "message")
        except SystemFailureError:
            # A damaged one can be destroyed, too.
            return "an unknown number of messages"

    def change_queue(self, definition: QueueDefinition) -> Queue:
        """Change the definition of the queue of that name.

        Its order, and whether it groups messages, cannot be changed (InvalidArgumentError). Its messages keep their
        expiry. Retained messages are kept as long as the new retention says; with none they are removed. If a capacity
        command is not run as this user, a warning in the log says so.
        """
        attachment = self._attachment
        changed = attachment.volume.write(lambda unit: manage_queues.change(unit, attachment.opened, definition))
        self._freshen(definition.name)
        self._device.warn_of_commands(attachment.volume, self.name, definition)
        return changed

    def start_queue(self, name: str, *, enqueue: bool = True, dequeue: bool = True) -> None:
        """Start enqueuing on a queue, and dequeuing from it, again."""
        self._switch(name, enqueue=True if enqueue else None, dequeue=True if dequeue else None)

    def stop_queue(
        self, name: str, *, enqueue: bool = True, dequeue: bool = True, wait: float | timedelta | None = None
    ) -> None:
        """Stop enqueuing on a queue, or dequeuing from it: calls are refused with BadQueueError.

        The call waits at most `wait` seconds (None or 0: not at all) for transactions that hold a message of the queue;
        if they go on, InUseError is raised and the queue is as it was. Messages that a transaction has already enqueued
        are still accepted when it commits. Calls that wait for a message of the queue are refused too.
        """
        end = self._device.clock.monotonic() + seconds_of(wait)
        before = self._switch(name, enqueue=False if enqueue else None, dequeue=False if dequeue else None)
        try:
            if dequeue:
                self._wait_until_free(name, end)
        except BaseException:
            # Of the rest, somebody else may have decided meanwhile.
            self._switch(name, enqueue=before.enqueue_enabled if enqueue else None, dequeue=before.dequeue_enabled)
            raise

    def queue(self, name: str) -> Queue:
        """Return the definition of a queue, or raise BadQueueError."""
        return self._read(lambda unit: self._attachment.opened.definitions(unit).queue(name))

    def queues(self) -> list[Queue]:
        """Return the queues by name."""
        found = self._read(lambda unit: list(self._attachment.opened.definitions(unit).queues.values()))
        return sorted(found, key=lambda queue: queue.name)

    def usage(self, queue: str) -> QueueUsage:
        """Return what a queue holds, and its counters."""
        self._freshen(queue)
        opened, now = self._attachment.opened, self._device.clock.now()
        return self._read(lambda unit: looking.usage(unit, opened, opened.definitions(unit).queue(queue), now))

    def usages(self) -> list[tuple[Queue, QueueUsage]]:
        """Return all queues by name, each with what it holds and its counters, all as they were at one moment."""
        attachment = self._attachment
        attachment.look_after(now=True)
        opened, now = attachment.opened, self._device.clock.now()
        housekeeping.freshen_all(attachment.volume, opened, now)

        def seen(unit: Unit) -> list[tuple[Queue, QueueUsage]]:
            queues = sorted(opened.definitions(unit).queues.values(), key=lambda queue: queue.name)
            return [(queue, looking.usage(unit, opened, queue, now)) for queue in queues]

        return self._read(seen)

    def messages(
        self,
        queue: str,
        *,
        condition: str | Condition | None = None,
        states: Iterable[State] = STORED,
        left_out: Callable[[int], None] = ignore_count,
    ) -> Iterator[MessageInfo]:
        """Yield the messages of a queue that match a condition and are in certain states, without their bodies.

        Ready messages come first, in the order of the queue, then delayed ones, then those that a transaction holds.
        They are read in batches, so that a long queue takes little memory; a message that moves meanwhile may be
        returned twice or not at all. `left_out` is called with the number of damaged messages that a batch leaves out;
        qcheck finds them.
        """
        restriction = parsed(condition)
        self._freshen(queue)
        for state in states:
            for _, info in listed(self._attachment, queue, state, restriction, left_out):
                yield info

    def content(self, listed: MessageInfo) -> Message | None:
        """Return a message that `messages` has listed with its body, even one that cannot be dequeued now.

        Returns None if it is gone.
        """
        return self._read(lambda unit: looking.content(unit, self._attachment.opened, listed))

    def history(
        self,
        queue: str,
        *,
        condition: str | Condition | None = None,
        left_out: Callable[[int], None] = ignore_count,
    ) -> Iterator[ConsumedMessage]:
        """Yield the retained messages of a queue, the first consumed first.

        Each says when and by which process it was consumed. `recall` returns one with its body. `left_out` is called
        with the number of damaged messages that a batch leaves out.
        """
        restriction = parsed(condition)
        self._freshen(queue)
        opened, now = self._attachment.opened, self._device.clock.now()

        def part(cursor: Cursor | None) -> Part[ConsumedMessage]:
            return self._read(
                lambda unit: retention.history(unit, opened, queue, cursor, _LISTED_AT_A_TIME, restriction, now)
            )

        yield from (consumed for _, consumed in parts_of(part, left_out))

    def recall(self, queue: str, msgid: str) -> Message | None:
        """Return a retained message, which was consumed; None if the queue retains none with this identifier."""
        opened, now = self._attachment.opened, self._device.clock.now()
        return self._read(lambda unit: retention.recall(unit, opened, queue, msgid, now))

    @destructive("queue {handle.name}/{queue}", outcome="{} deleted")
    def purge(
        self,
        queue: str,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        progress: Callable[[int], None] = lambda _count: None,
    ) -> int:
        """Delete the messages of a queue that match a condition, or all of them, and return their number.

        With `delivery` only the persistent or the non-persistent ones are deleted. `progress` is called with the number
        deleted so far. Messages that a transaction holds stay. Deleted messages are counted as discarded. They are
        deleted a thousand at a time. Without a condition, messages whose record is missing or cannot be read are
        deleted too.
        """
        restriction = parsed(condition)
        self._freshen(queue)
        attachment = self._attachment
        return purging.purge(attachment.volume, attachment.opened, queue, restriction, delivery, progress)

    @destructive("queue {handle.name}/{queue}", "damaged messages", outcome="{} deleted")
    def purge_damaged(self, queue: str) -> int:
        """Delete the messages of a queue whose record is missing or cannot be read, and return their number.

        Other messages stay, and the counts of the queue are corrected. Retained messages are checked too; messages that
        a transaction holds are not. Nobody else can use the volume meanwhile.
        """
        attachment = self._attachment
        return purging.purge_damaged(attachment.volume, attachment.opened, queue)

    @destructive("queue {handle.name}/{queue}", "retained messages", outcome="{} deleted", counts="retained message")
    def purge_history(self, queue: str, *, before: datetime | None = None) -> int:
        """Delete the retained messages of a queue that were consumed before a time, or all, and return their number."""
        attachment = self._attachment
        limit = times.LATEST if before is None else times.from_datetime(before)
        return purging.purge_retained(attachment.volume, attachment.opened, queue, limit)

    def watch(self) -> QueueWatch:
        """Return what tells, for as long as it is open, when messages come to queues that are served for long."""
        return QueueWatch(self._attachment, self._device.clock)

    def wake(self) -> None:
        """Make the waiting calls of this process look for a message now; a signal handler may call it."""
        self._attachment.volume.wake_own()

    def _switch(self, name: str, *, enqueue: bool | None, dequeue: bool | None) -> Queue:
        attachment = self._attachment
        return attachment.volume.write(
            lambda unit: manage_queues.switch(unit, attachment.opened, name, enqueue=enqueue, dequeue=dequeue)
        )

    def _wait_until_free(self, name: str, end: float) -> None:
        attachment = self._attachment
        clock = self._device.clock
        while True:
            attachment.look_after(now=True)
            try:
                self._read(
                    lambda unit: manage_queues.refuse_taken(unit, attachment.opened.definitions(unit).queue(name))
                )
            except InUseError:
                left = end - clock.monotonic()
                if left <= 0:
                    raise
                waiting.pause(attachment.volume, min(left, _STOP_CHECK_SECONDS))
            else:
                return
