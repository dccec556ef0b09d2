"""Why qmspark ends before its work is done."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from qmadmin.console.process import Exit
from qmcore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from types import FrameType


class UnusableError(Exception):
    """Nothing was begun: an argument is wrong, or something is missing. `hint` is what helps to mend it."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class BrokenOffError(InvalidArgumentError):
    """A query has begun, and failed on its way."""


def listen() -> None:
    """Leave on a termination signal as on any error, so that what was begun is cleaned up."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    # A second one is to end it at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(Exit.TERMINATED)
