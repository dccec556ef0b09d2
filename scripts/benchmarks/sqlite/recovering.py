"""How long it takes until what a coordinator has left in doubt is ended, beside as many transactions as it commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.child_process import begun, run_child, told
from benchmarks.sqlite.rows import OURS, Row, Task, Turn

COMMITTED = Row("commit_1000", "1,000 transactions over two volumes, committed", "s")
ROWS: tuple[Row, ...] = (
    COMMITTED,
    Row(
        "recover_1000",
        "1,000 of them in doubt, ended by recovery (to their commits)",
        "s",
        against=(COMMITTED.name, OURS),
    ),
)

_ROUNDS = 3


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out two devices; return what is to be measured."""
    if not wanted & {row.name for row in ROWS}:
        return
    decider, other = benchmark.device("decider"), benchmark.device("prepared")
    durability = benchmark.ours.durability("answer_on_second")
    measure = _Recovery(decider, other, benchmark.numbers.in_doubt)
    yield Turn([Task(OURS, durability, measure)], rounds=_ROUNDS)


class _Recovery:
    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments

    def __call__(self) -> Mapping[str, float]:
        """Measure the commits, have a coordinator killed, and measure what is left to do."""
        with begun("leave_in_doubt", *self._arguments) as output:
            committed = told(output)["seconds"]
            told(output)
        recovered = run_child("recover", *self._arguments)["seconds"]
        return {"commit_1000": committed, "recover_1000": recovered}
