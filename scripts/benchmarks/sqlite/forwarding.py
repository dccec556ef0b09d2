"""How many requests a forwarder answers: a function in its own process, each request and reply durable."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.engine import SPACE, opened
from benchmarks.hosts import SubjectError
from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.rows import OURS, RAW, Row, Task, Turn
from benchmarks.subject import BODY, QUEUE, WARM_UP
from qmcore.message import EnqueueControl
from qmcore.times import MICROS

_WORKERS = 10
_BATCH = 100
_REPLIES = WARM_UP
_SERVICES = f'[services.{QUEUE}]\npython = "service:echo"\n'
_SERVICE = "def echo(request):\n    return request.body\n"

ROWS: tuple[Row, ...] = (
    Row("forwarder", f"forwarder, a function, {_WORKERS} workers (to raw enqueues)", against=("enqueue", RAW)),
    Row("forwarder_batch", f"forwarder, in batches of {_BATCH} (to raw enqueues)", against=("enqueue", RAW)),
)


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out a device and a service; return what is to be measured."""
    chosen = [row for row in ROWS if row.name in wanted]
    if not chosen:
        return
    path = benchmark.device("forwarding")
    Path(path).with_name("services.toml").write_text(_SERVICES)
    Path(path).with_name("service.py").write_text(_SERVICE)
    for row in chosen:
        # So many requests have to be several batches for each worker.
        batch = min(_BATCH, benchmark.numbers.forwarded // (2 * _WORKERS)) if row.name == "forwarder_batch" else 1
        durability = "1 synced commit" if batch == 1 else "1 synced, together"
        yield Turn([Task(OURS, durability, _Forwarded(row.name, path, batch, benchmark.numbers.forwarded))])


class _Forwarded:
    def __init__(self, row: str, path: str, batch: int, count: int) -> None:
        self._row = row
        self._path = path
        self._batch = batch
        self._count = count

    def __call__(self) -> Mapping[str, float]:
        with opened(self._path) as space:
            space.enqueue_many(QUEUE, [BODY] * self._count, EnqueueControl(reply_queue=_REPLIES))
            self._forward()
            times = [message.enqueued_us for message in space.messages(_REPLIES)]
            space.purge(_REPLIES)
        if len(times) != self._count:
            raise SubjectError(f"the forwarder has sent {len(times)} replies to {self._count} requests")
        # From the first to the last commit: the start of the program is measured elsewhere.
        first = min(times)
        return {self._row: sum(time > first for time in times) / (max(times) - first) * MICROS}

    def _forward(self) -> None:
        program = str(Path(sys.executable).with_name("tmqforward"))
        options = ["-q", QUEUE, "-e", "--workers", str(_WORKERS), "--batch", str(self._batch), "-s", "services.toml"]
        done = subprocess.run(
            [program, self._path, SPACE, *options],
            cwd=Path(self._path).parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SubjectError(f"the forwarder has ended with status {done.returncode}: {done.stderr.strip()}")
