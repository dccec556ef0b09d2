"""The program qmspark, in this process and as a process, on a device with two queues and five messages."""

from __future__ import annotations

import dataclasses
import json
import logging
import signal
import subprocess
import sys

import pytest

import qmadmin
from qmadmin.spark import program
from qmcore.order import QueueOrder
from qmcore.queue import QueueDefinition
from tests.fix_process import environment

PROGRAM = [sys.executable, "-m", "qmadmin.spark.program"]


@dataclasses.dataclass(frozen=True)
class Said:
    """What the program wrote, and its exit status."""

    out: str
    err: str
    status: int

    @property
    def found(self):
        """The one object of the JSON document."""
        document = json.loads(self.out)
        assert document["ok"] is (self.status == 0), document
        return document["rows"][0]

    @property
    def counts(self):
        """How many messages each queue has."""
        return {queue["queue"]: queue["messages"] for queue in self.found["queues"]}


class Qmspark:
    """Runs the program in a directory; `device` is the device QUE with the queue space QSPACE."""

    def __init__(self, site, capsys):
        self.site = site
        self.directory = site.directory
        self.device = str(site.device)
        self._capsys = capsys

    def path(self, name):
        return str(self.directory / name)

    def __call__(self, *arguments, status=0):
        """Run it in this process."""
        self._capsys.readouterr()
        ended = program.main([str(each) for each in arguments])
        out, err = self._capsys.readouterr()
        assert ended == status, err
        return Said(out, err, ended)

    def json(self, command, *arguments, status=0):
        """Run it in this process, for a program that reads JSON."""
        return self(command, "--format", "json", *arguments, status=status)

    def refusal(self, *arguments, status=2):
        """Return what it says to what it refuses, in one line."""
        said = self(*arguments, status=status)
        assert said.out == ""
        return " ".join(said.err.split())

    def start(self, *arguments, **settings):
        """Start it as a process."""
        return subprocess.Popen(
            [*PROGRAM, *(str(each) for each in arguments)],
            cwd=self.directory,
            env=environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def archive(self, name="archive", *options):
        """Export, and return the path of the archive."""
        self("export", *options, self.device, self.path(name))
        return self.path(name)

    def empty_device(self, name="NEW"):
        """Return the path of a device with nothing on it."""
        with qmadmin.create_device(self.path(name), 5000):
            return self.path(name)

    def messages(self, device, queue="orders", space="QSPACE"):
        """Return the messages of a queue, in its order."""
        with qmadmin.open_device(device) as opened, opened.open_space(space) as found:
            return list(found.messages(queue))

    def queue(self, device, queue="orders", space="QSPACE"):
        """Return a queue."""
        with qmadmin.open_device(device) as opened:
            return next(found for found in opened.queues(space) if found.name == queue)


@pytest.fixture
def qmspark(site, capsys, monkeypatch):
    """The program, beside a device with a queue space that has two queues, orders and errq."""
    orders = QueueDefinition(name="orders", order=QueueOrder.parse("priority,fifo"), retries=3)
    space = site.lay_out(orders, "errq", error_queue="errq", pages=1000)
    for number in range(4):
        space.enqueue("orders", f"order {number}", priority=40 + 10 * number, headers={"number": str(number)})
    space.enqueue("errq", "lost")
    monkeypatch.setenv("ULOGPFX", str(site.directory / "ULOG"))
    log = logging.getLogger("qmadmin")
    before, handlers = signal.getsignal(signal.SIGTERM), list(log.handlers)
    yield Qmspark(site, capsys)
    signal.signal(signal.SIGTERM, before)
    for handler in set(log.handlers) - set(handlers):
        log.removeHandler(handler)
        handler.close()
