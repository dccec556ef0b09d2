"""Worker processes of this machine: each opens its own objects, and keeps them open between the units.

A worker receives functions to call, with values that can be pickled. The result of the first one stays in the worker,
and each later one gets it: a connection cannot be passed from process to process. A worker whose driver has died ends
by itself, because its pipe is closed. It is this module as a program, with the number of the pipe as its argument.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from qmadmin.transfer import Enter, Unit, UnitProgress, no_progress
from qmcore.errors import SystemFailureError

_END_SECONDS = 10.0
_HINT = "Check whether the machine ran out of memory, then repeat the command."


class Worker:
    """A worker in another process, which calls the functions that it receives through a connection."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection

    def send(self, unit: Unit, *arguments: Any) -> None:
        """Make it call `unit`; the result has to be received before anything else is sent."""
        try:
            self.connection.send((unit, arguments))
        except OSError:
            raise self._died() from None

    def receive(self, seconds: float | None = None) -> Any:
        """Return the result of the call, or raise its exception; SystemFailureError after these seconds."""
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
        """Wait until it has ended, if this process can know that."""

    def _died(self) -> SystemFailureError:
        return SystemFailureError(f"{self._ended()} in the middle of its work", hint=_HINT)

    def _ended(self) -> str:
        return "a worker ended"


class Process(Worker):
    """A process of this machine, which gets only the module path of this one.

    The main program of this process is not run again there, as multiprocessing would do: it may be any application.
    """

    def __init__(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        super().__init__(ours)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "qmadmin.transfer.pool", str(theirs.fileno())],
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
    """Workers, each with the object of `enter(*arguments)`, a context manager."""

    def __init__(self, start: Callable[[int], Worker], count: int, enter: Enter, *arguments: Any) -> None:
        """`start` returns a worker, by its number from 0."""
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
        """Make every worker call `unit` at the same time, and return the results that arrive within the seconds."""
        for worker in self._workers:
            worker.send(unit, *arguments)
        return [worker.receive(seconds) for worker in self._workers]

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: UnitProgress = no_progress) -> Iterator[Any]:
        """Make the workers call `unit` with each of the tasks, and yield the results as they arrive.

        If one of them raises an exception, it is raised here, and the others get no more tasks.
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


def main() -> None:
    """Carry out calls from the pipe until it ends."""
    # Ctrl-C goes to the whole process group; the driver handles it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))
    sys.stdout.flush()
    # Everything is closed. The shutdown of the interpreter takes longer than many exports.
    os._exit(0)


def serve(connection: Connection[Any, Any]) -> None:
    """Carry out calls from the connection until it ends: the first one enters, the others get its result."""
    # If the pipe has ended, the driver is gone, or has no more calls.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), contextlib.ExitStack() as stack:
        enter, arguments = connection.recv()
        entered: list[Any] = []
        _answer(connection, lambda: entered.append(stack.enter_context(enter(*arguments))))
        while True:
            unit, arguments = connection.recv()
            _answer(connection, lambda unit=unit, arguments=arguments: unit(entered[0], *arguments))  # type: ignore[misc]


def _answer(connection: Connection[Any, Any], call: Callable[[], Any]) -> None:
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 - it is raised in the driver
        error.add_note(f"In worker process {os.getpid()}:\n{traceback.format_exc()}")
        _send_error(connection, error)
    else:
        connection.send((False, result))


def _send_error(connection: Connection[Any, Any], error: Exception) -> None:
    try:
        connection.send((True, error))
    except (TypeError, AttributeError, ValueError):
        # An exception of a library may not be picklable.
        connection.send((True, SystemFailureError(f"a worker process failed: {type(error).__name__}: {error}")))


if __name__ == "__main__":
    main()
