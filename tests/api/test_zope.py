"""Queue spaces in transactions of the package `transaction`, beside other data managers and sessions of SQLAlchemy."""

import pytest
import sqlalchemy as sa
import transaction
import zope.sqlalchemy
from sqlalchemy import orm
from transaction.interfaces import IDataManagerSavepoint, ISavepointDataManager, NoTransaction, TransactionFailedError
from zope.interface.verify import verifyObject

import qmadmin
from qmadmin.zope import FORMAT, join
from qmcore.errors import (
    AbortedError,
    InvalidArgumentError,
    NoSpaceError,
    NotOpenError,
    ProtocolError,
)
from qmcore.records import Outcome
from tests.api.zope_transactions import DONE, UNDONE, Other, answer, space_with_request, there
from tests.fix_store import Work, drain, make_queue

tables = sa.MetaData()
order = sa.Table("shop_order", tables, sa.Column("number", sa.Integer, primary_key=True))


@pytest.fixture(autouse=True)
def _none_is_left():
    yield
    transaction.abort()


@pytest.fixture
def joined(monkeypatch):
    """What joins transactions from now on."""
    found = []
    join_with = transaction.Transaction.join

    def noting(its, resource):
        join_with(its, resource)
        found.append(resource)

    monkeypatch.setattr(transaction.Transaction, "join", noting)
    return found


@pytest.fixture
def space(store):
    return space_with_request(store)


@pytest.fixture
def session(tmp_path):
    """A session of zope.sqlalchemy on a database that is none of ours."""
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    tables.create_all(engine)
    made = orm.Session(engine)
    zope.sqlalchemy.register(made)
    yield made
    transaction.abort()
    made.close()
    engine.dispose()


class TestAnEnd:
    def test_a_commit_makes_all_of_it_take_effect(self, space):
        answer(space)
        transaction.commit()
        assert there(space) == DONE

    def test_an_abort_gives_back_what_was_taken_which_is_a_try(self, space):
        answer(space)
        transaction.abort()
        assert there(space) == UNDONE

    def test_the_block_of_the_manager_ends_it(self, space):
        with transaction.manager:
            answer(space)
        with pytest.raises(LookupError), transaction.manager:
            join(space)
            space.enqueue("Q", "never")
            raise LookupError
        assert there(space) == DONE

    def test_nobody_sees_anything_of_it_before(self, space):
        answer(space)
        (info,) = space.transactions()
        assert (info.state, info.xid.format_id, FORMAT) == (Outcome.ACTIVE, FORMAT, 1515147333)
        assert drain(space, "OUT", transactional=False) == []

    def test_to_join_twice_is_to_join_once_and_each_transaction_joins_anew(self, space, joined):
        join(space)
        join(space)
        assert (len(joined), len(space.transactions())) == (1, 1)
        transaction.commit()
        space.enqueue("Q", "outside")
        answer(space)
        transaction.abort()
        assert drain(space) == ["request", "outside"]

    def test_what_has_changed_nothing_is_over_with_its_vote(self, space):
        join(space)
        space.peek("Q")
        other = Other()
        other.tpc_vote = lambda _its: other.asked.append(len(space.transactions()))
        transaction.commit()
        assert other.asked == ["tpc_begin", "commit", 0, "tpc_finish"]

    def test_several_queue_spaces_are_one_transaction(self, space, store):
        second = store.space("SECOND", ipc_key=40_001)
        make_queue(second, "Q")
        join(space)
        join(second)
        second.enqueue("Q", space.dequeue("Q").text)
        first, its = (each.transactions()[0].xid for each in (space, second))
        assert (first.gtrid, first.bqual != its.bqual) == (its.gtrid, True)
        transaction.commit()
        assert (there(space), drain(second)) == (([], []), ["request"])

    def test_a_queue_space_that_the_application_has_closed_is_committed_all_the_same(self, space, store):
        with store.device.open_space("SPACE") as again:
            join(again)
            again.enqueue("OUT", "x")
        space.close()
        transaction.commit()
        with store.device.open_space("SPACE") as again:
            assert drain(again, "OUT") == ["x"]


