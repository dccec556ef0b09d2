"""A service that is a Python callable, called in the forwarder's own thread and inside its transaction."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import operator
import signal
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from qmadmin.forwarder.errors import StartError
from qmadmin.forwarder.service import Call, Failure, Reply, too_late
from qmadmin.forwarder.stop import StopNow

if TYPE_CHECKING:
    from types import FrameType

    from qmcore.message import Message

_BODIES = bytes, bytearray, memoryview, str


@dataclasses.dataclass(frozen=True, slots=True)
class PythonService:
    """Calls `function` with the message.

    It returns the reply's body as bytes or str, a `Reply`, or None for a reply of zero length. Whatever it raises is
    a failure, also when it would end the process; but an interrupt stays one.
    """

    function: Callable[[Message], object]

    def call(self, call: Call) -> Reply:
        """Work on a request."""
        try:
            answer = _call_within(call.seconds, self.function, call.request)
        except _TimeIsUp:
            raise Failure(too_late(call)) from None
        except (Failure, KeyboardInterrupt, StopNow):
            raise
        except BaseException as error:
            raise Failure(_described(error)) from error
        return _reply_of(answer)

    def stop_calls(self) -> None:
        """End nothing: whoever calls is interrupted."""

    def close(self) -> None:
        """Let go of nothing."""


def find_function(target: str, name: str) -> Callable[[Message], object]:
    """Import the function that `module:function` names, for service `name`."""
    module_name, _, path = target.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise StartError(f"service {name!r}: python must be of the form 'module:function', got {target!r}")
    try:
        module = importlib.import_module(module_name)
    except (KeyboardInterrupt, StopNow):
        raise
    except BaseException as error:
        raise StartError(f"service {name!r}: module {module_name!r} cannot be imported: {_described(error)}") from error
    try:
        function = operator.attrgetter(path)(module)
    except AttributeError:
        near = get_close_matches(path, dir(module), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise StartError(f"service {name!r}: module {module_name!r} has no function {path!r}{meant}") from None
    return _checked(function, target, name)


def _checked(function: Any, target: str, name: str) -> Callable[[Message], object]:
    if not callable(function):
        raise StartError(f"service {name!r}: {target!r} is a {type(function).__name__}, which cannot be called")
    if inspect.iscoroutinefunction(function):
        raise StartError(f"service {name!r}: {target!r} is an async function, which this release cannot call")
    checked: Callable[[Message], object] = function
    return checked


class _TimeIsUp(BaseException):
    """The call has taken too long. No Exception, because a service may catch those for reasons of its own."""


def _call_within(seconds: float, function: Callable[[Message], object], request: Message) -> object:
    if seconds == math.inf:
        return function(request)
    running = True

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if running:
            raise _TimeIsUp

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    try:
        return function(request)
    finally:
        # The alarm that goes off right here is one that the call was too late for; after this line none has effect.
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)


def _reply_of(answer: object) -> Reply:
    reply = answer if isinstance(answer, Reply) else Reply(answer)  # type: ignore[arg-type]
    if reply.body is not None and not isinstance(reply.body, _BODIES):
        raise Failure(f"it returned {type(reply.body).__name__}, and not bytes, str, None or a Reply")
    if not isinstance(reply.urcode, int):
        raise Failure(f"its user return code is {type(reply.urcode).__name__}, and not int")
    return reply


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot be shown is still one
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
