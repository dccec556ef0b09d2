"""A branch of a distributed transaction: prepared it is kept, whatever happens, until its coordinator ends it."""

import contextlib
import errno
import gc
import itertools
import threading

import pytest

import qmadmin
from qmadmin import transacting, two_phase
from qmcore.acts import in_doubt, preparing
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    NotOpenError,
    OperatingSystemError,
    OutcomeUnknownError,
    ProtocolError,
    QueueError,
    Resource,
    UnknownXidError,
)
from qmcore.message import State
from qmcore.probe import Point
from qmcore.records import Outcome
from qmcore.two_phase import OUR_FORMAT
from tests.fix_store import Work, attachment_of, drain, make_queue, noted, space_definition, truth
from tests.interrupts import at_every_line

XID = (7, b"global", b"branch")
TEXT = "7:676c6f62616c:6272616e6368"


@pytest.fixture
def branch(space):
    """A prepared branch of this thread that has taken `first` and brings `reply`; `second` is left."""
    make_queue(space, "OUT")
    space.enqueue_many("Q", ["first", "second"])
    space.tpc_begin(XID)
    assert space.dequeue("Q").text == "first"
    space.enqueue("OUT", "reply")
    assert space.tpc_prepare() is True
    return space.xid(*XID)


class TestAnEnd:
    def test_its_commit_makes_all_of_it_take_effect(self, space, branch):
        space.tpc_commit()
        assert (drain(space), drain(space, "OUT")) == (["second"], ["reply"])
        assert (space.tpc_recover(), space.transactions()) == ([], [])

    def test_its_rollback_gives_back_what_it_took_which_is_a_try(self, space, branch):
        space.tpc_rollback()
        first = space.dequeue("Q")
        assert (first.text, first.retries, drain(space), drain(space, "OUT")) == ("first", 1, ["second"], [])
        assert (space.tpc_recover(), space.transactions()) == ([], [])

    def test_nobody_sees_anything_of_it_before(self, space, branch):
        assert space.tpc_recover() == [branch]
        (info,) = space.transactions()
        assert (info.state, info.dequeued, info.spilled) == (Outcome.PREPARED, 1, 1)
        assert [(message.state, message.size) for message in space.messages("Q")] == [(State.READY, 6), (State.HELD, 5)]
        assert not list(space.messages("OUT"))
        assert drain(space, transactional=False) == ["second"]

    @pytest.mark.parametrize("commits", [True, False])
    def test_another_handle_ends_it_by_its_identifier(self, shared_store, commits):
        space = shared_store.space()
        make_queue(space, "Q", retries=3)
        make_queue(space, "OUT")
        space.enqueue("Q", "request")
        space.tpc_begin(XID)
        space.dequeue("Q")
        space.enqueue("OUT", "reply")
        space.tpc_prepare()
        with shared_store.another().open_space("SPACE") as other:
            (xid,) = other.tpc_recover()
            assert str(xid) == TEXT
            (other.tpc_commit if commits else other.tpc_rollback)(TEXT)
            assert (drain(other), drain(other, "OUT")) == (([], ["reply"]) if commits else (["request"], []))
        with pytest.raises(UnknownXidError):
            space.tpc_commit()
        with pytest.raises(ProtocolError, match="no branch is open in this thread"):
            space.tpc_rollback()

    def test_one_that_is_not_prepared_is_committed_in_one_phase(self, space):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        (info,) = space.transactions()
        assert info.state is Outcome.ACTIVE
        space.tpc_commit()
        assert drain(space) == ["x"]
        assert space.transactions() == []

    def test_one_that_is_not_prepared_is_rolled_back(self, space):
        space.enqueue("Q", "x")
        space.tpc_begin(XID)
        space.dequeue("Q")
        space.tpc_rollback()
        assert (space.dequeue("Q").retries, space.transactions()) == (1, [])

    def test_all_of_many_and_large_messages_arrive_in_their_order(self, store):
        space = store.space(pages=4000)
        make_queue(space, "Q")
        texts = ["small", "x" * (5 << 20), "y" * (5 << 20), *(f"{number}" for number in range(40))]
        space.tpc_begin(XID)
        for text in texts:
            space.enqueue("Q", text)
        space.tpc_prepare()
        space.tpc_commit()
        assert drain(space) == texts
        truth(space)

    def test_where_others_end_it_at_the_same_time_one_of_them_does(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q")
        spaces = [shared_store.another().open_space("SPACE") for _ in range(3)]
        for number in range(5):
            space.tpc_begin((7, f"{number}", ""))
            space.enqueue("Q", f"{number}")
            space.tpc_prepare()
            work = Work(*(lambda other=other, number=number: _ended(other, (7, f"{number}", "")) for other in spaces))
            assert sorted(work.results()) == [False, False, True]
            _let_go(space)
        assert drain(space) == [f"{number}" for number in range(5)]


def _ended(space, xid):
    try:
        space.tpc_commit(xid)
    except UnknownXidError:
        return False
    return True


def _let_go(space):
    """Leave the branch that others have ended."""
    with pytest.raises(UnknownXidError):
        space.tpc_commit()


class TestWhatItKeeps:
    def test_its_timeout_is_over_with_its_preparation(self, store, space):
        space.enqueue("Q", "x")
        space.tpc_begin(XID, timeout=5)
        space.dequeue("Q")
        space.tpc_prepare()
        store.clock.advance(60)
        assert space.usage("Q").held == 1
        space.tpc_commit()
        assert drain(space) == []

    def test_before_that_its_timeout_rolls_it_back(self, store, space):
        space.enqueue("Q", "x")
        space.tpc_begin(XID, timeout=5)
        space.dequeue("Q")
        store.clock.advance(60)
        with pytest.raises(AbortedError):
            space.tpc_prepare()
        space.tpc_rollback()
        assert drain(space) == ["x"]

    def test_delays_and_lifetimes_count_from_its_commit(self, store, space):
        space.tpc_begin(XID)
        space.enqueue("Q", "delayed", delay=30)
        space.enqueue("Q", "brief", expires_in=30)
        space.tpc_prepare()
        store.clock.advance(60)
        space.tpc_commit()
        store.clock.advance(20)
        assert drain(space) == ["brief"]
        store.clock.advance(20)
        assert drain(space) == ["delayed"]

    def test_what_has_a_time_of_its_own_keeps_it(self, store, space):
        space.tpc_begin(XID)
        space.enqueue("Q", "late", available_at=store.clock.moment(30))
        space.enqueue("Q", "gone", expires_at=store.clock.moment(30))
        space.tpc_prepare()
        store.clock.advance(60)
        space.tpc_commit()
        assert drain(space) == ["late"]

    def test_its_group_waits_for_its_end_and_is_one_at_its_commit(self, space):
        make_queue(space, "G", grouping=True, retries=3)
        with space.transaction():
            space.enqueue_many("G", ["1", "2", "3"])
        space.tpc_begin(XID)
        assert space.dequeue("G").text == "1"
        space.enqueue("G", "4")
        space.enqueue("G", "5")
        space.tpc_prepare()
        assert space.dequeue("G", transactional=False) is None
        space.tpc_commit()
        assert [info.size for info in space.messages("G")] == [1] * 4
        assert drain(space, "G") == ["2", "3", "4", "5"]

    def test_what_it_has_locked_stays_locked_until_its_end(self, space):
        space.enqueue_many("Q", ["taken", "locked"])
        space.tpc_begin(XID)
        space.dequeue("Q")
        assert space.lock("Q").text == "locked"
        space.tpc_prepare()
        assert space.dequeue("Q", transactional=False) is None
        space.tpc_commit()
        assert drain(space) == ["locked"]

    @pytest.mark.parametrize("does", ["nothing", "locks", "looks"])
    def test_one_that_has_changed_nothing_is_over_and_lets_go(self, space, does):
        space.enqueue("Q", "x")
        space.tpc_begin(XID)
        if does == "locks":
            space.lock("Q")
        elif does == "looks":
            space.peek("Q")
        assert space.tpc_prepare() is False
        assert (space.transactions(), space.tpc_recover()) == ([], [])
        with pytest.raises(ProtocolError, match="no branch is open in this thread"):
            space.tpc_commit()
        found = space.dequeue("Q")
        assert (found.text, found.retries) == ("x", 0)

    def test_its_messages_have_their_room_and_its_commit_is_never_refused(self, space):
        make_queue(space, "OUT")
        space.enqueue_many("Q", [f"{number}" for number in range(990)])
        space.tpc_begin(XID)
        for number in range(10):
            space.enqueue("OUT", f"{number}")
        space.tpc_prepare()
        with pytest.raises(NoSpaceError) as refused:
            space.enqueue("Q", "too many", transactional=False)
        assert refused.value.resource is Resource.MESSAGES
        definition = space.definition
        drain(space, transactional=False)
        space.device.change_space("SPACE", messages=10)
        space.stop_queue("OUT")
        space.change_queue("OUT", retries=7)
        space.tpc_commit()
        assert [info.state for info in space.messages("OUT")] == [State.READY] * 10
        assert definition.messages == 1000
        space.start_queue("OUT")
        truth(space, "OUT")

    def test_a_reply_finds_the_room_of_its_request_in_a_full_queue_space(self, space):
        make_queue(space, "OUT")
        space.enqueue_many("Q", [f"{number}" for number in range(1000)])
        space.tpc_begin(XID)
        space.dequeue("Q")
        space.enqueue("OUT", "reply")
        space.tpc_prepare()
        space.tpc_commit()
        assert space.usage("Q").messages + space.usage("OUT").messages == 1000

    def test_without_room_its_preparation_is_refused_and_nothing_of_it_remains(self, space):
        space.enqueue_many("Q", [f"{number}" for number in range(999)])
        space.tpc_begin(XID)
        space.enqueue("Q", "fits")
        space.enqueue("Q", "one more", transactional=False)
        with pytest.raises(NoSpaceError):
            space.tpc_prepare()
        with pytest.raises(ProtocolError, match="is rolled back"):
            space.enqueue("Q", "x")
        space.tpc_rollback()
        assert (space.usage("Q").messages, space.transactions(), space.tpc_recover()) == (1000, [], [])

    @pytest.mark.parametrize("queue", ["Q", "OUT"])
    def test_a_queue_that_it_needs_cannot_be_destroyed(self, space, branch, queue):
        for force in (False, True):
            with pytest.raises(InUseError, match=f"prepared transaction {TEXT} has messages of queue '{queue}'"):
                space.destroy_queue(queue, purge=True, force=force)
        space.tpc_commit()
        space.destroy_queue(queue, purge=True)

    def test_it_counts_as_a_transaction_of_its_queue_space(self, space, branch):
        assert space.device.space_usage("SPACE").transactions == 1
        with contextlib.ExitStack() as all_of_them:
            for _ in range(9):
                thread = _InThread(space)
                all_of_them.callback(thread.end)
            with pytest.raises(NoSpaceError) as refused:
                _InThread(space)
            assert refused.value.resource is Resource.TRANSACTIONS

    def test_retention_and_history_count_from_its_commit_and_name_whose_it_was(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q", retention=3600)
        space.enqueue("Q", "x")
        space.tpc_begin(XID)
        space.dequeue("Q")
        space.tpc_prepare()
        shared_store.clock.advance(1000)
        with shared_store.another().open_space("SPACE", role="coordinator") as other:
            other.tpc_commit(XID)
        (kept,) = space.history("Q")
        assert kept.consumed_us == shared_store.clock.now()
        assert kept.consumer.startswith("application")

    def test_it_survives_the_closing_of_its_queue_space_and_of_its_device(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q")
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        space.tpc_prepare()
        shared_store.device.close()
        with shared_store.another().open_space("SPACE") as other:
            assert drain(other) == []
            other.tpc_commit(XID)
            assert drain(other) == ["x"]

    def test_it_survives_its_thread(self, space):
        def prepare():
            space.tpc_begin(XID)
            space.enqueue("Q", "x")
            space.tpc_prepare()

        thread = threading.Thread(target=prepare)
        thread.start()
        thread.join()
        assert space.usage("Q").messages == 0
        space.tpc_commit(XID)
        assert drain(space) == ["x"]


class _InThread:
    """A branch of another thread, which holds nothing."""

    def __init__(self, space):
        self._go_on = threading.Event()
        self._begun = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(space,))
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            raise self._error

    def _run(self, space):
        try:
            space.tpc_begin((7, f"{threading.get_ident()}", ""))
        except QueueError as error:
            self._error = error
            return
        finally:
            self._begun.set()
        self._go_on.wait()
        space.tpc_rollback()

    def end(self):
        self._go_on.set()
        self._thread.join()


class TestCosts:
    def test_a_preparation_and_an_end_are_one_synced_commit_each(self, file_store):
        space = file_store.space()
        make_queue(space, "Q")
        space.enqueue("Q", "request")
        space.tpc_begin(XID)
        space.dequeue("Q")
        space.enqueue("Q", "reply")
        commits, syncs = (noted(file_store.device.probe, point) for point in (Point.AFTER_COMMIT, Point.AFTER_SYNC))
        space.tpc_prepare()
        assert (len(commits), len(syncs)) == (1, 1)
        space.tpc_commit()
        assert (len(commits), len(syncs)) == (2, 2)

    def test_they_are_synced_on_a_relaxed_device_too(self, tmp_path):
        with qmadmin.create_device(tmp_path / "QUE", 10_000, durability="relaxed") as device:
            device.create_space(space_definition())
            with device.open_space("SPACE") as space:
                make_queue(space, "Q")
                for end in (space.tpc_commit, space.tpc_rollback):
                    syncs = noted(device.probe, Point.AFTER_SYNC)
                    space.tpc_begin(XID)
                    space.enqueue("Q", "x")
                    assert syncs == []
                    space.tpc_prepare()
                    assert len(syncs) == 1
                    end()
                    assert len(syncs) == 2

    def test_after_the_end_of_a_relaxed_device_nothing_is_said_to_be_synced(self, tmp_path):
        with qmadmin.create_device(tmp_path / "QUE", 10_000, durability="relaxed") as device:
            device.create_space(space_definition())
            with device.open_space("SPACE") as space:
                make_queue(space, "Q")
                space.enqueue("Q", "x")
                volume = attachment_of(space).volume
        with pytest.raises(NotOpenError, match="is closed"):
            volume.sync()

    def test_so_is_what_an_administrator_does(self, tmp_path):
        with qmadmin.create_device(tmp_path / "QUE", 10_000, durability="relaxed") as device:
            device.create_space(space_definition())
            with device.open_space("SPACE") as space:
                make_queue(space, "Q")
                space.tpc_begin(XID)
                space.enqueue("Q", "x")
                space.tpc_prepare()
                syncs = noted(device.probe, Point.AFTER_SYNC)
                assert Work(lambda: space.commit_transaction(TEXT)).results() == [True]
                assert len(syncs) == 1
                space.tpc_forget(TEXT)
                assert len(syncs) == 2
                with pytest.raises(UnknownXidError):
                    space.tpc_commit()

    def test_one_that_has_changed_nothing_is_brought_to_no_disk(self, file_store):
        space = file_store.space()
        make_queue(space, "Q")
        syncs = noted(file_store.device.probe, Point.AFTER_SYNC)
        space.tpc_begin(XID)
        space.tpc_prepare()
        assert syncs == []


class TestNonpersistentMessages:
    @pytest.fixture
    def prepared(self, shared_store):
        space = shared_store.space(memory=1_000_000)
        make_queue(space, "Q", retries=3)
        make_queue(space, "OUT")
        space.enqueue("Q", "request", persistent=False)
        space.tpc_begin(XID)
        assert space.dequeue("Q").text == "request"
        space.enqueue("OUT", "first", persistent=False)
        space.enqueue("OUT", "second")
        space.tpc_prepare()
        return space

    def test_they_take_effect_with_the_others(self, prepared):
        prepared.tpc_commit()
        assert (drain(prepared), drain(prepared, "OUT")) == ([], ["first", "second"])
        truth(prepared, "OUT")

    def test_they_come_back_with_the_others(self, prepared):
        prepared.tpc_rollback()
        assert (drain(prepared), drain(prepared, "OUT")) == (["request"], [])


class TestWhatMayFollowWhat:
    def test_a_branch_is_prepared_once(self, space, branch):
        with pytest.raises(ProtocolError, match=f"transaction {TEXT} is prepared, and takes no more calls"):
            space.tpc_prepare()
        space.tpc_commit()

    def test_no_call_can_be_made_in_a_prepared_branch(self, space, branch):
        for call in (
            lambda: space.enqueue("Q", "x"),
            lambda: space.enqueue_many("Q", ["x"]),
            lambda: space.dequeue("Q"),
            lambda: space.dequeue_many("Q", 2),
            lambda: space.lock("Q"),
        ):
            with pytest.raises(ProtocolError, match="is prepared, and takes no more calls") as refused:
                call()
            assert "tpc_commit or tpc_rollback" in refused.value.hint
        space.tpc_commit()
        assert drain(space) == ["second"]

    @pytest.mark.parametrize("prepared", [False, True])
    def test_transactions_do_not_nest(self, space, prepared):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        if prepared:
            space.tpc_prepare()
        for begin in (lambda: space.tpc_begin((7, b"other", b"")), lambda: space.transaction().__enter__()):
            with pytest.raises(ProtocolError, match="a transaction is open already"):
                begin()
        space.tpc_commit()
        assert drain(space) == ["x"]

    def test_no_branch_begins_in_another_transaction(self, space):
        with space.transaction():
            with pytest.raises(ProtocolError, match="a transaction is open already"):
                space.tpc_begin(XID)
            for call in (space.tpc_prepare, space.tpc_commit, space.tpc_rollback):
                with pytest.raises(ProtocolError, match="was not begun by tpc_begin"):
                    call()
            space.enqueue("Q", "x")
        assert drain(space) == ["x"]

    def test_without_a_branch_none_can_be_ended(self, space):
        for call in (space.tpc_prepare, space.tpc_commit, space.tpc_rollback):
            with pytest.raises(ProtocolError, match="no branch is open in this thread"):
                call()

    def test_one_is_ended_by_its_identifier_outside_of_any(self, space, branch):
        for call in (space.tpc_commit, space.tpc_rollback):
            with pytest.raises(ProtocolError, match="ended by their xid outside of one"):
                call(branch)
        space.tpc_commit()

    def test_the_branch_of_another_thread_is_not_that_of_this_one(self, space, branch):
        (found,) = Work(lambda: _refused(space.tpc_commit)).results()
        assert "no branch is open in this thread" in str(found)
        space.tpc_commit()

    def test_one_is_unknown_that_was_never_there_or_has_ended(self, space, branch):
        space.tpc_commit()
        for call in (space.tpc_commit, space.tpc_rollback, space.tpc_forget):
            with pytest.raises(UnknownXidError, match=f"has no transaction with the xid {TEXT}; it may have ended"):
                call(branch)

    def test_one_of_another_queue_space_is_unknown_here(self, store, space, branch):
        other = store.space("OTHER", ipc_key=40_001)
        with pytest.raises(UnknownXidError, match="queue space 'OTHER' has no transaction"):
            other.tpc_commit(branch)
        space.tpc_commit()

    def test_one_that_is_active_is_not_ended_by_others(self, space):
        space.tpc_begin(XID)
        for call in (space.tpc_commit, space.tpc_rollback, space.tpc_forget):
            (found,) = Work(lambda call=call: _refused(lambda: call(XID))).results()
            assert isinstance(found, ProtocolError)
            assert f"transaction {TEXT} of queue space 'SPACE' is active" in str(found)
        space.tpc_rollback()

    @pytest.mark.parametrize("prepared", [False, True])
    def test_an_identifier_is_in_use_in_whatever_state_its_branch_is(self, space, prepared):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        if prepared:
            space.tpc_prepare()
        (found,) = Work(lambda: _refused(lambda: space.tpc_begin(TEXT))).results()
        assert isinstance(found, InUseError)
        assert f"queue space 'SPACE' has a transaction with the xid {TEXT} already" in str(found)
        space.tpc_commit()
        space.tpc_begin(TEXT)
        space.tpc_rollback()

    def test_of_several_who_begin_with_one_identifier_at_the_same_time_one_does(self, shared_store):
        shared_store.space()
        spaces = [shared_store.another().open_space("SPACE") for _ in range(4)]

        def begin(space, number):
            try:
                space.tpc_begin((7, f"{number}", ""))
            except InUseError:
                return False
            return True

        for number in range(8):
            work = Work(*(lambda space=space, number=number: begin(space, number) for space in spaces))
            assert sorted(work.results()) == [False, False, False, True]

    def test_the_same_identifier_names_another_branch_in_another_queue_space(self, store, space, branch):
        other = store.space("OTHER", ipc_key=40_001)
        make_queue(other, "Q")
        other.tpc_begin(branch)
        other.enqueue("Q", "there")
        other.tpc_prepare()
        space.tpc_rollback()
        assert other.tpc_recover() == [branch]
        other.tpc_commit()
        assert drain(other) == ["there"]

    def test_a_preparation_that_fails_is_ended_by_the_rollback(self, space):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        Work(lambda: space.abort_transaction(space.transactions()[0].id)).results()
        with pytest.raises(AbortedError):
            space.tpc_prepare()
        with pytest.raises(ProtocolError, match=f"transaction {TEXT} is rolled back"):
            space.tpc_commit()
        space.tpc_rollback()
        assert (drain(space), space.transactions()) == ([], [])

    def test_a_queue_that_was_destroyed_meanwhile_is_no_obstacle_to_a_rollback(self, space):
        make_queue(space, "OUT")
        space.tpc_begin(XID)
        space.enqueue("OUT", "x")
        Work(lambda: space.destroy_queue("OUT")).results()
        with pytest.raises(BadQueueError):
            space.tpc_prepare()
        space.tpc_rollback()
        assert (space.transactions(), space.tpc_recover()) == ([], [])


def _refused(call):
    try:
        call()
    except QueueError as error:
        return error
    raise AssertionError("it was not refused")


class TestFailures:
    def test_a_rollback_that_is_owed_is_no_success_until_it_is_done(self, file_store):
        space = file_store.space()
        make_queue(space, "Q")
        space.tpc_begin(XID)
        space.enqueue("Q", "x")

        def fail(_fact):
            raise OSError(errno.EIO, "the disk fails")

        file_store.device.probe.at(Point.BEFORE_SYNC, fail)
        with pytest.raises(OutcomeUnknownError):
            space.tpc_prepare()
        for _ in range(2):
            with pytest.raises(QueueError):
                space.tpc_rollback()
        with file_store.another().open_space("SPACE") as other:
            assert other.tpc_recover() == [XID]
            other.tpc_rollback(XID)
            assert (other.tpc_recover(), other.transactions()) == ([], [])

    def test_what_is_owed_is_done_at_the_closing(self, file_store):
        space, probe = file_store.space(), file_store.device.probe
        make_queue(space, "Q")
        space.tpc_begin(XID)
        space.enqueue("Q", "x")

        def interrupt(_fact):
            probe.leave(Point.AFTER_COMMIT)
            probe.at(Point.BEFORE_WRITE, refuse)
            raise KeyboardInterrupt

        def refuse(_fact):
            probe.leave(Point.BEFORE_WRITE)
            raise OperatingSystemError("the disk is full")

        probe.at(Point.AFTER_COMMIT, interrupt)
        with pytest.raises(KeyboardInterrupt):
            space.tpc_prepare()
        assert space.tpc_recover() == [XID]
        file_store.device.close()
        with file_store.another().open_space("SPACE") as other:
            assert (other.tpc_recover(), other.transactions(), drain(other)) == ([], [], [])


class TestInterrupts:
    @pytest.mark.matrix(whole="file")
    @pytest.mark.parametrize("module", [two_phase, transacting, preparing, in_doubt])
    def test_one_at_any_line_leaves_all_of_a_branch_or_nothing_and_its_rollback_ends_it(self, space, module):
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        numbers = itertools.count()

        def work():
            space.tpc_begin((7, f"{next(numbers)}", ""))
            space.enqueue("OUT", space.dequeue("Q").text)
            space.tpc_prepare()
            space.tpc_commit()

        for _ in at_every_line(module, work):
            # Where it had not begun, or was over, there is none.
            with contextlib.suppress(ProtocolError, UnknownXidError):
                space.tpc_rollback()
            attachment_of(space).do_housekeeping(now=True)
            gc.collect()
            attachment_of(space).do_housekeeping(now=True)
            assert (space.transactions(), space.tpc_recover()) == ([], [])
            there, brought = list(space.messages("Q")), drain(space, "OUT")
            assert (len(there), brought) in ((1, []), (0, ["x"]))
            if not there:
                space.enqueue("Q", "x")
            else:
                space.change_queue("Q", retries=there[0].retries + 3)
            with space.transaction():
                pass

    def test_a_child_of_a_fork_has_no_part_in_it(self, real_device, start):
        child = start(FORKED, real_device.config)
        child.expect("the transaction belongs to process")
        child.expect("ended")
        with real_device.open_space("SPACE") as space:
            assert drain(space) == ["x"]


FORKED = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    space.tpc_begin((7, "forked", ""))
    space.enqueue("Q", "x")
    space.tpc_prepare()
    child = os.fork()
    if not child:
        try:
            space.tpc_commit()
        except QueueError as error:
            say(str(error)[:34])
        os._exit(0)
    os.waitpid(child, 0)
    space.tpc_commit()
    say("ended")
"""


class TestIdentifiers:
    def test_texts_are_bytes_in_utf_8(self, space):
        assert space.xid(1, "gté", "b") == (1, "gté".encode(), b"b")
        assert space.xid(1, b"g") == (1, b"g", b"")

    def test_a_text_leads_back_to_the_same(self, space):
        for xid in (space.xid(0, b"\0"), space.xid(2**31 - 1, bytes(range(64)), bytes(range(64)))):
            space.tpc_begin(str(xid))
            space.enqueue("Q", "x")
            space.tpc_prepare()
            assert space.tpc_recover() == [xid]
            space.tpc_rollback()

    @pytest.mark.matrix
    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ((-1, b"g", b""), "an integer from 0 to 2147483647, got -1"),
            ((2**31, b"g", b""), "an integer from 0 to 2147483647, got 2147483648"),
            ((True, b"g", b""), "got True"),
            (("1", b"g", b""), "got '1'"),
            ((1, b"", b""), "identifier of an xid has 1 to 64 bytes, got 0"),
            ((1, "é" * 33, b""), "identifier of an xid has 1 to 64 bytes, got 66"),
            ((1, b"g", bytes(65)), "qualifier of an xid has 0 to 64 bytes, got 65"),
            ((1, 5, b""), "is bytes or a text, got 5"),
            ((1, "\ud800", b""), "not a text that UTF-8 can encode"),
            ((1, b"g"), "an xid has three parts"),
            (None, "an xid has three parts"),
            ("1:zz:", "'1:zz:' is not the text of an xid"),
            ("global", "'global' is not the text of an xid"),
            ("1_0:61:", "'1_0:61:' is not the text of an xid"),
            (" 7: 61:", "is not the text of an xid"),
            ("7:6:", "is not the text of an xid"),
            ("7" * 5000, "'7{100}' is not the text of an xid"),
            ((OUR_FORMAT, b"g", b""), "is that of the transactions that qmadmin coordinates"),
        ],
    )
    def test_others_are_refused(self, space, wrong, said):
        with pytest.raises(InvalidArgumentError, match=said):
            space.tpc_begin(wrong)
        with space.transaction():
            space.enqueue("Q", "nothing is open")
