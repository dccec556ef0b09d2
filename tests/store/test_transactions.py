"""Transactions: all of it or nothing of it, seen by nobody before, and by everybody after."""

import contextlib
import gc
import sqlite3
import threading
from datetime import timedelta

import pytest

from qmadmin.transacting import Transaction
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    BadResourceError,
    NoSpaceError,
    NotOpenError,
    ProtocolError,
    Resource,
)
from qmcore.message import State
from tests.fix_store import Work, bodies_held, drain, make_queue, space_definition


class BrokenError(Exception):
    """What goes wrong in an application."""


class TestCommit:
    def test_what_was_dequeued_is_gone_and_what_was_enqueued_is_there(self, space):
        make_queue(space, "OUT")
        space.enqueue("Q", "request")
        with space.transaction():
            request = space.dequeue("Q")
            space.enqueue("OUT", request.text + " done")
        assert (drain(space), drain(space, "OUT")) == ([], ["request done"])

    def test_nobody_sees_anything_of_it_before(self, space):
        space.enqueue("Q", "held")
        with space.transaction():
            space.dequeue("Q")
            space.enqueue("Q", "pending")
            assert space.dequeue("Q") is None
            assert space.dequeue("Q", transactional=False) is None
            assert bodies_held(space) == (0, 0, 1)
            assert [info.state for info in space.messages("Q")] == [State.HELD]
        assert drain(space) == ["pending"]

    def test_it_may_be_made_before_the_end_of_the_block(self, space):
        with space.transaction() as transaction:
            space.enqueue("Q", "x")
            transaction.commit()
            assert not transaction.active
            assert [info.size for info in space.messages("Q")] == [1]
        assert drain(space) == ["x"]

    def test_an_empty_transaction_does_nothing(self, space):
        with space.transaction() as transaction:
            assert transaction.active
        assert not transaction.active
        assert repr(transaction) == "<Transaction committed>"

    def test_many_messages_of_many_queues_go_together(self, space):
        make_queue(space, "OUT")
        for at in range(50):
            space.enqueue("Q", str(at))
        with space.transaction():
            for _ in range(50):
                space.enqueue("OUT", space.dequeue("Q").text)
        assert (drain(space), drain(space, "OUT")) == ([], [str(at) for at in range(50)])

    def test_a_queue_that_is_gone_by_then_undoes_all_of_it(self, space):
        make_queue(space, "GONE")
        space.enqueue("Q", "x")
        with pytest.raises(BadQueueError), space.transaction():
            space.dequeue("Q")
            space.enqueue("GONE", b"")
            space.destroy_queue("GONE")
        assert drain(space) == ["x"]

    def test_limits_hold_at_the_commit_too(self, store):
        space = store.space(messages=3)
        make_queue(space)
        with pytest.raises(NoSpaceError) as refusal, space.transaction():
            space.enqueue("Q", "a")
            space.enqueue("Q", "b")
            for text in "cd":
                space.enqueue("Q", text, transactional=False)
        assert refusal.value.resource is Resource.MESSAGES
        assert drain(space) == ["c", "d"]

    @pytest.mark.synchronous
    def test_the_commit_names_the_queue_space_that_has_no_room(self, store):
        space = store.space()
        make_queue(space)
        store.device.create_space(space_definition("SECOND", ipc_key=41_000, messages=3, pages=100))
        with store.device.open_space("SECOND") as second:
            make_queue(second)
            # As tpbegin makes it, of all queue spaces.
            with pytest.raises(NoSpaceError, match="queue space 'SECOND'"), Transaction(store.device, None):
                space.enqueue("Q", "a")
                for text in "bc":
                    second.enqueue("Q", text)
                for text in "de":
                    second.enqueue("Q", text, transactional=False)
            assert (drain(space), drain(second)) == ([], ["d", "e"])

    def test_room_that_others_take_after_the_dequeue_is_refused_at_the_commit_at_the_latest(self, store):
        space = store.space(messages=3)
        make_queue(space, retries=3)
        make_queue(space, "R")
        space.enqueue("Q", "request")
        with pytest.raises(NoSpaceError), space.transaction():
            space.dequeue("Q")
            for text in "ab":
                space.enqueue("R", text, transactional=False)
            space.enqueue("R", "reply 1")
            space.enqueue("R", "reply 2")
        assert (drain(space), drain(space, "R")) == (["request"], ["a", "b"])


