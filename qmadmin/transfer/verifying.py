"""Verifying the parts of an archive before anything of them is used: once in a command, if nobody touches them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from qmadmin.transfer.units import verify_part
from qmadmin.transfer.workers import Told, tell_nobody

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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

    A later step reads a part again only where its file is another one, was changed since, or was too new to tell. `now`
    gives the time in nanoseconds since 1970.
    """

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._parts: dict[tuple[Path, PartEntry], _Stamp] = {}

    def verify(self, archive: Archive, crew: Crew, told: Told = tell_nobody) -> None:
        """Have the parts read that are not known to be what the manifest says, and refuse the first that is not."""
        began = self._now()
        # As they are before they are read, so that what is changed meanwhile is not taken for verified.
        stamps = {(archive.directory, entry): _stamp(archive, entry) for entry in archive.manifest.parts}
        left = [entry for (place, entry), stamp in stamps.items() if self._parts.get((place, entry)) != stamp]
        for _ in crew.run(verify_part, [(entry,) for entry in left], told):
            pass
        self._parts |= {part: stamp for part, stamp in stamps.items() if began - stamp.changed_ns > _SETTLED_NS}


def _stamp(archive: Archive, entry: PartEntry) -> _Stamp:
    with archive.opened(entry) as file:
        found = os.fstat(file.fileno())
    return _Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
