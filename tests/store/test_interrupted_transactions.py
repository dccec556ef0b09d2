"""Transactions that are interrupted, or forgotten, before they have ended: what they hold comes back all the same."""

import gc

import pytest

import qmadmin.attachment
import qmadmin.device
import qmadmin.transacting
from qmcore.acts import (
    commit,
    dequeue_in_transaction,
    enqueue_in_transaction,
    outstanding,
    returning,
    rolling_back,
    transaction_part,
)
from qmcore.errors import OperatingSystemError, SystemFailureError
from qmcore.message import State
from tests.fix_store import attachment_of, drain, make_queue
from tests.interrupts import at_every_line


def test_a_transaction_whose_block_ended_without_its_end_is_forgotten_and_rolled_back(space):
    space.enqueue("Q", "x")
    # As an interrupt at the first instruction of `__exit__` leaves it.
    transaction = space.transaction().__enter__()
    assert space.dequeue("Q").text == "x"
    del transaction
    gc.collect()
    with space.transaction():
        space.enqueue("Q", "y")
    attachment_of(space).do_housekeeping(now=True)
    assert sorted(drain(space)) == ["x", "y"]


def _take(space):
    """Begin a transaction that holds the first message."""
    transaction = space.transaction()
    transaction.join_context()
    assert space.dequeue("Q") is not None
    transaction.leave_context()
    return transaction


def _begin(space):
    """Begin to hold three messages, each by a transaction of its own."""
    for text in "abc":
        space.enqueue("Q", text)
    return [_take(space) for _ in "abc"]


def _forget(transactions):
    transactions.clear()
    gc.collect()


def _stand(space):
    """Return the state of each message, and how often it was tried."""
    return [(info.state, info.retries) for info in space.messages("Q")]


@pytest.mark.matrix(whole="file")
@pytest.mark.parametrize("module", [qmadmin.transacting, qmadmin.attachment, rolling_back, returning])
def test_an_interrupt_at_any_line_of_a_rollback_leaves_it_to_the_next_upkeep(space, module):
    space.enqueue("Q", "x")
    kept = [_take(space)]
    for _ in at_every_line(module, lambda: kept[-1].rollback(counts=False)):
        if kept[-1].active:
            # It had not begun.
            kept[-1].rollback(counts=False)
        attachment_of(space).do_housekeeping(now=True)
        assert _stand(space) == [(State.READY, 0)]
        kept.append(_take(space))


@pytest.mark.matrix(whole="file")
@pytest.mark.parametrize("module", [qmadmin.transacting, qmadmin.attachment])
def test_an_interrupt_at_any_line_of_a_rollback_leaves_each_queue_space_of_it_to_the_next_upkeep(store, module):
    spaces = [store.space("ONE", ipc_key=1), store.space("TWO", ipc_key=2)]
    for space in spaces:
        make_queue(space)
        space.enqueue("Q", "x")

    def take():
        transaction = qmadmin.transacting.Transaction(store.device, None)
        transaction.join_context()
        assert [space.dequeue("Q").text for space in spaces] == ["x", "x"]
        transaction.leave_context()
        return transaction

    kept = [take()]
    for _ in at_every_line(module, lambda: kept[-1].rollback(counts=False)):
        if kept[-1].active:
            # It had not begun.
            kept[-1].rollback(counts=False)
        for space in spaces:
            attachment_of(space).do_housekeeping(now=True)
            assert _stand(space) == [(State.READY, 0)]
        kept.append(take())


def _left_behind(space):
    """Return whether anything stands in the store of a transaction, or of what one has enqueued."""
    attachment = attachment_of(space)
    counted = attachment.volume.read(lambda unit: outstanding.held(unit, attachment.opened.space.id))
    return bool(counted or space.transactions())


@pytest.mark.matrix(whole="file")
@pytest.mark.parametrize("module", [dequeue_in_transaction, transaction_part])
def test_an_interrupt_at_any_line_of_a_dequeue_leaves_nothing_that_a_rollback_would_not_find(space, module):
    space.enqueue("Q", "x")
    begun = []

    def take():
        begun.append(space.transaction())
        begun[-1].join_context()
        space.dequeue("Q")

    for _ in at_every_line(module, take):
        begun[-1].leave_context()
        begun[-1].rollback(counts=False)
        assert (_stand(space), _left_behind(space)) == ([(State.READY, 0)], False)


