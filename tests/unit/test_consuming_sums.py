"""The sums of scripts/soak consume find what is lost or doubled."""

import pytest
from soaking.consuming.overseer import Sums


@pytest.mark.parametrize("left", [{"plain": [5, 7]}, {"done": [1, 4], "errors": [7]}, {"plain": [], "done": [12, 0]}])
def test_the_sums_balance_wherever_the_amounts_are(left):
    assert Sums([5, 7], left).problems == []


@pytest.mark.parametrize(
    ("left", "difference"), [({"done": [5]}, "-7"), ({"done": [5, 7], "errors": [7]}, "+7"), ({}, "-12")]
)
def test_a_sum_that_is_not_what_was_enqueued_is_told(left, difference):
    (problem,) = Sums([5, 7], left).problems
    assert problem.startswith("12 was enqueued")
    assert problem.endswith(difference)
