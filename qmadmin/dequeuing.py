"""The calls of applications that dequeue messages or read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from qmadmin.attachment import Attachment, SpaceHandle
from qmadmin.enqueuing import refuse_both
from qmadmin.managing_messages import BrowseCursor, parsed
from qmadmin.subscribing import taken_by
from qmadmin.transacting import current, joined_here
from qmcore import names
from qmcore.acts import dequeue as dequeuing
from qmcore.acts import dequeue_in_transaction, housekeeping, waiting
from qmcore.acts.dequeue import Wanted
from qmcore.checks import check_int, number_of
from qmcore.condition import Condition
from qmcore.errors import InvalidArgumentError, ProtocolError, QueueError, may_pass
from qmcore.message import Message, MessageInfo
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.records import Nothing, Role
from qmcore.selection import FIRST, Selection

if TYPE_CHECKING:
    from qmadmin.connections import ApplicationConnection
    from qmadmin.transacting import Transaction
    from qmcore.port import Unit

T = TypeVar("T")

MANY_MAX = 1_000_000
"""The maximum number of messages that one call dequeues."""


class Dequeuing(SpaceHandle):
    """Calls that take messages off queues, or read them."""

    def dequeue(
        self,
        queue: str,
        *,
        consumer: str | None = None,
        msgid: str | None = None,
        corrid: bytes | str | None = None,
        corrid_like: str | None = None,
        condition: str | Condition | None = None,
        wait: float | timedelta | None = None,
        stop: Callable[[], bool] | None = None,
        transactional: bool = True,
        connection: ApplicationConnection | None = None,
    ) -> Message | None:
        """Take a message off a queue: the first in its order, or the first that matches a selection.

        Outside a transaction the message is gone when the call returns. In a transaction it is gone when the
        transaction commits, and comes back when it rolls back. Returns None if there is no message.

        At most one of `msgid`, `corrid`, `corrid_like` and `condition` selects a message. None of them finds a message
        in another queue, or one that is not available yet.

        `consumer`: of a queue for several, the name of the subscription for which it is taken; others get theirs. The
        name of the queue, a colon and that name in place of the queue's mean the same.
        `msgid`: an identifier, as an enqueue returned it.
        `corrid`: a correlation identifier, bytes or str.
        `corrid_like`: a pattern for correlation identifiers. `%` stands for any characters, `_` for any one, and a
        backslash before either makes it stand for itself.
        `condition`: a text in the grammar of qmadmin-queue(7), such as `priority > 50 AND header.region = 'eu'`.
        `wait`: how many seconds (or a timedelta) to wait for a message; None or 0 does not wait, math.inf waits for
        ever.
        `stop`: a function that is called when the wait has found no message, as after `wake()`, and every second, or
        every ten if many wait; if it returns True, the wait ends without a message.
        `transactional`: False keeps the call out of an open transaction (TPNOTRAN).
        `connection`: a connection of the application, as for `enqueue`; the message is consumed when the transaction on
        it commits. It cannot wait.

        Raises BadQueueError if the queue does not exist or is stopped, BadMessageIdError for a malformed identifier,
        SystemFailureError if as many calls wait as the queue space has actions for, and AbortedError if the
        transaction's time is over.
        """
        selection = FIRST
        if msgid is not None or corrid is not None or corrid_like is not None or condition is not None:
            selection = selected(msgid, corrid, corrid_like, condition)
        name = queue if consumer is None else taken_by(queue, consumer)
        found = self._take(name, selection, 1, wait, transactional=transactional, connection=connection, stop=stop)
        return found[0] if found else None

    def dequeue_many(
        self,
        queue: str,
        limit: int,
        *,
        consumer: str | None = None,
        corrid: bytes | str | None = None,
        corrid_like: str | None = None,
        condition: str | Condition | None = None,
        wait: float | timedelta | None = None,
        transactional: bool = True,
        connection: ApplicationConnection | None = None,
    ) -> list[Message]:
        """Take up to `limit` messages off a queue at once, in its order; fewer, or none, is not an error.

        They are taken together or not at all. In a queue that groups messages they belong to one group. `wait` applies
        to the first of them. The other arguments, and the errors, are those of `dequeue`.
        """
        limit = check_int(limit, "number of messages to dequeue", 1, MANY_MAX)
        selection = selected(None, corrid, corrid_like, condition)
        name = queue if consumer is None else taken_by(queue, consumer)
        return self._take(name, selection, limit, wait, transactional=transactional, connection=connection)

    def remove(
        self,
        queue: str,
        *,
        consumer: str | None = None,
        msgid: str | None = None,
        corrid: bytes | str | None = None,
        corrid_like: str | None = None,
        condition: str | Condition | None = None,
        wait: float | timedelta | None = None,
        transactional: bool = True,
        connection: ApplicationConnection | None = None,
    ) -> MessageInfo | None:
        """Take a message off a queue as `dequeue` does, without reading its body, which may have been peeked at."""
        selection = selected(msgid, corrid, corrid_like, condition)
        name = queue if consumer is None else taken_by(queue, consumer)
        found = self._take(name, selection, 1, wait, transactional=transactional, connection=connection, body=False)
        return found[0] if found else None

    def lock(
        self,
        queue: str,
        *,
        consumer: str | None = None,
        msgid: str | None = None,
        corrid: bytes | str | None = None,
        corrid_like: str | None = None,
        condition: str | Condition | None = None,
        wait: float | timedelta | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Message | None:
        """Return a message and lock it against all others until the transaction ends.

        The transaction may then dequeue or remove it, however it selects it. Otherwise the message stays in its place
        in the queue when the transaction ends, which does not count as a try. Another call locks the next message; in a
        queue that groups messages the first of the next group, because the whole group is locked. Raises ProtocolError
        outside a transaction, and as `dequeue` does.
        """
        if current(self._device, self.name) is None:
            raise ProtocolError(
                "a message can only be locked inside a transaction, which holds the lock",
                hint="Call it inside `with space.transaction():`, or peek.",
            )
        selection = selected(msgid, corrid, corrid_like, condition)
        name = queue if consumer is None else taken_by(queue, consumer)
        found = self._take(name, selection, 1, wait, role=Role.LOCKED, stop=stop)
        return found[0] if found else None

    def peek(
        self,
        queue: str,
        *,
        consumer: str | None = None,
        msgid: str | None = None,
        corrid: bytes | str | None = None,
        corrid_like: str | None = None,
        condition: str | Condition | None = None,
        wait: float | timedelta | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Message | None:
        """Return a message and leave it in the queue; it may be gone the next moment.

        It never belongs to a transaction. The arguments, and the errors, are those of `dequeue`.
        """
        selection = selected(msgid, corrid, corrid_like, condition)
        name = queue if consumer is None else taken_by(queue, consumer)

        def attempt(attachment: Attachment) -> Message | Nothing:
            housekeeping.freshen_now(attachment.volume, attachment.opened, name, self._device.clock.now())
            return attachment.volume.read(lambda unit: dequeuing.peek(unit, attachment.opened, name, selection))

        found = self._wait_for(attempt, seconds_of(wait), stop)
        return None if isinstance(found, Nothing) else found

    def listen(self, queues: Sequence[str], *, wait: float | timedelta | None = None) -> str | None:
        """Return the first of the queues that has a message to dequeue, without taking it.

        Queues that come first in the list are preferred. Returns None if none had a message in time. Raises as
        `dequeue` does.
        """
        if isinstance(queues, str) or not queues:
            raise InvalidArgumentError(f"listen takes a list of one or more queue names, got {queues!r}")

        def look(unit: Unit, attachment: Attachment) -> str | Nothing:
            return dequeuing.listen(unit, attachment.opened, queues, self._device.clock.now())

        def attempt(attachment: Attachment) -> str | Nothing:
            return attachment.volume.write(lambda unit: look(unit, attachment), Purpose.TIDY)

        found = self._wait_for(attempt, seconds_of(wait))
        return None if isinstance(found, Nothing) else found

    def browse(
        self, queue: str, *, consumer: str | None = None, condition: str | Condition | None = None
    ) -> BrowseCursor:
        """Return a cursor over the messages that can be dequeued from a queue now, in its order; all stay in the queue.

        Messages that arrive later are not shown, and messages that are gone when their turn comes are skipped.
        """
        name = queue if consumer is None else taken_by(queue, consumer)
        self._release_due(name)
        return BrowseCursor(self._attachment, name, parsed(condition), self._check_open)

    def _take(
        self,
        queue: str,
        selection: Selection,
        limit: int,
        wait: float | timedelta | None,
        *,
        transactional: bool = True,
        connection: ApplicationConnection | None = None,
        body: bool = True,
        role: Role = Role.DEQUEUED,
        stop: Callable[[], bool] | None = None,
    ) -> list[Message]:
        transaction = current(self._device, self.name) if transactional and joined_here() else None
        seconds = 0.0 if wait is None else seconds_of(wait)
        wanted = Wanted(queue, selection, limit, body, role=role)
        if connection is not None:
            refuse_both(transaction)
        elif transaction is not None and transaction.databases is not None:
            connection = transaction.connection(self._attachment)
        if connection is not None:
            return self._take_on(connection, wanted, seconds)
        if transaction is None:
            attempt = partial(_take_alone, wanted)
        else:
            seconds = seconds and min(seconds, transaction.remaining())
            attempt = partial(self._take_in, transaction, wanted, seconds > 0)
        if seconds <= 0:
            found = self._look(attempt)
        else:
            found = self._wait_for(attempt, seconds, stop, in_turn=selection is FIRST)
        return [] if isinstance(found, Nothing) else found

    def _take_in(
        self, transaction: Transaction, wanted: Wanted, waits: bool, attachment: Attachment
    ) -> list[Message] | Nothing:
        if attachment.owed.left:
            attachment.owed.finish(wanted.queue)
        branch = transaction.branch(attachment)
        try:
            return dequeue_in_transaction.dequeue(attachment.volume, branch, wanted)
        except BaseException as error:
            if not (waits and isinstance(error, QueueError) and may_pass(error)):
                # A wait goes on when the server is back, or not busy any more: nothing was done.
                transaction.note(error)
            attachment.renew(error)
            raise

    def _take_on(self, connection: ApplicationConnection, wanted: Wanted, seconds: float) -> list[Message]:
        """Take messages in the application's own transaction."""
        if seconds > 0:
            raise InvalidArgumentError(
                "a dequeue in a transaction of the application cannot wait: it would keep all others from writing",
                hint="Use listen() first.",
            )
        attachment = self._attachment
        attachment.do_housekeeping(connection=connection)

        def prepared(unit: Unit) -> None:
            found = attachment.opened.definitions(unit).taker(wanted.queue)
            if found.definition.delivery is Delivery.NONPERSIST and not unit.commits_memory:
                raise InvalidArgumentError(
                    f"queue {wanted.queue!r} is for non-persistent messages, which cannot take part in a transaction of"
                    f" the application",
                    hint="Dequeue outside that transaction.",
                    queue=wanted.queue,
                )
            attachment.owed.finish_on(unit, wanted.queue)

        known = attachment.opened.known
        queue = None if known is None else known.takers.get(wanted.queue)
        if queue is None or queue.definition.delivery is Delivery.NONPERSIST or attachment.owed.left:
            attachment.volume.write_on(connection, prepared)
        result = dequeuing.dequeue(attachment.volume, attachment.opened, wanted, connection)
        while isinstance(result, Nothing):
            if not result.unfinished:
                return []
            result = dequeuing.dequeue(attachment.volume, attachment.opened, wanted, connection)
        return result

    def _wait_for(
        self,
        attempt: Callable[[Attachment], T | Nothing],
        seconds: float,
        stop: Callable[[], bool] | None = None,
        *,
        in_turn: bool = False,
    ) -> T | Nothing:
        if seconds <= 0:
            return self._look(attempt)
        attachment = self._attachment

        def looked_after() -> T | Nothing:
            return self._look(attempt)

        return waiting.wait_for(
            looked_after,
            attachment.volume,
            attachment.opened,
            self._device.clock,
            seconds,
            stop,
            do_housekeeping=lambda: attachment.do_housekeeping(waits=True, unchanged=True),
            in_turn=in_turn,
        )

    def _look(self, attempt: Callable[[Attachment], T | Nothing]) -> T | Nothing:
        """Try until everything due is released, and once more after cleaning up after dead processes."""
        looked_after = False
        while True:
            # A waiting call does so too: a dead process may hold the expected message in another queue.
            attachment = self._ready()
            found = attempt(attachment)
            if not isinstance(found, Nothing):
                return found
            if found.unfinished:
                continue
            if looked_after or not found.held:
                return found
            # The holder of the missing message may have died.
            attachment.do_housekeeping(now=True)
            looked_after = True


