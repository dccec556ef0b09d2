"""The sessions that a process has on PostgreSQL."""

import contextlib
import gc
import sys
import threading
import weakref

import pytest

from qmstorage.postgres import sessions
from tests.fix_store import Work, eventually, make_queue


class InterruptedAt:
    """Raises KeyboardInterrupt, as Ctrl-C would, at the line of a module that is the n-th to be run."""

    def __init__(self, module, line):
        self._file = module.__file__
        self._left = line

    def __enter__(self):
        sys.settrace(self._call)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    @property
    def was_reached(self):
        """Whether as many lines were run."""
        return self._left <= 0

    def _call(self, frame, event, _argument):
        return self._line if frame.f_code.co_filename == self._file else None

    def _line(self, _frame, event, _argument):
        if event == "line":
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self._line


# Of a connection that nobody has got yet, the driver says that nobody has closed it.
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "new"])
def test_no_session_stays_open_unused_wherever_a_call_is_interrupted(arena, fresh):
    space = arena.space()
    make_queue(space)
    space.enqueue("Q", b"before")
    mine = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    usual = arena.sql(mine)
    line, was_reached = 0, True
    while was_reached:
        line += 1
        if fresh:
            arena.volume._sessions._close_idle()
        with InterruptedAt(sessions, line) as interrupt:
            with contextlib.suppress(KeyboardInterrupt):
                space.peek("Q")
            was_reached = interrupt.was_reached
        space.peek("Q")
        gc.collect()
        eventually(lambda: arena.sql(mine) == usual, f"the end of the session, interrupted at line {line}")
    assert line > 10


@pytest.mark.parametrize("module", [sessions, threading, weakref], ids=lambda module: module.__name__)
def test_everybody_goes_on_wherever_a_call_is_interrupted(arena, module):
    """Also in the middle of what the standard library does for it in Python, which must not leave a lock taken.

    In a `with` of a real lock no signal comes between the lock and the block, but this would.
    """
    space = arena.space()
    make_queue(space)
    line, was_reached = 0, True
    while was_reached:
        line += 1
        with InterruptedAt(module, line) as interrupt:
            with contextlib.suppress(KeyboardInterrupt):
                space.dequeue("Q")
            was_reached = interrupt.was_reached
        assert Work(lambda: space.dequeue("Q")).results() == [None]
    # Between two steps one may be lost; each of the steps was interrupted once for every time that it is gone.
    assert arena.volume._sessions._rooms.qsize() >= sessions.MOST // 2
