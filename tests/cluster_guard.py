"""The process between a PostgreSQL server of the tests and the run of tests that it serves. Standard library only.

    python cluster_guard.py ROOM ACCOUNT COMMAND...

starts the server as the child of a process that outlives the caller, and ends with status 0 as soon as the server takes
connections, else with its log on stderr. A room is the directory of one server:

    ROOM/run      a record lock, held by the run of tests; the kernel takes it away however that run ends
    ROOM/guard    a lock, held by this process for as long as there is a server
    ROOM/server   what belongs to the server: its data, its log, its Unix socket

When the lock of the run is free, the server is stopped and the room removed. When this process is killed, the kernel
stops the server (Linux), or the server notices that its files are gone: the next start of any server removes the rooms
that nobody holds. The run has a record lock, because no child of the run inherits that; the guard has the other kind,
because the run waits for it, and the kernel would take two record locks that wait for each other for a deadlock.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PREFIX = "qmpg-"

DEADLINE = 60.0
"""Seconds within which a server has to take connections."""

_PR_SET_PDEATHSIG = 1
_IPC_RMID = 0


def main(room: Path, account: str, command: list[str]) -> int:
    sweep(room.parent, sparing=room)
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading) as report:
            said = report.read()
        if said != "ready":
            print(said or "the guard of the server was killed", file=sys.stderr)
        return said != "ready"
    os.close(reading)
    os.setsid()
    _be_silent()
    guard(room, account, command, writing)
    return 0


def guard(room: Path, account: str, command: list[str], report: int) -> None:
    """Keep the server for as long as the run of tests lasts; a server that ends by itself leaves its room behind."""
    with (room / "guard").open("w") as guarding:
        fcntl.flock(guarding, fcntl.LOCK_EX)
        with (room / "server" / "log").open("ab") as log:
            server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=_die_with_the_guard,  # noqa: PLW1509 - there is no other thread yet
                **identity(account),
            )
        over, ended = threading.Event(), threading.Event()
        threading.Thread(target=_stop_with_the_run, args=(room, server, over, ended), daemon=True).start()
        with os.fdopen(report, "w") as answer:
            answer.write(_why_it_is_not_ready(server, room) or "ready")
        server.wait()
        ended.set()
        if over.is_set():
            remove(room)


def identity(account: str) -> dict[str, Any]:
    """Return the arguments of a subprocess that runs as this account; none when the account is our own, given as ""."""
    if not account:
        return {}
    entry = pwd.getpwnam(account)
    return {
        "user": entry.pw_uid,
        "group": entry.pw_gid,
        "extra_groups": [],
        "env": os.environ | {"HOME": "/", "USER": account, "LOGNAME": account},
    }


def _be_silent() -> None:
    """Let go of the caller's streams, for whose end it may wait."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _die_with_the_guard() -> None:
    """Have the kernel stop the server when its guard is gone. After the change of user, which would undo it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _stop_with_the_run(
    room: Path, server: subprocess.Popen[bytes], over: threading.Event, end: threading.Event
) -> None:
    # Where even the file is gone, so is the run.
    with contextlib.suppress(FileNotFoundError), (room / "run").open("r+") as run:
        fcntl.lockf(run, fcntl.LOCK_EX)
    over.set()
    server.send_signal(signal.SIGQUIT)
    if not end.wait(10):
        server.kill()


def _why_it_is_not_ready(server: subprocess.Popen[bytes], room: Path) -> str:
    """Wait until the server says in its own file that it takes connections; return "", or why it never will."""
    end = time.monotonic() + DEADLINE
    while status_of(room) != (server.pid, "ready"):
        if server.poll() is not None:
            return f"the server ended with status {server.returncode}; its log says:\n{_end_of_the_log(room)}"
        if time.monotonic() > end:
            server.send_signal(signal.SIGQUIT)
            return f"the server was not ready after {DEADLINE:g} seconds; its log says:\n{_end_of_the_log(room)}"
        time.sleep(0.005)
    return ""


def status_of(room: Path) -> tuple[int, str]:
    """Return the process id of the server and what it says that it does; (0, "") where none has ever run."""
    lines = _pid_file(room)
    return (int(lines[0]), lines[7].strip() if len(lines) > 7 else "") if lines else (0, "")


def _pid_file(room: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return (room / "server" / "data" / "postmaster.pid").read_text().splitlines()
    return []


def _end_of_the_log(room: Path) -> str:
    return "\n".join((room / "server" / "log").read_text(errors="replace").splitlines()[-20:])


# ---- leftovers ------------------------------------------------------------------------------------------------------


def sweep(parent: Path, *, sparing: Path | None) -> None:
    """Remove the rooms of runs that were killed together with the guard of their server."""
    for room in parent.glob(f"{PREFIX}*"):
        if room != sparing:
            # Another user's room, or one that its own guard is just removing.
            with contextlib.suppress(OSError), _no_run(room), _no_guard(room):
                remove(room)


@contextlib.contextmanager
def _no_run(room: Path) -> Iterator[None]:
    """Hold the lock of the run; OSError if somebody else does."""
    with (room / "run").open("r+") as run:
        fcntl.lockf(run, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def _no_guard(room: Path) -> Iterator[None]:
    """Hold the lock of the guard; OSError if somebody else does."""
    with (room / "guard").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def remove(room: Path) -> None:
    """Remove the room of a server that runs no more, and the segment of shared memory that a killed one leaves."""
    lines = _pid_file(room)
    if len(lines) > 6 and len(numbers := lines[6].split()) == 2:
        ctypes.CDLL(None).shmctl(int(numbers[1]), _IPC_RMID, None)
    shutil.rmtree(room, ignore_errors=True)


def make_room(parent: Path) -> tuple[Path, Any]:
    """Make a room that is ours until the file returned is closed."""
    room = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    # The server's user has to pass.
    room.chmod(0o711)
    run = (room / "run.new").open("w")
    fcntl.lockf(run, fcntl.LOCK_EX)
    # A room is swept by its lock, which is therefore held before it can be seen.
    (room / "run.new").rename(room / "run")
    return room, run


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
