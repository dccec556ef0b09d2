"""Fixtures of the programs as real processes: a device laid out for them, the forwarder, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import qmadmin
from qmadmin import QueueDefinition, SpaceDefinition
from tests.fix_postgres import login_of
from tests.fork_server import ENTRY_POINT

ROOT = Path(__file__).parent.parent
PATIENCE = 240.0

BEGIN_AND_WAIT = """
import os, time
from pathlib import Path

HERE = Path(__file__).parent


def call(request):
    with open(HERE / "calls", "a") as calls:
        calls.write(f"{os.getpid()} {request.msgid}\\n")
    deadline = time.monotonic() + 240
    while not (HERE / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    return request.body
"""
"""A module whose service `call` notes each call, and answers when there is a file `go`."""


def eventually(happened, what="it"):
    """Ask until the answer is true, and return it; only for what other processes do."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := happened()):
        assert time.monotonic() < deadline, f"{what} has not happened in {PATIENCE:g} seconds"
        time.sleep(0.005)
    return answer


def is_running(number):
    """Return whether the process is there and no zombie, whose parent may be slow to notice."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    try:
        is_zombie = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        # Its parent is not told before the last of its threads has ended too.
        return not is_zombie or len(list(Path(f"/proc/{number}/task").iterdir())) > 1
    except OSError:
        return not Path("/proc/self").exists()


def running_in(session):
    """Return the processes of a session; a zombie, for whose status nobody has asked yet, has ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = path.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append(int(path.parent.name))
    return found


def kill_all_of(session):
    """Kill the processes of a session, also such as stand still."""
    while found := running_in(session):
        for number in found:
            with contextlib.suppress(ProcessLookupError):
                end = os.pidfd_open(number)
                os.kill(number, signal.SIGKILL)
                select.select([end], [], [], PATIENCE)
                os.close(end)


def environment(**settings):
    """Return an environment in which a Python process finds the packages of this checkout."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("", "core", "storage"))
    return os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"} | settings


AS_DAEMON = """
import os, sys

sys.stdin.close()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(1, 2)
sys.stdin = open(0)
sys.stdout.reconfigure(write_through=True)
"""
"""The streams that Daemon gives to others, in a process that was forked."""


class Daemon:
    """A forwarder, or another program, that was started."""

    def __init__(self, server, command, directory, settings, logs=None):
        """Start it: one of our programs is forked by the server, which has loaded most of what it needs."""
        self.directory = logs or directory
        python, option, *program = command
        if server is not None and (python, option) == (sys.executable, "-m"):
            self.process = server.start(AS_DAEMON + ENTRY_POINT, program, environment(**settings), directory)
            self.process.stdin.close()
            self.process.stderr.close()
        else:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        """Return its lines of the log."""
        lines = [line for path in sorted(self.directory.glob("ULOG.*")) for line in path.read_text().splitlines()]
        return "\n".join(line for line in lines if f"!tmqforward.{self.pid}." in line)

    def wait_until_logged(self, words):
        eventually(lambda: words in self.log() or self.process.poll() is not None, words)
        assert words in self.log(), self.log()

    def tell(self, number):
        os.kill(self.pid, number)

    def wait(self):
        """Wait for its end and return its status."""
        self.said = self.process.communicate(timeout=PATIENCE)[0]
        return self.process.returncode

    def stop(self):
        """Stop it in good order."""
        self.tell(signal.SIGTERM)
        assert self.wait() == 0, self.log()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        if not self.process.stdout.closed:
            self.process.communicate()


class Site:
    """A directory with a device, a services file and what belongs to it."""

    def __init__(self, directory, fork_server):
        self.directory = directory
        self.fork_server = fork_server
        self.device = directory / "QUE"
        self.daemons = []
        self.opened = contextlib.ExitStack()

    def lay_out(self, *queues, error_queue="ERRQUE", **limits):
        """Create the device, and a queue space with these queues, given by name or definition; open it."""
        limits = {"pages": 4000, "queues": 20, "transactions": 20, "processes": 20, "messages": 3000} | limits
        definition = SpaceDefinition(name="QSPACE", ipc_key=54320, error_queue=error_queue, **limits)
        device = self.opened.enter_context(qmadmin.create_device(self.device, 5000))
        if "://" in str(self.device):
            self.device = device.path
        self.administered = device
        device.create_space(definition)
        self.space = self.opened.enter_context(device.open_space("QSPACE"))
        for queue in queues:
            self.space.create_queue(QueueDefinition(name=queue) if isinstance(queue, str) else queue)
        return self.space

    def services(self, text, **modules):
        """Write the services file, and Python modules by name."""
        (self.directory / "services.toml").write_text(text)
        for name, source in modules.items():
            (self.directory / f"{name}.py").write_text(source)

    def command(self, *arguments):
        return [sys.executable, "-m", "qmadmin.forwarder.program", str(self.device), "QSPACE", *arguments]

    def start(self, *arguments, prefix=(), logs=None, **settings):
        """Start a forwarder and wait until it is at work; `logs` is where its log is, if not beside the device."""
        daemon = self.launch([*prefix, *self.command(*arguments)], logs, **settings)
        daemon.wait_until_logged("started")
        return daemon

    def run(self, *arguments, **settings):
        """Run a forwarder to its end, and return it."""
        daemon = self.launch(self.command(*arguments), **settings)
        daemon.wait()
        return daemon

    def launch(self, command, logs=None, **settings):
        """Start a program in the directory, with these variables in its environment; it is killed at the end."""
        daemon = Daemon(self.fork_server, command, self.directory, settings, logs)
        self.daemons.append(daemon)
        return daemon

    def calls(self):
        """Return the lines that services wrote into the file `calls`."""
        file = self.directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for_calls(self, count=1):
        return eventually(lambda: len(found := self.calls()) >= count and found, f"call {count}")

    def wait_until_alone(self):
        """Wait until all know that the other processes have gone, which a server needs a moment to notice."""
        eventually(lambda: sum(each.alive for each in self.administered.attached("QSPACE")) == 1, "their end")

    def all_of(self, queue):
        """Take all messages off a queue."""
        return list(iter(lambda: self.space.dequeue(queue), None))

    @contextlib.contextmanager
    def reopened(self):
        """Open the queue space once more, as another program would."""
        with qmadmin.open_device(self.device) as device, device.open_space("QSPACE") as space:
            yield space

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
        self.opened.close()


@pytest.fixture
def site(request, tmp_path, monkeypatch, fork_server):
    """A site whose device is a file, or with the parameter "postgres" a schema, which programs name without a login."""
    directory = tmp_path / "a site"
    directory.mkdir()
    site = Site(directory, fork_server)
    if getattr(request, "param", "file") == "postgres":
        site.device = request.getfixturevalue("database_url")
        for name, value in login_of(site.device).items():
            monkeypatch.setenv(name, value)
    yield site
    site.close()
