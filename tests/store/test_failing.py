"""What whoever rolls back says of a message: that it failed for good, when to try again, or that it is done with."""

import threading

import pytest

from qmadmin import NoSpaceError
from qmcore.errors import AbortedError, BadQueueError, InvalidArgumentError
from qmcore.message import EnqueueControl
from tests.fix_store import bodies_held, drain, make_queue


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRQUE")
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "ERRQUE")
    return opened


def fail(space, name="Q", **terms):
    """Dequeue the next message in a transaction and roll it back on these terms."""
    with space.transaction() as transaction:
        message = space.dequeue(name)
        transaction.rollback("no account 17", **terms)
    return message


def answer(queue, body, **control):
    return queue, body, EnqueueControl(**control)


class TestForGood:
    def test_a_message_that_failed_for_good_goes_to_the_error_queue_at_once(self, space):
        msgid = space.enqueue("Q", "x")
        fail(space, permanent=True)
        failed = space.dequeue("ERRQUE")
        assert (failed.text, failed.origin.msgid, failed.origin.error) == ("x", msgid, "no account 17")
        assert bodies_held(space, "Q") == (0, 0, 0)

    def test_without_an_error_queue_it_is_discarded_and_counted(self, space):
        make_queue(space, "ALONE", retries=5)
        space.destroy_queue("ERRQUE")
        space.enqueue("ALONE", "x")
        fail(space, "ALONE", permanent=True)
        usage = space.usage("ALONE")
        assert (usage.messages, usage.discarded) == (0, 1)

    def test_one_that_is_not_named_is_tried_again(self, space):
        first, _ = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with space.transaction() as transaction:
            drain(space)
            transaction.rollback("half", permanent=True, only=first)
        assert drain(space, "ERRQUE") == ["a"]
        assert space.dequeue("Q").retries == 1

    def test_what_was_not_tried_cannot_fail_for_good(self, space):
        space.enqueue("Q", "x")
        fail(space, permanent=True, counts=False)
        assert space.dequeue("Q").retries == 0


class TestRetryAfter:
    def test_a_message_stays_away_for_as_long_as_is_said(self, space, clock):
        make_queue(space, "SLOW", retries=3, retry_delay=30)
        space.enqueue("SLOW", "x")
        fail(space, "SLOW", retry_after=100)
        clock.advance(99)
        assert space.dequeue("SLOW") is None
        clock.advance(1)
        assert space.dequeue("SLOW").retries == 1

    def test_zero_seconds_bring_it_back_at_once(self, space):
        make_queue(space, "SLOW", retries=3, retry_delay=30)
        space.enqueue("SLOW", "x")
        fail(space, "SLOW", retry_after=0)
        assert space.dequeue("SLOW").retries == 1

    @pytest.mark.parametrize("seconds", [-1, float("nan"), "soon"])
    def test_what_is_no_time_is_refused_and_the_transaction_goes_on(self, space, seconds):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            with pytest.raises((InvalidArgumentError, TypeError)):
                transaction.rollback(retry_after=seconds)
            assert transaction.active
        assert bodies_held(space, "Q") == (0, 0, 0)

    def test_the_rest_of_a_group_waits_as_long(self, space, clock):
        make_queue(space, "GROUPS", retries=3, grouping=True)
        space.enqueue_many("GROUPS", ["a", "b"])
        fail(space, "GROUPS", retry_after=100)
        clock.advance(99)
        assert space.dequeue("GROUPS") is None
        clock.advance(1)
        assert [message.text for message in space.dequeue_many("GROUPS", 5)] == ["a", "b"]


