"""Contexts that were copied with a transaction in them, as by asyncio.to_thread: nothing happens outside of it."""

import asyncio
import contextvars
import gc
import threading

import pytest

from qmcore.errors import ProtocolError
from tests.fix_store import bodies_held, drain

CALLS = [
    lambda space: space.dequeue("Q"),
    lambda space: space.dequeue("Q", wait=5),
    lambda space: space.dequeue_many("Q", 2),
    lambda space: space.remove("Q"),
    lambda space: space.lock("Q"),
    lambda space: space.enqueue("Q", "x"),
    lambda space: space.enqueue_many("Q", ["x", "y"]),
]

REFUSED = pytest.raises(ProtocolError, match="belongs to another thread")


class StopWorkError(Exception):
    pass


def elsewhere(act):
    """Do something in another thread, in a copy of this context, and return what comes of it, as to_thread does."""
    outcome = []
    context = contextvars.copy_context()

    def work():
        try:
            outcome.append(act())
        except ProtocolError as error:
            outcome.append(error)

    thread = threading.Thread(target=lambda: context.run(work))
    thread.start()
    thread.join()
    if isinstance(outcome[0], ProtocolError):
        raise outcome[0]
    return outcome[0]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_in_another_thread_that_inherits_a_transaction_is_refused(space, call):
    space.enqueue("Q", "order")
    with space.transaction(), REFUSED as refusal:
        elsewhere(lambda: call(space))
    assert "transactional=False" in refusal.value.hint
    assert drain(space) == ["order"]


def test_nothing_happens_by_a_coroutine_outside_of_its_transaction(space):
    async def work():
        with space.transaction():
            await asyncio.to_thread(space.dequeue, "Q", wait=2)

    space.enqueue("Q", "order")
    with REFUSED:
        asyncio.run(work())
    assert bodies_held(space) == (1, 0, 0)


@pytest.mark.parametrize("is_kept", [True, False])
def test_nor_is_it_done_when_the_transaction_has_ended_meanwhile(space, is_kept):
    space.enqueue("Q", "order")
    kept = []

    def begin():
        with space.transaction() as transaction:
            kept.extend([transaction] * is_kept)
            return contextvars.copy_context()

    context = begin()
    gc.collect()
    with REFUSED:
        elsewhere(lambda: context.run(space.dequeue, "Q"))
    assert bodies_held(space) == (1, 0, 0)


def test_what_is_said_to_be_outside_of_it_is(space):
    space.enqueue("Q", "order")
    with pytest.raises(StopWorkError), space.transaction():
        assert elsewhere(lambda: space.dequeue("Q", transactional=False)).text == "order"
        raise StopWorkError
    assert bodies_held(space) == (0, 0, 0)


def test_a_transaction_of_its_own_is_refused_as_well_while_the_other_is_open(space):
    def work():
        with space.transaction():
            space.enqueue("Q", "x")

    with space.transaction(), pytest.raises(ProtocolError, match="in this context, begun by another thread"):
        elsewhere(work)
    # It is begun outside, and says so itself.
    elsewhere(work)
    assert drain(space) == ["x"]


def test_other_queue_spaces_and_new_threads_know_nothing_of_it(store, space):
    other = store.space("OTHER", ipc_key=50_000)
    other.create_queue(space.queue("Q").definition)
    with space.transaction():
        elsewhere(lambda: other.enqueue("Q", "x"))
        thread = threading.Thread(target=lambda: space.enqueue("Q", "y"))
        thread.start()
        thread.join()
        assert (drain(other), bodies_held(space)) == (["x"], (1, 0, 0))


def test_a_task_that_inherits_it_in_the_same_thread_belongs_to_it(space):
    async def take():
        return space.dequeue("Q").text

    async def work():
        with space.transaction():
            assert await asyncio.create_task(take()) == "order"
            raise StopWorkError

    space.enqueue("Q", "order")
    with pytest.raises(StopWorkError):
        asyncio.run(work())
    assert bodies_held(space) == (1, 0, 0)


def test_the_transaction_itself_is_refused_in_another_thread(space):
    with space.transaction() as transaction:
        space.enqueue("Q", "x")
        for act in (transaction.commit, transaction.rollback):
            with REFUSED:
                elsewhere(act)
    assert drain(space) == ["x"]
