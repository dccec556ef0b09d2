"""Enqueues amounts, kills and stops the processes of the application at random, and adds up what is left in the end."""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import qmadmin
from soaking.consuming.site import DONE, ERRORS, EXIT_STATUS, HANDLERS, opened
from soaking.program import PATIENCE, Program

_MANY = 100
"""To how many messages a queue is filled up."""

_AMOUNT_MAX = 1000


class Overseer:
    """One run over a queue space that is there."""

    def __init__(self, url: str, directory: Path, seed: int, workers: int) -> None:
        self.problems: list[str] = []
        self.acts: Counter[str] = Counter()
        self.entered: list[int] = []
        """The amounts whose enqueue has returned."""

        self._url = url
        self._random = random.Random(seed)  # noqa: S311 - nothing secret
        command = [sys.executable, "-m", "qmadmin.program", "run", "soaking.consuming.worker:app", "--grace", "5"]
        self._programs = [
            Program(f"worker{number}", directory, command, " calls the handlers of ", deaths=[EXIT_STATUS])
            for number in range(workers)
        ]

    def run(self, seconds: float, calm_seconds: float) -> None:
        """Let the application work for some time, under kills, and for some more time in calm to work off the rest."""
        try:
            with opened(self._url) as space:
                for program in self._programs:
                    program.start()
                for program in self._programs:
                    program.wait_until_begun()
                end = disturb = time.monotonic() + seconds
                while time.monotonic() < end:
                    if time.monotonic() >= disturb or disturb == end:
                        disturb = time.monotonic() + self._random.uniform(0.3, 2.0)
                        self._look_after_all()
                        self._disturb(self._random.choice(self._programs))
                    self._enqueue(space)
                self._calm_down(space, calm_seconds)
        finally:
            for program in self._programs:
                program.stop()
                self.problems += program.problems

    def left(self) -> dict[str, list[int]]:
        """Return the amounts of all messages that are left by their queues; look for what may not be."""
        with opened(self._url) as space:
            self._wait_until_nothing_is_held(space)
            if lost := sum(usage.discarded + usage.expired for _, usage in space.usages()):
                self.problems.append(f"{lost:,} messages were discarded or have expired")
            for info in space.messages(ERRORS):
                if info.origin is None or info.origin.queue not in HANDLERS or not info.origin.error:
                    self.problems.append(f"{info.msgid} is in the error queue and does not say from where, or why")
            return {queue: _amounts(space, queue) for queue in (*HANDLERS, DONE, ERRORS)}

    def _enqueue(self, space: qmadmin.QueueSpace) -> None:
        """Fill up the queues, each in one transaction."""
        for queue in HANDLERS:
            amounts = [self._random.randrange(_AMOUNT_MAX) for _ in range(_MANY - space.usage(queue).messages)]
            with space.transaction():
                for amount in amounts:
                    space.enqueue(queue, str(amount), reply_queue=DONE, failure_queue=DONE)
            self.entered += amounts

    def _look_after_all(self) -> None:
        for program in self._programs:
            if program.has_ended():
                self.acts["ended by a handler"] += 1
                self._start(program)

    def _disturb(self, program: Program) -> None:
        acts = {"killed": 6, "stopped": 3, "stopped at once": 2}
        (act,) = self._random.choices(list(acts), list(acts.values()))
        self.acts[act] += 1
        if act == "killed":
            program.kill()
        else:
            program.stop(at_once=act == "stopped at once")
        self._start(program)

    def _start(self, program: Program) -> None:
        program.start()
        program.wait_until_begun()

    def _calm_down(self, space: qmadmin.QueueSpace, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(space.usage(queue).messages for queue in HANDLERS):
            self._look_after_all()
            for queue in HANDLERS:
                space.unpark(queue)
            time.sleep(0.1)

    def _wait_until_nothing_is_held(self, space: qmadmin.QueueSpace) -> None:
        deadline = time.monotonic() + PATIENCE
        while held := sum(usage.held for _, usage in space.usages()):
            if time.monotonic() > deadline:
                self.problems.append(f"{held:,} messages are held, and nobody works on them")
                return
            time.sleep(0.1)


def _amounts(space: qmadmin.QueueSpace, queue: str) -> list[int]:
    found = [space.content(info) for info in space.messages(queue)]
    return [int(message.text) for message in found if message is not None]


@dataclasses.dataclass(frozen=True)
class Sums:
    """What was enqueued, and what is left of it by queues."""

    entered: list[int]
    left: Mapping[str, list[int]]

    @property
    def problems(self) -> list[str]:
        """What does not balance, in sentences."""
        entered, left = sum(self.entered), sum(map(sum, self.left.values()))
        return [] if entered == left else [f"{entered:,} was enqueued, and {left:,} is left: {left - entered:+,}"]

    def lines(self) -> list[str]:
        """Return the sums as text."""
        return [
            f"enqueued: {sum(self.entered):,} in {len(self.entered):,} messages",
            *(f"in {queue}: {sum(amounts):,} in {len(amounts):,} messages" for queue, amounts in self.left.items()),
        ]
