"""Transactions, their owners, and those who wait, in SQL."""

from __future__ import annotations

import dataclasses

from sqlalchemy import ColumnElement, delete, distinct, func, literal, literal_column, select, update

from qmcore.purpose import WrongPurposeError
from qmcore.records import Outcome, Owner, TransactionRecord
from qmstorage.forwardings import Forwardings
from qmstorage.schema import owner, trans, waiter
from qmstorage.statements import given, insert_into


def written_state(outcome: Outcome) -> ColumnElement[str]:
    """Return a state as it stands in the text of a statement."""
    return literal_column(f"'{outcome.value}'")


_ADD = insert_into(trans)
_OF_OWNER = (given(trans.c.id, "trans_id"), given(trans.c.owner_id, "of_owner"))
_ACTIVE_OF_OWNER = (*_OF_OWNER, trans.c.state == Outcome.ACTIVE.value)
_END = delete(trans).where(*_ACTIVE_OF_OWNER)
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
_ADD_OWNER = insert_into(owner)
_OWNERS = select(owner).where(given(owner.c.space_id, "of_space")).order_by(owner.c.since, owner.c.id)
_IS_ATTACHED = select(owner.c.id).where(given(owner.c.id, "of_owner"))
_REMOVE_OWNER = delete(owner).where(given(owner.c.id, "of_owner")).returning(owner.c.id)
_ADD_WAITER = insert_into(waiter)
_REMOVE_WAITER = delete(waiter).where(given(waiter.c.queue_id, "of_queue"), given(waiter.c.address, "at_address"))
_REMOVE_WAITERS = (
    delete(waiter).where(given(waiter.c.owner_id, "of_owner")).returning(waiter.c.queue_id, waiter.c.address)
)
_WAITS = (
    select(waiter.c.owner_id, func.count(distinct(waiter.c.address)))
    .join_from(waiter, owner, waiter.c.owner_id == owner.c.id)
    .where(given(owner.c.space_id, "of_space"))
    .group_by(waiter.c.owner_id)
)


class Transactions(Forwardings):
    """Transactions, their owners, and those who wait."""

    def add_transaction(self, record: TransactionRecord) -> None:
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

    def end_transaction(self, transaction_id: int, owner_id: int) -> bool:
        """Remove the transaction if that owner still has it; False means that it was given up, or is committed."""
        return self.run(_END, trans_id=transaction_id, of_owner=owner_id).rowcount > 0

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

    def transactions(self, space_id: int) -> list[TransactionRecord]:
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

    def transaction_count(self, space_id: int) -> int:
        """Return how many transactions of the queue space are open."""
        return int(self.all(_COUNT, of_space=space_id)[0][0])

    def add_owner(self, new: Owner) -> None:
        """Record who is attached."""
        values = dataclasses.asdict(new)
        values["since"] = values.pop("since_us")
        self.run(_ADD_OWNER, **values)

    def is_attached(self, owner_id: int) -> bool:
        """Return whether the owner was not given up."""
        return self.one(_IS_ATTACHED, of_owner=owner_id) is not None

    def owners(self, space_id: int) -> list[Owner]:
        """Return who is attached to the queue space, longest first."""
        return [
            Owner(
                id=row[0],
                space_id=row[1],
                process=row[2],
                pid=row[3],
                host=row[4],
                boot=row[5],
                lock=row[6],
                role=row[7],
                since_us=row[8],
            )
            for row in self.all(_OWNERS, of_space=space_id)
        ]

    def remove_owner(self, owner_id: int) -> list[str] | None:
        """Forget who was attached, what it told, and for what it waited; return the addresses of its wake-ups.

        None where it is forgotten already: it has left, or others have found it dead.
        """
        waits = self.all(_REMOVE_WAITERS, of_owner=owner_id)
        removed = self.one(_REMOVE_OWNER, of_owner=owner_id) is not None
        # Now that nobody adds to it.
        self.forget_forwarding(owner_id)
        for queue_id, _ in waits:
            # It may have been woken.
            self.notifications.passed_on(queue_id)
        return [address for _, address in waits] if removed else None

    def add_waiter(self, queue_id: int, address: str, owner_id: int) -> None:
        """Record that a message of the queue is waited for, and the address of the wake-up."""
        self.run(_ADD_WAITER, queue_id=queue_id, address=address, owner_id=owner_id)

    def remove_waiter(self, queue_id: int, address: str) -> None:
        """Forget that a message of the queue is waited for."""
        self.run(_REMOVE_WAITER, of_queue=queue_id, at_address=address)

    def waits(self, space_id: int) -> dict[int, int]:
        """Return who waits for messages of the queue space, and how many waits each has."""
        return {row[0]: row[1] for row in self.all(_WAITS, of_space=space_id)}

    def pass_on(self, space_id: int, queue_id: int) -> None:
        """Do nothing: where all processes are told of each message, nobody waits in turn with those of others."""

    def notify(self, queue_id: int) -> None:
        """Have all told, once the unit is committed, who wait for the queue."""
        self.notifications.changed(queue_id)
