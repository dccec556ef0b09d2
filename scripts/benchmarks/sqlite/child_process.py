"""What is measured in a process of its own: `python -m benchmarks.sqlite.child_process NAME ARGUMENT ...`.

Each prints one line of JSON. Those that others wait for print a line before, when they are ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import qmadmin
from benchmarks.engine import SPACE, opened
from benchmarks.forking import forked
from benchmarks.hosts import SCRIPTS, SubjectError
from benchmarks.pacing import Start
from benchmarks.subject import BODY, QUEUE, WARM_UP
from qmadmin import aio
from qmcore.probe import Point

_SETTLED = 3.0
"""Seconds after which whoever has begun to wait does nothing else."""

_BETWEEN_LOOKS = 0.01

_HANGS = 300
"""Seconds after which a process is given up."""

Told = dict[str, float]


def run_child(name: str, *arguments: object) -> Told:
    """Run a measurement in a process of its own, and return its result."""
    with begun(name, *arguments) as output:
        return told(output)


@contextlib.contextmanager
def begun(name: str, *arguments: object) -> Iterator[IO[str]]:
    """Start a measurement, and yield what its process prints, which is killed if it is still there at the end."""
    paths = [str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "benchmarks.sqlite.child_process", name, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        timer = threading.Timer(_HANGS, process.kill)
        timer.start()
        try:
            yield process.stdout
        finally:
            timer.cancel()
            process.kill()


def told(output: IO[str]) -> Told:
    """Return the next line that a process prints; SubjectError where it has ended without one."""
    line = output.readline()
    if not line:
        raise SubjectError("a process of its own has ended too early")
    found: Told = json.loads(line)
    return found


def open_device(small: str, path: str, dequeues: str) -> None:
    """Open a device, after everything was loaded by the opening of another; and take a message where that is asked."""
    with opened(small) as space:
        space.dequeue(QUEUE)
    began = time.perf_counter()
    with opened(path) as space:
        if dequeues == "yes":
            assert space.dequeue(QUEUE) is not None
        took = time.perf_counter() - began
        if dequeues == "yes":
            space.enqueue(QUEUE, BODY)
    _tell(milliseconds=took * 1000)


def work_until_killed(path: str, operations: str) -> None:
    """Answer messages, and say so after a number of them."""
    with opened(path) as space:
        done = 0
        while True:
            with space.transaction():
                assert space.dequeue(QUEUE) is not None
                space.enqueue(QUEUE, BODY)
                done += 1
                if done == int(operations):
                    _tell(operations=done)


def wait_for_messages(path: str, count: str) -> None:
    """Wait for messages that say when they were made, and tell how long they took."""
    took = []
    with opened(path) as space:
        _tell(ready=1)
        for _ in range(int(count)):
            message = space.dequeue(QUEUE, wait=60)
            assert message is not None
            assert message.body is not None
            took.append(time.monotonic_ns() - int.from_bytes(message.body, "big"))
    took.sort()
    _tell(p50=took[len(took) // 2] / 1e6, p99=took[len(took) * 99 // 100] / 1e6)


def wait_idly(path: str, processes: str, threads: str, seconds: str) -> None:
    """Wait for what does not come, in processes of several threads; tell the share of a core that it takes, in %."""
    start = Start(int(processes))
    answers = forked([lambda: _idle(path, int(threads), float(seconds), start)] * int(processes), _HANGS, start)
    for answer in answers:
        if "error" in answer:
            sys.exit(answer["error"])
    _tell(percent=sum(answer["seconds"] for answer in answers) / float(seconds) * 100)


def _idle(path: str, threads: int, seconds: float, start: Start) -> Told:
    over = threading.Event()
    with opened(path) as space:
        waiters = [
            threading.Thread(target=space.dequeue, args=(WARM_UP,), kwargs={"wait": _HANGS, "stop": over.is_set})
            for _ in range(threads)
        ]
        for waiter in waiters:
            waiter.start()
        start.wait()
        time.sleep(_SETTLED)
        before = time.process_time()
        time.sleep(seconds)
        spent = time.process_time() - before
        over.set()
        space.wake()
        for waiter in waiters:
            waiter.join()
    return {"seconds": spent}


def wait_in_tasks(path: str, tasks: str, seconds: str) -> None:
    """Wait for what does not come, in tasks of asyncio; tell the share of a core in %, and the most memory."""
    asyncio.run(_wait_in_tasks(path, int(tasks), float(seconds)))


async def _wait_in_tasks(path: str, count: int, seconds: float) -> None:
    async with aio.open_device(path) as device, device.open_space(SPACE) as space:
        tasks = [asyncio.create_task(space.dequeue(WARM_UP, wait=_HANGS)) for _ in range(count)]
        await asyncio.sleep(_SETTLED)
        before = time.process_time()
        await asyncio.sleep(seconds)
        spent = time.process_time() - before
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        _tell(percent=spent / seconds * 100, most=_most_memory())


def read_metrics(path: str, times: str) -> None:
    """Look at all figures several times, and write them as text; tell the median milliseconds of a core of each."""
    from qmadmin.monitoring.metrics import look
    from qmadmin.monitoring.metrics_server import written
    from qmadmin.monitoring.prometheus import SpaceCollector

    looks, texts = [], []
    with opened(path) as space:
        for _ in range(int(times)):
            begun = time.process_time()
            figures = look(space)
            looked = time.process_time()
            assert written(SpaceCollector(functools.partial(dict, {(path, SPACE): figures})))
            texts.append(time.process_time() - looked)
            looks.append(looked - begun)
    _tell(look=statistics.median(looks) * 1000, text=statistics.median(texts) * 1000)


def consume_all(path: str, at_a_time: str) -> None:
    """Take all messages of a queue; tell the most memory in the end, and what it was when a hundredth was taken."""
    taken = 0
    early = 0.0
    with opened(path) as space:
        stored = space.usage(QUEUE).messages
        while some := len(space.dequeue_many(QUEUE, int(at_a_time))):
            taken += some
            if not early and taken >= stored // 100:
                early = _most_memory()
    _tell(messages=taken, early=early, most=_most_memory())


def enqueue_large(path: str, size: str) -> None:
    """Enqueue a large body; tell how much the most memory grew beyond what it was with the body."""
    body = bytes(b"x" * int(size))
    with opened(path) as space:
        space.enqueue(WARM_UP, BODY)
        before = _most_memory()
        space.enqueue(QUEUE, body)
        _tell(grown=_most_memory() - before)


def dequeue_large(path: str, size: str) -> None:
    """Dequeue a large body; tell how much the most memory grew beyond the body."""
    with opened(path) as space:
        assert space.dequeue(WARM_UP) is not None
        before = _most_memory()
        message = space.dequeue(QUEUE)
        assert message is not None
        assert message.size == int(size)
        _tell(grown=_most_memory() - before - int(size))


def _most_memory() -> float:
    """Return the most bytes of memory that this process had."""
    # What getrusage tells is never less than what the process had that started this one.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


def leave_in_doubt(decider: str, other: str, count: str) -> None:
    """Commit transactions over two volumes, tell how long it took, and leave as many where only recovery ends them."""
    with opened(decider) as first, opened(other) as second:

        def commit() -> None:
            with qmadmin.transaction(first, second, decider=first):
                first.enqueue(QUEUE, BODY)
                second.enqueue(QUEUE, BODY)

        commit()
        began = time.perf_counter()
        for _ in range(int(count)):
            commit()
        _tell(seconds=time.perf_counter() - began)
        # From the decision on the other volume is away, until the next transaction begins; for recovery it always is.
        is_away = False

        def decided(_fact: object) -> None:
            nonlocal is_away
            is_away = True

        def refuse(_fact: object) -> None:
            if is_away or threading.current_thread().name == "qmadmin-recovery":
                raise qmadmin.SystemFailureError("the volume is away")

        first.device.probe.at(Point.AFTER_SYNC, decided)
        second.device.probe.at(Point.BEFORE_WRITE, refuse)
        for _ in range(int(count)):
            is_away = False
            commit()
        _tell(left=int(count))
        threading.Event().wait()


def recover(decider: str, other: str, count: str) -> None:
    """Open what a dead coordinator has left, and work there; tell how long it took until all of it was ended."""
    began = time.perf_counter()
    with opened(decider), opened(other) as space:
        while space.transactions():
            assert space.dequeue(WARM_UP) is None
            time.sleep(_BETWEEN_LOOKS)
        took = time.perf_counter() - began
        assert space.usage(QUEUE).messages > int(count)
    _tell(seconds=took)


def _tell(**values: float) -> None:
    print(json.dumps(values), flush=True)


_MEASUREMENTS: tuple[Callable[..., None], ...] = (
    open_device, work_until_killed, wait_for_messages, wait_idly, wait_in_tasks, consume_all, read_metrics,
    enqueue_large, dequeue_large, leave_in_doubt, recover,
)  # fmt: skip

if __name__ == "__main__":
    {each.__name__: each for each in _MEASUREMENTS}[sys.argv[1]](*sys.argv[2:])
