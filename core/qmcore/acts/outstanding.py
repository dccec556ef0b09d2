"""Transactions as an administrator sees and ends them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from qmcore.acts import in_doubt, recovering
from qmcore.acts.deciding import Decider, Place
from qmcore.acts.returning import Cause, Ending, give_back
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.errors import InvalidArgumentError, ProtocolError
from qmcore.port import Unit, Volume
from qmcore.records import Outcome, Owner, Role, TransactionRecord
from qmcore.space import Space
from qmcore.times import Clock, moved
from qmcore.two_phase import OUR_FORMAT
from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmcore.attached import AttachedProcess, DeciderSeen, DecisionInfo, TransactionInfo

_DECISIONS_MAX: Final = 10_000
"""How many decisions are listed."""


class Ended(NamedTuple):
    """What an administrator has ended: with how many messages, how many others were lost, in place of a coordinator."""

    messages: int
    lost: int = 0
    heuristic: bool = False


def attached(volume: Volume, space_id: int) -> list[AttachedProcess]:
    """Return who is attached to a queue space, the longest first."""
    owners, waits = volume.read(lambda unit: (unit.owners.of_space(space_id), unit.waits.of_space(space_id)))
    living = volume.liveness.living(owners)
    return [process_of(owner, living, waits.get(owner.id, 0)) for owner in owners]


def transactions(
    volume: Volume,
    space_id: int,
    clock: Clock,
    look: Callable[[list[TransactionRecord]], Mapping[int, DeciderSeen]] | None = None,
) -> list[TransactionInfo]:
    """Return the transactions of a queue space, the longest first.

    `look` says of each, by its number, whether its decider can be reached, as far as it has one.
    """
    from qmcore.attached import TransactionInfo

    def found(unit: Unit) -> tuple[list[TransactionRecord], list[Owner], dict[tuple[int, Role], int]]:
        return _listed(unit, space_id), unit.owners.of_space(space_id), held(unit, space_id)

    records, owners, counts = volume.read(found)
    seen = {} if look is None else look(records)
    living = volume.liveness.living(owners)
    now, steady = clock.now_and_steady()
    processes = {owner.id: process_of(owner, living) for owner in owners}
    return [
        TransactionInfo(
            index=index,
            id=shown(record.id),
            state=Outcome.SUSPENDED if record.suspended_us is not None else record.state,
            since_us=record.started_us,
            deadline_us=None if record.deadline_us is None else moved(record.deadline_us, now - steady),
            owner=processes.get(record.owner_id),
            dequeued=counts.get((record.id, Role.DEQUEUED), 0),
            locked=counts.get((record.id, Role.LOCKED), 0),
            spilled=counts.get((record.id, Role.ENQUEUED), 0),
            xid=record.xid,
            prepared_us=record.prepared_us,
            consumer=record.consumer,
            ended_us=record.ended_us,
            ended_by=record.ended_by,
            suspended_us=record.suspended_us,
            decider=_decider_of(record),
            presumes_abort=record.decider == recovering.PRESUMES_ABORT,
            decided=record.decided,
            reached=seen[record.id].reached if record.id in seen else None,
            unreached=seen[record.id].why if record.id in seen else "",
        )
        for index, record in enumerate(records)
    ]


def decisions(volume: Volume, space_id: int) -> list[DecisionInfo]:
    """Return the decisions of a queue space of which a branch is to be told, the longest first."""
    from qmcore.attached import DecisionInfo

    found = volume.read(lambda unit: unit.transactions.decisions.of_space(space_id, _DECISIONS_MAX))
    return [
        DecisionInfo(
            xid=Xid(OUR_FORMAT, each.gtrid, each.told.branch),
            participant=_shown_place(Place.of(each.told.place)),
            decided_us=each.decided_us,
        )
        for each in found
    ]


def abort(unit: Unit, opened: OpenSpace, name: str, now: int, ended_by: str) -> Ended:
    """Roll back a transaction, whoever's it is; one that is prepared heuristically, by `ended_by`.

    `name` is what administrators call it, or the text of its xid.
    """
    record = endable(unit, opened, name, commits=False)
    messages, ending = _messages(unit, record), Ending(Cause.ABORTED)
    if record.xid is not None and record.state is not Outcome.ACTIVE:
        lost = in_doubt.roll_back(unit, opened, record.xid, now, ending, ended_by=ended_by)
        return Ended(messages, lost, heuristic=True)
    if not unit.transactions.end(record.id, record.owner_id):
        raise _no_such(opened.definitions(unit).space, name)
    give_back(unit, opened, record.id, opened.definitions(unit).by_id, now, ending)
    return Ended(messages)


def commit(unit: Unit, opened: OpenSpace, name: str, now: int, ended_by: str) -> Ended:
    """Commit a prepared transaction heuristically, in the same way; another one is refused."""
    record = endable(unit, opened, name, commits=True)
    assert record.xid is not None  # noqa: S101 - it is prepared
    messages = _messages(unit, record)
    return Ended(messages, in_doubt.commit(unit, opened, record.xid, now, ended_by=ended_by), heuristic=True)


def endable(unit: Unit, opened: OpenSpace, name: str, *, commits: bool) -> TransactionRecord:
    """Return a transaction that an administrator may end so, or raise the error of one that they may not."""
    record = find(unit, opened, name)
    if record.state.is_heuristic:
        raise in_doubt.ended_already(opened, record)
    if record.state is not Outcome.ACTIVE:
        if record.xid is None:
            shown_name = shown(record.id)
            raise ProtocolError(f"transaction {shown_name} is {record.state.value} already", transaction=shown_name)
    elif commits:
        is_suspended = record.suspended_us is not None
        raise ProtocolError(
            f"transaction {name} is suspended and not prepared; only the process that resumes it can commit it"
            if is_suspended
            else f"transaction {name} is active and not prepared; only its own process can commit it",
            hint="Wait until its process has prepared it; qaborttrans rolls the transaction back.",
            transaction=name,
        )
    return record


def find(unit: Unit, opened: OpenSpace, name: str) -> TransactionRecord:
    """Return a transaction by what administrators call it, or the text of its xid, in whatever state it is."""
    if ":" in name:
        return in_doubt.found(unit, opened, Xid.of(name))
    space = opened.definitions(unit).space
    for record in _listed(unit, space.id):
        if shown(record.id) == name:
            return record
    raise _no_such(space, name)


def _no_such(space: Space, name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"queue space {space.name!r} has no transaction {name}; it may have ended meanwhile",
        hint="List the transactions with qprinttrans.",
        transaction=name,
        space=space.name,
    )


def _listed(unit: Unit, space_id: int) -> list[TransactionRecord]:
    records = [*unit.transactions.of_space(space_id), *unit.transactions.heuristics(space_id)]
    return sorted(records, key=in_doubt.started)


def _decider_of(record: TransactionRecord) -> str:
    """Return who decides on a transaction, as administrators read it; empty where another coordinator ends it."""
    if record.decider == recovering.PRESUMES_ABORT:
        return "nobody, its abort is presumed"
    decider = Decider.of(record.decider)
    return _shown_place(None if decider is None else decider.place)


def _shown_place(place: Place | None) -> str:
    if place is None:
        return ""
    return str(place) if place.is_database else f"{place.space} on {place.device}"


def _messages(unit: Unit, record: TransactionRecord) -> int:
    if record.state is Outcome.PREPARED:
        counts = [
            store.holdings.counts(record.id, queue_id)
            for store in stores(unit, record.space_id)
            for queue_id in record.queue_ids
        ]
        return sum(sum(count.values()) for count in counts)
    of_all = held(unit, record.space_id)
    return sum(of_all.get((record.id, role), 0) for role in Role)


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
