"""Notifications to the service manager that has started the forwarder, such as systemd.

They are datagrams to the socket that NOTIFY_SOCKET names, as sd_notify(3) describes. Without the variable none are
sent; a manager that does not listen is not an error.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""The variables of the service manager, which are for this process and not for those that it starts."""

_SEND_SECONDS: Final = 1.0
"""How many seconds to wait for a slow manager."""


class Notify:
    """Notifies the service manager of the state of the process.

    `environ` is the environment that the manager has given the process. A program that ends by itself calls
    `stopping` too.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_seconds = _watchdog_seconds(environ)
        self._next_sign = 0.0

    def ready(self, status: str = "") -> None:
        """Report that the start, or a reload, is complete."""
        self._say("READY=1", *_told(status))

    def reloading(self) -> None:
        """Report that the settings are being read again; `ready` follows, even if that fails."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> None:
        """Report that the process is about to end."""
        self._say("STOPPING=1", *_told(status))

    def status(self, text: str) -> None:
        """Report in one line what the process is doing."""
        self._say(*_told(text))

    def alive(self) -> None:
        """Send the heartbeat if it is due; to be called about once a second."""
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
    """Return the environment of processes that this one starts, without the variables of the manager."""
    return {name: value for name, value in environ.items() if name not in VARIABLES}


def _address(named: str) -> bytes | None:
    """Return the address of the manager: a path, or an abstract address, which is written with a leading @."""
    if named.startswith("@"):
        return b"\0" + os.fsencode(named[1:])
    return os.fsencode(named) if named.startswith("/") else None


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the seconds within which the manager expects a heartbeat; None if it expects none of this process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        seconds = int(environ.get("WATCHDOG_USEC", "")) / 1_000_000
    except ValueError:
        return None
    return seconds if seconds > 0 else None


def _told(status: str) -> list[str]:
    return [f"STATUS={' '.join(status.split())}"] if status else []
