"""The process that holds one subject and forks its clients: `python -m benchmarks.client MODULE:CLASS`.

It reads one request a line and writes one answer a line, both JSON. The packages of the subject are loaded once, and
each client is a fork with a connection of its own. All clients of a measurement are connected and warm before the
first of them begins.

    {"do": "set_up" | "empty", "place": PLACE}                  {"ok": true}
    {"do": "fill", "place": PLACE, "count": N}                  {"ok": true}
    {"do": "attend" | "leave", "place": PLACE}                  {"ok": true}
    {"do": "measure", "place": PLACE, "producers": N, "consumers": N, "operations": N, "seconds": N}
                                                {"operations": N, "seconds": N, "p50": SECONDS, "p99": SECONDS}
    {"do": "herd", "place": PLACE, "clients": N, "messages": N}
                                                {"operations": N, "seconds": N}
    {"do": "work" | "work_together", "place": PLACE, "workers": N, "messages": N}
                                                {"operations": N, "seconds": N}
    {"do": "lose", "place": PLACE, "workers": N, "messages": N}
                                                {"lost": N}
    anything that went wrong                                    {"error": TEXT}

`attend` keeps one more client connected until `leave`, as there is in use: the last one that closes an SQLite file
removes its log, and the next one has to make it grow again. A measurement may also say `produce` and `consume`,
which of the clients' methods are called (default: those of these names), `size`, the messages that one call of them
has, and `threads`: the clients are threads of one process, which share a connection.

The clients of a `herd` are told to begin before they have connected; each enqueues so many messages, and dequeues as
many. `work` and `lose` are about the worker that a subject has of its own, see benchmarks.working.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import cast

from benchmarks.forking import Answer, answer_of, fork, forked
from benchmarks.pacing import Clock, Counts, Start, shares, so_many_times, until_made, until_taken
from benchmarks.subject import QUEUE, WARM_UP, Client, GoesOn, Subject, load
from benchmarks.working import WorkingSubject, lost, rate

_WARM_OPERATIONS = 8
_HANGS = 120
"""Seconds beyond the time of a measurement after which a client is given up; a filling has ten times as many."""


def main() -> None:
    """Answer requests until there are no more."""
    try:
        subject = load(sys.argv[1])
    except ImportError as error:
        _say({"error": f"{type(error).__name__}: {error}"})
        return
    _say({"version": subject.version, "commits": dict(subject.commits)})
    attendants = _Attendants(subject)
    for line in sys.stdin:
        request = json.loads(line)
        match request["do"]:
            case "measure":
                _say(Measurement(subject, request).answer())
            case "herd":
                _say(_herd(subject, request))
            case "work" | "work_together":
                _say(rate(cast("WorkingSubject", subject), request, _HANGS))
            case "lose":
                _say(lost(cast("WorkingSubject", subject), request, _HANGS))
            case "attend":
                _say(attendants.attend(request["place"]))
            case "leave":
                _say(attendants.leave(request["place"]))
            case _:
                _say(_prepared(subject, request))
    attendants.close()


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


def _prepared(subject: Subject, request: Answer) -> Answer:
    place = request["place"]

    def child() -> Answer:
        match request["do"]:
            case "set_up":
                subject.set_up(place)
            case "fill":
                subject.fill(place, request["count"])
            case "empty":
                subject.empty(place)
        return {"ok": True}

    return forked([child], 10 * _HANGS)[0]


def _herd(subject: Subject, request: Answer) -> Answer:
    """Let many clients connect at one moment; return how many messages came and went, and in which time."""
    clients, messages = request["clients"], request["messages"]
    start = Start(clients)

    def one() -> Answer:
        start.wait()
        begun = time.monotonic()
        client = subject.open(request["place"])
        for work in (client.produce, client.consume):
            work(QUEUE, so_many_times(messages))
        client.close()
        return {"begun": begun, "ended": time.monotonic()}

    told = forked([one] * clients, _HANGS, start)
    failed = next((answer for answer in told if "error" in answer), None)
    seconds = 0 if failed else max(answer["ended"] for answer in told) - min(answer["begun"] for answer in told)
    return failed or {"operations": clients * messages, "seconds": seconds}


class _Attendants:
    """Clients that stay connected, each in a process of its own."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._ends: dict[str, tuple[int, int]] = {}
        """By place the process, and where it is told to end."""

    def attend(self, place: str) -> Answer:
        """Keep a client connected to a place; return its answer once it is."""
        reading, writing = os.pipe()

        def child(say: Callable[[Answer], None]) -> None:
            os.close(writing)
            client = self._subject.open(place)
            _warm_up(client)
            say({"ok": True})
            # Also the end of this process's parent ends the wait.
            os.read(reading, 1)
            client.close()

        pid, output = fork(child, 0)
        os.close(reading)
        self._ends[place] = pid, writing
        return answer_of(output) or {"error": "a client that was to attend has ended"}

    def leave(self, place: str) -> Answer:
        """End the client that is connected to a place."""
        pid, end = self._ends.pop(place)
        with contextlib.suppress(BrokenPipeError):
            os.write(end, b"e")
        os.close(end)
        os.waitpid(pid, 0)
        return {"ok": True}

    def close(self) -> None:
        """End all of them."""
        for place in list(self._ends):
            self.leave(place)


