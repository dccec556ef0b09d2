"""The input and output of a running command."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import subprocess
from collections.abc import Callable
from typing import Final

from qmadmin.consumers import REASON_MAX, Call
from qmcore.message import BODY_MAX

_CHUNK: Final = 64 * 1024
_ERRORS_KEPT: Final = 4 * REASON_MAX
"""Bytes of the standard error output that are kept: the last ones, of up to four bytes for each character."""

OUTCOME_MAX: Final = 64 * 1024
"""Bytes that a command may write to QM_OUTCOME."""


class TimeIsUpError(Exception):
    """The command has taken too long."""


class TooMuchError(Exception):
    """The command writes more than is accepted; the text says where."""


class CommandIO:
    """Writes the input of a command while reading its output, until the output is closed and the command has ended.

    `output` is its standard output, `errors` the end of its standard error output, and `outcome` what it wrote to the
    pipe whose read end is `outcome_pipe`.
    """

    def __init__(self, process: subprocess.Popen[bytes], outcome_pipe: int, call: Call) -> None:
        self._process = process
        self._outcome_pipe = outcome_pipe
        self._unwritten = memoryview(call.request.body or b"")
        self._call = call
        self._selector = selectors.DefaultSelector()
        self._open = 0
        self.output = bytearray()
        self.errors = bytearray()
        self.outcome = bytearray()

    def run(self) -> int:
        """Return the exit status. Raises TimeIsUpError and TooMuchError."""
        process = self._process
        assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - all three were asked for
        with self._selector:
            self._watch(process.stdin.fileno(), selectors.EVENT_WRITE, self._write)
            self._watch(process.stdout.fileno(), selectors.EVENT_READ, self._read_output)
            self._watch(process.stderr.fileno(), selectors.EVENT_READ, self._read_errors)
            # Processes that the command leaves behind may keep this one open, unaware of it: do not wait for them.
            self._watch(self._outcome_pipe, selectors.EVENT_READ, self._read_outcome)
            self._open = 3
            while self._open:
                for key, _ in self._selector.select(self._left()):
                    key.data(key.fd)
        try:
            status = process.wait(self._left())
        except subprocess.TimeoutExpired:
            raise TimeIsUpError from None
        while self._read_outcome(self._outcome_pipe):
            pass
        return status

    def _left(self) -> float | None:
        left = self._call.left()
        if left == math.inf:
            return None
        if left <= 0:
            raise TimeIsUpError
        return left

    def _watch(self, pipe: int, event: int, act: Callable[[int], object]) -> None:
        os.set_blocking(pipe, False)
        self._selector.register(pipe, event, act)

    def _write(self, pipe: int) -> None:
        try:
            written = os.write(pipe, self._unwritten[:_CHUNK]) if self._unwritten else 0
        except BlockingIOError:
            return
        except BrokenPipeError:
            # It does not read all of its input, which is no failure: its exit status decides.
            written = len(self._unwritten)
        self._unwritten = self._unwritten[written:]
        if not self._unwritten:
            self._close(pipe)
            assert self._process.stdin  # noqa: S101 - it was asked for
            self._process.stdin.close()

    def _read_output(self, pipe: int) -> None:
        self.output += self._read(pipe)
        if len(self.output) > BODY_MAX:
            raise TooMuchError(f"its output is longer than {BODY_MAX} bytes")

    def _read_errors(self, pipe: int) -> None:
        self.errors += self._read(pipe)
        del self.errors[:-_ERRORS_KEPT]

    def _read(self, pipe: int) -> bytes:
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return b""
        if not chunk:
            self._close(pipe)
        return chunk

    def _read_outcome(self, pipe: int) -> bool:
        """Read what is there; return whether there may be more."""
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        self.outcome += chunk
        if len(self.outcome) > OUTCOME_MAX:
            raise TooMuchError(f"it wrote more than {OUTCOME_MAX} bytes to QM_OUTCOME")
        if not chunk:
            with contextlib.suppress(KeyError, RuntimeError):
                self._selector.unregister(pipe)
        return bool(chunk)

    def _close(self, pipe: int) -> None:
        self._selector.unregister(pipe)
        self._open -= 1
