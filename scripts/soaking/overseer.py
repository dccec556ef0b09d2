"""Runs the clients, kills them and the server at random, and empties the queues in the end."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import signal
import time
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Protocol

import qmadmin
from soaking import client
from soaking.space import QUEUES, name_of, opened

_FORK = multiprocessing.get_context("fork")
_PATIENCE = 60.0
"""Seconds that a client has to stop in, and in which one message more has to come out of the queues in the end."""


class KilledServer(Protocol):
    """What can be killed besides the clients."""

    def start(self) -> None:
        """Start it again."""

    def stop(self, mode: str = "fast") -> None:
        """Stop it."""

    def kill(self) -> None:
        """Kill it."""


class Overseer:
    """One run over queue spaces that are there."""

    def __init__(self, urls: Mapping[str, str], directory: Path, server: KilledServer | None, seed: int) -> None:
        """Take the devices of the queue spaces by their names, and where journals are written.

        Without a server only clients are killed.
        """
        self.kills = {"clients": 0, "the server": 0, "the server (stopped at once)": 0}
        self.problems: list[str] = []
        self.counted = 0
        self._urls = urls
        self._directory = directory
        self._server = server
        self._random = random.Random(seed)  # noqa: S311 - nothing secret
        self._clients: dict[str, ForkProcess] = {}
        self._lives: dict[str, int] = {}
        self._roles: dict[str, str] = {}

    def run(self, kinds: Mapping[str, int], seconds: float) -> None:
        """Let clients, so many of each kind, work for some time, under kills."""
        for kind, count in kinds.items():
            roles = [role for role in client.ROLES if role.startswith(kind)]
            for number in range(count):
                name = f"{kind[0]}{number}"
                self._roles[name] = roles[number % len(roles)]
                self._start(name)
        try:
            self._wait_until_all_have_begun()
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, self._random.uniform(0.5, 3)))
                self._look_after_the_clients()
                self._kill_something()
        finally:
            self._stop_all()

    def journals(self, kind: str = "") -> list[Path]:
        """Return the journals of all clients there were, or of those of a kind."""
        return sorted(self._directory.glob(f"{kind[:1]}*.journal"))

    def empty(self) -> list[str]:
        """Take out all that is stored, and return the names; whatever cannot be taken out is a problem."""
        names: list[str] = []
        with contextlib.ExitStack() as stack:
            spaces = [stack.enter_context(opened(url, name)) for name, url in self._urls.items()]
            self._settle(spaces)
            for space in spaces:
                usages = [usage for _, usage in space.usages()]
                self.counted += sum(usage.dequeued for usage in usages)
                if lost := sum(usage.discarded + usage.expired for usage in usages):
                    self.problems.append(f"{lost:,} messages of {space.name} were discarded or have expired")
            for space in spaces:
                names += self._emptied(space)
        return names

    def _emptied(self, space: qmadmin.QueueSpace) -> list[str]:
        names: list[str] = []
        deadline = time.monotonic() + _PATIENCE
        while left := sum(usage.messages for _, usage in space.usages()):
            found = self._take(space)
            names += found
            if found:
                deadline = time.monotonic() + _PATIENCE
            elif time.monotonic() > deadline:
                self.problems.append(f"{left:,} messages of {space.name} are counted, and cannot be dequeued")
                break
            else:
                time.sleep(0.1)
        return names

    def _settle(self, spaces: Sequence[qmadmin.QueueSpace]) -> None:
        """Wait until the transactions of the clients that were killed have ended, those over both devices, too."""
        deadline = time.monotonic() + _PATIENCE
        while left := [(space.name, info) for space in spaces for info in space.transactions()]:
            if time.monotonic() > deadline:
                self.problems += [
                    f"transaction {info.name} of {name} is still {info.state.value}" for name, info in left
                ]
                return
            time.sleep(0.1)
            for space in spaces:
                # Whoever works in a queue space ends what others have left.
                space.usages()

    def _take(self, space: qmadmin.QueueSpace) -> list[str]:
        return [name_of(message) for queue in QUEUES[space.name] for message in space.dequeue_many(queue, 500)]

    def _start(self, name: str) -> None:
        self._lives[name] = self._lives.get(name, 0) + 1
        said = self._directory / f"{name}.said"
        arguments = (self._roles[name], f"{name}.{self._lives[name]}", self._urls, self._journal(name), said)
        # A fork of this process, which has everything loaded and nothing open, is at work at once.
        self._clients[name] = _FORK.Process(target=client.run, args=arguments)
        self._clients[name].start()

    def _wait_until_all_have_begun(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not all(self._has_begun(name) for name in self._clients) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _has_begun(self, name: str) -> bool:
        """Return whether a client has begun an operation since it was started."""
        journal = self._journal(name)
        return journal.exists() and journal.stat().st_size > 0

    def _journal(self, name: str) -> Path:
        return self._directory / f"{name}.{self._lives[name]}.journal"

    def _look_after_the_clients(self) -> None:
        """Clients end when they are told to; one that has ended by itself is a problem."""
        for name, process in self._clients.items():
            if process.exitcode is not None:
                self._blame(name, f"ended by itself with status {process.exitcode}")
                self._start(name)

    def _kill_something(self) -> None:
        chance = self._random.random()
        if self._server is None or chance < 0.85:
            if not (at_work := [name for name in self._clients if self._has_begun(name)]):
                return
            name = self._random.choice(at_work)
            self._clients[name].kill()
            self._clients[name].join()
            self.kills["clients"] += 1
            self._start(name)
            return
        if chance < 0.93:
            self._server.kill()
            self.kills["the server"] += 1
        else:
            self._server.stop("immediate")
            self.kills["the server (stopped at once)"] += 1
        time.sleep(self._random.uniform(0, 1))
        self._server.start()

    def _stop_all(self) -> None:
        for process in self._clients.values():
            process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for name, process in self._clients.items():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
                self._blame(name, f"did not stop within {_PATIENCE:g} seconds")
            elif process.exitcode not in (0, -signal.SIGTERM):
                self._blame(name, f"ended with status {process.exitcode}")

    def _blame(self, name: str, what: str) -> None:
        words = ""
        with contextlib.suppress(OSError, IndexError):
            words = (self._directory / f"{name}.said").read_text(errors="replace").splitlines()[-1]
        self.problems.append(f"client {name}.{self._lives[name]} ({self._roles[name]}) {what}: {words}")
