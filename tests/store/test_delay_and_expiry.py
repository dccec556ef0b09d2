"""Messages that are not there yet, and messages that are there no longer."""

import math

import pytest

from qmcore.errors import NoSpaceError
from qmcore.message import State
from tests.fix_store import bodies_held, drain, make_queue


class TestDelay:
    def test_nobody_gets_a_message_before_its_delay_is_over(self, space, clock):
        space.enqueue("Q", b"x", delay=10)
        assert space.dequeue("Q") is None
        clock.advance(9.999_999)
        assert space.dequeue("Q") is None
        clock.advance(0.000_001)
        assert space.dequeue("Q").body == b"x"

    def test_a_time_of_availability_is_kept_to(self, space, clock):
        space.enqueue("Q", b"x", available_at=clock.moment(10))
        assert space.dequeue("Q") is None
        clock.advance(10)
        message = space.dequeue("Q")
        assert message.available_at == clock.moment()

    def test_a_time_of_availability_that_has_passed_is_now(self, space, clock):
        space.enqueue("Q", b"x", available_at=clock.moment(-10))
        assert bodies_held(space) == (1, 0, 0)
        assert space.dequeue("Q")

    def test_a_message_that_was_kept_back_takes_the_place_of_its_arrival(self, space, clock):
        space.enqueue("Q", "first", delay=10)
        space.enqueue("Q", "second")
        clock.advance(10)
        space.enqueue("Q", "third")
        assert drain(space) == ["first", "second", "third"]

    def test_inside_a_transaction_a_delay_counts_from_the_commit(self, space, clock):
        with space.transaction():
            space.enqueue("Q", b"x", delay=10)
            clock.advance(100)
        clock.advance(9)
        assert space.dequeue("Q") is None
        clock.advance(1)
        assert space.dequeue("Q")

    def test_it_is_counted_and_listed_as_delayed_until_then(self, space, clock):
        space.enqueue("Q", b"late", delay=20)
        space.enqueue("Q", b"soon", delay=10)
        assert bodies_held(space) == (0, 2, 0)
        assert [(info.state, info.size) for info in space.messages("Q")] == [(State.DELAYED, 4)] * 2
        assert [info.available_at for info in space.messages("Q")] == [clock.moment(10), clock.moment(20)]

    def test_it_is_counted_as_ready_from_then_on(self, space, clock):
        space.enqueue("Q", b"x", delay=10)
        clock.advance(10)
        assert bodies_held(space) == (1, 0, 0)
        assert [info.state for info in space.messages("Q")] == [State.READY]

    def test_thousands_that_are_due_at_once_are_all_released_and_once_each(self, store, clock):
        space = store.space(messages=5_000, pages=6_000)
        make_queue(space)
        with space.transaction():
            for at in range(2_500):
                space.enqueue("Q", str(at), delay=5)
        assert space.dequeue("Q") is None
        clock.advance(5)
        assert drain(space) == [str(at) for at in range(2_500)]
        assert bodies_held(space) == (0, 0, 0)

    def test_a_clock_that_goes_back_makes_nothing_ready_unready(self, space, clock):
        space.enqueue("Q", b"1", delay=10)
        space.enqueue("Q", b"2", delay=10)
        clock.advance(10)
        assert space.dequeue("Q").text == "1"
        clock.set_back(1_000)
        assert space.dequeue("Q").text == "2"
        space.enqueue("Q", b"3")
        assert space.dequeue("Q").text == "3"


