"""How the memory of a queue space follows the disk.

A commit is atomic in each file, not over both, when a process dies between them. The record of the transaction on
disk decides: where it says `committed`, memory does what the commit meant; where there is no record, what memory still
holds for the transaction is rolled back.
"""

from __future__ import annotations

from qmcore.acts.consuming import consume
from qmcore.acts.enqueue import arrive
from qmcore.acts.returning import Cause, give_back
from qmcore.definitions import OpenSpace
from qmcore.port import Outcome, Unit


def has_to_follow(unit: Unit, opened: OpenSpace) -> bool:
    """Tell whether memory holds something for a transaction that has ended."""
    records = unit.transactions(opened.space.id)
    if any(record.state is Outcome.COMMITTED for record in records):
        return True
    memory = unit.memory(opened.space.id)
    return memory is not None and not {record.id for record in records}.issuperset(memory.holders())


def let_memory_follow(unit: Unit, opened: OpenSpace, now: int) -> None:
    """Do in memory what the ends of transactions meant that it did not see."""
    memory = unit.memory(opened.space.id)
    if memory is None:
        return
    records = {record.id: record for record in unit.transactions(opened.space.id)}
    for transaction_id in memory.holders():
        record = records.get(transaction_id)
        if record is None:
            give_back(unit, opened, transaction_id, opened.definitions(unit).by_id, now, Cause.DEATH)
        elif record.state is Outcome.COMMITTED:
            for queue in opened.definitions(unit).queues.values():
                consume(unit, opened, memory, queue, transaction_id, now)
                if memory.spilled_use(transaction_id, queue.id).messages:
                    arrive(unit, opened, queue, memory, [], now, spilled_by=transaction_id)
    for record in records.values():
        if record.state is Outcome.COMMITTED:
            unit.end_transaction(record.id, record.owner_id)
