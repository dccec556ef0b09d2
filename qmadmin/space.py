"""An open queue space, as applications use it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from qmadmin.transaction import Transaction, current, refuse_nesting
from qmcore import names, times
from qmcore.acts import dequeue as dequeuing
from qmcore.acts import enqueue as enqueuing
from qmcore.acts import queues, transactions, upkeep, waiting
from qmcore.acts.dequeue import FIRST, Nothing, Selection
from qmcore.acts.enqueue import Outgoing
from qmcore.errors import InvalidArgumentError, NotOpenError
from qmcore.message import PLAIN_CONTROL, PRIORITY_DEFAULT, EnqueueControl, Message, MessageInfo, State
from qmcore.queue import Delivery, Queue, QueueDefinition, QueueUsage
from qmcore.space import SpaceDefinition

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmadmin.device import Attachment, Device
    from qmcore.port import Cursor, Listing, Unit

T = TypeVar("T")

_LISTED_AT_A_TIME = 500

Body = bytes | bytearray | memoryview | str | None


class QueueSpace:
    """An open queue space. Safe for several threads; closing it, or its device, ends waiting calls.

    Calls inside `with space.transaction():` belong to that transaction; others take effect at once.
    """

    def __init__(self, device: Device, name: str, role: str) -> None:
        self._device = device
        self._role = role
        self._closed = False
        self.name = names.space_name(name)
        device.use(self.name, role)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<QueueSpace {self.name!r} of {self._device.path!r}{' closed' if self._closed else ''}>"

    def close(self) -> None:
        """Close the queue space; the process is detached from it when nothing in it has the space open any more."""
        if not self._closed:
            self._closed = True
            self._device.drop(self.name)

    @property
    def definition(self) -> SpaceDefinition:
        """What is defined about the queue space now."""
        return self._read(lambda unit: self._attachment.opened.definitions(unit).space.definition)

    def enqueue(
        self,
        queue: str,
        body: Body,
        *,
        priority: int = PRIORITY_DEFAULT,
        corrid: bytes | str | None = None,
        delay: float | timedelta | None = None,
        available_at: datetime | None = None,
        expires_in: float | timedelta | None = None,
        expires_at: datetime | None = None,
        reply_queue: str | None = None,
        failure_queue: str | None = None,
        urcode: int = 0,
        persistent: bool | None = None,
        headers: Mapping[str, str] | None = None,
        transactional: bool = True,
    ) -> str:
        """Put a message on a queue and return its identifier, 32 characters.

        When the call returns outside of a transaction, the message is on the disk. Inside of one it is enqueued when
        the transaction commits.

        `body`: bytes, or a str, which is kept as UTF-8 and of type STRING; None is a message without a body, which is
        not the same as an empty one. At most 64 MiB.
        `priority`: 1 to 100, the higher the sooner in a queue that is ordered by priority.
        `corrid`: at most 32 bytes by which a reply finds its request; a str is taken as UTF-8.
        `delay` (seconds or timedelta) or `available_at` (aware datetime): before that nobody can dequeue the message.
        `expires_in` (seconds, timedelta, or math.inf for never) or `expires_at`: then the message is removed.
        Without either, the default expiration of the queue holds. Spans count from the end of the enqueue, inside a
        transaction from its commit.
        `reply_queue`, `failure_queue`: where whoever works on the message puts the answer.
        `urcode`: the user return code, 64 bits. `headers`: names and values, both str.
        `persistent`: None is what the queue says. False keeps the message in memory only.
        `transactional`: False keeps the message out of an open transaction (TPNOTRAN).

        Raises BadQueueError, NoSpaceError (its `resource` says what ran out), InvalidArgumentError,
        OperatingSystemError for a full disk, and AbortedError where the transaction's time is over.
        """
        data, kind = _bytes_of(body)
        if (
            priority == PRIORITY_DEFAULT
            and all(option is None for option in (corrid, delay, available_at, expires_in, expires_at))
            and all(option is None for option in (reply_queue, failure_queue, persistent, headers))
            and urcode == 0
            and kind == PLAIN_CONTROL.type
        ):
            control = PLAIN_CONTROL
        else:
            control = EnqueueControl(
                priority=priority,
                corrid=None if corrid is None else names.correlation_id(corrid),
                delay=None if delay is None else times.span(delay, "delay"),
                available_us=None if available_at is None else times.from_datetime(available_at),
                lifetime=None if expires_in in (None, math.inf) else times.span(expires_in, "expiry"),
                expires_us=None if expires_at is None else times.from_datetime(expires_at),
                never_expires=expires_in == math.inf,
                reply_queue=reply_queue,
                failure_queue=failure_queue,
                urcode=urcode,
                delivery=_delivery(persistent),
                headers=_checked_headers(headers),
                type=kind,
            )
        return self.put(queue, data, control, transactional=transactional)

    def put(self, queue: str, body: bytes | None, control: EnqueueControl, *, transactional: bool = True) -> str:
        """Put a message on a queue, as `enqueue` does, its control information given as one value."""
        attachment = self._attachment
        attachment.look_after()
        outgoing = enqueuing.prepare(queue, body, control, self._device.info.page_size)
        transaction = current(self._device, self.name) if transactional else None
        if transaction is not None:
            return self._put_in(transaction, attachment, outgoing)
        now = self._device.clock.now()
        return enqueuing.enqueue(attachment.volume, attachment.opened, outgoing, now)

    def dequeue(
        self,
        queue: str,
        *,
        msgid: str | None = None,
        corrid: bytes | str | None = None,
        wait: float | None = None,
        transactional: bool = True,
    ) -> Message | None:
        """Take a message off a queue: the first in its order, or the one with this identifier or correlation id.

        Outside of a transaction the message is gone when the call returns. Inside of one it is gone when the
        transaction commits, and comes back when it rolls back. `wait`: how many seconds to wait for a message;
        None or 0 does not wait, math.inf waits for ever. Returns None if there was none.

        Raises BadQueueError, BadMessageIdError for an identifier that is none, and AbortedError where the
        transaction's time is over.
        """
        attachment = self._attachment
        attachment.look_after()
        selection = _selection(msgid, corrid)
        transaction = current(self._device, self.name) if transactional else None
        seconds = _checked_wait(wait)
        if transaction is not None:
            seconds = min(seconds, transaction.remaining())

        def attempt() -> Message | Nothing:
            return self._take(transaction, queue, selection)

        if seconds <= 0:
            found = attempt()
        else:
            found = waiting.wait_for(attempt, attachment.volume, attachment.owner, self._device.clock, seconds)
        return None if isinstance(found, Nothing) else found

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

        Raises InvalidArgumentError where the name is taken, NoSpaceError where the queue space has all its queues.
        """
        attachment = self._attachment
        now = self._device.clock.now()
        return attachment.volume.write(lambda unit: queues.create(unit, attachment.opened, definition, now))

    def destroy_queue(self, name: str, *, purge: bool = False, force: bool = False) -> None:
        """Destroy a queue.

        Raises InUseError while it has messages, unless `purge` or `force`; while other processes are attached to the
        queue space, unless `force`; and while a transaction holds one of its messages.
        """
        self._freshen(name)
        attachment = self._attachment
        me, now = attachment.owner, self._device.clock.now()
        attachment.volume.write(
            lambda unit: queues.destroy(unit, attachment.opened, name, me, now, purge=purge, force=force)
        )

    def queue(self, name: str) -> Queue:
        """Return what is defined about a queue, or raise BadQueueError."""
        return self._read(lambda unit: self._attachment.opened.definitions(unit).queue(name))

    def queues(self) -> list[Queue]:
        """Return the queues by name."""
        return self._read(lambda unit: list(self._attachment.opened.definitions(unit).queues.values()))

    def usage(self, queue: str) -> QueueUsage:
        """Return what a queue holds and what went through it."""
        self._freshen(queue)
        now = self._device.clock.now()
        return self._read(lambda unit: unit.usage(self._attachment.opened.definitions(unit).queue(queue), now))

    def messages(self, queue: str) -> Iterator[MessageInfo]:
        """Yield the messages of a queue without their bodies.

        Ready ones come in the order of the queue, then those that are kept back by time, then those that a
        transaction holds. They are read a step at a time, so that a long queue takes little memory, and a message
        that moves meanwhile may be seen twice or not at all.
        """
        self._freshen(queue)
        for state in State:
            cursor: Cursor | None = None
            while part := self._read(lambda unit, at=cursor, of=state: self._list(unit, queue, of, at)):  # type: ignore[misc]
                yield from (message for _, message in part)
                cursor = part[-1][0]

    def _freshen(self, queue: str) -> None:
        """Do what is due in the queue, so that what is told of it holds now."""
        attachment = self._attachment
        attachment.look_after(now=True)
        upkeep.freshen_now(attachment.volume, attachment.opened, queue, self._device.clock.now())

    def _list(self, unit: Unit, queue: str, state: State, after: Cursor | None) -> Listing:
        known = self._attachment.opened.definitions(unit)
        return unit.messages(known.space, known.queue(queue), state, after, _LISTED_AT_A_TIME)

    def wait_for_any(self, queue_names: list[str], seconds: float, ready: Callable[[], bool]) -> None:
        """Sleep until a message may have come to one of the queues, `ready` says so, or the seconds are over."""
        attachment = self._attachment
        ids = self._read(lambda unit: [attachment.opened.definitions(unit).queue(name).id for name in queue_names])
        waiting.sleep_until_any(attachment.volume, attachment.owner, self._device.clock, ids, seconds, ready)

    def wake(self) -> None:
        """Let the waits of this process look again before their time; a signal handler may call it."""
        self._attachment.volume.wake()

    def _take(self, transaction: Transaction | None, queue: str, selection: Selection) -> Message | Nothing:
        looked_after = False
        while True:
            self._check_open()
            attachment = self._attachment
            # A waiter, too: what it waits for may be what a process that died holds in another queue.
            attachment.look_after()
            found = self._take_once(transaction, attachment, queue, selection)
            if not isinstance(found, Nothing):
                return found
            if found.unfinished:
                continue
            if looked_after or not found.held:
                return found
            # Whoever holds what is missing may have died.
            attachment.look_after(now=True)
            looked_after = True

    def _take_once(
        self, transaction: Transaction | None, attachment: Attachment, queue: str, selection: Selection
    ) -> Message | Nothing:
        now = self._device.clock.now()
        if transaction is None:
            return attachment.volume.write(
                lambda unit: dequeuing.dequeue(unit, attachment.opened, queue, selection, now)
            )
        branch = transaction.branch(attachment)
        try:
            return transactions.dequeue(attachment.volume, branch, queue, selection, now)
        except BaseException as error:
            transaction.note(error)
            attachment.renew(error)
            raise

    def _put_in(self, transaction: Transaction, attachment: Attachment, outgoing: Outgoing) -> str:
        branch = transaction.branch(attachment)
        try:
            return transactions.enqueue(attachment.volume, branch, outgoing, self._device.clock.now())
        except BaseException as error:
            transaction.note(error)
            attachment.renew(error)
            raise

    def _read(self, work: Callable[[Unit], T]) -> T:
        return self._attachment.volume.read(work)

    @property
    def _attachment(self) -> Attachment:
        self._check_open()
        return self._device.attachment(self.name, self._role)

    def _check_open(self) -> None:
        if self._closed:
            raise NotOpenError(f"queue space {self.name!r} is closed", space=self.name)