class Measurement:
    """One measurement, as a request asks for it."""

    def __init__(self, subject: Subject, request: Answer) -> None:
        self._subject = subject
        self._place: str = request["place"]
        self._producers: int = request["producers"]
        self._consumers: int = request["consumers"]
        self._operations: int = request["operations"]
        self._seconds: float = request["seconds"]
        self._methods = (request.get("produce", "produce"), request.get("consume", "consume"))
        self._size: int | None = request.get("size")
        self._threads: bool = request.get("threads", False)
        self._shares = shares(self._operations, self._producers)
        self._counts = Counts(self._consumers)

    def answer(self) -> Answer:
        """Measure, and return what is answered."""
        numbers = range(self._producers + self._consumers)
        groups = [list(numbers)] if self._threads else [[number] for number in numbers]
        start = Start(len(groups))
        works = [functools.partial(self._process, group, start) for group in groups]
        answers = forked(works, self._seconds + _HANGS, start)
        clients: list[Answer] = []
        for answer in answers:
            if "error" in answer:
                return answer
            clients += answer["clients"]
        return self._summed(clients)

    def _process(self, numbers: Sequence[int], start: Start) -> Answer:
        """Connect, warm up, wait for the others, let clients work, and tell how much was done in which time."""
        try:
            client = self._subject.open(self._place)
            _warm_up(client)
        finally:
            # Also one that failed has to be counted, or the others would wait for it.
            start.wait()
        clocks = [Clock(self._seconds) for _ in numbers]
        works = [functools.partial(self._work, client, *pair) for pair in zip(numbers, clocks, strict=True)]
        if len(works) == 1:
            works[0]()
        else:
            _in_threads(works)
        told = [{"begun": clock.begun, "ended": clock.ended, "took": clock.took} for clock in clocks]
        client.close()
        return {"clients": told}

    def _work(self, client: Client, number: int, clock: Clock) -> None:
        """Be one producer, or one consumer, of which the numbers come after those of the producers."""
        produces = number < self._producers
        method = getattr(client, self._methods[0 if produces else 1])
        arguments = [] if self._size is None else [self._size]
        goes_on: GoesOn
        if produces:
            goes_on = until_made(self._shares[number], clock)
        else:
            goes_on = until_taken(self._counts, number - self._producers, self._operations, clock)
        method(QUEUE, *arguments, goes_on)

    def _summed(self, clients: Sequence[Answer]) -> Answer:
        counted = clients[self._producers :] if self._consumers else clients
        begun, ended = min(client["begun"] for client in clients), max(client["ended"] for client in counted)
        took = sorted(one for client in clients for one in client["took"])
        return {
            "operations": sum(len(client["took"]) for client in counted),
            "seconds": ended - begun,
            "p50": took[len(took) // 2] / 1e6 if took else 0,
            "p99": took[len(took) * 99 // 100] / 1e6 if took else 0,
        }


def _warm_up(client: Client) -> None:
    for work in (client.produce, client.consume):
        work(WARM_UP, so_many_times(_WARM_OPERATIONS))


def _in_threads(works: Sequence[Callable[[], None]]) -> None:
    """Do each work in a thread of its own; raise what one of them raised."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised below, in the thread that tells it
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()
