"""The ends of prepared transactions, by whoever knows their identifiers: their coordinators, and administrators.

All that a prepared transaction has stands in the store, so that any process can end it, and no limit, no stopped queue
and no changed definition is in the way: what was promised is done. An end by an administrator, who does not know the
decision, is heuristic: its record stays until the coordinator has asked, or somebody forgets it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from functools import partial

from qmcore.acts.returning import Ending, give_back
from qmcore.acts.routes import commit_by_record
from qmcore.acts.sending import refusal, start_afterwards
from qmcore.definitions import OpenSpace
from qmcore.errors import HeuristicError, InUseError, ProtocolError, UnknownXidError
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Outcome, Role, TransactionRecord
from qmcore.refusals import Refused
from qmcore.space import Space
from qmcore.times import show
from qmcore.transitions import NO_LIMIT, Guard
from qmcore.xid import Xid

logger = logging.getLogger("qmadmin.transacting")


def commit(unit: Unit, opened: OpenSpace, xid: Xid, now: int, *, ended_by: str = "") -> int:
    """Commit a prepared transaction; with `ended_by` that is heuristic, and by whom.

    Returns how many of its non-persistent messages were lost. Raises UnknownXidError where there is none with that
    identifier, ProtocolError where it is active, HeuristicError where it was rolled back heuristically. Where it was
    committed so, the record of that goes, unless this end is heuristic: then it is refused, too.
    """
    record = _reopened(unit, opened, xid, commits=True, ended_by=ended_by)
    if record is None:
        return 0
    known = opened.definitions(unit)
    lost = _tell_lost(unit, opened, record)
    where = record.taken_from, record.brings_to
    result = unit.settle(commit_by_record(known, _promised(opened.guard(known), record), record, *where))
    if isinstance(result, Refused):
        raise refusal(known, result)
    start_afterwards(unit, opened, result.reached)
    if ended_by:
        _record_heuristic(unit, record, Outcome.HEURISTIC_COMMIT, now, ended_by)
    return lost


def roll_back(unit: Unit, opened: OpenSpace, xid: Xid, now: int, ending: Ending, *, ended_by: str = "") -> int:
    """Roll a prepared transaction back, in the same way."""
    record = _reopened(unit, opened, xid, commits=False, ended_by=ended_by)
    if record is None:
        return 0
    unit.transactions.end(record.id, record.owner_id)
    lost = _tell_lost(unit, opened, record)
    give_back(unit, opened, record.id, record.queue_ids, now, ending)
    if ended_by:
        _record_heuristic(unit, record, Outcome.HEURISTIC_ROLLBACK, now, ended_by)
    return lost


def recover(unit: Unit, opened: OpenSpace) -> list[Xid]:
    """Return the identifiers of the transactions that wait for their coordinator, the longest first.

    They are prepared, or were ended heuristically.
    """
    records = [*prepared(unit, opened.space.id), *unit.transactions.heuristics(opened.space.id)]
    return [record.xid for record in sorted(records, key=started) if record.xid is not None]


def started(record: TransactionRecord) -> tuple[int, int]:
    """Return by what transactions are listed: the longest first."""
    return record.started_us, record.id


def forget(unit: Unit, opened: OpenSpace, xid: Xid) -> str:
    """Forget how a transaction was ended heuristically, and return that in words.

    Raises UnknownXidError where there is none with that identifier, ProtocolError where it is not over.
    """
    record = found(unit, opened, xid)
    if record.state.is_heuristic and unit.transactions.forget_heuristic(opened.space.id, xid):
        return f"forgotten: {how_ended(record)}"
    raise ProtocolError(
        f"transaction {xid} of queue space {opened.space.name!r} is {record.state.value}, and was not ended"
        " heuristically",
        hint="Only the record of a heuristic end can be forgotten.",
    )


def found(unit: Unit, opened: OpenSpace, xid: Xid) -> TransactionRecord:
    """Return the transaction with an identifier, in whatever state it is, or raise UnknownXidError."""
    record = unit.transactions.find(opened.space.id, xid)
    if record is None:
        raise UnknownXidError(
            f"queue space {opened.space.name!r} has no transaction with the xid {xid}; it may have ended",
            hint="tpc_recover and qprinttrans list those that are prepared.",
        )
    return record


def how_ended(record: TransactionRecord) -> str:
    """Return how a transaction was ended heuristically, by whom and when."""
    how = "committed" if record.state is Outcome.HEURISTIC_COMMIT else "rolled back"
    return f"{how} heuristically by {record.ended_by}, {show(record.ended_us or 0)}"


def ended_already(opened: OpenSpace, record: TransactionRecord) -> HeuristicError:
    """Return the error of a transaction that was ended heuristically, and cannot be ended otherwise, or again."""
    return HeuristicError(
        f"transaction {record.xid} of queue space {opened.space.name!r} was {how_ended(record)}",
        hint="Put right by hand what differs, and forget it with tpc_forget or qforgettrans.",
        committed=record.state is Outcome.HEURISTIC_COMMIT,
    )


def needing(unit: Unit, queue: Queue) -> TransactionRecord | None:
    """Return a prepared transaction that has messages in a queue; None where there is none."""
    return next((record for record in prepared(unit, queue.space_id) if queue.id in record.queue_ids), None)


def prepared(unit: Unit, space_id: int) -> list[TransactionRecord]:
    """Return the prepared transactions of a queue space, the longest first."""
    return [record for record in unit.transactions.of_space(space_id) if record.state is Outcome.PREPARED]


def has_distributed(unit: Unit, space_id: int, records: Sequence[TransactionRecord]) -> bool:
    """Return whether recovery has anybody to ask for a branch, or to tell of a decision; given are the transactions."""
    return any(record.state is Outcome.PREPARED and record.decider for record in records) or (
        unit.transactions.decisions.has_work(space_id)
    )


def refuse_loss(unit: Unit, space: Space, action: str, *, in_memory: bool) -> None:
    """Refuse what would lose the messages of a prepared transaction, or its non-persistent ones, if it has any."""
    for record in prepared(unit, space.id):
        if not in_memory or _in_memory(unit, space.id, record):
            raise InUseError(
                f"prepared transaction {record.xid} of queue space {space.name!r} has messages, which"
                f" {action} would lose",
                hint="Have its coordinator end it, end it with qcommittrans or qaborttrans, or force it with -f.",
                space=space.name,
                xid=str(record.xid),
            )
    untold = [] if in_memory else unit.transactions.decisions.of_space(space.id, 1)
    if untold:
        raise InUseError(
            f"queue space {space.name!r} has decided on transaction {untold[0].gtrid.hex()}, whose branches elsewhere"
            f" are to be told, which {action} would keep from them",
            hint="Wait until recovery has told them, or force it with -f.",
            space=space.name,
        )


# ---- steps -----------------------------------------------------------------------------------------------------------


def _reopened(unit: Unit, opened: OpenSpace, xid: Xid, *, commits: bool, ended_by: str) -> TransactionRecord | None:
    """Make a prepared transaction ready for its end; None where its coordinator learns that it was ended so."""
    reopened = unit.transactions.reopen(opened.space.id, xid)
    if reopened is not None:
        return reopened
    record = found(unit, opened, xid)
    if record.state.is_heuristic:
        committed = record.state is Outcome.HEURISTIC_COMMIT
        if committed is commits and not ended_by:
            unit.transactions.forget_heuristic(opened.space.id, xid)
            return None
        raise ended_already(opened, record)
    if record.state is Outcome.PREPARED:
        # Somebody else has ended it between our look and now.
        raise UnknownXidError(f"transaction {xid} of queue space {opened.space.name!r} has been ended meanwhile")
    raise ProtocolError(
        f"transaction {xid} of queue space {opened.space.name!r} is {record.state.value} and not prepared",
        hint="Only its own process can end it; qaborttrans rolls it back.",
    )


def _promised(guard: Guard, record: TransactionRecord) -> Guard:
    """Return the guard of what ends something promised: no limit holds any more, and the consumer is whose it was."""
    memory_pages = NO_LIMIT if guard.memory_pages else 0
    return guard._replace(consumer=record.consumer, messages=NO_LIMIT, pages=NO_LIMIT, memory_pages=memory_pages)


def _record_heuristic(unit: Unit, record: TransactionRecord, outcome: Outcome, now: int, ended_by: str) -> None:
    unit.transactions.add_heuristic(
        dataclasses.replace(record, state=outcome, deadline_us=None, ended_us=now, ended_by=ended_by)
    )


def _in_memory(unit: Unit, space_id: int, record: TransactionRecord) -> int:
    memory = unit.memory(space_id) if record.nonpersistent else None
    counts = [] if memory is None else [memory.holdings.counts(record.id, each) for each in record.queue_ids]
    return sum(count.get(role, 0) for count in counts for role in (Role.DEQUEUED, Role.ENQUEUED))


def _tell_lost(unit: Unit, opened: OpenSpace, record: TransactionRecord) -> int:
    """Return how many non-persistent messages of a prepared transaction have gone with the memory; the log tells it."""
    lost = max(record.nonpersistent - _in_memory(unit, opened.space.id, record), 0)
    if lost:
        unit.afterwards(
            partial(
                logger.warning,
                "transaction %s of queue space %r has lost %d of its %d non-persistent messages with the memory",
                record.xid,
                opened.space.name,
                lost,
                record.nonpersistent,
            )
        )
    return lost
