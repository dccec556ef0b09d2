"""A transaction of a task, and which one an awaited call belongs to."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from qmadmin import transacting
from qmadmin.aio.face import Face, awaited
from qmadmin.aio.threads import something
from qmcore.callers import Ask, TaskConnection
from qmcore.errors import ProtocolError

if TYPE_CHECKING:
    from qmadmin.aio.async_device import Device
    from qmadmin.aio.async_space import QueueSpace

    Resource: TypeAlias = QueueSpace | Device

T = TypeVar("T")

_open: contextvars.ContextVar[tuple[Transaction, ...]] = contextvars.ContextVar("qmadmin_aio", default=())
"""The transactions that are open in this context. A task that is begun inside has those of its parent, and for ever."""


class Transaction(Face[transacting.Transaction]):
    """A logical unit of work of a task: `async with space.transaction():`.

    Calls inside the block belong to it. It commits at the end of the block, and rolls back on an exception, which
    counts as a try of the messages that it dequeued. A cancellation is none, unless the transaction's time is over.
    A task that is begun inside the block is refused in it, unless its calls are given `transaction=`; calls at the same
    time are done one after the other.
    """

    def __init__(
        self,
        resources: Sequence[Resource],
        begin: Callable[[], transacting.Transaction],
        connections: Sequence[TaskConnection] = (),
    ) -> None:
        # Not that of a face, which has been begun already.
        self._resources = resources
        self._begin = begin
        self._connections = connections
        """Those of the application that take part, whose event loop is this one."""
        self._threads = resources[0].threads
        self._begun: transacting.Transaction | None = None
        self._task: asyncio.Task[object] | None = None
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return "<Transaction never begun>" if self._begun is None else repr(self._begun)

    async def __aenter__(self) -> Self:
        if self._begun is not None:
            raise ProtocolError("a transaction is begun once", hint="Ask the queue space for another one.")
        for resource in self._resources:
            refuse_nesting(resource)
        self._begun = await self._work(self._begin, something)
        self._task = asyncio.current_task()
        _open.set((*_open.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open.set(tuple(one for one in _open.get() if one is not self))
        if error is not None and self._threads.is_closed:
            # It was rolled back with its device.
            return
        if isinstance(error, asyncio.CancelledError):
            await self._end(_cancelled)
        else:
            await self._end(lambda begun: begun.__exit__(kind, error, trace))

    @property
    def active(self) -> bool:
        """Whether the transaction has begun, and has neither been committed nor rolled back."""
        return self._begun is not None and self._begun.active

    @property
    def complete(self) -> bool:
        """Whether it is committed on all volumes that have a part in it, of which one may follow the others later."""
        return self._begun is not None and self._begun.complete

    commit = awaited(transacting.Transaction.commit)
    rollback = awaited(transacting.Transaction.rollback)
    give_back = awaited(transacting.Transaction.give_back)

    def remaining(self) -> float:
        """Return the seconds until the transaction's time is over; infinity if it has no limit."""
        return self._usable().remaining()

    def covers(self, space: Resource) -> bool:
        """Return whether the transaction is for a queue space, or any of a device, through whichever handle."""
        device, name = _covered(space)
        return any(
            its_device is device and (None in (name, its_name) or its_name == name)
            for its_device, its_name in map(_covered, self._resources)
        )

    def is_of(self, task: asyncio.Task[object] | None) -> bool:
        """Return whether it was a task that began the transaction."""
        return self._task is task

    async def call(self, call: Callable[[], T], is_nothing: Callable[[T], bool]) -> T:
        """Have a thread call a function as part of the transaction, and return its result."""

        def joined(begun: transacting.Transaction) -> T:
            begun.join_context()
            try:
                return call()
            finally:
                begun.leave_context()

        async with self._turn:
            return await self._use(joined, is_nothing)

    async def do(self, act: Callable[[transacting.Transaction], T]) -> T:
        """Have a thread do something with the transaction, and return its result."""
        async with self._turn:
            return await self._use(act, shields=True)

    async def _end(self, act: Callable[[transacting.Transaction], None]) -> None:
        """Do the same, and let no cancellation keep it from being done."""
        is_cancelled = False
        while True:
            try:
                await self._turn.acquire()
                break
            except asyncio.CancelledError:
                is_cancelled = True
        try:
            await self._use(act, withdraws=False, shields=True)
        finally:
            self._turn.release()
            if is_cancelled:
                self._threads.cancel_later()

    async def _use(
        self,
        act: Callable[[transacting.Transaction], T],
        is_nothing: Callable[[T], bool] = something,
        *,
        withdraws: bool = True,
        shields: bool = False,
    ) -> T:
        begun = self._usable()

        def here() -> T:
            # One call at a time uses it, in whichever thread.
            begun.thread = threading.get_ident()
            return act(begun)

        return await self._work(here, is_nothing, withdraws=withdraws, shields=shields)

    async def _work(
        self, call: Callable[[], T], is_nothing: Callable[[T], bool], *, withdraws: bool = True, shields: bool = False
    ) -> T:
        """Have a thread do it, which has this task await what is done on connections, where any take part."""
        if not self._connections:
            return await self._threads.do(call, is_nothing, withdraws=withdraws)

        def asking(ask: Ask[object]) -> T:
            for each in self._connections:
                each.ask = ask
            return call()

        return await self._threads.do_asking(asking, is_nothing, withdraws=withdraws, shields=shields)

    def _usable(self) -> transacting.Transaction:
        if self._begun is None:
            raise ProtocolError("the transaction was never begun", hint="Use `async with space.transaction():`.")
        return self._begun


def _cancelled(begun: transacting.Transaction) -> None:
    if begun.active:
        is_late = not begun.remaining()
        begun.rollback("its time is over" if is_late else "cancelled", counts=is_late)


def current(space: QueueSpace) -> Transaction | None:
    """Return the transaction that a call of this task on a queue space belongs to.

    Raises ProtocolError if it is that of another task, inside which this one was begun.
    """
    for joined in reversed(_open.get()):
        if joined.covers(space):
            if joined.is_of(asyncio.current_task()):
                return joined
            raise ProtocolError(
                "the transaction belongs to another task, inside which this one was begun",
                hint="Give the call transaction=, or keep it out with transactional=False.",
            )
    return None


def refuse_nesting(resource: Resource) -> None:
    """Refuse a transaction inside another one on the same queue space."""
    for joined in _open.get():
        if joined.covers(resource) and joined.active:
            where = "this task" if joined.is_of(asyncio.current_task()) else "the task that began this one,"
            raise ProtocolError(
                f"a transaction is open already in {where} on {_covered(resource)[1] or _covered(resource)[0].path}",
                hint="End it first; transactions do not nest.",
            )


def _covered(resource: Resource) -> tuple[Device, str | None]:
    """Return the device of a resource, and the name of the queue space; None where it is the whole device."""
    its_device = getattr(resource, "device", None)
    return (resource, None) if its_device is None else (its_device, resource.name)  # type: ignore[return-value,union-attr]
