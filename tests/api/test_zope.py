"""Queue spaces in transactions of the package `transaction`, beside other data managers and sessions of SQLAlchemy."""

import errno
import gc

import pytest
import sqlalchemy as sa
import transaction
import zope.sqlalchemy
from sqlalchemy import orm
from transaction.interfaces import IDataManagerSavepoint, ISavepointDataManager, NoTransaction, TransactionFailedError
from zope.interface.verify import verifyObject

import qmadmin
from qmadmin import attachment, two_phase
from qmadmin.zope import FORMAT, join
from qmcore.errors import (
    AbortedError,
    InvalidArgumentError,
    NoSpaceError,
    NotOpenError,
    OperatingSystemError,
    ProtocolError,
)
from qmcore.probe import Point
from qmcore.records import Outcome
from tests.fix_store import Work, attachment_of, drain, make_queue
from tests.interrupts import at_every_line

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
    opened = store.space()
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "OUT")
    opened.enqueue("Q", "request")
    return opened


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


class Other:
    """Another data manager of the transaction, which fails where it is told to, and notes what it is asked."""

    transaction_manager = transaction.manager

    def __init__(self, fails="", key="~"):
        self.fails, self.key, self.asked = fails, key, []
        transaction.get().join(self)

    def sortKey(self):  # noqa: N802 - the package's name
        return self.key

    def savepoint(self):
        return self

    def note(self, what):
        self.asked.append(what)
        if what == self.fails:
            raise ValueError(f"{what} fails")

    def tpc_begin(self, _its):
        self.note("tpc_begin")

    def commit(self, _its):
        self.note("commit")

    def tpc_vote(self, _its):
        self.note("tpc_vote")

    def tpc_finish(self, _its):
        self.note("tpc_finish")

    def tpc_abort(self, _its):
        self.asked.append("tpc_abort")

    def abort(self, _its):
        self.asked.append("abort")


def answer(space):
    """Join, take the request and answer it."""
    join(space)
    space.enqueue("OUT", space.dequeue("Q").text.upper())


def there(space, store=None):
    """Return what stands in both queues, and how often the first of Q was tried."""
    assert (space.transactions(), space.tpc_recover()) == ([], [])
    tries = [message.retries for message in space.messages("Q")]
    return drain(space), drain(space, "OUT"), *tries


DONE = [], ["REQUEST"]
UNDONE = ["request"], [], 1


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


def failing(store, times=1):
    """Let the next works of the store fail, before anything is written."""
    left = [None] * times

    def fail(_fact):
        if not left:
            return
        left.pop()
        raise OperatingSystemError("the disk is full")

    store.device.probe.at(Point.BEFORE_WRITE, fail)


