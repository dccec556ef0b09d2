"""Who is attached, and which transactions are open: seen by administrators, and ended by them."""

import os
from pathlib import Path

import pytest

from qmcore.errors import AbortedError, BadResourceError, InvalidArgumentError, OperatingSystemError, ProtocolError
from qmcore.message import Reason
from qmcore.records import Outcome
from tests.fix_store import bodies_held, drain, make_queue, truth


def held(info):
    return info.dequeued, info.locked, info.spilled


class TestListing:
    def test_a_transaction_is_told_with_its_age_its_owner_and_what_it_has(self, store, space, clock):
        assert space.transactions() == []
        begun = clock.moment()
        for body in "abc":
            space.enqueue("Q", body)
        with space.transaction(timeout=60):
            space.dequeue("Q")
            space.dequeue("Q")
            space.lock("Q")
            clock.advance(5)
            (info,) = space.transactions()
        assert (info.index, info.state, held(info)) == (0, Outcome.ACTIVE, (2, 1, 0))
        assert (info.since, (info.deadline - begun).total_seconds()) == (begun, 60)
        assert (info.owner.pid, info.owner.role, info.owner.alive) == (os.getpid(), "application", True)
        assert (info.owner.host, info.owner.since) == (os.uname().nodename, begun)
        assert str(info.owner) == f"application {os.getpid()} on {os.uname().nodename}"
        assert space.transactions() == []

    def test_the_longest_comes_first_and_has_the_first_index(self, file_store, clock):
        space = file_store.space()
        make_queue(space)
        space.enqueue("Q", "x")
        space.enqueue("Q", "y")
        others = file_store.another().open_space("SPACE", role="forwarder")
        with space.transaction():
            clock.advance(1)
            with others.transaction():
                others.dequeue("Q")
                space.dequeue("Q")
                space.dequeue("Q")
                found = space.transactions()
        assert [(info.index, info.owner.role, held(info)) for info in found] == [
            (0, "application", (1, 0, 0)),
            (1, "forwarder", (1, 0, 0)),
        ]
        assert found[0].id != found[1].id

    def test_what_its_process_keeps_for_itself_is_unknown_and_what_it_leaves_to_the_store_is_told(self, store):
        space = store.space(pages=10_000)
        make_queue(space)
        with space.transaction():
            space.enqueue("Q", b"small")
            assert space.transactions() == []
            space.enqueue("Q", bytes(5_000_000))
            space.enqueue("Q", bytes(5_000_000))
            (info,) = space.transactions()
            assert held(info) == (0, 0, 3)

    def test_a_transaction_in_another_queue_space_is_not_told(self, store, space):
        other = store.space("OTHER")
        make_queue(other)
        other.enqueue("Q", "x")
        with other.transaction():
            other.dequeue("Q")
            assert (space.transactions(), len(other.transactions())) == ([], 1)

    def test_messages_in_memory_count_with_those_on_disk(self, store, memory_dir):
        space = store.space(memory=1_000_000)
        make_queue(space)
        space.enqueue("Q", "disk")
        space.enqueue("Q", "memory", persistent=False)
        with space.transaction():
            assert drain(space) == ["disk", "memory"]
            (info,) = space.transactions()
            assert held(info) == (2, 0, 0)


