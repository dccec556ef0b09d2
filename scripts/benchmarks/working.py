"""A subject's own worker: how fast it calls a function that does nothing, and what is lost when it is killed.

The function is called with numbers, one for each message. It notes them in memory that is shared with the process that
started the worker, where they are also after SIGKILL.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from benchmarks.forking import Answer, answer_of, fork, forked
from benchmarks.subject import Subject

Function = Callable[[int], None]


class WorkingSubject(Subject, Protocol):
    """A subject that has a worker of its own."""

    def hand_out(self, place: str, count: int, /) -> None:
        """Enqueue so many messages, each with its number."""

    def work(self, place: str, workers: int, function: Function, /) -> None:
        """Call a function with each number until no message is left; so many calls may run at a time."""


class TogetherSubject(WorkingSubject, Protocol):
    """One whose worker may take several messages in one transaction, and be done with them in one."""

    def work_together(self, place: str, size: int, function: Function, /) -> None:
        """Call a function with each number until no message is left; so many are taken together."""


class _Done:
    """How often each number was worked on to the end."""

    def __init__(self, count: int) -> None:
        self._memory = mmap.mmap(-1, count)

    def add(self, number: int) -> None:
        self._memory[number] += 1

    def missing(self) -> int:
        """Return how many numbers were never worked on."""
        return bytes(self._memory).count(0)


def rate(subject: WorkingSubject, request: Mapping[str, Any], seconds: float) -> Answer:
    """Let the worker work on all messages; return how many calls there were, and in which time."""
    place, count = request["place"], request["messages"]
    work = cast("TogetherSubject", subject).work_together if request["do"] == "work_together" else subject.work

    def worked() -> Answer:
        # From the first to the last call: the start of a worker is measured elsewhere, if at all.
        times: list[float] = []
        work(place, request["workers"], lambda _number: times.append(time.monotonic()))
        return {"operations": len(times) - 1, "seconds": max(times) - min(times)}

    return _handed_out(subject, place, count, seconds) or forked([worked], seconds)[0]


def lost(subject: WorkingSubject, request: Mapping[str, Any], seconds: float) -> Answer:
    """Kill the worker in the middle of a call, and start the next; return how many messages neither was done with."""
    place, count = request["place"], request["messages"]
    done = _Done(count)
    calls = itertools.count(1)

    def kills(number: int) -> None:
        if next(calls) == count // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        done.add(number)

    def works(function: Function) -> Answer:
        subject.work(place, request["workers"], function)
        return {"lost": done.missing()}

    failed = _handed_out(subject, place, count, seconds)
    if failed:
        return failed
    pid, end = fork(lambda say: say(works(kills)), seconds)
    said = answer_of(end)
    os.waitpid(pid, 0)
    if said:
        return said if "error" in said else {"error": f"it was not killed before it was done with {count} messages"}
    return forked([functools.partial(works, done.add)], seconds)[0]


def _handed_out(subject: WorkingSubject, place: str, count: int, seconds: float) -> Answer:
    """Enqueue the messages; return what went wrong, or {}."""

    def child() -> Answer:
        subject.empty(place)
        subject.hand_out(place, count)
        return {"ok": True}

    answer = forked([child], seconds)[0]
    return answer if "error" in answer else {}
