"""How full a queue space was when a transaction took its message is relied on for a moment."""

import pytest

from qmcore.acts import enqueue_in_transaction
from qmcore.acts.sending import send
from qmcore.errors import BadQueueError, NoSpaceError
from tests.fix_store import Work, drain, eventually, make_queue, queue_definition, waiting_for


@pytest.fixture
def space(store):
    opened = store.space(messages=5000, pages=10_000)
    for name in ("Q", "R"):
        make_queue(opened, name, retries=3)
        # So that the definitions are known, and no transaction is the first one ever.
        opened.enqueue(name, b"x")
        with opened.transaction():
            opened.dequeue(name)
    opened.enqueue("Q", "request")
    return opened


@pytest.fixture
def looks(monkeypatch):
    """How often it was looked how much a queue space holds."""
    made = []

    def noting(*values, **more):
        results = send(*values, **more)
        made.extend(results)
        return results

    monkeypatch.setattr(enqueue_in_transaction, "send", noting)
    return made


def test_a_reply_needs_no_look_at_its_queue_space(space, looks):
    with space.transaction():
        space.enqueue("R", space.dequeue("Q").text)
        space.enqueue("R", "and more")
    assert not looks
    assert drain(space, "R") == ["request", "and more"]


@pytest.mark.parametrize("seconds", [0.2, -3600])
def test_what_is_old_is_looked_at_again_also_where_the_clock_was_set_back(space, looks, clock, seconds):
    with space.transaction():
        space.dequeue("Q")
        clock.advance(seconds)
        space.enqueue("R", "x")
    assert len(looks) == 1


def test_a_reply_needs_no_look_either_where_the_request_was_waited_for(store, space, looks):
    space.dequeue("Q")

    def answer():
        with space.transaction():
            space.enqueue("R", space.dequeue("Q", wait=30).text)

    answering = Work(answer)
    # Who waits for a device in memory is not seen from outside; whether he did by then makes no difference.
    eventually(lambda: store.kind == "memory" or waiting_for(store.path), "somebody waits")
    space.enqueue("Q", "late")
    answering.results()
    assert not looks
    assert drain(space, "R") == ["late"]


def test_where_there_is_little_room_it_is_looked_at_again(store, space, looks):
    space.enqueue_many("R", [b""] * 3998)
    with space.transaction():
        space.dequeue("Q")
        # It gives room back.
        space.enqueue("R", "x")
        assert not looks
        space.enqueue("R", "y")
        space.enqueue("R", "z")
    assert len(looks) == 1


def test_what_this_process_has_changed_holds_at_once(space):
    with space.transaction():
        space.dequeue("Q")
        space.destroy_queue("R")
        with pytest.raises(BadQueueError):
            space.enqueue("R", "x")


def test_what_was_changed_through_another_handle_holds_at_once(store, space):
    other = store.another().open_space("SPACE")
    with space.transaction():
        space.dequeue("Q")
        other.destroy_queue("R", force=True)
        with pytest.raises(BadQueueError):
            space.enqueue("R", "x")


def test_room_that_others_take_in_that_moment_is_refused_at_the_commit(store, space):
    other = store.another().open_space("SPACE")
    with pytest.raises(NoSpaceError), space.transaction() as transaction:
        space.dequeue("Q")
        other.enqueue_many("R", [b""] * 4999)
        space.enqueue("R", "x")
        space.enqueue("R", "y")
        assert transaction.active
    assert drain(space) == ["request"]


def test_a_queue_that_was_made_meanwhile_takes_messages_at_once(space):
    with space.transaction():
        text = space.dequeue("Q").text
        space.create_queue(queue_definition("NEW"))
        space.enqueue("NEW", text)
    assert drain(space, "NEW") == ["request"]
