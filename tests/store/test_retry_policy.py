"""How long a message is kept back: at first by the default delay, and after each try by the policy of its queue."""

import contextlib
from datetime import timedelta

import pytest

from qmcore.backoff import Growth
from qmcore.errors import AbortedError, InvalidArgumentError
from qmcore.queue import QueueDefinition, RetryPolicy
from tests.fix_store import bodies_held, drain, make_queue

MANY = 1000


def delays(space, clock, tries):
    """Return for how many seconds the first message of the queue is kept back after each of so many tries."""
    found = []
    for _ in range(tries):
        with space.transaction() as transaction:
            assert space.dequeue("R") is not None
            transaction.rollback()
        before = clock.moment(0)
        (info,) = space.messages("R")
        waits = (info.available_at - before).total_seconds() if info.available_at else 0.0
        found.append(waits)
        clock.advance(waits)
    return found


class TestGrowth:
    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            ({"retry_delay": 2}, [2, 2, 2, 2, 2, 2]),
            ({"retry_delay": 2, "retry_growth": Growth.LINEAR, "retry_maximum": 10}, [2, 4, 6, 8, 10, 10]),
            ({"retry_delay": 2, "retry_growth": Growth.EXPONENTIAL, "retry_maximum": 10}, [2, 4, 8, 10, 10, 10]),
            ({"retry_delay": 2, "retry_growth": Growth.EXPONENTIAL, "retry_factor": 1.5}, [2, 3, 4.5, 6.75]),
            ({"retry_delay": 1, "retry_growth": Growth.LINEAR}, [1, 2, 3, 4]),
            ({"retry_delay": 20, "retry_maximum": 10}, [10, 10]),
            ({"retry_growth": Growth.EXPONENTIAL, "retry_maximum": 10, "retry_jitter": 1}, [0, 0, 0]),
        ],
    )
    def test_the_delay_grows_as_the_queue_says(self, space, clock, policy, expected):
        make_queue(space, "R", retries=MANY, **policy)
        space.enqueue("R", "x")
        assert delays(space, clock, len(expected)) == expected

    def test_it_never_grows_out_of_bounds(self, space, clock):
        make_queue(space, "R", retries=MANY, retry_delay=2**31 - 1, retry_growth=Growth.EXPONENTIAL, retry_factor=100)
        space.enqueue("R", "x")
        assert delays(space, clock, 1) == [2**31 - 1]

    def test_a_changed_policy_holds_from_the_next_try_on(self, space, clock):
        made = make_queue(space, "R", retries=MANY, retry_delay=2, retry_growth=Growth.LINEAR)
        space.enqueue("R", "x")
        assert delays(space, clock, 2) == [2, 4]
        assert made.definition.retry_growth is Growth.LINEAR
        space.change_queue(QueueDefinition(name="R", retries=MANY, retry_delay=5, retry_growth=Growth.LINEAR))
        assert delays(space, clock, 1) == [15]

    def test_what_a_consumer_asks_for_goes_before_the_policy(self, space, clock):
        make_queue(space, "R", retries=MANY, retry_delay=2, retry_growth=Growth.LINEAR)
        space.enqueue("R", "x")
        with space.transaction() as transaction:
            space.dequeue("R")
            transaction.rollback(retry_after=77)
        (info,) = space.messages("R")
        assert info.available_at == clock.moment(77)


class TestPolicyOfAConsumer:
    def test_it_holds_in_place_of_the_retries_and_the_delay_of_the_queue_each_by_itself(self, space, clock):
        make_queue(space, "R", retries=0, retry_delay=7)
        space.enqueue("R", "x")
        policies = [RetryPolicy(retries=9), RetryPolicy(retries=9, retry_delay=3, retry_growth=Growth.LINEAR)]
        waits = []
        for policy in policies:
            with space.transaction() as transaction:
                space.dequeue("R")
                transaction.rollback(retry_policy=policy)
            waits.append(next(space.messages("R")).available_at - clock.moment(0))
            clock.advance(waits[-1].total_seconds())
        assert [each.total_seconds() for each in waits] == [7, 6]

    @pytest.mark.parametrize(
        "end",
        [
            lambda transaction, msgid, policy: transaction.rollback(retry_policy=policy),
            lambda transaction, msgid, policy: transaction.give_back([msgid], retry_policy=policy),
            lambda transaction, msgid, policy: transaction.answer_failure(msgid, "no", retry_policy=policy),
            lambda transaction, msgid, policy: transaction.give_up("late", only=msgid, retry_policy=policy),
        ],
        ids=["rollback", "give_back", "answer_failure", "give_up"],
    )
    @pytest.mark.synchronous
    def test_a_message_without_tries_by_it_goes_to_the_error_queue(self, space, end):
        make_queue(space, "E")
        make_queue(space, "R", retries=MANY, error_queue="E")
        msgid = space.enqueue("R", "x")
        transaction = space.transaction()
        with contextlib.suppress(AbortedError), transaction:
            space.dequeue("R")
            end(transaction, msgid, RetryPolicy(retries=0))
        assert drain(space, "E") == ["x"]

    def test_it_says_nothing_of_the_other_messages_of_the_transaction(self, space):
        for name in ("R", "S"):
            make_queue(space, name, retries=1)
        msgid = space.enqueue("R", "x")
        space.enqueue("S", "y")
        with space.transaction() as transaction:
            space.dequeue("R")
            space.dequeue("S")
            transaction.rollback(only=msgid, retry_policy=RetryPolicy(retries=0))
        assert [space.usage(name).messages for name in ("R", "S")] == [0, 1]

    @pytest.mark.parametrize(
        ("policy", "sentence"),
        [
            ({"retries": -1}, "number of retries of a retry policy"),
            (
                {"retry_growth": "fast"},
                "retry growth of a retry policy must be none, linear or exponential, got 'fast'",
            ),
            ({"retry_jitter": 2}, "retry jitter of a retry policy"),
        ],
    )
    def test_values_that_a_queue_could_not_have_are_refused(self, policy, sentence):
        with pytest.raises(InvalidArgumentError, match=sentence):
            RetryPolicy(**policy)


