"""The record of destructive acts: the device records each of them before it happens, and its outcome.

Everything for which a command of the shell asks confirmation is recorded here, whichever face calls: by a method that
is `destructive`, or a function in an `act`. So is whatever is done to a schedule, which from then on acts by itself. A
face passes the line that it was given with `recorded_as`; a call of a program is recorded with the name of the program.
An act within another one on the same device is a part of that, and has no record of its own.
"""

from __future__ import annotations

import contextlib
import contextvars
import enum
import functools
import inspect
import logging
import os
import pwd
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from qmadmin.console import counted
from qmcore.audit import AuditEntry, kept_text
from qmcore.errors import (
    BadResourceError,
    OperatingSystemError,
    OutcomeUnknownError,
    QueueError,
    SystemFailureError,
    in_other_words,
)

if TYPE_CHECKING:
    from qmadmin.maintenance import Maintenance

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

logger = logging.getLogger("qmadmin.engine")

_NONE: Final[Mapping[str, object]] = {}

_line: contextvars.ContextVar[str] = contextvars.ContextVar("qmadmin_line", default="")
"""The line that a face was given, while it is executed."""

_under_way: contextvars.ContextVar[tuple[Act, ...]] = contextvars.ContextVar("qmadmin_acts", default=())
"""The acts that have begun in this context, the outermost first."""


class Act:
    """A destructive act that has begun."""

    def __init__(self, device_id: str) -> None:
        self.device_id = device_id
        self.is_open = True
        self._failure = ""
        self._told: list[str] = []
        self._parts: list[str] = []

    def tell(self, sentence: str) -> None:
        """Note the outcome of the act."""
        self._told.append(sentence)

    def include(self, part: Act) -> None:
        """Note the outcome of a part, which is used if none is noted for the whole."""
        if part.done:
            self._parts.append(part.done)

    def fail(self, error: BaseException) -> None:
        """Note why the act failed."""
        self._failure = failure(error)

    @property
    def done(self) -> str:
        """What was done, as far as it was noted."""
        return "; ".join(self._told or self._parts)

    @property
    def outcome(self) -> str:
        """The outcome for the record."""
        if self._failure:
            return f"{self._failure}; done before: {self.done}" if self.done else self._failure
        return self.done or "done"


@contextlib.contextmanager
def recorded_as(line: str) -> Iterator[None]:
    """Record the destructive acts in the block with the line that a face was given."""
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)


@contextlib.contextmanager
def act(device: Maintenance, target: str, call: str, arguments: Mapping[str, object] = _NONE) -> Iterator[Act]:
    """Record a destructive act on the device before the block does it, and then its outcome.

    `target` is the object that it concerns; `call`, with the arguments, is what a program has called. The outcome is
    what the block notes, or why it failed. A record without one was cut off or is still running.

    An act that cannot be recorded is not done: raises OperatingSystemError if the device is open for reading only or
    its disk is full, SystemFailureError if the store fails otherwise.
    """
    whole = next((outer for outer in _under_way.get() if outer.is_open and outer.device_id == device.info.id), None)
    entry = _begin(device, target, call, arguments) if whole is None else None
    begun = Act(device.info.id)
    token = _under_way.set((*_under_way.get(), begun))
    try:
        yield begun
    except BaseException as error:
        begun.fail(error)
        raise
    finally:
        _under_way.reset(token)
        begun.is_open = False
        if whole is not None:
            whole.include(begun)
        elif entry is not None:
            _end(device, entry, begun.outcome)


def tell(sentence: str) -> None:
    """Note the outcome of the current act."""
    _under_way.get()[-1].tell(sentence)


def new_entry(target: str, call: str, arguments: Mapping[str, object], at_us: int) -> AuditEntry:
    """Return the record of an act that begins now, with the line of the face or else the call of the program."""
    return entry_of(_command(call, arguments), target, at_us)


def entry_of(command: str, target: str, at_us: int) -> AuditEntry:
    """Return the record of a command that this user gives in this process."""
    return AuditEntry(
        id=0,
        at_us=at_us,
        user=user_name(),
        uid=os.getuid(),
        host=os.uname().nodename,
        pid=os.getpid(),
        command=kept_text(command),
        target=kept_text(target),
    )


