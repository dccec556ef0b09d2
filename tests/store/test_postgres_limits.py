"""What many sessions of PostgreSQL count together: limits are overshot by little, and what is counted is there."""

import contextlib
import threading

import pytest

from qmcore.errors import NoSpaceError
from qmcore.limits import Threshold, parse_high, parse_low
from tests.fix_store import Work, drain, eventually, make_queue
from tests.fix_storm import session_of


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
    space.enqueue_many("Q", ["x"] * 50)
    arena.open_sessions(12)
    held, go_on = threading.Barrier(12), threading.Event()

    def hold():
        with space.transaction():
            done = attempts(lambda: space.dequeue("Q"), 1)
            held.wait(90)
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
    space.enqueue_many("Q", ["x"] * 200)
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
    sessions = arena.sessions()
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
    assert session_of(arena.volume).slot <= 3
    # The slots of the dead were given to others: 2 processes at a time, each with some sessions.
    assert arena.sql("SELECT max(slot) <= 2 + 2 * 6 FROM qm.counter") == [(True,)]
    before = space.usage("Q")
    assert len(drain(space)) + space.usage("Q").expired - before.expired == before.messages


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
