"""Journeys to PostgreSQL: a queue space that is known, and how often something is waited for from the server."""

import threading

import pytest

from tests.fix_store import make_queue


@pytest.fixture
def known_space(arena):
    """A queue space with queues Q, R and ERRORS, of which this process knows all that it needs."""
    opened = arena.space(error_queue="ERRORS", messages=100)
    for name in ("Q", "R", "ERRORS"):
        make_queue(opened, name, retries=3)
    # So that the definitions are known, that the session has its rows among the counters, and that no transaction is
    # the first one ever.
    for name in ("Q", "R", "Q"):
        opened.enqueue(name, b"x")
        opened.dequeue(name)
    opened.enqueue("R", b"x")
    with opened.transaction():
        opened.dequeue("R")
    return opened


@pytest.fixture
def journeys(monkeypatch):
    """How often something was waited for from the server: for each time, the thread that did."""
    # Loaded here: who has no server need not have the driver.
    from qmstorage.postgres.connection_timeouts import WatchedConnection

    made = []
    wait = WatchedConnection.wait

    def counting(self, gen, *arguments, **options):
        made.append(threading.get_ident())
        return wait(self, gen, *arguments, **options)

    monkeypatch.setattr(WatchedConnection, "wait", counting)
    return made
