"""Transactions as an administrator sees and ends them."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from qmcore.acts.returning import Cause, Ending, give_back
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.errors import InvalidArgumentError, ProtocolError, QueueError, ReleaseError
from qmcore.port import Unit, Volume
from qmcore.records import Outcome, Owner, Role, TransactionRecord
from qmcore.times import Clock, moved

if TYPE_CHECKING:
    from qmcore.attached import AttachedProcess, TransactionInfo


def attached(volume: Volume, space_id: int) -> list[AttachedProcess]:
    """Return who is attached to a queue space, the longest first."""
    owners, waits = volume.read(lambda unit: (unit.owners.of_space(space_id), unit.waits.of_space(space_id)))
    living = volume.liveness.living(owners)
    return [process_of(owner, living, waits.get(owner.id, 0)) for owner in owners]


def transactions(volume: Volume, opened: OpenSpace, clock: Clock) -> list[TransactionInfo]:
    """Return the transactions of a queue space, the longest first."""
    from qmcore.attached import TransactionInfo

    space_id = opened.space.id

    def found(unit: Unit) -> tuple[list[TransactionRecord], list[Owner], dict[tuple[int, Role], int]]:
        return unit.transactions.of_space(space_id), unit.owners.of_space(space_id), held(unit, space_id)

    records, owners, counts = volume.read(found)
    living = volume.liveness.living(owners)
    now, steady = clock.now_and_steady()
    processes = {owner.id: process_of(owner, living) for owner in owners}
    return [
        TransactionInfo(
            index=index,
            id=shown(record.id),
            state=record.state,
            since_us=record.started_us,
            deadline_us=None if record.deadline_us is None else moved(record.deadline_us, now - steady),
            owner=processes.get(record.owner_id),
            dequeued=counts.get((record.id, Role.DEQUEUED), 0),
            locked=counts.get((record.id, Role.LOCKED), 0),
            spilled=counts.get((record.id, Role.ENQUEUED), 0),
        )
        for index, record in enumerate(records)
    ]


def abort(unit: Unit, opened: OpenSpace, name: str, now: int) -> None:
    """Roll back an active transaction, whoever's it is."""
    record = _find(unit, opened, name)
    if record.state is not Outcome.ACTIVE or not unit.transactions.end(record.id, record.owner_id):
        raise _refusal(record)
    give_back(unit, opened, record.id, opened.definitions(unit).by_id, now, Ending(Cause.ABORTED))


def commit(unit: Unit, opened: OpenSpace, name: str) -> None:
    """Refuse to commit what is not prepared."""
    record = _find(unit, opened, name)
    if record.state is Outcome.ACTIVE:
        raise ProtocolError(
            f"transaction {name} is active and not prepared; only its own process can commit it",
            hint="This release does not support two-phase commit; qaborttrans rolls the transaction back.",
            transaction=name,
        )
    raise _refusal(record)


def _find(unit: Unit, opened: OpenSpace, name: str) -> TransactionRecord:
    space = opened.definitions(unit).space
    for record in unit.transactions.of_space(space.id):
        if shown(record.id) == name:
            return record
    raise InvalidArgumentError(
        f"queue space {space.name!r} has no transaction {name}; it may have ended meanwhile",
        hint="List the transactions with qprinttrans.",
        transaction=name,
        space=space.name,
    )


def _refusal(record: TransactionRecord) -> QueueError:
    name = shown(record.id)
    if record.state is Outcome.PREPARED:
        return ReleaseError(f"transaction {name} is prepared, and this release cannot end it", transaction=name)
    return ProtocolError(f"transaction {name} is {record.state.value} already", transaction=name)


def held(unit: Unit, space_id: int) -> dict[tuple[int, Role], int]:
    """Return how many messages each transaction has in all stores of a queue space, and for what."""
    counts: dict[tuple[int, Role], int] = {}
    for store in stores(unit, space_id):
        for key, count in store.holdings.count_held().items():
            counts[key] = counts.get(key, 0) + count
    return counts


def process_of(owner: Owner, living: Container[int], waits: int = 0) -> AttachedProcess:
    """Return who an owner is to administrators; `living` are the numbers of those that live."""
    from qmcore.attached import AttachedProcess

    return AttachedProcess(
        pid=owner.pid, host=owner.host, role=owner.role, since_us=owner.since_us, alive=owner.id in living, waits=waits
    )


def shown(transaction_id: int) -> str:
    """Return what administrators call a transaction."""
    return f"{transaction_id:016x}"
