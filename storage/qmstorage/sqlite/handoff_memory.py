"""The file in which processes leave works for each other: a place for each process, which all have mapped.

A place has a request, an answer, and words that tell how far it is. A word is a number of a request, and each is
written by one side only, so that none overwrites what the other has to say: a number that comes late is an old one.

Whose place it is tells a lock of the kernel on one byte of the file. It belongs to the open file and not to the
process, so that two volumes of one process, on the same file, have two places. A fork would inherit it, and closes it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Final

from qmcore.numbers import random_number
from qmstorage.sqlite.open_file_locks import is_locked, locks, unlocks
from qmstorage.sqlite.writer_gate import Surroundings

NUMBER: Final = 64
"""How many processes have a place; all others go without."""

_NAME: Final = "handoff.2"
"""Another one with each change of what stands in it: the processes of another release have their own."""

_UNMADE: Final = f"{_NAME}.new"
"""What it is called until it is complete."""

_MAGIC: Final = int.from_bytes(b"QMHAND\0\2")
"""The first word, which is written last."""

_WORD: Final = 8
_ID, _COMMITS = 1, 2
"""Words behind the first: the number of this file, and that of the last commit that did works of others."""

_WORDS: Final = 5
_HEAD_BYTES, _OWNERS_BYTES, _AREA_BYTES = (1 + _WORDS) * NUMBER * _WORD, 5120, 4096
_OWNERS_FROM: Final = _HEAD_BYTES
_REQUESTS_FROM: Final = _HEAD_BYTES + _OWNERS_BYTES
_ANSWERS_FROM: Final = _REQUESTS_FROM + NUMBER * _AREA_BYTES
_BYTES: Final = _ANSWERS_FROM + NUMBER * _AREA_BYTES
_POSTED: Final = slice(NUMBER * _WORD, 2 * NUMBER * _WORD)
_NONE: Final = bytes(NUMBER * _WORD)

_AREA: Final = struct.Struct("=QQII")
"""How a request or an answer begins: its number, the commit that an answer goes with, its length, its checksum.

The commit is 0 with a request, and with an answer that is good whatever becomes of the commit.
"""

_FILE: Final = struct.Struct("=QQ")
_SOCKET: Final = struct.Struct("=16p")
_OWNER_BYTES: Final = _FILE.size + _SOCKET.size
"""Whose place it is: device and number of the file that it has open, and the name of the socket that wakes it."""

CONTENT_MAX: Final = _AREA_BYTES - _AREA.size
"""Bytes of a request or of an answer."""

_SEED: Final = 0xFFFFFFFF
"""What a checksum begins with has so many bits."""

_NUMBERS: Final = 1 << 60
"""Above them a number is not a number of ours: the file is damaged."""

_MAKING: Final = NUMBER
"""The byte that is locked by who makes the file, while it has another name."""

_MAKING_SECONDS: Final = 0.1
_PAUSE: Final = 0.002


class Places:
    """The places in which the processes of a volume leave works for each other."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._memory = mmap.mmap(fd, _BYTES)
        words = self._words = memoryview(self._memory)[:_HEAD_BYTES].cast("Q")
        self.posted, self.withdrawn, self.taken, self.committed, self.synced = (
            words[NUMBER * part : NUMBER * (part + 1)] for part in range(1, 1 + _WORDS)
        )

    def any_posted(self) -> bool:
        """Return whether there is a request; each commit asks that."""
        return self._memory[_POSTED] != _NONE

    def posts(self) -> list[tuple[int, int]]:
        """Return the places that have a request, and its number."""
        # Mostly few have ever been taken.
        used = (len(self._memory[_POSTED].rstrip(b"\0")) + _WORD - 1) // _WORD
        return [(place, number) for place, number in enumerate(self.posted[:used].tolist()) if number]

    @property
    def id(self) -> int:
        """What tells this file from one that was there before."""
        return self._words[_ID]

    @property
    def last_commit(self) -> int:
        """The number of the last commit that did works of others, or was to; only who has the writer changes it."""
        return self._words[_COMMITS]

    @last_commit.setter
    def last_commit(self, number: int) -> None:
        self._words[_COMMITS] = number

    def claim(self, file: bytes, its: socket.socket) -> tuple[int, int] | None:
        """Take a place and return it, and the last number that was used there; None: all are taken."""
        for place in range(NUMBER):
            if locks(self._fd, place):
                return place, self._move_in(place, file, its)
        return None

    def is_alive(self, place: int) -> bool:
        """Return whether the process whose place it is is alive."""
        return is_locked(self._fd, place)

    def has_open(self, place: int, file: bytes) -> bool:
        """Return whether the owner of a place has the file open, and not one of the same name that was there before."""
        start = _OWNERS_FROM + place * _OWNER_BYTES
        return self._memory[start : start + _FILE.size] == file

    def wake(self, sender: socket.socket, place: int) -> None:
        """Wake the process whose place it is."""
        (name,) = _SOCKET.unpack_from(self._memory, _OWNERS_FROM + place * _OWNER_BYTES + _FILE.size)
        try:
            sender.sendto(b"!", name)
        except OSError:
            # It is gone, or called already; it also looks by itself.
            return

    def ask(self, place: int, number: int, content: bytes) -> None:
        """Write a request."""
        self._put(_REQUESTS_FROM, place, number, 0, content)

    def answer(self, place: int, number: int, commit: int, content: bytes) -> None:
        """Write an answer, which goes with a commit."""
        self._put(_ANSWERS_FROM, place, number, commit, content)

    def asked(self, place: int, number: int) -> bytes | None:
        """Return what is asked; None where it is not, or not yet."""
        found = self._get(_REQUESTS_FROM, place, number)
        return None if found is None else found[1]

    def answered(self, place: int, number: int) -> tuple[int, bytes] | None:
        """Return an answer, and the commit that it goes with; None where there is none, or none yet."""
        return self._get(_ANSWERS_FROM, place, number)

    def close(self) -> None:
        """Give the place up. A thread that is just answering another process may go on: it frees the memory."""
        unlocks(self._fd, NUMBER)
        os.close(self._fd)

    def abandon(self) -> None:
        """Close what a fork has left us: the mapping has a descriptor of its own, and each would keep the lock."""
        for view in (self.posted, self.withdrawn, self.taken, self.committed, self.synced, self._words):
            view.release()
        self._memory.close()
        os.close(self._fd)

    def _move_in(self, place: int, file: bytes, its: socket.socket) -> int:
        words = self.posted, self.withdrawn, self.committed, self.synced
        self.posted[place] = 0
        asked, *_ = _AREA.unpack_from(self._memory, _REQUESTS_FROM + place * _AREA_BYTES)
        last: int = max(asked, *(word[place] for word in words), self.taken[place] >> 2)
        if last >= _NUMBERS:
            last = 0
            for word in (*words, self.taken):
                word[place] = 0
        start = _OWNERS_FROM + place * _OWNER_BYTES
        self._memory[start : start + _OWNER_BYTES] = file + _SOCKET.pack(its.getsockname())
        return last

    def _put(self, area: int, place: int, number: int, commit: int, content: bytes) -> None:
        start, length = area + place * _AREA_BYTES, len(content)
        head = _AREA.pack(number, commit, length, zlib.crc32(content, number + commit & _SEED))
        self._memory[start : start + _AREA.size + length] = head + content

    def _get(self, area: int, place: int, number: int) -> tuple[int, bytes] | None:
        start = area + place * _AREA_BYTES
        its, commit, length, check = _AREA.unpack_from(self._memory, start)
        if its != number or length > CONTENT_MAX:
            return None
        content = self._memory[start + _AREA.size : start + _AREA.size + length]
        # There are processors on which a word can be seen before what was written ahead of it.
        return (commit, content) if check == zlib.crc32(content, number + commit & _SEED) else None


