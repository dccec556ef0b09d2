"""What a device needs of whoever puts storage under it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from qmcore.device import DeviceInfo
from qmcore.port import Volume
from qmcore.probe import Probe
from qmcore.times import Clock

if TYPE_CHECKING:
    from qmcore.backup import BackupReport


class VolumeMaker(Protocol):
    """Makes and opens the volumes of a device; a path is what the device list calls a volume.

    `kind` is what they are made of: "sqlite" or "postgresql". All of them tell one `probe`.
    """

    kind: str
    probe: Probe

    def path_of(self, name: str | os.PathLike[str]) -> str:
        """Return the path of what a caller calls so; QueueError where this device can have no such volume."""

    def config_of(self, path: str) -> str:
        """Return what QMCONFIG says for another process to open the device; nobody else is to see it."""

    def clock(self) -> Clock:
        """Return the clock that all who share the device go by; it may have to be asked for first."""

    def other_writers(self, path: str) -> str:
        """Return why others than this user may write a volume, as a sentence without end; empty where nobody may."""

    def open(self, path: str) -> Volume:
        """Open a volume."""

    def is_there(self, path: str) -> bool:
        """Return whether there is anything at the path of a volume."""

    def are_same(self, path: str, other: str) -> bool:
        """Return whether two paths lead to the same thing, which is there."""

    def create(self, path: str, info: DeviceInfo, *, main: bool) -> Volume:
        """Make a volume of a device."""

    def open_or_create(self, path: str, info: DeviceInfo) -> Volume:
        """Open a volume, made before where there is none; another device's is opened too, which the caller checks."""

    def back_up(
        self, volumes: Mapping[str, Volume], target: str, now: Callable[[], int], progress: Callable[[int], None]
    ) -> BackupReport:
        """Make a backup of volumes by their paths in the device list, the main one first."""
