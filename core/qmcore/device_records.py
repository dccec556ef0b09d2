"""What the volume that QMCONFIG names records for the device as a whole: a part of the port (`qmcore.port`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from qmcore.audit import AuditEntry
from qmcore.device import DeviceEntry, DeviceInfo, Extent


class DeviceRecords(Protocol):
    """The device list and the table of contents; only the volume that QMCONFIG names has them."""

    def info(self) -> DeviceInfo:
        """Return what the device records about itself."""

    def set_commands(self, *, enabled: bool) -> None:
        """Record whether capacity commands run."""

    def entries(self) -> list[DeviceEntry]:
        """Return the device list in the order of its indexes."""

    def add_entry(self, entry: DeviceEntry) -> None:
        """Add an entry to the device list."""

    def rename_entry(self, index: int, path: str) -> None:
        """Set the path of an entry of the device list."""

    def remove_entry(self, index: int) -> None:
        """Remove an entry from the device list."""

    def extents(self) -> list[Extent]:
        """Return the table of contents."""

    def add_extents(self, extents: Iterable[Extent]) -> None:
        """Add rows to the table of contents."""

    def remove_extents(self, space: str) -> None:
        """Remove the rows of a queue space from the table of contents."""

    def remove_extent(self, extent: Extent) -> None:
        """Remove one row from the table of contents, if it is still there as it was."""


class AuditRecords(Protocol):
    """Destructive acts; only the volume that QMCONFIG names has them."""

    def add(self, entry: AuditEntry) -> int:
        """Record an act and return the number of the entry; the oldest beyond those that are kept are removed."""

    def set_outcome(self, entry: AuditEntry, outcome: str) -> None:
        """Record what came of an act, if it is recorded."""

    def last(self, limit: int) -> list[AuditEntry]:
        """Return the last `limit` acts, the newest first."""
