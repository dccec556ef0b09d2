"""On PostgreSQL consumers of one queue work beside each other: none waits for another, whatever that keeps open."""

import contextlib

import psycopg
import pytest

from qmcore.errors import BadMessageIdError, QueueError
from qmcore.findings import Severity
from qmcore.message import State
from tests.fix_postgres import database_of
from tests.fix_store import Work, attachment_of, count_rows, drain, make_queue

MIB = 1024 * 1024


@pytest.fixture
def space(arena):
    made = arena.space(error_queue="ERRORS", pages=6_000)
    make_queue(made, "Q", multiple_consumers=True, retries=1, out_of_order="top,msgid")
    make_queue(made, "PLAIN")
    make_queue(made, "ERRORS")
    for name in ("one", "two"):
        made.subscribe("Q", name)
    return made


@pytest.fixture
def connect(arena):
    """Return connections of an application to the database, whose transactions are rolled back at the end."""
    with contextlib.ExitStack() as stack:

        def connected(isolation=None):
            connection = stack.enter_context(contextlib.closing(psycopg.connect(database_of(arena.url)[0])))
            connection.isolation_level = isolation
            return connection

        yield connected


def beside(*acts):
    """Return what acts give in threads of their own, as those of other processes; the first error is raised."""
    results = Work(*acts).results()
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return results[0] if len(results) == 1 else results


def sound(arena, space):
    """Prove that what is stored and what is counted agree."""
    found = beside(lambda: arena.device.check(space.name))
    assert [finding.sentence for finding in found if finding.severity is Severity.ERROR] == []


def rows(space):
    """Return how many rows there are of messages, bodies kept apart, places, shares, and places that are over."""
    return count_rows(space, "message", "chunk", "ready", "share", "spent")


def swept(space):
    """Return how many messages the queue has, when all was swept, and the rows that there are."""
    return beside(lambda: space.usage("Q").messages), rows(space)


def two_at_once(space, connect):
    """Take the message of both consumers in two transactions that are open at once, so that neither sees the other."""
    first, second = connect(), connect()
    assert space.dequeue("Q:one", connection=first) is not None
    assert beside(lambda: space.dequeue("Q:two", connection=second)) is not None
    first.commit()
    second.commit()


