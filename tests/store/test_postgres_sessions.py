"""The sessions that a process has on PostgreSQL."""

import contextlib
import gc
import threading

import pytest

from qmadmin.opening import open_device
from qmcore.acts import waiting
from qmcore.findings import Severity
from qmstorage.postgres import connection_timeouts, keys, sessions
from qmstorage.postgres.connection_timeouts import WatchedConnection
from tests.fix_postgres import but_for_this_server
from tests.fix_store import Work, attachment_of, eventually, make_queue, waiting_for
from tests.fix_storm import new_session
from tests.interrupts import at_every_line


# Of a connection that nobody has got yet, the driver says that nobody has closed it.
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "new"])
def test_no_session_stays_open_unused_wherever_a_call_is_interrupted(arena, fresh):
    space = arena.space()
    make_queue(space)
    space.enqueue("Q", b"before")
    # Those of the test before may be about to end.
    eventually(lambda: arena.sessions() == 1, "one session")

    def look():
        if fresh:
            new_session(arena.volume)
        space.peek("Q")

    for line in at_every_line(sessions, look):
        space.peek("Q")
        gc.collect()
        eventually(lambda: arena.sessions() == 1, f"the end of the session, interrupted at line {line}")
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
    with contextlib.ExitStack() as stack:
        for _ in range(sessions.MOST - 3):
            stack.enter_context(arena.volume.session(fresh=False))


def test_a_process_is_present_once_although_the_start_of_that_was_interrupted(arena, monkeypatch):
    """Two of them would take each other's session on the server for one that was left over, and end it for ever."""
    start, interrupts = threading.Thread.start, [KeyboardInterrupt]

    def interrupted(thread):
        start(thread)
        if thread.name == "qmadmin-liveness" and interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    before = present()
    with pytest.raises(KeyboardInterrupt):
        arena.space()
    make_queue(arena.device.open_space("SPACE"))
    eventually(lambda: len(present() - before) == 1, "one is left")


def present():
    """Return the threads that keep this process present on servers."""
    return {thread for thread in threading.enumerate() if thread.name == "qmadmin-liveness"}


@pytest.mark.parametrize(
    "setting",
    [
        "client_encoding=LATIN1",
        "client_encoding=SQL_ASCII",
        "standard_conforming_strings=off",
        "datestyle=German",
        "statement_timeout=1",
        "bytea_output=escape",
    ],
)
def test_what_a_role_is_set_up_for_changes_nothing(arena, setting):
    space = arena.space()
    make_queue(space)
    with open_device(f"{arena.url}&options=-c%20{setting.replace('=', '%3D')}") as device:
        other = device.open_space("SPACE")
        for text in ("5 €", "\\x"):
            other.enqueue("Q", text, reply_queue="q€", headers={"ü": "\\"})
            message = other.dequeue("Q")
            assert (message.text, message.reply_queue, message.headers) == (text, "q€", {"ü": "\\"})
        with attachment_of(other).volume.session(fresh=True) as session:
            assert session.run("SHOW statement_timeout") == [("0",)]
        found = but_for_this_server(device.check())
        assert [finding.sentence for finding in found if finding.severity is Severity.ERROR] == []


def test_a_limit_that_ends_what_a_session_begins_with_does_not_keep_it_from_beginning(arena, monkeypatch):
    """On a busy server the first statement may take longer than a role allows."""
    arena.space()
    execute, slow = WatchedConnection.execute, [True, True]

    def executing(connection, query, *arguments, **more):
        if "SET statement_timeout = 0" in str(query) and slow:
            slow.pop()
            query = f"SELECT pg_sleep(60); {query}"
        return execute(connection, query, *arguments, **more)

    monkeypatch.setattr(WatchedConnection, "execute", executing)
    with open_device(f"{arena.url}&options=-c%20statement_timeout%3D1") as device:
        assert [space.name for space in device.spaces()] == ["SPACE"]
    assert slow == []


def test_a_wait_goes_on_after_a_lock_for_which_a_try_of_it_has_given_up(arena, monkeypatch, caplog):
    space = arena.space()
    make_queue(space)
    space.enqueue("Q", b"known")
    assert space.dequeue("Q")
    given_up = []
    monkeypatch.setattr(waiting, "pause", lambda volume, seconds: given_up.append(seconds))
    new_session(arena.volume).run("SET lock_timeout = 1")
    wait = Work(lambda: space.dequeue("Q", wait=30).body)
    eventually(lambda: waiting_for(arena.url) == 1, "it waits")
    ((queue_id,),) = arena.sql("SELECT id FROM qm.queue WHERE name = 'Q'")
    channel = keys.channel(arena.schema, queue_id)

    def is_given_up():
        arena.sql(f"SELECT pg_notify('{channel}', '')")
        return given_up

    with connection_timeouts.connected(arena.volume.address) as other, other.transaction():
        other.execute(f"LOCK TABLE {arena.schema}.ready")
        eventually(is_given_up, "a try has given up")
    with open_device(arena.url) as device:
        device.open_space("SPACE").enqueue("Q", b"late")
    assert wait.results() == [b"late"]
    assert [line for line in caplog.messages if "a wait goes on: " in line and "stayed locked by others" in line]
