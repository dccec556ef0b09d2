"""Those who are attached to queue spaces, in SQL, what they wait for, and what forwarders tell of their work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from qmcore.records import Forwarding, Owner
from qmcore.selection import FIRST_CHOICE
from qmstorage.schema import forwarding, owner, queue, waiter
from qmstorage.sql import bindparam, delete, distinct, func, select, update
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import UnitPart

_ADD = insert_into(owner)
_OF_SPACE = select(owner).where(given(owner.c.space_id, "of_space")).order_by(owner.c.since, owner.c.id)
_IS_ATTACHED = select(owner.c.id).where(given(owner.c.id, "of_owner"))
_REMOVE = delete(owner).where(given(owner.c.id, "of_owner")).returning(owner.c.id)
_REMOVE_WAITS = (
    delete(waiter).where(given(waiter.c.owner_id, "of_owner")).returning(waiter.c.queue_id, waiter.c.address)
)
_ADD_WAIT = insert_into(waiter)
_REMOVE_WAIT = delete(waiter).where(given(waiter.c.queue_id, "of_queue"), given(waiter.c.address, "at_address"))
_WAITS_OF_SPACE = (
    select(waiter.c.owner_id, func.count(distinct(waiter.c.address)))
    .join_from(waiter, owner, waiter.c.owner_id == owner.c.id)
    .where(given(owner.c.space_id, "of_space"))
    .group_by(waiter.c.owner_id)
)
_FIELDS = [field.name for field in dataclasses.fields(Forwarding) if field.name != "queue"]
"""Each has a column of the same name."""

# Locked, where several write at the same time: the removal of the owner then finds its rows, and each row is added by
# one thread.
_HOLD_OWNER = select(owner.c.id).where(given(owner.c.id, "of_owner")).with_for_update()
_OF_OWNER = given(forwarding.c.owner_id, "of_owner")
_OF_REPORT = (_OF_OWNER, given(forwarding.c.queue_id, "of_queue"))
_CHANGE_REPORT = (
    update(forwarding)
    .where(*_OF_REPORT)
    .values({name: bindparam(f"new_{name}") for name in _FIELDS})
    .returning(forwarding.c.queue_id)
)
_ADD_REPORT = insert_into(forwarding)
_REPORTS = (
    select(owner.c.id, queue.c.name, *(forwarding.c[name] for name in _FIELDS))
    .select_from(forwarding)
    .join(owner, owner.c.id == forwarding.c.owner_id)
    .join(queue, queue.c.id == forwarding.c.queue_id)
    .where(given(owner.c.space_id, "of_space"))
    .order_by(queue.c.name, owner.c.since, owner.c.id)
)
_REPORTED = select(forwarding.c.queue_id).where(_OF_OWNER)
_REMOVE_REPORTS = delete(forwarding).where(_OF_OWNER)
_REMOVE_REPORT = delete(forwarding).where(*_OF_REPORT)


class Owners(UnitPart):
    """Those who are attached, and what goes with them."""

    @property
    def forwardings(self) -> Forwardings:
        """What forwarders report of their work."""
        return Forwardings(self.unit)

    def add(self, new: Owner) -> None:
        """Record who is attached."""
        values = dataclasses.asdict(new)
        values["since"] = values.pop("since_us")
        self.run(_ADD, **values)

    def is_attached(self, owner_id: int) -> bool:
        """Return whether the owner was not given up."""
        return self.one(_IS_ATTACHED, of_owner=owner_id) is not None

    def of_space(self, space_id: int) -> list[Owner]:
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
            for row in self.all(_OF_SPACE, of_space=space_id)
        ]

    def remove(self, owner_id: int) -> list[str] | None:
        """Forget who was attached, what it told, and for what it waited; return the addresses of its wake-ups.

        None where it is forgotten already: it has left, or others have found it dead.
        """
        waits = self.all(_REMOVE_WAITS, of_owner=owner_id)
        removed = self.one(_REMOVE, of_owner=owner_id) is not None
        # Now that nobody adds to it.
        self.forwardings.forget(owner_id)
        for queue_id, _ in waits:
            # It may have been woken.
            self.notifications.passed_on(queue_id)
        return [address for _, address in waits] if removed else None


class Waits(UnitPart):
    """Waits for messages of queues."""

    def add(self, queue_id: int, address: str, owner_id: int) -> None:
        """Record that a message of the queue is waited for, and the address of the wake-up."""
        self.run(_ADD_WAIT, queue_id=queue_id, address=address, owner_id=owner_id)

    def remove(self, queue_id: int, address: str) -> None:
        """Forget that a message of the queue is waited for."""
        self.run(_REMOVE_WAIT, of_queue=queue_id, at_address=address)

    def of_space(self, space_id: int) -> dict[int, int]:
        """Return who waits for messages of the queue space, and how many waits each has."""
        return {row[0]: row[1] for row in self.all(_WAITS_OF_SPACE, of_space=space_id)}

    def pass_on(self, space_id: int, queue_id: int) -> None:
        """Have another of those told who wait in turn for the queue, where it has a message for them."""
        stores = (self.unit, self.unit.memory(space_id))
        its = queue_id, queue_id, FIRST_CHOICE
        if any(store is not None and store.states.find(*its) is not None for store in stores):
            self.notifications.passed_on(queue_id)

    def notify(self, queue_id: int) -> None:
        """Have all told, once the unit is committed, who wait for the queue."""
        self.notifications.changed(queue_id)


class Forwardings(UnitPart):
    """What forwarders report of their work."""

    def report(self, owner_id: int, figures: Mapping[int, Forwarding], *, whole: bool) -> bool:
        """Record what an owner reports of its queues, by their numbers; False: the owner was taken for dead.

        `whole`: what it has reported of other queues is removed.
        """
        if self.one(_HOLD_OWNER, of_owner=owner_id) is None:
            return False
        if whole:
            for (queue_id,) in self.all(_REPORTED, of_owner=owner_id):
                if queue_id not in figures:
                    self.run(_REMOVE_REPORT, of_owner=owner_id, of_queue=queue_id)
        for queue_id, told in figures.items():
            values = {name: getattr(told, name) for name in _FIELDS}
            new = {f"new_{name}": value for name, value in values.items()}
            if self.one(_CHANGE_REPORT, of_owner=owner_id, of_queue=queue_id, **new) is None:
                self.run(_ADD_REPORT, owner_id=owner_id, queue_id=queue_id, **values)
        return True

    def of_space(self, space_id: int) -> list[tuple[int, Forwarding]]:
        """Return what owners report of the queues of a queue space, ordered by queue, each with the owner."""
        return [
            (row[0], Forwarding(queue=row[1], **dict(zip(_FIELDS, row[2:], strict=True))))
            for row in self.all(_REPORTS, of_space=space_id)
        ]

    def forget(self, owner_id: int) -> None:
        """Remove what an owner has reported."""
        self.run(_REMOVE_REPORTS, of_owner=owner_id)
