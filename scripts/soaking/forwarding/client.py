"""A client: it enqueues numbered requests and takes their replies, until it is told to stop by SIGTERM."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import qmadmin
from soaking.forwarding.site import FAILURES, SERVICES, STEP, name_of, opened, reply_queue
from soaking.journal import Journal, Outcome

_REST = 0.1
"""Seconds that a client rests after an error."""

_MANY = 200
"""With so many messages in a queue it is not given more."""

_BAD = 0.03
"""How often a request is one that always fails, of 1."""


def run(name: str, url: str, journal: Path, said: Path, seed: int) -> None:
    """Open the queue space and work; stderr goes into the file `said`."""
    client = _Client(name, Journal(journal), seed)
    signal.signal(signal.SIGTERM, client.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with said.open("a", encoding="utf-8", buffering=1) as sys.stderr, opened(url) as space:
        client.work(space)


class _Client:
    """Does operations one after the other and writes each into the journal."""

    def __init__(self, name: str, journal: Journal, seed: int) -> None:
        self._stopped = False
        self._name = name
        self._journal = journal
        self._random = random.Random(f"{seed} {name}")  # noqa: S311 - nothing secret
        self._number = 0

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Let the operation that is under way be the last one."""
        self._stopped = True

    def work(self, space: qmadmin.QueueSpace) -> None:
        """Ask and take replies until the client is told to stop."""
        while not self._stopped:
            queue = self._random.choice(list(SERVICES))
            if space.usage(queue).messages < _MANY:
                self._ask(space, queue)
            self._take_replies(space)
            time.sleep(self._random.random() * 0.02)

    def _ask(self, space: qmadmin.QueueSpace, queue: str) -> None:
        """Enqueue a request, or several in a transaction, which may be rolled back."""
        if self._random.random() < 0.7:
            names = [self._new_name()]
            self._journal.begin(made=names)
            self._note(lambda: self._enqueue(space, queue, names))
            return
        names = [self._new_name() for _ in range(self._random.randrange(2, 6))]
        kept = self._random.random() < 0.8
        self._journal.begin(made=names)

        def in_transaction() -> bool:
            with space.transaction() as transaction:
                self._enqueue(space, queue, names)
                if not kept:
                    transaction.rollback()
            return kept

        self._note(in_transaction)

    def _enqueue(self, space: qmadmin.QueueSpace, queue: str, names: list[str]) -> bool:
        replies = reply_queue(self._name)
        for name in names:
            space.enqueue(
                queue,
                f"{name} {'bad' if self._random.random() < _BAD else 'good'}",
                corrid=name,
                # The answer comes from the service that a step hands the request on to.
                reply_queue=None if queue == STEP else replies,
                failure_queue=FAILURES,
                headers={"answer-to": replies} if queue == STEP else None,
                priority=self._random.randrange(1, 101),
            )
        return True

    def _take_replies(self, space: qmadmin.QueueSpace) -> None:
        taken: list[str] = []

        def take() -> bool:
            for reply in space.dequeue_many(reply_queue(self._name), 20):
                if reply.text != f"answer to {name_of(reply)}":
                    raise ValueError(f"the reply to {name_of(reply)} is {reply.text!r}")
                taken.append(name_of(reply))
            return True

        self._journal.begin(blind=True)
        self._note(take, taken)

    def _note(self, act: Callable[[], bool], taken: list[str] | None = None) -> None:
        """Write what came of an operation; it tells whether it has happened."""
        try:
            happened = act()
        except qmadmin.QueueError as error:
            outcome = Outcome.UNKNOWN if isinstance(error, qmadmin.OutcomeUnknownError) else Outcome.NOTHING
            self._journal.end(outcome, error=type(error).__name__)
            print(f"{self._name}: {type(error).__name__}: {error}", file=sys.stderr)
            time.sleep(_REST)
        else:
            self._journal.end(Outcome.DONE if happened else Outcome.NOTHING, taken)

    def _new_name(self) -> str:
        self._number += 1
        return f"{self._name}.{self._number}"
