"""Worker processes of this machine: each opens for itself what it works on, and keeps it open between the units.

A worker is told functions to call, with values that can be pickled. What the first one gives stays in the worker, and
each other one gets it: a connection does not cross from process to process. A worker whose driver has died ends by
itself, because its pipe does.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from qmadmin.transfer.executors import Enter, Unit, UnitProgress, no_progress
from qmcore.errors import SystemFailureError

_END_SECONDS = 10.0
_HINT = "Check whether the machine ran out of memory, then repeat the command."


class Worker:
    """A worker in another process, which does what it receives through a connection."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection

    def send(self, unit: Unit, *arguments: Any) -> None:
        """Let it call `unit`; the answer has to be received before anything else is sent."""
        try:
            self.connection.send((unit, arguments))
        except OSError:
            raise self._died() from None

    def receive(self, seconds: float | None = None) -> Any:
        """Return what the call returned, or raise what it raised; SystemFailureError after so many seconds."""
        if seconds is not None and not self.connection.poll(seconds):
            raise SystemFailureError(f"a worker has been silent for {seconds:g} seconds", hint=_HINT)
        try:
            failed, result = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if failed:
            raise result
        return result

    def dismiss(self, *, at_once: bool) -> None:
        """Tell it to end when its current unit is done; `at_once`: in the middle of it."""
        del at_once
        self.connection.close()

    def wait(self) -> None:
        """Return when it has ended, as far as that is ours to know."""

    def _died(self) -> SystemFailureError:
        return SystemFailureError(f"{self._ended()} in the middle of its work", hint=_HINT)

    def _ended(self) -> str:
        return "a worker ended"


class Process(Worker):
    """A process of this machine. It begins with nothing but the module path of this one.

    The program that this process runs is not run again there, as it would be by multiprocessing: it may be anything.
    """

    def __init__(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        super().__init__(ours)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "qmadmin.transfer.worker_main", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        finally:
            theirs.close()

    def dismiss(self, *, at_once: bool) -> None:
        """Tell it to end when its current unit is done; `at_once`: in the middle of it."""
        if at_once:
            self._process.terminate()
        super().dismiss(at_once=at_once)

    def wait(self) -> None:
        """Return when the process has ended."""
        self._process.wait()

    def _ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        status = self._process.returncode
        how = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
        return f"the worker process {self._process.pid} ended {how}"


class Pool:
    """Executor, each with what `enter(*arguments)`, a context manager, gives it."""

    def __init__(self, start: Callable[[int], Worker], count: int, enter: Enter, *arguments: Any) -> None:
        """`start` gives a worker, by its number from 0."""
        self._workers: list[Worker] = []
        try:
            for number in range(count):
                self._workers.append(start(number))
            for worker in self._workers:
                worker.send(enter, *arguments)
        except BaseException:
            self._end(at_once=True)
            raise

    def __enter__(self) -> Self:
        try:
            for worker in self._workers:
                worker.receive()
        except BaseException:
            self._end(at_once=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(at_once=error is not None)

    def each(self, unit: Unit, *arguments: Any, seconds: float | None = None) -> list[Any]:
        """Let every worker call `unit` at the same time, and return what they return within the seconds."""
        for worker in self._workers:
            worker.send(unit, *arguments)
        return [worker.receive(seconds) for worker in self._workers]

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: UnitProgress = no_progress) -> Iterator[Any]:
        """Let the workers call `unit` with each of the tasks, and yield what it returns as it comes.

        What one of them raises is raised here, and the others get no more.
        """
        waiting, ended = iter(tasks), 0
        busy: dict[Any, Worker] = {}
        for worker in self._workers:
            _busy_with_next(worker, unit, waiting, busy)
        while busy:
            for connection in wait(list(busy)):
                worker = busy.pop(connection)
                result = worker.receive()
                _busy_with_next(worker, unit, waiting, busy)
                yield result
                ended += 1
                told(ended)

    def _end(self, *, at_once: bool) -> None:
        # All of them first: they end at the same time.
        for worker in self._workers:
            worker.dismiss(at_once=at_once)
        for worker in self._workers:
            worker.wait()
        self._workers.clear()


def _busy_with_next(worker: Worker, unit: Unit, waiting: Iterator[tuple[Any, ...]], busy: dict[Any, Worker]) -> None:
    for task in waiting:
        worker.send(unit, *task)
        busy[worker.connection] = worker
        return
