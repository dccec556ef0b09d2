"""Sessions of PostgreSQL that have forgotten their statements, waited in vain, were interrupted or are lost."""

import contextlib
import ctypes
import mmap
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from qmadmin.opening import open_device
from qmcore.errors import BadQueueError, BadResourceError, SystemFailureError
from qmstorage.postgres.connection_timeouts import WatchedConnection
from qmstorage.postgres.pipeline import Pipeline
from tests.fix_store import Work, attachment_of
from tests.fix_storm import new_session, session_of
from tests.proxy import Proxy


@pytest.fixture
def space(known_space):
    return known_space


def test_statements_that_the_driver_threw_away_are_made_again(space, arena):
    session = session_of(arena.volume)
    session.connection.execute("DEALLOCATE ALL")
    msgid = space.enqueue("Q", b"x")
    session.connection.execute("DEALLOCATE ALL")
    assert space.dequeue("Q").msgid == msgid


def test_of_a_queue_space_that_is_gone_nothing_is_left_behind(space, arena):
    new_session(arena.volume)
    with contextlib.closing(open_device(arena.url)) as device:
        device.destroy_space("SPACE", force=True)
    for act in (lambda: space.enqueue("Q", b"x"), lambda: space.dequeue("Q")):
        with pytest.raises(BadResourceError, match="no queue space 'SPACE'"):
            act()
    assert arena.sql("SELECT count(*) FROM qm.counter") == [(0,)]


def test_what_the_driver_throws_away_at_times_may_be_made_again_beside_what_was_made_since(space, arena):
    """After a rollback it throws away all that the session has prepared, ours too, and we learn of it later."""
    with space.transaction():
        # From here on the next one has a number, and only asks whether there is room.
        space.enqueue("R", b"x")
    for _ in range(7):
        # So often that the driver prepares what it needs for that.
        space.enqueue_many("R", [b"x", b"x"])
    with pytest.raises(BadQueueError):
        space.enqueue("NONE", b"x")
    for _ in range(2):
        with space.transaction():
            space.enqueue("Q", b"x")
        space.enqueue("Q", b"x")
    assert space.usage("Q").messages == 4


def test_a_session_that_waited_in_vain_for_the_lock_works_on(space, arena):
    """What it was sent behind that was not looked at, and not prepared."""
    new_session(arena.volume)
    with space.transaction():
        space.enqueue_many("Q", [b"x", b"x"])
    with space.transaction():
        # Its row among the counters is known now; what an arrival needs besides is not prepared yet.
        space.dequeue("Q")
    session = session_of(arena.volume)
    session.run("SET lock_timeout = 1")
    with contextlib.closing(open_device(arena.url)) as device:
        other = attachment_of(device.open_space("SPACE")).volume
        with other.quiesced(5), pytest.raises(SystemFailureError, match="locked"):
            space.enqueue("Q", b"x")
    session.run("RESET lock_timeout")
    for _ in range(3):
        space.enqueue("Q", b"x")
    assert session_of(arena.volume) is session
    assert space.usage("Q").messages == 4


@pytest.mark.parametrize("in_transaction", [False, True])
def test_no_message_goes_while_others_change_what_is_there(space, arena, in_transaction):
    space.enqueue("Q", b"x")
    session = session_of(arena.volume)
    session.run("SET lock_timeout = 1")

    def take():
        if not in_transaction:
            return space.dequeue("Q")
        with space.transaction() as transaction:
            try:
                return space.dequeue("Q")
            finally:
                transaction.rollback()

    with contextlib.closing(open_device(arena.url)) as device:
        other = attachment_of(device.open_space("SPACE")).volume
        with other.quiesced(5), pytest.raises(SystemFailureError, match="locked"):
            take()
    session.run("RESET lock_timeout")
    attachment_of(space).do_housekeeping(now=True)
    assert space.dequeue("Q").body == b"x"


def test_a_session_that_an_interrupt_has_left_in_the_mode_of_a_pipeline_is_not_used_again(space, arena):
    session = session_of(arena.volume)
    with arena.volume.session(fresh=False) as taken:
        assert taken is session
        session.connection.pgconn.enter_pipeline_mode()
    assert session_of(arena.volume) is not session
    with contextlib.closing(open_device(arena.url)) as device:
        attachment_of(device.open_space("SPACE")).volume.quiesced(5)
    assert space.enqueue("Q", b"x")


