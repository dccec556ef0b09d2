"""Our worker beside huey's: a function that does nothing, each message durable; and a worker that is killed.

huey deletes a task before it runs it, in one commit, and knows nothing of it any more; we keep the message until the
function has returned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from benchmarks.hosts import Host
from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.rows import OURS, Row, Task, Turn

PEER = "huey"
_MANY = 10
_KILLED_MESSAGES = 200

RATES = {
    1: Row("worker_1", "worker, a function that does nothing, 1 thread (to huey)", against=("worker_1", PEER)),
    _MANY: Row("worker", f"worker, a function that does nothing, {_MANY} threads (to huey)", against=("worker", PEER)),
}
KILLED = Row(
    "worker_killed", f"worker of {_MANY} threads, killed in a call: what the next one does not get", "messages"
)
ROWS: tuple[Row, ...] = (*RATES.values(), KILLED)

_KILLED_ROUNDS = 2


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out the files of both; return what is to be measured."""
    if not wanted & {row.name for row in ROWS}:
        return
    hosts = [host for host in map(benchmark.subject, (OURS, PEER)) if host is not None]
    places = {host.name: benchmark.attended(host) for host in hosts}
    for workers, row in RATES.items():
        if row.name in wanted:
            count = benchmark.numbers.forwarded
            yield Turn([_task(_Worked(row, host, places[host.name], workers, count)) for host in hosts])
    if KILLED.name in wanted:
        count = min(_KILLED_MESSAGES, benchmark.numbers.forwarded)
        killed = [_Killed(KILLED, host, places[host.name], _MANY, count) for host in hosts]
        yield Turn([_task(each) for each in killed], rounds=_KILLED_ROUNDS)


def _task(measured: _Worked) -> Task:
    return Task(measured.host.name, measured.host.durability("work"), measured)


@dataclasses.dataclass(frozen=True)
class _Worked:
    row: Row
    host: Host
    place: str
    workers: int
    messages: int

    def __call__(self) -> Mapping[str, float]:
        done = self.host.ask("work", self.place, workers=self.workers, messages=self.messages)
        return {self.row.name: done["operations"] / done["seconds"]}


class _Killed(_Worked):
    def __call__(self) -> Mapping[str, float]:
        done = self.host.ask("lose", self.place, workers=self.workers, messages=self.messages)
        return {self.row.name: done["lost"]}