class TestOpenTransactions:
    def test_a_consumer_in_an_open_one_delays_nobody(self, arena, space, connect, clock):
        sent = [space.enqueue("Q", text, expires_in=60) for text in ("a", "b", "c", "x" * (MIB + 1))]
        connection = connect()
        assert space.dequeue("Q:one", connection=connection).msgid == sent[0]
        assert space.dequeue("Q:one", msgid=sent[2], connection=connection).msgid == sent[2]

        def work():
            with space.transaction():
                assert space.dequeue("Q:two").msgid == sent[0]
                space.enqueue("Q", "d")
            with pytest.raises(RuntimeError), space.transaction():
                assert space.dequeue("Q:two").msgid == sent[1]
                raise RuntimeError
            assert space.purge("Q:two") == 4
            assert drain(space, "Q:one") == ["b", "x" * (MIB + 1), "d"]
            space.subscribe("Q", "three")
            space.unsubscribe("Q", "two")
            clock.advance(61)
            return space.dequeue("Q:one"), space.usage("Q").messages

        assert beside(work) == (None, 2)
        connection.commit()
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        sound(arena, space)

    def test_what_is_rolled_back_there_expires_with_the_rest_of_it(self, arena, space, connect, clock):
        space.enqueue("Q", "x", expires_in=60)
        connection = connect()
        assert space.dequeue("Q:one", connection=connection).text == "x"
        clock.advance(61)
        assert beside(lambda: drain(space, "Q:two")) == []
        connection.rollback()
        assert beside(lambda: drain(space, "Q:one")) == []
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        assert beside(lambda: [space.usage(name).expired for name in ("Q", "Q:one", "Q:two")]) == [1, 1, 1]
        assert count_rows(space, "expiring") == (0,)
        sound(arena, space)

    def test_what_has_expired_there_delays_nobody(self, arena, space, connect, clock):
        for _ in range(3):
            space.enqueue("Q", "x", expires_in=60)
        clock.advance(61)
        connection = connect()
        assert space.dequeue("Q:one", connection=connection) is None
        assert beside(lambda: drain(space, "Q:two")) == []
        assert beside(lambda: space.enqueue("Q", "y", expires_in=60)) is not None
        assert beside(lambda: drain(space, "Q:one")) == ["y"]
        connection.rollback()
        assert beside(lambda: drain(space, "Q:one")) == []
        assert beside(lambda: drain(space, "Q:two")) == ["y"]
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        sound(arena, space)

    def test_two_that_take_the_same_messages_in_opposite_order_do_not_deadlock(self, arena, space, connect):
        sent = [space.enqueue("Q", text) for text in "ab"]
        first, second = connect(), connect()
        for msgid, other in zip(sent, reversed(sent), strict=True):
            assert space.dequeue("Q:one", msgid=msgid, connection=first).msgid == msgid
            assert beside(lambda other=other: space.dequeue("Q:two", msgid=other, connection=second)).msgid == other
        first.commit()
        second.commit()
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        sound(arena, space)

    def test_one_takes_all_places_of_a_message_and_has_its_room(self, arena, connect):
        space = arena.space(messages=1)
        make_queue(space, "Q", multiple_consumers=True)
        make_queue(space, "PLAIN")
        for name in ("one", "two"):
            space.subscribe("Q", name)
        space.enqueue("Q", "x")
        connection = connect()
        for name in ("one", "two"):
            assert space.dequeue("Q", consumer=name, connection=connection).text == "x"
        space.enqueue("PLAIN", "reply", connection=connection)
        connection.commit()
        assert drain(space, "PLAIN") == ["reply"]

    @pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
    def test_one_that_sees_all_as_it_was_takes_what_was_swept_meanwhile(self, arena, space, connect, level):
        space.subscribe("Q", "three")
        for text in "ab":
            space.enqueue("Q", text)
        connection = connect(level)
        connection.execute("SELECT count(*) FROM pg_class")

        def others():
            two_at_once(space, connect)
            space.dequeue("Q:two")
            return space.usage("Q").messages

        assert beside(others) == 2
        assert space.dequeue("Q:three", connection=connection).text == "a"
        connection.commit()
        assert drain(space, "Q:one") == drain(space, "Q:three") == ["b"]
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        sound(arena, space)


