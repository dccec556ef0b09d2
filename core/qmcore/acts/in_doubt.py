"""The ends of prepared transactions, by whoever knows their identifiers: their coordinators, and administrators.

All that a prepared transaction has stands in the store, so that any process can end it, and no limit, no stopped queue
and no changed definition is in the way: what was promised is done. An end by an administrator, who does not know the
decision, is heuristic: its record stays until the coordinator has asked, or somebody forgets it.
"""

from __future__ import annotations

import dataclasses
import logging
from functools import partial

from qmcore.acts.returning import Ending, give_back
from qmcore.acts.routes import route_of, source_of
from qmcore.acts.sending import refusal, start_afterwards
from qmcore.definitions import OpenSpace
from qmcore.errors import HeuristicError, ProtocolError, UnknownXidError
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Outcome, Role, TransactionRecord, Use
from qmcore.transitions import Commit, Guard, Refused
from qmcore.xid import Xid

logger = logging.getLogger("qmadmin.transacting")

_NO_LIMIT = 2**62


def commit(unit: Unit, opened: OpenSpace, xid: Xid, now: int, *, ended_by: str = "") -> None:
    """Commit a prepared transaction; with `ended_by` that is heuristic, and by whom.

    Raises UnknownXidError where there is none with that identifier, ProtocolError where it is active, HeuristicError
    where it was rolled back heuristically. Where it was committed so, the record of that goes.
    """
    record = _reopened(unit, opened, xid, commits=True)
    if record is None:
        return
    known = opened.definitions(unit)
    queues = [known.by_id[queue_id] for queue_id in record.queue_ids if queue_id in known.by_id]
    _tell_lost(unit, opened, record)
    sources, stored = [source_of(known, queue) for queue in queues], [route_of(known, queue) for queue in queues]
    its = record.id, record.owner_id, True, sources, Use(0, 0, 0), True, stored, 0, ()
    result = unit.settle(Commit(_promised(opened.guard(known), record), *its))
    if isinstance(result, Refused):
        raise refusal(known, result)
    start_afterwards(unit, opened, result.reached)
    if ended_by:
        _record_heuristic(unit, record, Outcome.HEURISTIC_COMMIT, now, ended_by)


def roll_back(unit: Unit, opened: OpenSpace, xid: Xid, now: int, ending: Ending, *, ended_by: str = "") -> None:
    """Roll a prepared transaction back, in the same way."""
    record = _reopened(unit, opened, xid, commits=False)
    if record is None:
        return
    unit.transactions.end(record.id, record.owner_id)
    _tell_lost(unit, opened, record)
    give_back(unit, opened, record.id, record.queue_ids, now, ending)
    if ended_by:
        _record_heuristic(unit, record, Outcome.HEURISTIC_ROLLBACK, now, ended_by)


def recover(unit: Unit, opened: OpenSpace) -> list[Xid]:
    """Return the identifiers of the transactions that wait for their coordinator, the longest first.

    They are prepared, or were ended heuristically.
    """
    records = unit.transactions.of_space(opened.space.id)
    return [
        record.xid
        for record in records
        if record.xid is not None and (record.state is Outcome.PREPARED or record.state.is_heuristic)
    ]


def forget(unit: Unit, opened: OpenSpace, xid: Xid) -> None:
    """Forget how a transaction was ended heuristically.

    Raises UnknownXidError where there is none with that identifier, ProtocolError where it is not over.
    """
    if unit.transactions.forget_heuristic(opened.space.id, xid):
        return
    record = _found(unit, opened, xid)
    raise ProtocolError(
        f"transaction {xid} of queue space {opened.space.name!r} is {record.state.value}, and was not ended"
        " heuristically",
        hint="Only the record of a heuristic end can be forgotten.",
    )


def needing(unit: Unit, queue: Queue) -> TransactionRecord | None:
    """Return a prepared transaction that has messages in a queue; None where there is none."""
    records = unit.transactions.of_space(queue.space_id)
    return next(
        (record for record in records if record.state is Outcome.PREPARED and queue.id in record.queue_ids), None
    )


# ---- steps -----------------------------------------------------------------------------------------------------------


def _found(unit: Unit, opened: OpenSpace, xid: Xid) -> TransactionRecord:
    record = unit.transactions.find(opened.space.id, xid)
    if record is None:
        raise UnknownXidError(
            f"queue space {opened.space.name!r} has no transaction with the xid {xid}; it may have ended",
            hint="tpc_recover and qprinttrans list those that are prepared.",
        )
    return record


def _reopened(unit: Unit, opened: OpenSpace, xid: Xid, *, commits: bool) -> TransactionRecord | None:
    """Make a prepared transaction ready for its end; None where it was ended so heuristically."""
    record = _found(unit, opened, xid)
    if record.state.is_heuristic:
        committed = record.state is Outcome.HEURISTIC_COMMIT
        if committed is commits:
            unit.transactions.forget_heuristic(opened.space.id, xid)
            return None
        raise HeuristicError(
            f"transaction {xid} of queue space {opened.space.name!r} was"
            f" {'committed' if committed else 'rolled back'} heuristically by {record.ended_by}",
            hint="Put right by hand what differs, and forget it with tpc_forget or qforgettrans.",
            committed=committed,
        )
    if record.state is Outcome.PREPARED and unit.transactions.reopen(record.id, xid):
        return record
    if record.state is Outcome.PREPARED:
        # Somebody else has ended it between our look and now.
        raise UnknownXidError(f"transaction {xid} of queue space {opened.space.name!r} has been ended meanwhile")
    raise ProtocolError(
        f"transaction {xid} of queue space {opened.space.name!r} is {record.state.value} and not prepared",
        hint="Only its own process can end it; qaborttrans rolls it back.",
    )


def _promised(guard: Guard, record: TransactionRecord) -> Guard:
    """Return the guard of what ends something promised: no limit holds any more, and the consumer is whose it was."""
    memory_pages = _NO_LIMIT if guard.memory_pages else 0
    return guard._replace(consumer=record.consumer, messages=_NO_LIMIT, pages=_NO_LIMIT, memory_pages=memory_pages)


def _record_heuristic(unit: Unit, record: TransactionRecord, outcome: Outcome, now: int, ended_by: str) -> None:
    unit.transactions.add_heuristic(
        dataclasses.replace(record, state=outcome, deadline_us=None, ended_us=now, ended_by=ended_by)
    )


def _tell_lost(unit: Unit, opened: OpenSpace, record: TransactionRecord) -> None:
    """Have the log tell how many non-persistent messages of a prepared transaction have gone with the memory."""
    if not record.nonpersistent:
        return
    memory = unit.memory(opened.space.id)
    counts = {} if memory is None else memory.holdings.count_held()
    has = sum(counts.get((record.id, role), 0) for role in (Role.DEQUEUED, Role.ENQUEUED))
    if has < record.nonpersistent:
        unit.afterwards(
            partial(
                logger.warning,
                "transaction %s of queue space %r has lost %d of its %d non-persistent messages with the memory",
                record.xid,
                opened.space.name,
                record.nonpersistent - has,
                record.nonpersistent,
            )
        )
