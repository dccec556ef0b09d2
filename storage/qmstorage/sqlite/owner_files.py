"""The files that show which processes are alive: each owner has one of its own, and locks it.

The first byte has a POSIX record lock, which ends with its process and is not inherited by a fork. But a process loses
it when it closes *any* descriptor of the file, as a backup of the directory does. So no process probes a file of its
own, and the second byte has a lock that belongs to the open file: while that is held, and the very process that has
recorded itself runs, it has lost its lock and is alive. That lock alone would not do: a fork inherits it, and keeps it
when the owner is dead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from qmcore.numbers import random_number
from qmcore.records import Owner
from qmstorage.process_identity import is_running, this_process
from qmstorage.sqlite import open_file_locks
from qmstorage.sqlite.writer_gate import Surroundings, lock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESS, _OPEN_FILE = 0, 1
"""The bytes that are locked by the process, and by the file that it has open."""


class OwnerFiles:
    """The files in a volume's directory that live processes have locked."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._directory = surroundings.directory
        self._mine: dict[str, int] = {}

    def new(self, space_id: int, role: str, now_us: int) -> Owner:
        """Create and lock a file, and return its owner."""
        name = f"{os.urandom(8).hex()}{_ending()}"
        fd = self._surroundings.make(name, os.O_EXCL)
        lock(fd, _PROCESS)
        open_file_locks.locks(fd, _OPEN_FILE)
        self._mine[name] = fd
        return Owner(
            id=random_number(),
            space_id=space_id,
            process=this_process(),
            pid=os.getpid(),
            host=os.uname().nodename,
            boot=this_boot(),
            lock=name,
            role=role,
            since_us=now_us,
        )

    def release(self, owner: Owner) -> None:
        """Remove an owner's file; one of ours is unlocked too."""
        fd = self._mine.pop(owner.lock, None)
        (self._directory / owner.lock).unlink(missing_ok=True)
        if fd is not None:
            os.close(fd)

    def is_alive(self, owner: Owner) -> bool:
        """Return whether the process is alive that has the owner's file locked, or had until it closed a copy of it."""
        if owner.lock in self._mine:
            return True
        if owner.process == this_process() and owner.boot == this_boot():
            # Opening and closing the file would drop our own lock on it; an owner that has left has removed it.
            return (self._directory / owner.lock).exists()
        try:
            fd = os.open(self._directory / owner.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            return not lock(fd, _PROCESS) or (_is_open(fd) and is_running(owner.process))
        finally:
            os.close(fd)

    def has_process_without_lock(self) -> bool:
        """Return whether another process has its file open and has lost its lock on it, and so SQLite's locks too."""
        return any(map(_has_lost_lock, self._others()))

    def _others(self) -> Iterator[Path]:
        return (path for path in self._directory.glob("*.lock") if not path.name.endswith(_ending()))

    def close(self) -> None:
        """Remove all of our own files."""
        for name in self._mine:
            (self._directory / name).unlink(missing_ok=True)
        self.abandon()

    def abandon(self) -> None:
        """Close what a fork has inherited of the parent's files, which stay where they are and stay locked."""
        for fd in self._mine.values():
            os.close(fd)
        self._mine.clear()


def is_same_boot(owner: Owner) -> bool:
    """Return whether the machine has run without restart since the owner attached."""
    return owner.boot == this_boot()


def _ending() -> str:
    """Return the suffix of this process's files: to open one and close it would drop the lock."""
    return f"-{os.getpid()}.lock"


def _has_lost_lock(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _is_open(fd) and lock(fd, _PROCESS)
    finally:
        os.close(fd)


def _is_open(fd: int) -> bool:
    return open_file_locks.is_locked(fd, _OPEN_FILE)


def this_boot() -> str:
    """Return what distinguishes this start of the machine from earlier ones."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
