"""Locks between processes: the gate in front of the single writer, and what is beside it.

All are POSIX record locks. They end with their process and are not inherited by a fork; but a process loses its locks
on a file when it closes *any* descriptor of that file.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from qmcore.values import dataclass
from qmstorage.sqlite import translate

_FLOCK = "hhqqi"
_PAUSE_FIRST, _PAUSE_MOST = 0.00005, 0.002
"""Seconds between two checks of a closed gate."""

_BEHIND_SECONDS = 0.02
"""Seconds for which others go first, where there are always some."""

_TURN_MICROS = 900_000
"""For how long no other process does housekeeping. Each asks once a second, and is early now and then."""

_HOLDER, _WAITERS, _USERS = 0, 1, 2
"""The locked bytes of the gate's file: by the process inside, by all that wait, and by all that have it open."""

_GATE = "gate"
"""The file, which also contains the inode number of the device that the processes share."""

_NOW, _SHARED_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB
_LOCKED = (BlockingIOError, PermissionError)
"""What the system says where another process has a byte locked."""

_IS_HELD, _IS_WAITED_FOR, _IS_USED = (
    struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0) for byte in (_HOLDER, _WAITERS, _USERS)
)
_NOBODY = struct.pack("h", fcntl.F_UNLCK)
"""The questions to the system on Linux, and how its answer begins where no process has the byte locked."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The directory beside a volume with its locks and wake-ups, and the owner and rights of the volume."""

    directory: Path
    mode: int
    uid: int
    gid: int

    def make(self, name: str, flags: int = 0) -> int:
        """Open a file in the directory, created if need be for all who may use the volume, whatever the umask is."""
        path = self.directory / name
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags)
        except FileNotFoundError:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, self.mode)
        self.share(fd)
        return fd

    def share(self, file: int | str) -> None:
        """Share a file that we created with those who may use the volume."""
        with contextlib.suppress(PermissionError):
            os.chmod(file, self.mode)  # noqa: PTH101 - a path, or a descriptor
            os.chown(file, self.uid if os.geteuid() == 0 else -1, self.gid)

    def share_directory(self, path: Path) -> None:
        """Share a directory that we created with those who may use the volume."""
        self.share(str(path))
        path.chmod(0o2770 if self.mode & 0o060 else 0o700)


class WriterGate:
    """Where processes queue for the writer's lock: one that finds it closed is woken, and also looks again by itself.

    It only saves time: SQLite's own lock excludes writers. A wait that blocks in the kernel has no timeout: a process
    that is stopped while it is inside would stop all others for ever, silently.
    """

    def __init__(self, surroundings: Surroundings, path: str) -> None:
        self._path = path
        self._fd = surroundings.make(_GATE)
        self._waiters: Callable[[], bytes] = functools.partial(_waiters, self._fd)
        """Asks the system whether a process waits: its answer begins with `_NOBODY` where none does."""
        if sys.platform == "linux":
            # After each commit: one call.
            asking: Callable[[int, int, bytes], bytes] = fcntl.fcntl
            self._waiters = functools.partial(asking, self._fd, fcntl.F_GETLK, _IS_WAITED_FOR)
        if sys.platform != "linux" or not _is_locked(self._fd, _IS_USED):
            os.pwrite(self._fd, _number(path), 0)
        # It fails where the last process is just removing the pipe: then all processes poll for a while.
        lock(self._fd, _USERS, _SHARED_NOW)
        try:
            self._pipe = WakeupPipe(surroundings)
        except OSError:
            os.close(self._fd)
            raise

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> None:
        """Wait until no other process is inside."""
        if not self._enter(translate.BUSY_SECONDS):
            raise translate.gate_closed(self._path, self.holder())

    def leave(self) -> None:
        """Leave, and wake the next process."""
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _HOLDER)
        if not self._waiters().startswith(_NOBODY):
            self._pipe.wake_one()

    def try_enter(self) -> bool:
        """Enter if no other process is inside; return whether it entered."""
        try:
            fcntl.lockf(self._fd, _NOW, 1, _HOLDER)
        except _LOCKED:
            return False
        return True

    def holder(self) -> int | None:
        """Return the process that is inside, where the system tells it in a form that is known here."""
        if sys.platform != "linux":
            return None
        found = struct.unpack(_FLOCK, fcntl.fcntl(self._fd, fcntl.F_GETLK, _IS_HELD))
        return int(found[4]) if found[0] != fcntl.F_UNLCK else None

    def open(self) -> None:
        """Unlock the gate, whether it is locked or not."""
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _HOLDER)

    @contextlib.contextmanager
    def behind_others(self, others: Callable[[], bool] = bool) -> Iterator[None]:
        """Enter as `with` does, but after those that wait, for a limited time; `others`: whether there are more."""
        end = time.monotonic() + _BEHIND_SECONDS
        while True:
            with self.within(translate.BUSY_SECONDS, announced=False) as entered:
                if not entered:
                    raise translate.gate_closed(self._path, self.holder())
                if time.monotonic() > end or (self._waiters().startswith(_NOBODY) and not others()):
                    yield
                    return
            # For so long that each of them checks.
            time.sleep(1.25 * _PAUSE_MOST)

    @contextlib.contextmanager
    def within(self, seconds: float, *, announced: bool = True) -> Iterator[bool]:
        """Enter if the gate is free within the seconds; return whether it entered.

        A process that is `announced` while it waits goes before those that enter behind others.
        """
        entered = self._enter(seconds, announced=announced)
        try:
            yield entered
        finally:
            if entered:
                self.leave()

    def _enter(self, seconds: float, *, announced: bool = True) -> bool:
        if self.try_enter():
            return True
        if announced:
            # Except on Linux it fails while another process checks whether any waits; that one checks again.
            lock(self._fd, _WAITERS, _SHARED_NOW)
        try:
            return self._entered_by(time.monotonic() + seconds, self._pipe.wait if announced else time.sleep)
        finally:
            if announced:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _WAITERS)

    def _entered_by(self, end: float, rest: Callable[[float], None]) -> bool:
        pause = _PAUSE_FIRST
        while not self.try_enter():
            if time.monotonic() > end:
                return False
            rest(pause)
            pause = min(pause * 1.5, _PAUSE_MOST)
        return True

    def close(self) -> None:
        """Close the gate; the last process removes the pipe, which programs that copy directories stumble over."""
        self._pipe.close(remove=lock(self._fd, _USERS))
        os.close(self._fd)


