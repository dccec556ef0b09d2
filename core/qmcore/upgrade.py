"""What an upgrade of a device to the schema version of this release would do."""

from __future__ import annotations

from qmcore.errors import InUseError
from qmcore.values import dataclass

COPIED_EACH_SECOND = 50_000_000
"""Bytes of a device that are copied and checked in a second, a conservative guess for the estimate of a plan."""

_NAMED = 5
"""Processes that a refusal names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePlan:
    """An upgrade before it is done.

    `path` names the device, `version` the schema version that it has and `target` that of this release; they are equal
    where there is nothing to do. `volumes` are the paths of all volumes, the device itself first, each with its bytes.
    `attached` are the processes that keep the device from being upgraded. `backup_command` saves a device that qmadmin
    cannot copy itself, empty where it can. `under_way` says that an upgrade was cut short: some volumes have the new
    version, all were saved before it began, and could not be used since. `groups` is the number of groups of volumes
    that are upgraded one after the other, those of one group together or not at all.
    """

    path: str
    version: int
    target: int
    volumes: tuple[tuple[str, int], ...]
    attached: tuple[str, ...] = ()
    backup_command: str = ""
    under_way: bool = False
    groups: int = 1

    @property
    def size(self) -> int:
        """Bytes of all volumes, which is the room that a backup of them takes at most."""
        return sum(size for _, size in self.volumes)

    def refuse_attached(self) -> None:
        """Raise InUseError where processes are attached, and name them."""
        if self.attached:
            more = len(self.attached) - _NAMED
            who = ", ".join(self.attached[:_NAMED]) + (f" and {more} more" if more > 0 else "")
            raise InUseError(
                f"device {self.path!r} has processes attached: {who}", hint="End them first.", path=self.path
            )

    @property
    def seconds(self) -> int:
        """About how long the backup takes; the upgrade itself is done in an instant, however much is stored."""
        return 1 + self.size // COPIED_EACH_SECOND
