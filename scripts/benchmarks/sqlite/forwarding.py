"""How many requests a forwarder and a consumer answer: by a function in the process, each request and reply durable."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
_APPLICATION = """
import qmadmin
import service

async def echo(request):
    return request.body

functions, function, coroutines = (qmadmin.App({path!r}, space={space!r}) for _ in range(3))
functions.handler({queue!r}, workers={workers})(service.echo)
function.handler({queue!r})(service.echo)
coroutines.handler({queue!r}, workers={workers})(echo)
"""


def _forwarder(workers: int, batch: int = 1) -> list[str]:
    options = ["-q", QUEUE, "-e", "--workers", str(workers), "--batch", str(batch), "-s", "services.toml"]
    return ["tmqforward", "QUE", SPACE, *options]


def _consumer(application: str) -> list[str]:
    return ["qmadmin", "run", "-e", f"application:{application}"]


FORWARDER = Row("forwarder", f"forwarder, a function, {_WORKERS} workers (to raw enqueues)", against=("enqueue", RAW))
FORWARDER_1 = Row("forwarder_1", "forwarder, a function, 1 worker (to raw enqueues)", against=("enqueue", RAW))
BATCH = Row("forwarder_batch", f"forwarder, in batches of {_BATCH} (to raw enqueues)", against=("enqueue", RAW))


def _row(name: str, what: str, forwarder: Row) -> Row:
    return Row(name, f"consumer in the library, {what} (to the forwarder)", against=(forwarder.name, OURS))


CONSUMER = _row("consumer", f"a function, {_WORKERS} workers", FORWARDER)
CONSUMER_1 = _row("consumer_1", "a function, 1 worker", FORWARDER_1)
COROUTINES = _row("consumer_coroutine", f"a coroutine, {_WORKERS} workers", FORWARDER)

TOGETHER: tuple[Mapping[Row, list[str]], ...] = (
    {FORWARDER: _forwarder(_WORKERS), CONSUMER: _consumer("functions"), COROUTINES: _consumer("coroutines")},
    {FORWARDER_1: _forwarder(1), CONSUMER_1: _consumer("function")},
)
"""Programs by the rows that they are measured in, next to each other where they are compared."""

ROWS: tuple[Row, ...] = (*(row for rows in TOGETHER for row in rows), BATCH)


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out a device and a service; return what is to be measured."""
    if not wanted & {row.name for row in ROWS}:
        return
    path, count = Path(benchmark.device("forwarding")), benchmark.numbers.forwarded
    application = _APPLICATION.format(path=str(path), space=SPACE, queue=QUEUE, workers=_WORKERS)
    for name, text in {"services.toml": _SERVICES, "service.py": _SERVICE, "application.py": application}.items():
        path.with_name(name).write_text(text)
    for rows in TOGETHER:
        tasks = [
            Task(OURS, "1 synced commit", _Answered(row.name, path, command, count))
            for row, command in rows.items()
            if row.name in wanted
        ]
        if tasks:
            yield Turn(tasks)
    if BATCH.name in wanted:
        # So many requests have to be several batches for each worker.
        command = _forwarder(_WORKERS, min(_BATCH, count // (2 * _WORKERS)))
        yield Turn([Task(OURS, "1 synced, together", _Answered(BATCH.name, path, command, count))])


class _Answered:
    def __init__(self, row: str, path: Path, command: Sequence[str], count: int) -> None:
        self._row = row
        self._path = path
        self._command = command
        self._count = count

    def __call__(self) -> Mapping[str, float]:
        with opened(str(self._path)) as space:
            space.enqueue_many(QUEUE, [BODY] * self._count, EnqueueControl(reply_queue=_REPLIES))
            self._run()
            times = [message.enqueued_us for message in space.messages(_REPLIES)]
            space.purge(_REPLIES)
        if len(times) != self._count:
            raise SubjectError(f"{self._command[0]} has sent {len(times)} replies to {self._count} requests")
        # From the first to the last commit: the start of the program is measured elsewhere.
        first = min(times)
        return {self._row: sum(time > first for time in times) / (max(times) - first) * MICROS}

    def _run(self) -> None:
        program, *arguments = self._command
        done = subprocess.run(
            [str(Path(sys.executable).with_name(program)), *arguments],
            cwd=self._path.parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SubjectError(f"{program} has ended with status {done.returncode}: {done.stderr.strip()}")
