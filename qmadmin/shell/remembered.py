"""The command lines that are remembered from session to session, in a file that several sessions add to."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from prompt_toolkit.history import History, InMemoryHistory

from qmcore.redacted import redacted


def history(name: str, lines: int) -> History:
    """Return the history in a file, of so many lines, or one for this session only where no file can be had."""
    if not name:
        return InMemoryHistory()
    file = Path(name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return Remembered(file, lines)


class Remembered(History):
    """A history in a file: a line for each command line, in the order in which they were entered in all sessions.

    It is cut to the newest lines when it has twice as many. A session sees what was there when it began, and what it
    adds itself. Lines that repeat the one before are left out. What cannot be written, as on a full disk, is remembered
    for this session only.
    """

    def __init__(self, file: Path, lines: int) -> None:
        super().__init__()
        self._lines = lines
        self._file = file
        self._last = ""

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines of the file, the newest first."""
        text = b""
        with contextlib.suppress(OSError), _locked(self._file) as opened:
            opened.seek(0)
            text = opened.read()
            if text.count(b"\n") > 2 * self._lines:
                text = self._shorten(opened, text)
        yield from reversed([line for line in text.decode(errors="replace").split("\n") if line][-self._lines :])

    def append_string(self, string: str) -> None:
        """Add a line, unless it repeats the one before."""
        if string != self._last:
            self._last = string
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Write a line behind those of all sessions, without the passwords that are in it."""
        with contextlib.suppress(OSError), _locked(self._file) as opened:
            opened.write(f"{redacted(string)}\n".encode(errors="replace"))

    def _shorten(self, opened: BinaryIO, text: bytes) -> bytes:
        """Keep the newest lines, in place: another session may wait for its lock on this very file."""
        kept = b"".join(text.splitlines(keepends=True)[-self._lines :])
        opened.truncate(0)
        opened.write(kept)
        opened.flush()
        return kept


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[BinaryIO]:
    """Open the file for reading and appending, while no other session has it."""
    with file.open("a+b") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield opened
