"""Changes, interrupts, forks and ends of transactions beside the traffic of many sessions of PostgreSQL."""

import contextlib
import logging
import threading
from collections import Counter

import pytest
import sqlalchemy

from qmcore.errors import AbortedError, QueueError
from tests.fix_postgres import database_of
from tests.fix_store import Work, attachment_of, drain, eventually, make_queue, queue_definition


class Traffic:
    """Threads that move messages about until they are stopped; what each has done, and what is there at the end."""

    def __init__(self, space, threads=16, bodies=40):
        self._space = space
        self._stopped = threading.Event()
        self.turns = [0] * threads
        space.enqueue_many("Q", list(map(str, range(bodies))))
        self._bodies = bodies
        self._work = Work(*[lambda at=at: self._move(at) for at in range(threads)])

    def _move(self, at):
        space = self._space
        while not self._stopped.is_set():
            with space.transaction():
                if message := space.dequeue("Q"):
                    space.enqueue("OUT", message.body)
            with space.transaction():
                if message := space.dequeue("OUT"):
                    space.enqueue("Q", message.body)
            self.turns[at] += 1

    def goes_on(self):
        """Wait until each thread has come further."""
        before = list(self.turns)
        eventually(lambda: all(now > then + 1 for now, then in zip(self.turns, before, strict=True)), "all go on")

    def stop(self):
        """Stop all, and prove that nothing is lost or doubled."""
        self._stopped.set()
        assert self._work.results() == [None] * len(self.turns)
        found = drain(self._space) + drain(self._space, "OUT")
        assert sorted(found, key=int) == list(map(str, range(self._bodies)))


@pytest.fixture
def busy(arena):
    """A queue space with traffic on two of its queues."""
    space = arena.space(messages=5_000, pages=10_000, transactions=100, processes=50)
    for name in ("Q", "OUT"):
        make_queue(space, name, retries=1_000)
    return space


def test_definitions_change_beside_traffic_that_loses_nothing(arena, busy):
    traffic = Traffic(busy)
    for turn in range(4):
        make_queue(busy, "NEW")
        busy.enqueue_many("NEW", ["x"] * 20)
        busy.change_queue(queue_definition("Q", retries=1_000 + turn))
        with arena.device.open_space("SPACE") as another:
            another.dequeue("NEW")
        assert busy.purge("NEW", condition="priority > 90") == 0
        busy.destroy_queue("NEW", purge=True, force=True)
        arena.device.extend_space("SPACE", 10)
        other = arena.space(f"OTHER{turn}")
        make_queue(other)
        other.enqueue("Q", b"x")
        other.close()
        arena.device.destroy_space(f"OTHER{turn}", force=True)
        traffic.goes_on()
    traffic.stop()
    arena.check_counters()


def test_whoever_waits_to_be_alone_behind_an_open_transaction_of_an_application_keeps_nobody_waiting(arena, busy):
    engine = sqlalchemy.create_engine(sqlalchemy_url(arena))
    traffic = Traffic(busy, threads=4)
    with engine.connect() as connection:
        busy.enqueue("Q", "40", connection=connection)
        administrator = Work(lambda: make_queue(busy, "NEW"))
        waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND NOT granted"
        for _ in range(3):
            eventually(lambda: arena.sql(waiting), "the administrator waits")
            traffic.goes_on()
        with arena.device.open_space("SPACE") as another:
            assert another.usage("Q")
        connection.rollback()
    assert administrator.results()[0].name == "NEW"
    engine.dispose()
    traffic.stop()


def test_nobody_takes_those_for_dead_who_leave_while_others_look_after_them(arena, busy, caplog):
    stopped = threading.Event()
    places = [arena.another().open_space("SPACE") for _ in range(3)]

    def look(place):
        while not stopped.is_set():
            attachment_of(place).do_housekeeping(now=True)

    def come_and_go():
        for _ in range(6):
            with arena.another() as device, device.open_space("SPACE") as place:
                assert place.usage("Q").messages == 0
        stopped.set()

    with caplog.at_level(logging.WARNING, logger="qmadmin.engine"):
        assert Work(come_and_go, *[lambda place=place: look(place) for place in places]).results() == [None] * 4
    assert caplog.messages == []


