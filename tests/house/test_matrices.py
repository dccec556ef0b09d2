"""The sample of a matrix has all values, and is the same each time."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrices import covering

ROOT = Path(__file__).parents[2]

MATRIX = list(itertools.product(range(9), range(3), range(2)))


def combinations(rows, together):
    return {one for row in rows for one in itertools.combinations(enumerate(row), together)}


@pytest.mark.parametrize(("together", "at_most"), [(1, 9), (2, 30), (3, 54)])
def test_each_combination_of_so_many_values_is_in_the_sample(together, at_most):
    sample = covering(MATRIX, together)
    assert combinations(sample, together) == combinations(MATRIX, together)
    assert len(sample) <= at_most
    assert covering(MATRIX, together) == sample


def test_a_value_that_is_not_with_all_others_is_in_the_sample():
    assert sorted(covering([(0, 0), (1, 0), (1, 1), (2, 1)])) == [(0, 0), (1, 1), (2, 1)]


def test_other_values_take_turns_beside_those_that_are_there_once():
    assert {row[1] for row in covering(MATRIX)[:3]} == {0, 1, 2}
    assert [[row[1] for row in covering(MATRIX)].count(value) for value in range(3)] == [3, 3, 3]


def test_of_one_parameter_all_values_are_in_the_sample():
    assert covering([(value,) for value in range(7)], 2) == [(value,) for value in range(7)]


SUITE = """
import pytest

@pytest.mark.matrix
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize(("b", "c"), [(0, 0), (0, 1)])
def test_each_once(a, b, c):
    pass

@pytest.mark.matrix(whole="x")
@pytest.mark.parametrize("a", "xyz")
@pytest.mark.parametrize("b", range(3))
def test_whole(a, b):
    pass

@pytest.mark.matrix(every=2)
class TestEvery:
    @pytest.mark.parametrize("a", range(4))
    def test_one(self, a):
        pass

    @pytest.mark.parametrize("a", range(4))
    def test_other(self, a):
        pass

    @pytest.mark.parametrize("a", range(1))
    def test_alone(self, a):
        pass
"""


@pytest.fixture
def ran(tmp_path):
    """Run the suite in a process of its own, and return the names of what has run."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = matrix\n")

    def run(*arguments, matrix=""):
        command = [sys.executable, "-m", "pytest", "-p", "tests.matrices", "-p", "no:randomly", "-v", *arguments]
        its = os.environ | {"PYTHONPATH": str(ROOT), "QM_TEST_MATRIX": matrix}
        ended = subprocess.run(command, cwd=tmp_path, env=its, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        left_out = 24 - sum(" PASSED" in line for line in ended.stdout.splitlines())
        told = f"{left_out} tests of matrices are not in the sample; QM_TEST_MATRIX=all runs them too"
        assert arguments or (told in ended.stdout) is (left_out > 0)
        lines = [line for line in ended.stdout.splitlines() if " PASSED" in line]
        return sorted(line.split(" ")[0].rpartition("::")[2] for line in lines)

    return run


def test_a_run_has_each_value_once_and_each_nth_test_of_a_function(ran):
    once = ["test_each_once[0-0-0]", "test_each_once[0-1-1]", "test_each_once[0-0-2]"]
    whole = [f"test_whole[{cell}]" for cell in ("0-x", "1-x", "2-x", "0-y", "1-z", "2-y")]
    assert ran() == sorted(
        [*once, *whole, "test_alone[0]", "test_one[0]", "test_one[2]", "test_other[1]", "test_other[3]"]
    )


def test_all_are_run_where_that_is_asked_for(ran):
    assert len(ran(matrix="all")) == 24


def test_what_is_asked_for_by_its_whole_name_is_run(ran):
    assert ran("test_suite.py::test_each_once[0-1-0]", "test_suite.py::TestEvery::test_one[0]") == [
        "test_each_once[0-1-0]",
        "test_one[0]",
    ]
