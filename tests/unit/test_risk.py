"""What may be left with a transaction is noted before the work, and forgotten only by proof that nothing is."""

import pytest

from qmcore.acts.transaction_part import Branch
from qmcore.errors import (
    BadQueueError,
    NoSpaceError,
    OperatingSystemError,
    OutcomeUnknownError,
    Resource,
    SystemFailureError,
)


@pytest.fixture
def branch():
    return Branch(None, None, 0, None)  # type: ignore[arg-type]


def noted(branch):
    return branch.may_hold, branch.may_lock, branch.may_spill, branch.queue_ids


NOTHING = (False, False, False, set())


def test_what_may_be_left_is_noted_before_the_work_and_stays_noted_behind_it(branch):
    with branch.at_risk(3):
        assert noted(branch) == (True, False, False, {3})
    assert noted(branch) == (True, False, False, {3})


def test_what_the_work_notes_by_itself_stays_noted(branch):
    with branch.at_risk(3):
        branch.queue_ids.add(4)
        branch.may_lock = branch.may_spill = True
    assert noted(branch) == (True, True, True, {3, 4})


def test_a_work_that_has_left_nothing_is_forgotten(branch):
    with branch.at_risk(3) as risk:
        branch.queue_ids.add(4)
        branch.may_lock = branch.may_spill = True
        risk.nothing_left()
    assert noted(branch) == NOTHING


@pytest.mark.parametrize(
    "refusal", [BadQueueError("gone"), NoSpaceError("space", Resource.PAGES, used=1, limit=1)], ids=lambda it: it.name
)
def test_a_work_that_is_refused_is_forgotten(branch, refusal):
    with pytest.raises(type(refusal)), branch.at_risk(3):
        branch.queue_ids.add(4)
        raise refusal
    assert noted(branch) == NOTHING


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), ValueError(), OutcomeUnknownError("x"), SystemFailureError("x"), OperatingSystemError("x")],
    ids=lambda it: type(it).__name__,
)
def test_an_interrupt_or_a_failure_of_the_store_leaves_it_noted(branch, error):
    with pytest.raises(type(error)), branch.at_risk(3):
        branch.queue_ids.add(4)
        raise error
    assert noted(branch) == (True, False, False, {3, 4})


def test_a_work_that_has_left_nothing_forgets_nothing_of_those_before(branch):
    with branch.at_risk(3):
        branch.may_lock = True
    with branch.at_risk(4) as risk:
        branch.may_spill = True
        risk.nothing_left()
    assert noted(branch) == (True, True, False, {3})
