"""Queue spaces in transactions of the package `transaction` on which a session of SQLAlchemy decides."""

import contextlib

import pytest
import sqlalchemy as sa
import transaction
import zope.sqlalchemy
from sqlalchemy import orm, pool
from transaction.interfaces import TransactionFailedError

import qmadmin
from qmadmin import session_decision
from qmadmin.zope import join
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    InvalidArgumentError,
    NotOpenError,
    OperatingSystemError,
    ProtocolError,
)
from qmcore.probe import Point
from qmcore.records import Outcome
from qmstorage.sqlite import files
from tests.fix_applications import connected
from tests.fix_databases import decisions_in, rows_of
from tests.fix_store import attachment_of, drain, make_queue, space_definition
from tests.interrupts import at_every_line

SESSIONS = [("file", "Session"), ("file", "scoped_session"), ("server", "Session")]
on_each_database = pytest.mark.parametrize("shop", SESSIONS, indirect=True, ids="-".join)
on_a_file = pytest.mark.parametrize("shop", SESSIONS[:1], indirect=True, ids="-".join)


@pytest.fixture(autouse=True)
def _none_is_left():
    yield
    transaction.abort()


@pytest.fixture
def space(shared_store):
    opened = shared_store.space(transactions=200)
    for name in ("Q", "OUT"):
        make_queue(opened, name, retries=1_000)
    opened.enqueue("Q", "request")
    return opened


@pytest.fixture
def session(shop):
    """The session of an application, which zope.sqlalchemy knows."""
    zope.sqlalchemy.register(shop.connection)
    return shop.connection


def answer(space, session):
    """Join, take the request, record an order and answer."""
    join(space, session=session)
    text = space.dequeue("Q").text
    session.execute(sa.text("INSERT INTO shop_order VALUES ('x')"))
    space.enqueue("OUT", text.upper())


def there(space, shop):
    """Return what stands in both queues, and the orders."""
    assert (space.transactions(), space.tpc_recover()) == ([], [])
    return drain(space), drain(space, "OUT"), shop.orders()


DONE = [], ["REQUEST"], ["x"]
UNDONE = ["request"], [], []


class Other:
    """Another data manager of the transaction, which does something where it is asked to vote or to finish."""

    transaction_manager = transaction.manager

    def __init__(self, key, **does):
        self.key, self.does = key, does
        transaction.get().join(self)

    def sortKey(self):  # noqa: N802 - the package's name
        return self.key

    def tpc_begin(self, _its):
        pass

    def commit(self, _its):
        pass

    def tpc_vote(self, _its):
        self.does.get("vote", bool)()

    def tpc_finish(self, _its):
        self.does.get("finish", bool)()

    def tpc_abort(self, _its):
        pass

    def abort(self, _its):
        pass


def fail():
    raise ValueError("fails")


