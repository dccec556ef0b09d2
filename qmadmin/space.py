"""An open queue space, as applications and administrators use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from qmadmin.browsing import listed
from qmadmin.changing import Changing
from qmadmin.consuming import Consuming, parsed, seconds_of
from qmadmin.forwardings import Forwardings
from qmadmin.open_transactions import refuse_nesting
from qmadmin.outstanding import Outstanding
from qmadmin.producing import Producing
from qmadmin.transaction import Transaction
from qmadmin.watching import QueueWatch
from qmcore import times
from qmcore.acts import looking, purging, queues, retention, upkeep, waiting
from qmcore.condition import Condition
from qmcore.errors import InUseError
from qmcore.message import STORED, ConsumedMessage, Message, MessageInfo, State
from qmcore.queue import Delivery, Queue, QueueDefinition, QueueUsage
from qmcore.space import SpaceDefinition

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmcore.port import Unit
    from qmcore.records import Cursor

_LISTED_AT_A_TIME = 500
_STOP_CHECK_SECONDS = 0.05


class QueueSpace(Producing, Consuming, Changing, Outstanding, Forwardings):
    """An open queue space. Safe for several threads; closing it, or its device, ends waiting calls.

    Calls inside `with space.transaction():` belong to that transaction; others take effect at once.
    """

    @property
    def definition(self) -> SpaceDefinition:
        """What is defined about the queue space now."""
        return self._read(lambda unit: self._attachment.opened.definitions(unit).space.definition)

    def transaction(self, timeout: float | timedelta | None = None) -> Transaction:
        """Return a transaction, to be used as `with space.transaction() as tx:`.

        It commits at the end of the block and rolls back on an exception. `timeout` in seconds: after that it is
        rolled back, by itself or by others; None is no limit. Transactions do not nest (ProtocolError).
        """
        self._check_open()
        refuse_nesting(self._device, self.name)
        return Transaction(self._device, timeout, self.name)

    def create_queue(self, definition: QueueDefinition) -> Queue:
        """Create a queue.

        A capacity command that is not run as this user is warned about in the log. Raises InvalidArgumentError where
        the name is taken, NoSpaceError where the queue space has all its queues.
        """
        attachment = self._attachment
        now = self._device.clock.now()
        created = attachment.volume.write(lambda unit: queues.create(unit, attachment.opened, definition, now))
        self._device.warn_of_commands(attachment.volume, self.name, definition)
        return created

    def destroy_queue(self, name: str, *, purge: bool = False, force: bool = False, dry_run: bool = False) -> None:
        """Destroy a queue.

        Raises InUseError while it has messages, unless `purge` or `force`; while other processes are attached to the
        queue space, unless `force`; and while a transaction holds one of its messages. With `dry_run` it stays, and is
        only refused where it would be.
        """
        self._freshen(name)
        attachment = self._attachment
        me, now = attachment.owner, self._device.clock.now()
        if dry_run:
            self._read(
                lambda unit: queues.refuse_in_use(unit, attachment.opened, name, me, now, purge=purge, force=force)
            )
            return
        attachment.volume.write(
            lambda unit: queues.destroy(unit, attachment.opened, name, me, now, purge=purge, force=force)
        )

    def change_queue(self, definition: QueueDefinition) -> Queue:
        """Give the queue of that name another definition.

        Its order, and whether it groups messages, cannot be changed (InvalidArgumentError). Messages that it has keep
        their expiry. Messages that it has retained are kept as long as the new retention says; with none they go. A
        capacity command that is not run as this user is warned about in the log.
        """
        attachment = self._attachment
        changed = attachment.volume.write(lambda unit: queues.change(unit, attachment.opened, definition))
        self._freshen(definition.name)
        self._device.warn_of_commands(attachment.volume, self.name, definition)
        return changed

    def start_queue(self, name: str, *, enqueue: bool = True, dequeue: bool = True) -> None:
        """Let messages be enqueued on a queue again, and dequeued from it."""
        self._switch(name, enqueue=True if enqueue else None, dequeue=True if dequeue else None)

    def stop_queue(
        self, name: str, *, enqueue: bool = True, dequeue: bool = True, wait: float | timedelta | None = None
    ) -> None:
        """Let no message be enqueued on a queue, or dequeued from it: both are refused with BadQueueError.

        Transactions that hold a message of the queue are waited for, `wait` seconds at most (None or 0: not at all);
        if they go on, InUseError is raised and the queue is as it was. What a transaction has enqueued before is
        still taken when it commits. Whoever waits for a message is told.
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
        """Return what is defined about a queue, or raise BadQueueError."""
        return self._read(lambda unit: self._attachment.opened.definitions(unit).queue(name))

    def queues(self) -> list[Queue]:
        """Return the queues by name."""
        found = self._read(lambda unit: list(self._attachment.opened.definitions(unit).queues.values()))
        return sorted(found, key=lambda queue: queue.name)

    def usage(self, queue: str) -> QueueUsage:
        """Return what a queue holds and what went through it."""
        self._freshen(queue)
        opened, now = self._attachment.opened, self._device.clock.now()
        return self._read(lambda unit: looking.usage(unit, opened, opened.definitions(unit).queue(queue), now))

    def usages(self) -> list[tuple[Queue, QueueUsage]]:
        """Return all queues by name, each with what it holds and what went through it, as they were at one moment."""
        attachment = self._attachment
        attachment.look_after(now=True)
        opened, now = attachment.opened, self._device.clock.now()
        upkeep.freshen_all(attachment.volume, opened, now)

        def seen(unit: Unit) -> list[tuple[Queue, QueueUsage]]:
            queues = sorted(opened.definitions(unit).queues.values(), key=lambda queue: queue.name)
            return [(queue, looking.usage(unit, opened, queue, now)) for queue in queues]

        return self._read(seen)

    def messages(
        self, queue: str, *, condition: str | Condition | None = None, states: Iterable[State] = STORED
    ) -> Iterator[MessageInfo]:
        """Yield the messages of a queue that fulfil a condition and are in certain states, without their bodies.

        Ready ones come in the order of the queue, then those that are kept back by time, then those that a
        transaction holds. They are read a step at a time, so that a long queue takes little memory, and a message
        that moves meanwhile may be seen twice or not at all.
        """
        restriction = parsed(condition)
        self._freshen(queue)
        for state in states:
            for _, info in listed(self._attachment, queue, state, restriction):
                yield info

    def content(self, listed: MessageInfo) -> Message | None:
        """Return a message that `messages` has listed with its body, also one that cannot be dequeued now.

        None is returned where it is gone.
        """
        return self._read(lambda unit: looking.content(unit, self._attachment.opened, listed))

    def history(self, queue: str, *, condition: str | Condition | None = None) -> Iterator[ConsumedMessage]:
        """Yield the messages of a queue that are kept after they were consumed, the first consumed first.

        Each tells when it was consumed, and by whom. `recall` gives the body of one.
        """
        restriction = parsed(condition)
        self._freshen(queue)
        opened, now = self._attachment.opened, self._device.clock.now()
        cursor: Cursor | None = None

        def part(unit: Unit) -> list[tuple[Cursor, ConsumedMessage]]:
            return retention.history(unit, opened, queue, cursor, _LISTED_AT_A_TIME, restriction, now)

        while found := self._read(part):
            yield from (consumed for _, consumed in found)
            cursor = found[-1][0]

    def recall(self, queue: str, msgid: str) -> Message | None:
        """Return a message that was consumed and is kept; None where the queue keeps none of this identifier."""
        opened, now = self._attachment.opened, self._device.clock.now()
        return self._read(lambda unit: retention.recall(unit, opened, queue, msgid, now))

    def purge(
        self,
        queue: str,
        *,
        condition: str | Condition | None = None,
        delivery: Delivery | None = None,
        progress: Callable[[int], None] = lambda _count: None,
    ) -> int:
        """Give up the messages of a queue that fulfil a condition, or all of them; return how many it was.

        With `delivery` only the persistent or the non-persistent ones are meant. `progress` is told how many are gone.
        Those that a transaction holds stay. They are counted as discarded. A thousand go at a time. Where all are
        meant, those whose record is gone or cannot be read go too.
        """
        restriction = parsed(condition)
        self._freshen(queue)
        attachment = self._attachment
        return purging.purge(attachment.volume, attachment.opened, queue, restriction, delivery, progress)

    def purge_damaged(self, queue: str) -> int:
        """Remove the messages of a queue whose record is gone or cannot be read; return how many it was.

        Others stay, and are counted again. What the queue retains is looked at too; what a transaction holds is not.
        Nobody else works on the volume meanwhile.
        """
        attachment = self._attachment
        return purging.purge_damaged(attachment.volume, attachment.opened, queue)

    def purge_history(self, queue: str, *, before: datetime | None = None) -> int:
        """Give up the retained messages of a queue that were consumed before a time, or all; return how many."""
        attachment = self._attachment
        limit = times.LATEST if before is None else times.from_datetime(before)
        return purging.purge_retained(attachment.volume, attachment.opened, queue, limit)

    def watch(self) -> QueueWatch:
        """Return what tells, for as long as it is open, when messages come to queues that are served for long."""
        return QueueWatch(self._attachment, self._device.clock)

    def wake(self) -> None:
        """Let the waits of this process look again before their time; a signal handler may call it."""
        self._attachment.volume.wake()

    def _switch(self, name: str, *, enqueue: bool | None, dequeue: bool | None) -> Queue:
        attachment = self._attachment
        return attachment.volume.write(
            lambda unit: queues.switch(unit, attachment.opened, name, enqueue=enqueue, dequeue=dequeue)
        )

    def _wait_until_free(self, name: str, end: float) -> None:
        attachment = self._attachment
        clock = self._device.clock
        while True:
            attachment.look_after(now=True)
            try:
                self._read(lambda unit: queues.refuse_taken(unit, attachment.opened.definitions(unit).queue(name)))
            except InUseError:
                left = end - clock.monotonic()
                if left <= 0:
                    raise
                waiting.pause(attachment.volume, min(left, _STOP_CHECK_SECONDS))
            else:
                return
