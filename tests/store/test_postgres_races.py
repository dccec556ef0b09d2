"""Many sessions of PostgreSQL on one queue: none waits for another, and nothing is lost, doubled or miscounted."""

import contextlib
import re
import threading
from collections import Counter

import psycopg
import pytest
import sqlalchemy

from qmcore.errors import AbortedError, NoSpaceError, QueueError
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import EnqueueControl
from qmcore.queue import Delivery
from qmcore.selection import FIRST_CHOICE
from tests.fix_postgres import database_of
from tests.fix_store import Store, Work, drain, eventually, make_queue, queue_definition

LOCK_TIMEOUT_MS = 3_000
"""Whoever waits for a lock for so long fails; what they would wait for here lasts until they are done."""

SELECTIONS = {
    "the first": {},
    "by corrid": {"corrid": "c"},
    "by pattern": {"corrid_like": "c%"},
    "by condition": {"condition": "priority > 10"},
}


class Arena(Store):
    """A device on PostgreSQL, and what its tables say."""

    def __init__(self, url, clock):
        super().__init__("postgres", url, clock)
        self.url = url
        database, self.schema = database_of(url)
        self.looking = psycopg.connect(database, autocommit=True)

    @property
    def volume(self):
        return self.spaces[0]._attachment.volume

    def sql(self, text):
        return self.looking.execute(text.replace("qm.", f"{self.schema}.")).fetchall()

    def open_sessions(self, count):
        """Open so many sessions at once, each of which fails when it waits for others."""
        gate = threading.Barrier(count)
        assert Work(*[lambda: self.volume.read(lambda _: gate.wait(30))] * count).results()
        for session in self.volume._sessions._all:
            session.run(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")

    def check_counters(self):
        """Prove that what is counted is what is there, in each queue and in the queue space."""
        for schema in ("qm", f"{self.schema}_memory"):
            counted, stored = (
                {queue: rest for queue, *rest in self.sql(f"SELECT queue_id, {what} FROM {table} GROUP BY queue_id")}
                for what, table in (
                    ("sum(messages), sum(pages), sum(size)", f"{schema}.counter"),
                    ("count(*), sum(pages), sum(size)", f"{schema}.message"),
                )
            )
            whole = counted.pop(0, [0, 0, 0])
            assert {queue: rest for queue, rest in counted.items() if rest != [0, 0, 0]} == stored
            assert whole == [sum(part) for part in zip([0, 0, 0], *stored.values(), strict=True)]

    def deadlocks(self):
        """Return how many deadlocks the server has found in the database; all sessions but ours have ended."""
        others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        eventually(lambda: not self.sql(others), "the sessions end")
        return self.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]


@pytest.fixture
def arena(database_url, clock):
    """A device whose test fails where the server had to break a deadlock."""
    made = Arena(database_url, clock)
    before = made.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]
    yield made
    made.close()
    found = made.deadlocks()
    made.looking.close()
    assert found == before


def fill(space, queue="Q", count=100, **control):
    return space.enqueue_many(queue, [str(at) for at in range(count)], EnqueueControl(corrid=b"c", **control))


class Recording:
    """A cursor that notes what it runs."""

    def __init__(self, cursor):
        self._cursor = cursor
        self.texts = []

    def execute(self, text, values=None, /):
        self.texts.append(text)
        return self._cursor.execute(text, values)

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def __iter__(self):
        return iter(self._cursor)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("many", [False, True])
def test_a_dequeue_touches_the_ready_messages_in_one_statement(arena, selection, many):
    space = arena.space()
    make_queue(space)
    fill(space)
    (session,) = arena.volume._sessions._idle
    recording = session.cursor = Recording(session.cursor)
    how = SELECTIONS[selection]
    assert space.dequeue_many("Q", 5, **how) if many else space.dequeue("Q", **how)
    (touching,) = [text for text in recording.texts if re.search(r"\bready\b", text)]
    assert touching.startswith("DELETE")
    assert "SKIP LOCKED" in touching


