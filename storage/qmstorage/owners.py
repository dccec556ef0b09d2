"""Those who are attached to queue spaces, in SQL."""

from __future__ import annotations

import dataclasses

from qmcore.records import Owner
from qmstorage.schema import owner, waiter
from qmstorage.sql import delete, select
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import UnitPart

_ADD = insert_into(owner)
_OF_SPACE = select(owner).where(given(owner.c.space_id, "of_space")).order_by(owner.c.since, owner.c.id)
_IS_ATTACHED = select(owner.c.id).where(given(owner.c.id, "of_owner"))
_REMOVE = delete(owner).where(given(owner.c.id, "of_owner")).returning(owner.c.id)
_REMOVE_WAITS = (
    delete(waiter).where(given(waiter.c.owner_id, "of_owner")).returning(waiter.c.queue_id, waiter.c.address)
)


class Owners(UnitPart):
    """Those who are attached, and what goes with them."""

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
        self.unit.forwardings.forget(owner_id)
        for queue_id, _ in waits:
            # It may have been woken.
            self.notifications.passed_on(queue_id)
        return [address for _, address in waits] if removed else None
