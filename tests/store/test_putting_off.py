"""What whoever gives a message back says without having tried it: when to take it again, or that it is put aside."""

from datetime import timedelta

import pytest

from qmcore import times
from qmcore.acts.waiting import CHECK_SECONDS
from qmcore.errors import InvalidArgumentError
from qmcore.message import PARKED_UNTIL, State
from qmcore.queue import Delivery
from tests.fix_store import drain, make_queue

REASON = "no price yet"


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRQUE")
    make_queue(opened, "Q", retries=2, retry_delay=30)
    make_queue(opened, "G", retries=2, retry_delay=30, grouping=True)
    make_queue(opened, "ERRQUE")
    return opened


def give_back(space, name="Q", **terms):
    """Dequeue the next message in a transaction and roll it back on these terms."""
    with space.transaction() as transaction:
        message = space.dequeue(name)
        transaction.rollback(REASON, **terms)
    return message


def park(space, name="Q"):
    return give_back(space, name, park=True)


def counted(space, name="Q"):
    """Return how many messages of a queue are ready, delayed, parked and held."""
    usage = space.usage(name)
    assert usage.messages == usage.ready + usage.delayed + usage.parked + usage.held
    return usage.ready, usage.delayed, usage.parked, usage.held


def states(space, name="Q"):
    return [info.state for info in space.messages(name)]


def use_up_tries(space, clock):
    """Let the message of Q fail until it is out of tries."""
    for _ in range(2):
        give_back(space)
        clock.advance(30)


class TestSnooze:
    def test_it_is_no_try_and_the_message_is_available_again_after_the_time(self, space, clock):
        space.enqueue("Q", "x")
        give_back(space, counts=False, retry_after=timedelta(minutes=2))
        assert states(space) == [State.DELAYED]
        clock.advance(119)
        assert space.dequeue("Q") is None
        clock.advance(1)
        assert space.dequeue("Q").retries == 0

    def test_a_message_out_of_tries_is_snoozed_as_well(self, space, clock):
        space.enqueue("Q", "x")
        use_up_tries(space, clock)
        give_back(space, counts=False, retry_after=5)
        assert counted(space, "ERRQUE") == (0, 0, 0, 0)
        clock.advance(5)
        assert space.dequeue("Q").retries == 2

    def test_without_a_time_it_is_back_at_once(self, space):
        space.enqueue("Q", "x")
        give_back(space, counts=False)
        assert space.dequeue("Q").retries == 0

    def test_it_can_be_said_of_one_message_of_a_transaction_that_goes_on(self, space, clock):
        first, _ = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with space.transaction() as transaction:
            space.dequeue_many("Q", 2)
            transaction.give_back([first], counts=False, retry_after=10)
        assert counted(space) == (0, 1, 0, 0)
        clock.advance(10)
        assert drain(space) == ["a"]

    def test_it_expires_meanwhile_as_any_other(self, space, clock):
        space.enqueue("Q", "x", expires_in=20)
        give_back(space, counts=False, retry_after=60)
        clock.advance(20)
        assert states(space) == []
        assert space.usage("Q").expired == 1

    def test_the_rest_of_its_group_waits_with_it(self, space, clock):
        space.enqueue_many("G", ["a", "b"])
        give_back(space, "G", counts=False, retry_after=10)
        assert space.dequeue("G") is None
        clock.advance(10)
        assert drain(space, "G") == ["a", "b"]

    def test_when_it_comes_back_is_told_apart_from_a_delay_that_its_sender_asked_for(self, space, clock):
        space.enqueue("Q", "later", delay=100)
        assert space.given_back_until("Q") is None
        space.enqueue("Q", "x")
        give_back(space, counts=False, retry_after=60)
        assert space.given_back_until("Q") == clock.now() + 60 * times.MICROS
        clock.advance(60)
        assert space.given_back_until("Q") is None

    def test_it_waits_for_its_consumer_whatever_else_an_administrator_changes(self, space, clock):
        space.enqueue("Q", "x")
        give_back(space, counts=False, retry_after=60)
        until = clock.now() + 60 * times.MICROS
        space.change_priority("Q", 9)
        assert space.given_back_until("Q") == until
        space.change_expiry("Q", 1000)
        assert space.given_back_until("Q") == until
        space.change_availability("Q", 30)
        assert space.given_back_until("Q") is None

    def test_one_that_was_tried_waits_for_its_next_try_whoever_says_when(self, space, clock):
        space.enqueue("Q", "x")
        give_back(space, retry_after=60)
        space.change_availability("Q", 30)
        assert space.given_back_until("Q") == clock.now() + 30 * times.MICROS

    def test_a_parked_one_is_not_waited_for(self, space):
        space.enqueue("Q", "x")
        park(space)
        assert space.given_back_until("Q") is None


