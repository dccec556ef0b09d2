"""The command lines that are remembered from session to session, in a file that several sessions add to."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from prompt_toolkit.history import History, InMemoryHistory

_MOST_BYTES = 1024 * 1024
"""The size at which the older half of the file is given up."""


def history_file(environ: Mapping[str, str]) -> Path | None:
    """Return where command lines are remembered; None where the environment names no place for it."""
    state, home = environ.get("XDG_STATE_HOME") or "", environ.get("HOME")
    # The XDG specification has relative paths ignored.
    if not state.startswith("/"):
        if not home:
            return None
        state = f"{home}/.local/state"
    return Path(state) / "qmadmin" / "history"


def history(environ: Mapping[str, str]) -> History:
    """Return the history of this person, or one for this session only where no file can be had."""
    file = history_file(environ)
    if file is None:
        return InMemoryHistory()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return Remembered(file)


class Remembered(History):
    """A history in a file: a line for each command line, in the order in which they were entered in all sessions.

    A session sees what was there when it began, and what it adds itself. Lines that repeat the one before are left
    out. What cannot be written, as on a full disk, is remembered for this session only.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._last = ""

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines of the file, the newest first."""
        text = b""
        with contextlib.suppress(OSError), _locked(self._file) as opened:
            if opened.seek(0, os.SEEK_END) > _MOST_BYTES:
                self._shorten(opened)
            opened.seek(0)
            text = opened.read()
        yield from reversed([line for line in text.decode(errors="replace").split("\n") if line])

    def append_string(self, string: str) -> None:
        """Add a line, unless it repeats the one before."""
        if string != self._last:
            self._last = string
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Write a line behind those of all sessions."""
        with contextlib.suppress(OSError), _locked(self._file) as opened:
            opened.write(f"{string}\n".encode(errors="replace"))

    @staticmethod
    def _shorten(opened: BinaryIO) -> None:
        """Keep the newer half, in place: another session may wait for its lock on this very file."""
        opened.seek(-_MOST_BYTES // 2, os.SEEK_END)
        opened.readline()
        kept = opened.read()
        opened.truncate(0)
        opened.write(kept)
        opened.flush()


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[BinaryIO]:
    """Open the file for reading and appending, while no other session has it."""
    with file.open("a+b") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield opened
