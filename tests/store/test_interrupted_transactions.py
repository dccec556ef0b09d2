"""Transactions that are interrupted, or forgotten, before they have ended: what they hold comes back all the same."""

import gc

import pytest

import qmadmin.device
import qmadmin.transaction
from qmcore.acts import returning, rolling_back
from qmcore.message import State
from tests.fix_store import drain
from tests.interrupts import InterruptedAt, at_every_line


def test_a_transaction_whose_block_ended_without_its_end_is_forgotten_and_rolled_back(space):
    space.enqueue("Q", "x")
    # As an interrupt at the first instruction of `__exit__` leaves it.
    transaction = space.transaction().__enter__()
    assert space.dequeue("Q").text == "x"
    del transaction
    gc.collect()
    with space.transaction():
        space.enqueue("Q", "y")
    space._attachment.look_after(now=True)
    assert sorted(drain(space)) == ["x", "y"]


def _take(space):
    """Begin a transaction that holds the first message."""
    transaction = space.transaction()
    transaction.join_context()
    assert space.dequeue("Q") is not None
    transaction.leave_context()
    return transaction


def _states(space):
    return [info.state for info in space.messages("Q")]


@pytest.mark.parametrize("module", [qmadmin.transaction, qmadmin.device, rolling_back, returning])
def test_an_interrupt_at_any_line_of_a_rollback_leaves_it_to_the_next_upkeep(space, module):
    space.enqueue("Q", "x")
    begun = [_take(space)]
    for _ in at_every_line(module, lambda: begun.pop().rollback(counts=False)):
        space._attachment.look_after(now=True)
        assert _states(space) == [State.READY]
        begun.append(_take(space))


def test_an_interrupt_while_rollbacks_are_made_up_for_leaves_all_of_them_to_the_next_upkeep(space):
    for text in "abc":
        space.enqueue("Q", text)
    begun = [_take(space) for _ in "abc"]
    begun.clear()
    gc.collect()
    with pytest.raises(KeyboardInterrupt), InterruptedAt(rolling_back, 1):
        space._attachment.look_after(now=True)
    space._attachment.look_after(now=True)
    assert _states(space) == [State.READY] * 3