@pytest.mark.matrix(whole="file")
@pytest.mark.parametrize("module", [commit, transaction_part])
def test_an_interrupt_at_any_line_of_a_commit_that_takes_the_next_message_leaves_nothing_to_its_successor(
    store, module
):
    space = store.space()
    make_queue(space, retries=1000)
    space.enqueue_many("Q", ["x"] * 200)
    begun = [_take(space)]

    def follow():
        begun.append(begun[0].successor(None))
        begun[0].commit_and_take([], begun[1], "Q")

    for _ in at_every_line(module, follow):
        for transaction in begun:
            if transaction.active:
                transaction.rollback(counts=False)
        assert ({state for state, _ in _stand(space)}, _left_behind(space)) == ({State.READY}, False)
        begun[:] = [_take(space)]


@pytest.mark.matrix(whole="file")
@pytest.mark.parametrize("module", [enqueue_in_transaction, transaction_part])
@pytest.mark.parametrize("call", ["enqueue", "commit"])
def test_an_interrupt_at_any_line_where_messages_are_spilled_leaves_nothing_that_a_rollback_would_not_find(
    store, monkeypatch, memory_dir, module, call
):
    """Above a number of bytes they are spilled at once, and those for memory before the commit."""
    space = store.space(memory=1_000_000)
    make_queue(space)
    if call == "enqueue":
        monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", 1)
    begun = []

    def spill():
        begun.append(space.transaction())
        begun[-1].join_context()
        space.enqueue("Q", "x", persistent=call == "enqueue")
        if call == "commit":
            begun[-1].commit()

    for _ in at_every_line(module, spill):
        begun[-1].leave_context()
        if begun[-1].active:
            begun[-1].rollback(counts=False)
        attachment_of(space).do_housekeeping(now=True)
        drained = drain(space)
        assert drained == [] if call == "enqueue" else len(drained) < 2
        assert not _left_behind(space)


def test_what_was_noted_first_says_how_a_transaction_is_rolled_back(space):
    space.enqueue("Q", "x")
    transaction, owed = _take(space), attachment_of(space).owed
    branch = transaction.branch(attachment_of(space))
    owed.add(branch, returning.Ending(returning.Cause.UNTRIED))
    transaction.rollback()
    assert (_stand(space), owed.left) == ([(State.READY, 0)], {})


@pytest.mark.matrix(whole="file")
@pytest.mark.parametrize("module", [qmadmin.attachment, rolling_back])
def test_an_interrupt_while_rollbacks_are_made_up_for_leaves_them_to_the_next_upkeep(space, module):
    _forget(_begin(space))
    for tried in at_every_line(module, lambda: attachment_of(space).do_housekeeping(now=True)):
        attachment_of(space).do_housekeeping(now=True)
        assert _stand(space) == [(State.READY, tried)] * 3
        _forget([_take(space) for _ in "abc"])


def test_what_was_rolled_back_is_not_rolled_back_again(space, monkeypatch):
    for transaction in _begin(space):
        transaction.rollback()
    monkeypatch.setattr(rolling_back, "roll_back", lambda *_: pytest.fail("it was rolled back again"))
    attachment_of(space).do_housekeeping(now=True)


def test_a_rollback_that_goes_wrong_is_no_affair_of_who_comes_next_and_keeps_none_of_the_others(
    space, monkeypatch, caplog
):
    give_back = returning.give_back

    def damaged(unit, opened, transaction_id, *arguments):
        if transaction_id == first:
            raise ValueError("damaged")
        give_back(unit, opened, transaction_id, *arguments)

    begun = _begin(space)
    first = begun[0].branch(attachment_of(space)).id
    monkeypatch.setattr(returning, "give_back", damaged)
    with pytest.raises(ValueError, match="damaged"):
        begun[0].rollback()
    _forget(begun)
    for _ in range(2):
        attachment_of(space).do_housekeeping(now=True)
    assert [state for state, _ in _stand(space)] == [State.READY, State.READY, State.HELD]
    (told,) = caplog.records
    assert (told.message, told.exc_info[0]) == ("a rollback on queue space 'SPACE' is postponed: damaged", ValueError)
    monkeypatch.undo()
    attachment_of(space).do_housekeeping(now=True)
    assert [state for state, _ in _stand(space)] == [State.READY] * 3


