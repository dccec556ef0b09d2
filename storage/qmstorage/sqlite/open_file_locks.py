"""Locks of the kernel that belong to an open file and not to the process (OFD locks of Linux); a fork inherits them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from typing import Final


def _lock(kind: int, byte: int, length: int = 1) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, length, 0)


_FREE: Final = struct.pack("h", fcntl.F_UNLCK)
"""How the system's answer begins where no other open file has the byte locked."""


def locks(fd: int, byte: int) -> bool:
    """Lock a byte, unless another has it or the system has no more locks; return whether it is locked."""
    if sys.platform != "linux":
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK, byte))
    except OSError:
        return False
    return True


def unlocks(fd: int, number: int) -> None:
    """Unlock the first `number` bytes."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _lock(fcntl.F_UNLCK, 0, number))


def is_locked(fd: int, byte: int) -> bool:
    """Return whether another open file has the byte locked."""
    if sys.platform != "linux":
        return False
    return fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK, byte))[: len(_FREE)] != _FREE
