"""What a store is asked for a branch of a distributed transaction, beside what it is for any transaction.

A branch is a transaction with an identifier of its coordinator's. To prepare it is to promise its commit: it stands
wholly in the store then, what it brings as spilled messages, and nothing but its commit or rollback ends it.

Of the distributed transactions that we coordinate ourselves one branch is not prepared: that of the decider. Its commit
contains the decision, as a record of those who are to be told, and without that record the others roll back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmcore.transitions import Guard, Holder, Reached


OUR_FORMAT: Final = int.from_bytes(b"QMTX")
"""The format identifier of transactions that this library coordinates."""

DECIDES_WITHIN_US: Final = 24 * 3600 * 10**6
"""No distributed transaction is decided later than this after its beginning."""


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
    """A transaction of an owner is to be prepared: what it holds and brings stands in the store by then.

    It has messages of the queues `taken_from`, and spilled ones for those that it `brings_to`. From works of before it
    has taken so many on disk (`held`), and has so many there that were `spilled`, as far as is known. `decider` tells
    whom recovery asks; it is empty where another coordinator ends the branch.
    """

    guard: Guard
    transaction_id: int
    owner_id: int
    xid: Xid
    taken_from: Sequence[int]
    brings_to: Sequence[int]
    held: int
    spilled: int
    decider: str


class Prepared(NamedTuple):
    """The transaction is prepared."""

    reached: Sequence[Reached] = ()


class Told(NamedTuple):
    """Who is to be told of a decision: the branch, by the qualifier of its xid, and the `place` where it is prepared.

    One without either stands for the caller, who may ask what was decided.
    """

    branch: bytes
    place: str


class Decide(NamedTuple):
    """A distributed transaction is decided to commit: recorded for all who are told, in the commit of the decider.

    The global identifier `gtrid` names the decider's branch. Decisions are counted in the `era`, and at
    least `known` of them are there, unless the store was set back meanwhile. The transaction `began_us`.
    """

    guard: Guard
    gtrid: bytes
    era: int
    known: int
    began_us: int
    told: Sequence[Told]


class Decided(NamedTuple):
    """It is decided, and the era has so many decisions now."""

    decisions: int
    reached: Sequence[Reached] = ()


class Era(NamedTuple):
    """An era in which a process counts its decisions, as far as it knows; another one begins at `until_us`."""

    id: int
    decisions: int
    until_us: int
