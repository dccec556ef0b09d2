"""Transactions of Zope whose store fails, or that an administrator or nobody ends."""

import errno
import gc

import pytest
import transaction

import qmadmin
from qmadmin import attachment, two_phase
from qmadmin.zope import FORMAT, join
from qmcore.errors import (
    OperatingSystemError,
)
from qmcore.probe import Point
from qmcore.records import Outcome
from tests.api.zope_transactions import DONE, UNDONE, Other, answer, space_with_request, there
from tests.fix_store import attachment_of, drain, make_queue
from tests.interrupts import at_every_line


@pytest.fixture(autouse=True)
def _none_is_left():
    yield
    transaction.abort()


@pytest.fixture
def space(store):
    return space_with_request(store)


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
