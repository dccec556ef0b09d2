"""Interrupts, as of Ctrl-C, at every line of a module in turn."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any


class InterruptedAt:
    """Raises KeyboardInterrupt, as Ctrl-C would, at the line of a module that is the n-th to be run."""

    def __init__(self, module: ModuleType, line: int) -> None:
        self._file = module.__file__
        self._left = line

    def __enter__(self) -> InterruptedAt:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    @property
    def was_reached(self) -> bool:
        """Whether as many lines were run."""
        return self._left <= 0

    def _call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        # What is interrupted where Python gives something up is told, and goes nowhere.
        called = (frame.f_code.co_name, frame.f_back and frame.f_back.f_code.co_name)
        return self._line if frame.f_code.co_filename == self._file and "__del__" not in called else None

    def _line(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self._line


def at_every_line(module: ModuleType, call: Callable[[], object]) -> Iterator[int]:
    """Make a call again and again, each time interrupted a line later; yield the line after each, until it is done."""
    line, was_reached = 0, True
    while was_reached:
        line += 1
        with InterruptedAt(module, line) as interrupt:
            with contextlib.suppress(KeyboardInterrupt):
                call()
            was_reached = interrupt.was_reached
        yield line