class TestAnAnswerToAFailure:
    def test_the_message_goes_and_the_answer_is_queued(self, space):
        make_queue(space, "FAILED")
        msgid = space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.answer_failure(msgid, "no", [answer("FAILED", b"why", urcode=7)])
        assert (space.usage("Q").messages, space.usage("Q").dequeued) == (0, 1)
        told = space.dequeue("FAILED")
        assert (told.body, told.urcode) == (b"why", 7)

    def test_a_message_out_of_tries_goes_to_the_error_queue_as_well(self, space):
        make_queue(space, "ONCE", retries=0)
        make_queue(space, "FAILED")
        msgid = space.enqueue("ONCE", "x")
        with space.transaction() as transaction:
            space.dequeue("ONCE")
            transaction.answer_failure(msgid, "no", [answer("FAILED", b"why")])
        assert drain(space, "FAILED") == ["why"]
        failed = space.dequeue("ERRQUE")
        assert (failed.origin.msgid, failed.origin.error) == (msgid, "no")

    def test_what_else_the_transaction_did_is_undone(self, space):
        make_queue(space, "FAILED")
        make_queue(space, "NEXT")
        msgid, _ = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with space.transaction() as transaction:
            drain(space)
            space.enqueue("NEXT", "step")
            transaction.answer_failure(msgid, "no", [answer("FAILED", b"why")])
        assert drain(space, "FAILED") == ["why"]
        assert drain(space, "NEXT") == []
        assert [(info.size, info.retries) for info in space.messages("Q")] == [(1, 1)]

    def test_an_answer_that_has_no_room_leaves_the_transaction_as_it_was(self, space):
        make_queue(space, "FAILED")
        msgid = space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            with pytest.raises(NoSpaceError):
                transaction.answer_failure(msgid, "no", [answer("FAILED", b"x" * 50_000_000)])
            assert transaction.active
            transaction.rollback(counts=False)
        assert space.dequeue("Q").retries == 0

    def test_an_answer_to_a_queue_that_is_gone_leaves_the_transaction_as_it_was(self, space):
        msgid = space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            with pytest.raises(BadQueueError):
                transaction.answer_failure(msgid, "no", [answer("NONE", b"why")])
            assert transaction.active
        assert bodies_held(space, "Q") == (0, 0, 0)

    def test_a_message_of_a_queue_with_retention_is_kept_for_the_record(self, space):
        make_queue(space, "KEPT", retries=3, retention=100)
        msgid = space.enqueue("KEPT", "x")
        with space.transaction() as transaction:
            space.dequeue("KEPT")
            transaction.answer_failure(msgid, "no", [])
        assert [consumed.info.msgid for consumed in space.history("KEPT")] == [msgid]


class TestGivingBackSome:
    def test_some_go_back_and_the_transaction_goes_on_with_the_others(self, space):
        first, _, third = (space.enqueue("Q", text) for text in "abc")
        with space.transaction() as transaction:
            assert drain(space) == ["a", "b", "c"]
            transaction.give_back([first], "no")
            transaction.give_back([third], counts=False)
        assert [(info.msgid, info.retries) for info in space.messages("Q")] == [(first, 1), (third, 0)]
        assert space.usage("Q").dequeued == 1

    def test_one_that_failed_for_good_goes_to_the_error_queue_at_once(self, space):
        msgid, _ = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with space.transaction() as transaction:
            drain(space)
            transaction.give_back([msgid], "no", permanent=True)
        assert drain(space, "ERRQUE") == ["a"]
        assert bodies_held(space, "Q") == (0, 0, 0)

    def test_it_may_be_said_when_to_try_again(self, space, clock):
        msgid = space.enqueue("Q", "a")
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.give_back([msgid], retry_after=5)
        clock.advance(4)
        assert space.dequeue("Q") is None
        clock.advance(1)
        assert space.dequeue("Q").retries == 1

    def test_what_was_given_back_is_not_given_back_again_by_a_rollback(self, space):
        msgid, _ = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with space.transaction() as transaction:
            drain(space)
            transaction.give_back([msgid])
            transaction.rollback()
        assert [info.retries for info in space.messages("Q")] == [1, 1]

    def test_one_that_is_named_twice_was_tried_once(self, space):
        msgid = space.enqueue("Q", "a")
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.give_back([msgid, msgid])
        assert [info.retries for info in space.messages("Q")] == [1]

    def test_what_the_transaction_has_not_dequeued_is_passed_over(self, space):
        held, other = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with space.transaction() as transaction:
            space.dequeue("Q", msgid=held)
            transaction.give_back([other, "0" * 32])
        assert [(info.msgid, info.retries) for info in space.messages("Q")] == [(other, 0)]


class TestFromAnotherThread:
    def test_a_transaction_that_is_given_up_counts_a_try_and_refuses_what_comes_after(self, space):
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError, match="too slow"), space.transaction() as transaction:
            space.dequeue("Q")
            other = threading.Thread(target=transaction.give_up, args=("too slow",))
            other.start()
            other.join()
            space.enqueue("Q", "y")
        assert [(info.size, info.retries) for info in space.messages("Q")] == [(1, 1)]

    def test_it_may_be_a_try_of_one_message_only(self, space):
        slow, other = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with pytest.raises(AbortedError), space.transaction() as transaction:
            drain(space)
            transaction.give_up("too slow", only=slow)
        assert {info.msgid: info.retries for info in space.messages("Q")} == {slow: 1, other: 0}

    def test_its_commit_is_refused(self, space):
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError), space.transaction() as transaction:
            space.dequeue("Q")
            transaction.give_up("too slow")
        assert space.dequeue("Q").retries == 1

    def test_one_that_is_returned_untried_counts_none(self, space):
        space.enqueue("Q", "x")
        with pytest.raises(AbortedError), space.transaction() as transaction:
            space.dequeue("Q")
            transaction.return_untried("stopped")
        assert space.dequeue("Q").retries == 0
