"""A branch of a distributed transaction: prepared it is kept, whatever happens, until its coordinator ends it."""

import contextlib
import threading

import pytest

import qmadmin
from qmcore.errors import (
    AbortedError,
    InUseError,
    NoSpaceError,
    NotOpenError,
    ProtocolError,
    QueueError,
    Resource,
    UnknownXidError,
)
from qmcore.message import State
from qmcore.probe import Point
from qmcore.records import Outcome
from tests.fix_branches import TEXT, XID
from tests.fix_store import Work, attachment_of, drain, make_queue, noted, space_definition, truth


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
