"""The short way on PostgreSQL: what most calls ask for takes one journey or two, and all else is as it was."""

import contextlib
import re
import socket
import threading

import pytest

from qmadmin.opening import open_device
from qmcore.errors import AbortedError, BadQueueError, BadResourceError, NoSpaceError, SystemFailureError
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import EnqueueControl
from qmcore.order import QueueOrder
from qmstorage.postgres.pipeline import Pipeline
from qmstorage.postgres.volume import PostgresVolume
from qmstorage.postgres.watching import WatchedConnection
from tests.fix_store import Work, eventually, make_queue, queue_definition, waiting_for
from tests.proxy import Proxy

ORDERS = ("fifo", "lifo", "priority", "priority,lifo", "time,fifo", "expiration", "expiration,priority,time,lifo")


@pytest.fixture
def space(arena):
    opened = arena.space(error_queue="ERRORS", messages=100)
    for name in ("Q", "R", "ERRORS"):
        make_queue(opened, name, retries=3)
    # So that the definitions are known, and that the session has its rows among the counters.
    for name in ("Q", "R", "Q", "R"):
        opened.enqueue(name, b"x")
        opened.dequeue(name)
    return opened


@pytest.fixture
def journeys(monkeypatch):
    """How often something was waited for from the server: for each time, the thread that did."""
    made = []
    wait = WatchedConnection.wait

    def counting(self, gen, *arguments, **options):
        made.append(threading.get_ident())
        return wait(self, gen, *arguments, **options)

    monkeypatch.setattr(WatchedConnection, "wait", counting)
    return made


@pytest.fixture
def ordinary(monkeypatch):
    """What went the ordinary way."""
    gone = []
    written = PostgresVolume._written

    def noting(self, work, *arguments, **options):
        gone.append(work)
        return written(self, work, *arguments, **options)

    monkeypatch.setattr(PostgresVolume, "_written", noting)
    return gone


def test_an_enqueue_is_one_journey_and_a_dequeue_two(space, journeys):
    space.enqueue("Q", bytes(1024), headers={"a": "b"}, corrid="c", expires_in=100)
    assert len(journeys) == 1
    journeys.clear()
    assert space.dequeue("Q").size == 1024
    assert len(journeys) == 2


def test_messages_that_come_together_are_two_journeys(space, journeys):
    space.enqueue_many("Q", [b"x"] * 3)
    assert len(journeys) == 2


def test_messages_that_go_together_are_two_journeys_in_their_order_whatever_expires(space, arena, journeys, clock):
    sent = [
        EnqueueControl(priority=priority, lifetime=lifetime) for priority in (1, 9, 5) for lifetime in (None, 10**9)
    ]
    make_queue(space, "ORDERED", order="priority")
    space.put_many([("ORDERED", b"x", control) for control in sent])
    space.dequeue("ORDERED")
    journeys.clear()
    assert [message.priority for message in space.dequeue_many("ORDERED", 4)] == [9, 5, 5, 1]
    assert [message.priority for message in space.dequeue_many("ORDERED", 4)] == [1]
    assert space.dequeue_many("ORDERED", 4) == []
    assert len(journeys) == 6
    assert arena.sql("SELECT count(*) FROM qm.expiring") == [(0,)]
    arena.check_counters()
    assert space.usage("ORDERED").dequeued == 6


def test_somebody_who_waits_is_told_in_a_second_journey_and_from_then_on_in_the_same(space, arena, journeys):
    with contextlib.closing(open_device(arena.url)) as device:
        elsewhere = device.open_space("SPACE")
        waiting = Work(lambda: elsewhere.dequeue("Q", wait=30, corrid=b"never"))
        eventually(lambda: waiting_for(arena.url) == 1, "a wait is recorded")
        counts = [count_of(journeys, lambda: space.enqueue("Q", b"x")) for _ in range(3)]
        space.enqueue("Q", b"x", corrid=b"never")
        waiting.results()
    counts += [count_of(journeys, lambda: space.enqueue("Q", b"x")) for _ in range(2)]
    assert counts == [2, 1, 1, 1, 1]
    (session,) = arena.volume._sessions._idle
    assert not session.awaited