@pytest.mark.parametrize("selection", SELECTIONS)
def test_who_holds_a_message_in_an_open_unit_keeps_nobody_waiting(arena, selection):
    space, how = arena.space(memory=1_000_000), SELECTIONS[selection]
    make_queue(space, retries=5)
    fill(space, count=60)
    fill(space, count=60, delivery=Delivery.NONPERSIST)
    arena.open_sessions(10)
    inside, go_on = threading.Event(), threading.Event()

    def hold(unit):
        queue = space.queue("Q")
        for store in (unit, unit.memory(queue.space_id)):
            assert store.take(space._attachment.opened.space, queue.id, FIRST_CHOICE)
        inside.set()
        assert go_on.wait(30)
        raise ZeroDivisionError

    def one_by_one():
        return drain(space, **how)

    def several():
        found = []
        while messages := space.dequeue_many("Q", 3, **how):
            found += [message.text for message in messages]
        return found

    def in_transactions():
        found = []
        while True:
            with space.transaction():
                message = space.dequeue("Q", **how)
                if message is None:
                    return found
                found.append(message.text)

    holder = Work(lambda: arena.volume.write(hold, concurrent=True))
    assert inside.wait(30)
    found = Work(*[one_by_one, several, in_transactions] * 3).results()
    go_on.set()
    assert isinstance(holder.results()[0], ZeroDivisionError)
    assert Counter(text for texts in found for text in texts) == Counter([*map(str, range(1, 60))] * 2)
    assert drain(space) == ["0", "0"]
    arena.check_counters()


def test_thirty_two_consumers_take_each_message_once_and_all_get_some(arena):
    space = arena.space(messages=5_000, pages=10_000)
    make_queue(space)
    fill(space, count=960)
    arena.open_sessions(32)
    found = Work(*[lambda: drain(space)] * 32).results()
    assert Counter(text for texts in found for text in texts) == Counter(map(str, range(960)))
    assert min(map(len, found)) > 0
    arena.check_counters()


CONSUMER = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
found = [[] for _ in range(4)]
gate = threading.Barrier(5)

def consume(at):
    gate.wait()
    while messages := space.dequeue_many("Q", 1 + at, **[{}, {"corrid": "c"}, {"condition": "priority > 1"}, {}][at]):
        found[at] += [message.text for message in messages]

threads = [threading.Thread(target=consume, args=(at,)) for at in range(4)]
for thread in threads:
    thread.start()
say("ready")
heard()
gate.wait()
for thread in threads:
    thread.join()
for mine in found:
    say(" ".join(mine))