class TestSubscribing:
    def test_it_does_not_wait_for_what_an_application_has_sent(self, arena, space, connect):
        connection = connect()
        space.enqueue("Q", "x", connection=connection)
        beside(lambda: space.subscribe("Q", "late"))
        space.enqueue("Q", "y", connection=connection)
        connection.commit()
        assert drain(space, "Q:one") == ["x", "y"]
        assert drain(space, "Q:late") == ["y"]
        sound(arena, space)

    @pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
    def test_nor_for_one_that_sees_all_as_it_was_which_learns_of_it(self, space, connect, level):
        connection = connect(level)
        space.enqueue("Q", "x", connection=connection)
        beside(lambda: space.subscribe("Q", "late"))
        with pytest.raises(QueueError):
            space.enqueue("Q", "y", connection=connection)
        connection.rollback()
        assert drain(space, "Q:late") == []

    def test_an_end_is_not_delayed_and_what_is_committed_for_it_later_is_swept(self, arena, space, connect, clock):
        connection, older = connect(), connect()
        older.execute("SELECT pg_current_xact_id()")
        space.enqueue("Q", "x" * (MIB + 1), connection=connection)

        def end():
            space.unsubscribe("Q", "two")
            clock.advance(2)
            space.usage("Q")
            return [each.name for each in space.subscriptions()]

        assert beside(end) == ["one"]
        assert arena.sql("SELECT count(*) FROM qm.queue WHERE going") == [(1,)]
        connection.commit()
        assert len(drain(space, "Q:one")) == 1
        clock.advance(2)
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        assert arena.sql("SELECT count(*) FROM qm.queue WHERE going") == [(1,)], "one is open that is older"
        older.rollback()
        clock.advance(2)
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        assert arena.sql("SELECT count(*) FROM qm.queue WHERE going") == [(0,)]
        sound(arena, space)

    def test_what_an_application_has_sent_for_none_but_who_went_goes(self, arena, space, connect, clock):
        connection = connect()
        space.enqueue("Q", "x", connection=connection)
        beside(lambda: [space.unsubscribe("Q", name) for name in ("one", "two")])
        connection.commit()
        for _ in range(2):
            # A look that is made by the way sees to one of them.
            clock.advance(2)
            beside(lambda: space.usage("PLAIN"))
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        assert beside(lambda: space.usage("Q").discarded) == 1
        sound(arena, space)

    def test_one_that_has_gone_stays_while_somebody_has_its_messages_and_others_keep_theirs(
        self, arena, space, connect, clock
    ):
        for text in "ab":
            space.enqueue("Q", text)
        space.unsubscribe("Q", "two")
        stopped = connect()
        stopped.execute(f"SELECT FROM {arena.schema}.ready FOR UPDATE")
        for _ in range(2):
            clock.advance(2)
            assert beside(lambda: space.usage("PLAIN").messages) == 0
        assert arena.sql("SELECT count(*) FROM qm.queue WHERE going") == [(1,)]
        stopped.rollback()
        for _ in range(2):
            clock.advance(2)
            assert beside(lambda: space.usage("Q").messages) == 2
        assert arena.sql("SELECT count(*) FROM qm.queue WHERE going") == [(0,)]
        assert drain(space, "Q:one") == ["a", "b"]
        assert rows(space) == (0, 0, 0, 0, 0)
        sound(arena, space)

    def test_what_somebody_deletes_of_one_that_has_gone_is_there_until_he_commits(self, arena, space, connect, clock):
        for text in "ab":
            space.enqueue("Q", text)
        ((number,),) = arena.sql("SELECT id FROM qm.queue WHERE name = 'Q:two'")
        space.unsubscribe("Q", "two")
        other = connect()
        other.execute(f"DELETE FROM {arena.schema}.ready WHERE queue_id = %s", [number])
        clock.advance(2)
        assert beside(lambda: space.usage("PLAIN").messages) == 0
        assert arena.sql("SELECT count(*) FROM qm.queue WHERE going") == [(1,)]
        other.rollback()
        for _ in range(2):
            clock.advance(2)
            assert swept(space) == (2, (2, 0, 2, 2, 0))
        assert arena.sql("SELECT count(*) FROM qm.queue WHERE going") == [(0,)]
        assert drain(space, "Q:one") == ["a", "b"]
        sound(arena, space)

    def test_the_thread_that_has_one_open_may_do_it(self, space, connect):
        connection = connect()
        space.enqueue("Q", "x", connection=connection)
        space.subscribe("Q", "late")
        space.unsubscribe("Q", "one")
        connection.commit()
        assert drain(space, "Q:two") == ["x"]

    def test_a_call_that_fails_in_a_transaction_of_an_application_keeps_nothing_locked(self, space, connect):
        connection = connect()
        with pytest.raises(QueueError):
            space.enqueue("NONE", "x", connection=connection)
        space.enqueue("Q", "x", connection=connection)
        with pytest.raises(BadMessageIdError):
            space.enqueue("Q", "y", before="none", connection=connection)
        beside(lambda: space.subscribe("Q", "late"))
        connection.commit()
        make_queue(space, "NEW")


