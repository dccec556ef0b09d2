"""Work in forks of this process, which tell its outcome as JSON."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pacing import Start

Answer = dict[str, Any]
"""What a fork tells; its key `error` says what went wrong."""


def forked(works: Sequence[Callable[[], Answer]], seconds: float, start: Start | None = None) -> list[Answer]:
    """Do each work in a process of its own, at the same time; return their answers in the same order."""

    def child(work: Callable[[], Answer], say: Callable[[Answer], None]) -> None:
        say(work())

    children = [fork(functools.partial(child, work), seconds) for work in works]
    if start is not None:
        start.give()
    answers: list[Answer] = []
    for pid, end in children:
        answer = answer_of(end)
        status = os.waitpid(pid, 0)[1]
        answers.append(answer or {"error": f"a client ended with wait status {status}"})
    return answers


def answer_of(end: int) -> Answer:
    """Return what a fork says, which is read until it has said it; {} where it ended without a word."""
    with os.fdopen(end, "rb") as reader:
        said = reader.read()
    answer: Answer = json.loads(said) if said else {}
    return answer


def fork(work: Callable[[Callable[[Answer], None]], None], seconds: float) -> tuple[int, int]:
    """Do a work in a process of its own, which is killed after so many seconds unless they are 0.

    Return the process, and where its parent reads the one thing that it says, or that it failed.
    """
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        return pid, reading
    signal.alarm(int(seconds))
    writer = os.fdopen(writing, "wb")

    def say(answer: Answer) -> None:
        # What goes wrong after the one thing was said is nothing that the parent waits for.
        with contextlib.suppress(OSError, ValueError), writer:
            writer.write(json.dumps(answer).encode())

    try:
        work(say)
    except BaseException as error:  # noqa: BLE001 - it is told to the parent, and the child ends
        place = traceback.extract_tb(error.__traceback__)[-1]
        say({"error": f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"})
    os._exit(0)
