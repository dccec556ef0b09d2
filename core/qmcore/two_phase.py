"""What a store is asked for a branch of a distributed transaction, beside what it is for any transaction.

A branch is a transaction with an identifier of its coordinator's. To prepare it is to promise its commit: it stands
wholly in the store then, what it brings as spilled messages, and nothing but its commit or rollback ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmcore.transitions import Guard, Holder, Reached


class Begin(NamedTuple):
    """A transaction is to be known before it holds anything, and by an identifier where it has one."""

    guard: Guard
    holder: Holder
    xid: Xid | None


class Begun(NamedTuple):
    """It is known; `transactions` is how many there are now, where that is more than ever."""

    transactions: int
    reached: Sequence[Reached] = ()


class Prepare(NamedTuple):
    """A transaction of an owner is to be prepared: what it holds and brings stands in the store, in the `queue_ids`.

    It has taken so many messages on disk (`held`), and has `spilled` others there, as far as is known.
    """

    guard: Guard
    transaction_id: int
    owner_id: int
    xid: Xid
    queue_ids: Sequence[int]
    held: int
    spilled: int


class Prepared(NamedTuple):
    """The transaction is prepared."""

    reached: Sequence[Reached] = ()
