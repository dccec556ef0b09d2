"""What a device needs of whoever puts storage under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from qmcore.backup import BackupReport
from qmcore.device import DeviceInfo
from qmcore.port import Volume


class VolumeMaker(Protocol):
    """Makes and opens the volumes of a device."""

    def open(self, path: str) -> Volume:
        """Open the volume in a file."""

    def create(self, path: str, info: DeviceInfo, *, main: bool) -> Volume:
        """Make a volume of a device."""

    def back_up(
        self, volumes: Mapping[str, Volume], target: str, now: Callable[[], int], progress: Callable[[int], None]
    ) -> BackupReport:
        """Make a backup of volumes by their paths in the device list, the main one first."""
