"""A service that is a command: the request on its standard input, the reply on its standard output."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from qmadmin.console import end_of
from qmadmin.consumers import (
    REASON_MAX,
    Call,
    EncodedBody,
    Failure,
    Handler,
    Reply,
    Unavailable,
    current,
    failure_with,
    too_late,
)
from qmadmin.forwarder import STOPS, StartError
from qmadmin.forwarder.descriptions import CommandDescription
from qmadmin.settings import SECONDS_MAX
from qmcore import times
from qmcore.message import BODY_MAX, Message

FACTS: Final = {
    "QM_QUEUE": "the queue",
    "QM_MSGID": "the identifier of the message",
    "QM_CORRID": "its correlation identifier",
    "QM_PRIORITY": "its priority",
    "QM_RETRIES": "how often it was rolled back before",
    "QM_TYPE": "`STRING` for text, `CARRAY` for bytes, `JSON`",
    "QM_URCODE": "the user return code that came with it",
    "QM_HEADERS": "its headers, as a JSON object",
    "QM_REPLY_QUEUE": "its reply queue",
    "QM_FAILURE_QUEUE": "its failure queue",
    "QM_CLIENT_ID": "the client that sent it",
    "QM_APPKEY": "the application key of its sender",
    "QM_TIMEOUT": "the seconds that the call may take; empty if there is no limit",
    "QM_OUTCOME": "the file to which the command may write more about its outcome, see below",
    "TRACEPARENT": "the span of the call if it is traced, otherwise the header of that name if the message has one",
    "TRACESTATE": "the state of that trace, if it has one",
    "QMCONFIG": "the device",
    "QMSPACE": "the queue space",
    "QM_SPACE": "the queue space, under its older name",
}
"""The variables in the environment of a command, and their meanings."""

_GRACE_SECONDS: Final = 1.0
"""The seconds between SIGTERM and SIGKILL to a process group."""


class CommandService(Handler):
    """Runs a command for each request. Exit status 0 is success; its error output describes a failure.

    The command has a process group of its own, so that Ctrl-C does not reach it, and so that the whole group can be
    ended when its time is over. `directory` is its working directory; None means that of this process.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], directory: str | None = None) -> None:
        self._command = list(command)
        self._environ = dict(environ)
        self._directory = directory
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_stopped = False

    @classmethod
    def of(cls, described: CommandDescription, directory: str, environ: Mapping[str, str]) -> CommandService:
        """Return a service as described; `directory` is that of the services file.

        Raises StartError if the program or the directory does not exist.
        """
        program, *arguments = described.command
        where = None if described.directory is None else str(Path(directory, described.directory))
        if where is not None and not Path(where).is_dir():
            raise StartError(f"service {described.name!r}: there is no directory {described.directory!r}")
        own = dict(environ) | dict(described.environment or {})
        found = _found(program, directory, own)
        if found is None:
            raise StartError(f"service {described.name!r}: command {program!r} was not found, or may not be run")
        return cls([found, *arguments], own, where)

    def call(self, call: Call) -> Reply:
        """Process a request."""
        read, write = os.pipe()
        try:
            try:
                process = self._started(call, write)
            finally:
                os.close(write)
            return self._reply_of(call, process, CommandIO(process, read, call))
        finally:
            os.close(read)

    def stop_calls(self) -> None:
        """End the running commands and all processes that they have started, and start no more."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                if process.returncode is None:
                    _signal_group(process, signal.SIGKILL)

    def _reply_of(self, call: Call, process: subprocess.Popen[bytes], io: CommandIO) -> Reply:
        """Return the reply of the command, which has ended afterwards in any case."""
        try:
            status = io.run()
        except (TimeoutError, subprocess.TimeoutExpired):
            _end_group(process)
            raise Failure(_told(too_late(call), io.errors)) from None
        except Failure:
            _end_group(process)
            raise
        except BaseException:
            _kill_group(process)
            raise
        finally:
            self._forget(process)
        if status and self._is_stopped:
            raise Unavailable(STOPS)
        return _result(call.request, status, io)

    def _started(self, call: Call, outcome: int) -> subprocess.Popen[bytes]:
        try:
            process = self._start(call, outcome)
        except OSError as error:
            told = f"command {self._command[0]!r} cannot be started: {error.strerror}"
            # Only the variables of this message can be too long; the others are the same for every message.
            raise Failure(told) if error.errno == errno.E2BIG else Unavailable(told) from error
        with self._lock:
            self._running.add(process)
            if self._is_stopped:
                _signal_group(process, signal.SIGKILL)
        return process

    def _start(self, call: Call, outcome: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environ | _facts(call) | {"QM_OUTCOME": f"/dev/fd/{outcome}"},
            cwd=self._directory,
            start_new_session=True,
            pass_fds=(outcome,),
        )

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _found(program: str, directory: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program; one with a slash in it is relative to the directory."""
    if os.sep in program:
        path = str(Path(directory, program))
        return os.path.abspath(path) if os.access(path, os.X_OK) and not Path(path).is_dir() else None
    path_found = shutil.which(program, path=environ.get("PATH"))
    return None if path_found is None else os.path.abspath(path_found)


