"""What the metrics of many queues take: the look at all their figures, and the text of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import qmadmin
from benchmarks.engine import opened
from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.child_process import run_child
from benchmarks.sqlite.rows import OURS, Row, Task, Turn
from benchmarks.subject import BODY

_IN_EACH = 10
"""Messages in each queue."""

_TIMES = 5

LOOK = Row("metrics_look", "metrics of 1,000 queues: one look at all figures", "ms of a core")
TEXT = Row("metrics_text", "metrics of 1,000 queues: their text", "ms of a core")
ROWS: tuple[Row, ...] = (LOOK, TEXT)


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Make the queues; return what is to be measured."""
    if not wanted & {row.name for row in ROWS}:
        return
    path = benchmark.device("metrics")
    with opened(path) as space:
        names = [f"queue{number}" for number in range(benchmark.numbers.queues)]
        for name in names:
            space.create_queue(qmadmin.QueueDefinition(name=name))
            space.enqueue_many(name, [BODY] * _IN_EACH)

    def measured() -> Mapping[str, float]:
        found = run_child("read_metrics", path, _TIMES)
        return {LOOK.name: found["look"], TEXT.name: found["text"]}

    yield Turn([Task(OURS, "", measured)])
