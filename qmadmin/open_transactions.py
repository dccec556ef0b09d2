"""The open transactions of a context: which one a call on a queue space belongs to.

A transaction is joined in a context. A copy of the context, as asyncio.to_thread makes for its thread and asyncio for
each task, has the transaction too, even after it has ended or was collected.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from qmcore.errors import ProtocolError

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.transacting import Transaction

ANOTHER_THREAD = "the transaction belongs to another thread"
STAY_IN_THREAD = "Use it in the thread that began it; transactional=False keeps a call out of it."


class _Joined(NamedTuple):
    """A transaction that the thread with this number joined; `find` returns None after it was collected.

    The transaction of a block is kept by a weak reference: an interrupt at the first instruction of `__exit__` leaves
    it here, and it is collected and rolled back with its block.
    """

    find: Callable[[], Transaction | None]
    device: weakref.ref[Device]
    space: str | None
    thread: int

    def covers(self, device: Device, space: str | None) -> bool:
        """Return whether the transaction is for a queue space, or with None for any of the device."""
        return self.device() is device and (space is None or self.space is None or self.space == space)


_open: contextvars.ContextVar[tuple[_Joined, ...]] = contextvars.ContextVar("qmadmin_transactions", default=())
"""The transactions that are open in this context, the outermost first."""

joined_here: Final = _open.get
"""Returns them: mostly there are none, and nothing more has to be asked."""


def join(
    transaction: Transaction,
    find: Callable[[], Transaction | None],
    device: Device,
    space: str | None,
    *,
    nests: bool = True,
) -> None:
    """Make the calls in this context, on a queue space or with None on all of the device, part of a transaction.

    One that does not nest is refused inside another one.
    """
    outer = _open.get()
    if outer and not nests:
        refuse_nesting(device, space)
    _open.set((*outer, _Joined(find, weakref.ref(device), space, transaction.thread)))


def leave(transaction: Transaction) -> None:
    """Make calls in this context no longer part of a transaction."""
    joined = _open.get()
    is_alone = len(joined) == 1 and joined[0].find() is transaction
    _open.set(() if is_alone else tuple(one for one in joined if one.find() not in (transaction, None)))


def current(device: Device, space: str) -> Transaction | None:
    """Return the transaction that a call on a queue space belongs to, or would: it may not be of this thread.

    Raises ProtocolError if the context is a copy from another thread whose transaction was collected: a call that was
    begun inside the transaction must not take effect outside.
    """
    for joined in reversed(_open.get()):
        # As `covers` does.
        if joined.device() is device and joined.space in (space, None):
            if transaction := joined.find():
                return transaction
            if joined.thread != threading.get_ident():
                raise ProtocolError(ANOTHER_THREAD, hint=STAY_IN_THREAD)
    return None


def refuse_nesting(device: Device, space: str | None) -> None:
    """Refuse a transaction inside another one on the same queue space; None stands for all of the device."""
    for joined in _open.get():
        if joined.covers(device, space) and (other := joined.find()) and (other.active or other.is_here):
            where = "thread" if other.is_here else "context, begun by another thread,"
            raise ProtocolError(
                f"a transaction is open already in this {where} on {space or device.path!r}",
                hint="End it first; transactions do not nest.",
            )
