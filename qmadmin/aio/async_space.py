"""An open queue space, as the tasks of an event loop use it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from qmadmin import space
from qmadmin.aio.awaited_calls import joins, waits
from qmadmin.aio.face import OpenFace, Property, awaited, iterated
from qmadmin.aio.task_transactions import Transaction
from qmcore.message import PRIORITY_DEFAULT, EnqueueControl, Message, MessageInfo

if TYPE_CHECKING:
    from qmadmin.aio.async_device import Device
    from qmadmin.bodies import Body
    from qmadmin.connections import AsyncApplicationConnection
    from qmcore import message
    from qmcore.condition import Condition
    from qmcore.space import SpaceDefinition
    from qmcore.xid import Xid

T = TypeVar("T")
_Sync = space.QueueSpace


class QueueSpace(OpenFace[space.QueueSpace]):
    """An open queue space. Its calls are those of `qmadmin.QueueSpace`, awaited; closing it ends those that wait.

    Calls inside `async with space.transaction():` belong to that transaction; others take effect at once. A call that
    raises CancelledError has done nothing; one whose effect has come first returns, and the cancellation takes effect
    at the next await.
    """

    def __init__(self, device: Device, synchronous: space.QueueSpace) -> None:
        self.device = device
        self.threads = device.threads
        self.synchronous = synchronous
        self.name = synchronous.name
        self.waits = device.waits_of(self.name)

    @property
    def definition(self) -> Property[SpaceDefinition]:
        """The present definition of the queue space: `await` it."""
        return Property(lambda: self.do(lambda synchronous: synchronous.definition))

    async def do(self, act: Callable[[space.QueueSpace], T]) -> T:
        """Have a thread do something with the queue space, and return its result."""
        return await self.threads.do(functools.partial(act, self.synchronous))

    def transaction(self, timeout: float | timedelta | None = None) -> Transaction:
        """Return a transaction, to be used as `async with space.transaction() as tx:`.

        It commits at the end of the block and rolls back on an exception. After `timeout` seconds it is rolled back, by
        itself or by others; None means no limit. Transactions do not nest (ProtocolError).
        """
        return Transaction((self,), functools.partial(self.synchronous.transaction, timeout))

    async def close(self) -> None:
        """Close the queue space; its waiting calls end with NotOpenError."""
        if not self.threads.is_closed:
            await self.threads.do(self.synchronous.close, withdraws=False)
            self.waits.wake_all()

    def wake(self) -> None:
        """Make the waiting calls of this process look for a message now."""
        self.synchronous.wake()

    # ---- messages ----------------------------------------------------------------------------------------------------
    # Their bodies never run: the decorator replaces them. A type checker cannot derive a signature with one more
    # parameter, and wants a body that does not return.

    @joins(_Sync.enqueue)
    async def enqueue(
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
        error_queue: str | None = None,
        urcode: int = 0,
        persistent: bool | None = None,
        reply_persistent: bool | None = None,
        headers: Mapping[str, str] | None = None,
        type: str | None = None,  # noqa: A002 - it is what the field is called everywhere else
        subtype: str = "",
        top: bool = False,
        before: str | None = None,
        topic: str | None = None,
        transactional: bool = True,
        transaction: Transaction | None = None,
        connection: AsyncApplicationConnection | None = None,
    ) -> str:
        """Put a message on a queue and return its identifier, 32 characters."""
        raise NotImplementedError

    @joins(_Sync.enqueue_many)
    async def enqueue_many(
        self,
        queue: str,
        bodies: Iterable[Body],
        control: EnqueueControl | None = None,
        *,
        transactional: bool = True,
        transaction: Transaction | None = None,
        connection: AsyncApplicationConnection | None = None,
    ) -> list[str]:
        """Put messages on a queue, all or none, and return their identifiers in the same order."""
        raise NotImplementedError

    @joins(_Sync.put)
    async def put(
        self,
        queue: str,
        body: message.Body,
        control: EnqueueControl,
        *,
        transactional: bool = True,
        transaction: Transaction | None = None,
        connection: AsyncApplicationConnection | None = None,
    ) -> str:
        """Put a message on a queue, with its control information as one value."""
        raise NotImplementedError

    @joins(_Sync.put_many)
    async def put_many(
        self,
        items: Iterable[tuple[str, message.Body, EnqueueControl]],
        *,
        transactional: bool = True,
        transaction: Transaction | None = None,
        connection: AsyncApplicationConnection | None = None,
    ) -> list[str]:
        """Put messages on queues, each with its control information, all or none."""
        raise NotImplementedError

    @waits(_Sync.dequeue)
    async def dequeue(
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
        transaction: Transaction | None = None,
        connection: AsyncApplicationConnection | None = None,
    ) -> Message | None:
        """Take a message off a queue: the first in its order, or the first that matches a selection."""
        raise NotImplementedError

    @waits(_Sync.dequeue_many)
    async def dequeue_many(
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
        transaction: Transaction | None = None,
        connection: AsyncApplicationConnection | None = None,
    ) -> list[Message]:
        """Take up to `limit` messages off a queue at once, in its order."""
        raise NotImplementedError

    @waits(_Sync.remove)
    async def remove(
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
        transaction: Transaction | None = None,
        connection: AsyncApplicationConnection | None = None,
    ) -> MessageInfo | None:
        """Take a message off a queue without reading its body."""
        raise NotImplementedError

    @waits(_Sync.lock)
    async def lock(
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
        transaction: Transaction | None = None,
    ) -> Message | None:
        """Return a message and lock it against all others until the transaction ends."""
        raise NotImplementedError

    @waits(_Sync.peek, chooses=True)
    async def peek(
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
        """Return a message and leave it in the queue."""
        raise NotImplementedError

    @waits(_Sync.listen, chooses=True)
    async def listen(self, queues: Sequence[str], *, wait: float | timedelta | None = None) -> str | None:
        """Return the first of the queues that has a message to dequeue, without taking it."""
        raise NotImplementedError

    browse = iterated(_Sync.browse, ahead=1)
    messages = iterated(_Sync.messages)
    history = iterated(_Sync.history)
    content = awaited(_Sync.content)
    recall = awaited(_Sync.recall)
    count = awaited(_Sync.count)
    change_priority = awaited(_Sync.change_priority)
    change_availability = awaited(_Sync.change_availability)
    change_expiry = awaited(_Sync.change_expiry)
    move = awaited(_Sync.move)
    requeue = awaited(_Sync.requeue)
    unpark = awaited(_Sync.unpark)
    purge = awaited(_Sync.purge)
    purge_damaged = awaited(_Sync.purge_damaged)
    purge_history = awaited(_Sync.purge_history)
    refuse_held = awaited(_Sync.refuse_held)
    refuse_end = awaited(_Sync.refuse_end)

    # ---- administration ----------------------------------------------------------------------------------------------

    create_queue = awaited(_Sync.create_queue)
    change_queue = awaited(_Sync.change_queue)
    destroy_queue = awaited(_Sync.destroy_queue)
    start_queue = awaited(_Sync.start_queue)
    stop_queue = awaited(_Sync.stop_queue)
    queue = awaited(_Sync.queue)
    queues = awaited(_Sync.queues)
    usage = awaited(_Sync.usage)
    usages = awaited(_Sync.usages)
    given_back_until = awaited(_Sync.given_back_until)
    subscribe = awaited(_Sync.subscribe)
    change_subscription = awaited(_Sync.change_subscription)
    unsubscribe = awaited(_Sync.unsubscribe)
    subscriptions = awaited(_Sync.subscriptions)
    create_schedule = awaited(_Sync.create_schedule)
    change_schedule = awaited(_Sync.change_schedule)
    pause_schedule = awaited(_Sync.pause_schedule)
    resume_schedule = awaited(_Sync.resume_schedule)
    delete_schedule = awaited(_Sync.delete_schedule)
    schedule = awaited(_Sync.schedule)
    schedules = awaited(_Sync.schedules)
    transactions = awaited(_Sync.transactions)
    decisions = awaited(_Sync.decisions)
    abort_transaction = awaited(_Sync.abort_transaction)
    commit_transaction = awaited(_Sync.commit_transaction)
    tpc_recover = awaited(_Sync.tpc_recover)
    tpc_forget = awaited(_Sync.tpc_forget)

    def xid(self, format_id: int, gtrid: str | bytes, bqual: str | bytes = b"") -> Xid:
        """Return an identifier for a branch: format, global transaction, branch qualifier, as X/Open has them."""
        return self.synchronous.xid(format_id, gtrid, bqual)

    forwardings = awaited(_Sync.forwardings)
    report_forwarding = awaited(_Sync.report_forwarding)