class TestExpiry:
    def test_a_message_is_gone_when_its_life_is_over(self, space, clock):
        space.enqueue("Q", b"x", expires_in=10)
        clock.advance(9.999_999)
        with space.transaction() as transaction:
            assert space.dequeue("Q")
            transaction.rollback()
        clock.advance(0.000_001)
        assert space.dequeue("Q") is None
        usage = space.usage("Q")
        assert (usage.messages, usage.expired, usage.pages, usage.size) == (0, 1, 0, 0)

    def test_an_absolute_time_is_kept_to(self, space, clock):
        space.enqueue("Q", b"x", expires_at=clock.moment(10))
        space.enqueue("Q", b"y", expires_at=clock.moment(11))
        clock.advance(10)
        assert drain(space) == ["y"]

    def test_a_time_in_the_past_is_over_at_once(self, space, clock):
        space.enqueue("Q", b"x", expires_at=clock.moment(-10))
        space.enqueue("Q", b"y", expires_in=0)
        assert space.dequeue("Q") is None
        usage = space.usage("Q")
        assert (usage.enqueued, usage.expired, usage.messages) == (2, 2, 0)

    def test_the_queue_says_how_long_messages_live_that_say_nothing_themselves(self, space, clock):
        make_queue(space, "SHORT", expiration=10)
        space.enqueue("SHORT", "default")
        space.enqueue("SHORT", "longer", expires_in=20)
        space.enqueue("SHORT", "at", expires_at=clock.moment(15))
        space.enqueue("SHORT", "never", expires_in=math.inf)
        assert [info.expires_at for info in space.messages("SHORT")] == [
            clock.moment(10),
            clock.moment(20),
            clock.moment(15),
            None,
        ]
        clock.advance(10)
        assert [info.size for info in space.messages("SHORT")][-3:] == [6, 2, 5]
        clock.advance(10_000_000)
        assert drain(space, "SHORT") == ["never"]

    def test_inside_a_transaction_a_life_counts_from_the_commit(self, space, clock):
        make_queue(space, "SHORT", expiration=10)
        with space.transaction():
            space.enqueue("SHORT", "x")
            space.enqueue("Q", "y", expires_in=10)
            clock.advance(100)
        clock.advance(9)
        assert (drain(space, "SHORT"), drain(space)) == (["x"], ["y"])

    def test_a_message_that_expires_before_it_is_available_is_never_seen(self, space, clock):
        space.enqueue("Q", b"x", delay=20, expires_in=10)
        clock.advance(30)
        assert space.dequeue("Q") is None
        assert space.usage("Q").expired == 1

    def test_a_message_that_is_held_does_not_expire_under_its_transaction(self, space, clock):
        space.enqueue("Q", b"x", expires_in=10)
        with space.transaction():
            assert space.dequeue("Q")
            clock.advance(20)
            assert space.dequeue("Q", transactional=False) is None
            assert space.usage("Q").expired == 0
        assert (space.usage("Q").dequeued, space.usage("Q").expired) == (1, 0)

    def test_a_message_whose_time_was_over_while_it_was_held_expires_at_the_rollback(self, space, clock):
        make_queue(space, "NEVER", retries=0)
        for name in ("Q", "NEVER"):
            space.enqueue(name, b"x", expires_in=10)
            with space.transaction() as transaction:
                space.dequeue(name)
                clock.advance(20)
                transaction.rollback()
            usage = space.usage(name)
            assert (usage.messages, usage.expired, usage.moved, usage.discarded) == (0, 1, 0, 0)

    def test_a_message_that_was_given_back_in_time_still_expires(self, space, clock):
        space.enqueue("Q", b"x", expires_in=10)
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.rollback()
        assert bodies_held(space) == (1, 0, 0)
        clock.advance(10)
        assert space.dequeue("Q") is None
        assert space.usage("Q").expired == 1

    def test_what_was_dequeued_in_time_does_not_expire_later(self, space, clock):
        space.enqueue("Q", b"x", expires_in=10)
        assert space.dequeue("Q")
        clock.advance(20)
        assert space.dequeue("Q") is None
        assert space.usage("Q").expired == 0

    def test_neither_id_nor_correlation_finds_what_has_expired(self, space, clock):
        msgid = space.enqueue("Q", b"x", corrid="c", expires_in=10)
        clock.advance(10)
        assert space.dequeue("Q", msgid=msgid) is None
        assert space.dequeue("Q", corrid="c") is None

    def test_thousands_that_expire_at_once_are_each_counted_once(self, store, clock):
        space = store.space(messages=5_000, pages=6_000)
        make_queue(space)
        with space.transaction():
            for at in range(2_500):
                space.enqueue("Q", str(at), expires_in=5)
            space.enqueue("Q", "left")
        clock.advance(5)
        assert drain(space) == ["left"]
        usage = space.usage("Q")
        assert (usage.expired, usage.messages, usage.pages) == (2_500, 0, 0)

    def test_expired_messages_make_room_for_new_ones(self, store, clock):
        space = store.space(messages=3)
        make_queue(space)
        make_queue(space, "OTHER")
        for _ in range(3):
            space.enqueue("OTHER", b"old", expires_in=10)
        with pytest.raises(NoSpaceError):
            space.enqueue("Q", b"new")
        clock.advance(10)
        space.enqueue("Q", b"new")
        assert (space.usage("OTHER").expired, drain(space)) == (3, ["new"])

    def test_expired_messages_make_room_for_those_of_a_transaction(self, store, clock):
        space = store.space(messages=3)
        make_queue(space)
        for _ in range(3):
            space.enqueue("Q", b"old", expires_in=10)
        clock.advance(10)
        with space.transaction():
            space.enqueue("Q", b"new")
            space.enqueue("Q", b"newer")
        assert drain(space) == ["new", "newer"]

    def test_as_many_expired_messages_go_as_a_new_one_needs(self, store, clock):
        space = store.space(messages=5_000, pages=3_021)
        make_queue(space)
        with space.transaction():
            for _ in range(2_900):
                space.enqueue("Q", b"", expires_in=10)
        clock.advance(10)
        space.enqueue("Q", bytes(2_000 * 4096))
        assert space.dequeue("Q").size == 2_000 * 4096