@on_each_database
class TestAnEnd:
    def test_rows_and_messages_are_committed_and_the_row_of_the_decision_goes_soon(self, space, session, shop, clock):
        answer(space, session)
        transaction.commit()
        assert (*there(space, shop), decisions_in(shop.place)) == (*DONE, 1)
        clock.advance(2)
        with contextlib.closing(connected(shop.place)) as connection:
            assert qmadmin.recover(connection) == 0
        assert decisions_in(shop.place) == 0

    def test_an_abort_leaves_nothing(self, space, session, shop):
        answer(space, session)
        transaction.abort()
        assert there(space, shop) == UNDONE
        space.enqueue("Q", "request")
        answer(space, session)
        transaction.commit()
        assert there(space, shop) == DONE

    def test_a_branch_is_one_of_ours_and_the_database_decides(self, space, session, shop):
        answer(space, session)
        seen = []
        Other("~z", vote=lambda: seen.extend(space.transactions()))
        Other("~r", vote=lambda: seen.extend(space.transactions()))
        transaction.commit()
        assert [info.state for info in seen] == [Outcome.PREPARED] * 2
        assert {info.decider for info in seen} == {seen[0].decider}
        assert "database" in seen[0].decider
        assert there(space, shop) == DONE

    def test_what_has_only_looked_writes_no_decision(self, space, session, shop):
        join(space, session=session)
        space.peek("Q")
        session.execute(sa.text("INSERT INTO shop_order VALUES ('x')"))
        transaction.commit()
        assert (drain(space), shop.orders(), decisions_in(shop.place)) == (["request"], ["x"], 0)

    def test_messages_alone_are_committed_with_a_session_that_has_done_nothing(self, space, session, shop):
        join(space, session=session)
        space.enqueue("OUT", "x")
        transaction.commit()
        assert (drain(space, "OUT"), decisions_in(shop.place)) == (["x"], 1)

    def test_several_queue_spaces_follow_one_session(self, space, session, shop, shared_store):
        second = shared_store.space("SECOND", ipc_key=40_001)
        make_queue(second, "Q")
        answer(space, session)
        join(second, session=session)
        join(second, session=session)
        second.enqueue("Q", "y")
        transaction.commit()
        assert (there(space, shop), drain(second), decisions_in(shop.place)) == (DONE, ["y"], 1)

    def test_a_savepoint_covers_rows_and_messages(self, space, session, shop):
        answer(space, session)
        if shop.place.startswith("postgresql"):
            savepoint = transaction.savepoint()
            session.execute(sa.text("INSERT INTO shop_order VALUES ('never')"))
            space.enqueue("OUT", "never")
            savepoint.rollback()
        else:
            # zope.sqlalchemy has none on SQLite.
            with pytest.raises(TypeError, match="Savepoints unsupported"):
                transaction.savepoint()
            transaction.abort()
            answer(space, session)
        transaction.commit()
        assert there(space, shop) == DONE

    def test_what_joined_after_a_savepoint_can_join_again(self, space, session, shop):
        transaction.begin()
        savepoint = transaction.savepoint()
        answer(space, session)
        savepoint.rollback()
        assert space.transactions() == []
        answer(space, session)
        transaction.commit()
        assert there(space, shop) == DONE


@on_each_database
class TestTheOthers:
    @pytest.mark.parametrize("key", ["a", "s", "~r"])
    def test_a_vote_that_fails_before_the_session_rolls_all_back(self, space, session, shop, key):
        answer(space, session)
        Other(key, vote=fail)
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        transaction.abort()
        assert (*there(space, shop), decisions_in(shop.place)) == (*UNDONE, 0)

    def test_a_vote_of_ours_that_fails_leaves_no_row(self, space, session, shop):
        answer(space, session)
        space.destroy_queue("OUT")
        with pytest.raises(BadQueueError):
            transaction.commit()
        transaction.abort()
        assert (drain(space), shop.orders(), decisions_in(shop.place)) == (["request"], [], 0)

    @pytest.mark.parametrize("step", ["vote", "finish"])
    def test_what_fails_behind_the_session_changes_nothing_any_more(self, space, session, shop, step, caplog):
        answer(space, session)
        Other("~z" if step == "vote" else "a", **{step: fail})
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        transaction.abort()
        assert there(space, shop) == DONE
        assert "is committed with its session, before another data manager failed" in caplog.text

    def test_a_commit_that_the_session_refuses_gives_the_message_back(self, space, session, shop):
        answer(space, session)
        sa.event.listen(session, "before_commit", lambda _: fail())
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        transaction.abort()
        assert (*there(space, shop), decisions_in(shop.place)) == (*UNDONE, 0)


@pytest.mark.parametrize("shop", SESSIONS[2:], indirect=True, ids="-".join)
def test_a_transaction_that_recovery_has_ended_before_its_decision_is_refused(space, session, shop):
    answer(space, session)

    def oppose():
        (info,) = space.transactions()
        with contextlib.closing(connected(shop.place)) as connection:
            opposite = f"('{info.xid.gtrid.hex()}', 'rollback', 0, '', 0)"
            connection.execute(f"INSERT INTO qmadmin_decision VALUES {opposite}")
            connection.commit()

    Other("r", vote=oppose)
    with pytest.raises(AbortedError, match="others have ended the transaction on"):
        transaction.commit()
    transaction.abort()
    assert there(space, shop) == UNDONE


