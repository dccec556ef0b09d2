"""A prepared branch whose coordinator does not come is listed, and ended by an administrator, which is heuristic."""

import contextlib
import dataclasses
import os

import pytest

from qmadmin import UnknownXidError, Xid
from qmadmin.audit import user_name
from qmcore.errors import (
    HeuristicError,
    InUseError,
    InvalidArgumentError,
    OperatingSystemError,
    ProtocolError,
)
from qmcore.records import Outcome
from tests.fix_store import Work, drain, make_queue, truth

XID = Xid(7, b"global", b"branch")
TEXT = "7:676c6f62616c:6272616e6368"


@pytest.fixture
def coordinator(space):
    """The queue space as a coordinator has it, in a thread of its own, with a prepared branch."""
    make_queue(space, "OUT")
    space.enqueue_many("Q", ["first", "second", "third"])

    def prepare():
        space.tpc_begin(XID)
        assert space.dequeue("Q").text == "first"
        assert space.lock("Q").text == "second"
        space.enqueue("OUT", "reply")
        assert space.tpc_prepare()

    assert Work(prepare).results() == [None]
    return space


def ended(call, *given):
    """Return how an administrator had ended it otherwise than the coordinator says."""
    with pytest.raises(HeuristicError) as refused:
        call(*given)
    return refused.value


def administrator():
    return f"{user_name()} (application {os.getpid()} on {os.uname().nodename})"


