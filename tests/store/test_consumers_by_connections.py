"""Consumers with rules, and messages that come by an application's own connection: who wants them gets them."""

import pytest

from qmcore.errors import NoRecipientsError
from tests.fix_store import count_rows, drain, make_queue

EU, US = {"region": "eu"}, {"region": "us"}

pytestmark = pytest.mark.parametrize(
    "joined_store",
    [("file", "sqlite3"), ("file", "SQLAlchemy"), ("postgres", "psycopg"), ("postgres", "SQLAlchemy")],
    indirect=True,
    ids="-".join,
)


@pytest.fixture
def space(joined_store, application):
    opened = joined_store.space(error_queue="ERRORS")
    make_queue(opened, "Q", multiple_consumers=True)
    make_queue(opened, "ERRORS")
    opened.subscribe("Q", "eu", rule="header.region = 'eu' OR body.region = 'eu'")
    opened.subscribe("Q", "topics", topics=["order.#"])
    return application.space_of(opened, joined_store.device)


def test_each_gets_what_it_wants_when_the_application_commits(space, application):
    with application.transaction() as connection:
        space.enqueue("Q", "a", headers=EU, connection=connection)
        space.enqueue_many("Q", [{"region": "eu"}, {"region": "eu", "n": 1}], connection=connection)
        space.enqueue("Q", "b", headers=US, topic="order.new", connection=connection)
        assert space.peek("Q:eu") is None
    assert [text[:1] for text in drain(space, "Q:eu")] == ["a", "{", "{"]
    assert drain(space, "Q:topics") == ["b"]


def test_what_nobody_wants_is_refused_and_the_rest_can_be_committed(space, application):
    with application.transaction() as connection:
        with pytest.raises(NoRecipientsError):
            space.enqueue("Q", "x", headers=US, connection=connection)
        space.enqueue("Q", "y", headers=EU, connection=connection)
    assert drain(space, "Q:eu") == ["y"]
    assert count_rows(space, "message", "share") == (0, 0)


def test_the_terms_at_the_call_decide(space, application):
    with application.transaction() as connection:
        space.enqueue("Q", "x", headers=EU, connection=connection)
    space.change_subscription("Q", "eu", rule="header.region = 'us'")
    with application.transaction() as connection, pytest.raises(NoRecipientsError):
        space.enqueue("Q", "y", headers=EU, connection=connection)
    with application.transaction() as connection:
        space.enqueue("Q", "z", headers=US, connection=connection)
    assert drain(space, "Q:eu") == ["x", "z"]