def test_a_look_that_the_server_breaks_off_for_others_is_done_again(arena, busy):
    broken_off = ["40001", "40P01"]

    def look(unit):
        if broken_off:
            unit.asked(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{broken_off.pop()}'; END $$")
        return unit.device.info().page_size

    assert arena.volume.read(look) == 4096
    assert broken_off == []


def sqlalchemy_url(arena):
    return sqlalchemy.engine.make_url(database_of(arena.url)[0]).set(drivername="postgresql+psycopg")


def test_a_hundred_threads_take_turns_on_the_sessions_of_a_process(arena, busy):
    def work(at):
        for turn in range(4):
            busy.enqueue("Q", f"{at}-{turn}")
            assert busy.dequeue("Q", wait=30) is not None

    assert Work(*[lambda at=at: work(at) for at in range(100)]).results() == [None] * 100
    assert arena.sessions() <= 32
    assert busy.usage("Q").messages == 0
    arena.check_counters()


FORKING = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
stopped = threading.Event()

def work():
    while not stopped.is_set():
        space.enqueue("Q", b"x")
        # A look finds nothing where others take what it sees, and what they leave has come meanwhile.
        assert space.dequeue("Q", wait=30)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(5):
    space.enqueue("OUT", b"parent")
    if not (pid := os.fork()):
        try:
            with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
                space.enqueue("OUT", b"child")
            os._exit(0)
        except BaseException as error:
            say(repr(error))
            os._exit(1)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stopped.set()
for thread in threads:
    thread.join()
say("done", len(device.open_space("SPACE").queues()))
device.close()
"""


def test_a_fork_in_the_middle_of_work_leaves_the_sessions_to_the_parent(arena, busy, start):
    child = start(FORKING, arena.url)
    child.expect(*["0"] * 5, "done 2")
    child.finish()
    assert Counter(drain(busy, "OUT")) == {"parent": 5, "child": 5}
    assert busy.usage("Q").messages == 0
    arena.check_counters()


INTERRUPTED = """
import gc, random, time
from qmstorage.postgres import sessions
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
space.enqueue("Q", b"warm")
done, begun = 0, 0

def operation():
    with space.transaction():
        message = space.dequeue("Q")
        space.enqueue("OUT", message.body)
    with space.transaction():
        message = space.dequeue("OUT")
        space.enqueue("Q", message.body)
    space.enqueue("Q", b"y")
    assert space.dequeue("Q", corrid="none") is None
    assert len(space.dequeue_many("Q", 1)) == 1

say("ready")
operation()
interrupts = 0
while interrupts < 40:
    try:
        # Again, where the first one comes to a finalizer, in which Python loses it.
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.02), 5)
        while True:
            operation()
    except KeyboardInterrupt:
        interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    # Whatever it was that was interrupted, the next one works; one of the two steps may have been done.
    if space.usage("Q").messages == 0:
        with space.transaction():
            space.enqueue("Q", space.dequeue("OUT").body)
    operation()
space.dequeue("OUT")
gc.collect()
say("done", sum(isinstance(each, sessions.Session) for each in gc.get_objects()))
device.close()
"""
INTERRUPTED = "import signal\nsignal.signal(signal.SIGALRM, signal.default_int_handler)\n" + INTERRUPTED


def test_an_operation_that_is_interrupted_anywhere_leaves_nothing_half_done(arena, busy, start):
    child = start(INTERRUPTED, arena.url)
    child.expect("ready")
    word, sessions = child.line().split()
    assert word == "done"
    assert int(sessions) <= 3
    child.finish()
    arena.check_counters()
    assert arena.sql("SELECT count(*) FROM qm.held") == [(0,)]
    assert arena.sql("SELECT count(*) FROM qm.trans") == [(0,)]
    places = "SELECT message_id FROM qm.ready UNION ALL SELECT message_id FROM qm.due"
    assert not arena.sql(f"SELECT id FROM qm.message EXCEPT ({places})")
    assert not arena.sql(f"({places}) EXCEPT SELECT id FROM qm.message")


def test_transactions_that_others_end_while_they_take_messages_keep_none(arena):
    space = arena.space(messages=5_000, pages=10_000, transactions=100)
    make_queue(space, retries=100_000)
    space.enqueue_many("Q", ["x"] * 60)
    stopped = threading.Event()

    def work():
        ended = 0
        while ended < 12:
            with contextlib.suppress(AbortedError), space.transaction(timeout=1) as transaction:
                for _ in range(4):
                    space.dequeue("Q")
                    space.enqueue("Q", b"new")
                transaction.rollback()
            ended += 1
        return ended

    def end_others():
        while not stopped.is_set():
            arena.clock.advance(0.6)
            attachment_of(space).do_housekeeping(now=True)
            for found in space.transactions():
                with contextlib.suppress(QueueError):
                    space.abort_transaction(found.id)

    administrators = Work(end_others, end_others)
    assert Work(*[work] * 8).results() == [12] * 8
    stopped.set()
    assert administrators.results() == [None, None]
    attachment_of(space).do_housekeeping(now=True)
    assert arena.sql("SELECT count(*) FROM qm.held") == [(0,)]
    assert len(drain(space)) == 60
    arena.check_counters()
