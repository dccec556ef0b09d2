"""Locks between processes: the gate in front of the single writer, and the files that tell who lives.

All are POSIX record locks. They end with their process and are not inherited by a fork; but a process loses those on a
file when it closes *any* descriptor of that file. So each owner has a file of its own that only it opens, and nobody
probes a file of its own process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from pathlib import Path

from qmcore.port import Owner

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TIME_FIELD = 19
"""Of /proc/self/stat behind the command name: the process's start in ticks since the boot."""


class Gate:
    """Where processes queue for the writer's lock, so that they need not poll for it.

    The gate only spares time: SQLite's own lock keeps writers apart, also where the gate cannot be had.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)

    def enter(self) -> None:
        """Wait until no other process is inside."""
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            # Two processes that each wait for the other's gate, in different threads and for different volumes, look
            # like a deadlock to the kernel though they are none.
            if error.errno != errno.EDEADLK:
                raise

    def leave(self) -> None:
        """Let the next process in."""
        fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the gate up."""
        os.close(self._fd)


class OwnerFiles:
    """The files of a volume's directory that living processes have locked."""

    def __init__(self, directory: Path, mode: int) -> None:
        self._directory = directory
        self._mode = mode
        self._mine: dict[str, int] = {}

    def new(self, space_id: int, role: str, now_us: int) -> Owner:
        """Make and lock a file, and return the owner that it stands for."""
        name = f"{secrets.token_hex(8)}.lock"
        fd = os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._mine[name] = fd
        return Owner(
            id=secrets.randbits(62),
            space_id=space_id,
            process=_this_process(),
            pid=os.getpid(),
            host=os.uname().nodename,
            boot=_this_boot(),
            lock=name,
            role=role,
            since_us=now_us,
        )

    def release(self, owner: Owner) -> None:
        """Remove an owner's file; of one that is ours the lock is given up."""
        fd = self._mine.pop(owner.lock, None)
        (self._directory / owner.lock).unlink(missing_ok=True)
        if fd is not None:
            os.close(fd)

    def is_alive(self, owner: Owner) -> bool:
        """Tell whether somebody has the owner's file locked."""
        if owner.process == _this_process() and owner.boot == _this_boot():
            # Opening and closing the file would drop our own lock on it.
            return True
        try:
            fd = os.open(self._directory / owner.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def close(self) -> None:
        """Give up all of our own files."""
        for name, fd in self._mine.items():
            (self._directory / name).unlink(missing_ok=True)
            os.close(fd)
        self._mine.clear()


def same_boot(owner: Owner) -> bool:
    """Tell whether the machine has run without restart since the owner attached."""
    return owner.boot == _this_boot()


def _this_boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _this_process() -> str:
    """Return what tells this process from one that gets its number later."""
    try:
        behind_name = Path("/proc/self/stat").read_text().rpartition(")")[2]
        return f"{os.getpid()}-{behind_name.split()[_START_TIME_FIELD]}"
    except OSError:
        return f"{os.getpid()}-{_IMPORTED}"


_IMPORTED = secrets.token_hex(4)
