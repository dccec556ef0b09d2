"""The act of transacting.

A transaction holds no database transaction. What it dequeues is moved to `held` at once; what it enqueues is kept here
until the commit, which does everything in one database transaction. The volume knows of the transaction from its first
dequeue on.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence

from qmcore.acts import enqueue as enqueuing
from qmcore.acts.dequeue import Nothing, Selection, Taken, take
from qmcore.acts.enqueue import Outgoing, Pending
from qmcore.acts.returning import Cause, give_back
from qmcore.definitions import OpenSpace
from qmcore.errors import AbortedError, NoSpaceError, Resource
from qmcore.message import Message, message_id
from qmcore.port import Level, Owner, TransactionRecord, Unit, Volume

_RESERVED_AT_A_TIME = 8
"""Sequence numbers that a transaction takes at a time for the identifiers of what it enqueues."""


@dataclasses.dataclass(slots=True)
class Branch:
    """The part of a transaction in one queue space, as its process knows it."""

    opened: OpenSpace
    owner: Owner
    started_us: int
    deadline_us: int | None
    id: int = dataclasses.field(default_factory=lambda: secrets.randbits(62))
    recorded: bool = False
    may_hold: bool = False
    queue_ids: set[int] = dataclasses.field(default_factory=set)
    held_messages: int = 0
    held_pages: int = 0
    pending: list[Pending] = dataclasses.field(default_factory=list)
    pending_pages: int = 0
    reserved: range = range(0)


def enqueue(volume: Volume, branch: Branch, outgoing: Outgoing, now: int) -> str:
    """Let the transaction enqueue a message when it commits, and return the identifier that it will have."""

    def checked(unit: Unit) -> range:
        after = Level(
            sequence=0,
            messages=1 + len(branch.pending) - branch.held_messages,
            pages=outgoing.pages + branch.pending_pages - branch.held_pages,
        )
        enqueuing.check(unit, branch.opened, outgoing, after)
        return branch.reserved or _reserve(unit, branch)

    def reserved_numbers() -> range:
        return volume.read(checked) if branch.reserved else volume.write(checked, durable=False)

    reserved = enqueuing.with_room(volume, [branch.opened], now, reserved_numbers)
    branch.pending.append(Pending(outgoing, reserved[0]))
    branch.pending_pages += outgoing.pages
    branch.reserved = reserved[1:]
    return message_id(branch.opened.space.incarnation, reserved[0])


def dequeue(volume: Volume, branch: Branch, name: str, selection: Selection, now: int) -> Message | Nothing:
    """Take a message and let the transaction hold it."""

    def held(unit: Unit) -> tuple[Taken | Nothing, range]:
        taken = take(unit, branch.opened, name, selection, now)
        if isinstance(taken, Nothing):
            return taken, branch.reserved
        if not branch.recorded:
            _record(unit, branch)
        elif not unit.is_active(branch.id, branch.owner.id):
            raise given_up(branch)
        message = taken.message
        branch.queue_ids.add(taken.place.queue_id)
        unit.hold(branch.id, taken.place, pages=taken.pages, size=message.size, expires_us=message.expires_us)
        return taken, branch.reserved or _reserve(unit, branch)

    # Noted before: whatever interrupts us behind the commit, the rollback looks for what is held.
    branch.may_hold = True
    taken, reserved = volume.write(held, durable=False)
    if isinstance(taken, Nothing):
        return taken
    branch.recorded = True
    branch.held_messages += 1
    branch.held_pages += taken.pages
    branch.reserved = reserved
    return taken.message


def commit(volume: Volume, branches: Sequence[Branch], now: int) -> None:
    """Remove what the transaction holds and enqueue what it brought, in one database transaction."""
    busy = [branch for branch in branches if branch.recorded or branch.pending]
    if busy:
        spaces = [branch.opened for branch in busy if branch.pending]
        enqueuing.with_room(volume, spaces, now, lambda: volume.write(lambda unit: _commit_branches(unit, busy, now)))


def roll_back(volume: Volume, branch: Branch, now: int, cause: Cause, error: str = "") -> list[str]:
    """Give back what the transaction holds and forget what it enqueued; tell what should be logged.

    A transaction that was given up meanwhile has been rolled back already.
    """
    if not branch.may_hold:
        return []

    def undone(unit: Unit) -> list[str]:
        if not unit.end_transaction(branch.id, branch.owner.id):
            return []
        known = branch.opened.definitions(unit)
        return give_back(unit, known, branch.id, branch.queue_ids, now, cause, error)

    return volume.write(undone, durable=False)


def given_up(branch: Branch) -> AbortedError:
    """Return the diagnostic for a transaction that others have rolled back."""
    return AbortedError(
        f"the transaction on queue space {branch.opened.space.name!r} was rolled back by others,"
        " because its time was over or its process was taken for dead",
        hint="Begin it again; nothing of it remains.",
        space=branch.opened.space.name,
    )


def _commit_branches(unit: Unit, branches: Sequence[Branch], now: int) -> None:
    for branch in branches:
        _commit_branch(unit, branch, now)


def _commit_branch(unit: Unit, branch: Branch, now: int) -> None:
    known = branch.opened.definitions(unit)
    if branch.recorded:
        if not unit.end_transaction(branch.id, branch.owner.id):
            raise given_up(branch)
        for queue_id in branch.queue_ids:
            count, pages, size = unit.consume(branch.id, queue_id)
            unit.leave(known.space.id, queue_id, count=count, pages=pages, size=size, how="dequeued")
    elif not unit.is_attached(branch.owner.id):
        raise given_up(branch)
    enqueuing.enqueue_pending(unit, known, branch.pending, now)


def _record(unit: Unit, branch: Branch) -> None:
    space = branch.opened.definitions(unit).space
    if not unit.is_attached(branch.owner.id):
        raise given_up(branch)
    count, limit = unit.transaction_count(space.id), space.definition.transactions
    if count >= limit:
        raise NoSpaceError(f"queue space {space.name!r}", Resource.TRANSACTIONS, used=count, limit=limit)
    unit.add_transaction(
        TransactionRecord(
            id=branch.id,
            space_id=space.id,
            owner_id=branch.owner.id,
            state="active",
            started_us=branch.started_us,
            deadline_us=branch.deadline_us,
        )
    )


def _reserve(unit: Unit, branch: Branch) -> range:
    last = unit.reserve(branch.opened.space.id, _RESERVED_AT_A_TIME)
    return range(last - _RESERVED_AT_A_TIME + 1, last + 1)
