"""What messages take of memory and of the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import qmadmin
from benchmarks.engine import opened
from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.child_process import run_child
from benchmarks.sqlite.rows import OURS, RAW, Row, Task, Turn
from benchmarks.subject import BODY, QUEUE

_MIB = 2**20
_AT_A_TIME = 100
_FLOW_BACKLOG = 2000
_FLOW = 10
"""How often the backlog is replaced while the file is not to grow."""

_RAW_ROWS = 20_000

DISK = Row("disk", "disk for a message of 1 KiB", "bytes")
FLOW = Row("disk_flow", f"growth of a file whose messages are replaced {_FLOW} times", "%")
MEMORY = Row("memory_consumer", "growth of a consumer from 10,000 to 1,000,000 messages", "MiB")
LARGE = (
    Row("memory_enqueue", "memory beyond the body, enqueue of 64 MiB", "MiB"),
    Row("memory_dequeue", "memory beyond the body, dequeue of 64 MiB", "MiB"),
)
ROWS: tuple[Row, ...] = (DISK, FLOW, *LARGE, MEMORY)


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out what is needed; return what is to be measured. The large backlog is consumed after all rounds."""
    if DISK.name in wanted:
        yield Turn([Task(subject, "", _always(DISK, size)) for subject, size in _disk(benchmark)], rounds=1)
    if FLOW.name in wanted:
        path = benchmark.device("flow")
        yield Turn([Task(OURS, "", lambda: {FLOW.name: _growth(path)})])
    if wanted & {row.name for row in LARGE}:
        yield Turn([Task(OURS, "", _large(benchmark))])
    if MEMORY.name in wanted:
        yield Turn([Task(OURS, "", _consumer(benchmark))], last=True)


def _disk(benchmark: Benchmark) -> Iterator[tuple[str, float]]:
    """Return what files take for each of their messages, before anything is done with them."""
    raw = benchmark.subject(RAW)
    if raw is not None:
        path = benchmark.place("disk")
        raw.ask("set_up", path)
        raw.ask("fill", path, count=_RAW_ROWS)
        yield RAW, _size(path) / _RAW_ROWS
    yield OURS, _size(benchmark.stored) / benchmark.numbers.stored


def _always(row: Row, value: float) -> Callable[[], dict[str, float]]:
    return lambda: {row.name: value}


def _size(path: str) -> float:
    """Return the bytes of a file, and of its log where there is one."""
    return sum(float(file.stat().st_size) for file in (Path(path), Path(f"{path}-wal")) if file.exists())


def _growth(path: str) -> float:
    """Replace the messages of a queue several times; return how much the file has grown since the first time, in %."""
    with opened(path) as space:
        space.enqueue_many(QUEUE, [BODY] * _FLOW_BACKLOG)
        _replace(space)
        before = _size(path)
        for _ in range(_FLOW):
            _replace(space)
        grown = _size(path) / before - 1
        space.purge(QUEUE)
    return grown * 100


def _replace(space: qmadmin.QueueSpace) -> None:
    for _ in range(_FLOW_BACKLOG // _AT_A_TIME):
        space.enqueue_many(QUEUE, [BODY] * _AT_A_TIME)
        assert len(space.dequeue_many(QUEUE, _AT_A_TIME)) == _AT_A_TIME


def _large(benchmark: Benchmark) -> Callable[[], dict[str, float]]:
    path, size = benchmark.device("large"), benchmark.numbers.large

    def measured() -> dict[str, float]:
        acts = ("enqueue_large", "dequeue_large")
        return {row.name: run_child(act, path, size)["grown"] / _MIB for row, act in zip(LARGE, acts, strict=True)}

    return measured


def _consumer(benchmark: Benchmark) -> Callable[[], dict[str, float]]:
    path = benchmark.stored

    def measured() -> dict[str, float]:
        found = run_child("consume_all", path, _AT_A_TIME)
        # Linux counts pages by the handful, so that the most may be told as a little less than before.
        return {MEMORY.name: max(found["most"] - found["early"], 0) / _MIB}

    return measured
