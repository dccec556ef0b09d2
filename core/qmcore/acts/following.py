"""How the memory of a queue space follows the disk.

A commit is atomic in each file, not over both: a process may die between them, or the memory be full. The record of
the transaction on disk decides: where it says `committed`, memory does what the commit meant, and what it brings takes
its place behind what arrived meanwhile; where there is no record, what memory still holds for the transaction is
rolled back. So a record goes only after memory was seen to have followed, in a database transaction of its own.
"""

from __future__ import annotations

from qmcore.acts.returning import Cause, Ending, give_back
from qmcore.acts.routes import commit_by_record
from qmcore.acts.sending import start_afterwards
from qmcore.definitions import OpenSpace
from qmcore.port import Unit
from qmcore.records import Outcome, TransactionRecord
from qmcore.store import MemoryStore


def has_to_follow(unit: Unit, opened: OpenSpace) -> bool:
    """Return whether memory is behind the disk, or has followed it and the record of that is still there."""
    memory = unit.memory(opened.space.id)
    if memory is None:
        return False
    records = unit.transactions.of_space(opened.space.id)
    return (
        any(record.state is Outcome.COMMITTED for record in records)
        or not {record.id for record in records}.issuperset(memory.holdings.holders())
        or _is_behind_queues(unit, opened, memory)
    )


def let_memory_follow(unit: Unit, opened: OpenSpace, now: int) -> None:
    """Do in memory what the ends of transactions meant that it did not see, and know the queues that there are."""
    memory = unit.memory(opened.space.id)
    if memory is None:
        return
    _follow_queues(unit, opened, memory)
    records = {record.id: record for record in unit.transactions.of_space(opened.space.id)}
    holders = memory.holdings.holders()
    for transaction_id in holders:
        record = records.get(transaction_id)
        if record is None:
            give_back(unit, opened, transaction_id, opened.definitions(unit).by_id, now, Ending(Cause.DEATH))
        elif record.state is Outcome.COMMITTED:
            _follow_commit(unit, opened, record)
    for record in records.values():
        if record.state is Outcome.COMMITTED and record.id not in holders:
            unit.transactions.forget_committed(record.id)


def _follow_queues(unit: Unit, opened: OpenSpace, memory: MemoryStore) -> None:
    """Count the queues that were created, and give up those that were destroyed."""
    space_id, counted, present = (
        opened.space.id,
        memory.counters.counted(opened.space.id),
        set(opened.definitions(unit).by_id),
    )
    for queue_id in present - counted:
        memory.counters.add(space_id, queue_id)
    for queue_id in counted - present - _hidden(unit, opened):
        memory.abandon(space_id, queue_id)


def _is_behind_queues(unit: Unit, opened: OpenSpace, memory: MemoryStore) -> bool:
    counted, present = memory.counters.counted(opened.space.id), opened.definitions(unit).by_id.keys()
    return counted != present and (not counted >= present or not counted - present <= _hidden(unit, opened))


def _hidden(unit: Unit, opened: OpenSpace) -> set[int]:
    """Return the queues that imports hide: these look after what they have in memory themselves."""
    return {queue.id for _, queue in unit.imports.hidden_queues(opened.space.id)}


def _follow_commit(unit: Unit, opened: OpenSpace, record: TransactionRecord) -> None:
    known = opened.definitions(unit)
    command = commit_by_record(known, opened.guard(known), record, known.by_id, known.by_id)
    start_afterwards(unit, opened, unit.follow(command))
