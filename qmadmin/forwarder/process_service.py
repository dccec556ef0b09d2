"""A service that is a function in Python, called in worker processes."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from qmadmin.console import end_of
from qmadmin.consumers import (
    Call,
    Failure,
    Handler,
    Park,
    RemoteTracebackError,
    Reply,
    Snooze,
    Unavailable,
    current,
    failure_with,
    too_late,
)
from qmadmin.forwarder import STOPS, StartError
from qmadmin.forwarder.program_log import LogTerms, terms_of_this_process
from qmadmin.forwarder.worker_main import packed, receive_plain, send

START_SECONDS: Final = 60.0
"""How many seconds a worker process may take to load its module."""

_GRACE_SECONDS: Final = 1.0
"""How many seconds a process that is about to end may take."""


class ProcessService(Handler):
    """Calls the function `module:function` in at most `workers` processes, each of which has one request at a time.

    A process is started when none is idle, and kept until the service is closed. If one dies, its call has failed, and
    the next call gets another process. `path` is where modules are searched for, `environ` the environment. Raises
    StartError if the function cannot be found, which the first process checks.
    """

    def __init__(self, target: str, name: str, workers: int, path: Sequence[str], environ: Mapping[str, str]) -> None:
        self._start = list(path), target, name
        self._environ = dict(environ)
        self._free = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._is_stopped = False
        try:
            self._idle.append(self._started(START_SECONDS))
        except Unavailable as error:
            raise StartError(str(error)) from None

    def call(self, call: Call) -> Reply:
        """Process a request."""
        left = call.left()
        if not self._free.acquire(timeout=None if left == math.inf else max(left, 0.0)):
            raise Unavailable(f"none of its worker processes became free within {call.seconds:g} seconds")
        try:
            reply, collected = self._called(call)
        finally:
            self._free.release()
        current.collect(collected)
        return reply

    def stop_calls(self) -> None:
        """End the busy processes and all processes that they have started, and start no more."""
        with self._lock:
            self._is_stopped = True
            for worker in self._busy:
                worker.kill()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.dismiss()
        for worker in idle:
            worker.end()

    def _called(self, call: Call) -> tuple[Reply, list[Any]]:
        worker = self._at_work(call)
        is_well = False
        try:
            outcome = worker.outcome(call)
            is_well = True
        except TimeoutError:
            raise Failure(too_late(call)) from None
        except (EOFError, OSError):
            self._refuse_stopped()
            raise Failure(f"its process {worker.cause_of_death()}") from None
        except pickle.UnpicklingError as error:
            raise Failure(f"its reply cannot be read: {error}") from None
        finally:
            self._put_back(worker, is_well=is_well)
        return _result(outcome)

    def _at_work(self, call: Call) -> _Worker:
        """Return a process that has taken the request. One that died before taking it has done nothing."""
        while True:
            worker = self._taken(call)
            is_well = False
            try:
                worker.begin(call)
                is_well = True
                return worker
            except TimeoutError:
                raise Failure(too_late(call)) from None
            except (EOFError, OSError):
                self._refuse_stopped()
                if worker.is_new:
                    raise Unavailable(f"its process {worker.cause_of_death()} before it took a request") from None
            finally:
                if not is_well:
                    self._put_back(worker, is_well=False)

    def _taken(self, call: Call) -> _Worker:
        """Take an idle process, or start one."""
        with self._lock:
            self._refuse_stopped()
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive:
                    self._busy.add(worker)
                    return worker
                worker.end()
        worker = self._started(min(call.left(), START_SECONDS))
        with self._lock:
            self._busy.add(worker)
            if self._is_stopped:
                worker.kill()
        return worker

    def _refuse_stopped(self) -> None:
        if self._is_stopped:
            raise Unavailable(STOPS) from None

    def _put_back(self, worker: _Worker, *, is_well: bool) -> None:
        with self._lock:
            self._busy.discard(worker)
            if is_well and not self._is_stopped:
                self._idle.append(worker)
                return
        worker.kill()
        worker.end()

    def _started(self, seconds: float) -> _Worker:
        """Start a process and wait until it has loaded its function; raise Unavailable if it cannot."""
        try:
            worker = _Worker(self._environ)
        except OSError as error:
            raise Unavailable(f"a worker process cannot be started: {error.strerror}") from error
        try:
            fault = worker.prepare((*self._start, terms_of_this_process()), seconds)
        except TimeoutError:
            fault = f"service {self._start[2]!r}: its module was not loaded within {seconds:g} seconds"
        except (EOFError, OSError):
            fault = f"service {self._start[2]!r}: its process {worker.cause_of_death()} while it loaded its module"
        except BaseException:
            worker.kill()
            worker.end()
            raise
        if fault:
            worker.kill()
            worker.end()
            raise Unavailable(fault)
        return worker


class _Worker:
    """A worker process, a connection to it, and the end of the pipe that keeps it alive."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.is_new = True
        """Whether it has never taken a request."""
        self._connection, theirs = socket.socketpair()
        read, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "qmadmin.forwarder.worker_main", str(theirs.fileno()), str(read)],
                env=environ,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(), read),
            )
        except BaseException:
            self._connection.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(read)

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def prepare(self, start: tuple[list[str], str, str, LogTerms | None], seconds: float) -> str:
        """Send it its function; return what is wrong with it, or an empty text."""
        end = time.monotonic() + seconds

        def left() -> float:
            return end - time.monotonic()

        send(self._connection, packed(start), left)
        return str(receive_plain(self._connection, left))

    def begin(self, call: Call) -> None:
        """Send it a request. Raises TimeoutError when the time is over, EOFError or OSError if it has ended."""
        send(self._connection, packed((current.for_another_process(call.request), call.left())), call.left)
        receive_plain(self._connection, call.left)
        self.is_new = False

    def outcome(self, call: Call) -> Any:
        """Return the outcome of the request that it has taken; raises the same, and UnpicklingError."""
        return receive_plain(self._connection, call.left)

    def cause_of_death(self) -> str:
        """Return how the process ended after it closed its connection."""
        try:
            status = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return end_of(status) if status < 0 else f"ended with {end_of(status)}"

    def dismiss(self) -> None:
        """Make it end by itself."""
        self._connection.close()

    def kill(self) -> None:
        """Kill it and all processes that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Wait for its imminent end, and close its descriptors."""
        self._connection.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        os.close(self._lifeline)


def _result(outcome: Any) -> tuple[Reply, list[Any]]:
    """Return the reply and the messages to enqueue, or raise how the call failed."""
    match outcome:
        case ("reply", (body, urcode, kind, headers), collected):
            return Reply(body, urcode, kind, headers), collected
        case ("unavailable", reason, retry_after):
            raise Unavailable(reason, retry_after=retry_after)
        case ("snooze", reason, seconds):
            raise Snooze(seconds, reason)
        case ("park", reason):
            raise Park(reason)
        case ("failure", reason, (body, urcode, kind, headers), terms, trace):
            reply = Reply(body, urcode, kind, headers)
            failure = failure_with(reason, reply, **terms)
            raise failure from (RemoteTracebackError(trace) if trace else None)
    raise Failure("its process sent something that is not an outcome")