class TestAborting:
    def test_its_messages_come_back_and_this_counts_as_a_try(self, space):
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError, match="an administrator aborted it"), space.transaction():
            space.dequeue("Q")
            space.enqueue("Q", "never")
            (info,) = space.transactions()
            space.abort_transaction(info.id)
            assert bodies_held(space) == (1, 0, 0)
        message = space.dequeue("Q")
        assert (message.text, message.retries, drain(space)) == ("x", 1, [])

    def test_its_next_dequeue_is_refused(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            space.abort_transaction(space.transactions()[0].id)
            with pytest.raises(AbortedError):
                space.dequeue("Q")
            with pytest.raises(AbortedError):
                transaction.commit()
        assert drain(space) == ["x"]

    def test_what_it_has_spilled_is_gone_and_so_is_the_room_that_it_took(self, store):
        space = store.space(pages=10_000)
        make_queue(space)
        with pytest.raises(AbortedError), space.transaction():
            space.enqueue("Q", bytes(5_000_000))
            space.enqueue("Q", bytes(5_000_000))
            space.abort_transaction(space.transactions()[0].id)
            with pytest.raises(AbortedError):
                space.enqueue("Q", bytes(9_000_000))
        assert truth(space) == ([], [])
        assert store.device.space_usage("SPACE").pages == 0

    def test_the_owner_goes_on_with_a_new_transaction(self, space):
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError), space.transaction():
            space.dequeue("Q")
            space.abort_transaction(space.transactions()[0].id)
        with space.transaction():
            assert space.dequeue("Q").text == "x"
        assert drain(space) == []

    def test_a_rollback_after_it_does_nothing_more(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            space.abort_transaction(space.transactions()[0].id)
            transaction.rollback()
        assert space.dequeue("Q").retries == 1

    def test_a_message_out_of_tries_goes_to_the_error_queue(self, store):
        space = store.space(error_queue="ERRORS")
        make_queue(space, "Q", retries=0)
        make_queue(space, "ERRORS")
        space.enqueue("Q", "poison")
        with pytest.raises(AbortedError), space.transaction():
            space.dequeue("Q")
            space.abort_transaction(space.transactions()[0].id)
        message = space.dequeue("ERRORS")
        assert (message.text, message.origin.queue, message.origin.reason) == ("poison", "Q", Reason.RETRIES)

    def test_a_message_out_of_tries_stays_where_there_is_no_error_queue(self, store):
        space = store.space()
        make_queue(space, "Q", retries=0)
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError), space.transaction():
            space.dequeue("Q")
            space.abort_transaction(space.transactions()[0].id)
        assert (space.usage("Q").discarded, drain(space)) == (0, ["x"])

    def test_the_retry_delay_holds(self, store, clock):
        space = store.space()
        make_queue(space, "Q", retries=1, retry_delay=30)
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError), space.transaction():
            space.dequeue("Q")
            space.abort_transaction(space.transactions()[0].id)
        assert bodies_held(space) == (0, 1, 0)
        clock.advance(30)
        assert drain(space) == ["x"]

    def test_what_it_held_in_memory_comes_back_too(self, store, memory_dir):
        space = store.space(memory=1_000_000)
        make_queue(space, retries=3)
        space.enqueue("Q", "disk")
        space.enqueue("Q", "memory", persistent=False)
        with pytest.raises(AbortedError), space.transaction():
            assert drain(space) == ["disk", "memory"]
            space.abort_transaction(space.transactions()[0].id)
        assert [len(kept) for kept in truth(space)] == [1, 1]
        assert drain(space) == ["disk", "memory"]

    def test_others_are_left_alone(self, file_store):
        space = file_store.space()
        make_queue(space, retries=3)
        space.enqueue("Q", "mine")
        space.enqueue("Q", "yours")
        other = file_store.another().open_space("SPACE")
        with space.transaction():
            assert space.dequeue("Q").text == "mine"
            (mine,) = space.transactions()
            with pytest.raises(AbortedError), other.transaction():
                other.dequeue("Q")
                (yours,) = (info for info in space.transactions() if info.id != mine.id)
                space.abort_transaction(yours.id)
                assert [info.id for info in space.transactions()] == [mine.id]
        assert drain(space) == ["yours"]

    @pytest.mark.parametrize("name", ["", "0", "0123456789abcdef", "no number", "\udcff"])
    def test_one_that_is_not_there_is_refused(self, space, name):
        for act in (space.abort_transaction, space.commit_transaction):
            with pytest.raises(InvalidArgumentError, match="has no transaction"):
                act(name)

    def test_one_that_is_gone_meanwhile_is_refused(self, space):
        space.enqueue("Q", "x")
        with space.transaction():
            space.dequeue("Q")
            (info,) = space.transactions()
        with pytest.raises(InvalidArgumentError, match="it may have ended meanwhile"):
            space.abort_transaction(info.id)
        assert drain(space) == []

    def test_one_of_another_queue_space_is_refused(self, store, space):
        other = store.space("OTHER")
        make_queue(other)
        other.enqueue("Q", "x")
        with other.transaction():
            other.dequeue("Q")
            (info,) = other.transactions()
            with pytest.raises(InvalidArgumentError):
                space.abort_transaction(info.id)
        assert drain(other) == []

    def test_a_reader_may_look_and_not_abort(self, file_store, monkeypatch):
        space = file_store.space()
        make_queue(space)
        space.enqueue("Q", "x")
        with space.transaction():
            space.dequeue("Q")
            monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda path, mode: mode == os.R_OK)
            reader = file_store.another().open_space("SPACE")
            (info,) = reader.transactions()
            assert held(info) == (1, 0, 0)
            with pytest.raises(OperatingSystemError):
                reader.abort_transaction(info.id)
        assert drain(space) == []


