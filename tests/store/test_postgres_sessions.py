"""The sessions that a process has on PostgreSQL."""

import gc
import threading

import pytest

from qmstorage.postgres import sessions
from tests.fix_store import Work, eventually, make_queue
from tests.interrupts import at_every_line


# Of a connection that nobody has got yet, the driver says that nobody has closed it.
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "new"])
def test_no_session_stays_open_unused_wherever_a_call_is_interrupted(arena, fresh):
    space = arena.space()
    make_queue(space)
    space.enqueue("Q", b"before")
    mine = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    usual = arena.sql(mine)

    def look():
        if fresh:
            arena.volume._sessions._close_idle()
        space.peek("Q")

    for line in at_every_line(sessions, look):
        space.peek("Q")
        gc.collect()
        eventually(lambda: arena.sql(mine) == usual, f"the end of the session, interrupted at line {line}")
    assert line > 10


@pytest.mark.parametrize("module", [sessions, threading], ids=lambda module: module.__name__)
def test_everybody_goes_on_wherever_a_call_is_interrupted(arena, module):
    """Also in the middle of what the standard library does for it in Python, which must not leave a lock taken.

    In a `with` of a real lock no signal comes between the lock and the block, but this would.
    """
    space = arena.space()
    make_queue(space)
    for _ in at_every_line(module, lambda: space.dequeue("Q")):
        assert Work(lambda: space.dequeue("Q")).results() == [None]
    # Each line was interrupted once, and three of them lie between two steps.
    assert arena.volume._sessions._rooms.qsize() >= sessions.MOST - 3


def test_a_process_is_present_once_although_the_start_of_that_was_interrupted(arena, monkeypatch):
    """Two of them would take each other's session on the server for one that was left over, and end it for ever."""
    start, interrupts = threading.Thread.start, [KeyboardInterrupt]

    def interrupted(thread):
        start(thread)
        if thread.name == "qmadmin-presence" and interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    before = present()
    with pytest.raises(KeyboardInterrupt):
        arena.space()
    make_queue(arena.device.open_space("SPACE"))
    eventually(lambda: len(present() - before) == 1, "one is left")


def present():
    """Return the threads that keep this process present on servers."""
    return {thread for thread in threading.enumerate() if thread.name == "qmadmin-presence"}