def is_open_on_another_file(directory: Path, path: str) -> bool:
    """Return whether other processes have a file open under this name that is another one, or gone, by now."""
    try:
        fd = os.open(directory / _GATE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # It is empty until a process of this release has written it.
        is_used = sys.platform == "linux" and _is_locked(fd, _IS_USED)
        return is_used and os.pread(fd, 8, 0) not in (b"", _number(path))
    finally:
        os.close(fd)


def _number(path: str) -> bytes:
    """Return what distinguishes a file from another one of the same name at another time; zeros where there is none."""
    try:
        return os.stat(path).st_ino.to_bytes(8)  # noqa: PTH116 - one look
    except OSError:
        return bytes(8)


class WakeupPipe:
    """How the process that leaves the gate wakes one of those that wait: a byte in a pipe wakes one of its readers.

    A wake-up is a hint only: it may be lost with its sender, or come for nobody, so that a process which waits also
    looks by itself. Where the system cannot wake one of many, each just looks.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._fds: list[int] = []
        self._path = surroundings.directory / "calls"
        if sys.platform == "linux":
            # gevent removes it, as it waits for all threads at once.
            self._poll = select.epoll() if hasattr(select, "epoll") else None
            # There are file systems without pipes.
            with contextlib.suppress(OSError):
                self._fds.append(_pipe(self._path, surroundings))

    def wake_one(self) -> None:
        """Wake one of those that wait."""
        for fd in self._fds:
            with contextlib.suppress(BlockingIOError):
                os.write(fd, b"!")

    def wait(self, seconds: float) -> None:
        """Sleep until woken or until the seconds are over."""
        if sys.platform == "linux" and self._poll is not None and self._fds:
            (fd,) = self._fds
            # Again each time: the one that was registered first is woken.
            self._poll.register(fd, select.EPOLLIN | select.EPOLLEXCLUSIVE)
            try:
                if self._poll.poll(max(seconds, _PAUSE_MOST)):
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 1)
            finally:
                self._poll.unregister(fd)
        else:
            time.sleep(seconds)

    def close(self, *, remove: bool) -> None:
        """Close the pipe; the last process removes it."""
        for fd in self._fds:
            os.close(fd)
        if remove:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if sys.platform == "linux" and self._poll is not None:
            self._poll.close()


def _pipe(path: Path, surroundings: Surroundings) -> int:
    """Open a named pipe, created if need be."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path)
        surroundings.share(str(path))
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


class HousekeepingTurns:
    """Files with the time, in microseconds, of each queue space's last housekeeping, which one process does for all."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._fds: dict[int, int] = {}

    def take(self, space_id: int, now_us: int) -> bool:
        """Return whether no process has in the last second, and note that we do now. Rarely two are told so at once."""
        # Where it cannot be read or written, as on a full disk, every process does it.
        with contextlib.suppress(OSError):
            if space_id not in self._fds:
                self._fds[space_id] = self._surroundings.make(f"{space_id}.turn")
            last_us = int.from_bytes(os.pread(self._fds[space_id], 8, 0))
            # A clock that was set back must not stop housekeeping.
            if 0 <= now_us - last_us < _TURN_MICROS:
                return False
            os.pwrite(self._fds[space_id], now_us.to_bytes(8), 0)
        return True

    def close(self) -> None:
        """Close the files."""
        while self._fds:
            os.close(self._fds.popitem()[1])


def _waiters(fd: int) -> bytes:
    """Return `_NOBODY` where no process waits at a gate; the system tells it only by a lock."""
    free = lock(fd, _WAITERS)
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, _WAITERS)
    return _NOBODY if free else b""


def _is_locked(fd: int, question: bytes) -> bool:
    """Return whether another process has a byte locked, as Linux tells it; the form of other systems is not known."""
    return not fcntl.fcntl(fd, fcntl.F_GETLK, question).startswith(_NOBODY)


def lock(fd: int, byte: int, how: int = _NOW) -> bool:
    """Lock a byte, unless another process has it; return whether it is locked."""
    try:
        fcntl.lockf(fd, how, 1, byte)
    except _LOCKED:
        return False
    return True
