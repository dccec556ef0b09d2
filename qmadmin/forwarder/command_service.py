"""A service that is a command: the request on its standard input, the reply on its standard output."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from qmadmin.forwarder.service import REASON_MAX, Call, Failure, Reply, too_late
from qmcore.message import BODY_MAX

if TYPE_CHECKING:
    from qmcore.message import Message

_CHUNK = 64 * 1024
_ERRORS_KEPT = 4 * REASON_MAX
"""Bytes of the standard error output that are kept: the last ones, of up to four bytes for each character."""

_GRACE_SECONDS = 1.0
"""Between asking a process group to end and making it."""


class CommandService:
    """Runs a command for each request. Exit status 0 is success; its error output tells of a failure.

    The command has a process group of its own, so that the keyboard's interrupt does not reach it, and so that all of
    it can be ended when its time is over.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command = list(command)
        self._environ = dict(environ)

    def call(self, call: Call) -> Reply:
        """Work on a request."""
        request = call.request
        process = self._started(request)
        talk = _Conversation(process, call)
        try:
            status = talk.hold()
        except _TimeIsUpError:
            _end_group(process)
            raise Failure(_told(too_late(call), talk.errors)) from None
        except _TooMuchError:
            _end_group(process)
            raise Failure(f"its output is longer than {BODY_MAX} bytes") from None
        except BaseException:
            _kill_group(process)
            raise
        finally:
            _close_pipes(process)
        if status:
            raise Failure(_told(_named(status), talk.errors))
        return _reply(request, bytes(talk.output))

    def stop_calls(self) -> None:
        """End nothing: whoever calls is interrupted."""

    def close(self) -> None:
        """Let go of nothing."""

    def _started(self, request: Message) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environ | _facts(request),
                start_new_session=True,
            )
        except OSError as error:
            raise Failure(f"command {self._command[0]!r} cannot be started: {error.strerror}") from error


class _TimeIsUpError(Exception):
    """The command has taken too long."""


class _TooMuchError(Exception):
    """The command writes more than a message can hold."""


class _Conversation:
    """Writes a command its input while reading what it says, until it says no more and has ended."""

    def __init__(self, process: subprocess.Popen[bytes], call: Call) -> None:
        self._process = process
        self._unwritten = memoryview(call.request.body or b"")
        self._call = call
        self._selector = selectors.DefaultSelector()
        self.output = bytearray()
        self.errors = bytearray()

    def hold(self) -> int:
        """Return the exit status."""
        with self._selector:
            self._watch(self._process.stdin, selectors.EVENT_WRITE, self._write)
            self._watch(self._process.stdout, selectors.EVENT_READ, self._read_output)
            self._watch(self._process.stderr, selectors.EVENT_READ, self._read_errors)
            while self._selector.get_map():
                for key, _ in self._selector.select(self._left()):
                    key.data(key.fileobj)
        try:
            return self._process.wait(self._left())
        except subprocess.TimeoutExpired:
            raise _TimeIsUpError from None

    def _left(self) -> float | None:
        left = self._call.left()
        if left == math.inf:
            return None
        if left <= 0:
            raise _TimeIsUpError
        return left

    def _watch(self, pipe: IO[bytes] | None, event: int, act: Callable[[IO[bytes]], None]) -> None:
        assert pipe is not None  # noqa: S101 - all three were asked for
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, event, act)

    def _write(self, pipe: IO[bytes]) -> None:
        try:
            written = os.write(pipe.fileno(), self._unwritten[:_CHUNK]) if self._unwritten else 0
        except BlockingIOError:
            return
        except BrokenPipeError:
            # It has read what it wanted, and its exit status says whether all is well.
            written = len(self._unwritten)
        self._unwritten = self._unwritten[written:]
        if not self._unwritten:
            self._shut(pipe)

    def _read_output(self, pipe: IO[bytes]) -> None:
        self.output += self._read(pipe)
        if len(self.output) > BODY_MAX:
            raise _TooMuchError

    def _read_errors(self, pipe: IO[bytes]) -> None:
        self.errors += self._read(pipe)
        del self.errors[:-_ERRORS_KEPT]

    def _read(self, pipe: IO[bytes]) -> bytes:
        try:
            chunk = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return b""
        if not chunk:
            self._shut(pipe)
        return chunk

    def _shut(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        pipe.close()


def _facts(request: Message) -> dict[str, str]:
    """Return what the command finds in its environment about the request."""
    corrid = (request.corrid or b"").decode(errors="backslashreplace").replace("\0", "\\x00")
    return {
        "QM_QUEUE": request.queue,
        "QM_MSGID": request.msgid,
        "QM_CORRID": corrid,
        "QM_PRIORITY": str(request.priority),
        "QM_RETRIES": str(request.retries),
        "QM_TYPE": request.type,
        "QM_URCODE": str(request.urcode),
        "QM_REPLY_QUEUE": request.reply_queue or "",
    }


def _reply(request: Message, output: bytes) -> Reply:
    """Return the reply: text for a request that is text, if it is any."""
    if request.type == "STRING":
        with contextlib.suppress(UnicodeDecodeError):
            return Reply(output.decode())
    return Reply(output)


def _named(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def _told(what: str, errors: bytearray) -> str:
    """Return what went wrong and the end of what the command said about it."""
    said = errors.decode(errors="replace").strip()
    room = REASON_MAX - len(what) - 5
    if len(said) > room:
        said = "..." + said[-room:]
    return f"{what}: {said}" if said else what


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the command and everything in its group: first by asking, then by force."""
    _tell_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    _tell_group(process, signal.SIGKILL)
    process.wait()


def _tell_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