def count_of(journeys, act):
    """Return how many journeys of this thread an act takes."""
    before = len(journeys)
    act()
    return journeys[before:].count(threading.get_ident())


@pytest.mark.parametrize(("messages", "count"), [(100, 4), (5000, 3)])
def test_a_transaction_that_answers_a_message_is_three_journeys_and_another_where_room_is_short(
    arena, journeys, messages, count
):
    """Two for the message, which must be seen before it is held, one for the commit, one to see that there is room."""
    space = arena.space(messages=messages, pages=10_000)
    for name in ("Q", "R"):
        make_queue(space, name)
    space.enqueue_many("Q", [b"x"] * 3)
    for _ in range(2):
        with space.transaction():
            space.enqueue("R", space.dequeue("Q").body)
    journeys.clear()
    with space.transaction():
        space.enqueue("R", space.dequeue("Q").body)
    assert len(journeys) == count


def test_a_dequeue_from_an_empty_queue_is_two_journeys_alone_and_in_a_transaction(space, journeys):
    assert space.dequeue("Q") is None
    assert len(journeys) == 2
    journeys.clear()
    with space.transaction():
        assert space.dequeue("Q") is None
        assert len(journeys) == 2


@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_only_seems_to_be_an_empty_queue_goes_the_ordinary_way(space, ordinary, clock, in_transaction):
    def dequeued():
        with space.transaction() if in_transaction else contextlib.nullcontext():
            return space.dequeue("Q")

    space.enqueue("Q", bytes(2_000_000))
    assert dequeued().size == 2_000_000
    space.enqueue("Q", b"later", delay=10)
    ordinary.clear()
    assert dequeued() is None
    assert not ordinary
    clock.advance(11)
    assert dequeued().body == b"later"
    assert ordinary
    space.enqueue("Q", b"expires", expires_in=10)
    clock.advance(11)
    assert dequeued() is None
    assert space.usage("Q").expired == 1
    space.destroy_queue("Q")
    with pytest.raises(BadQueueError):
        dequeued()


def test_everything_about_a_message_is_as_the_ordinary_way_has_it(space, ordinary, clock):
    """Two in one call go the ordinary way."""
    control = EnqueueControl(
        corrid=b"\0c\xff", priority=3, urcode=-(2**31), appkey=2**31 - 1, reply_queue="R", failure_queue="F",
        error_queue="E", client_id="me", type="STRING", subtype="s", headers={"a": "\u20ac"}, lifetime=10**9,
        available_us=clock.now() - 5,
    )  # fmt: skip
    for body in (b"", b"body", None, bytearray(b"\0\xff"), memoryview(b"view")):
        space.put("Q", body, control)
        assert not ordinary
        space.put_many([("Q", body, control)] * 2)
        plain, other, last = (space.dequeue("Q") for _ in range(3))
        assert len(ordinary) == 1
        ordinary.clear()
        assert plain.body == (None if body is None else bytes(body))
        known = {"msgid": None, "body": None}
        for message in (other, last):
            assert {**facts(message), **known} == {**facts(plain), **known}


def facts(message):
    return {name: getattr(message, name) for kind in type(message).__mro__ for name in getattr(kind, "__slots__", ())}


@pytest.mark.parametrize("order", ORDERS)
def test_the_server_makes_the_order_key_that_the_order_says(space, arena, ordinary, order):
    make_queue(space, "ORDERED", order=order)
    space.enqueue("ORDERED", b"x")
    ordinary.clear()
    for priority, lifetime in ((1, 10**9), (100, None), (50, 5 * 10**9)):
        space.put("ORDERED", b"x", EnqueueControl(priority=priority, lifetime=lifetime))
    assert not ordinary
    told = "SELECT order_key, priority, enqueued_at, expires_at, id FROM qm.message"
    for key, priority, enqueued, expires, number in arena.sql(told):
        fields = {"priority": priority, "available_at": enqueued, "expires_at": expires}
        assert bytes(key) == QueueOrder.parse(order).key(**fields, sequence=number & (2**48 - 1))


def test_what_a_queue_counts_is_what_is_there(space, arena):
    for at in range(7):
        space.enqueue("Q", bytes(at * 1000))
    for _ in range(3):
        space.dequeue("Q")
    arena.check_counters()
    usage = space.usage("Q")
    assert (usage.messages, usage.enqueued, usage.dequeued, usage.size) == (4, 9, 5, 3000 + 4000 + 5000 + 6000)