class TestFailuresOfTheStore:
    def test_a_commit_that_was_promised_follows_and_is_no_error(self, space, store, caplog):
        answer(space)
        other = Other("nothing", key="r")
        other.tpc_vote = lambda _its: failing(store)
        transaction.commit()
        assert other.asked == ["tpc_begin", "commit", "tpc_finish"]
        assert "the commit of transaction 1515147333:" in caplog.text
        assert [info.state for info in space.transactions()] == [Outcome.PREPARED]
        attachment_of(space).do_housekeeping(now=True)
        assert there(space) == DONE

    def test_a_rollback_of_what_was_promised_follows(self, space, store, caplog):
        answer(space)
        other = Other("tpc_vote", key="r")
        failed = other.note
        other.note = lambda what: (failing(store) if what == "tpc_vote" else None, failed(what))
        with pytest.raises(ValueError, match="fails"):
            transaction.commit()
        assert "the rollback of transaction 1515147333:" in caplog.text
        transaction.abort()
        attachment_of(space).do_housekeeping(now=True)
        assert there(space) == UNDONE

    def test_what_follows_is_done_at_the_closing_at_the_latest(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q")
        join(space)
        space.enqueue("Q", "x")
        other = Other("nothing", key="r")
        other.tpc_vote = lambda _its: failing(shared_store)
        transaction.commit()
        shared_store.device.close()
        with shared_store.another().open_space("SPACE") as again:
            assert (again.transactions(), drain(again)) == ([], ["x"])

    def test_a_commit_whose_answer_was_lost_is_found_done(self, file_store, caplog):
        space = file_store.space()
        make_queue(space, "Q")
        join(space)
        space.enqueue("Q", "x")
        other = Other("nothing", key="r")
        left = [None]

        def fail(_fact):
            if left:
                left.pop()
                raise OSError(errno.EIO, "the disk fails")

        other.tpc_vote = lambda _its: file_store.device.probe.at(Point.BEFORE_SYNC, fail)
        transaction.commit()
        assert ("is postponed" in caplog.text, len(left)) == (True, 0)
        file_store.device.close()
        with file_store.another().open_space("SPACE") as again:
            # A volume after a failed sync takes nothing more, so that an administrator or the next program looks.
            for xid in again.tpc_recover():
                again.tpc_commit(xid)
            assert (again.transactions(), drain(again)) == ([], ["x"])

    def test_a_rollback_that_was_not_promised_follows(self, space, store):
        answer(space)
        failing(store)
        transaction.abort()
        attachment_of(space).do_housekeeping(now=True)
        assert there(space) == UNDONE

    def test_an_interrupt_at_the_end_leaves_it_to_later(self, space, store):
        answer(space)
        other = Other("nothing", key="r")
        left = [None]

        def interrupt(_fact):
            if left:
                left.pop()
                raise KeyboardInterrupt

        other.tpc_vote = lambda _its: store.device.probe.at(Point.BEFORE_WRITE, interrupt)
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
        transaction.abort()
        attachment_of(space).do_housekeeping(now=True)
        assert there(space) == DONE

    @pytest.mark.parametrize("module", [qmadmin.zope, two_phase, attachment])
    def test_an_interrupt_at_any_line_leaves_all_of_it_or_nothing_and_the_thread_goes_on(self, store, module):
        space = store.space(transactions=100)
        for name in ("Q", "OUT"):
            make_queue(space, name, retries=1_000)
        space.enqueue("Q", "request")

        def work():
            answer(space)
            transaction.commit()

        for _ in at_every_line(module, work):
            transaction.abort()
            for _ in range(2):
                attachment_of(space).do_housekeeping(now=True)
                gc.collect()
            assert (space.transactions(), space.tpc_recover()) == ([], [])
            there, brought = list(space.messages("Q")), drain(space, "OUT")
            assert (len(there), brought) in ((1, []), (0, ["REQUEST"]))
            if not there:
                space.enqueue("Q", "request")
            with space.transaction():
                pass

    @pytest.mark.parametrize("blocked", [True, False])
    def test_the_manager_is_told_what_may_succeed_soon(self, space, blocked):
        join(space)
        error = OperatingSystemError("x", blocked=blocked)
        assert transaction.get().isRetryableError(error) is blocked
        assert transaction.get().isRetryableError(ValueError()) is False


class TestAnAdministrator:
    @pytest.mark.parametrize("commits", [True, False])
    def test_who_ends_it_between_vote_and_end_is_told_of(self, space, store, commits, caplog):
        second = store.space("TAIL", ipc_key=40_001)
        make_queue(second, "Q")
        join(second)
        second.enqueue("Q", "x")
        answer(space)
        other = Other("nothing", key="r")

        def end(_its):
            (info,) = space.transactions()
            (space.commit_transaction if commits else space.abort_transaction)(info.name)

        other.tpc_vote = end
        behind = Other()
        transaction.commit()
        # The others have ended as was decided.
        assert (behind.asked[-1], drain(second)) == ("tpc_finish", ["x"])
        assert ("put right by hand what differs in queue space 'SPACE'" in caplog.text) is not commits
        for info in space.transactions():
            space.tpc_forget(info.xid)
        assert there(space) == (DONE if commits else UNDONE)


DIE = """
import transaction
from pathlib import Path
from tests.doom import Doom, meet
from qmadmin.zope import join

_, path, mark = sys.argv
space = open_device(path).open_space("SPACE", role="shop")
join(space)
space.enqueue("OUT", space.dequeue("Q").text)
meet(Doom("qmadmin.two_phase:TwoPhaseTransaction.decide"), Path(mark))
transaction.commit()
"""


@pytest.mark.parametrize("ends", ["tpc_commit", "tpc_rollback", "commit_transaction"])
def test_one_whose_process_died_between_vote_and_end_waits_for_an_administrator(
    real_device, start, tmp_path, ends, shell
):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        start(DIE, real_device.config, tmp_path / "mark").lines_left()
        attachment_of(space).do_housekeeping(now=True)
        (info,) = space.transactions()
        assert (info.state, info.xid.format_id, info.decider) == (Outcome.PREPARED, FORMAT, "")
        shell.device = real_device.config
        shown = shell.run("qopen SPACE\nqprinttrans\n").out
        assert f"1515147333:{info.xid.gtrid.hex()}:{info.xid.bqual.hex()}" in shown
        getattr(space, ends)(str(info.xid))
        assert (drain(space), drain(space, "OUT")) == ((["x"], []) if ends == "tpc_rollback" else ([], ["x"]))
