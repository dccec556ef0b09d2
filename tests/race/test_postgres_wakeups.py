"""Who is told of messages on PostgreSQL: those who may wait for the queue, once in each transaction, nobody else."""

import contextlib

import psycopg
import pytest

from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.probe import Point
from qmstorage.postgres import keys
from qmstorage.postgres.wakeups import ServerWakeup
from tests.fix_postgres import database_of
from tests.fix_store import Work, attachment_of, eventually, make_queue, waiting_for

pytestmark = pytest.mark.parametrize("store", ["postgres"], indirect=True)

_LAST = "that is all"


class Listener:
    """A session that hears what the server tells of queues."""

    def __init__(self, url: str) -> None:
        self._url, self._schema = database_of(url)
        self._connection = psycopg.connect(self._url, autocommit=True)

    def listen(self, *queues) -> None:
        for queue in queues:
            self._connection.execute(f"LISTEN {keys.channel(self._schema, queue.id)}")

    def heard(self, queue) -> int:
        """Return how often the queue was told of since the last time that was asked for it."""
        channel = keys.channel(self._schema, queue.id)
        with psycopg.connect(self._url, autocommit=True) as other:
            other.execute("SELECT pg_notify(%s, %s)", [channel, _LAST])
        count = 0
        # What is told in this order is heard in this order.
        for told in self._connection.notifies():
            if told.payload == _LAST:
                break
            count += told.channel == channel
        return count

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def listener(store):
    with contextlib.closing(Listener(store.path)) as made:
        yield made


def test_nobody_is_told_where_nobody_waits(store, space, listener):
    queue = make_queue(space, "QUIET")
    listener.listen(queue)
    space.enqueue("QUIET", b"x")
    with space.transaction():
        space.enqueue("QUIET", b"y")
    assert listener.heard(queue) == 0


def test_a_transaction_tells_once_of_each_queue_for_which_somebody_waits(store, space, listener):
    awaited, other = make_queue(space, "AWAITED"), make_queue(space, "OTHER")
    listener.listen(awaited, other)
    waiter = Work(lambda: space.dequeue("AWAITED", wait=30, corrid=b"never"))
    eventually(lambda: waiting_for(store.path) == 1, "a wait is recorded")
    with space.transaction():
        for _ in range(5):
            space.enqueue("AWAITED", b"x")
            space.enqueue("OTHER", b"x")
    assert listener.heard(awaited) == 1
    assert listener.heard(other) == 0
    space.enqueue("AWAITED", b"x", corrid=b"never")
    waiter.results()


def test_what_is_rolled_back_is_told_to_nobody(store, space, listener):
    queue = make_queue(space, "AWAITED")
    listener.listen(queue)
    waiter = Work(lambda: space.dequeue("AWAITED", wait=30))
    eventually(lambda: waiting_for(store.path) == 1, "a wait is recorded")
    with pytest.raises(ZeroDivisionError), space.transaction():
        space.enqueue("AWAITED", b"x")
        raise ZeroDivisionError
    assert listener.heard(queue) == 0
    space.enqueue("AWAITED", b"y")
    assert waiter.results()[0].body == b"y"


def test_who_has_ended_waiting_is_told_no_more(store, space, listener, clock):
    queue = make_queue(space, "LEFT")
    listener.listen(queue)
    waiter = Work(lambda: space.dequeue("LEFT", wait=30))
    eventually(lambda: waiting_for(store.path) == 1, "a wait is recorded")
    space.enqueue("LEFT", b"x")
    waiter.results()
    listener.heard(queue)
    assert waiting_for(store.path) == 0
    space.enqueue("LEFT", b"x")
    assert listener.heard(queue) == 0


