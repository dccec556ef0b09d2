"""The awaited calls that may belong to a transaction, or wait: what they do beside calling the synchronous ones."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from qmadmin.aio.task_transactions import Transaction, current
from qmadmin.dequeuing import seconds_of
from qmadmin.enqueuing import refuse_both
from qmadmin.subscribing import taken_by
from qmcore.acts.waiting import CHECK_SECONDS
from qmcore.callers import TaskConnection
from qmcore.errors import InvalidArgumentError, ProtocolError, QueueError, may_pass

if TYPE_CHECKING:
    from qmadmin.aio.async_space import QueueSpace
    from qmadmin.aio.waits import Waiting
    from qmadmin.connections import AsyncApplicationConnection

F = TypeVar("F", bound=Callable[..., Any])

_SELECTS = ("msgid", "corrid", "corrid_like", "condition")


class _Method(Protocol):
    __doc__: str | None

    def __call__(self, *given: Any, **named: Any) -> Any: ...


def joins(method: _Method) -> Callable[[F], F]:
    """Give a declaration the call that it declares: a method of the synchronous API, in a transaction of tasks or none.

    The declaration has its parameters and `transaction`; its `connection` is one for asyncio.
    """

    def declared(declaration: F) -> F:
        @functools.wraps(declaration)
        async def call(
            space: QueueSpace,
            /,
            *given: Any,
            transaction: Transaction | None = None,
            connection: AsyncApplicationConnection | None = None,
            **named: Any,
        ) -> object:
            joined = _transaction(space, transaction, named)
            act = functools.partial(method, space.synchronous, *given, **named)
            if connection is not None:
                return await _call_on(space, connection, joined, act)
            return await _call(space, joined, act)

        return _documented(call, declaration, method)

    return declared


def waits(method: _Method, *, chooses: bool = False) -> Callable[[F], F]:
    """Do the same with a method that waits, `chooses` one that leaves to others what it finds."""

    def declared(declaration: F) -> F:
        @functools.wraps(declaration)
        async def call(
            space: QueueSpace,
            /,
            *given: Any,
            wait: object = None,
            stop: Callable[[], bool] | None = None,
            transaction: Transaction | None = None,
            connection: AsyncApplicationConnection | None = None,
            **named: Any,
        ) -> object:
            joined = None if chooses else _transaction(space, transaction, named)
            seconds = seconds_of(wait)
            attempt = functools.partial(method, space.synchronous, *given, **named)
            if connection is not None:
                return await _call_on(space, connection, joined, functools.partial(attempt, wait=wait))
            if seconds <= 0:
                return await _call(space, joined, attempt)
            queues = given[0] if given else named.get("queue", named.get("queues"))
            consumer = named.get("consumer")
            if isinstance(queues, str):
                queues = [queues if consumer is None else taken_by(queues, consumer)]
            selects = chooses or any(named.get(name) is not None for name in _SELECTS)
            waiting = space.waits.enter(queues or (), chooses=selects)
            return await _wait(space, joined, attempt, waiting, seconds, stop)

        return _documented(call, declaration, method)

    return declared


def _documented(call: Any, declaration: F, method: _Method) -> F:
    call.__doc__ = method.__doc__
    call.__annotations__ = declaration.__annotations__
    found: F = call
    return found


def _transaction(space: QueueSpace, given: Transaction | None, named: dict[str, Any]) -> Transaction | None:
    """Return the transaction that a call belongs to."""
    is_transactional = named.get("transactional", True)
    if given is None:
        return current(space) if is_transactional else None
    if not is_transactional:
        raise InvalidArgumentError("a call belongs to a transaction or to none", hint="Give one of the two arguments.")
    if not isinstance(given, Transaction):
        raise InvalidArgumentError(f"transaction must be one of space.transaction(), got {given!r}")
    if not given.covers(space):
        raise ProtocolError(f"the transaction is not one of queue space {space.name!r}, on which the call is made")
    return given


async def _call(space: QueueSpace, transaction: Transaction | None, call: Callable[[], Any]) -> Any:
    if transaction is None:
        return await space.threads.do(call, _is_nothing)
    return await transaction.call(call, _is_nothing)


async def _call_on(
    space: QueueSpace,
    connection: AsyncApplicationConnection,
    transaction: Transaction | None,
    call: Callable[..., Any],
) -> Any:
    """Call in the transaction of the application's connection, which only this event loop may use."""
    refuse_both(transaction)
    return await space.threads.do_asking(lambda ask: call(connection=TaskConnection(connection, ask)), _is_nothing)


async def _wait(
    space: QueueSpace,
    transaction: Transaction | None,
    attempt: Callable[[], Any],
    waiting: Waiting,
    seconds: float,
    stop: Callable[[], bool] | None,
) -> Any:
    """Call until something is found, the seconds are over, or `stop` says so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + (seconds if transaction is None else min(seconds, transaction.remaining()))
    failure: QueueError | None = None
    nothing: object = None
    is_first = passes_on = True
    try:
        while True:
            try:
                found = await _call(space, transaction, attempt)
            except QueueError as error:
                if is_first or transaction is not None or not may_pass(error):
                    raise
                # A wait goes on when the server is back, or not busy any more.
                failure = error
            else:
                if not _is_nothing(found):
                    return found
                failure, nothing = None, found
            is_first = False
            if loop.time() >= end or (stop is not None and stop()):
                passes_on = False
                if failure is not None:
                    raise failure
                return nothing
            checks = failure is not None or stop is not None
            passes_on = False
            await waiting.sleep(min(end, loop.time() + CHECK_SECONDS) if checks else end)
            passes_on = True
    except asyncio.CancelledError:
        passes_on = False
        raise
    finally:
        space.waits.leave(waiting, passes_on=passes_on)
        # An exception refers to this frame.
        failure = None


def _is_nothing(found: object) -> bool:
    return found is None or found == []