def test_the_last_message_that_has_room_is_taken_and_the_next_one_refused_with_the_limit(space, ordinary):
    for _ in range(100):
        space.enqueue("Q", b"x")
    assert not ordinary
    with pytest.raises(NoSpaceError) as caught:
        space.enqueue("Q", b"x")
    assert (caught.value.facts["used"], caught.value.facts["limit"], caught.value.facts["wanted"]) == (100, 100, 1)
    assert space.usage("Q").messages == 100


def test_what_another_process_has_changed_holds_at_once(space, arena):
    space.enqueue("Q", b"x")
    with contextlib.closing(open_device(arena.url)) as device:
        device.open_space("SPACE").stop_queue("Q", enqueue=True, dequeue=True)
    with pytest.raises(BadQueueError, match="is stopped for enqueuing"):
        space.enqueue("Q", b"y")
    with pytest.raises(BadQueueError, match="is stopped for dequeuing"):
        space.dequeue("Q")
    assert space.usage("Q").messages == 1


def test_what_is_due_or_has_expired_is_seen_to_before_a_message_is_taken(space, clock):
    space.enqueue("Q", "late", delay=10)
    space.enqueue("Q", "short", expires_in=5)
    space.enqueue("Q", "last")
    clock.advance(20)
    assert [space.dequeue("Q").text for _ in range(2)] == ["late", "last"]
    assert space.dequeue("Q") is None
    assert space.usage("Q").expired == 1


def test_a_body_that_is_kept_apart_keeps_its_place(space, ordinary):
    bodies = [b"1", bytes(3_000_000), b"3"]
    for body in bodies:
        space.enqueue("Q", body)
    assert [space.dequeue("Q").body for _ in bodies] == bodies
    assert len(ordinary) == 2


def test_where_one_of_several_has_its_body_kept_apart_all_go_the_ordinary_way(space, arena, ordinary):
    bodies = [b"1", bytes(3_000_000), b"3", b"4"]
    for body in bodies:
        space.enqueue("Q", body, expires_in=100)
    ordinary.clear()
    assert [message.body for message in space.dequeue_many("Q", 3)] == bodies[:3]
    assert len(ordinary) == 1
    assert [message.body for message in space.dequeue_many("Q", 3)] == bodies[3:]
    assert len(ordinary) == 1
    assert arena.sql("SELECT (SELECT count(*) FROM qm.chunk) + (SELECT count(*) FROM qm.expiring)") == [(0,)]
    arena.check_counters()


def test_what_was_tried_before_says_so_where_several_go(space):
    for body in (b"1", b"2"):
        space.enqueue("Q", body)
    with space.transaction() as transaction:
        space.dequeue("Q")
        transaction.rollback()
    assert [(message.body, message.retries) for message in space.dequeue_many("Q", 9)] == [(b"1", 1), (b"2", 0)]


def test_statements_that_the_driver_threw_away_are_made_again(space, arena):
    (session,) = arena.volume._sessions._idle
    session.connection.execute("DEALLOCATE ALL")
    msgid = space.enqueue("Q", b"x")
    session.connection.execute("DEALLOCATE ALL")
    assert space.dequeue("Q").msgid == msgid


def test_of_a_queue_space_that_is_gone_nothing_is_left_behind(space, arena):
    arena.volume._sessions._close_idle()
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
    arena.volume._sessions._close_idle()
    with space.transaction():
        space.enqueue_many("Q", [b"x", b"x"])
    with space.transaction():
        # Its row among the counters is known now; what an arrival needs besides is not prepared yet.
        space.dequeue("Q")
    (session,) = arena.volume._sessions._idle
    session.run("SET lock_timeout = 1")
    with contextlib.closing(open_device(arena.url)) as device:
        other = device.open_space("SPACE")._attachment.volume
        with other.still(5), pytest.raises(SystemFailureError, match="locked"):
            space.enqueue("Q", b"x")
    session.run("RESET lock_timeout")
    for _ in range(3):
        space.enqueue("Q", b"x")
    assert list(arena.volume._sessions._idle) == [session]
    assert space.usage("Q").messages == 4