class TestWhoBringsAMessage:
    """It looks who waits in the statement that brings it, and not behind its commit."""

    @pytest.fixture
    def stuck(self, store, space):
        """A queue, and a lock for which each commit of a message waits at its very end, with what waits for it."""
        queue = make_queue(space, "LATE")
        url, schema = database_of(store.path)
        space.enqueue("LATE", b"x")
        space.dequeue("LATE")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                f"CREATE FUNCTION {schema}.late() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END';"
                f"CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {schema}.message DEFERRABLE INITIALLY DEFERRED"
                f" FOR EACH ROW EXECUTE FUNCTION {schema}.late(); SELECT pg_advisory_lock(42)"
            )
            bringing = Work(lambda: space.enqueue("LATE", b"late"))
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"
            eventually(lambda: connection.execute(held).fetchone() == (1,), "a commit waits")

            def end():
                connection.execute("SELECT pg_advisory_unlock(42)")
                return bringing.results()

            yield queue, end

    @pytest.mark.parametrize("how", ["a large body", "a limit with a command", "a large body alone"])
    def test_who_begins_to_wait_while_a_commit_goes_on_behind_that_statement_is_told(self, store, space, listener, how):
        high = parse_high("5000m")
        threshold = Threshold(high, parse_low("1m", high), "true")
        queue = make_queue(space, "LATE", **({"threshold": threshold} if how == "a limit with a command" else {}))
        make_queue(space, "OTHER")
        space.enqueue("OTHER", b"taken")
        listener.listen(queue)
        url, schema = database_of(store.path)
        begun = []

        def begin_to_wait(_fact):
            # As a waiter does: one that takes part would want the volume for itself now and then.
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"INSERT INTO {schema}.waiter VALUES ({queue.id}, 'somebody', 1)")
            store.device.probe.leave(Point.AFTER_WRITE)
            begun.append(queue)

        body = b"x" if how == "a limit with a command" else bytes(3_000_000)
        with contextlib.nullcontext() if how == "a large body alone" else space.transaction():
            if how != "a large body alone":
                space.dequeue("OTHER")
            store.device.probe.at(Point.AFTER_WRITE, begin_to_wait)
            space.enqueue("LATE", body)
        assert begun == [queue]
        assert listener.heard(queue) == 1

    def test_who_begins_to_wait_while_many_messages_go_by_that_statement_is_told(self, store, space, listener):
        queue, url, schema = make_queue(space, "LATE"), *database_of(store.path)
        make_queue(space, "OTHER")
        space.enqueue_many("OTHER", [b"taken"] * 101)
        listener.listen(queue)

        def reply():
            with space.transaction():
                assert len(space.dequeue_many("OTHER", 101)) == 101
                space.enqueue("LATE", b"x")

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                f"CREATE FUNCTION {schema}.late() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END';"
                f"CREATE TRIGGER late AFTER DELETE ON {schema}.held EXECUTE FUNCTION {schema}.late();"
                " SELECT pg_advisory_lock(42)"
            )
            replying = Work(reply)
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"
            eventually(lambda: connection.execute(held).fetchone() == (1,), "a commit waits")
            connection.execute(f"INSERT INTO {schema}.waiter VALUES ({queue.id}, 'somebody', 1)")
            connection.execute("SELECT pg_advisory_unlock(42)")
            replying.results()
        assert listener.heard(queue) == 1

    @pytest.mark.parametrize("rings_in_vain", [0, 2])
    def test_a_wait_that_began_under_his_commit_is_not_woken_and_looks_again_soon(
        self, space, listener, stuck, monkeypatch, rings_in_vain
    ):
        """Also where it was woken meanwhile for what another has taken."""
        queue, end = stuck
        listener.listen(queue)
        pauses = []

        def sleep(_wakeup, seconds):
            pauses.append(seconds)
            if len(pauses) <= rings_in_vain:
                return True
            brought.extend(end())
            return False

        brought = []
        monkeypatch.setattr(ServerWakeup, "wait", sleep)
        assert space.dequeue("LATE", wait=30).msgid == brought[0]
        assert listener.heard(queue) == 0
        assert len(pauses) == rings_in_vain + 1
        assert all(0 < pause <= attachment_of(space).volume.wakeups.deaf_seconds for pause in pauses)

    def test_a_wait_looks_each_second_after_that(self, space, stuck, monkeypatch, clock):
        _, end = stuck
        pauses = []

        def sleep(_wakeup, seconds):
            pauses.append(seconds)
            if len(pauses) == 2:
                brought.extend(end())
            clock.advance(seconds)
            return False

        brought = []
        monkeypatch.setattr(ServerWakeup, "wait", sleep)
        assert space.dequeue("LATE", wait=30).msgid == brought[0]
        assert pauses[1] == 1

    def test_a_watch_is_told_when_to_look_again_each_time(self, space, stuck, clock):
        _, end = stuck
        with space.watch() as watch:
            for _ in range(2):
                seen = watch.look(["LATE"])
                assert seen.queues == ()
                assert 0 < seen.seconds <= attachment_of(space).volume.wakeups.deaf_seconds
            clock.advance(1)
            assert watch.look(["LATE"]).seconds == 1
            end()
            assert watch.look(["LATE"]).queues == ("LATE",)


def test_non_persistent_messages_stand_in_tables_that_are_not_logged(store, space):
    database, schema = database_of(store.path)
    with psycopg.connect(database) as connection:
        kinds = connection.execute(
            "SELECT DISTINCT relpersistence FROM pg_class"
            " WHERE relkind IN ('r', 'i') AND relnamespace = to_regnamespace(%s)",
            [f"{schema}_memory"],
        ).fetchall()
    assert kinds in ([("u",)], [(b"u",)])
