"""Which owners live on SQLite: each has locked a file of its own."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.records import Owner
from qmstorage.sqlite import translate
from qmstorage.sqlite.owner_files import OwnerFiles, is_same_boot
from qmstorage.sqlite.wakeups import Wakeups


class FileLiveness:
    """Which owners of a volume live, by their files."""

    def __init__(self, path: str, owner_files: OwnerFiles, wakeups: Wakeups) -> None:
        self._path = path
        self._owner_files = owner_files
        self._wakeups = wakeups

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Lock a private file that tells others, as long as this process lives, that it does."""
        with translate.os_errors("attaching to device", self._path):
            return self._owner_files.new(space_id, role, now_us)

    def release(self, owner: Owner, wakeups: Sequence[str] = ()) -> None:
        """Remove the private file of an owner, ours or one that died, and the wake-ups that it has left."""
        self._owner_files.release(owner)
        self._wakeups.clear(wakeups)

    def living(self, owners: Sequence[Owner]) -> set[int]:
        """Return the numbers of those owners whose processes live and are still attached."""
        return {owner.id for owner in owners if self._owner_files.is_alive(owner)}

    def is_same_boot(self, owner: Owner) -> bool:
        """Return whether the machine has run without restart since the owner attached."""
        return is_same_boot(owner)