def failure(error: BaseException) -> str:
    """Return the outcome of an act that failed."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "interrupted"
    # An error with a hint is a sentence for people; of any other error the class says most.
    named = "" if hasattr(error, "hint") else f"{type(error).__name__}: "
    return f"ERROR: {named}{error}"


# ---- methods ---------------------------------------------------------------------------------------------------------


def destructive(
    target: str, terms: str = "", *, outcome: str = "", counts: str = "message"
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """Record each call of a method of a device or a queue space, but for dry runs.

    `target` is the object of the call, and `terms` the change, with placeholders for arguments. A method that returns a
    number has an `outcome` with a placeholder for that number of what it `counts`; any other may call `tell`. What was
    done before a failure is known from its progress.
    """

    def marked(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        @functools.wraps(method)
        def acting(handle: S, /, *positional: P.args, **named: P.kwargs) -> T:
            call = f"{type(handle).__name__}.{method.__name__}"
            try:
                given = inspect.signature(method).bind(handle, *positional, **named)
            except TypeError as error:
                raise TypeError(f"{call}(): {error}") from None
            values = dict(list(given.arguments.items())[1:])
            if values.get("dry_run"):
                return method(handle, *positional, **named)
            # A queue space has its device; a device keeps the record itself.
            device: Maintenance = vars(handle).get("_device", handle)
            with act(device, _target(handle, target, terms, values), call, values) as begun:
                with _counted(begun, given.arguments, outcome, counts):
                    result = method(*given.args, **given.kwargs)
                if outcome and isinstance(result, int):
                    begun.tell(outcome.format(counted(result, counts)))
                return result

        return acting

    return marked


@contextlib.contextmanager
def _counted(begun: Act, arguments: dict[str, Any], outcome: str, counts: str) -> Iterator[None]:
    """Note how much was done before a failure."""
    progress, reached = arguments.get("progress"), 0

    def note(count: int) -> None:
        nonlocal reached
        reached = count
        if progress is not None:
            progress(count)

    if outcome:
        arguments["progress"] = note
    try:
        yield
    except BaseException:
        if reached:
            begun.tell(outcome.format(counted(reached, counts)))
        raise


def _target(handle: object, target: str, terms: str, values: Mapping[str, object]) -> str:
    """Return the object of a call, in words."""
    words = {name: _moment(value) if name == "when" else _in_words(value) for name, value in values.items()}
    restriction = f", messages where {values['condition']}" if values.get("condition") is not None else ""
    delivery = f", delivery {words['delivery']}" if values.get("delivery") is not None else ""
    becomes = f": {terms.format(**words)}" if terms else ""
    return f"{target.format(handle=handle, **words)}{restriction}{delivery}{becomes}"


def _in_words(value: object) -> str:
    return str(value.value if isinstance(value, enum.Enum) else value)


def _moment(value: object) -> str:
    if value is None:
        return "never"
    if isinstance(value, datetime):
        return f"at {value.isoformat()}"
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return f"{seconds:g} seconds from now" if isinstance(seconds, int | float) else repr(value)


# ---- the record ------------------------------------------------------------------------------------------------------


def _begin(device: Maintenance, target: str, call: str, arguments: Mapping[str, object]) -> AuditEntry:
    device.refuse_readonly()
    try:
        return device.audit(_command(call, arguments), target)
    except OutcomeUnknownError as error:
        # The outcome of recording is unknown; the act itself was certainly not begun.
        raise SystemFailureError(_unrecorded(device, target, error), **error.facts) from error
    except (OperatingSystemError, SystemFailureError, BadResourceError) as error:
        raise in_other_words(error, message=_unrecorded(device, target, error)) from error


def _unrecorded(device: Maintenance, target: str, error: QueueError) -> str:
    return f"nothing was done to {target}, because device {device.path!r} could not record it: {error.message}"


def _end(device: Maintenance, entry: AuditEntry, outcome: str) -> None:
    """Record the outcome; an act that was done does not count as failed because its outcome cannot be recorded."""
    try:
        device.audit_outcome(entry, outcome)
    except QueueError as error:
        logger.warning("the outcome of %r, which is %r, could not be recorded: %s", entry.command, outcome, error)


def _command(name: str, arguments: Mapping[str, object]) -> str:
    """Return the line of a face, or else the call of a program without what is not given and without functions."""
    if line := _line.get():
        return line
    # What a message contains is not for everybody who may read the record.
    given = (
        f"{key}={_shown('...' if key == 'body' and value is not None else value)}"
        for key, value in arguments.items()
        if not callable(value)
    )
    return f"{_program()}: {name}({', '.join(given)})"


def _shown(value: object) -> str:
    """Return an argument for the line, written as people write it."""
    plain = value is None or isinstance(value, str | int | float | datetime | timedelta)
    return repr(value if plain and not isinstance(value, enum.Enum) else _in_words(value))


def _program() -> str:
    """Return the name of the running program."""
    path = Path((getattr(sys, "argv", None) or [""])[0])
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name if name not in ("", "-c", "-m") else "python"


def user_name() -> str:
    """Return the name of the user who runs this process, or the number of a user without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
