"""Bringing to the disk what commands write."""

from __future__ import annotations

import errno
import os


def fsync(descriptor: int) -> None:
    """Bring a file or a directory to the disk, as far as its file system can be asked to."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems, as CIFS and FUSE, know no such request: of a directory, or at all.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
