"""Transactions of tasks over several queue spaces, of one device or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from qmadmin import distributed
from qmadmin.aio.async_device import Device
from qmadmin.aio.async_space import QueueSpace
from qmadmin.aio.task_transactions import Transaction
from qmadmin.over_volumes import taken_twice
from qmcore.callers import TaskConnection
from qmcore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from datetime import timedelta

    from qmadmin import transacting
    from qmadmin.connections import AsyncApplicationConnection


def transaction(
    *resources: QueueSpace | Device | AsyncApplicationConnection,
    timeout: float | timedelta | None = None,
    complete: bool = False,
    decider: QueueSpace | AsyncApplicationConnection | None = None,
) -> Transaction:
    """Return a transaction over several resources: `async with aio.transaction(orders, connection) as tx:`.

    It is `qmadmin.transaction` for tasks, which says what it promises, and is refused in the same way. Connections are
    those for asyncio, of psycopg 3 and of SQLAlchemy with it, an AsyncConnection or AsyncSession: their databases are
    of PostgreSQL. A cancellation rolls back what is not at its end; the commit comes to its end all the same.
    """
    spaces = [resource for resource in resources if isinstance(resource, QueueSpace | Device)]
    if not spaces:
        raise InvalidArgumentError("a transaction over several resources needs at least one queue space or device")
    connections = {
        id(resource): TaskConnection(resource, _asks_nobody)
        for resource in resources
        if not isinstance(resource, QueueSpace | Device)
    }
    if len(connections) != len(resources) - len(spaces):
        raise taken_twice("a connection")

    def begin() -> transacting.Transaction:
        decides = decider.synchronous if isinstance(decider, QueueSpace) else connections.get(id(decider), decider)
        over = distributed.transaction(
            *(each.synchronous for each in spaces),
            *connections.values(),  # type: ignore[arg-type]
            timeout=timeout,
            complete=complete,
            decider=decides,  # type: ignore[arg-type]
        )
        return distributed.begun(over)

    return Transaction(spaces, begin, list(connections.values()))


def _asks_nobody(_awaited: object) -> NoReturn:
    raise AssertionError("no work has begun")


async def outcome(decider: QueueSpace, gtrid: str) -> bool | None:
    """Return whether a transaction is committed, as `qmadmin.outcome` does."""
    return await decider.do(lambda synchronous: distributed.outcome(synchronous, gtrid))
