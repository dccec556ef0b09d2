"""Wake-ups: Unix datagram sockets that waiters sleep on; an enqueue sends them a byte.

An event loop sleeps for thousands of waiters on one named pipe, into which their numbers are written. A socket for each
would take as many descriptors, and one for all would not do: the system keeps about ten datagrams that nobody has
received, and refuses more, so that it would not be known any more who was woken.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from qmcore.errors import NotOpenError
from qmstorage.notifications import ALL
from qmstorage.sqlite import translate
from qmstorage.sqlite.writer_gate import Surroundings

W = TypeVar("W")

_PATH_MAX = 100
"""A socket's path has some 104 to 108 bytes at most, by system."""

_IN_TURN = ".turn.bell"

_PIPE = ".pipe"
_OF_SET = "@"
"""Stands in the address of a waiter of a set before the name of the set's pipe."""

_ALL = "*"
"""Wakes all who wait on a pipe, as a number wakes one."""

_MANY = 128
"""How many numbers are written into a pipe at once: it takes all of them, or none."""

_PIPE_BYTES = 1 << 20
"""How large a pipe is made where the system lets us: a message may wake thousands that choose."""

_ANSWER_SECONDS = 0.1
"""How long a waiter that was woken is left to look before another message wakes it while others wait."""


def is_in_turn(address: str) -> bool:
    """Return whether a wake-up waits in turn: its waiter takes any message, so that to wake one of them is enough."""
    return address.endswith(_IN_TURN)


def _address(number: str, pipe: str = "", *, in_turn: bool) -> str:
    """Return an address. In their order those come first that have waited longest: one clock is all the machine's."""
    since_us = time.monotonic_ns() // 1_000
    of_set = f"{_OF_SET}{pipe}" if pipe else ""
    return f"{since_us:013x}{number}{of_set}{_IN_TURN if in_turn else '.bell'}"


def _number(address: str) -> str:
    """Return the number of a waiter in its set."""
    return address[13:19]


def _file(address: str) -> str:
    """Return the name of the file by which a waiter is woken: its socket, or the pipe of its set."""
    _, _, pipe = address.partition(_OF_SET)
    return f"{pipe.partition('.')[0]}{_PIPE}" if pipe else address


def _enlarge(pipe: int) -> int:
    """Make a pipe large; return with how many bytes in it the next write may be the first that is refused."""
    if sys.platform != "linux":
        return select.PIPE_BUF - 7 * _MANY
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    # Its pages are not all full: what does not fit the rest of one begins the next.
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) * 3 // 4


class SocketWakeup:
    """A wake-up of this process."""

    def __init__(self, wakeups: Wakeups, *, in_turn: bool = False) -> None:
        self.address = _address(os.urandom(3).hex(), in_turn=in_turn)
        self._wakeups = wakeups
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        path = wakeups.path_of(self.address)
        try:
            self._socket.bind(path)
            wakeups.surroundings.share(path)
        except OSError:
            self._socket.close()
            raise

    def wait(self, seconds: float) -> bool:
        """Sleep until woken or until the seconds are over; return whether it was woken."""
        # Not select(), which knows no descriptor above 1023.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        woken = bool(poll.poll(math.ceil(max(seconds, 0.0) * 1000)))
        if woken:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._socket.recv(1)
        return woken

    def close(self) -> None:
        """Remove the socket and its file."""
        self._wakeups.forget(self, self.address)
        self._socket.close()

    def abandon(self) -> None:
        """Close the descriptor that a fork has inherited."""
        self._socket.close()

    def wake(self) -> None:
        """Wake its waiter. A signal handler may call it."""
        self._wakeups.wake([self.address])


class PipeAddress:
    """Where a waiter of a set can be woken."""

    def __init__(self, wakeups: PipeWakeups[W], number: str, *, in_turn: bool) -> None:
        self.address = _address(number, wakeups.name, in_turn=in_turn)
        self._wakeups = wakeups
        self._number = number

    def close(self) -> None:
        """Let nobody wake it any more."""
        self._wakeups.remove(self._number)


class PipeWakeups(Generic[W]):
    """The wake-ups of an event loop of this process."""

    def __init__(self, wakeups: Wakeups) -> None:
        self.name = os.urandom(6).hex()
        self._wakeups = wakeups
        self._waiters: dict[str, W] = {}
        self._count = itertools.count()
        path = wakeups.path_of(self.name + _PIPE)
        os.mkfifo(path, 0o600)
        with contextlib.ExitStack() as undo:
            undo.callback(wakeups.forget, self, self.name + _PIPE)
            wakeups.surroundings.share(path)
            self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, self._reader)
            # While nobody has it open for writing, it would seem to be at its end.
            self._writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, self._writer)
            self._sure_bytes = _enlarge(self._writer)
            self._open = undo.pop_all()

    def fileno(self) -> int:
        """Return the descriptor, which can be read while there is something for `woken` to tell."""
        return self._reader

    def wakeup(self, waiter: W, *, in_turn: bool = False) -> PipeAddress:
        """Return an address by which a waiter is woken."""
        number = f"{next(self._count):06x}"[-6:]
        self._waiters[number] = waiter
        return PipeAddress(self, number, in_turn=in_turn)

    def remove(self, number: str) -> None:
        """Forget a waiter."""
        self._waiters.pop(number, None)

    def woken(self) -> list[W]:
        """Return each waiter that was woken since the last call; all of them where the pipe may have been too full."""
        told = b"".join(iter(self._read, b"")).decode()
        if _ALL in told or len(told) >= self._sure_bytes:
            return list(self._waiters.values())
        numbers = dict.fromkeys(told.split())
        return [self._waiters[number] for number in numbers if number in self._waiters]

    def wake(self) -> None:
        """Wake all waiters. A signal handler may call it."""
        # Not by our own descriptor, which another thread may just be closing.
        self._wakeups.tell(self.name + _PIPE, [_ALL])

    def close(self) -> None:
        """Give up the pipe."""
        self._waiters.clear()
        self._open.close()

    def abandon(self) -> None:
        """Close the descriptors that a fork has left us; the pipe is the parent's."""
        self._open.pop_all()
        os.close(self._reader)
        os.close(self._writer)

    def _read(self) -> bytes:
        try:
            return os.read(self._reader, _PIPE_BYTES)
        except BlockingIOError:
            return b""


