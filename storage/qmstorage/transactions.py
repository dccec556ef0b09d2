"""Transactions, what they hold, owners and waiters in SQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from sqlalchemy import delete, false, func, select

from qmcore.port import Holding, Owner, Place, TransactionRecord
from qmstorage.runner import Runner, given, insert_into
from qmstorage.schema import held, message, owner, trans, waiter

_ADD = insert_into(trans)
_END = delete(trans).where(given(trans.c.id, "trans_id"), given(trans.c.owner_id, "of_owner")).returning(trans.c.id)
_IS_ACTIVE = select(trans.c.id).where(given(trans.c.id, "trans_id"), given(trans.c.owner_id, "of_owner"))
_TRANSACTIONS = (
    select(trans.c.id, trans.c.space_id, trans.c.owner_id, trans.c.state, trans.c.started_at, trans.c.deadline)
    .where(given(trans.c.space_id, "of_space"))
    .order_by(trans.c.started_at, trans.c.id)
)
_COUNT = select(func.count()).select_from(trans).where(given(trans.c.space_id, "of_space"))
_HOLD = insert_into(held)
_DEQUEUED = (given(held.c.queue_id, "of_queue"), given(held.c.trans_id, "of_trans"), held.c.enqueued == false())
_GIVE_BACK = (
    delete(held)
    .where(*_DEQUEUED)
    .returning(
        held.c.message_id,
        held.c.queue_id,
        held.c.order_key,
        held.c.retries,
        held.c.pages,
        held.c.size,
        held.c.expires_at,
    )
)
_SUMS = select(func.count(), func.sum(held.c.pages), func.sum(held.c.size)).where(*_DEQUEUED)
_CONSUME = delete(message).where(message.c.id.in_(select(held.c.message_id).where(*_DEQUEUED)))
_RELEASE = delete(held).where(*_DEQUEUED)
_HELD_IN = select(held.c.message_id).where(given(held.c.queue_id, "of_queue")).limit(1)
_ADD_OWNER = insert_into(owner)
_OWNERS = select(owner).where(given(owner.c.space_id, "of_space")).order_by(owner.c.since, owner.c.id)
_IS_ATTACHED = select(owner.c.id).where(given(owner.c.id, "of_owner"))
_REMOVE_OWNER = delete(owner).where(given(owner.c.id, "of_owner"))
_ADD_WAITER = insert_into(waiter)
_REMOVE_WAITER = delete(waiter).where(given(waiter.c.queue_id, "of_queue"), given(waiter.c.address, "at_address"))
_REMOVE_WAITERS = delete(waiter).where(given(waiter.c.owner_id, "of_owner")).returning(waiter.c.address)
_WAITERS = select(waiter.c.address).where(given(waiter.c.queue_id, "of_queue"))


class Transactions(Runner):
    """Transactions, what they hold, their owners, and those who wait."""

    def add_transaction(self, record: TransactionRecord) -> None:
        """Record an active transaction."""
        self.run(
            _ADD,
            id=record.id,
            space_id=record.space_id,
            owner_id=record.owner_id,
            state=record.state,
            started_at=record.started_us,
            deadline=record.deadline_us,
            xid_format=None,
            xid_global=None,
            xid_branch=None,
        )

    def end_transaction(self, transaction_id: int, owner_id: int) -> bool:
        """Remove the transaction if that owner still has it; False means that it was given up."""
        return self.one(_END, trans_id=transaction_id, of_owner=owner_id) is not None

    def is_active(self, transaction_id: int, owner_id: int) -> bool:
        """Tell whether that owner still has the transaction."""
        return self.one(_IS_ACTIVE, trans_id=transaction_id, of_owner=owner_id) is not None

    def transactions(self, space_id: int) -> list[TransactionRecord]:
        """Return the transactions of a queue space, the longest first."""
        return [
            TransactionRecord(
                id=row[0], space_id=row[1], owner_id=row[2], state=row[3], started_us=row[4], deadline_us=row[5]
            )
            for row in self.all(_TRANSACTIONS, of_space=space_id)
        ]

    def transaction_count(self, space_id: int) -> int:
        """Return how many transactions of the queue space are open."""
        return int(self.all(_COUNT, of_space=space_id)[0][0])

    def hold(self, transaction_id: int, place: Place, *, pages: int, size: int, expires_us: int | None) -> None:
        """Let the transaction hold a message that was taken out of `ready`."""
        self.run(
            _HOLD,
            trans_id=transaction_id,
            message_id=place.message_id,
            queue_id=place.queue_id,
            order_key=place.order_key,
            retries=place.retries,
            pages=pages,
            size=size,
            expires_at=expires_us,
            enqueued=False,
        )

    def give_back(self, transaction_id: int, queue_id: int) -> list[Holding]:
        """Take all messages that the transaction dequeued from the queue out of `held`, in the order of their keys."""
        taken = [
            Holding(Place(number, queue, key, retries), pages, size, expires)
            for number, queue, key, retries, pages, size, expires in self.all(
                _GIVE_BACK, of_trans=transaction_id, of_queue=queue_id
            )
        ]
        return sorted(taken, key=lambda holding: holding.place.order_key)

    def consume(self, transaction_id: int, queue_id: int) -> tuple[int, int, int]:
        """Delete all messages that the transaction dequeued from the queue; return how many, their pages and size."""
        count, pages, size = self.all(_SUMS, of_trans=transaction_id, of_queue=queue_id)[0]
        self.run(_CONSUME, of_trans=transaction_id, of_queue=queue_id)
        self.run(_RELEASE, of_trans=transaction_id, of_queue=queue_id)
        return count, pages or 0, size or 0

    def held_in(self, queue_id: int) -> bool:
        """Tell whether a transaction holds a message of the queue."""
        return self.one(_HELD_IN, of_queue=queue_id) is not None

    def add_owner(self, new: Owner) -> None:
        """Record who is attached."""
        values = dataclasses.asdict(new)
        values["since"] = values.pop("since_us")
        self.run(_ADD_OWNER, **values)

    def is_attached(self, owner_id: int) -> bool:
        """Tell whether the owner was not given up."""
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

    def remove_owner(self, owner_id: int) -> list[str]:
        """Forget who was attached, and for what it waited; return the bells that it waited for."""
        bells = [row[0] for row in self.all(_REMOVE_WAITERS, of_owner=owner_id)]
        self.run(_REMOVE_OWNER, of_owner=owner_id)
        return bells

    def add_waiter(self, queue_id: int, address: str, owner_id: int) -> None:
        """Record that a message of the queue is waited for, and which bell to ring."""
        self.run(_ADD_WAITER, queue_id=queue_id, address=address, owner_id=owner_id)

    def remove_waiter(self, queue_id: int, address: str) -> None:
        """Forget that a message of the queue is waited for."""
        self.run(_REMOVE_WAITER, of_queue=queue_id, at_address=address)

    def waiters(self, queue_ids: Iterable[int]) -> list[str]:
        """Return the bells of those who wait for a message of one of the queues."""
        return [row[0] for queue_id in queue_ids for row in self.all(_WAITERS, of_queue=queue_id)]
