"""The forwarders: started from the command line, killed, stopped and told to reload."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from soaking.forwarding.site import CALL_SECONDS, SERVICES, SPACE
from soaking.program import Program


class Forwarder(Program):
    """One forwarder, with a services file of its own."""

    def __init__(self, name: str, directory: Path, device: str, services: str, *options: str) -> None:
        """Take a name, the text of the services file, and further options of the program."""
        self._text = services
        self._services = directory / f"{name}.toml"
        command = [
            *(sys.executable, "-m", "qmadmin.forwarder.program", device, SPACE),
            *("-q", ",".join(SERVICES), "-t", str(CALL_SECONDS), "-i", "1", "-s", self._services.name),
            *options,
        ]
        super().__init__(name, directory, command, " started: ")
        self._write_services()

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


def processes_in(directory: Path) -> Iterator[str]:
    """Yield the command lines of the processes whose working directory it is, where the system tells."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").samefile(directory) and int(process.name) != os.getpid():
                yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
