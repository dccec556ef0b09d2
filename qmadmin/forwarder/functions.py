"""Functions in Python as services: how one is found, and what its answer and its exceptions mean."""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from qmadmin.forwarder.errors import StartError
from qmadmin.forwarder.service import Failure, Reply

if TYPE_CHECKING:
    from qmcore.message import Message

_BODIES = bytes, bytearray, memoryview, str


def find_function(target: str, name: str) -> Callable[[Message], object]:
    """Import the function that `module:function` names, for service `name`; StartError where there is none."""
    module_name, _, path = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise StartError(f"service {name!r}: module {module_name!r} cannot be imported: {described(error)}") from error
    try:
        function: Any = operator.attrgetter(path)(module)
    except AttributeError:
        near = get_close_matches(path, dir(module), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise StartError(f"service {name!r}: module {module_name!r} has no function {path!r}{meant}") from None
    if not callable(function):
        raise StartError(f"service {name!r}: {target!r} is a {type(function).__name__}, which cannot be called")
    found: Callable[[Message], object] = function
    return found


def is_coroutine_function(function: Callable[[Message], object]) -> bool:
    """Tell whether what the function returns has to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - it is callable, and the question is how


def reply_of(answer: object) -> Reply:
    """Return the reply that a function gave, or raise Failure for what is none."""
    reply = answer if isinstance(answer, Reply) else Reply(answer)  # type: ignore[arg-type]
    if reply.body is not None and not isinstance(reply.body, _BODIES):
        raise Failure(f"it returned {type(reply.body).__name__}, and not bytes, str, None or a Reply")
    if not isinstance(reply.urcode, int):
        raise Failure(f"its user return code is {type(reply.urcode).__name__}, and not int")
    return reply


def described(error: BaseException) -> str:
    """Return the kind and the text of an exception."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot be shown is still one
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
