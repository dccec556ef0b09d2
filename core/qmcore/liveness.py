"""Which of those who are attached live: a part of the port (`qmcore.port`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qmcore.records import Owner


class Liveness(Protocol):
    """What tells others, without a timeout, that a process lives."""

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Lock a private file that tells others, as long as this process lives, that it does."""

    def release(self, owner: Owner, wakeups: Sequence[str] = ()) -> None:
        """Remove the private file of an owner, ours or one that died, and the wake-ups that it has left."""

    def living(self, owners: Sequence[Owner]) -> set[int]:
        """Return the numbers of those owners whose processes live and are still attached."""

    def is_same_boot(self, owner: Owner) -> bool:
        """Return whether the machine has run without restart since the owner attached."""
