"""Docstrings, which are what help is made of, also where Python was told to leave them out."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any


def of(function: Callable[..., Any] | None) -> str:
    """Return the docstring of a function without its indentation; from its source where `-OO` has removed it."""
    if function is None:
        return ""
    if function.__doc__ is None and is_left_out():
        return _from_source(function)
    return inspect.cleandoc(function.__doc__ or "")


def is_left_out() -> bool:
    """Return whether this Python has no docstrings (`-OO`, `PYTHONOPTIMIZE=2`)."""
    return sys.flags.optimize > 1


def _from_source(function: Callable[..., Any]) -> str:
    import ast
    import textwrap

    try:
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError):
        # Installed without its source.
        return ""
    assert isinstance(found, ast.FunctionDef)  # noqa: S101 - what else has a handler
    return ast.get_docstring(found) or ""