def _take_alone(wanted: Wanted, attachment: Attachment) -> list[Message] | Nothing:
    """Take messages that belong to no transaction of ours."""
    if attachment.owed.left:
        attachment.owed.finish(wanted.queue)
    return dequeuing.dequeue(attachment.volume, attachment.opened, wanted)


def selected(
    msgid: str | None, corrid: bytes | str | None, corrid_like: str | None, condition: str | Condition | None
) -> Selection:
    """Return the selection of a caller."""
    if msgid is None and corrid is None and corrid_like is None and condition is None:
        return FIRST
    if corrid_like is not None:
        _check_pattern(corrid_like)
    return Selection(msgid, None if corrid is None else names.correlation_id(corrid), corrid_like, parsed(condition))


def _check_pattern(pattern: object) -> None:
    if not isinstance(pattern, str):
        raise InvalidArgumentError(f"the pattern of a correlation identifier must be a str, got {pattern!r}")
    quoted = pattern.replace("'", "''")
    parsed(f"corrid LIKE '{quoted}'")


def seconds_of(wait: object) -> float:
    """Return how long to wait; None is not at all."""
    if wait is None:
        return 0.0
    if isinstance(wait, timedelta):
        wait = wait.total_seconds()
    seconds = wait if isinstance(wait, (int, float)) else number_of(wait)
    # NaN is not 0 or more either.
    if seconds is not None and seconds >= 0:
        return float(seconds)
    raise InvalidArgumentError(f"the seconds to wait must be a number of 0 or more, or a timedelta, got {wait!r}")
