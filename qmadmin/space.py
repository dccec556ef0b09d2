"""An open queue space, as applications and administrators use it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from qmadmin import defaults
from qmadmin.audit import destructive, tell
from qmadmin.console import counted
from qmadmin.dequeuing import Dequeuing, seconds_of
from qmadmin.enqueuing import Enqueuing
from qmadmin.managing_messages import ManagingMessages, ignore_count, listed, parsed, parts_of
from qmadmin.managing_schedules import ManagingSchedules
from qmadmin.managing_transactions import ManagingTransactions
from qmadmin.queue_watch import QueueWatch
from qmadmin.subscribing import Subscribing, taken_by
from qmadmin.transacting import Transaction, joined_here, refuse_nesting
from qmadmin.two_phase import TwoPhase
from qmcore import times
from qmcore.acts import (
    expiry,
    forwarding,
    housekeeping,
    looking,
    manage_queues,
    manage_schedules,
    purging,
    waiting,
)
from qmcore.condition import Condition
from qmcore.errors import AbortedError, InUseError, InvalidArgumentError, SystemFailureError
from qmcore.message import STORED, ConsumedMessage, Message, MessageInfo, State
from qmcore.purpose import Purpose
from qmcore.queue import Delivery, Queue, QueueDefinition, QueueUsage
from qmcore.records import Cursor, Forwarding, Part
from qmcore.space import SpaceDefinition
from qmcore.suspension import Token

if TYPE_CHECKING:
    from typing import Unpack

    from qmadmin.consumers.handler_options import HandlerOptions
    from qmadmin.defaults import QueueAttributes
    from qmcore.attached import AttachedProcess
    from qmcore.definitions import OpenSpace
    from qmcore.port import Unit

_LISTED_AT_A_TIME = 500
_STOP_CHECK_SECONDS = 0.05


class QueueSpace(
    Enqueuing, Dequeuing, Subscribing, TwoPhase, ManagingMessages, ManagingSchedules, ManagingTransactions
):
    """An open queue space. Safe for several threads; closing it, or its device, ends waiting calls.

    Calls inside `with space.transaction():` belong to that transaction; others take effect at once.
    """

    @property
    def definition(self) -> SpaceDefinition:
        """The present definition of the queue space."""
        return self._read(lambda unit, opened: opened.definitions(unit).space.definition)

    def transaction(self, timeout: float | timedelta | None = None) -> Transaction:
        """Return a transaction, to be used as `with space.transaction() as tx:`.

        It commits at the end of the block and rolls back on an exception. After `timeout` seconds it is rolled back, by
        itself or by others; None means no limit. Transactions do not nest (ProtocolError).
        """
        if self._closed:
            self._check_open()
        if joined_here():
            refuse_nesting(self._device, self.name)
        return Transaction(self._device, timeout, self.name)

    def resume(self, token: str) -> Transaction:
        """Return the transaction that was suspended with the token, to be used as `with space.resume(token) as tx:`.

        It belongs to this thread and process from now on, and ends as any other: when it is forgotten, too. A token is
        used once, by whoever comes first; where it is unknown whether it was used (OutcomeUnknownError), the
        transaction is rolled back.

        Raises NotSuspendedError if the transaction was resumed before (`resumed`), or has ended: its timeout passed,
        its process died or closed the queue space, or an administrator aborted it. InvalidArgumentError for what is not
        a token, or one of another queue space; ProtocolError inside another transaction, and for a branch that
        `tpc_begin` has begun, which `tpc_resume` resumes.
        """
        wanted = Token.of(token)
        attachment = self._ready()
        refuse_nesting(self._device, self.name)
        transaction = Transaction(self._device, None, self.name)
        transaction.take_over([attachment], wanted)
        return transaction

    def create_queue(
        self, definition: QueueDefinition | str, *, exist_ok: bool = False, **attributes: Unpack[QueueAttributes]
    ) -> Queue:
        """Create a queue.

        It is given by its definition, which has Tuxedo's defaults, or by its name and keywords. Then a message that
        fails is tried again five times, after 10 and 30 seconds, 1.5, 4.5 and 13.5 minutes, with jitter, unless the
        keywords say otherwise. With `exist_ok` a queue of that name stays as it is and is returned.

        If a capacity command is not run as this user, a warning in the log says so. Raises InvalidArgumentError if the
        name is taken, NoSpaceError if the queue space has reached its number of queues.
        """
        wanted = defaults.queue_definition(definition, attributes)
        try:
            created = self._write(manage_queues.create, wanted, self._now)
        except InvalidArgumentError:
            if exist_ok and any(queue.name == wanted.name for queue in self.queues()):
                return self.queue(wanted.name)
            raise
        self._device.warn_of_commands(self._attachment.volume, self.name, wanted)
        return created

    @destructive("queue {handle.name}/{name}")
    def destroy_queue(self, name: str, *, purge: bool = False, force: bool = False, dry_run: bool = False) -> None:
        """Destroy a queue.

        Raises InUseError while it has messages, unless `purge` or `force`; while other processes are attached to the
        queue space, unless `force`; and while a transaction holds one of its messages. With `dry_run` nothing is
        destroyed; the call raises the error that it would raise otherwise.

        Schedules of the queue stay, and the record of the act names them: their messages are put off until there is a
        queue of that name again.
        """
        self._release_due(name)
        me, now = self._attachment.owner, self._now
        if dry_run:
            self._read(manage_queues.refuse_in_use, name, me, now, purge=purge, force=force)
            return
        messages = self._messages_in_words(name)
        self._write(manage_queues.destroy, name, me, now, purge=purge, force=force)
        tell(f"destroyed with {messages}")
        if left := self._read(manage_schedules.of_queue, name):
            tell(f"left without a queue: {', '.join(f'schedule {schedule}' for schedule in left)}")

    def _messages_in_words(self, queue: str) -> str:
        """Return how many messages go with a queue."""
        try:
            return counted(self.usage(queue).messages, "message")
        except SystemFailureError:
            # A damaged queue can be destroyed, too.
            return "an unknown number of messages"

    def change_queue(self, definition: QueueDefinition | str, **attributes: Unpack[QueueAttributes]) -> Queue:
        """Change the definition of the queue of that name; with a name, what the keywords give is changed.

        Its order, and whether it groups messages, cannot be changed (InvalidArgumentError). Its messages keep their
        expiry. Retained messages are kept as long as the new retention says; with none they are removed. If a capacity
        command is not run as this user, a warning in the log says so.
        """
        name = definition.name if isinstance(definition, QueueDefinition) else definition
        wanted = defaults.changed(self.queue(name).definition, definition, attributes)
        changed = self._write(manage_queues.change, wanted)
        self._release_due(name)
        self._device.warn_of_commands(self._attachment.volume, self.name, wanted)
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
            # Another process may have changed the other switch meanwhile.
            self._switch(name, enqueue=before.enqueue_enabled if enqueue else None, dequeue=before.dequeue_enabled)
            raise

    def queue(self, name: str) -> Queue:
        """Return the definition of a queue, or raise BadQueueError."""
        return self._read(lambda unit, opened: opened.definitions(unit).named(name))

    def queues(self) -> list[Queue]:
        """Return the queues by name."""
        return self._read(_by_name)

    def usage(self, queue: str) -> QueueUsage:
        """Return what a queue holds, and its counters."""
        self._release_due(queue)
        now = self._now
        return self._read(lambda unit, opened: looking.usage(unit, opened.definitions(unit).named(queue), now))

    def usages(self, *, consumers: bool = False) -> list[tuple[Queue, QueueUsage]]:
        """Return all queues by name, each with what it holds and its counters, all as they were at one moment.

        With `consumers` those that have subscribed to queues for several are among them, as `queue:consumer`.
        """
        self._attachment.do_housekeeping(now=True)
        now = self._now
        self._run(housekeeping.freshen_all, now)

        def found(unit: Unit, opened: OpenSpace) -> list[tuple[Queue, QueueUsage]]:
            queues = _by_name(unit, opened, consumers=consumers)
            return list(zip(queues, looking.usages(unit, queues, now), strict=True))

        return self._read(found)

    def messages(
        self,
        queue: str,
        *,
        condition: str | Condition | None = None,
        states: Iterable[State] = STORED,
        left_out: Callable[[int], None] = ignore_count,
    ) -> Iterator[MessageInfo]:
        """Yield the messages of a queue that match a condition and are in certain states, without their bodies.

        Ready messages come first, in the order of the queue, then delayed ones, parked ones, and those that a
        transaction holds.
        They are read in batches, so that a long queue takes little memory; a message that moves meanwhile may be
        returned twice or not at all. `left_out` is called with the number of damaged messages that a batch leaves out;
        qcheck finds them.
        """
        restriction = parsed(condition)
        self._release_due(queue)
        for state in states:
            for _, info in listed(self._attachment, queue, state, restriction, left_out):
                yield info

    def given_back_until(self, queue: str) -> int | None:
        """Return until when the last message is unavailable that a consumer gave back; None if there is none.

        It is a time in microseconds since 1970, UTC. The message was tried or snoozed: a delay that its sender asked
        for does not count, nor do parked messages.
        """
        return self._read(looking.given_back_until, queue, self._now)

    def content(self, listed: MessageInfo) -> Message | None:
        """Return a message that `messages` has listed with its body, even one that cannot be dequeued now.

        Returns None if it is gone.
        """
        return self._read(looking.content, listed)

    def history(
        self, queue: str, *, condition: str | Condition | None = None, left_out: Callable[[int], None] = ignore_count
    ) -> Iterator[ConsumedMessage]:
        """Yield the retained messages of a queue, the first consumed first.

        Each says when and by which process it was consumed. `recall` returns one with its body. `left_out` is called
        with the number of damaged messages that a batch leaves out.
        """
        restriction = parsed(condition)
        self._release_due(queue)
        now = self._now

        def part(cursor: Cursor | None) -> Part[ConsumedMessage]:
            return self._read(expiry.history, queue, cursor, _LISTED_AT_A_TIME, restriction, now)

        yield from (consumed for _, consumed in parts_of(part, left_out))

    def recall(self, queue: str, msgid: str) -> Message | None:
        """Return a retained message, which was consumed; None if the queue retains none with this identifier."""
        return self._read(expiry.recall, queue, msgid, self._now)

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
        self._release_due(queue)
        return self._run(purging.purge, queue, restriction, delivery, progress)

    @destructive("queue {handle.name}/{queue}", "damaged messages", outcome="{} deleted")
    def purge_damaged(self, queue: str) -> int:
        """Delete the messages of a queue whose record is missing or cannot be read, and return their number.

        Other messages stay, and the counts of the queue are corrected. Retained messages are checked too; messages that
        a transaction holds are not. Nobody else can use the volume meanwhile.
        """
        return self._run(purging.purge_damaged, queue)

    @destructive("queue {handle.name}/{queue}", "retained messages", outcome="{} deleted", counts="retained message")
    def purge_history(self, queue: str, *, before: datetime | None = None) -> int:
        """Delete the retained messages of a queue that were consumed before a time, or all, and return their number."""
        limit = times.LATEST if before is None else times.from_datetime(before)
        return self._run(purging.purge_retained, queue, limit)

    def report_forwarding(self, told: Sequence[Forwarding], *, whole: bool = False) -> None:
        """Record which queues this process forwards, with statistics; this replaces earlier records of these queues.

        `whole`: the process forwards no other queues, and its records of others are removed. A queue that does not
        exist is skipped. Other processes see the records until this one leaves the queue space or dies. If it was
        taken for dead, it is attached again.
        """
        attachment = self._attachment
        try:
            self._report(told, whole=whole)
        except AbortedError as error:
            attachment.renew(error)
            self._report(told, whole=whole)

    def _report(self, told: Sequence[Forwarding], *, whole: bool) -> None:
        attachment = self._attachment
        owner = attachment.owner
        attachment.volume.write(
            lambda unit: forwarding.report(unit, attachment.opened, owner, told, whole=whole), Purpose.HOLDING
        )

    def consume(
        self,
        queues: str | Iterable[str],
        handler: Callable[..., object],
        *,
        consumer: str | None = None,
        until_empty: bool = False,
        once: bool = False,
        grace: float | timedelta | str = 30.0,
        idle: float | timedelta | str = 30.0,
        total_workers: int = 0,
        metrics: str | int | None = None,
        **options: Unpack[HandlerOptions],
    ) -> None:
        """Call a function with the messages of queues until a stop is requested: an `App` without an app.

        With `consumer` they are those that queues for several have for subscriptions of that name.
        What the function gets, returns and raises means what it does for a handler of an `App`, and so do the options,
        of handlers and of runs (`RunOptions`).
        SIGTERM, SIGINT and SIGHUP request a stop if this is the main thread. A failure of the store is
        raised; an `App` opens it again.
        """
        # What consumes imports this module.
        consuming = importlib.import_module("qmadmin.consuming")
        names = [queues] if isinstance(queues, str) else list(queues)
        if consumer is not None:
            names = [taken_by(queue, consumer) for queue in names]
        ends = {"until_empty": until_empty, "once": once, "grace": grace}
        run = {**ends, "idle": idle, "total_workers": total_workers, "metrics": metrics}
        consuming.consume(self, names, handler, run, options)

    def forwardings(self) -> list[tuple[AttachedProcess, Forwarding]]:
        """Return the processes that forward queues, with their statistics, by the names of the queues.

        A dead process that was not removed yet is among them; it is not `alive`.
        """
        attachment = self._attachment
        return forwarding.forwardings(attachment.volume, attachment.opened.space.id)

    def watch(self) -> QueueWatch:
        """Return a watch that tells, while it is open, when messages arrive on queues that are served continuously."""
        return QueueWatch(self._attachment, self._device.clock)

    def wake(self) -> None:
        """Make the waiting calls of this process look for a message now; a signal handler may call it."""
        self._attachment.volume.wakeups.wake_own()

    def _switch(self, name: str, *, enqueue: bool | None, dequeue: bool | None) -> Queue:
        return self._write(manage_queues.switch, name, enqueue=enqueue, dequeue=dequeue)

    def _wait_until_free(self, name: str, end: float) -> None:
        attachment = self._attachment
        clock = self._device.clock
        while True:
            attachment.do_housekeeping(now=True)
            try:
                self._read(lambda unit, opened: manage_queues.refuse_taken(unit, opened.definitions(unit).queue(name)))
            except InUseError:
                left = end - clock.monotonic()
                if left <= 0:
                    raise
                waiting.pause(attachment.volume, min(left, _STOP_CHECK_SECONDS))
            else:
                return


def _by_name(unit: Unit, opened: OpenSpace, *, consumers: bool = False) -> list[Queue]:
    known = opened.definitions(unit)
    found = {**known.queues, **known.takers} if consumers else known.queues
    return sorted(found.values(), key=lambda queue: queue.name)