class TestPark:
    def test_whoever_waits_for_messages_does_not_wait_for_its_time(self, space):
        space.enqueue("Q", "x")
        park(space)
        with space.watch() as watch:
            seen = watch.look(["Q"])
            assert seen.queues == ()
            assert seen.seconds == float("inf") or seen.seconds <= CHECK_SECONDS
            space.unpark("Q")
            assert watch.look(["Q"]).queues == ("Q",)

    def test_the_message_is_listed_and_counted_as_parked_with_the_reason(self, space):
        msgid = space.enqueue("Q", "x")
        space.enqueue("Q", "later", delay=10)
        space.enqueue("Q", "now")
        park(space)
        (info,) = space.messages("Q", states=[State.PARKED])
        assert (info.msgid, info.last_error, info.retries, info.origin) == (msgid, REASON, 0, None)
        assert info.available_at.year == 9999
        assert states(space) == [State.READY, State.DELAYED, State.PARKED]
        assert counted(space) == (1, 1, 1, 0)
        assert space.content(info).last_error == REASON

    def test_it_stays_away_however_long(self, space, clock):
        space.enqueue("Q", "x")
        park(space)
        clock.advance(3600 * 24 * 365 * 100)
        assert space.dequeue("Q") is None
        assert counted(space) == (0, 0, 1, 0)

    def test_a_message_out_of_tries_is_parked_and_not_failed(self, space, clock):
        space.enqueue("Q", "x")
        use_up_tries(space, clock)
        park(space)
        assert counted(space) == (0, 0, 1, 0)
        assert counted(space, "ERRQUE") == (0, 0, 0, 0)
        space.unpark("Q")
        assert space.dequeue("Q").retries == 2

    def test_it_is_available_where_it_stood_when_it_is_unparked(self, space):
        space.enqueue_many("Q", ["a", "b"])
        park(space)
        assert space.unpark("Q") == 1
        assert drain(space) == ["a", "b"]

    def test_unparking_leaves_delayed_messages_alone(self, space):
        space.enqueue("Q", "later", delay=10)
        space.enqueue("Q", "x")
        park(space)
        assert space.unpark("Q") == 1
        assert counted(space) == (1, 1, 0, 0)

    def test_those_that_a_condition_names_are_unparked(self, space):
        for text in "ab":
            space.enqueue("Q", text)
            park(space)
        space.enqueue("Q", "c", headers={"kind": "other"})
        park(space)
        assert space.unpark("Q", condition="header.kind = 'other'") == 1
        assert counted(space) == (1, 0, 2, 0)
        assert space.unpark("Q", condition=f"origin_error = '{REASON}'") == 2

    def test_a_condition_finds_it_by_the_last_time_that_there_is(self, space):
        space.enqueue("Q", "x")
        space.enqueue("Q", "later", delay=10)
        park(space)
        (found,) = space.messages("Q", condition="available_at = '9999-12-31T23:59:59Z'")
        assert found.state is State.PARKED

    def test_another_time_makes_it_delayed_or_ready(self, space, clock):
        space.enqueue("Q", "x")
        park(space)
        space.change_availability("Q", 10)
        assert states(space) == [State.DELAYED]
        clock.advance(10)
        assert space.dequeue("Q").text == "x"

    def test_the_last_time_that_there_is_parks_it_whoever_asks(self, space, clock):
        space.enqueue("Q", "x", available_at=times.to_datetime(PARKED_UNTIL))
        space.enqueue("Q", "y")
        assert counted(space) == (1, 0, 1, 0)
        assert space.unpark("Q") == 1
        assert {info.available_us for info in space.messages("Q")} == {None, clock.now()}

    def test_it_expires_as_any_other(self, space, clock):
        space.enqueue("Q", "x", expires_in=20)
        park(space)
        clock.advance(20)
        assert states(space) == []
        assert space.usage("Q").expired == 1

    def test_one_message_of_a_transaction_is_parked_and_the_others_are_tried(self, space):
        first, _ = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with space.transaction() as transaction:
            space.dequeue_many("Q", 2)
            transaction.rollback(REASON, park=True, only=first)
        assert [(info.state, info.retries) for info in space.messages("Q")] == [(State.DELAYED, 1), (State.PARKED, 0)]

    def test_it_can_be_said_of_one_message_of_a_transaction_that_goes_on(self, space):
        first, _ = space.enqueue("Q", "a"), space.enqueue("Q", "b")
        with space.transaction() as transaction:
            space.dequeue_many("Q", 2)
            transaction.give_back([first], REASON, park=True)
        (info,) = space.messages("Q")
        assert (info.msgid, info.state, info.last_error) == (first, State.PARKED, REASON)

    def test_the_rest_of_its_group_is_parked_with_it_and_comes_back_with_any_of_it(self, space):
        space.enqueue_many("G", ["a", "b", "c"])
        space.enqueue("G", "alone")
        park(space, "G")
        assert counted(space, "G") == (1, 0, 3, 0)
        assert drain(space, "G") == ["alone"]
        last = [info.msgid for info in space.messages("G")][-1]
        assert space.unpark("G", condition=f"msgid = '{last}'") == 3
        assert drain(space, "G") == ["a", "b", "c"]

    def test_it_stays_parked_for_the_same_reason_where_it_is_moved(self, space):
        make_queue(space, "OTHER")
        space.enqueue("Q", "x")
        park(space)
        space.move("Q", "OTHER")
        (info,) = space.messages("OTHER")
        assert (info.state, info.last_error, info.origin.error) == (State.PARKED, REASON, REASON)

    def test_it_is_purged_as_any_other(self, space):
        space.enqueue("Q", "x")
        park(space)
        assert space.purge("Q") == 1
        assert counted(space) == (0, 0, 0, 0)

    def test_nonpersistent_messages_are_parked_too(self, store):
        space = store.space(memory=100 * 4096)
        make_queue(space, "Q", delivery=Delivery.NONPERSIST)
        space.enqueue("Q", "x")
        park(space)
        (info,) = space.messages("Q")
        assert (info.state, info.last_error, counted(space)) == (State.PARKED, REASON, (0, 0, 1, 0))
        assert space.unpark("Q") == 1
        assert space.dequeue("Q").text == "x"

    @pytest.mark.parametrize("also", [{"permanent": True}, {"retry_after": 5}])
    def test_with_what_contradicts_it_is_refused_and_the_transaction_goes_on(self, space, also):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            with pytest.raises(InvalidArgumentError, match="parked, or fails for good"):
                transaction.rollback(park=True, **also)
        assert counted(space) == (0, 0, 0, 0)
