"""The forwarders: started from the command line, killed, stopped and told to reload."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from soaking.forwarding.site import CALL_SECONDS, SERVICES, SPACE

PATIENCE: Final = 30.0
"""Seconds that a forwarder has to start or to stop in."""

_LAST_WORDS_SECONDS = 5.0
_KILLED = -signal.SIGKILL


class Forwarder:
    """One forwarder, which lives many times. `problems` are sentences about what it should not have done."""

    def __init__(self, name: str, directory: Path, device: str, services: str, *options: str) -> None:
        """Take a name, the text of the services file, and further options of the program."""
        self.name = name
        self.problems: list[str] = []
        self.lives = 0
        self._directory = directory
        self._device = device
        self._text = services
        self._options = options
        self._services = directory / f"{name}.toml"
        self._process: subprocess.Popen[bytes] | None = None
        self._write_services()

    def start(self) -> None:
        """Start it; `has_begun` tells when it is at work."""
        self.lives += 1
        command = [
            *(sys.executable, "-m", "qmadmin.forwarder.program", self._device, SPACE),
            *("-q", ",".join(SERVICES), "-t", str(CALL_SECONDS), "-i", "1", "-s", self._services.name),
            *self._options,
        ]
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                command,
                cwd=self._directory,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                # The keyboard's interrupt is for the overseer.
                start_new_session=True,
            )

    def has_begun(self) -> bool:
        """Return whether this life of it has said that it has started."""
        return b"tmqforward " in self._log() and b" started: " in self._log()

    def has_ended(self) -> bool:
        """Return whether it has ended, and note it where that was not by a service that dies."""
        if self._process is None or self._process.poll() is None:
            return False
        self._check(self._process.returncode, _KILLED)
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
        self._wait(0, _KILLED, *((128 + signal.SIGTERM, -signal.SIGTERM) if at_once else ()))

    def reload(self, *, broken: bool) -> None:
        """Let it read its services again; where the file is broken it has to go on with those that it has."""
        self._write_services("[services\n" if broken else f"# {time.monotonic_ns()}\n")
        self._tell(signal.SIGHUP)
        if broken:
            time.sleep(0.2)
            self._write_services()

    def _write_services(self, more: str = "") -> None:
        made = self._services.with_suffix(".new")
        made.write_text(self._text + more)
        made.replace(self._services)

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


def processes_in(directory: Path) -> Iterator[str]:
    """Yield the command lines of the processes whose working directory it is, where the system tells."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").samefile(directory) and int(process.name) != os.getpid():
                yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def _environment() -> Mapping[str, str]:
    # The log goes to the standard error output, and so into one file for each life, with what is said at SIGABRT.
    return os.environ | {"ULOGPFX": "-", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
