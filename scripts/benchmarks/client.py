"""The process that holds one subject and forks its clients: `python -m benchmarks.client NAME`.

It reads one request a line and writes one answer a line, both JSON. The packages of the subject are loaded once, and
each client is a fork with a connection of its own. All clients of a measurement are connected and warm before the
first of them begins.

    {"do": "set_up" | "empty", "url": URL}                      {"ok": true}
    {"do": "fill", "url": URL, "count": N}                      {"ok": true}
    {"do": "measure", "url": URL, "producers": N, "consumers": N, "messages": N, "seconds": N}
                                                                {"operations": N, "seconds": N}
    anything that went wrong                                    {"error": TEXT}
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.subject import QUEUE, WARM_UP, GoesOn, Subject, load

_WARM_OPERATIONS = 8
_PAUSE = 0.0005
"""Seconds that a consumer rests when it has found nothing."""

_HANGS = 120
"""Seconds beyond the time of a measurement after which a client is given up."""

Answer = dict[str, Any]


def main() -> None:
    """Answer requests until there are no more."""
    try:
        subject = load(sys.argv[1])
    except ImportError as error:
        _say({"error": f"{type(error).__name__}: {error}"})
        return
    _say(
        {
            "version": subject.version,
            "enqueue_commits": subject.enqueue_commits,
            "dequeue_commits": subject.dequeue_commits,
        }
    )
    for line in sys.stdin:
        request = json.loads(line)
        _say(_measured(subject, request) if request["do"] == "measure" else _prepared(subject, request))


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


def _prepared(subject: Subject, request: Answer) -> Answer:
    url = request["url"]

    def child() -> Answer:
        match request["do"]:
            case "set_up":
                subject.set_up(url)
            case "fill":
                subject.fill(url, request["count"])
            case "empty":
                subject.empty(url)
        return {"ok": True}

    return _forked([child], _HANGS)[0]


def _measured(subject: Subject, request: Answer) -> Answer:
    producers, consumers = request["producers"], request["consumers"]
    start = _Start(producers + consumers)
    shares = _shares(request["messages"], producers)
    counts = _Counts(consumers)

    def producer(number: int) -> Answer:
        return _client(subject, request["url"], start, lambda clock: _until_made(shares[number], clock), produces=True)

    def consumer(number: int) -> Answer:
        def stop(clock: _Clock) -> GoesOn:
            return _until_taken(counts, number, request["messages"], clock)

        return _client(subject, request["url"], start, stop, produces=False)

    start.seconds = request["seconds"]
    works = [functools.partial(producer, number) for number in range(producers)]
    works += [functools.partial(consumer, number) for number in range(consumers)]
    answers = _forked(works, start.seconds + _HANGS, start)
    for answer in answers:
        if "error" in answer:
            return answer
    counted = answers[producers:] if consumers else answers
    begun, ended = min(answer["begun"] for answer in answers), max(answer["ended"] for answer in counted)
    return {"operations": sum(answer["operations"] for answer in counted), "seconds": ended - begun}


def _client(subject: Subject, url: str, start: _Start, stop: Callable[[_Clock], GoesOn], *, produces: bool) -> Answer:
    """Connect, warm up, wait for the others, work, and tell how much was done in which time."""
    try:
        client = subject.open(url)
        for work in (client.produce, client.consume):
            work(WARM_UP, _so_many_times(_WARM_OPERATIONS))
    finally:
        # Also one that failed has to be counted, or the others would wait for it.
        start.wait()
    clock = _Clock(start.seconds)
    if produces:
        client.produce(QUEUE, stop(clock))
    else:
        client.consume(QUEUE, stop(clock))
    answer = {"begun": clock.begun, "ended": clock.ended, "operations": clock.operations}
    client.close()
    return answer


class _Clock:
    """When a client began and last succeeded, and how often it did."""

    def __init__(self, seconds: float) -> None:
        self.begun = self.ended = time.monotonic()
        self.operations = 0
        self._deadline = self.begun + seconds

    def tick(self) -> bool:
        """Count an operation; tell whether there is time for more."""
        self.operations += 1
        self.ended = time.monotonic()
        return self.ended < self._deadline

    def is_over(self) -> bool:
        return time.monotonic() > self._deadline


class _Counts:
    """How much each consumer has taken, in memory that all of them share."""

    def __init__(self, consumers: int) -> None:
        self._memory = memoryview(mmap.mmap(-1, 8 * max(consumers, 1))).cast("Q")

    def add(self, consumer: int) -> None:
        self._memory[consumer] += 1

    def total(self) -> int:
        return sum(self._memory)


class _Start:
    """Lets all clients begin at once, when the last of them is ready."""

    def __init__(self, clients: int) -> None:
        self.seconds = 0.0
        self._clients = clients
        self._ready = os.pipe()
        self._go = os.pipe()

    def wait(self) -> None:
        """In a client: say that it is ready, and wait for the start."""
        os.close(self._go[1])
        os.write(self._ready[1], b"r")
        os.read(self._go[0], 1)

    def give(self) -> None:
        """In the parent: wait for all clients that live, and start them."""
        os.close(self._ready[1])
        missing = self._clients
        while missing and (some := os.read(self._ready[0], missing)):
            missing -= len(some)
        for end in (self._ready[0], self._go[0], self._go[1]):
            os.close(end)


def _until_made(share: int, clock: _Clock) -> GoesOn:
    """Return what lets a producer go on until it has made its share, or the time is over."""
    begun = False

    def goes_on(_found: bool) -> bool:
        nonlocal begun
        more = clock.tick() if begun else True
        begun = True
        return more and clock.operations < share

    return goes_on


def _until_taken(counts: _Counts, number: int, messages: int, clock: _Clock) -> GoesOn:
    """Return what lets a consumer go on until all together have taken the messages, or the time is over."""
    begun = False

    def goes_on(found: bool) -> bool:
        nonlocal begun
        if not begun:
            begun = True
        elif found:
            counts.add(number)
            if not clock.tick():
                return False
        elif clock.is_over():
            return False
        else:
            time.sleep(_PAUSE)
        return counts.total() < messages

    return goes_on


def _so_many_times(count: int) -> GoesOn:
    left = iter(range(count))
    return lambda _found: next(left, None) is not None


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (number < total % parts) for number in range(parts)]


def _forked(works: Sequence[Callable[[], Answer]], seconds: float, start: _Start | None = None) -> list[Answer]:
    """Do each work in a process of its own, at the same time; return their answers in the same order."""
    children = [_fork(work, seconds) for work in works]
    if start is not None:
        start.give()
    answers: list[Answer] = []
    for pid, end in children:
        with os.fdopen(end, "rb") as reader:
            said = reader.read()
        status = os.waitpid(pid, 0)[1]
        answers.append(json.loads(said) if said else {"error": f"a client ended with wait status {status}"})
    return answers


def _fork(work: Callable[[], Answer], seconds: float) -> tuple[int, int]:
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        return pid, reading
    signal.alarm(int(seconds))
    try:
        answer = work()
    except BaseException as error:  # noqa: BLE001 - it is told to the parent, and the child ends
        place = traceback.extract_tb(error.__traceback__)[-1]
        answer = {"error": f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"}
    with contextlib.suppress(OSError):
        os.write(writing, json.dumps(answer).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
