"""A commit that enqueues the answers and lets a successor dequeue the next message: all in one step, or nothing."""

import pytest

from qmcore.errors import AbortedError, NoSpaceError
from qmcore.message import PLAIN_CONTROL, State
from tests.fix_store import bodies_held, drain, make_queue


@pytest.fixture
def space(space):
    make_queue(space, "OUT")
    space.enqueue_many("Q", ["first", "second", "third"])
    return space


def answer(body, queue="OUT"):
    return (queue, body, PLAIN_CONTROL)


def all_of(space, queue):
    return space.dequeue_many(queue, 10, transactional=False)


def test_the_request_is_gone_the_answer_is_there_and_the_next_message_is_held(space):
    with space.transaction() as transaction:
        space.dequeue("Q")
        successor = transaction.successor(None)
        (following,) = transaction.commit_and_take([answer(b"done")], successor, "Q")
        assert not transaction.active
        assert [message.body for message in all_of(space, "OUT")] == [b"done"]
        assert [info.state for info in space.messages("Q")] == [State.READY, State.HELD]
    assert following.text == "second"
    with successor:
        pass
    assert drain(space) == ["third"]


def test_a_rollback_of_the_successor_leaves_the_commit_alone(space):
    with space.transaction() as transaction:
        space.dequeue("Q")
        successor = transaction.successor(None)
        transaction.commit_and_take([answer(b"done")], successor, "Q")
    with successor:
        successor.rollback("in vain")
    assert [(message.text, message.retries) for message in all_of(space, "Q")] == [("second", 1), ("third", 0)]
    assert drain(space, "OUT") == ["done"]


def test_one_step_follows_the_other_as_long_as_there_are_messages(space):
    seen, turn = [], (space.transaction(), [])
    while turn:
        with turn[0] as transaction:
            (request,) = turn[1] or [space.dequeue("Q")]
            seen.append(request.text)
            successor = transaction.successor(None)
            found = transaction.commit_and_take([answer(request.body)], successor, "Q")
            turn = (successor, found) if found else None
    assert seen == drain(space, "OUT") == ["first", "second", "third"]
    assert not successor.active
    assert bodies_held(space) == (0, 0, 0)


def test_what_was_enqueued_in_the_transaction_before_comes_with_the_answers(space):
    with space.transaction() as transaction:
        space.dequeue("Q")
        space.enqueue("OUT", "more")
        assert transaction.commit_and_take([answer(b"done")], None, "Q") == []
    assert drain(space, "OUT") == ["more", "done"]
    assert drain(space) == ["second", "third"]


@pytest.mark.parametrize("answers", [[answer(b"lost", "NONE")], [answer(b"done"), answer(b"x" * 50_000_000)]])
def test_a_refusal_does_nothing_and_the_transaction_goes_on(space, answers):
    with space.transaction() as transaction:
        space.dequeue("Q")
        successor = transaction.successor(None)
        assert transaction.commit_and_take(answers, successor, "Q") is None
        assert not successor.active
        assert transaction.active
        assert [info.state for info in space.messages("Q")] == [State.READY, State.READY, State.HELD]
        space.enqueue("OUT", "told otherwise")
    assert drain(space) == ["second", "third"]
    assert drain(space, "OUT") == ["told otherwise"]


def test_an_answer_to_a_stopped_queue_is_refused_and_the_request_is_not_lost(space):
    space.stop_queue("OUT")
    with space.transaction() as transaction:
        space.dequeue("Q")
        assert transaction.commit_and_take([answer(b"done")], None, "Q") is None
        transaction.rollback(counts=False)
    assert drain(space) == ["first", "second", "third"]


def test_a_queue_that_is_stopped_gives_no_successor_and_the_commit_is_left_to_be_made(space):
    make_queue(space, "NEXT")
    space.enqueue("NEXT", "x")
    space.stop_queue("NEXT")
    with space.transaction() as transaction:
        space.dequeue("Q")
        assert transaction.commit_and_take([answer(b"done")], transaction.successor(None), "NEXT") is None
        assert drain(space, "OUT", transactional=False) == []
        transaction.commit()
    assert drain(space) == ["second", "third"]


def test_of_messages_that_stay_together_the_successor_takes_one_of_the_next_group_as_a_dequeue_does(store):
    space = store.space()
    make_queue(space, "Q", grouping=True)
    for group in (["first", "second"], ["third", "fourth"], ["fifth"]):
        space.enqueue_many("Q", group)
    with space.transaction() as transaction:
        assert len(space.dequeue_many("Q", 2)) == 2
        successor = transaction.successor(None)
        assert [message.text for message in transaction.commit_and_take([], successor, "Q")] == ["third"]
    # Nobody else gets the rest of its group.
    assert space.dequeue("Q", transactional=False).text == "fifth"
    with successor:
        assert space.dequeue("Q").text == "fourth"
    assert drain(space) == []


def test_what_is_due_is_left_to_a_dequeue_that_looks_for_it(space, clock):
    drain(space)
    space.enqueue("Q", "now")
    space.enqueue("Q", "later", delay=0.5)
    with space.transaction() as transaction:
        assert space.dequeue("Q").text == "now"
        # Sooner than somebody looks after all queues.
        clock.advance(0.6)
        assert transaction.commit_and_take([], transaction.successor(None), "Q") == []
    assert drain(space) == ["later"]


def test_a_transaction_that_was_given_up_by_others_is_refused_and_its_commit_says_so(file_store, clock):
    space = file_store.space()
    make_queue(space, "Q", retries=1)
    space.enqueue_many("Q", ["first", "second"])
    with pytest.raises(AbortedError), space.transaction(10) as transaction:
        space.dequeue("Q")
        later = type(clock)(clock.now())
        later.advance(11)
        other = file_store.another(later).open_space("SPACE")
        other.usage("Q")
        assert transaction.commit_and_take([], transaction.successor(None), "Q") is None
        transaction.commit()
    assert drain(space) == ["first", "second"]


def test_a_message_for_memory_is_enqueued_step_by_step(store):
    space = store.space(memory=1_000_000)
    make_queue(space, "Q")
    space.enqueue("Q", "first")
    with space.transaction() as transaction:
        space.dequeue("Q")
        assert transaction.commit_and_take([("Q", b"x", PLAIN_CONTROL)], None, "Q") is None
        transaction.rollback(counts=False)
    assert drain(space) == ["first"]


def test_where_there_is_no_room_for_the_answer_nothing_is_done(store):
    space = store.space(messages=2)
    make_queue(space, "Q")
    space.enqueue_many("Q", ["first", "second"])
    with space.transaction() as transaction:
        space.dequeue("Q")
        assert transaction.commit_and_take([answer(b"a", "Q"), answer(b"b", "Q")], None, "Q") is None
        with pytest.raises(NoSpaceError):
            space.enqueue_many("Q", [b"a", b"b"])
        transaction.rollback(counts=False)
    assert drain(space) == ["first", "second"]


def test_the_numbers_that_one_has_left_over_are_those_of_the_next(space):
    ids = []
    turn = (space.transaction(), [])
    for _ in range(2):
        with turn[0] as transaction:
            assert turn[1] or space.dequeue("Q")
            ids.append(space.enqueue("OUT", "x"))
            successor = transaction.successor(None)
            turn = successor, transaction.commit_and_take([answer(b"y")], successor, "Q")
    turn[0].rollback(counts=False)
    every = [message.msgid for message in all_of(space, "OUT")]
    assert len(set(every)) == 4
    assert ids == every[::2]
