"""How soon a waiting dequeue returns, and what waiting costs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from benchmarks.engine import opened
from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.child_process import begun, run_child, told
from benchmarks.sqlite.rows import OURS, Row, Task, Turn
from benchmarks.subject import QUEUE

WAKE = (
    Row("wake_p50", "wake-up: enqueue to return of a dequeue elsewhere, median", "ms"),
    Row("wake_p99", "wake-up: enqueue to return of a dequeue elsewhere, 99 of 100", "ms"),
)
IDLE = (
    Row("idle_threads", "100 dequeues that wait, threads of one process", "% of a core"),
    Row("idle_processes", "100 dequeues that wait, processes", "% of a core"),
)
TASKS = (
    Row("idle_tasks", "5,000 dequeues that wait, tasks of one process", "% of a core"),
    Row("idle_tasks_memory", "5,000 dequeues that wait, memory of the process", "MiB"),
)
ROWS: tuple[Row, ...] = (*WAKE, *IDLE, *TASKS)

_BETWEEN = 0.01
"""Seconds between two messages, so that each of them finds a consumer that waits."""

_IDLE_ROUNDS = 2


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out a device; return what is to be measured."""
    if not wanted & {row.name for row in ROWS}:
        return
    path = benchmark.device("waking")
    if wanted & {row.name for row in WAKE}:
        durability = benchmark.ours.durability("produce", "consume")
        yield Turn([Task(OURS, durability, lambda: _woken(path, benchmark.numbers.wakes))])
    waiters, seconds = benchmark.numbers.waiters, benchmark.numbers.idle
    for row, processes, threads in ((IDLE[0], 1, waiters), (IDLE[1], waiters, 1)):
        if row.name in wanted:
            yield Turn([Task(OURS, "", _Idle(row.name, path, processes, threads, seconds))], rounds=_IDLE_ROUNDS)
    if wanted & {row.name for row in TASKS}:
        yield Turn([Task(OURS, "", lambda: _tasks(path, benchmark.numbers.tasks, seconds))], rounds=_IDLE_ROUNDS)


def _woken(path: str, count: int) -> Mapping[str, float]:
    with opened(path) as space, begun("wait_for_messages", path, count) as output:
        told(output)
        for _ in range(count):
            time.sleep(_BETWEEN)
            # Both processes read the same clock. The enqueue itself is in the time that is told, more than its commit.
            space.enqueue(QUEUE, time.monotonic_ns().to_bytes(8, "big"))
        found = told(output)
    return {"wake_p50": found["p50"], "wake_p99": found["p99"]}


def _tasks(path: str, tasks: int, seconds: float) -> Mapping[str, float]:
    found = run_child("wait_in_tasks", path, tasks, seconds)
    return {"idle_tasks": found["percent"], "idle_tasks_memory": found["most"] / 2**20}


class _Idle:
    def __init__(self, row: str, *arguments: object) -> None:
        self._row = row
        self._arguments = arguments

    def __call__(self) -> Mapping[str, float]:
        return {self._row: run_child("wait_idly", *self._arguments)["percent"]}
