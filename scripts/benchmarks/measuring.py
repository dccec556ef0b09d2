"""Measuring subjects on PostgreSQL in turn: their databases, and the rounds."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg

from benchmarks.figures import summary
from benchmarks.hosts import Host, SubjectError, in_turn


@dataclasses.dataclass(frozen=True)
class Measure:
    """One thing that is measured, for each number of clients."""

    name: str
    title: str
    produces: bool
    consumes: bool
    deep: bool = False
    """Whether messages are taken from the database that holds the backlog."""
    produce: str = "produce"
    consume: str = "consume"
    """Which methods of the clients are called."""
    size: int = 1
    """Messages that one call of them has."""
    of_worker: str = ""
    """What the subject's process is asked for where this is about its worker: "work", "work_together" or "lose"."""

    against: str = ""
    """The measure of the same subject that it is compared with; by default it is the same of the first subject."""

    @property
    def works(self) -> list[str]:
        """The methods that it is about."""
        if self.of_worker:
            return ["work" if self.of_worker == "lose" else self.of_worker]
        return [self.produce] * self.produces + [self.consume] * self.consumes

    def can_be_done_by(self, host: Host) -> bool:
        """Return whether the clients of a subject have the methods."""
        return all(work in host.facts["commits"] for work in self.works)


MEASURES = (
    Measure("enqueue", "enqueue, one at a time", produces=True, consumes=False),
    Measure("dequeue", "dequeue, one at a time", produces=False, consumes=True),
    Measure("mixed", "producers beside as many consumers", produces=True, consumes=True),
    Measure("backlog", "dequeue, one at a time, from a backlog", produces=False, consumes=True, deep=True),
    Measure("answer", "transaction: dequeue, enqueue a reply", produces=False, consumes=True, consume="answer"),
    Measure(
        "record_apart",
        "dequeue, then a row in a database of the application",
        produces=False,
        consumes=True,
        consume="record_apart",
    ),
    Measure(
        "record_together",
        "the same together, the database decides (to two commits)",
        produces=False,
        consumes=True,
        consume="record_together",
        against="record_apart",
    ),
    Measure(
        "record_prepared",
        "the same together, the database prepares (to two commits)",
        produces=False,
        consumes=True,
        consume="record_prepared",
        against="record_apart",
    ),
    Measure("enqueue_100", "enqueue_many of 100", produces=True, consumes=False, produce="produce_many", size=100),
    Measure("dequeue_100", "dequeue_many of 100", produces=False, consumes=True, consume="consume_many", size=100),
    Measure("worker", "worker, a function that does nothing", produces=False, consumes=False, of_worker="work"),
    Measure(
        "worker_together",
        "worker, so many messages together",
        produces=False,
        consumes=False,
        of_worker="work_together",
    ),
    Measure(
        "worker_killed",
        "worker killed in a call: not got by the next",
        produces=False,
        consumes=False,
        of_worker="lose",
    ),
)

_KILLED_MESSAGES = 200


class DatabaseHost(Host):
    """The process that holds a subject, and the two databases that the subject has for itself."""

    url = deep_url = ""


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

    def measure(self, host: DatabaseHost, measure: Measure, clients: int) -> None:
        """Measure once; SubjectError where the subject fails."""
        key = (measure.name, clients, host.name)
        rate = self._of_worker(host, measure, clients) if measure.of_worker else self._rate(host, measure, clients)
        self.rates.setdefault(key, []).append(rate)

    def _of_worker(self, host: DatabaseHost, measure: Measure, workers: int) -> float:
        """Return how many messages a second a worker is done with; or how many the next one of a killed one misses."""
        loses = measure.of_worker == "lose"
        count = min(_KILLED_MESSAGES, self._operations) if loses else self._operations
        done = host.ask(measure.of_worker, host.url, workers=workers, messages=count)
        return float(done["lost"] if loses else done["operations"] / done["seconds"])

    def _rate(self, host: DatabaseHost, measure: Measure, clients: int) -> float:
        url = host.deep_url if measure.deep else host.url
        self._prepare(host, measure, url)
        how: dict[str, Any] = {"size": measure.size} if measure.size > 1 else {}
        done = host.ask(
            "measure",
            url,
            producers=clients if measure.produces else 0,
            consumers=clients if measure.consumes else 0,
            operations=max(self._messages(measure) // measure.size, clients),
            seconds=self._seconds,
            produce=measure.produce,
            consume=measure.consume,
            **how,
        )
        if not done["operations"]:
            raise SubjectError(f"{measure.title}: no operation was done in {self._seconds:g} seconds")
        if measure.deep:
            self._missing[host.name] = done["operations"]
        return float(done["operations"] * measure.size / done["seconds"])

    def _messages(self, measure: Measure) -> int:
        """Return how many messages come or go: more of those that do so together."""
        return self._operations * (10 if measure.size > 1 else 1)

    def forget(self, name: str) -> None:
        """Drop what was measured of a subject that failed: its rows would be of fewer rounds than the others."""
        self.rates = {key: rates for key, rates in self.rates.items() if key[2] != name}

    def results(self, hosts: Sequence[DatabaseHost], against: str) -> list[dict[str, Any]]:
        """Return one row for each measure, number of clients and subject, with its ratio to the subject `against`."""
        rows = []
        hosts_by_name = {host.name: host for host in hosts}
        titles = {measure.name: measure for measure in MEASURES}
        for (name, clients, subject), rates in self.rates.items():
            measure = titles[name]
            # Of what is lost none is the best.
            bar = (measure.against, clients, subject) if measure.against else (name, clients, against)
            bars = None if measure.of_worker == "lose" else self.rates.get(bar)
            figures = summary(rates, bars)
            rows.append(
                {
                    "measure": name,
                    "title": measure.title,
                    "clients": clients,
                    "subject": subject,
                    "durability": hosts_by_name[subject].durability(*measure.works),
                    "rates": [round(rate, 1) for rate in rates],
                    "median": round(figures["median"], 1),
                    "least": round(figures["least"], 1),
                    "most": round(figures["most"], 1),
                    "ratio": figures["ratio"],
                }
            )
        return rows

    def _prepare(self, host: DatabaseHost, measure: Measure, url: str) -> None:
        if measure.deep:
            host.ask("fill", url, count=self._missing.get(host.name, self._backlog))
        else:
            host.ask("empty", url)
            if not measure.produces:
                host.ask("fill", url, count=self._messages(measure))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")


def interleaved(
    hosts: list[DatabaseHost],
    kinds: Sequence[Measure],
    clients: Sequence[int],
    rounds: int,
    measure: Callable[[DatabaseHost, Measure, int], None],
    is_over: Callable[[], bool],
) -> bool:
    """Call `measure` for every kind in every round, the subjects next to each other.

    Return whether all of it was done before the time was over; what was begun is done for all subjects.
    """
    for number in range(rounds):
        for count in clients:
            for kind in kinds:
                if is_over():
                    return False
                for host in in_turn([host for host in hosts if kind.can_be_done_by(host)], number):
                    measure(host, kind, count)
    return True
