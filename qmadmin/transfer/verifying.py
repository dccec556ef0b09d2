"""Verifying the parts of an archive before anything of them is used: once in a command, if nobody touches them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from qmadmin.archive.file_systems import Directory
from qmadmin.transfer.units import verify_part
from qmadmin.transfer.workers import Told, tell_nobody

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmadmin.archive.manifest import PartEntry
    from qmadmin.archive.reading import Archive
    from qmadmin.transfer.workers import Crew

_SETTLED_NS: Final = 2 * 10**9
"""How long ago a file has to have changed so that its next change is seen: its times are as coarse as a clock."""


class _Stamp(NamedTuple):
    """Which file it is, and when it was changed, which not even its owner can set to another time."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class Verified:
    """What was verified in the course of one command.

    A later step reads a part again only where its file is another one, was changed since, or was too new to tell; or
    is not in a directory of this machine, where that is not known. `now` gives the time in nanoseconds since 1970.
    """

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._parts: dict[PartEntry, _Stamp] = {}

    def verify(self, archive: Archive, crew: Crew, told: Told = tell_nobody) -> None:
        """Have the parts read that are not known to be what the manifest says, and refuse the first that is not."""
        began = self._now()
        # As they are before they are read, so that what is changed meanwhile is not taken for verified.
        stamps = _stamps(archive)
        known = {entry for entry, stamp in stamps.items() if self._parts.get(entry) == stamp}
        left = [entry for entry in archive.manifest.parts if entry not in known]
        for _ in crew.run(verify_part, [(entry,) for entry in left], told):
            pass
        self._parts |= {entry: stamp for entry, stamp in stamps.items() if began - stamp.changed_ns > _SETTLED_NS}


def _stamps(archive: Archive) -> dict[PartEntry, _Stamp]:
    if not isinstance(archive.files, Directory):
        return {}
    return {entry: _stamp(archive, entry) for entry in archive.manifest.parts}


def _stamp(archive: Archive, entry: PartEntry) -> _Stamp:
    with archive.opened(entry) as file:
        found = os.fstat(file.fileno())
    return _Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
