"""Transactions in SQL."""

from __future__ import annotations

from qmcore.purpose import WrongPurposeError
from qmcore.records import Outcome, TransactionRecord
from qmstorage.schema import trans
from qmstorage.sql import ColumnElement, delete, func, literal, literal_column, select, update
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import UnitPart


def written_state(outcome: Outcome) -> ColumnElement[str]:
    """Return a state as it stands in the text of a statement."""
    return literal_column(f"'{outcome.value}'")


_ADD = insert_into(trans)
_OF_OWNER = (given(trans.c.id, "trans_id"), given(trans.c.owner_id, "of_owner"))
_ACTIVE_OF_OWNER = (*_OF_OWNER, trans.c.state == written_state(Outcome.ACTIVE))
END = delete(trans).where(*_ACTIVE_OF_OWNER)
_FORGET_COMMITTED = delete(trans).where(given(trans.c.id, "trans_id"), trans.c.state == Outcome.COMMITTED.value)
# Locked, where several write at the same time: whoever ends the transaction then finds all that it holds.
_IS_ACTIVE = select(trans.c.id).where(*_ACTIVE_OF_OWNER).with_for_update(read=True)
_TRANSACTIONS = (
    select(trans.c.id, trans.c.space_id, trans.c.owner_id, trans.c.state, trans.c.started_at, trans.c.deadline)
    .where(given(trans.c.space_id, "of_space"))
    .order_by(trans.c.started_at, trans.c.id)
)
_COUNT = (
    select(func.count())
    .select_from(trans)
    .where(given(trans.c.space_id, "of_space"), trans.c.state != Outcome.COMMITTED.value)
)
_MARK_COMMITTED = (
    update(trans).where(*_ACTIVE_OF_OWNER).values(state=literal(Outcome.COMMITTED.value)).returning(trans.c.id)
)


class Transactions(UnitPart):
    """Transactions."""

    def add(self, record: TransactionRecord) -> None:
        """Record an active transaction."""
        if self.purpose.again:
            raise WrongPurposeError(self.purpose, "begins a transaction, and may be done twice")
        self.run(
            _ADD,
            id=record.id,
            space_id=record.space_id,
            owner_id=record.owner_id,
            state=record.state.value,
            started_at=record.started_us,
            deadline=record.deadline_us,
            xid_format=None,
            xid_global=None,
            xid_branch=None,
        )

    def end(self, transaction_id: int, owner_id: int) -> bool:
        """Remove the transaction if that owner still has it; False means that it was given up, or is committed."""
        return self.run(END, trans_id=transaction_id, of_owner=owner_id).rowcount > 0

    def forget_committed(self, transaction_id: int) -> None:
        """Remove a committed transaction, because memory has followed it."""
        self.run(_FORGET_COMMITTED, trans_id=transaction_id)

    def mark_committed(self, transaction_id: int, owner_id: int) -> bool:
        """Record that the transaction is committed and memory has to follow; False means that it was given up."""
        return self.one(_MARK_COMMITTED, trans_id=transaction_id, of_owner=owner_id) is not None

    def is_active(self, transaction_id: int, owner_id: int) -> bool:
        """Return whether that owner still has the transaction, and it is active."""
        if self.purpose.again:
            raise WrongPurposeError(self.purpose, "goes on with a transaction, and may be done twice")
        return self.one(_IS_ACTIVE, trans_id=transaction_id, of_owner=owner_id) is not None

    def of_space(self, space_id: int) -> list[TransactionRecord]:
        """Return the transactions of a queue space, the longest first."""
        return [
            TransactionRecord(
                id=row[0],
                space_id=row[1],
                owner_id=row[2],
                state=Outcome(row[3]),
                started_us=row[4],
                deadline_us=row[5],
            )
            for row in self.all(_TRANSACTIONS, of_space=space_id)
        ]

    def count(self, space_id: int) -> int:
        """Return how many transactions of the queue space are open."""
        return int(self.all(_COUNT, of_space=space_id)[0][0])