def test_a_message_that_cannot_be_read_stays(space, arena):
    space.enqueue("Q", b"x", headers={"a": "b"})
    arena.by_hand("UPDATE message SET headers = 'no JSON'")
    with pytest.raises(ValueError, match="Expecting value"):
        space.dequeue("Q")
    assert space.usage("Q").messages == 1


def test_a_session_that_is_interrupted_before_it_says_anything_is_as_it_was(space, arena):
    (session,) = arena.volume._sessions._idle

    class Interrupted:
        """The session, where Ctrl-C comes as soon as it has begun to collect what it sends."""

        def __getattr__(self, name):
            return getattr(session.connection.pgconn, name)

        def enter_pipeline_mode(self):
            session.connection.pgconn.enter_pipeline_mode()
            raise KeyboardInterrupt

    pipeline = Pipeline(session.connection, session.prepared)
    pipeline._driver = Interrupted()
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

    def _pass_on(self, end):
        if self.word and self.word in end.recv(65536, socket.MSG_PEEK):
            self.word = b""
            end.sendall(b"\xff" * 64)
        else:
            super()._pass_on(end)


def test_a_session_sees_what_was_committed_before_its_lock_whatever_the_database_prefers(arena, space):
    """In any other isolation it would see what there was when it began to wait for the lock."""
    database = arena.looking.info.dbname
    arena.looking.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")
    try:
        arena.volume._sessions._close_idle()
        space.enqueue("Q", b"x")
        (session,) = arena.volume._sessions._idle
        assert session.run("SHOW transaction_isolation") == [("read committed",)]
    finally:
        arena.looking.execute(f"ALTER DATABASE {database} RESET default_transaction_isolation")


def test_a_session_that_was_interrupted_asks_again_for_the_last_number(space, arena, monkeypatch):
    """What it did not wait for may have been done: it must not be taken for what is done next."""
    (session,) = arena.volume._sessions._idle
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


HIGH = parse_high("10m")
QUEUES = {
    "groups": {"grouping": True},
    "retains": {"retention": 10},
    "has a command": {"threshold": Threshold(HIGH, parse_low("1m", HIGH), "true")},
    "has memory beside it": {},
    "is plain": {},
}


@pytest.mark.parametrize("kind", QUEUES)
def test_a_queue_that_takes_more_goes_the_ordinary_way(arena, ordinary, kind):
    space = arena.space(memory=1_000_000 if kind == "has memory beside it" else 0)
    make_queue(space, "Q", **QUEUES[kind])
    space.enqueue("Q", b"x")
    ordinary.clear()
    assert space.dequeue("Q").body == b"x"
    assert bool(ordinary) == (kind != "is plain")


@pytest.mark.parametrize("how", [{"corrid": "c"}, {"condition": "priority > 1"}, {"body": False}])
def test_a_message_that_is_asked_for_by_something_goes_the_ordinary_way(space, ordinary, how):
    space.enqueue("Q", b"x", corrid="c")
    if "body" in how:
        assert space.remove("Q").size == 1
    else:
        assert space.dequeue("Q", **how).body == b"x"
    assert ordinary


