"""What a rollback does to the messages: it counts, it delays, and in the end it moves or discards."""

import logging

import pytest

from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import EnqueueControl, Reason
from qmcore.times import MICROS
from tests.fix_store import attachment_of, bodies_held, drain, make_queue


def try_and_fail(space, name="Q", reason=""):
    """Dequeue the next message in a transaction and roll it back."""
    with space.transaction() as transaction:
        message = space.dequeue(name)
        transaction.rollback(reason)
    return message


class TestRetries:
    def test_each_rollback_counts_as_a_try(self, space):
        space.enqueue("Q", "x")
        assert [try_and_fail(space).retries for _ in range(3)] == [0, 1, 2]
        assert space.dequeue("Q").retries == 3

    def test_the_listing_shows_the_tries(self, space):
        space.enqueue("Q", "x")
        try_and_fail(space)
        assert [info.retries for info in space.messages("Q")] == [1]

    def test_a_commit_and_a_refused_enqueue_do_not_count(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.enqueue("Q", "y")
            transaction.rollback()
        assert space.dequeue("Q").retries == 0

    def test_a_rollback_that_is_not_to_count_does_not(self, space):
        make_queue(space, "NEVER", retries=0)
        space.enqueue("NEVER", "x")
        for _ in range(3):
            with space.transaction() as transaction:
                assert space.dequeue("NEVER").retries == 0
                transaction.rollback("stopped", counts=False)
        assert bodies_held(space, "NEVER") == (1, 0, 0)

    def test_all_messages_of_the_transaction_count_a_try(self, space):
        for text in "abc":
            space.enqueue("Q", text)
        with space.transaction() as transaction:
            drain(space)
            transaction.rollback()
        assert [info.retries for info in space.messages("Q")] == [1, 1, 1]


class TestRetryDelay:
    def test_a_message_stays_away_for_the_delay_of_its_queue(self, space, clock):
        make_queue(space, "SLOW", retries=3, retry_delay=30)
        space.enqueue("SLOW", "x")
        try_and_fail(space, "SLOW")
        assert space.dequeue("SLOW") is None
        assert bodies_held(space, "SLOW") == (0, 1, 0)
        assert [info.available_at for info in space.messages("SLOW")] == [clock.moment(30)]
        clock.advance(29.999_999)
        assert space.dequeue("SLOW") is None
        clock.advance(0.000_001)
        assert space.dequeue("SLOW").retries == 1

    def test_it_comes_back_to_its_old_place(self, space, clock):
        make_queue(space, "SLOW", retries=3, retry_delay=30)
        for text in "abc":
            space.enqueue("SLOW", text)
        assert try_and_fail(space, "SLOW").text == "a"
        assert space.dequeue("SLOW").text == "b"
        clock.advance(30)
        assert drain(space, "SLOW") == ["a", "c"]

    def test_it_still_expires_meanwhile(self, space, clock):
        make_queue(space, "SLOW", retries=3, retry_delay=30)
        space.enqueue("SLOW", "x", expires_in=20)
        try_and_fail(space, "SLOW")
        clock.advance(30)
        assert space.dequeue("SLOW") is None
        assert space.usage("SLOW").expired == 1


class TestErrorQueue:
    @pytest.fixture
    def space(self, store):
        opened = store.space(error_queue="ERRORS")
        make_queue(opened, "Q", retries=1)
        make_queue(opened, "ERRORS")
        return opened

    def test_a_message_that_is_out_of_tries_goes_there_and_remembers_where_it_came_from(self, space, clock, caplog):
        msgid = space.enqueue("Q", "x", priority=9, corrid="c", urcode=5, reply_queue="R", headers={"h": "v"})
        try_and_fail(space, reason="first")
        clock.advance(1)
        with caplog.at_level(logging.WARNING, "qmadmin"):
            try_and_fail(space, reason="the printer is on fire")
        assert drain(space) == []
        message = space.dequeue("ERRORS")
        assert (message.text, message.priority, message.corrid, message.urcode) == ("x", 9, b"c", 5)
        assert (message.reply_queue, message.headers, message.retries) == ("R", {"h": "v"}, 0)
        assert message.msgid != msgid
        origin = message.origin
        assert (origin.queue, origin.msgid, origin.reason) == ("Q", msgid, Reason.RETRIES)
        assert (origin.moved_us, origin.error) == (clock.now(), "the printer is on fire")
        (record,) = caplog.records
        assert msgid in record.getMessage()
        assert "went to 'ERRORS'" in record.getMessage()

    def test_the_move_is_counted_at_both_ends(self, space):
        space.enqueue("Q", "x")
        for _ in range(2):
            try_and_fail(space)
        was, now = space.usage("Q"), space.usage("ERRORS")
        assert (was.messages, was.moved, was.discarded, was.dequeued, was.pages) == (0, 1, 0, 0, 0)
        assert (now.messages, now.enqueued, now.pages, now.size) == (1, 1, 1, 1)

    def test_the_last_exception_is_kept_with_the_message(self, space):
        space.enqueue("Q", "x")
        for problem in ("first", "second"):
            with pytest.raises(ValueError, match=problem), space.transaction():
                space.dequeue("Q")
                raise ValueError(problem)
        (info,) = space.messages("ERRORS")
        assert info.origin.error == "ValueError: second"

    def test_it_expires_no_more_and_waits_no_more(self, space, clock):
        make_queue(space, "SLOW", retries=0, retry_delay=100)
        space.enqueue("SLOW", "x", expires_in=20)
        try_and_fail(space, "SLOW")
        assert bodies_held(space, "ERRORS") == (1, 0, 0)
        clock.advance(1_000)
        message = space.dequeue("ERRORS")
        assert (message.text, message.expires_at, message.available_at) == ("x", None, None)

    def test_it_stands_there_in_the_order_of_the_error_queue(self, store):
        space = store.space("SORTED", error_queue="E")
        make_queue(space, "Q")
        make_queue(space, "E", order="priority")
        for priority in (5, 90, 50):
            space.enqueue("Q", str(priority), priority=priority)
        with space.transaction() as transaction:
            drain(space)
            transaction.rollback()
        assert drain(space, "E") == ["90", "50", "5"]

    def test_messages_that_go_there_together_keep_their_order(self, space):
        for text in "abcde":
            space.enqueue("Q", text)
        for _ in range(2):
            with space.transaction() as transaction:
                drain(space)
                transaction.rollback()
        assert drain(space, "ERRORS") == list("abcde")

    def test_what_is_rolled_back_in_the_error_queue_stays_there(self, space):
        space.enqueue("ERRORS", "x")
        for tries in range(20):
            assert try_and_fail(space, "ERRORS").retries == tries
        usage = space.usage("ERRORS")
        assert (usage.messages, usage.moved, usage.discarded, usage.enqueued) == (1, 0, 0, 1)

    def test_what_was_moved_keeps_its_origin_through_more_rollbacks(self, space):
        msgid = space.enqueue("Q", "x")
        for _ in range(2):
            try_and_fail(space)
        for _ in range(3):
            try_and_fail(space, "ERRORS")
        assert space.dequeue("ERRORS").origin.msgid == msgid

    def test_it_is_found_there_by_its_new_id_and_its_correlation(self, space):
        for _ in range(2):
            space.enqueue("Q", "x", corrid="c")
        for _ in range(4):
            try_and_fail(space)
        first, second = space.messages("ERRORS")
        assert space.dequeue("ERRORS", msgid=second.msgid)
        assert space.dequeue("ERRORS", corrid="c").msgid == first.msgid
        assert space.dequeue("Q", corrid="c") is None

    def test_limits_do_not_keep_a_message_from_going_there(self, store):
        space = store.space("FULL", error_queue="E", messages=2)
        make_queue(space, "Q")
        make_queue(space, "E")
        for _ in range(2):
            space.enqueue("Q", "x")
        for _ in range(2):
            try_and_fail(space)
        assert space.usage("E").messages == 2

    def test_one_that_is_named_but_not_created_is_none(self, store, caplog):
        space = store.space("HALF", error_queue="LATER")
        make_queue(space, "Q")
        space.enqueue("Q", "x")
        with caplog.at_level(logging.WARNING, "qmadmin"):
            try_and_fail(space)
        assert space.usage("Q").discarded == 1
        make_queue(space, "LATER")
        space.enqueue("Q", "y")
        try_and_fail(space)
        assert drain(space, "LATER") == ["y"]


class TestWithoutErrorQueue:
    def test_a_message_that_is_out_of_tries_is_discarded_counted_and_logged(self, space, caplog):
        make_queue(space, "NEVER")
        msgid = space.enqueue("NEVER", "x")
        with caplog.at_level(logging.WARNING, "qmadmin"):
            try_and_fail(space, "NEVER")
        usage = space.usage("NEVER")
        assert (usage.messages, usage.discarded, usage.moved, usage.pages, usage.size) == (0, 1, 0, 0, 0)
        assert list(space.messages("NEVER")) == []
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert msgid in record.getMessage()
        assert "was discarded" in record.getMessage()

    def test_one_with_tries_left_is_not(self, space, caplog):
        space.enqueue("Q", "x")
        for _ in range(3):
            try_and_fail(space)
        assert space.usage("Q").discarded == 0
        assert not caplog.records
        try_and_fail(space)
        assert space.usage("Q").discarded == 1


class TestExpiredMeanwhile:
    """What has expired while a transaction held it is gone as soon as it is given back, and not with the next look."""

    def hold(self, space, clock, count=1):
        """Return a transaction that holds messages which have expired since."""
        space.enqueue_many("Q", "x" * count, EnqueueControl(lifetime=5 * MICROS))
        transaction = space.transaction()
        transaction.join_context()
        assert len(space.dequeue_many("Q", count)) == count
        clock.advance(10)
        return transaction

    @pytest.mark.synchronous
    def test_it_makes_room_for_the_answer_to_its_failure(self, store, clock):
        space = store.space(messages=1)
        make_queue(space, "Q", retries=3)
        make_queue(space, "REPLIES")
        transaction = self.hold(space, clock)
        (held,) = space.messages("Q")
        transaction.answer_failure(held.msgid, "failed", [("REPLIES", b"sorry", EnqueueControl())])
        transaction.leave_context()
        assert drain(space, "REPLIES") == ["sorry"]
        assert bodies_held(space) == (0, 0, 0)

    @pytest.mark.synchronous
    def test_whoever_looks_at_the_error_queue_finds_it(self, store, clock):
        space = store.space(error_queue="ERRORS")
        make_queue(space, "ERRORS")
        make_queue(space, "Q", retries=3, keep_expired=True)
        transaction = self.hold(space, clock)
        transaction.rollback()
        transaction.leave_context()
        assert space.dequeue("ERRORS").origin.reason is Reason.EXPIRED

    @pytest.mark.synchronous
    def test_it_arms_the_capacity_command_again(self, store, clock):
        space = store.space()
        store.device.set_commands(enabled=False)
        high = parse_high("2m")
        queue = make_queue(space, "Q", retries=3, threshold=Threshold(high, parse_low("0m", high), "true"))
        transaction = self.hold(space, clock, 2)
        transaction.rollback()
        transaction.leave_context()
        volume = attachment_of(space).volume
        assert not volume.read(lambda unit: unit.capacity_commands.is_tripped(queue.id, memory=False))
