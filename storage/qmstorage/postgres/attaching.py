"""Who lives and who is woken on PostgreSQL, as the engine's port wants it: one session of each process tells both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qmcore.port import WakeupSet
from qmcore.records import Owner

if TYPE_CHECKING:
    from qmstorage.postgres.liveness import Liveness
    from qmstorage.postgres.volume import PostgresVolume
    from qmstorage.postgres.wakeups import ServerWakeup


class ServerLiveness:
    """Which owners of a volume live, by the keys that the server has locked for them."""

    def __init__(self, volume: PostgresVolume, session: Liveness) -> None:
        self._volume = volume
        self._session = session

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Lock a key that tells others, as long as this process lives and is connected, that it does."""
        self._volume.check_place()
        return self._volume.translated(lambda: self._session.new_owner(space_id, role, now_us))

    def release(self, owner: Owner, wakeups: Sequence[str] = ()) -> None:
        """Unlock the key of an owner of ours; one that died has left nothing."""
        self._volume.translated(lambda: self._session.release_owner(owner, wakeups))

    def living(self, owners: Sequence[Owner]) -> set[int]:
        """Return the numbers of those owners whose processes are connected and still attached."""
        alive = self._volume.asked(lambda session: self._session.alive(owners, session.connection)) if owners else []
        return {owner.id for owner in alive}

    def is_same_boot(self, owner: Owner) -> bool:
        """Return whether the server has run without restart since the owner attached."""
        return self._volume.asked(lambda session: self._session.is_same_boot(owner, session.connection))


class ServerWakeups:
    """The wake-ups of a volume, of which the server tells."""

    deaf_seconds = 0.05
    """A function that lets messages arrive looks for waiters, and not whoever has committed it: that would be another
    transaction, even if nobody waits."""

    def __init__(self, volume: PostgresVolume, session: Liveness) -> None:
        self._volume = volume
        self._session = session

    def new(self, *, in_turn: bool = False) -> ServerWakeup:
        """Return a new wake-up of this process. The server tells all processes; in each, one is woken in turn."""
        self._volume.check_place()
        return self._session.wakeup(in_turn=in_turn)

    def new_set(self) -> WakeupSet[Any]:
        """Return a new set of wake-ups, for an event loop of this process."""
        self._volume.check_place()
        return self._session.wakeup_set()

    def wake(self, addresses: Sequence[str]) -> None:
        """Wake waiters of this process; others hear what the server tells."""
        self._session.wake(addresses)

    def wake_own(self) -> None:
        """Wake all waiters of this process; a signal handler may call it."""
        self._session.wake_own()
