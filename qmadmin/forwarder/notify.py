"""What the forwarder tells the service manager that has started it, such as systemd.

It is said in datagrams to the socket that NOTIFY_SOCKET names, as sd_notify(3) describes them. Where the variable is
absent nothing is said; a manager that does not listen is nobody's failure.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What the service manager says in the environment, to this process and to none that it starts."""

_SEND_SECONDS: Final = 1.0
"""How long a manager that is slow may keep us waiting."""


class Notify:
    """Tells the service manager how the process is doing.

    `environ` is the environment that the manager has given the process. A program that comes to its end by itself says
    `stopping` too.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_seconds = _watchdog_seconds(environ)
        self._next_sign = 0.0

    def ready(self, status: str = "") -> None:
        """Say that the start, or a reload, is done."""
        self._say("READY=1", *_told(status))

    def reloading(self) -> None:
        """Say that the settings are read again; `ready` follows, also where that has failed."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> None:
        """Say that the process is about to end."""
        self._say("STOPPING=1", *_told(status))

    def status(self, text: str) -> None:
        """Say in one line what the process does."""
        self._say(*_told(text))

    def alive(self) -> None:
        """Say that the process is alive, as often as the manager wants to hear it: to be called once a second or so."""
        now = time.monotonic()
        if self._watchdog_seconds is not None and now >= self._next_sign:
            self._next_sign = now + self._watchdog_seconds / 2
            self._say("WATCHDOG=1")

    def _say(self, *lines: str) -> None:
        if self._address is None or not lines:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(_SEND_SECONDS)
            channel.sendto("\n".join(lines).encode(errors="backslashreplace"), self._address)


def for_children(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of processes that this one starts: what the manager said is not for them."""
    return {name: value for name, value in environ.items() if name not in VARIABLES}


def _address(named: str) -> bytes | None:
    """Return where the manager listens: a path, or an abstract address, which is written with an @ before it."""
    if named.startswith("@"):
        return b"\0" + os.fsencode(named[1:])
    return os.fsencode(named) if named.startswith("/") else None


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return within how many seconds the manager wants a sign of life; None where it wants none of this process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        seconds = int(environ.get("WATCHDOG_USEC", "")) / 1_000_000
    except ValueError:
        return None
    return seconds if seconds > 0 else None


def _told(status: str) -> list[str]:
    return [f"STATUS={' '.join(status.split())}"] if status else []