device.close()
"""


def test_eight_processes_of_four_threads_take_each_message_once(arena, start):
    space = arena.space(messages=5_000, pages=10_000, processes=20, memory=4_000_000)
    make_queue(space)
    fill(space, count=600)
    fill(space, count=200, delivery=Delivery.NONPERSIST)
    children = [start(CONSUMER, arena.url) for _ in range(8)]
    for child in children:
        child.expect("ready")
    for child in children:
        child.say()
    found = Counter(text for child in children for _ in range(4) for text in child.line().split())
    assert found == Counter(map(str, range(600))) + Counter(map(str, range(200)))
    for child in children:
        child.finish()
    arena.check_counters()
    assert arena.sql("SELECT max(slot) <= 40, count(*) <= 2 * 41 FROM qm.counter") == [(True, True)]


def test_groups_stay_whole_while_others_take_of_the_same_queue(arena):
    space = arena.space(transactions=50)
    make_queue(space, grouping=True, retries=100)
    for group in range(24):
        # Of half of the groups a message expires in the middle of it all.
        lifetime = 5_000_000 if group % 2 else None
        space.enqueue_many("Q", [f"{group}-{at}" for at in range(5)], EnqueueControl(lifetime=lifetime))
    arena.open_sessions(12)

    def consume(last):
        found = []
        while True:
            with space.transaction() as transaction:
                messages = space.dequeue_many("Q", 9)
                if not messages:
                    return found
                if messages[0].retries < last:
                    transaction.rollback()
                else:
                    found.append([message.text for message in messages])
            if len(found) == 1:
                arena.clock.advance(6)

    found = [texts for each in Work(*[lambda at=at: consume(at % 3) for at in range(12)]).results() for texts in each]
    groups = [{text.split("-")[0] for text in texts} for texts in found]
    assert all(len(group) == 1 for group in groups)
    assert all(len(texts) == 5 for texts in found)
    whole = [group.pop() for group in groups]
    assert len(set(whole)) == len(whole)
    assert {str(group) for group in range(0, 24, 2)} <= set(whole)
    usage = space.usage("Q")
    assert usage.messages == 0
    assert usage.expired == 5 * (24 - len(whole))
    arena.check_counters()


def test_what_is_due_and_what_expires_is_released_once_by_all_at_the_same_time(arena):
    space = arena.space(messages=5_000, pages=10_000, error_queue="ERRORS", memory=4_000_000)
    make_queue(space, "Q")
    make_queue(space, "KEPT", keep_expired=True)
    make_queue(space, "ERRORS")
    for delivery in (Delivery.PERSIST, Delivery.NONPERSIST):
        for at in range(4):
            fill(space, "Q", 75, delay=1_000_000 + at, delivery=delivery)
            fill(space, "Q", 75, lifetime=1_000_000 + at, delivery=delivery)
            fill(space, "Q", 25, delay=2_000_000 + at, lifetime=1_000_000 + at, delivery=delivery)
        fill(space, "KEPT", 100, lifetime=1_000_000, delivery=delivery)
    arena.open_sessions(16)
    arena.clock.advance(5)
    found = Work(*[lambda: drain(space), lambda: drain(space, "KEPT")] * 8).results()
    assert Counter(text for texts in found for text in texts) == Counter([*map(str, range(75))] * 8)
    assert space.usage("Q").expired == 2 * 4 * 100
    assert space.usage("Q").messages == space.usage("KEPT").messages == 0
    assert space.usage("ERRORS").ready == 200
    arena.check_counters()
    assert arena.sql("SELECT count(*) FROM qm.expiring") == [(0,)]


def attempts(act, count):
    """Do something a number of times and return how often it was done, not refused for want of room."""
    done = 0
    for _ in range(count):
        with contextlib.suppress(NoSpaceError):
            act()
            done += 1
    return done


@pytest.mark.parametrize("resource", ["messages", "pages"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_limit_is_overshot_by_no_more_than_a_batch_of_each_other_session(arena, resource, batch):
    space = arena.space(**{resource: 60})
    make_queue(space)
    limits = space.definition
    arena.open_sessions(12)
    act = lambda: space.enqueue_many("Q", ["x"] * batch)  # noqa: E731 - the same in all threads
    done = batch * sum(Work(*[lambda: attempts(act, 10)] * 12).results())
    limit = (limits.messages if resource == "messages" else limits.capacity) // batch * batch
    assert limit <= done <= limit + 11 * batch
    assert space.usage("Q").messages == done
    arena.check_counters()
    with pytest.raises(NoSpaceError):
        act()


def test_the_limit_of_transactions_is_overshot_by_no_more_than_one_of_each_other_session(arena):
    space = arena.space(transactions=5)
    make_queue(space)
    fill(space, count=50)
    arena.open_sessions(12)
    held, go_on = threading.Barrier(12), threading.Event()

    def hold():
        with space.transaction():
            done = attempts(lambda: space.dequeue("Q"), 1)
            held.wait(30)
            return done

    done = sum(Work(*[hold] * 12).results())
    go_on.set()
    assert 5 <= done <= 5 + 11
    assert space.usage("Q").messages == 50 - done
    assert arena.device.space_usage("SPACE").transactions == 0


def test_counters_are_right_after_rollbacks_and_their_rows_no_more_than_sessions(arena):
    space = arena.space(messages=5_000, pages=10_000, transactions=100)
    for name in ("Q", "OUT"):
        make_queue(space, name, retries=1_000, retry_delay=0)
    fill(space, count=200)
    arena.open_sessions(8)

    def work(at):
        for turn in range(25):
            with contextlib.suppress(ZeroDivisionError), space.transaction() as transaction:
                for message in space.dequeue_many("Q", 3):
                    space.enqueue("OUT", message.body)
                if (at + turn) % 3 == 1:
                    transaction.rollback()
                elif (at + turn) % 3 == 2:
                    raise ZeroDivisionError
            space.enqueue("Q", "more", corrid="c")

    assert Work(*[lambda at=at: work(at) for at in range(8)]).results() == [None] * 8
    arena.check_counters()
    assert space.usage("Q").messages + space.usage("OUT").messages == 200 + 8 * 25
    sessions = len(arena.volume._sessions._all)
    assert arena.sql(f"SELECT count(*) <= {3 * (sessions + 1)} FROM qm.counter") == [(True,)]


STORM = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")

def work():
    while True:
        with space.transaction():
            message = space.dequeue("Q")
            space.enqueue("Q", message.body if message else b"new")
        space.enqueue("Q", b"x", expires_in=1000)
        space.dequeue_many("Q", 2)

for _ in range(4):
    threading.Thread(target=work).start()
for _ in range(20):
    space.enqueue("Q", b"x")
say("at work")
"""