class TestCommitting:
    def test_an_active_transaction_is_left_to_its_owner(self, space):
        space.enqueue("Q", "x")
        with space.transaction():
            space.dequeue("Q")
            (info,) = space.transactions()
            with pytest.raises(ProtocolError, match=r"is active and not prepared") as refusal:
                space.commit_transaction(info.id)
            assert "qaborttrans rolls the transaction back" in refusal.value.hint
        assert drain(space) == []


class TestAttached:
    def test_everybody_who_has_it_open_is_told_the_longest_first(self, file_store, clock):
        space = file_store.space()
        begun = clock.moment()
        clock.advance(10)
        file_store.another().open_space("SPACE", role="qmadmin")
        first, second = file_store.device.attached("SPACE")
        assert (first.role, first.pid, first.since, first.alive) == ("application", os.getpid(), begun, True)
        assert (second.role, second.since, second.waits) == ("qmadmin", clock.moment(), 0)
        space.close()
        assert [process.role for process in file_store.device.attached("SPACE")] == ["qmadmin"]

    def test_whoever_died_is_told_as_dead_until_somebody_looks_after_it(self, real_device, start):
        child = start(
            "device = open_device(sys.argv[1])\n"
            "space = device.open_space('SPACE', role='forwarder')\n"
            "space.enqueue('Q', 'x')\n"
            "space.transaction().join_context()\n"
            "space.dequeue('Q')\n"
            "say('attached')\n"
            "space.dequeue('ERRORS', wait=1000, transactional=False)\n",
            real_device.path,
        )
        child.expect("attached")
        (process,) = real_device.attached("SPACE")
        assert (process.pid, process.role, process.alive) == (child.pid, "forwarder", True)
        child.kill()
        (process,) = real_device.attached("SPACE")
        assert (process.pid, process.alive) == (child.pid, False)
        with real_device.open_space("SPACE") as space:
            assert [other.pid for other in real_device.attached("SPACE")] == [os.getpid()]
            assert (space.transactions(), space.dequeue("Q").retries) == ([], 1)

    def test_a_queue_space_that_is_not_there_is_refused(self, store):
        for look in (store.device.attached, store.device.memory_files):
            with pytest.raises(BadResourceError):
                look("NONE")


class TestMemoryFiles:
    def test_they_are_told_with_their_size(self, file_store, memory_dir):
        space = file_store.space(memory=1_000_000)
        make_queue(space)
        space.enqueue("Q", "x", persistent=False)
        files = file_store.device.memory_files("SPACE")
        assert [file.path.rpartition("/")[2] for file in files] == ["memory", "memory-wal", "memory-shm"]
        assert all(file.path.startswith(str(memory_dir)) for file in files)
        assert [file.size for file in files] == [Path(file.path).stat().st_size for file in files]
        space.close()
        file_store.device.clear_memory("SPACE")
        assert file_store.device.memory_files("SPACE") == []

    def test_a_queue_space_without_memory_has_none(self, store):
        store.space()
        assert store.device.memory_files("SPACE") == []
