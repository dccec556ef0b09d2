"""What forwarders report of their work on queues, in SQL: a row for each forwarder and queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from qmcore.records import Forwarding
from qmstorage.schema import forwarding, owner, queue
from qmstorage.sql import bindparam, delete, select, update
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import UnitPart

_FIELDS = [field.name for field in dataclasses.fields(Forwarding) if field.name != "queue"]
"""Each has a column of the same name."""

# Locked, where several write at the same time: the removal of the owner then finds its rows, and each row is added by
# one thread.
_HOLD_OWNER = select(owner.c.id).where(given(owner.c.id, "of_owner")).with_for_update()
_OF_OWNER = given(forwarding.c.owner_id, "of_owner")
_ONE = (_OF_OWNER, given(forwarding.c.queue_id, "of_queue"))
_CHANGE = (
    update(forwarding)
    .where(*_ONE)
    .values({name: bindparam(f"new_{name}") for name in _FIELDS})
    .returning(forwarding.c.queue_id)
)
_ADD = insert_into(forwarding)
_LISTED = (
    select(owner.c.id, queue.c.name, *(forwarding.c[name] for name in _FIELDS))
    .select_from(forwarding)
    .join(owner, owner.c.id == forwarding.c.owner_id)
    .join(queue, queue.c.id == forwarding.c.queue_id)
    .where(given(owner.c.space_id, "of_space"))
    .order_by(queue.c.name, owner.c.since, owner.c.id)
)
_QUEUES = select(forwarding.c.queue_id).where(_OF_OWNER)
_REMOVE = delete(forwarding).where(_OF_OWNER)
_REMOVE_ONE = delete(forwarding).where(*_ONE)


class Forwardings(UnitPart):
    """What forwarders report of their work."""

    def report(self, owner_id: int, figures: Mapping[int, Forwarding], *, whole: bool) -> bool:
        """Record what an owner reports of its queues, by their numbers; False: the owner was taken for dead.

        `whole`: what it has reported of other queues is removed.
        """
        if self.one(_HOLD_OWNER, of_owner=owner_id) is None:
            return False
        if whole:
            for (queue_id,) in self.all(_QUEUES, of_owner=owner_id):
                if queue_id not in figures:
                    self.run(_REMOVE_ONE, of_owner=owner_id, of_queue=queue_id)
        for queue_id, told in figures.items():
            values = {name: getattr(told, name) for name in _FIELDS}
            new = {f"new_{name}": value for name, value in values.items()}
            if self.one(_CHANGE, of_owner=owner_id, of_queue=queue_id, **new) is None:
                self.run(_ADD, owner_id=owner_id, queue_id=queue_id, **values)
        return True

    def of_space(self, space_id: int) -> list[tuple[int, Forwarding]]:
        """Return what owners report of the queues of a queue space, ordered by queue, each with the owner."""
        return [
            (row[0], Forwarding(queue=row[1], **dict(zip(_FIELDS, row[2:], strict=True))))
            for row in self.all(_LISTED, of_space=space_id)
        ]

    def forget(self, owner_id: int) -> None:
        """Remove what an owner has reported."""
        self.run(_REMOVE, of_owner=owner_id)