class TestTheOthers:
    @pytest.mark.parametrize("step", ["tpc_begin", "commit", "tpc_vote"])
    @pytest.mark.parametrize("key", ["a", "~"])
    def test_a_step_that_fails_before_the_end_rolls_back(self, space, step, key):
        answer(space)
        Other(step, key)
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        transaction.abort()
        assert there(space) == UNDONE

    def test_an_end_that_fails_behind_ours_leaves_ours_committed(self, space):
        answer(space)
        other = Other("tpc_finish")
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        transaction.abort()
        assert other.asked[-2:] == ["tpc_abort", "abort"]
        assert there(space) == DONE

    def test_an_end_that_fails_before_ours_rolls_back_what_was_promised(self, space):
        answer(space)
        Other("tpc_finish", key="a")
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        transaction.abort()
        assert there(space) == UNDONE

    def test_a_vote_of_ours_that_fails_rolls_back_and_the_others_are_aborted(self, space):
        answer(space)
        other = Other()
        space.destroy_queue("OUT")
        with pytest.raises(qmadmin.BadQueueError):
            transaction.commit()
        assert other.asked == ["tpc_begin", "commit", "abort", "tpc_abort"]
        transaction.abort()
        assert [message.retries for message in space.messages("Q")] == [1]
        with transaction.manager:
            join(space)

    @pytest.mark.parametrize(
        ("ends", "is_done"),
        [
            ("finish abort abort", True),
            ("abort abort finish", False),
            ("vote abort abort finish", False),
            ("vote finish abort abort finish", True),
            ("abort vote", None),
        ],
    )
    def test_each_end_may_come_again_and_in_any_order(self, space, joined, ends, is_done):
        answer(space)
        (its,) = joined
        assert verifyObject(ISavepointDataManager, its)
        calls = {"finish": its.tpc_finish, "abort": its.tpc_abort, "vote": its.tpc_vote}
        if ends.startswith("finish"):
            its.tpc_vote(None)
        if is_done is None:
            its.abort(None)
            with pytest.raises(ProtocolError, match="takes no more calls"):
                its.tpc_vote(None)
        else:
            for name in ends.split():
                calls[name](None)
                its.abort(None) if name == "abort" else None
        assert there(space) == (DONE if is_done else UNDONE)


class TestASession:
    def test_rows_and_messages_are_one_transaction(self, space, session):
        answer(space)
        session.execute(order.insert().values(number=1))
        zope.sqlalchemy.mark_changed(session)
        transaction.commit()
        assert there(space) == DONE
        assert session.scalars(sa.select(order.c.number)).all() == [1]

    def test_it_commits_when_all_queue_spaces_have_voted(self, space, session):
        answer(space)
        session.execute(order.insert().values(number=1))
        zope.sqlalchemy.mark_changed(session)
        seen = []
        sa.event.listen(session, "before_commit", lambda _: seen.extend(space.transactions()))
        transaction.commit()
        assert [info.state for info in seen] == [Outcome.PREPARED]

    def test_a_row_that_is_refused_gives_the_message_back(self, space, session):
        session.execute(order.insert().values(number=1))
        zope.sqlalchemy.mark_changed(session)
        transaction.commit()
        answer(space)
        with pytest.raises(sa.exc.IntegrityError):
            session.execute(order.insert().values(number=1))
        transaction.abort()
        assert there(space) == UNDONE

    def test_a_vote_that_fails_leaves_no_row(self, space, session):
        answer(space)
        session.execute(order.insert().values(number=1))
        zope.sqlalchemy.mark_changed(session)
        space.destroy_queue("OUT")
        with pytest.raises(qmadmin.BadQueueError):
            transaction.commit()
        transaction.abort()
        assert session.scalars(sa.select(order.c.number)).all() == []


