"""Rules and topics of consumers that a file, or a schema, no longer has as they were written: it is said whose."""

import pytest

from qmcore.errors import SystemFailureError
from tests.fix_store import count_rows, drain, make_queue

CHANGED = "UPDATE counter SET generation = generation + 1"


@pytest.fixture
def space(shared_store):
    opened = shared_store.space(error_queue="ERRORS")
    make_queue(opened, "Q", multiple_consumers=True)
    opened.subscribe("Q", "one", rule="urcode = 0", topics=["a"])
    return opened


def test_a_rule_that_cannot_be_read_refuses_what_it_would_be_asked_of_until_it_is_changed(shared_store, space):
    shared_store.by_hand("UPDATE queue SET rule = 'urcode ?' WHERE name = 'Q:one'", CHANGED)
    with pytest.raises(
        SystemFailureError, match="the rule of subscription 'Q:one' cannot be read: column 8"
    ) as refused:
        space.enqueue("Q", "x", topic="a")
    assert "qsubchange" in refused.value.hint
    assert count_rows(space, "message") == (0,)
    space.change_subscription("Q", "one", rule="urcode = 0")
    space.enqueue("Q", "x", topic="a")
    assert drain(space, "Q:one") == ["x"]


@pytest.mark.parametrize("text", ["[", "5"])
def test_topics_that_cannot_be_read_are_told(shared_store, space, text):
    shared_store.by_hand(f"UPDATE queue SET topics = '{text}' WHERE name = 'Q:one'", CHANGED)
    with pytest.raises(SystemFailureError, match="topics of subscription 'Q:one' are damaged") as refused:
        space.enqueue("Q", "x", topic="a")
    assert "backup" in refused.value.hint