class TestRefusals:
    @on_each_database
    def test_a_database_without_the_table(self, space, session, shop):
        with contextlib.closing(connected(shop.place)) as connection:
            connection.execute("DROP TABLE qmadmin_decision")
            connection.commit()
        with pytest.raises(ProtocolError, match="needs the table qmadmin_decision to take part: its session is") as e:
            join(space, session=session)
        assert "create_decision_table" in e.value.hint
        transaction.abort()
        assert space.transactions() == []
        with contextlib.closing(connected(shop.place)) as connection:
            qmadmin.create_decision_table(connection)
        answer(space, session)
        transaction.commit()
        assert there(space, shop) == DONE

    @on_a_file
    def test_what_is_no_session(self, space, shop):
        for wrong in (shop.engine, "session", space):
            with pytest.raises(InvalidArgumentError, match="what decides is a Session of SQLAlchemy, got"):
                join(space, session=wrong)
        with pytest.raises(InvalidArgumentError, match="twophase=True"):
            join(space, session=orm.Session(shop.engine, twophase=True))
        with pytest.raises(InvalidArgumentError, match="no engine of its own"):
            join(space, session=orm.Session())
        assert space.transactions() == []

    @on_a_file
    def test_another_session_or_none_for_queue_spaces_of_one_transaction(self, space, session, shop, shared_store):
        second = shared_store.space("SECOND", ipc_key=40_001)
        join(space, session=session)
        other = orm.Session(shop.engine)
        for given in (None, other):
            with pytest.raises(ProtocolError, match=r"queue space 'SPACE' has joined .* with another session"):
                join(second, session=given)
        with pytest.raises(ProtocolError, match="with another session, and one decides"):
            join(space, session=other)
        join(space)
        transaction.abort()
        join(space)
        with pytest.raises(ProtocolError, match="with no session, and one decides on all queue spaces"):
            join(second, session=session)
        other.close()

    @on_a_file
    def test_a_session_that_has_written_on_a_file_before_the_first_join(self, space, session, shop):
        session.execute(sa.text("INSERT INTO shop_order VALUES ('x')"))
        with pytest.raises(ProtocolError, match=r"cannot be asked beside the session: .*locked") as e:
            join(space, session=session)
        assert e.value.hint == "Join before the session has written anything."
        transaction.abort()
        answer(space, session)
        transaction.commit()
        session.execute(sa.text("INSERT INTO shop_order VALUES ('y')"))
        join(space, session=session)
        space.enqueue("OUT", "y")
        transaction.commit()
        assert shop.orders() == ["x", "y"]

    @on_a_file
    def test_a_session_that_only_reads(self, space, shop):
        zope.sqlalchemy.register(shop.connection, initial_state=zope.sqlalchemy.datamanager.STATUS_READONLY)
        with pytest.raises(InvalidArgumentError, match=r"registered with zope\.sqlalchemy as one that only reads"):
            join(space, session=shop.connection)

    @on_a_file
    def test_an_engine_of_one_connection(self, space, shop):
        engine = sa.create_engine(f"sqlite:///{shop.place}", poolclass=pool.StaticPool)
        with orm.Session(engine) as session, pytest.raises(InvalidArgumentError, match="has one connection only"):
            join(space, session=session)
        engine.dispose()

    @on_a_file
    def test_a_database_that_cannot_decide(self, space, shop):
        def relax(connection, _record):
            connection.execute("PRAGMA synchronous = NORMAL")

        engine = sa.create_engine(f"sqlite:///{shop.place}")
        sa.event.listen(engine, "connect", relax)
        for its, why in (engine, "PRAGMA synchronous is 1"), (sa.create_engine("sqlite://"), "gone with its process"):
            with orm.Session(its) as session, pytest.raises(ProtocolError, match=f"cannot take part: .*{why}"):
                join(space, session=session)
            its.dispose()

    def test_a_queue_space_in_the_database_of_the_session(self, shared_store):
        space = shared_store.space()
        place = shared_store.path
        engine = sa.create_engine(f"sqlite:///{place}" if "://" not in place else _url(place))
        with engine.connect() as connection:
            qmadmin.create_decision_table(connection)
            connection.commit()
        try:
            with orm.Session(engine) as session:
                with pytest.raises(ProtocolError, match="both are one database transaction, in which") as e:
                    join(space, session=session)
                assert "connection=session" in e.value.hint
                transaction.abort()
        finally:
            with engine.begin() as connection:
                connection.execute(sa.text("DROP TABLE qmadmin_decision"))
            engine.dispose()

    @on_a_file
    def test_a_device_in_memory(self, session):
        with qmadmin.create_device(":memory:", 3_000) as device:
            device.create_space(space_definition())
            with (
                device.open_space("SPACE") as space,
                pytest.raises(InvalidArgumentError, match="a device in memory takes no part"),
            ):
                join(space, session=session)

    @on_a_file
    def test_a_closed_queue_space(self, space, session):
        space.close()
        with pytest.raises(NotOpenError):
            join(space, session=session)

    @on_a_file
    def test_a_transaction_that_has_failed(self, space, session, shop):
        Other("a", vote=fail)
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        with pytest.raises(TransactionFailedError):
            join(space, session=session)
        transaction.abort()
        assert there(space, shop) == UNDONE

    @on_a_file
    def test_a_session_of_another_transaction_manager(self, space, shop):
        manager = transaction.TransactionManager()
        zope.sqlalchemy.register(shop.connection, transaction_manager=manager)
        shop.connection.execute(sa.text("SELECT 1"))
        answer(space, shop.connection)
        with pytest.raises(ProtocolError, match="the session has not committed with the transaction"):
            transaction.commit()
        transaction.abort()
        manager.abort()
        assert (*there(space, shop), decisions_in(shop.place)) == (*UNDONE, 0)