class TestWhatIsOver:
    """A message whose consumers are all done is no message, swept or not."""

    @pytest.fixture
    def over(self, space, connect):
        """Return the identifier of a message that nobody has a place of, and that was not swept yet."""
        msgid = space.enqueue("Q", "x", expires_in=60)
        two_at_once(space, connect)
        assert rows(space) == (1, 0, 0, 1, 2)
        return msgid

    def test_it_is_found_sound(self, arena, space, over):
        assert over
        volume, opened = attachment_of(space).volume, attachment_of(space).opened

        def faults(unit):
            queues = list(opened.definitions(unit).queues.values())
            return [fault.sentence for fault in unit.soundness.faults(opened.space, queues, 4096, lambda: None)]

        assert volume.read(faults) == []
        arena.sql("UPDATE qm.share SET places = 3")
        assert any("fewer or more consumers" in each for each in volume.read(faults))
        arena.sql("DELETE FROM qm.share")
        found = volume.read(faults)
        assert any("without a place in a queue" in each for each in found)
        assert any("that consumers are still counted for" in each for each in found)

    def test_it_is_not_counted_listed_or_taken(self, space, over):
        for name in ("Q:one", "Q:two"):
            assert list(space.messages(name)) == []
            assert space.peek(name) is None
            assert space.dequeue(name, msgid=over) is None
        usage = space.usage("Q")
        assert (usage.messages, usage.pages, usage.dequeued) == (0, 0, 1)
        assert rows(space) == (0, 0, 0, 0, 0)

    def test_nothing_is_put_before_it(self, space, over):
        with pytest.raises(BadMessageIdError):
            space.enqueue("Q", "y", before=over)
        with pytest.raises(BadMessageIdError), space.transaction():
            space.enqueue("Q", "y", before=over)

    def test_it_does_not_expire(self, space, over, clock):
        assert over
        clock.advance(61)
        assert drain(space, "Q:one") == []
        assert [space.usage(name).expired for name in ("Q", "Q:one", "Q:two")] == [0, 0, 0]
        assert count_rows(space, "expiring", "message") == (0, 0)

    def test_its_room_is_there(self, arena, connect):
        space = arena.space("SMALL", messages=1)
        make_queue(space, "Q", multiple_consumers=True)
        make_queue(space, "PLAIN")
        for name in ("one", "two"):
            space.subscribe("Q", name)
        for act in (lambda: space.enqueue("PLAIN", "y"), lambda: space.enqueue_many("PLAIN", ["y"])):
            space.enqueue("Q", "x")
            two_at_once(space, connect)
            act()
            assert drain(space, "PLAIN") == ["y"]
        space.enqueue("Q", "x")
        two_at_once(space, connect)
        with space.transaction():
            space.enqueue("PLAIN", "y")
        assert drain(space, "PLAIN") == ["y"]
        space.enqueue("Q", "x")
        two_at_once(space, connect)
        with connect() as connection:
            space.enqueue("PLAIN", "y", connection=connection)
        assert drain(space, "PLAIN") == ["y"]

    def test_it_keeps_no_queue_and_no_queue_space(self, arena, space, over):
        assert over
        space.destroy_queue("Q")
        assert rows(space) == (0, 0, 0, 0, 0)
        sound(arena, space)

    def test_it_goes_with_its_queue_space(self, arena, space, over):
        assert over
        space.close()
        arena.device.destroy_space("SPACE")
        again = arena.space("AGAIN")
        assert rows(again) == (0, 0, 0, 0, 0)

    def test_it_goes_with_its_queue_that_is_forced(self, arena, space, over):
        assert over
        space.enqueue("Q", "y")
        space.destroy_queue("Q", force=True)
        assert rows(space) == (0, 0, 0, 0, 0)
        sound(arena, space)

    def test_its_large_body_goes_with_it(self, space, connect):
        space.enqueue("Q", "x" * (MIB + 1))
        two_at_once(space, connect)
        assert rows(space) == (1, 2, 0, 1, 2)
        assert swept(space) == (0, (0, 0, 0, 0, 0))