def test_counters_are_right_and_slots_free_after_clients_were_killed(arena, start):
    space = arena.space(messages=50_000, pages=19_000, processes=50, transactions=50)
    make_queue(space, retries=1_000)
    for _ in range(2):
        children = [start(STORM, arena.url) for _ in range(2)]
        for child in children:
            child.expect("at work")
        for child in children:
            child.kill()
    at_work = (
        "SELECT FROM pg_stat_activity WHERE state <> 'idle' AND datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )
    eventually(lambda: not arena.sql(at_work), "the server ends the sessions of the dead")
    arena.check_counters()
    for session in arena.volume._sessions._all:
        assert session.slot <= 3
    # The slots of the dead were given to others: 2 processes at a time, each with some sessions.
    assert arena.sql("SELECT max(slot) <= 2 + 2 * 6 FROM qm.counter") == [(True,)]
    there = space.usage("Q").messages
    assert len(drain(space)) == there - space.usage("Q").expired


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


def sqlalchemy_url(arena):
    return sqlalchemy.engine.make_url(database_of(arena.url)[0]).set(drivername="postgresql+psycopg")


def test_a_hundred_threads_take_turns_on_the_sessions_of_a_process(arena, busy):
    def work(at):
        for turn in range(4):
            busy.enqueue("Q", f"{at}-{turn}")
            assert busy.dequeue("Q") is not None

    assert Work(*[lambda at=at: work(at) for at in range(100)]).results() == [None] * 100
    assert len(arena.volume._sessions._all) <= 32
    assert busy.usage("Q").messages == 0
    arena.check_counters()


FORKING = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
stopped = threading.Event()

def work():
    while not stopped.is_set():
        space.enqueue("Q", b"x")
        assert space.dequeue("Q")

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
import random, time
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
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.02))
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
say("done", len(device._main._sessions._all))
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


def test_capacity_limits_of_two_queues_are_reached_in_either_order_without_a_deadlock(arena):
    space = arena.space(messages=5_000, pages=10_000, transactions=50)
    arena.device.set_commands(enabled=False)
    for name in ("A", "B"):
        limit = Threshold(parse_high("3m"), parse_low("1m", parse_high("3m")), "true")
        make_queue(space, name, threshold=limit)
    arena.open_sessions(8)

    def work(at):
        names = ("A", "B")[:: 1 if at % 2 else -1]
        for _ in range(12):
            with space.transaction():
                for name in names:
                    for _ in range(3):
                        space.enqueue(name, b"x")
            for name in reversed(names):
                space.dequeue_many(name, 3)

    assert Work(*[lambda at=at: work(at) for at in range(8)]).results() == [None] * 8
    arena.check_counters()


def test_the_limit_of_processes_is_overshot_by_no_more_than_one_of_each_other_session(arena):
    arena.space(processes=4)
    devices = [arena.another() for _ in range(8)]
    done = sum(
        Work(*[lambda device=device: attempts(lambda: device.open_space("SPACE"), 1) for device in devices]).results()
    )
    assert 3 <= done <= 3 + 7
    assert arena.device.space_usage("SPACE").processes == 1 + done
    with pytest.raises(NoSpaceError):
        arena.another().open_space("SPACE")


def test_transactions_that_others_end_while_they_take_messages_keep_none(arena):
    space = arena.space(messages=5_000, pages=10_000, transactions=100)
    make_queue(space, retries=100_000)
    fill(space, count=60)
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
            space._attachment.look_after(now=True)
            for found in space.transactions():
                with contextlib.suppress(QueueError):
                    space.abort_transaction(found.id)

    administrators = Work(end_others, end_others)
    assert Work(*[work] * 8).results() == [12] * 8
    stopped.set()
    assert administrators.results() == [None, None]
    space._attachment.look_after(now=True)
    assert arena.sql("SELECT count(*) FROM qm.held") == [(0,)]
    assert len(drain(space)) == 60
    arena.check_counters()
