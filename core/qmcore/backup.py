"""The description of a backup."""

from __future__ import annotations

from datetime import datetime

from qmcore import times
from qmcore.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupVolume:
    """One file of a device in a backup: its name there, the path that it came from, its bytes and their SHA-256."""

    file: str
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """A backup, or what was restored from one.

    `path` is the directory of the backup, or the device that was restored from it. `device` is the path that the device
    had, and `volumes` its files, the device itself first. `messages` counts persistent messages, and `transactions`
    those that were open: they roll back when the restored device is first used. `faults` are sentences on
    inconsistencies that the device had already.
    """

    path: str
    device: str
    device_id: str
    made_us: int
    volumes: tuple[BackupVolume, ...]
    spaces: int
    messages: int
    transactions: int
    faults: tuple[str, ...] = ()

    @property
    def made_at(self) -> datetime:
        """The moment whose state the backup has (UTC)."""
        return times.to_datetime(self.made_us)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(volume.size for volume in self.volumes)
