"""Whose turn it is when as many calls run as may."""

import threading
from contextlib import ExitStack

import pytest

from qmadmin.consumers.worker_pool import ConcurrencyLimit
from tests.fix_process import eventually


@pytest.fixture
def limit():
    made = ConcurrencyLimit()
    made.serve({"A", "B", "C"}, 3)
    return made


class Worker:
    """Somebody who asks for a place in a thread, and holds it until told to leave."""

    def __init__(self, limit, queue, priority=50):
        self.has = threading.Event()
        self._leave = threading.Event()

        def work():
            with limit.permit(queue, lambda: priority):
                self.has.set()
                self._leave.wait()

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def leave(self):
        self._leave.set()
        self.thread.join()


def waiting(limit, queue, priority=50):
    """Let a worker wait for a place; it is certain to wait when this returns."""
    before = len(limit._waiting)
    worker = Worker(limit, queue, priority)
    eventually(lambda: len(limit._waiting) > before)
    return worker


def test_without_a_limit_all_have_a_place():
    limit = ConcurrencyLimit()
    with ExitStack() as held:
        for _ in range(50):
            held.enter_context(limit.permit("A", lambda: 0))


def test_a_place_is_kept_for_each_queue_that_has_none(limit):
    with limit.permit("A", lambda: 50):
        second = waiting(limit, "A")
        with limit.permit("B", lambda: 50), limit.permit("C", lambda: 50):
            assert not second.has.is_set()
        # B and C have none again, and theirs are kept.
        assert not second.has.is_set()
    assert second.has.wait(60)
    second.leave()


def test_where_there_are_fewer_places_than_queues_any_queue_may_have_several():
    limit = ConcurrencyLimit()
    limit.serve({"A", "B", "C"}, 2)
    with limit.permit("A", lambda: 50), limit.permit("A", lambda: 50):
        other = waiting(limit, "B")
    assert other.has.wait(60)
    other.leave()


def test_the_highest_priority_is_next():
    limit = ConcurrencyLimit()
    limit.serve({"A", "B", "C"}, 1)
    with limit.permit("A", lambda: 50):
        low, high = waiting(limit, "B", 10), waiting(limit, "C", 90)
    assert high.has.wait(60)
    assert not low.has.is_set()
    high.leave()
    assert low.has.wait(60)
    low.leave()


def test_what_is_less_urgent_comes_to_its_turn_in_the_end():
    limit = ConcurrencyLimit()
    limit.serve({"A", "B"}, 1)
    held = Worker(limit, "A")
    assert held.has.wait(60)
    low = waiting(limit, "B", 1)
    urgent = []
    while not low.has.is_set():
        urgent.append(waiting(limit, "A", 100))
        assert len(urgent) <= 10
        held.leave()
        held = urgent[-1]
        eventually(lambda: low.has.is_set() or held.has.is_set())  # noqa: B023 - asked at once
    low.leave()


def test_a_limit_that_is_raised_lets_those_in_who_wait():
    limit = ConcurrencyLimit()
    limit.serve({"A"}, 1)
    with limit.permit("A", lambda: 50):
        second = waiting(limit, "A")
        limit.serve({"A"}, 2)
        assert second.has.wait(60)
        second.leave()


def test_a_place_that_is_left_early_is_left_once():
    limit = ConcurrencyLimit()
    limit.serve({"A"}, 1)
    with limit.permit("A", lambda: 50) as leave:
        leave()
        second = Worker(limit, "A")
        assert second.has.wait(60)
        leave()
    third = waiting(limit, "A")
    assert not third.has.is_set()
    second.leave()
    assert third.has.wait(60)
    third.leave()
