"""Measuring subjects in turn: their processes, their databases, and the rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psycopg

SCRIPTS = Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True)
class Measure:
    """One thing that is measured, for each number of clients."""

    name: str
    title: str
    produces: bool
    consumes: bool
    deep: bool = False
    """Whether messages are taken from the database that holds the backlog."""


MEASURES = (
    Measure("enqueue", "enqueue, one at a time", produces=True, consumes=False),
    Measure("dequeue", "dequeue, one at a time", produces=False, consumes=True),
    Measure("mixed", "producers beside as many consumers", produces=True, consumes=True),
    Measure("backlog", "dequeue, one at a time, from a backlog", produces=False, consumes=True, deep=True),
)


class SubjectError(Exception):
    """A subject cannot be measured; the text says why."""


class Host:
    """The process that holds a subject, and the two databases that the subject has for itself."""

    def __init__(self, name: str, python: str) -> None:
        """Start it; SubjectError where the packages of the subject are absent."""
        paths = [str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.name = name
        self.url = self.deep_url = ""
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.client", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        try:
            self.facts = self._answer()
        except SubjectError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def ask(self, do: str, url: str, **facts: object) -> dict[str, Any]:
        """Have it do something; SubjectError where that failed."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, "url": url, **facts}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process has ended"}
        if "error" in answer:
            raise SubjectError(answer["error"])
        return answer


@contextlib.contextmanager
def database(server_url: str, name: str) -> Iterator[str]:
    """Give the URL of a database that is made now, and dropped in the end."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield with_database(server_url, name)
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def with_database(url: str, name: str) -> str:
    """Return a URL of PostgreSQL with another database in it."""
    head, mark, parameters = url.partition("?")
    scheme, separator, rest = head.partition("://")
    return f"{scheme}{separator}{rest.partition('/')[0]}/{name}{mark}{parameters}"


class Measurements:
    """Rates of subjects by measure and number of clients."""

    def __init__(self, operations: int, backlog: int, seconds: float) -> None:
        """Let a measurement end after so many operations or seconds."""
        self._operations = operations
        self._backlog = backlog
        self._seconds = seconds
        self._missing: dict[str, int] = {}
        self.rates: dict[tuple[str, int, str], list[float]] = {}

    def measure(self, host: Host, measure: Measure, clients: int) -> None:
        """Measure once; SubjectError where the subject fails."""
        url = host.deep_url if measure.deep else host.url
        self._prepare(host, measure, url)
        done = host.ask(
            "measure",
            url,
            producers=clients if measure.produces else 0,
            consumers=clients if measure.consumes else 0,
            messages=self._operations,
            seconds=self._seconds,
        )
        if not done["operations"]:
            raise SubjectError(f"{measure.title}: no operation was done in {self._seconds:g} seconds")
        if measure.deep:
            self._missing[host.name] = done["operations"]
        key = (measure.name, clients, host.name)
        self.rates.setdefault(key, []).append(done["operations"] / done["seconds"])

    def forget(self, name: str) -> None:
        """Drop what was measured of a subject that failed: its rows would be of fewer rounds than the others."""
        self.rates = {key: rates for key, rates in self.rates.items() if key[2] != name}

    def results(self, hosts: Sequence[Host], against: str) -> list[dict[str, Any]]:
        """Return one row for each measure, number of clients and subject, with its ratio to the subject `against`."""
        rows = []
        facts = {host.name: host.facts for host in hosts}
        titles = {measure.name: measure for measure in MEASURES}
        for (name, clients, subject), rates in self.rates.items():
            bar = self.rates.get((name, clients, against))
            rows.append(
                {
                    "measure": name,
                    "title": titles[name].title,
                    "clients": clients,
                    "subject": subject,
                    "durability": durability(titles[name], facts[subject]),
                    "rates": [round(rate, 1) for rate in rates],
                    "median": round(statistics.median(rates), 1),
                    "least": round(min(rates), 1),
                    "most": round(max(rates), 1),
                    # Of the same round: what disturbs the machine for a while disturbs both.
                    "ratio": bar and round(statistics.median(map(lambda a, b: a / b, rates, bar)), 3),
                }
            )
        return rows

    def _prepare(self, host: Host, measure: Measure, url: str) -> None:
        if measure.deep:
            host.ask("fill", url, count=self._missing.get(host.name, self._backlog))
        else:
            host.ask("empty", url)
            if not measure.produces:
                host.ask("fill", url, count=self._operations)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")


def durability(measure: Measure, facts: Mapping[str, Any]) -> str:
    """Say in how many synced commits a message is dealt with."""
    parts = []
    if measure.produces:
        parts.append(facts["enqueue_commits"])
    if measure.consumes:
        parts.append(facts["dequeue_commits"])
    commits = sum(parts)
    return f"{commits} synced {'commit' if commits == 1 else 'commits'}"


def interleaved(
    hosts: list[Host],
    clients: Sequence[int],
    rounds: int,
    measure: Callable[[Host, Measure, int], None],
    is_over: Callable[[], bool],
) -> bool:
    """Call `measure` for everything in every round, the subjects next to each other.

    Return whether all of it was done before the time was over; what was begun is done for all subjects.
    """
    for number in range(rounds):
        for count in clients:
            for kind in MEASURES:
                if is_over():
                    return False
                # Whoever comes first after a pause has an advantage, so that is another one in each round.
                turned = hosts[number % len(hosts) :] + hosts[: number % len(hosts)] if hosts else []
                for host in turned:
                    measure(host, kind, count)
    return True