def _bytes_of(body: Body) -> tuple[bytes | None, str]:
    if isinstance(body, bytes) or body is None:
        return body, "CARRAY"
    if isinstance(body, str):
        return names.encoded(body, "body"), "STRING"
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body), "CARRAY"
    raise InvalidArgumentError(
        f"the body must be bytes, str or None, got {type(body).__name__}", hint="Encode it, for example as JSON."
    )


def _checked_wait(wait: object) -> float:
    if wait is None:
        return 0.0
    # Not a number is not from 0 on either.
    if isinstance(wait, (int, float)) and wait >= 0:
        return float(wait)
    raise InvalidArgumentError(f"the seconds to wait must be a number from 0 on, got {wait!r}")


def _selection(msgid: str | None, corrid: bytes | str | None) -> Selection:
    if msgid is None and corrid is None:
        return FIRST
    if msgid is not None and corrid is not None:
        raise InvalidArgumentError("a dequeue takes a message identifier or a correlation identifier, not both")
    return Selection(msgid, None if corrid is None else names.correlation_id(corrid))


def _delivery(persistent: bool | None) -> Delivery | None:
    if persistent is None:
        return None
    return Delivery.PERSIST if persistent else Delivery.NONPERSIST


def _checked_headers(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if headers is not None and not isinstance(headers, Mapping):
        raise InvalidArgumentError(f"the headers must be a mapping of names to values, got {headers!r}")
    items: Iterable[tuple[object, object]] = (headers or {}).items()
    for name, value in items:
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"the header {name!r} and its value must both be str, got {value!r}")
    return headers