class TestSweeps:
    def test_a_snapshot_that_keeps_old_rows_harms_nobody(self, arena, space, connect):
        reader = connect(psycopg.IsolationLevel.REPEATABLE_READ)
        for _ in range(3):
            space.enqueue_many("Q", [f"{number}" for number in range(50)])
            assert reader.execute(f"SELECT count(*) FROM {arena.schema}.message").fetchone() == (50,)
            first, second = connect(), connect()
            assert len(space.dequeue_many("Q:one", 50, connection=first)) == 50
            assert len(beside(lambda at=second: space.dequeue_many("Q:two", 50, connection=at))) == 50
            first.commit()
            second.commit()
            assert swept(space) == (0, (0, 0, 0, 0, 0))
        assert reader.execute(f"SELECT count(*) FROM {arena.schema}.message").fetchone() == (50,)
        sound(arena, space)

    def test_one_for_an_application_outlives_its_transaction_and_delays_nobody(self, arena, connect):
        space = arena.space(messages=2)
        make_queue(space, "Q", multiple_consumers=True)
        make_queue(space, "PLAIN")
        for name in ("one", "two"):
            space.subscribe("Q", name)
        for text in "ab":
            space.enqueue("Q", text)
            two_at_once(space, connect)
        connection = connect()
        space.enqueue("PLAIN", "y", connection=connection)
        assert rows(space) == (0, 0, 0, 0, 0)
        assert beside(lambda: space.enqueue("PLAIN", "z")) is not None
        connection.rollback()
        assert drain(space, "PLAIN") == ["z"]
        sound(arena, space)

    def test_one_that_does_not_go_on_is_passed_over(self, arena, space, connect):
        space.enqueue("Q", "a")
        two_at_once(space, connect)
        stopped = connect()
        stopped.execute(f"SELECT FROM {arena.schema}.share FOR UPDATE")
        space.enqueue("Q", "b")
        two_at_once(space, connect)
        assert swept(space) == (1, (1, 0, 0, 1, 2))
        stopped.rollback()
        assert swept(space) == (0, (0, 0, 0, 0, 0))
        sound(arena, space)

    def test_what_has_expired_waits_for_one_that_does_not_go_on_and_reaches_the_error_queue(
        self, arena, space, connect, clock
    ):
        make_queue(space, "K", multiple_consumers=True, keep_expired=True, expiration=5)
        for name in ("one", "two"):
            space.subscribe("K", name)
        space.enqueue("K", "x")
        space.dequeue("K:two")
        stopped = connect()
        stopped.execute(f"SELECT FROM {arena.schema}.share FOR UPDATE")
        clock.advance(6)
        beside(lambda: space.usage("K:one"))
        assert (space.usage("ERRORS").messages, space.usage("K").messages) == (0, 1)
        stopped.rollback()
        assert drain(space, "K:one") == []
        assert drain(space, "ERRORS") == ["x"]
        assert rows(space) == (0, 0, 0, 0, 0)
        sound(arena, space)

    def test_it_goes_a_thousand_at_a_time_to_the_end(self, arena, space, connect, monkeypatch):
        monkeypatch.setattr("qmcore.acts.sweeping.STEP", 3)
        space.subscribe("Q", "three")
        space.enqueue_many("Q", [f"{number}" for number in range(20)])
        first, second = connect(), connect()
        space.dequeue_many("Q:one", 20, connection=first)
        beside(lambda: space.dequeue_many("Q:two", 20, connection=second))
        first.commit()
        second.commit()
        assert swept(space) == (20, (20, 0, 20, 20, 0))
        assert arena.sql("SELECT DISTINCT places FROM qm.share") == [(1,)]
        assert len(space.dequeue_many("Q:three", 15)) == 15
        assert rows(space) == (5, 0, 5, 5, 0), "whoever knows to be the last leaves nothing to be swept"
        assert [info.state for info in space.messages("Q:three")] == [State.READY] * 5
        sound(arena, space)

    def test_how_a_message_went_is_how_the_last_of_its_places_did(self, arena, space, connect, clock):
        space.enqueue("Q", "x")
        connection = connect()
        space.dequeue("Q:one", connection=connection)
        clock.advance(1)
        assert beside(lambda: space.purge("Q:two")) == 1
        connection.commit()
        usage = space.usage("Q")
        assert (usage.messages, usage.dequeued, usage.discarded) == (0, 0, 1)
        sound(arena, space)

    def test_what_fails_for_a_consumer_while_another_has_it_goes_to_the_error_queue_as_a_copy(
        self, arena, space, connect
    ):
        sent = space.enqueue("Q", "x" * (MIB + 1))
        connection = connect()
        space.dequeue("Q:one", connection=connection)

        def fail():
            for _ in range(2):
                with pytest.raises(RuntimeError), space.transaction():
                    assert space.dequeue("Q:two") is not None
                    raise RuntimeError

        beside(fail)
        connection.commit()
        (failed,) = space.messages("ERRORS")
        assert (failed.origin.queue, failed.origin.first) == ("Q:two", sent)
        assert swept(space) == (0, (1, 2, 1, 0, 0))
        assert space.dequeue("ERRORS").text == "x" * (MIB + 1)
        assert rows(space) == (0, 0, 0, 0, 0)
        sound(arena, space)
