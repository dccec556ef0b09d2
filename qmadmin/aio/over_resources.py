"""Transactions of tasks over several queue spaces, of one device or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin import distributed
from qmadmin.aio.async_device import Device
from qmadmin.aio.async_space import QueueSpace
from qmadmin.aio.task_transactions import Transaction
from qmcore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from datetime import timedelta

    from qmadmin import transacting


def transaction(
    *resources: QueueSpace | Device,
    timeout: float | timedelta | None = None,
    complete: bool = False,
    decider: QueueSpace | None = None,
) -> Transaction:
    """Return a transaction over several queue spaces: `async with aio.transaction(orders, bills) as tx:`.

    It is `qmadmin.transaction` for tasks, which says what it promises, and is refused in the same way.
    """
    for resource in resources:
        if not isinstance(resource, QueueSpace | Device):
            raise InvalidArgumentError(f"a resource of a transaction is a queue space or a device, got {resource!r}")
    if not resources:
        raise InvalidArgumentError("a transaction over several resources needs at least one")

    def begin() -> transacting.Transaction:
        return distributed.transaction(
            *(resource.synchronous for resource in resources),
            timeout=timeout,
            complete=complete,
            decider=None if decider is None else decider.synchronous,
        )

    return Transaction(resources, begin)


async def outcome(decider: QueueSpace, gtrid: str) -> bool | None:
    """Return whether a transaction is committed, as `qmadmin.outcome` does."""
    return await decider.do(lambda synchronous: distributed.outcome(synchronous, gtrid))
