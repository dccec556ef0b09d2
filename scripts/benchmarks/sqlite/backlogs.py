"""The rate of several processes on our own file that holds much else, as a share of the rate without it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import qmadmin
from benchmarks.engine import opened
from benchmarks.sqlite.benchmark import Benchmark, attending
from benchmarks.sqlite.rates import PROCESSES, Measure, mixed
from benchmarks.sqlite.rows import OURS, Row, Task, Turn
from benchmarks.subject import BODY, QUEUE
from qmcore.message import PLAIN_CONTROL, EnqueueControl
from qmcore.times import MICROS

_DAY = 86_400 * MICROS
_AT_A_TIME = 1000
_IN_EACH = 10
"""Messages in each of many queues."""


def _row(name: str, what: str) -> Row:
    return Row(name, f"{PROCESSES} + {PROCESSES} processes, {what} (to ours without)", against=("processes", OURS))


ROWS: tuple[Row, ...] = (
    _row("stored", "1,000,000 stored in the queue"),
    _row("delayed", "100,000 delayed in front"),
    _row("locked", "100,000 locked in front"),
    _row("queues", f"beside 1,000 queues of {_IN_EACH}"),
)


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Fill the files that are needed; return what is to be measured."""
    for row in ROWS:
        if row.name in wanted:
            yield Turn([_task(benchmark, row, _prepared(benchmark, row.name))])


def _task(benchmark: Benchmark, row: Row, path: str) -> Task:
    host = benchmark.ours
    measure = Measure((row,), {}, produce="produce", consume="consume", clients=PROCESSES)

    def measured() -> Mapping[str, float]:
        with attending(host, path):
            return mixed(host, path, measure, benchmark.numbers.operations, benchmark.numbers.seconds)

    return Task(OURS, host.durability(*measure.works), measured)


def _prepared(benchmark: Benchmark, name: str) -> str:
    """Return the path of a device on which there is what the row says."""
    if name == "stored":
        return benchmark.stored
    path = benchmark.device(name)
    with opened(path) as space:
        match name:
            case "delayed":
                _fill(space, QUEUE, benchmark.numbers.beside, EnqueueControl(delay=_DAY))
            case "locked":
                _fill(space, QUEUE, benchmark.numbers.beside)
            case "queues":
                for number in range(benchmark.numbers.queues):
                    space.create_queue(qmadmin.QueueDefinition(name=f"other{number}"))
                    _fill(space, f"other{number}", _IN_EACH)
    if name == "locked":
        benchmark.resources.enter_context(_locked(path, benchmark.numbers.beside))
    return path


def _fill(space: qmadmin.QueueSpace, queue: str, count: int, control: EnqueueControl = PLAIN_CONTROL) -> None:
    for done in range(0, count, _AT_A_TIME):
        space.enqueue_many(queue, [BODY] * min(_AT_A_TIME, count - done), control)


@contextlib.contextmanager
def _locked(path: str, count: int) -> Iterator[None]:
    """Hold so many messages in a transaction that stays open, and roll it back in the end."""
    with opened(path) as space:
        transaction = space.transaction()
        with transaction:
            for done in range(0, count, _AT_A_TIME):
                assert space.dequeue_many(QUEUE, min(_AT_A_TIME, count - done))
            yield
            transaction.rollback()
