"""One producer, consumer or mover, which works until it is told to stop by SIGTERM.

producer 0   enqueues, some messages delayed, some of them large
producer 1   enqueues in transactions, some of which roll back
consumer 0   dequeues requests
consumer 1   dequeues requests and enqueues their replies in transactions, some of which roll back
consumer 2   dequeues replies
consumer 3   dequeues replies, and messages that went to the error queue, in transactions
mover 0      moves requests to the other queue space, in transactions over both, some of which roll back
mover 1      answers them from there
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import qmadmin
from soaking.journal import Journal, Outcome
from soaking.space import AWAY, ERRORS, REPLIES, SPACE, WORK, body, name_of, opened

ROLES = ("producer 0", "producer 1", "consumer 0", "consumer 1", "consumer 2", "consumer 3", "mover 0", "mover 1")

_REST = 0.1
"""Seconds that a client rests after an error."""

_WAIT = 0.3
"""Seconds that a consumer waits for a message."""


def run(role: str, name: str, urls: Mapping[str, str], journal: Path, said: Path) -> None:
    """Open the queue spaces, as soon as the server lets it, and work; stderr goes into the file `said`.

    `urls` are their devices by their names.
    """
    client = Client(name, Journal(journal))
    signal.signal(signal.SIGTERM, client.stop)
    with said.open("a", encoding="utf-8", buffering=1) as sys.stderr:
        while not client.stopped:
            try:
                with ExitStack() as spaces:
                    if role.startswith("mover"):
                        client.away = spaces.enter_context(opened(urls[AWAY], AWAY))
                    client.work(spaces.enter_context(opened(urls[SPACE])), role)
            except qmadmin.QueueError as error:
                # The server may be down; what an operation met was dealt with before.
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
                time.sleep(_REST)


class RollBack(Exception):  # noqa: N818 - it is no error
    """Makes the transaction roll back on purpose."""


class Client:
    """Does operations one after the other and writes each into the journal."""

    def __init__(self, name: str, journal: Journal) -> None:
        """Take a name that no other client has or had."""
        self.stopped = False
        self.away: qmadmin.QueueSpace | None = None
        """The other queue space, for a mover."""
        self._name = name
        self._journal = journal
        self._random = random.Random(name)  # noqa: S311 - nothing secret
        self._number = 0

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Let the operation that is under way be the last one."""
        self.stopped = True

    def work(self, space: qmadmin.QueueSpace, role: str) -> None:
        """Do the operations of a role until the client is told to stop."""
        operation: Callable[[qmadmin.QueueSpace], None] = {
            "producer 0": self._enqueue,
            "producer 1": self._enqueue_some,
            "consumer 0": lambda space: self._dequeue(space, WORK),
            "consumer 1": self._reply,
            "consumer 2": lambda space: self._dequeue(space, REPLIES),
            "consumer 3": self._clear,
            "mover 0": lambda space: self._move(space, WORK, self.away, AWAY),
            "mover 1": lambda space: self._move(self.away, AWAY, space, REPLIES),
        }[role]
        while not self.stopped:
            operation(space)
            if role.startswith("producer"):
                time.sleep(self._random.random() * 0.02)

    def _enqueue(self, space: qmadmin.QueueSpace) -> None:
        name = self._new_name()
        delay = self._random.random() * 3 if self._random.random() < 0.2 else None
        large = self._random.random() < 0.02
        content = body(name, self._random.randrange(100_000 if large else 3000))
        self._journal.begin(made=[name])
        with self._noted():
            space.enqueue(WORK, content, priority=self._random.randrange(1, 100), delay=delay)

    def _enqueue_some(self, space: qmadmin.QueueSpace) -> None:
        names = [self._new_name() for _ in range(self._random.randrange(1, 5))]
        with self._committed(space.transaction()):
            for name in names:
                space.enqueue(WORK, body(name, self._random.randrange(3000)))
            self._roll_back_sometimes()
            self._journal.begin(made=names)

    def _dequeue(self, space: qmadmin.QueueSpace, queue: str) -> None:
        taken: list[str] = []
        self._journal.begin(blind=True)
        with self._noted(taken):
            message = space.dequeue(queue, wait=_WAIT)
            taken += [name_of(message)] if message else []

    def _reply(self, space: qmadmin.QueueSpace) -> None:
        with self._committed(space.transaction()):
            taken: list[str] = []
            for _ in range(self._random.randrange(1, 4)):
                message = space.dequeue(WORK, wait=_WAIT if not taken else None)
                taken += [name_of(message)] if message else []
            made = [self._new_name() for _ in taken]
            for name in made:
                space.enqueue(REPLIES, body(name, self._random.randrange(3000)))
            self._roll_back_sometimes()
            self._journal.begin(made=made, took=taken)

    def _clear(self, space: qmadmin.QueueSpace) -> None:
        with self._committed(space.transaction()):
            taken: list[str] = []
            for queue in (ERRORS, REPLIES):
                message = space.dequeue(queue, wait=_WAIT if queue == REPLIES and not taken else None)
                taken += [name_of(message)] if message else []
            self._journal.begin(took=taken)

    def _move(self, source: qmadmin.QueueSpace | None, queue: str, target: qmadmin.QueueSpace | None, to: str) -> None:
        assert source is not None
        assert target is not None
        with self._committed(qmadmin.transaction(source, target)):
            taken: list[str] = []
            for _ in range(self._random.randrange(1, 4)):
                message = source.dequeue(queue, wait=_WAIT if not taken else None)
                taken += [name_of(message)] if message else []
            made = [self._new_name() for _ in taken]
            for name in made:
                target.enqueue(to, body(name, self._random.randrange(3000)))
            self._roll_back_sometimes()
            self._journal.begin(made=made, took=taken)

    def _new_name(self) -> str:
        self._number += 1
        return f"{self._name}.{self._number}"

    def _roll_back_sometimes(self) -> None:
        if self._random.random() < 0.15:
            raise RollBack

    @contextmanager
    def _committed(self, transaction: qmadmin.Transaction) -> Iterator[None]:
        """Commit what the block does; the block begins the entry in the journal as the last thing that it does."""
        begun = False
        try:
            with transaction:
                yield
                begun = True
            self._journal.end(Outcome.DONE)
        except RollBack:
            pass
        except qmadmin.QueueError as error:
            if begun:
                self._note(error)
            else:
                time.sleep(_REST)

    @contextmanager
    def _noted(self, taken: list[str] | None = None) -> Iterator[None]:
        """Write what came of an operation outside of a transaction."""
        try:
            yield
            self._journal.end(Outcome.DONE, taken)
        except qmadmin.QueueError as error:
            self._note(error)

    def _note(self, error: qmadmin.QueueError) -> None:
        outcome = Outcome.UNKNOWN if isinstance(error, qmadmin.OutcomeUnknownError) else Outcome.NOTHING
        self._journal.end(outcome, error=type(error).__name__)
        time.sleep(_REST)
