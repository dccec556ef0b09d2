"""How far the work has come."""

from __future__ import annotations

from collections.abc import Callable

from qmadmin.transfer.workers import Told

Progress = Callable[[str, int, int], None]
"""Is told at which step the work is, such as `Importing`, and how many messages of how many are done with in it."""


def tell_no_one(_step: str, _done: int, _total: int) -> None:
    """Be told, and do nothing about it."""


def told_by(progress: Progress, step: str, messages: int, tasks: int) -> Told:
    """Begin a step in which so many messages are worked on in so many tasks; return who is told how many have ended."""
    progress(step, 0, messages)
    return lambda ended: progress(step, messages * ended // max(tasks, 1), messages)
