"""A real process that coordinates transactions over two queue spaces as a test tells it, until that kills it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import multiprocessing
import os
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any, TypeAlias

import qmadmin
from qmadmin.opening import open_device
from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction
from qmcore.errors import QueueError
from tests.fix_store import DEADLINE

Answer: TypeAlias = tuple[str, Any]
"""What came of a request: "done" and its result, "refused" and the class of the error, or "halted" and nothing."""


@functools.cache
def _server() -> ForkServerContext:
    """Return what starts processes quickly: from one that has imported everything and opened nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tests.store.distributed_child", "qmstorage.sqlite.opening", "qmstorage.postgres.opening"]
    )
    return context


class Coordinator:
    """The process, as the test has it."""

    def __init__(self, configs: tuple[str, str]) -> None:
        self._pipe, its = _server().Pipe()
        self._process = _server().Process(target=_serve, args=(its, configs), daemon=True)
        self._process.start()
        its.close()
        assert self.answer() == ("done", None)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def ask(self, verb: str, *what: Any) -> Answer:
        """Have it do something, and return what came of it, or that it stands still in the midst of it."""
        self.begin(verb, *what)
        return self.answer()

    def begin(self, verb: str, *what: Any) -> None:
        """Have it begin to do something."""
        self._pipe.send((verb, what))

    def answer(self) -> Answer:
        assert self._pipe.poll(DEADLINE), "the coordinator said nothing"
        found: Answer = self._pipe.recv()
        return found

    def kill(self, after: float = 0.0) -> None:
        """Kill it as `kill -9` does, when it has answered, or has not within some seconds."""
        if after:
            self._pipe.poll(after)
        self._process.kill()
        self._process.join(DEADLINE)
        self._process.close()
        self._pipe.close()


class _Serving:
    """What the process does."""

    def __init__(self, pipe: Connection, spaces: dict[str, QueueSpace]) -> None:
        self._pipe = pipe
        self._spaces = spaces
        self._transaction: Transaction | None = None

    def begin(self, names: str) -> None:
        """Begin a transaction over both queue spaces, or of one."""
        spaces = [self._spaces[name] for name in names]
        self._take_over(qmadmin.transaction(*spaces) if len(spaces) > 1 else spaces[0].transaction())

    def put(self, name: str, message: str) -> None:
        self._spaces[name].enqueue("Q", message, corrid=message)

    def take(self, name: str) -> str | None:
        message = self._spaces[name].dequeue("Q")
        return None if message is None else message.text

    def commit(self, place: str = "", event: str = "") -> None:
        """Commit, and stand still at the call or the return of a function until told to go on."""
        with self._halting(place, event) if place else contextlib.nullcontext():
            self._ended().commit()

    def rollback(self) -> None:
        ended = self._ended()
        if ended.active:
            ended.rollback()

    def suspend(self) -> str:
        return self._ended().suspend()

    def resume(self, name: str, token: str) -> None:
        self._take_over(self._spaces[name].resume(token))

    def _take_over(self, transaction: Transaction) -> None:
        transaction.join_context()
        self._transaction = transaction

    def _ended(self) -> Transaction:
        """Return the transaction, to which no further calls belong."""
        found, self._transaction = self._transaction, None
        assert found is not None
        found.leave_context()
        return found

    @contextlib.contextmanager
    def _halting(self, place: str, event: str) -> Iterator[None]:
        module, _, name = place.partition(":")
        code = getattr(importlib.import_module(module), name).__code__

        def watch(frame: Any, what: str, _argument: Any) -> None:
            if frame.f_code is code and what == event:
                sys.setprofile(None)
                self._pipe.send(("halted", None))
                assert self._pipe.recv() == ("go_on", ())

        sys.setprofile(watch)
        try:
            yield
        finally:
            sys.setprofile(None)


def _serve(pipe: Connection, configs: tuple[str, str]) -> None:
    os.environ["PGAPPNAME"] = "coordinator"
    first, second = configs
    one = open_device(first)
    other = one if second == first else open_device(second)
    serving = _Serving(pipe, {"A": one.open_space("A"), "B": other.open_space("B")})
    pipe.send(("done", None))
    with contextlib.suppress(EOFError):
        while True:
            verb, what = pipe.recv()
            try:
                answer = "done", getattr(serving, verb)(*what)
            except QueueError as error:
                answer = "refused", type(error).__name__
            pipe.send(answer)