def _facts(call: Call) -> dict[str, str]:
    """Return the environment variables that describe the request."""
    request = call.request
    corrid = (request.corrid or b"").decode(errors="backslashreplace").replace("\0", "\\x00")
    traces = {name.upper(): value for name, value in current.outgoing_headers(request).items()}
    return traces | {
        "QM_QUEUE": request.queue,
        "QM_MSGID": request.msgid,
        "QM_CORRID": corrid,
        "QM_PRIORITY": str(request.priority),
        "QM_RETRIES": str(request.retries),
        "QM_TYPE": request.type,
        "QM_URCODE": str(request.urcode),
        "QM_HEADERS": json.dumps(dict(request.headers)),
        "QM_REPLY_QUEUE": request.reply_queue or "",
        "QM_FAILURE_QUEUE": request.failure_queue or "",
        "QM_CLIENT_ID": request.client_id,
        "QM_APPKEY": str(request.appkey),
        "QM_TIMEOUT": "" if call.seconds == float("inf") else f"{call.seconds:g}",
    }


def _result(request: Message, status: int, io: CommandIO) -> Reply:
    """Return the reply of a command that has ended, or raise how it failed."""
    try:
        outcome = CommandOutcome.parse(bytes(io.outcome))
    except ValueError as error:
        raise Failure(_told(f"its QM_OUTCOME: {error}", io.errors)) from None
    body = _body(request, bytes(io.output))
    if status:
        raise outcome.failure(_told(end_of(status), io.errors), body)
    return outcome.reply(body)


def _body(request: Message, output: bytes) -> EncodedBody:
    """Return the body of the reply: text for a request that is text, if it is valid UTF-8."""
    if request.type == "STRING":
        with contextlib.suppress(UnicodeDecodeError):
            return output.decode()
    return output


def _told(what: str, errors: bytearray) -> str:
    """Return what went wrong, with the end of the error output of the command."""
    said = errors.decode(errors="replace").strip()
    room = REASON_MAX - len(what) - 5
    if len(said) > room:
        said = "..." + said[-room:]
    return f"{what}: {said}" if said else what


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the command and everything in its group: with SIGTERM, then with SIGKILL."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


OUTCOMES: Final = {
    "urcode": "the user return code of the reply, a whole number",
    "type": "the type of the reply, such as `STRING`",
    "header.NAME": "a header of the reply",
    "permanent": "`true`: trying again is of no use, and the message goes to the error queue at once",
    "retry_after": "the seconds until the message, or with `unavailable` its queue, is tried again",
    "unavailable": "`true`: no message can be processed at present; this does not count as a try, and the queue is"
    " paused",
}
"""The names that a command can write, for the manual."""

_HEADER: Final = "header."


@dataclasses.dataclass(slots=True)
class CommandOutcome:
    """What a command wrote about its outcome. The last three only apply to a call that has failed."""

    urcode: int = 0
    type: str | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    permanent: bool = False
    retry_after: float | None = None
    unavailable: bool = False

    @classmethod
    def parse(cls, said: bytes) -> CommandOutcome:
        """Read the lines; ValueError for one that has no meaning."""
        outcome = cls()
        for line in said.decode(errors="replace").splitlines():
            if line.strip():
                outcome._take(line)
        return outcome

    def reply(self, body: EncodedBody) -> Reply:
        """Return the reply of a call that succeeded."""
        return Reply(body, self.urcode, self.type, self.headers or None)

    def failure(self, reason: str, body: EncodedBody) -> Failure | Unavailable:
        """Return the failure of a call that failed."""
        if self.unavailable:
            return Unavailable(reason, retry_after=self.retry_after)
        return failure_with(reason, self.reply(body), permanent=self.permanent, retry_after=self.retry_after)

    def _take(self, line: str) -> None:
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals:
            raise ValueError(f"{line!r} is not a line of the form NAME=VALUE")
        match name:
            case "urcode":
                self.urcode = _whole(value)
            case "type":
                self.type = value
            case "permanent" | "unavailable":
                setattr(self, name, _flag(value))
            case "retry_after":
                self.retry_after = _seconds(value)
            case _ if name.startswith(_HEADER) and name != _HEADER:
                self.headers[name.removeprefix(_HEADER)] = value
            case _:
                raise ValueError(f"{name!r} is none of {', '.join(OUTCOMES)}")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"urcode must be a whole number, got {text!r}") from None


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _seconds(text: str) -> float:
    try:
        seconds = float(times.in_seconds(text))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"retry_after must be seconds, got {text!r}")
    return seconds


# ---- input and output of a running command ---------------------------------------------------------------------------


_CHUNK: Final = 64 * 1024
_ERRORS_KEPT: Final = 4 * REASON_MAX
"""Bytes of the standard error output that are kept: the last ones, of up to four bytes for each character."""

OUTCOME_MAX: Final = 64 * 1024
"""Bytes that a command may write to QM_OUTCOME."""


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
        """Return the exit status.

        Raises TimeoutError or TimeoutExpired if it takes too long, and Failure if it writes more than is accepted.
        """
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
        status = process.wait(self._left())
        while self._read_outcome(self._outcome_pipe):
            pass
        return status

    def _left(self) -> float | None:
        left = self._call.left()
        if left == math.inf:
            return None
        if left <= 0:
            raise TimeoutError
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
            raise Failure(f"its output is longer than {BODY_MAX} bytes")

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
            raise Failure(f"it wrote more than {OUTCOME_MAX} bytes to QM_OUTCOME")
        if not chunk:
            with contextlib.suppress(KeyError, RuntimeError):
                self._selector.unregister(pipe)
        return bool(chunk)

    def _close(self, pipe: int) -> None:
        self._selector.unregister(pipe)
        self._open -= 1
