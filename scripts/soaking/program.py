"""A program that works on messages: started from the command line, killed and stopped, over many lives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PATIENCE: Final = 30.0
"""Seconds that a program has to start or to stop in."""

_LAST_WORDS_SECONDS = 5.0
_KILLED = -signal.SIGKILL


class Program:
    """One program, which lives many times. `problems` are sentences about what it should not have done."""

    def __init__(
        self, name: str, directory: Path, command: Sequence[str], begun: str, *, deaths: Sequence[int] = ()
    ) -> None:
        """Take a name, the command, and what it says when it is at work.

        `deaths` are the exit statuses of those that what it calls takes with it, besides those that are killed.
        """
        self.name = name
        self.problems: list[str] = []
        self.lives = 0
        self._directory = directory
        self._command = command
        self._begun = begun.encode()
        self._deaths = (_KILLED, *deaths)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `wait_until_begun` waits until it is at work."""
        self.lives += 1
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                # The keyboard's interrupt is for the overseer.
                start_new_session=True,
            )

    def wait_until_begun(self) -> None:
        """Wait until this life of it has said that it has started, or has ended."""
        deadline = time.monotonic() + PATIENCE
        while self._begun not in self._log() and not self.has_ended():
            if time.monotonic() > deadline:
                self.problems.append(f"{self.name}, life {self.lives}, did not start")
                return
            time.sleep(0.02)

    def has_ended(self) -> bool:
        """Return whether it has ended, and note it where that was not by what it calls."""
        if self._process is None or self._process.poll() is None:
            return False
        self._check(self._process.returncode, *self._deaths)
        return True

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, *, at_once: bool = False) -> None:
        """Let it finish what it holds, or stop it at once."""
        self._tell(signal.SIGTERM)
        if at_once:
            self._tell(signal.SIGTERM)
        self._wait(0, *self._deaths, *((128 + signal.SIGTERM, -signal.SIGTERM) if at_once else ()))

    def _tell(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _wait(self, *expected: int) -> None:
        if self._process is None:
            return
        try:
            self._check(self._process.wait(PATIENCE), *expected)
        except subprocess.TimeoutExpired:
            # It writes into its log where it is; see `_environment`.
            self._tell(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LAST_WORDS_SECONDS)
            self.kill()
            self.problems.append(f"{self.name}, life {self.lives}, did not stop within {PATIENCE:g} seconds")

    def _check(self, status: int, *expected: int) -> None:
        if status not in expected:
            lines = self._log().decode(errors="replace").splitlines() or [""]
            self.problems.append(
                f"{self.name}, life {self.lives}, ended with status {status}; it said last: {lines[-1]}"
            )

    @property
    def _said(self) -> Path:
        return self._directory / f"{self.name}.{self.lives}.log"

    def _log(self) -> bytes:
        return self._said.read_bytes() if self._said.exists() else b""


def _environment() -> Mapping[str, str]:
    # The log goes to the standard error output, and so into one file for each life, with what is said at SIGABRT.
    return os.environ | {"ULOGPFX": "-", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
