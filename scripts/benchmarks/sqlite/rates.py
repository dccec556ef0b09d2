"""Rates of the engine, the raw module and the peers, each on a file of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from benchmarks.hosts import Host, SubjectError
from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.rows import OURS, RAW, Row, Task, Turn

PROCESSES = 4
"""Producers of several, and as many consumers."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """How the values of one row are measured, or of several."""

    rows: tuple[Row, ...]
    subjects: Mapping[str, str]
    """By the name that is shown, the subject and the way in which it is opened."""
    produce: str = ""
    consume: str = ""
    size: int | None = None
    """Messages of one call, where the calls are those for several."""
    clients: int = 1
    threads: bool = False

    @property
    def works(self) -> list[str]:
        """What its clients do with a message."""
        return [work for work in (self.produce, self.consume) if work]


_ALL = {name: name for name in (RAW, OURS, "huey", "persist-queue", "litequeue")}
_BATCHES = {name: name for name in (RAW, OURS, "litequeue")}
_RELAXED = {name: f"{name}, relaxed" for name in (RAW, OURS, "litequeue")}
_MIXED = f"{PROCESSES} producers + {PROCESSES} consumers"


def _row(name: str, title: str, against: str = "") -> Row:
    return Row(name, title, against=(against or name, RAW))


MEASURES = (
    Measure((_row("enqueue", "enqueue, one at a time"),), _ALL, produce="produce"),
    Measure(
        (Row("enqueue_json", "enqueue of 1 KiB of JSON, one at a time (to bytes)", against=("enqueue", OURS)),),
        {OURS: OURS},
        produce="produce_json",
    ),
    Measure(
        (Row("enqueue_awaited", "aio.enqueue, one task (to enqueue)", against=("enqueue", OURS)),),
        {OURS: OURS},
        produce="produce_awaited",
    ),
    Measure(
        (Row("enqueue_in_tasks", "aio.enqueue, 64 tasks (to one)", against=("enqueue_awaited", OURS)),),
        {OURS: OURS},
        produce="produce_in_tasks",
    ),
    Measure((_row("enqueue_100", "enqueue_many of 100"),), _BATCHES, produce="produce_many", size=100),
    Measure((_row("enqueue_1000", "enqueue_many of 1000"),), _BATCHES, produce="produce_many", size=1000),
    Measure((_row("dequeue", "dequeue, one at a time"),), _ALL, consume="consume"),
    Measure((_row("dequeue_100", "dequeue_many of 100"),), _BATCHES, consume="consume_many", size=100),
    Measure(
        (_row("transaction", "transaction: dequeue, enqueue a reply (to raw enqueues)", "enqueue"),),
        {name: name for name in _ALL if name != RAW},
        consume="answer",
    ),
    Measure(
        (
            Row(
                "second_volume",
                "transaction: the reply on a second volume (to one volume)",
                against=("transaction", OURS),
            ),
        ),
        {OURS: OURS},
        consume="answer_on_second",
    ),
    Measure(
        (Row("third_volume", "transaction: and another on a third (to two volumes)", against=("second_volume", OURS)),),
        {OURS: OURS},
        consume="answer_on_third",
    ),
    Measure(
        (
            Row(
                "record_apart",
                "dequeue, then a row in a file of the application (to dequeue)",
                against=("dequeue", OURS),
            ),
        ),
        {OURS: OURS},
        consume="record_apart",
    ),
    Measure(
        (
            Row(
                "record_together",
                "transaction: dequeue, a row of the application (to two commits)",
                against=("record_apart", OURS),
            ),
        ),
        {OURS: OURS},
        consume="record_together",
    ),
    Measure(
        (
            Row(
                "transaction_processes",
                f"transaction: {PROCESSES} processes (to one)",
                against=("transaction", OURS),
            ),
        ),
        {OURS: OURS},
        consume="answer",
        clients=PROCESSES,
    ),
    Measure(
        (
            Row(
                "second_volume_processes",
                f"transaction: {PROCESSES} processes, the reply on a second volume (to one volume)",
                against=("transaction_processes", OURS),
            ),
        ),
        {OURS: OURS},
        consume="answer_on_second",
        clients=PROCESSES,
    ),
    Measure((_row("enqueue_relaxed", "enqueue, durability relaxed"),), _RELAXED, produce="produce"),
    Measure((_row("dequeue_relaxed", "dequeue, durability relaxed"),), _RELAXED, consume="consume"),
    Measure(
        (_row("threads", f"{_MIXED}, threads (to raw processes)", "processes"),),
        {OURS: OURS},
        produce="produce",
        consume="consume",
        clients=PROCESSES,
        threads=True,
    ),
    Measure(
        (
            _row("processes", f"{_MIXED}, processes"),
            Row("processes_p50", f"{_MIXED}, processes: an operation, median", "ms"),
            Row("processes_p99", f"{_MIXED}, processes: an operation, 99 of 100", "ms"),
        ),
        _ALL,
        produce="produce",
        consume="consume",
        clients=PROCESSES,
    ),
)
ROWS = tuple(row for measure in MEASURES for row in measure.rows)


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out the files of all subjects that are needed; return what is to be measured."""
    for measure in MEASURES:
        if any(row.name in wanted for row in measure.rows):
            yield Turn(list(_tasks(benchmark, measure)))


def _tasks(benchmark: Benchmark, measure: Measure) -> Iterator[Task]:
    for shown, name in measure.subjects.items():
        host = benchmark.subject(name)
        if host is None or not set(measure.works) <= host.facts["commits"].keys():
            continue
        measured = Measured(benchmark, measure, host, benchmark.attended(host))
        yield Task(shown, host.durability(*measure.works), measured)


class Measured:
    """One measurement of a subject, made whenever it is called."""

    def __init__(self, benchmark: Benchmark, measure: Measure, host: Host, path: str) -> None:
        self._measure = measure
        self._host = host
        self._path = path
        numbers = benchmark.numbers
        messages = numbers.operations * (10 if measure.size else 1)
        self._calls = max(messages // (measure.size or 1), 2)
        self._seconds = numbers.seconds

    def __call__(self) -> Mapping[str, float]:
        """Measure once, from a queue that is empty or has just what is taken."""
        measure = self._measure
        self._host.ask("empty", self._path)
        if not measure.produce:
            self._host.ask("fill", self._path, count=self._calls * (measure.size or 1))
        return mixed(self._host, self._path, measure, self._calls, self._seconds)


def mixed(host: Host, path: str, measure: Measure, calls: int, seconds: float) -> Mapping[str, float]:
    """Let the clients of a measure do so many calls at most; return the values of its rows."""
    works: dict[str, object] = {"produce": measure.produce, "consume": measure.consume}
    told = {name: value for name, value in works.items() if value}
    if measure.size is not None:
        told["size"] = measure.size
    done = host.ask(
        "measure",
        path,
        producers=measure.clients if measure.produce else 0,
        consumers=measure.clients if measure.consume else 0,
        operations=calls,
        seconds=seconds,
        threads=measure.threads,
        **told,
    )
    if not done["operations"]:
        raise SubjectError(f"no operation was done in {seconds:g} seconds")
    values = (done["operations"] * (measure.size or 1) / done["seconds"], done["p50"] * 1000, done["p99"] * 1000)
    return {row.name: value for row, value in zip(measure.rows, values, strict=False)}