def stamp(file: tuple[int, int]) -> bytes:
    """Return how the owner of a place says which file it has open."""
    return _FILE.pack(*file)


def open_places(surroundings: Surroundings) -> Places | None:
    """Open the file, made if need be; None where the system has no such locks, or the file cannot be made."""
    if sys.platform != "linux":
        return None
    end = time.monotonic() + _MAKING_SECONDS
    with contextlib.suppress(OSError):
        while (fd := _opened(surroundings.directory / _NAME)) is None:
            if time.monotonic() > end:
                return None
            if not _make(surroundings):
                time.sleep(_PAUSE)
        return _mapped(fd)
    return None


def _opened(path: Path) -> int | None:
    """Open the file; None where there is none, or none that is complete."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if _is_complete(fd):
        return fd
    os.close(fd)
    return None


def _mapped(fd: int) -> Places | None:
    try:
        return Places(fd)
    except (OSError, ValueError):
        # There is no memory; or somebody has just cut the file off.
        os.close(fd)
        return None


def _is_complete(fd: int) -> bool:
    return os.fstat(fd).st_size == _BYTES and os.pread(fd, _WORD, 0) == _MAGIC.to_bytes(_WORD, sys.byteorder)


def _make(surroundings: Surroundings) -> bool:
    """Make the file, and give it its name then: what others have mapped is never rewritten.

    False: another is just doing so, or has done so.
    """
    path, unmade = surroundings.directory / _NAME, surroundings.directory / _UNMADE
    fd = surroundings.make(_UNMADE)
    try:
        if not locks(fd, _MAKING) or not _is_at(unmade, fd):
            return False
        others = _opened(path)
        if others is not None:
            os.close(others)
            unmade.unlink()
            return False
        # All of it: where the disk is full, a page that is missing would end whoever writes there.
        if os.pwrite(fd, bytes(_BYTES), 0) < _BYTES:
            unmade.unlink()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(unmade))
        os.pwrite(fd, (random_number() | 1).to_bytes(_WORD, sys.byteorder), _ID * _WORD)
        os.pwrite(fd, _MAGIC.to_bytes(_WORD, sys.byteorder), 0)
        if _is_complete(fd):
            unmade.replace(path)
        return True
    finally:
        os.close(fd)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
