"""Capacity commands on PostgreSQL, which several sessions may be about to claim or to arm again at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmcore.transitions import Reached
from qmstorage.capacity_commands import REARM, CapacityCommands
from qmstorage.postgres import keys
from qmstorage.schema import threshold
from qmstorage.sql import BigInteger, bindparam, func, postgresql, select

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresUnit

_IS_FREE = func.pg_try_advisory_xact_lock(bindparam("key", type_=BigInteger()))
_CLAIM = (
    postgresql.insert(threshold)
    .from_select(
        [column.name for column in threshold.columns],
        select(*(bindparam(column.name, type_=column.type) for column in threshold.columns)).where(_IS_FREE),
    )
    .on_conflict_do_nothing()
    .returning(threshold.c.queue_id)
)
_REARM = REARM.where(_IS_FREE)


class SharedCapacityCommands(CapacityCommands):
    """High limits that were reached, and who is to start their commands.

    What somebody else is about to claim or to arm again is passed over: an application may take long to commit.
    """

    unit: PostgresUnit

    def claim(self, claim: Reached, owner_id: int, now_us: int) -> bool:
        """Claim that a capacity command is started by this owner; False where the limit was reached before."""
        row = self.one(
            _CLAIM,
            key=self._key(claim.queue_id, memory=claim.memory),
            queue_id=claim.queue_id,
            memory=claim.memory,
            value=claim.value,
            claimed_by=owner_id,
            claimed_at=now_us,
        )
        return row is not None

    def rearm(self, queue_id: int, *, memory: bool) -> bool:
        """Let the high limit be reached again; False where it was not reached, or its command is not started yet."""
        key = self._key(queue_id, memory=memory)
        return self.one(_REARM, of_queue=queue_id, of_memory=memory, key=key) is not None

    def _key(self, queue_id: int, *, memory: bool) -> int:
        return keys.key(self.unit.schema, keys.Kind.CLAIM, 2 * queue_id + memory)