def test_a_session_keeps_nothing_of_the_messages_that_it_has_read(space):
    def resident():
        ctypes.CDLL(None).malloc_trim(0)
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE

    space.enqueue_many("Q", [bytes(100_000)] * 70)
    before = resident()
    assert len(space.dequeue_many("Q", 70)) == 70
    space.enqueue("Q", b"x")
    assert resident() - before < 3_500_000


def test_a_message_that_cannot_be_read_stays(space, arena):
    space.enqueue("Q", b"x", headers={"a": "b"})
    arena.by_hand("UPDATE message SET headers = 'no JSON'")
    with pytest.raises(SystemFailureError, match="is damaged"):
        space.dequeue("Q")
    assert space.usage("Q").messages == 1


def test_a_session_that_is_interrupted_before_it_says_anything_is_as_it_was(space, arena):
    session = session_of(arena.volume)

    class Interrupted:
        """The session, where Ctrl-C comes as soon as it has begun to collect what it sends."""

        def __getattr__(self, name):
            return getattr(session.connection.pgconn, name)

        def enter_pipeline_mode(self):
            session.connection.pgconn.enter_pipeline_mode()
            raise KeyboardInterrupt

    its = session.connection
    pipeline = Pipeline(SimpleNamespace(pgconn=Interrupted(), adapters=its.adapters, connection=its))
    with pytest.raises(KeyboardInterrupt), pipeline:
        pass
    assert session.run("SELECT 1") == [(1,)]


def test_a_session_that_a_damaged_answer_has_ended_is_lost(space, arena):
    """The library gives nothing for it any more, and does not say that it has closed it."""
    host, port = re.search(r"@([^:/]+):(\d+)/", arena.url).groups()
    with contextlib.closing(Noise((host, int(port)))) as noise:
        url = arena.url.replace(f"@{host}:{port}/", f"@127.0.0.1:{noise.port}/")
        with contextlib.closing(open_device(url, clock=arena.clock)) as device:
            far = device.open_space("SPACE")
            far.enqueue("Q", b"x")
            noise.word = b"qm_arrive"
            (done,) = Work(lambda: far.enqueue("Q", b"x")).results()
    assert [info.msgid for info in space.messages("Q")][-1] == done
    assert space.usage("Q").messages == 2


class Noise(Proxy):
    """A network that answers once, where a client says the word, with what no server says."""

    word = b""

    def pass_on(self, end):
        # Of two ends that the network has for one look, the first one may have closed both.
        if self.word and end.fileno() != -1 and self.word in end.recv(65536, socket.MSG_PEEK):
            self.word = b""
            end.sendall(b"\xff" * 64)
        else:
            super().pass_on(end)


def test_a_session_sees_what_was_committed_before_its_lock_whatever_the_database_prefers(arena, space):
    """In any other isolation it would see what there was when it began to wait for the lock."""
    database = arena.looking.info.dbname
    arena.looking.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")
    try:
        new_session(arena.volume)
        space.enqueue("Q", b"x")
        session = session_of(arena.volume)
        assert session.run("SHOW transaction_isolation") == [("read committed",)]
    finally:
        arena.looking.execute(f"ALTER DATABASE {database} RESET default_transaction_isolation")


def test_a_session_that_was_interrupted_asks_again_for_the_last_number(space, arena, monkeypatch):
    """What it did not wait for may have been done: it must not be taken for what is done next."""
    session = session_of(arena.volume)
    wait = WatchedConnection.wait

    def interrupted(self, gen, *arguments, **options):
        wait(self, gen, *arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(WatchedConnection, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        space.enqueue("Q", b"x")
    monkeypatch.undo()
    assert session.numbers == {}
    assert space.usage("Q").messages == 1
    second = space.enqueue("Q", b"y")
    assert [f"{number & (2**48 - 1):016x}" for number in session.numbers.values()] == [second[16:]]
