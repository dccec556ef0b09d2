"""Files that are written under a hidden name, and get their own name when they are complete."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from qmstorage.sqlite import files

_PIECE = 4 * 1024 * 1024


@contextlib.contextmanager
def part_beside(target: Path) -> Iterator[Path]:
    """Create a hidden directory beside a path, for this user alone; remove it at the end with all that is still in it.

    What killed processes have left there is removed too.
    """
    prefix = f".{target.name[:100]}."
    for left in target.parent.glob(f"{glob_escape(prefix)}*.part"):
        _remove_if_left(left)
    part, fd = _locked_directory(target.parent, prefix)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(fd)


def _locked_directory(parent: Path, prefix: str) -> tuple[Path, int]:
    """Create a directory and lock it; another process that cleans up may remove it in between."""
    while True:
        part = parent / f"{prefix}{secrets.token_hex(4)}.part"
        part.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            # A network file system may have no such lock; then leftovers are never removed.
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            if part.exists():
                return part, fd
            os.close(fd)


def glob_escape(text: str) -> str:
    """Return a pattern that matches the text itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)


def copy(source: Path, target: Path, step: Callable[[int], None]) -> str:
    """Copy a file, sync it and return its SHA-256; `step` gets the bytes that are done."""
    digest, done = hashlib.sha256(), 0
    with source.open("rb") as reading, target.open("xb") as writing:
        target.chmod(files.PRIVATE_MODE)
        while piece := reading.read(_PIECE):
            writing.write(piece)
            digest.update(piece)
            done += len(piece)
            step(done)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """Sync a file that was written, and return its SHA-256."""
    with path.open("rb") as reading:
        os.fsync(reading.fileno())
        return hashlib.file_digest(reading, "sha256").hexdigest()


def sync(directory: Path) -> None:
    """Sync the names in a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove_if_left(part: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(part, ignore_errors=True)
        finally:
            os.close(fd)
