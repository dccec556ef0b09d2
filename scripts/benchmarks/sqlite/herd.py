"""Many processes that begin at one moment on a file that nobody has open by then, each with a connection of its own."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from benchmarks.hosts import Host
from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.rows import OURS, RAW, Row, Task, Turn

_MESSAGES = 5
"""What each of them enqueues, and then dequeues."""

_ROUNDS = 3

ROWS: tuple[Row, ...] = (
    Row("herd", f"80 processes that open the file at one moment, {2 * _MESSAGES} commits each", against=("herd", RAW)),
)


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out a file for each subject; return what is to be measured."""
    if "herd" in wanted:
        yield Turn(list(_tasks(benchmark)), rounds=_ROUNDS)


def _tasks(benchmark: Benchmark) -> Iterator[Task]:
    for name in (RAW, OURS):
        host = benchmark.subject(name)
        if host is not None:
            path = benchmark.place(f"herd {name}")
            host.ask("set_up", path)
            measure = functools.partial(_measured, host, path, benchmark.numbers.herd)
            yield Task(name, host.durability("produce", "consume"), measure)


def _measured(host: Host, path: str, clients: int) -> Mapping[str, float]:
    done = host.ask("herd", path, clients=clients, messages=_MESSAGES)
    return {"herd": done["operations"] / done["seconds"]}