class Wakeups:
    """The directory of the sockets on which the waiters of a volume sleep."""

    deaf_seconds = 0.0

    def __init__(self, surroundings: Surroundings, path: str) -> None:
        self.surroundings = surroundings
        self._path = path
        self._directory = surroundings.directory
        self._registered: set[SocketWakeup | PipeWakeups[Any]] = set()
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._fd = os.open(surroundings.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._sender.close()
            raise
        self._sender.setblocking(False)
        self._choosing = threading.Lock()
        self._is_parents = False
        self._woken: dict[str, float] = {}

    def new(self, *, in_turn: bool = False) -> SocketWakeup:
        """Return a new wake-up."""
        with self._reporting():
            wakeup = SocketWakeup(self, in_turn=in_turn)
        self._registered.add(wakeup)
        return wakeup

    def new_set(self) -> PipeWakeups[Any]:
        """Return a new set of wake-ups."""
        with self._reporting():
            wakeups: PipeWakeups[Any] = PipeWakeups(self)
        self._registered.add(wakeups)
        return wakeups

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise errors of the operating system as diagnostics."""
        with translate.os_errors("waiting on device", self._path):
            try:
                yield
            except FileNotFoundError as error:
                # Nobody has looked yet whether the volume is still there.
                what = f"the directory {str(self._directory)!r} of device {self._path!r}"
                sentence = f"{what} was removed or replaced while it was open"
                raise NotOpenError(sentence, hint=translate.IF_LOST, path=self._path) from error

    def forget(self, wakeup: SocketWakeup | PipeWakeups[Any], file: str) -> None:
        """Wake one of ours no longer, and remove its file; in a forked process that is the parent's."""
        self._registered.discard(wakeup)
        if not self._is_parents:
            (self._directory / file).unlink(missing_ok=True)

    def clear(self, addresses: Iterable[str]) -> None:
        """Remove the files of wake-ups that a process which died has left."""
        for file in {_file(address) for address in addresses}:
            (self._directory / file).unlink(missing_ok=True)

    def wake(self, addresses: Sequence[str], at_most: int = ALL) -> None:
        """Wake so many of the waiters, of whichever process; one that is gone, or woken already, is passed over.

        Those come last that were woken a moment ago: they have not had the time to take what they were woken for.
        """
        if at_most >= len(addresses):
            self._send_all(addresses)
            return
        with self._choosing:
            for address in self._in_turn(addresses):
                if self._sends(address):
                    self._woken[address] = time.monotonic()
                    at_most -= 1
                    if not at_most:
                        return

    def wake_own(self) -> None:
        """Wake the waiters of this process."""
        for wakeup in tuple(self._registered):
            wakeup.wake()

    def _send_all(self, addresses: Sequence[str]) -> None:
        pipes: dict[str, list[str]] = {}
        for address in addresses:
            if _OF_SET in address:
                pipes.setdefault(_file(address), []).append(_number(address))
            else:
                self._sends(address)
        for pipe, numbers in pipes.items():
            self.tell(pipe, numbers)

    def _sends(self, address: str) -> bool:
        if _OF_SET in address:
            return self.tell(_file(address), [_number(address)])
        try:
            self._sender.sendto(b"!", self.path_of(address))
        except OSError:
            return False
        return True

    def tell(self, pipe: str, numbers: Sequence[str]) -> bool:
        """Write numbers of waiters into the pipe on which their event loop sleeps; return whether one does.

        Where a pipe is full, the loop that reads it lets all look.
        """
        try:
            fd = os.open(self.path_of(pipe), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            for at in range(0, len(numbers), _MANY):
                os.write(fd, "".join(f"{number}\n" for number in numbers[at : at + _MANY]).encode())
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def _in_turn(self, addresses: Sequence[str]) -> Iterator[str]:
        """Yield first those that have not been woken lately, each kind in the order in which they come."""
        since = time.monotonic() - _ANSWER_SECONDS
        self._woken = {address: at for address, at in self._woken.items() if at > since}
        woken = set(self._woken)
        yield from (address for address in addresses if address not in woken)
        yield from (address for address in addresses if address in woken)

    def path_of(self, address: str) -> str:
        """Return a path for the socket that is short enough for a socket."""
        path = str(self._directory / address)
        if len(os.fsencode(path)) > _PATH_MAX and sys.platform == "linux":
            return f"/proc/self/fd/{self._fd}/{address}"
        return path

    def close(self) -> None:
        """Close the directory."""
        self._sender.close()
        os.close(self._fd)

    def abandon(self) -> None:
        """Close what a fork has inherited of the parent's wake-ups, which go on working there."""
        self._is_parents = True
        for wakeup in self._registered:
            wakeup.abandon()
        self.close()