def test_why_a_forgotten_transaction_stays_is_told_once(space, monkeypatch, caplog):
    def refused(*_):
        raise OperatingSystemError("the disk is full")

    space.enqueue("Q", "x")
    begun = [_take(space)]
    monkeypatch.setattr(returning, "give_back", refused)
    _forget(begun)
    for _ in range(3):
        attachment_of(space).do_housekeeping(now=True)
    (told,) = caplog.records
    assert (told.message, told.exc_info) == ("a rollback on queue space 'SPACE' is postponed: the disk is full", None)
    monkeypatch.undo()
    attachment_of(space).do_housekeeping(now=True)
    assert _stand(space) == [(State.READY, 1)]


# ---- the order ------------------------------------------------------------------------------------------------------


@pytest.fixture
def refusing(space, monkeypatch):
    """Have a transaction with the first of three messages, whose rollback the store refuses until it is well again."""

    def begin(refusal):
        def refused(*_):
            raise refusal

        space.enqueue_many("Q", "abc")
        transaction = _take(space)
        monkeypatch.setattr(returning, "give_back", refused)
        transaction.rollback(counts=False)
        return lambda: monkeypatch.setattr(returning, "give_back", give_back)

    give_back = returning.give_back
    return begin


FULL = OperatingSystemError("the disk is full")
LOCKED = SystemFailureError("others are in the way", blocked=True)


def _in_a_transaction(space):
    with space.transaction():
        return space.dequeue("Q").text


def _locked(space):
    with space.transaction():
        return space.lock("Q").text


TAKING = [
    lambda space: space.dequeue("Q").text,
    lambda space: space.dequeue("Q", wait=5).text,
    lambda space: space.dequeue_many("Q", 2)[0].text,
    lambda space: space.remove("Q") and "a",
    _in_a_transaction,
    _locked,
]


@pytest.mark.parametrize("take", TAKING)
def test_what_a_refused_rollback_has_kept_comes_first_when_the_store_is_well_again(space, refusing, take):
    refusing(FULL)()
    assert take(space) == "a"
    assert drain(space)[-1] == "c"


@pytest.mark.parametrize("refusal", [FULL, LOCKED])
def test_nothing_overtakes_it_as_long_as_the_store_refuses(space, refusing, refusal):
    is_well = refusing(refusal)
    for _ in range(2):
        with pytest.raises(type(refusal), match=refusal.message):
            space.dequeue("Q")
    is_well()
    assert drain(space) == ["a", "b", "c"]


def test_other_queues_go_on_meanwhile(space, refusing):
    make_queue(space, "OTHER")
    refusing(FULL)
    space.enqueue("OTHER", "x")
    assert space.dequeue("OTHER").text == "x"


def test_a_rollback_that_goes_wrong_for_good_keeps_nobody_from_the_others(space, refusing):
    refusing(SystemFailureError("a row is damaged"))
    assert drain(space) == ["b", "c"]


def test_what_a_forgotten_transaction_has_kept_comes_first(space):
    space.enqueue_many("Q", "abc")
    begun = [_take(space)]
    _forget(begun)
    assert drain(space) == ["a", "b", "c"]


def test_what_another_thread_is_rolling_back_is_left_to_it(space, monkeypatch):
    space.enqueue_many("Q", "abc")
    transaction = _take(space)
    got = []
    roll_back = rolling_back.roll_back

    def slow(*arguments):
        got.append(space.dequeue("Q").text)
        roll_back(*arguments)

    monkeypatch.setattr(rolling_back, "roll_back", slow)
    transaction.rollback()
    assert (got, drain(space)) == (["b"], ["a", "c"])