class TestListing:
    def test_a_prepared_branch_is_told_with_its_identifier_its_age_whose_it_was_and_what_it_has(
        self, store, space, coordinator
    ):
        prepared = store.clock.moment()
        store.clock.advance(90)
        (info,) = space.transactions()
        assert (info.state, info.xid, info.name) == (Outcome.PREPARED, XID, TEXT)
        assert (info.dequeued, info.locked, info.spilled, info.messages) == (1, 1, 1, 3)
        assert (info.since, info.prepared, info.deadline) == (prepared, prepared, None)
        assert info.whose.startswith(f"application {os.getpid()}")
        assert (info.lives, info.ended, info.ended_by) == (True, None, "")

    def test_whose_it_was_is_told_when_that_has_left(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q")
        with shared_store.another().open_space("SPACE", role="coordinator") as other:
            other.tpc_begin(XID)
            other.enqueue("Q", "x")
            other.tpc_prepare()
        (info,) = space.transactions()
        assert (info.owner, info.lives, info.spilled) == (None, False, 1)
        assert info.whose.startswith(f"coordinator {os.getpid()}")

    def test_one_that_is_not_prepared_has_its_identifier_and_others_have_none(self, space):
        space.enqueue("Q", "x")
        space.tpc_begin(XID)
        (info,) = space.transactions()
        assert (info.state, info.name, info.prepared) == (Outcome.ACTIVE, TEXT, None)
        space.tpc_rollback()
        with space.transaction():
            space.dequeue("Q")
            (info,) = space.transactions()
            assert (info.xid, info.name, info.lives) == (None, info.id, True)

    def test_one_that_has_ended_is_told_with_its_end_and_holds_nothing(self, store, space, coordinator):
        store.clock.advance(30)
        space.abort_transaction(TEXT)
        store.clock.advance(30)
        (info,) = space.transactions()
        assert (info.state, info.xid, info.messages) == (Outcome.HEURISTIC_ROLLBACK, XID, 0)
        assert (info.ended, info.ended_by) == (store.clock.moment(-30), administrator())
        assert info.prepared == store.clock.moment(-60)
        assert space.device.space_usage("SPACE").transactions == 0


class TestHeuristicEnds:
    @pytest.mark.parametrize("by", ["id", "xid"])
    def test_a_commit_makes_all_of_it_take_effect(self, space, coordinator, by):
        (info,) = space.transactions()
        space.commit_transaction(info.id if by == "id" else TEXT)
        assert (drain(space), drain(space, "OUT")) == (["second", "third"], ["reply"])
        assert truth(space) == ([], [])
        assert space.tpc_recover() == [XID]

    @pytest.mark.parametrize("by", ["id", "xid"])
    def test_a_rollback_gives_back_what_it_took_which_is_a_try(self, space, coordinator, by):
        (info,) = space.transactions()
        space.abort_transaction(info.id if by == "id" else TEXT)
        first = space.dequeue("Q")
        assert (first.text, first.retries, drain(space), drain(space, "OUT")) == ("first", 1, ["second", "third"], [])
        assert space.tpc_recover() == [XID]

    def test_a_coordinator_that_decides_the_same_is_content_and_the_record_goes(self, space, coordinator):
        for end, decide in (
            (space.commit_transaction, space.tpc_commit),
            (space.abort_transaction, space.tpc_rollback),
        ):
            end(TEXT)
            decide(XID)
            assert (space.transactions(), space.tpc_recover()) == ([], [])
            with pytest.raises(UnknownXidError):
                decide(XID)
            _prepare_again(space)

    def test_a_coordinator_that_decides_otherwise_is_told_until_it_is_forgotten(self, space, coordinator):
        space.commit_transaction(TEXT)
        for _ in range(2):
            told = ended(space.tpc_rollback, XID)
            assert told.committed
            assert f"transaction {TEXT} of queue space 'SPACE' was committed heuristically by {administrator()}" in (
                told.message
            )
        space.tpc_forget(XID)
        assert space.transactions() == []
        _prepare_again(space)
        space.abort_transaction(TEXT)
        assert not ended(space.tpc_commit, XID).committed
        space.tpc_forget(TEXT)
        with pytest.raises(UnknownXidError):
            space.tpc_commit(XID)

    def test_the_thread_that_has_prepared_it_is_told_and_goes_on(self, space):
        space.enqueue("Q", "x")
        space.tpc_begin(XID)
        space.dequeue("Q")
        space.tpc_prepare()
        assert Work(lambda: space.abort_transaction(TEXT)).results() == [True]
        assert not ended(space.tpc_commit).committed
        with space.transaction():
            assert space.dequeue("Q").text == "x"
        space.tpc_forget(XID)

    @pytest.mark.parametrize("commits", [True, False])
    def test_what_has_ended_is_not_ended_again(self, space, coordinator, commits):
        (info,) = space.transactions()
        (space.commit_transaction if commits else space.abort_transaction)(TEXT)
        for call in (space.commit_transaction, space.abort_transaction):
            for name in (TEXT, info.id):
                told = ended(call, name)
                assert told.committed is commits
                assert "heuristically by" in told.message
        assert [info.state.is_heuristic for info in space.transactions()] == [True]

    def test_its_identifier_is_in_use_until_it_is_forgotten(self, space, coordinator):
        space.commit_transaction(TEXT)
        with pytest.raises(InUseError, match="already"):
            space.tpc_begin(XID)
        space.tpc_forget(XID)
        space.tpc_begin(XID)
        space.tpc_rollback()

    def test_another_handle_ends_it_and_the_record_outlives_all(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q")
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        space.tpc_prepare()
        shared_store.device.close()
        with shared_store.another().open_space("SPACE", role="qmadmin") as other:
            other.commit_transaction(TEXT)
        with shared_store.another().open_space("SPACE") as other:
            assert drain(other) == ["x"]
            (info,) = other.transactions()
            assert (info.state, info.ended_by) == (
                Outcome.HEURISTIC_COMMIT,
                f"{user_name()} (qmadmin {os.getpid()} on {os.uname().nodename})",
            )

    def test_of_several_administrators_one_ends_it(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q")
        spaces = [shared_store.another().open_space("SPACE") for _ in range(3)]
        for number in range(5):
            xid = Xid(7, f"{number}".encode())
            assert Work(lambda xid=xid, number=number: _brings(space, xid, f"{number}")).results() == [None]
            tries = [lambda other=other, xid=xid: _committed(other, xid) for other in spaces]
            assert sorted(Work(*tries).results()) == [False, False, True]
        assert drain(space) == [f"{number}" for number in range(5)]
        assert [info.state for info in space.transactions()] == [Outcome.HEURISTIC_COMMIT] * 5

    def test_no_limit_is_in_the_way_of_a_commit(self, space, coordinator):
        drain(space, transactional=False)
        space.device.change_space("SPACE", messages=3)
        space.stop_queue("OUT")
        space.commit_transaction(TEXT)
        assert space.usage("OUT").messages == 1


def _prepare_again(space):
    drain(space, "OUT")
    assert Work(lambda: _brings(space, XID, "again")).results() == [None]


def _brings(space, xid, text):
    space.tpc_begin(xid)
    space.enqueue("Q", text)
    space.tpc_prepare()


def _committed(space, xid):
    try:
        space.commit_transaction(str(xid))
    except (HeuristicError, UnknownXidError):
        return False
    return True


class TestRecord:
    @pytest.mark.parametrize(
        ("call", "outcome"),
        [
            ("commit_transaction", "committed heuristically with 3 messages"),
            ("abort_transaction", "rolled back heuristically with 3 messages"),
        ],
    )
    def test_an_end_is_recorded_with_what_came_of_it(self, space, coordinator, call, outcome):
        getattr(space, call)(TEXT)
        (entry,) = space.device.audited()
        assert (entry.target, entry.outcome) == (f"transaction SPACE/{TEXT}", outcome)
        assert entry.command.endswith(f"QueueSpace.{call}(transaction='{TEXT}')")

    def test_so_is_that_it_is_forgotten(self, space, coordinator):
        space.commit_transaction(TEXT)
        space.tpc_forget(tuple(XID))
        entry = space.device.audited()[0]
        assert (entry.target, entry.command.partition(": ")[2]) == (
            f"transaction SPACE/{TEXT}",
            f"QueueSpace.tpc_forget(xid='{TEXT}')",
        )
        assert entry.outcome.startswith(f"forgotten: committed heuristically by {administrator()}, ")

    def test_what_is_in_memory_is_ended_with_the_rest(self, shared_store, memory_dir):
        space = in_memory(shared_store)
        with shared_store.another().open_space("SPACE") as other:
            other.commit_transaction(TEXT)
            assert (drain(other), drain(other, "OUT")) == ([], ["first", "second"])
            # By then, memory has followed the disk.
            assert not other.usage("OUT").messages
            (info,) = other.transactions()
            assert (info.state, info.messages) == (Outcome.HEURISTIC_COMMIT, 0)
            other.tpc_forget(TEXT)
        assert truth(space, "OUT") == ([], [])

    def test_so_it_is_given_back(self, shared_store, memory_dir):
        space = in_memory(shared_store)
        with shared_store.another().open_space("SPACE") as other:
            other.abort_transaction(TEXT)
            assert (drain(other), drain(other, "OUT")) == (["request"], [])
        assert truth(space) == ([], [])

    def test_what_was_lost_with_the_memory_is_recorded(self, shared_store, memory_dir):
        space = in_memory(shared_store)
        space.device.clear_memory("SPACE", force=True)
        with shared_store.another().open_space("SPACE") as other:
            other.commit_transaction(TEXT)
            entry = other.device.audited()[0]
            assert entry.outcome == (
                "committed heuristically with 1 message; 2 non-persistent messages had been lost with the memory"
            )
            assert drain(other, "OUT") == ["second"]


class TestWrongNames:
    @pytest.mark.parametrize("wrong", ["7:zz:", ":", "7:67", "x:67:", "-1:67:", "2147483648:67:", "7::62"])
    def test_a_text_that_is_no_identifier_is_refused(self, space, wrong):
        for call in (space.commit_transaction, space.abort_transaction, space.tpc_forget):
            with pytest.raises(InvalidArgumentError, match="xid"):
                call(wrong)

    def test_one_that_nobody_has_is_unknown(self, space, coordinator):
        for call in (space.commit_transaction, space.abort_transaction, space.tpc_forget):
            with pytest.raises(UnknownXidError, match="queue space 'SPACE' has no transaction with the xid 7:6f:"):
                call("7:6f:")

    def test_so_is_one_of_another_queue_space(self, store, space, coordinator):
        other = store.space("OTHER", ipc_key=40_001)
        (info,) = space.transactions()
        for call in (other.commit_transaction, other.abort_transaction):
            for name in (TEXT, info.id):
                with pytest.raises(InvalidArgumentError, match="queue space 'OTHER' has no transaction"):
                    call(name)
        assert space.tpc_recover() == [XID]

    def test_one_that_is_not_over_cannot_be_forgotten(self, space, coordinator):
        with pytest.raises(ProtocolError, match="is prepared, and was not ended"):
            space.tpc_forget(XID)

    def test_one_that_is_active_is_left_to_its_process_or_rolled_back(self, space):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        with pytest.raises(ProtocolError, match=f"transaction {TEXT} is active and not prepared"):
            space.commit_transaction(TEXT)
        space.abort_transaction(TEXT)
        assert (space.transactions(), space.device.audited()[0].outcome) == ([], "rolled back with 0 messages")
        space.tpc_rollback()

    def test_a_reader_looks_and_ends_nothing(self, file_store, monkeypatch):
        space = file_store.space()
        make_queue(space)
        _brings(space, XID, "x")
        monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda path, mode: mode == os.R_OK)
        reader = file_store.another().open_space("SPACE")
        assert [info.xid for info in reader.transactions()] == [XID]
        for call in (reader.commit_transaction, reader.abort_transaction):
            with pytest.raises(OperatingSystemError):
                call(TEXT)


def in_memory(store):
    """Return a queue space with a prepared branch that has a request and a reply in memory, and one reply on disk."""
    space = store.space(memory=1_000_000)
    make_queue(space, "Q", retries=3)
    make_queue(space, "OUT")
    space.enqueue("Q", "request", persistent=False)

    def prepare():
        space.tpc_begin(XID)
        assert space.dequeue("Q").text == "request"
        space.enqueue("OUT", "first", persistent=False)
        space.enqueue("OUT", "second")
        space.tpc_prepare()

    assert Work(prepare).results() == [None]
    return space


class TestWhatIsKeptForIt:
    def test_its_queue_space_is_not_destroyed_unless_that_is_forced(self, store, space, coordinator):
        said = f"prepared transaction {TEXT} of queue space 'SPACE' has messages, which its destruction would lose"
        for dry_run in (True, False):
            with pytest.raises(InUseError, match=said) as refused:
                store.device.destroy_space("SPACE", dry_run=dry_run)
        assert "qcommittrans or qaborttrans" in refused.value.hint
        store.device.destroy_space("SPACE", force=True)
        assert store.device.spaces() == []

    def test_nor_because_of_the_record_of_an_end(self, space, coordinator):
        space.commit_transaction(TEXT)
        with pytest.raises(InUseError, match="1 attached process") as refused:
            space.device.destroy_space("SPACE")
        assert TEXT not in str(refused.value)

    def test_its_memory_is_not_removed_unless_that_is_forced(self, shared_store, memory_dir):
        space, device = in_memory(shared_store), shared_store.device
        said = f"prepared transaction {TEXT} of queue space 'SPACE' has messages, which the removal of the memory"
        with pytest.raises(InUseError, match=said):
            device.clear_memory("SPACE")
        assert [info.messages for info in space.transactions()] == [3]
        space.close()
        with pytest.raises(InUseError, match=said):
            device.clear_memory("SPACE")
        device.clear_memory("SPACE", force=True)
        with contextlib.closing(device.open_space("SPACE")) as other:
            assert [info.messages for info in other.transactions()] == [1]
            other.tpc_commit(XID)
        # It has nothing in memory any more, and nobody is attached.
        device.clear_memory("SPACE")

    def test_its_memory_gets_no_other_size(self, shared_store, memory_dir):
        space, device = in_memory(shared_store), shared_store.device
        definition = device.space("SPACE").definition
        said = f"the memory of queue space 'SPACE' cannot be changed while transaction {TEXT} is prepared"
        with pytest.raises(InUseError, match=said):
            device.change_space(dataclasses.replace(definition, memory=2_000_000))
        space.abort_transaction(TEXT)
        device.change_space(dataclasses.replace(definition, memory=2_000_000))

    def test_one_that_has_nothing_in_memory_does_not_keep_the_memory(self, shared_store, memory_dir):
        space = shared_store.space(memory=1_000_000)
        make_queue(space)
        assert Work(lambda: _brings(space, XID, "x")).results() == [None]
        space.close()
        shared_store.device.clear_memory("SPACE")
        with shared_store.another().open_space("SPACE") as other:
            other.tpc_commit(XID)
            assert drain(other) == ["x"]