class TestTransactions:
    """The short way of those that hold messages of one queue and bring one message at most."""

    @pytest.fixture
    def filled(self, space, ordinary):
        for at in range(5):
            space.enqueue("Q", f"message {at}", headers={"at": str(at)}, expires_in=100)
        ordinary.clear()
        return space

    def test_nothing_of_them_goes_the_ordinary_way(self, filled, ordinary):
        with filled.transaction():
            filled.enqueue("R", filled.dequeue("Q").text)
        assert not ordinary
        assert filled.dequeue("R").text == "message 0"

    def test_the_hold_does_not_wait_for_the_disk_and_the_commit_does(self, filled, arena):
        arena.sql(
            "CREATE TABLE qm.seen (step text, setting text);"
            " CREATE FUNCTION qm.seeing() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN INSERT INTO qm.seen VALUES (TG_OP, current_setting(''synchronous_commit'')); RETURN NULL; END';"
            " CREATE TRIGGER seeing AFTER INSERT OR DELETE ON qm.held FOR EACH ROW EXECUTE FUNCTION qm.seeing()"
        )
        for _ in range(2):
            with filled.transaction():
                filled.enqueue("R", filled.dequeue("Q").text)
        assert arena.sql("SELECT * FROM qm.seen") == [("INSERT", "off"), ("DELETE", "on")] * 2

    @pytest.mark.parametrize("queue", ["Q", "R"])
    def test_counters_are_right_whether_the_reply_goes_to_the_same_queue_or_to_another(self, filled, arena, queue):
        with filled.transaction():
            filled.enqueue(queue, bytes(5000) + filled.dequeue("Q").body)
        arena.check_counters()
        gone, come = filled.usage("Q"), filled.usage(queue)
        assert (gone.dequeued, come.enqueued) == (3, 8 if queue == "Q" else 3)
        with filled.transaction():
            filled.dequeue("Q")
        arena.check_counters()

    def test_the_reply_has_the_identifier_that_it_was_given_and_stands_behind_what_came_meanwhile(self, filled, arena):
        with filled.transaction():
            msgid = filled.enqueue("Q", filled.dequeue("Q").body)
            with contextlib.closing(open_device(arena.url, clock=arena.clock)) as device:
                device.open_space("SPACE").enqueue("Q", "meanwhile")
        listed = list(filled.messages("Q"))
        assert listed[-1].msgid == msgid
        assert filled.content(listed[-2]).text == "meanwhile"

    def test_what_is_held_expires_for_nobody_and_comes_back_with_its_expiry(self, filled, clock):
        with filled.transaction() as transaction:
            assert filled.dequeue("Q").text == "message 0"
            clock.advance(50)
            assert filled.usage("Q").held == 1
            transaction.rollback()
        back = filled.dequeue("Q")
        assert (back.text, back.retries) == ("message 0", 1)
        assert back.expires_us is not None

    def test_several_that_were_dequeued_go_together(self, filled, ordinary):
        with filled.transaction():
            assert [filled.dequeue("Q").text[-1] for _ in range(3)] == ["0", "1", "2"]
            filled.enqueue("R", "all")
            ordinary.clear()
        assert not ordinary
        assert filled.usage("Q").messages == 2

    def test_a_transaction_that_others_have_rolled_back_is_told_so_and_brings_nothing(self, filled, arena):
        with pytest.raises(AbortedError, match="was rolled back by others"), filled.transaction():
            filled.enqueue("R", filled.dequeue("Q").body)
            arena.by_hand("DELETE FROM trans")
        assert filled.usage("R").messages == 0

    def test_pages_are_given_back_that_were_to_be_retained_when_the_message_was_taken(self, arena):
        space = arena.space()
        make_queue(space, "Q", retention=10)
        space.enqueue("Q", bytes(10_000))
        with space.transaction():
            space.dequeue("Q")
            with contextlib.closing(open_device(arena.url, clock=arena.clock)) as device:
                device.open_space("SPACE").change_queue(queue_definition("Q", retention=0))
            # Which lets this process know.
            space.enqueue("Q", b"x", transactional=False)
        arena.check_counters()
        assert space.usage("Q").pages == 1

    def test_one_of_which_a_message_was_lost_is_rolled_back(self, filled, arena):
        with pytest.raises(AbortedError, match="lost a part of it"), filled.transaction():
            filled.enqueue("R", filled.dequeue("Q").body)
            arena.by_hand("DELETE FROM held")
        assert filled.usage("R").messages == 0

    def test_room_that_the_commit_gives_back_is_room_for_what_it_brings(self, filled):
        for _ in range(95):
            filled.enqueue("Q", b"x")
        with pytest.raises(NoSpaceError):
            filled.enqueue("Q", b"x")
        with filled.transaction():
            filled.enqueue("R", filled.dequeue("Q").body)
        with pytest.raises(NoSpaceError), filled.transaction():
            filled.enqueue("R", b"x")

    def test_what_a_queue_has_stopped_for_since_holds_for_the_next_message(self, filled, arena):
        with pytest.raises(BadQueueError, match="is stopped for enqueuing"), filled.transaction():
            body = filled.dequeue("Q").body
            with contextlib.closing(open_device(arena.url)) as device:
                device.open_space("SPACE").stop_queue("R", enqueue=True, dequeue=False)
            filled.enqueue("R", body)