class TestRollback:
    def test_what_was_dequeued_is_back_in_its_place_and_what_was_enqueued_never_was(self, space):
        for text in "abc":
            space.enqueue("Q", text)
        with pytest.raises(BrokenError), space.transaction():
            assert space.dequeue("Q").text == "a"
            space.enqueue("Q", "never")
            raise BrokenError
        assert drain(space) == ["a", "b", "c"]
        assert space.usage("Q").enqueued == 3

    def test_it_may_be_made_before_the_end_of_the_block(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.rollback("changed my mind")
            assert not transaction.active
            assert space.dequeue("Q", transactional=False).text == "x"
        assert repr(transaction) == "<Transaction rolled back>"

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_whatever_ends_the_block_rolls_it_back(self, space, error):
        space.enqueue("Q", "x")
        with pytest.raises(error), space.transaction():
            space.dequeue("Q")
            raise error
        assert drain(space) == ["x"]

    def test_messages_come_back_in_their_order(self, space):
        make_queue(space, "P", order="priority", retries=9)
        for at in range(10):
            space.enqueue("P", str(at), priority=1 + at % 3)
        before = [info.msgid for info in space.messages("P")]
        with space.transaction() as transaction:
            drain(space, "P")
            transaction.rollback()
        assert [info.msgid for info in space.messages("P")] == before


class TestEnded:
    def test_a_transaction_ends_once(self, space):
        with space.transaction() as transaction:
            transaction.commit()
        with pytest.raises(ProtocolError, match="committed already"):
            transaction.commit()
        with pytest.raises(ProtocolError, match="committed already"):
            transaction.rollback()

    def test_nothing_joins_a_transaction_that_has_ended(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            transaction.rollback()
            with pytest.raises(ProtocolError, match="rolled back already"):
                space.dequeue("Q")
            with pytest.raises(ProtocolError, match="rolled back already"):
                space.enqueue("Q", "y")
        assert drain(space) == ["x"]

    def test_after_its_block_calls_take_effect_at_once_again(self, space):
        with space.transaction():
            space.enqueue("Q", "x")
        space.enqueue("Q", "y")
        assert drain(space) == ["x", "y"]


class TestNesting:
    def test_a_transaction_inside_another_one_is_refused_and_does_no_harm(self, space):
        with space.transaction():
            space.enqueue("Q", "x")
            with pytest.raises(ProtocolError, match="is open already"):
                space.transaction()
        assert drain(space) == ["x"]

    @pytest.mark.synchronous
    def test_one_that_was_made_before_is_refused_when_it_is_entered(self, space):
        inner = space.transaction()
        with space.transaction():
            space.enqueue("Q", "x")
            with pytest.raises(ProtocolError), inner:
                raise AssertionError("it was entered")
        assert drain(space) == ["x"]

    def test_another_queue_space_has_a_transaction_of_its_own(self, store, space):
        other = store.space("OTHER")
        make_queue(other, retries=1)
        other.enqueue("Q", "y")
        with space.transaction():
            space.enqueue("Q", "x")
            with pytest.raises(BrokenError), other.transaction():
                other.dequeue("Q")
                raise BrokenError
        assert (drain(space), drain(other)) == (["x"], ["y"])

    @pytest.mark.synchronous
    def test_a_second_handle_of_the_queue_space_is_in_the_transaction_too(self, store, space):
        with store.device.open_space("SPACE") as again, space.transaction() as transaction:
            again.enqueue("Q", "x")
            with pytest.raises(ProtocolError):
                again.transaction()
            transaction.rollback()
        assert drain(space) == []


class TestThreads:
    def test_another_thread_is_not_in_the_transaction(self, space):
        with space.transaction() as transaction:
            space.enqueue("Q", "inside")
            Work(lambda: space.enqueue("Q", "outside")).results()
            transaction.rollback()
        assert drain(space) == ["outside"]

    @pytest.mark.synchronous
    def test_another_thread_cannot_end_it(self, space):
        with space.transaction() as transaction:
            space.enqueue("Q", "x")
            refused = Work(transaction.commit, transaction.rollback).results()
        assert [type(error) for error in refused] == [ProtocolError, ProtocolError]
        assert drain(space) == ["x"]

    def test_each_thread_has_its_own(self, space):
        make_queue(space, "OUT")
        for at in range(8):
            space.enqueue("Q", str(at))
        all_hold_one = threading.Barrier(8)

        def work():
            with space.transaction() as transaction:
                text = space.dequeue("Q").text
                all_hold_one.wait(90)
                if int(text) % 2:
                    transaction.rollback()
                else:
                    space.enqueue("OUT", text)
            return text

        assert sorted(Work(*[work] * 8).results()) == list("01234567")
        assert (drain(space), sorted(drain(space, "OUT"))) == (list("1357"), list("0246"))


class TestTimeout:
    def test_what_comes_after_it_is_refused_and_all_is_rolled_back(self, space, clock):
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError, match="timeout of 10 seconds is over"), space.transaction(timeout=10):
            space.dequeue("Q")
            space.enqueue("Q", "never")
            clock.advance(10)
            space.enqueue("Q", "never either")
        message = space.dequeue("Q")
        assert (message.text, message.retries) == ("x", 1)
        assert space.dequeue("Q") is None

    def test_the_commit_is_refused_too(self, space, clock):
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError), space.transaction(timeout=timedelta(seconds=10)):
            space.dequeue("Q")
            space.enqueue("Q", "never")
            clock.advance(10)
        assert drain(space) == ["x"]

    def test_every_call_after_it_says_so(self, space, clock):
        with pytest.raises(AbortedError), space.transaction(timeout=10) as transaction:
            clock.advance(11)
            for call in (lambda: space.enqueue("Q", b""), lambda: space.dequeue("Q"), transaction.commit):
                with pytest.raises(AbortedError):
                    call()

    @pytest.mark.parametrize("seconds", [3600, -3600], ids=["forward", "back"])
    def test_no_step_of_the_time_of_day_uses_it_up_or_makes_it_longer(self, shared_store, clock, seconds):
        space = shared_store.space()
        make_queue(space, retries=3)
        space.enqueue_many("Q", "xy")
        with shared_store.another().open_space("SPACE") as other:
            with space.transaction(timeout=30):
                space.dequeue("Q")
                (before,) = space.transactions()
                clock.set_back(-seconds)
                clock.advance(2)
                assert other.dequeue("Q").text == "y"
                assert other.dequeue("Q") is None
                (after,) = space.transactions()
                assert (after.deadline - before.deadline).total_seconds() == seconds
            with pytest.raises(AbortedError, match="timeout of 30 seconds"), space.transaction(timeout=30):
                space.enqueue("Q", "never")
                clock.set_back(-seconds)
                clock.advance(31)
                space.dequeue("Q")
        assert drain(space) == []

    def test_it_is_not_over_a_moment_before(self, space, clock):
        with space.transaction(timeout=10) as transaction:
            space.enqueue("Q", "x")
            assert transaction.remaining() == 10
            clock.advance(9.999_999)
        assert drain(space) == ["x"]

    def test_without_one_a_transaction_may_last(self, space, clock):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            clock.advance(10_000_000)
            assert transaction.remaining() == float("inf")
            space.enqueue("Q", "y")
        assert drain(space) == ["y"]

    def test_others_notice_it_and_get_the_message(self, file_store, clock):
        space = file_store.space()
        make_queue(space, retries=3)
        space.enqueue("Q", "x")
        with file_store.another().open_space("SPACE") as other:
            with pytest.raises(AbortedError), space.transaction(timeout=10):
                space.dequeue("Q")
                assert other.dequeue("Q") is None
                clock.advance(10)
                message = other.dequeue("Q")
                assert (message.text, message.retries) == ("x", 1)
            assert other.dequeue("Q") is None

    def test_a_commit_is_refused_where_others_have_rolled_it_back_whatever_its_own_clock_says(self, file_store, clock):
        from tests.fix_store import MovableClock

        space = file_store.space()
        make_queue(space, retries=3)
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        ahead = MovableClock(clock.now())
        ahead.advance(60)
        other = file_store.another(ahead).open_space("SPACE")
        with pytest.raises(AbortedError, match="rolled back by others"), space.transaction(timeout=10):
            space.dequeue("Q")
            space.enqueue("OUT", "never")
            assert other.dequeue("Q").text == "x"
        assert (drain(other), drain(other, "OUT")) == ([], [])
        assert other.usage("Q").dequeued == 1

    def test_a_dequeue_is_refused_where_others_have_rolled_it_back(self, file_store, clock):
        from tests.fix_store import MovableClock

        space = file_store.space()
        make_queue(space, retries=3)
        space.enqueue("Q", "x")
        space.enqueue("Q", "y")
        ahead = MovableClock(clock.now())
        ahead.advance(60)
        other = file_store.another(ahead).open_space("SPACE")
        with pytest.raises(AbortedError, match="rolled back by others"), space.transaction(timeout=10):
            space.dequeue("Q")
            other.usage("Q")
            space.dequeue("Q")
        assert sorted(drain(other)) == ["x", "y"]


