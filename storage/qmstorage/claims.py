"""Capacity commands that are to be started, in SQL: a row for each limit that was reached."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, null, select, update

from qmcore.records import CommandClaim
from qmstorage.schema import queue, threshold
from qmstorage.statements import Runner, given, insert_into

_ITS = (given(threshold.c.queue_id, "of_queue"), given(threshold.c.memory, "of_memory"))
_CLAIM = insert_into(threshold)
_CLAIMS = (
    select(threshold.c.queue_id, threshold.c.memory, threshold.c.value, threshold.c.claimed_by)
    .join_from(threshold, queue, threshold.c.queue_id == queue.c.id)
    .where(given(queue.c.space_id, "of_space"), threshold.c.claimed_by.is_not(None))
)
_TAKE_OVER = (
    update(threshold)
    .where(*_ITS, given(threshold.c.claimed_by, "of_owner"))
    .values(claimed_by=bindparam("new_owner"))
    .returning(threshold.c.queue_id)
)
_IS_CLAIMED = select(threshold.c.queue_id).where(*_ITS, threshold.c.claimed_by.is_not(None))
_SETTLE = update(threshold).where(*_ITS).values(claimed_by=null())
REARM = delete(threshold).where(*_ITS, threshold.c.claimed_by.is_(None)).returning(threshold.c.queue_id)
_IS_TRIPPED = select(threshold.c.queue_id).where(*_ITS)


class Claims(Runner):
    """High limits that were reached, and which owner is to start their commands."""

    def claim_command(self, claim: CommandClaim, owner_id: int, now_us: int) -> bool:
        """Claim that a capacity command is started by this owner; False where the limit was reached before."""
        if self.is_tripped(claim.queue_id, memory=claim.memory):
            return False
        self.run(
            _CLAIM,
            queue_id=claim.queue_id,
            memory=claim.memory,
            value=claim.value,
            claimed_by=owner_id,
            claimed_at=now_us,
        )
        return True

    def claims(self, space_id: int) -> list[tuple[CommandClaim, int]]:
        """Return the capacity commands that were claimed and not started yet, each with its owner."""
        return [
            (CommandClaim(queue_id=row[0], memory=bool(row[1]), value=row[2]), row[3])
            for row in self.all(_CLAIMS, of_space=space_id)
        ]

    def take_over(self, claim: CommandClaim, of_owner: int, owner_id: int) -> bool:
        """Claim what another owner had claimed; False where a third one did."""
        values = {"of_queue": claim.queue_id, "of_memory": claim.memory, "of_owner": of_owner}
        return self.one(_TAKE_OVER, new_owner=owner_id, **values) is not None

    def is_claimed(self, claim: CommandClaim) -> bool:
        """Return whether the command is still to be started: its queue may be gone, or its claim undone."""
        return self.one(_IS_CLAIMED, of_queue=claim.queue_id, of_memory=claim.memory) is not None

    def settle_claim(self, claim: CommandClaim) -> None:
        """Note that the command was started."""
        self.run(_SETTLE, of_queue=claim.queue_id, of_memory=claim.memory)

    def rearm(self, queue_id: int, *, memory: bool) -> bool:
        """Rearm a high limit; False where it was not reached, or its command is not started yet."""
        return self.one(REARM, of_queue=queue_id, of_memory=memory) is not None

    def is_tripped(self, queue_id: int, *, memory: bool) -> bool:
        """Return whether the high limit was reached and the use has not been down at the low limit since."""
        return self.one(_IS_TRIPPED, of_queue=queue_id, of_memory=memory) is not None
