"""What becomes of messages of a consumer that has unsubscribed: none of them comes to an error queue."""

import pytest

from qmcore.findings import Severity
from tests.fix_store import Work, count_rows, drain, make_queue


@pytest.fixture
def both(store):
    opened = store.space(error_queue="ERRORS")
    make_queue(opened, "Q", multiple_consumers=True, keep_expired=True, retries=0)
    make_queue(opened, "ERRORS")
    for name in ("one", "two"):
        opened.subscribe("Q", name)
    return opened


def unsubscribed(space, name):
    """Let another thread end a subscription."""
    Work(lambda: space.unsubscribe("Q", name)).results()


def prove_nothing_left(store, space):
    """Prove that the messages are gone, and that what is stored and what is counted agree."""
    assert count_rows(space, "message", "ready", "share") == (0, 0, 0)
    found = store.device.check(space.name)
    assert [finding.sentence for finding in found if finding.severity is Severity.ERROR] == []


def test_what_is_out_of_tries_goes_with_its_consumer(store, both):
    both.enqueue("Q", "x")
    with pytest.raises(RuntimeError), both.transaction():
        both.dequeue("Q:two")
        unsubscribed(both, "two")
        raise RuntimeError
    assert drain(both, "ERRORS") == []
    assert drain(both, "Q:one") == ["x"]
    prove_nothing_left(store, both)


def test_what_nobody_else_has_is_discarded(store, both):
    both.unsubscribe("Q", "one")
    both.enqueue("Q", "x")
    with pytest.raises(RuntimeError), both.transaction():
        both.dequeue("Q:two")
        unsubscribed(both, "two")
        raise RuntimeError
    assert drain(both, "ERRORS") == []
    prove_nothing_left(store, both)


def test_what_expires_while_it_is_held_goes_with_its_consumer(store, both, clock):
    both.enqueue("Q", "x", expires_in=5)
    both.dequeue("Q:one")
    with pytest.raises(RuntimeError), both.transaction():
        assert both.dequeue("Q:two").text == "x"
        unsubscribed(both, "two")
        clock.advance(6)
        raise RuntimeError
    assert drain(both, "ERRORS") == []
    prove_nothing_left(store, both)


@pytest.mark.parametrize("gone", ["one", "two"])
def test_an_expired_message_is_kept_for_those_who_have_not_taken_it(store, both, clock, gone):
    remaining = "two" if gone == "one" else "one"
    both.enqueue("Q", "x", expires_in=5)
    clock.advance(6)
    both.unsubscribe("Q", gone)
    assert drain(both, f"Q:{remaining}") == []
    (kept,) = both.messages("ERRORS")
    assert (kept.origin.queue, kept.origin.reason.value) == (f"Q:{remaining}", "expired")
    assert both.purge("ERRORS") == 1
    prove_nothing_left(store, both)


def test_an_expired_message_is_not_kept_that_all_others_have_taken(store, both, clock):
    both.enqueue("Q", "x", expires_in=5)
    both.dequeue("Q:one")
    clock.advance(6)
    both.unsubscribe("Q", "two")
    assert drain(both, "Q:one") == drain(both, "ERRORS") == []
    clock.advance(2)
    both.dequeue("Q:one")
    prove_nothing_left(store, both)