class TestClosing:
    def test_what_a_transaction_holds_is_given_back_when_the_device_is_closed_under_it(self, file_store):
        space = file_store.space()
        make_queue(space, retries=3)
        space.enqueue("Q", "x")
        other = file_store.another().open_space("SPACE")
        with pytest.raises(NotOpenError), space.transaction():
            space.dequeue("Q")
            file_store.device.close()
        assert bodies_held(other) == (1, 0, 0)
        assert drain(other) == ["x"]

    def test_it_is_given_back_by_the_close_itself_and_not_only_when_somebody_looks(self, file_store):
        space = file_store.space()
        make_queue(space, retries=3)
        space.enqueue("Q", "x")
        with pytest.raises(NotOpenError), space.transaction():
            space.dequeue("Q")
            file_store.device.close()
        with contextlib.closing(sqlite3.connect(file_store.path)) as file:
            counts = [
                file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("held", "trans", "ready")
            ]
        assert counts == [0, 0, 1]

    def test_what_a_transaction_holds_is_given_back_when_the_queue_space_is_closed_under_it(self, file_store):
        space = file_store.space()
        make_queue(space, retries=3)
        space.enqueue("Q", "x")
        other = file_store.another().open_space("SPACE")
        transaction = space.transaction()
        with transaction:
            space.dequeue("Q")
            space.close()
            assert bodies_held(other) == (1, 0, 0)
            with pytest.raises(AbortedError):
                transaction.commit()
        assert drain(other) == ["x"]

    def test_what_a_transaction_holds_is_given_back_when_its_device_is_forgotten(self, file_store):
        space = file_store.space()
        make_queue(space, retries=3)
        space.enqueue("Q", "x")

        def forget():
            device = file_store.another()
            file_store.others.clear()
            opened = device.open_space("SPACE")
            transaction = opened.transaction()
            transaction.join_context()
            opened.dequeue("Q")
            transaction.leave_context()

        Work(forget).results()
        gc.collect()
        assert drain(space) == ["x"]

    def test_a_queue_space_that_is_destroyed_takes_its_transactions_with_it(self, store, space):
        space.enqueue("Q", "x")
        with pytest.raises(BadResourceError), space.transaction():
            space.dequeue("Q")
            store.device.destroy_space("SPACE", force=True)
        space.close()
        again = store.space()
        make_queue(again)
        assert bodies_held(again) == (0, 0, 0)
