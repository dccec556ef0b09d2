"""Processes that are forked from one that has loaded what they need: to load it takes longer than most of them live.

Each is a process of its own, which runs its program from the first line as `python -c` does, with standard streams,
environment and directory of its own. It only finds modules loaded, as a later moment of any program does. The server
has one thread, has opened nothing, and does nothing but fork, and tell how those ended whom it has forked.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

_REQUEST_MAX = 200_000

_SERVING = """
import atexit, os, sys

ended = []
# The first to be registered is the last to be called.
atexit.register(lambda: ended and (sys.stdout.flush(), sys.stderr.flush(), os._exit(*ended)))
from tests.fork_server import serve

source = serve(int(sys.argv[1]))
exec(compile(source, "<string>", "exec"))
"""


_LOADED = """
import importlib, os, sys

sys.path[0] = os.getcwd()
module = importlib.import_module(sys.argv.pop(1))
sys.argv[0] = module.__file__
"""

ENTRY_POINT = f"{_LOADED}sys.exit(module.main())"
"""One of our programs, named by its module, as pip installs it."""

ENTRY_POINT_WITHOUT_DISMANTLING = f"{_LOADED}ended.append(module.main())"
"""The same, but when all that asked to be called at its end has been called, Python does not take itself to pieces.

What it did not make itself it would copy for that, which takes longer than most commands.
"""


class Forked:
    """A process that a fork server has forked, as `subprocess.Popen` has it: it is not a child of this process."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        """Return how it ended; None as long as it has not."""
        with self._asking:
            return self.returncode if self._status < 0 or not self._ends_within(0) else self._learn()

    def wait(self, timeout: float = 60.0) -> int:
        """Return how it ended."""
        end = time.monotonic() + timeout
        while (found := self.poll()) is None:
            if (left := end - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._ends_within(left)
        return found

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            # It may have ended, and the server not have told it yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def _ends_within(self, seconds: float) -> bool:
        status = self._status
        if status < 0:
            return True
        waiting = select.poll()
        waiting.register(status, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def _learn(self) -> int:
        told = os.read(self._status, 16)
        os.close(self._status)
        self._status = -1
        assert told, "the fork server is gone"
        self.returncode = os.waitstatus_to_exitcode(int(told))
        return self.returncode


_IN_TERMINAL = """
import fcntl, os, sys, termios

os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
"""
"""What a terminal makes of a process; Python has looked already whether its output goes to one."""


class ForkedProcess(Forked):
    """One whose standard streams are pipes."""

    def __init__(self, pid: int, status: int, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__(pid, status)
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr

    def communicate(self, timeout: float = 60.0) -> tuple[str, None]:
        """Return what it still writes to its standard output until it ends."""
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        self.wait(timeout)
        self.stdout.close()
        return said[0], None

    def ended(self, text: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Give it a text on its standard input, and return what it has written and how it ended."""
        with ThreadPoolExecutor(3) as at_once, self.stdout, self.stderr:
            at_once.submit(self._is_given, text)
            said = [at_once.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                status = self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            return subprocess.CompletedProcess([], status, *(each.result() for each in said))

    def _is_given(self, text: str) -> None:
        # It may end without having read all of it.
        with contextlib.suppress(BrokenPipeError), self.stdin:
            self.stdin.write(text)


class ForkServer:
    """The server of this process, begun in its environment with the first process that it is to fork."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._modules = modules
        self._environment = environment
        self._asking = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket

    def start(
        self,
        source: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: str | os.PathLike[str] = ".",
    ) -> ForkedProcess:
        """Start a process that runs a program in a directory."""
        (stdin, to), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
        pid, status = self._fork((stdin, stdout, stderr), source, arguments, environment, directory)
        _close((stdin, stdout, stderr))
        return ForkedProcess(pid, status, os.fdopen(to, "w"), os.fdopen(out), os.fdopen(err))

    def start_in_terminal(
        self,
        terminal: int,
        source: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: str | os.PathLike[str] = ".",
    ) -> Forked:
        """Start a process that runs a program, leads a session, and has a terminal for that and for its streams."""
        return Forked(*self._fork((terminal,) * 3, _IN_TERMINAL + source, arguments, environment, directory))

    def is_for(self, environment: Mapping[str, str]) -> bool:
        """Return whether a process with this environment may be forked: some variables Python reads at its start."""
        return _read_at_the_start(environment) == _read_at_the_start(self._environment)

    def _fork(
        self,
        streams: tuple[int, int, int],
        source: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: str | os.PathLike[str],
    ) -> tuple[int, int]:
        """Have a process forked; return its number, and what is told there when it has ended."""
        request = {
            "source": source,
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": str(Path(directory).absolute()),
        }
        status, told = os.pipe()
        with self._asking:
            self._be_there()
            socket.send_fds(self._connection, [json.dumps(request).encode()], [*streams, told])
            answer = self._connection.recv(16)
        os.close(told)
        assert answer, "the fork server is gone"
        return int(answer), status

    def close(self) -> None:
        """End the server; whoever it has forked is on its own."""
        if self._server is not None:
            self._connection.close()
            with self._server as server:
                server.wait(60)
            self._server = None

    def _be_there(self) -> None:
        if self._server is not None:
            return
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVING, str(theirs.fileno()), *self._modules],
                # As those are that each process gets: Python looks once what its standard streams are.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=self._environment,
            )


@contextlib.contextmanager
def forking(modules: Sequence[str], environment: Mapping[str, str]) -> Iterator[ForkServer | None]:
    """Give what forks processes that find the modules loaded; None where the system cannot tell how those end."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    with contextlib.closing(ForkServer(modules, environment)) as server:
        yield server


def _read_at_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(("LANG", "LC_", "PYTHON"))}


def serve(fd: int) -> str:
    """Fork whoever is asked for; return in each of them the program that it is to run, and at the end an empty one."""
    for module in sys.argv[2:]:
        # Who has no server of PostgreSQL need not have the driver.
        with contextlib.suppress(ImportError):
            __import__(module)
    # Else each of those that are forked would copy what it only looks at.
    gc.freeze()
    connection = socket.socket(fileno=fd)
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    forked: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in waiting.poll():
            if ready != fd:
                waiting.unregister(ready)
                _tell_end(ready, *forked.pop(ready))
                continue
            request, fds, _, _ = socket.recv_fds(connection, _REQUEST_MAX, 4)
            if not request:
                return ""
            pid = os.fork()
            if pid == 0:
                _close([*forked, *(told for _, told in forked.values())])
                connection.close()
                return _settled(json.loads(request), fds)
            _close(fds[:3])
            watched = os.pidfd_open(pid)
            waiting.register(watched, select.POLLIN)
            forked[watched] = pid, fds[3]
            connection.send(b"%d" % pid)


def _tell_end(watched: int, pid: int, told: int) -> None:
    _, status = os.waitpid(pid, 0)
    # Who asked may be gone.
    with contextlib.suppress(BrokenPipeError):
        os.write(told, b"%d" % status)
    _close([watched, told])


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _settled(request: dict[str, Any], fds: Sequence[int]) -> str:
    """Give a process that was forked all that is its own, and return its program."""
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    _close(fds)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    sys.argv[:] = ["-c", *request["arguments"]]
    program: str = request["source"]
    return program