def _url(place):
    from tests.fix_postgres import database_of

    return sa.engine.make_url(database_of(place)[0]).set(drivername="postgresql+psycopg")


@on_each_database
class TestFailures:
    def test_a_commit_that_the_store_refuses_follows_and_the_decision_stays_until_then(
        self, space, session, shop, shared_store, caplog
    ):
        answer(space, session)
        left = [None]

        def refuse(_fact):
            if left:
                left.pop()
                raise OperatingSystemError("the disk is full")

        Other("~r", vote=lambda: shared_store.device.probe.at(Point.BEFORE_WRITE, refuse))
        transaction.commit()
        assert "is postponed" in caplog.text
        assert [info.state for info in space.transactions()] == [Outcome.PREPARED]
        assert rows_of(shop.place, "qmadmin_decision WHERE kind = 'commit' AND told <> '[]'") == 1
        attachment_of(space).do_housekeeping(now=True)
        assert there(space, shop) == DONE

    @pytest.mark.parametrize("module", [session_decision, qmadmin.zope])
    def test_an_interrupt_at_any_line_leaves_all_of_it_or_nothing(self, space, session, shop, module):
        def work():
            answer(space, session)
            transaction.commit()

        for _ in at_every_line(module, work):
            transaction.abort()
            with contextlib.closing(connected(shop.place)) as connection:
                attachment_of(space).do_housekeeping(now=True)
                assert qmadmin.recover(connection) == 0
                assert (space.transactions(), space.tpc_recover()) == ([], [])
                found = len(list(space.messages("Q"))), drain(space, "OUT"), shop.orders()
                assert found in ((1, [], []), (0, ["REQUEST"], ["x"]))
                connection.execute("DELETE FROM shop_order")
                connection.commit()
            if not found[0]:
                space.enqueue("Q", "request")


@on_a_file
def test_a_file_is_on_the_disk_before_a_queue_space_follows(space, shop, session, monkeypatch):
    steps = []
    sync = files.sync_directory
    monkeypatch.setattr(files, "sync_directory", lambda path: (steps.append(path), sync(path)))
    answer(space, session)
    steps.clear()
    space.device.probe.at(Point.BEFORE_WRITE, steps.append)
    transaction.commit()
    vote, follow = (at for at, step in enumerate(steps) if step == 1)
    assert shop.place in steps[vote:follow]
    assert there(space, shop) == ([], ["REQUEST"], ["x"])