class TestSavepoints:
    def test_what_was_enqueued_since_is_forgotten(self, space, joined):
        answer(space)
        savepoint = transaction.savepoint()
        assert verifyObject(IDataManagerSavepoint, joined[0].savepoint())
        space.enqueue("OUT", "second")
        inner = transaction.savepoint()
        space.enqueue("OUT", "third")
        inner.rollback()
        savepoint.rollback()
        space.enqueue("OUT", "fourth")
        savepoint.rollback()
        space.enqueue("OUT", "fifth")
        transaction.commit()
        assert there(space) == ([], ["REQUEST", "fifth"])

    def test_one_before_the_queue_space_has_joined_lets_it_go(self, space):
        transaction.begin()
        savepoint = transaction.savepoint()
        answer(space)
        savepoint.rollback()
        assert space.transactions() == []
        answer(space)
        transaction.commit()
        assert there(space) == DONE

    def test_a_dequeue_since_cannot_be_undone_alone_and_the_transaction_fails(self, space):
        join(space)
        space.enqueue("OUT", "before")
        savepoint = transaction.savepoint()
        space.dequeue("Q")
        with pytest.raises(
            ProtocolError, match="has dequeued 1 message since the savepoint, which cannot be given"
        ) as e:
            savepoint.rollback()
        assert e.value.hint == "Abort the transaction, or dequeue before the savepoint."
        with pytest.raises(TransactionFailedError):
            transaction.commit()
        transaction.abort()
        assert there(space) == UNDONE

    def test_what_stands_in_the_store_since_cannot_be_forgotten_alone(self, store):
        space = store.space(pages=6_000)
        make_queue(space, "Q")
        join(space)
        space.enqueue("Q", "before")
        savepoint = transaction.savepoint()
        space.enqueue("Q", bytes(9 << 20))
        with pytest.raises(ProtocolError, match="has left messages to the store since the savepoint"):
            savepoint.rollback()
        transaction.abort()
        assert (space.transactions(), drain(space)) == ([], [])

    def test_what_was_left_to_the_store_before_is_no_obstacle(self, store):
        space = store.space(pages=6_000)
        make_queue(space, "Q")
        join(space)
        space.enqueue("Q", bytes(9 << 20))
        savepoint = transaction.savepoint()
        space.enqueue("Q", "since")
        savepoint.rollback()
        transaction.commit()
        assert [message.size for message in space.messages("Q")] == [9 << 20]

    def test_what_was_locked_since_stays_locked(self, space):
        join(space)
        savepoint = transaction.savepoint()
        space.lock("Q")
        space.enqueue("OUT", "x")
        savepoint.rollback()
        assert space.dequeue("Q", transactional=False) is None
        transaction.commit()
        assert there(space) == (["request"], [], 0)


class TestRefusals:
    def test_what_is_no_queue_space(self, space, store):
        for wrong in (store.device, None, "SPACE"):
            with pytest.raises(InvalidArgumentError, match="what joins a transaction is a queue space, got"):
                join(wrong)

    def test_inside_another_transaction(self, space, joined):
        with space.transaction(), pytest.raises(ProtocolError, match="a transaction is open already in this thread"):
            join(space)
        assert joined == []
        join(space)
        with pytest.raises(ProtocolError, match="a transaction is open already"), space.transaction():
            pass

    def test_a_closed_queue_space(self, space, joined):
        space.close()
        with pytest.raises(NotOpenError):
            join(space)
        assert joined == []

    def test_more_transactions_than_the_queue_space_allows(self, store):
        space = store.space(transactions=1)
        join(space)
        (refusal,) = Work(lambda: join(space)).results()
        assert isinstance(refusal, NoSpaceError)

    def test_a_transaction_that_has_failed_takes_nobody_and_nothing_is_left(self, space):
        Other("tpc_vote")
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        with pytest.raises(TransactionFailedError):
            join(space)
        assert there(space) == (["request"], [], 0)

    def test_a_manager_without_a_transaction(self, space):
        manager = transaction.TransactionManager(explicit=True)
        with pytest.raises(NoTransaction):
            join(space, transaction_manager=manager)
        its = manager.begin()
        join(space, transaction_manager=manager)
        space.enqueue("OUT", "x")
        its.commit()
        assert there(space) == (["request"], ["x"], 0)

    def test_another_thread_takes_no_part(self, space):
        manager = transaction.TransactionManager()
        join(space, transaction_manager=manager)
        for call in (lambda: join(space, transaction_manager=manager), manager.commit):
            (refusal,) = Work(call).results()
            assert isinstance(refusal, ProtocolError)
            assert refusal.message == "the transaction belongs to another thread"
        assert len(space.transactions()) == 1
        manager.abort()
        assert space.transactions() == []

    @pytest.mark.parametrize("ends", ["commit", "abort"])
    @pytest.mark.parametrize("goes_on", ["join", "call"])
    def test_what_another_thread_was_to_end_is_left_by_the_next_call(self, space, ends, goes_on):
        join(space)
        space.enqueue("OUT", space.dequeue("Q").text)
        its = transaction.get()
        (refusal,) = Work(getattr(its, ends)).results()
        assert isinstance(refusal, ProtocolError)
        if ends == "commit":
            Work(its.abort).results()
        if goes_on == "call":
            with pytest.raises(AbortedError, match="another thread has tried to end it"):
                space.enqueue("OUT", "y")
        else:
            transaction.begin()
            join(space)
            transaction.commit()
        assert there(space) == UNDONE
        space.enqueue("Q", "free")
        assert drain(space) == ["free"]

    def test_its_timeout_is_over(self, space, clock):
        join(space, timeout=5)
        space.enqueue("OUT", "x")
        clock.advance(6)
        with pytest.raises(AbortedError, match="its timeout of 5 seconds is over"):
            transaction.commit()
        transaction.abort()
        assert there(space) == (["request"], [], 0)
