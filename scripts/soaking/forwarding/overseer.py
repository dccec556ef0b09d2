"""Runs clients and forwarders, kills, stops and reloads forwarders at random, and counts what is left in the end."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterable
from multiprocessing.context import ForkProcess
from pathlib import Path

import qmadmin
from soaking.forwarding import client
from soaking.forwarding.books import ERROR, FAILURE
from soaking.forwarding.forwarders import Forwarder, processes_in
from soaking.forwarding.site import ERRORS, FAILURES, SERVICES, name_of, opened, reply_queue, services_text
from soaking.forwarding.web import WebServer
from soaking.program import PATIENCE

_FORK = multiprocessing.get_context("fork")


class Overseer:
    """One run over a queue space that is there."""

    def __init__(self, url: str, directory: Path, seed: int, forwarders: int, clients: list[str]) -> None:
        self.problems: list[str] = []
        self.acts: Counter[str] = Counter()
        self.ended = 0
        """How often a service has taken its forwarder with it."""

        self._url = url
        self._directory = directory
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - nothing secret
        self._names = clients
        self._clients: dict[str, ForkProcess] = {}
        self._web = WebServer()
        services = services_text(self._web.url)
        self._forwarders = [
            # Each second one does not try again what has failed with something to say.
            Forwarder(f"forwarder{number}", directory, url, services, *(["-d"] if number % 2 else []))
            for number in range(forwarders)
        ]

    def run(self, seconds: float, calm_seconds: float) -> None:
        """Let clients and forwarders work for some time, under kills, and the forwarders for some more time in calm.

        They have that time to work off what is queued.
        """
        try:
            self._web.start()
            for name in self._names:
                self._start_client(name)
            for forwarder in self._forwarders:
                forwarder.start()
            for forwarder in self._forwarders:
                forwarder.wait_until_begun()
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, self._random.uniform(0.1, 1.5)))
                self._look_after_all()
                self._disturb(self._random.choice(self._forwarders))
            self._stop_clients()
            self._calm_down(calm_seconds)
        finally:
            for process in self._clients.values():
                process.kill()
            for forwarder in self._forwarders:
                forwarder.stop()
                self.problems += forwarder.problems
            self._web.kill()
        self._wait_for_commands()

    def left(self) -> dict[str, list[str]]:
        """Return the names of all requests of which something is left, by what it is; look for what may not be."""
        with opened(self._url) as space:
            self._wait_until_nothing_is_held(space)
            usages = {queue.name: usage for queue, usage in space.usages()}
            if lost := sum(usage.discarded + usage.expired for usage in usages.values()):
                self.problems.append(f"{lost:,} messages were discarded or have expired")
            left = {
                "reply that waits": self._names_in(space, map(reply_queue, self._names)),
                FAILURE: self._names_in(space, [FAILURES]),
                ERROR: self._names_in(space, [ERRORS]),
                "request that is queued": self._names_in(space, SERVICES),
            }
            self._check_errors(space)
        counted = sum(usage.messages for usage in usages.values())
        if counted != (listed := sum(map(len, left.values()))):
            self.problems.append(f"the queues count {counted:,} messages, and list {listed:,}")
        return left

    def journals(self) -> list[Path]:
        """Return the journals of all clients."""
        return [self._journal(name) for name in self._names]

    def _start_client(self, name: str) -> None:
        said = self._directory / f"{name}.said"
        self._clients[name] = _FORK.Process(
            target=client.run, args=(name, self._url, self._journal(name), said, self._seed)
        )
        self._clients[name].start()

    def _journal(self, name: str) -> Path:
        return self._directory / f"{name}.journal"

    def _start(self, forwarder: Forwarder) -> None:
        forwarder.start()
        forwarder.wait_until_begun()

    def _look_after_all(self) -> None:
        for forwarder in self._forwarders:
            if forwarder.has_ended():
                self.ended += 1
                self._start(forwarder)
        for name, process in self._clients.items():
            if process.exitcode is not None:
                self.problems.append(
                    f"client {name} ended by itself with status {process.exitcode}: {self._said(name)}"
                )
                del self._clients[name]
                return

    def _disturb(self, forwarder: Forwarder) -> None:
        acts = {
            "killed": 6, "stopped": 3, "stopped at once": 2, "reloaded": 2, "given a broken file": 1,
            "left without its web server": 2,
        }  # fmt: skip
        (act,) = self._random.choices(list(acts), list(acts.values()))
        self.acts[act] += 1
        match act:
            case "killed":
                forwarder.kill()
            case "stopped" | "stopped at once":
                forwarder.stop(at_once=act == "stopped at once")
            case "left without its web server":
                self._web.kill()
                time.sleep(self._random.random() / 2)
                self._web.start()
                return
            case _:
                forwarder.reload(broken=act == "given a broken file")
                return
        self._start(forwarder)

    def _stop_clients(self) -> None:
        for process in self._clients.values():
            process.terminate()
        for name, process in self._clients.items():
            process.join(PATIENCE)
            if process.exitcode != 0:
                self.problems.append(f"client {name} ended with status {process.exitcode}: {self._said(name)}")
                process.kill()
        self._clients.clear()

    def _said(self, name: str) -> str:
        with contextlib.suppress(OSError, IndexError):
            return (self._directory / f"{name}.said").read_text(errors="replace").splitlines()[-1]
        return ""

    def _calm_down(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with opened(self._url) as space:
            while time.monotonic() < deadline and any(space.usage(queue).messages for queue in SERVICES):
                self._look_after_all()
                time.sleep(0.1)

    def _wait_for_commands(self) -> None:
        """Commands whose forwarder was killed end by themselves, and nothing else is left of it."""
        deadline = time.monotonic() + PATIENCE
        while (running := list(processes_in(self._directory))) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.problems += [f"still running: {command}" for command in running]

    def _wait_until_nothing_is_held(self, space: qmadmin.QueueSpace) -> None:
        deadline = time.monotonic() + PATIENCE
        while held := sum(usage.held for _, usage in space.usages()):
            if time.monotonic() > deadline:
                self.problems.append(f"{held:,} messages are held, and nobody works on them")
                return
            time.sleep(0.1)

    def _names_in(self, space: qmadmin.QueueSpace, queues: Iterable[str]) -> list[str]:
        return [name_of(info) for queue in queues for info in space.messages(queue)]

    def _check_errors(self, space: qmadmin.QueueSpace) -> None:
        for info in space.messages(ERRORS):
            if info.origin is None or info.origin.queue not in SERVICES or not info.origin.error:
                self.problems.append(f"{name_of(info)} is in the error queue and does not say from where, or why")
