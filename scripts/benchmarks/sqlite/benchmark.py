"""What the groups of rows share while they measure: numbers, a directory, and the processes of the subjects."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hosts import Host, SubjectError
from benchmarks.sqlite.rows import OURS

SUBJECTS = {
    "raw": "benchmarks.sqlite.raw:Measured",
    "raw, relaxed": "benchmarks.sqlite.raw:Relaxed",
    "qmadmin": "benchmarks.sqlite.engine:Measured",
    "qmadmin, relaxed": "benchmarks.sqlite.engine:Relaxed",
    "huey": "benchmarks.sqlite.huey_peer:Measured",
    "persist-queue": "benchmarks.sqlite.persist_queue_peer:Measured",
    "litequeue": "benchmarks.sqlite.litequeue_peer:Measured",
    "litequeue, relaxed": "benchmarks.sqlite.litequeue_peer:Relaxed",
}
"""Where the subjects are."""

PEERS = ("huey", "persist-queue", "litequeue")
REQUIREMENTS = ("huey>=3,<4", "persist-queue>=1,<2", "litequeue>=0.9,<1")
"""What the peers need, which the project does not have."""


@dataclasses.dataclass(frozen=True)
class Numbers:
    """How much is done of everything."""

    operations: int = 2000
    """Operations of one measurement of a rate, at most; ten times as many messages where several go together."""
    seconds: float = 1.0
    """Seconds of such a measurement, at most."""
    rounds: int = 5
    stored: int = 1_000_000
    """Messages of the large backlog."""
    beside: int = 100_000
    """Messages that are delayed or locked in front of the others."""
    queues: int = 1000
    forwarded: int = 5000
    """Messages that a forwarder is given in one round."""
    wakes: int = 300
    """Messages that a waiting consumer is woken for in one round."""
    idle: float = 15.0
    """Seconds of idleness in one round: where many wait, each looks once in so many by itself."""
    waiters: int = 100
    tasks: int = 5000
    """Tasks of asyncio that wait."""
    in_doubt: int = 1000
    """Branches that a coordinator leaves."""
    herd: int = 80
    """Processes that begin at one moment on one file."""
    large: int = 64 * 2**20
    """Bytes of the large payload."""


QUICK = Numbers(
    operations=20, seconds=0.3, rounds=1, stored=300, beside=30, queues=5, forwarded=20, wakes=5, idle=0.2, waiters=3,
    tasks=10, in_doubt=5, herd=3, large=2**20,
)  # fmt: skip
"""So little of everything that its figures mean nothing."""


class Benchmark:
    """One run: where its files are, and the subjects that it has started."""

    def __init__(self, numbers: Numbers, directory: Path, peers: str, resources: contextlib.ExitStack) -> None:
        """Let `peers` be the interpreter that has their packages, or "" where there is none."""
        self.numbers = numbers
        self.directory = directory
        self.resources = resources
        self._python = {name: peers if name.partition(",")[0] in PEERS else sys.executable for name in SUBJECTS}
        self._hosts: dict[str, Host] = {}
        self._attended: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        """Why a subject is not measured."""

    def subject(self, name: str) -> Host | None:
        """Return the process of a subject, which is started when it is first asked for; None where it cannot be."""
        if name not in self._hosts and name not in self.missing and self._python[name]:
            try:
                self._hosts[name] = self.resources.enter_context(Host(name, self._python[name], SUBJECTS[name]))
            except SubjectError as error:
                self.missing[name] = str(error)
        return self._hosts.get(name)

    @property
    def versions(self) -> dict[str, str]:
        """The subjects that were measured, and what they are."""
        return {name: host.facts["version"] for name, host in self._hosts.items() if "," not in name}

    @property
    def ours(self) -> Host:
        """The process of the engine."""
        host = self.subject(OURS)
        if host is None:
            raise SubjectError(self.missing[OURS])
        return host

    def place(self, name: str) -> str:
        """Return a path where nothing is, in a directory of its own."""
        directory = self.directory / name.replace(", ", "-").replace(" ", "-")
        directory.mkdir()
        return str(directory / "QUE")

    def attended(self, host: Host) -> str:
        """Return the path of a subject's file for rates, laid out at first; a client stays connected to it."""
        if host.name not in self._attended:
            path = self.place(host.name)
            host.ask("set_up", path)
            self.resources.enter_context(attending(host, path))
            self._attended[host.name] = path
        return self._attended[host.name]

    def device(self, name: str) -> str:
        """Return the path of a device that is laid out now and is empty."""
        path = self.place(name)
        self.ours.ask("set_up", path)
        return path

    @functools.cached_property
    def stored(self) -> str:
        """The path of a device with the large backlog in its queue, made when it is first asked for."""
        path = self.device("stored")
        self.ours.ask("fill", path, count=self.numbers.stored)
        return path


@contextlib.contextmanager
def attending(host: Host, path: str) -> Iterator[None]:
    """Keep one more client of a subject connected to a file meanwhile."""
    host.ask("attend", path)
    try:
        yield
    finally:
        host.ask("leave", path)