class TestJitter:
    def test_it_shortens_a_delay_by_its_fraction_at_most(self, space, clock):
        make_queue(space, "R", retries=MANY, retry_delay=100, retry_jitter=0.25)
        space.enqueue("R", "x")
        found = delays(space, clock, 30)
        assert all(75 <= each <= 100 for each in found)
        assert len(set(found)) > 10

    def test_messages_that_failed_together_do_not_come_back_together(self, space, clock):
        make_queue(space, "R", retries=MANY, retry_delay=100, retry_jitter=0.5)
        space.enqueue_many("R", ["x"] * 20)
        with space.transaction() as transaction:
            drain(space, "R")
            transaction.rollback()
        assert len({info.available_at for info in space.messages("R")}) > 10

    def test_the_rest_of_a_group_waits_as_long_as_what_was_tried_of_it(self, space, clock):
        make_queue(space, "R", retries=MANY, retry_delay=100, retry_jitter=1, grouping=True)
        space.enqueue_many("R", ["a", "b", "c"])
        with space.transaction() as transaction:
            assert space.dequeue("R").text == "a"
            transaction.rollback()
        assert len({info.available_at for info in space.messages("R")}) == 1


class TestDefaultDelay:
    @pytest.fixture
    def space(self, space):
        make_queue(space, "R", default_delay=30)
        return space

    def test_a_message_whose_sender_asks_for_no_time_waits_for_it(self, space, clock):
        space.enqueue("R", "x")
        space.enqueue("R", "y", priority=70)
        space.enqueue_many("R", ["z"])
        assert bodies_held(space, "R") == (0, 3, 0)
        clock.advance(29.999_999)
        assert space.dequeue("R") is None
        clock.advance(0.000_001)
        assert drain(space, "R") == ["x", "y", "z"]

    def test_it_counts_from_the_commit(self, space, clock):
        with space.transaction():
            space.enqueue("R", "x")
            clock.advance(10)
        (info,) = space.messages("R")
        assert info.available_at == clock.moment(30)

    @pytest.mark.parametrize("asked", [0, timedelta(0)])
    def test_a_sender_may_ask_for_none(self, space, asked):
        space.enqueue("R", "x", delay=asked)
        assert space.dequeue("R").text == "x"

    def test_a_time_of_the_sender_goes_before_it(self, space, clock):
        space.enqueue("R", "x", delay=5)
        space.enqueue("R", "y", available_at=clock.moment(7))
        assert [info.available_at for info in space.messages("R")] == [clock.moment(5), clock.moment(7)]

    def test_a_message_that_is_moved_does_not_wait_again(self, space):
        space.enqueue("Q", "x")
        space.move("Q", "R")
        assert space.dequeue("R").text == "x"

    def test_it_waits_no_longer_than_until_it_expires(self, space, clock):
        space.enqueue("R", "x", expires_in=10)
        clock.advance(30)
        assert space.dequeue("R") is None
        assert space.usage("R").expired == 1


@pytest.mark.parametrize(
    ("attribute", "value", "range_"),
    [
        ("retry_factor", 0.5, "1 to 100"),
        ("retry_factor", "2", "1 to 100"),
        ("retry_factor", True, "1 to 100"),
        ("retry_factor", float("nan"), "1 to 100"),
        ("retry_jitter", 1.01, "0 to 1"),
        ("retry_jitter", -0.1, "0 to 1"),
        ("retry_maximum", -1, "0 to 2147483647"),
        ("default_delay", 2**31, "0 to 2147483647"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(attribute, value, range_):
    with pytest.raises(InvalidArgumentError, match=range_):
        QueueDefinition(name="R", **{attribute: value})
