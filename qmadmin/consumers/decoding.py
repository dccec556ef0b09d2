"""Functions as handlers: what they are called with follows from the annotation of their argument."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from qmadmin.body_kinds import reader_of
from qmadmin.consumers import Failure
from qmcore.errors import BodyError, InvalidArgumentError
from qmcore.message import Message


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Return whether what the function returns has to be awaited; decorators may have changed that."""
    # The handler of an application returns what its function does.
    function = getattr(function, "__qmadmin_function__", function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - it is callable, and the question is how


def not_called(function: Callable[..., object]) -> str:
    """Return what a function is whose call alone does nothing, because its result is to be awaited or iterated over."""
    target = inspect.unwrap(function)
    if inspect.isasyncgenfunction(target):
        return "an asynchronous generator function"
    if is_coroutine_function(function):
        return "a coroutine function"
    return "a generator function" if inspect.isgeneratorfunction(function) else ""


def decoded(function: Callable[..., object]) -> Callable[[Message], object]:
    """Return a function of a message: it calls `function` with the message, or with its body as the annotation says.

    The annotation is that of the first argument; without one, and for `Message`, that is the message. A body that is
    not what is annotated is a failure for good. Raises InvalidArgumentError, which names the function, for one that
    cannot be called with one argument, is a generator function, or whose annotation cannot be read.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgumentError(
            f"handler {name_of(function)} is a generator function, and a call would do nothing of it",
            hint="Return one reply, and enqueue further messages with enqueue().",
        )
    kind = _kind_of(function)
    if kind is Message:
        return function
    read = reader_of(kind)
    if is_coroutine_function(function):

        async def awaited(message: Message) -> object:
            result: Any = function(_body_of(message, read))
            return await result

        return awaited
    return lambda message: function(_body_of(message, read))


def _body_of(message: Message, read: Callable[[Message], Any]) -> Any:
    try:
        return read(message)
    except BodyError as error:
        raise Failure(error.message, permanent=True) from error


def _kind_of(function: Callable[..., object]) -> Any:
    """Return the annotation of the argument of a handler; Message if it has none."""
    name = name_of(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # One that is written in C has none.
        return Message
    try:
        signature.bind(None)
    except TypeError:
        raise InvalidArgumentError(
            f"handler {name}{signature} cannot be called with one argument, which is the message",
            hint="Give it one argument; others need defaults.",
        ) from None
    first = next(iter(signature.parameters.values()))
    if first.annotation is inspect.Parameter.empty or first.kind is first.VAR_POSITIONAL:
        return Message
    return _evaluated(first.annotation, function, name)


def _evaluated(annotation: Any, function: Callable[..., object], name: str) -> Any:
    """Return what an annotation means that may be written as a text."""
    if not isinstance(annotation, str):
        return annotation
    target: Any = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    if not inspect.isroutine(target):
        target = type(target).__call__
    known = getattr(sys.modules.get(target.__module__), "__dict__", {})
    try:
        return eval(annotation, {**known}, _closure_of(target))  # noqa: S307 - a text of the program itself, as typing does it
    except Exception as error:  # noqa: BLE001 - the text may be any expression
        if annotation.rpartition(".")[2] == Message.__name__:
            # Imported for the type checker alone.
            return Message
        raise InvalidArgumentError(
            f"the annotation {annotation!r} of handler {name} cannot be read: {error}",
            hint="Define the type in the module, where the handler is declared, and not for the type checker alone.",
        ) from None


def _closure_of(function: Any) -> dict[str, Any]:
    """Return the variables of enclosing functions that have a value."""
    found: dict[str, Any] = {}
    for name, cell in zip(*_cells_of(function), strict=False):
        # What a function declares after this one has none yet.
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _cells_of(function: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    return (function.__code__.co_freevars, function.__closure__ or ()) if inspect.isfunction(function) else ((), ())


def name_of(function: object) -> str:
    """Return what a function is called in a sentence."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def is_same(function: object, other: object) -> bool:
    """Return whether two functions are one that was defined again, as when its module is loaded again."""
    target, its = (inspect.unwrap(each) if callable(each) else each for each in (function, other))
    code, other_code = (getattr(each, "__code__", None) for each in (target, its))
    if code is None or other_code is None or code.co_name == "<lambda>":
        return target is its
    return bool((code.co_filename, code.co_qualname) == (other_code.co_filename, other_code.co_qualname))
