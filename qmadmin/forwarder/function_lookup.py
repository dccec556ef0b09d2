"""The function in Python that a services file names."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from qmadmin.consumers.function_handler import described
from qmadmin.forwarder import StartError

if TYPE_CHECKING:
    from qmcore.message import Message


def find_function(target: str, name: str) -> Callable[[Message], object]:
    """Import the function that `module:function` names, for service `name`; raise StartError if there is none."""
    module_name, _, path = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        # At the start it is Ctrl-C.
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
