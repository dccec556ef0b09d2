"""Matrices: tests for each combination of several things, as the steps of a commit and the stores; a run has a sample.

    @pytest.mark.matrix              each value is there once: each step on one of the stores, and each store
    @pytest.mark.matrix(together=2)  each two values of different parameters are there together once
    @pytest.mark.matrix(every=3)     each third test of each function; which is first its name tells, or first=1
    @pytest.mark.matrix(whole="x")   all tests that have the value "x", and of all others a sample as above

What one `parametrize` gives is one value, whatever it consists of; with `apart=True` each of its names has values. The
same tests are in the sample each time. `QM_TEST_MATRIX=all` in the environment has all of them run; so is whatever is
asked for by its whole name.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest

Row = tuple[int, ...]
"""A test of a matrix: which value each of its parameters has."""


def covering(rows: Sequence[Row], together: int = 1) -> list[Row]:
    """Return as few of the rows as may be, in which there is each combination of so many values that is in all of them.

    Of rows that bring as many new ones, the one comes first whose values were there least often.
    """
    of_row = {row: set(combinations(enumerate(row), min(together, len(row)))) for row in rows}
    missing = {one for ones in of_row.values() for one in ones}
    chosen: list[Row] = []
    uses = Counter[tuple[int, int]]()
    while missing:
        best = max(of_row, key=lambda row: (len(of_row[row] & missing), -sum(uses[one] for one in enumerate(row))))
        missing -= of_row.pop(best)
        uses.update(enumerate(best))
        chosen.append(best)
    return chosen


LEFT_OUT = pytest.StashKey[int]()
"""How many tests of those that were asked for are not in a sample."""


# Before and around the others: their order, and what is chosen among tests, have nothing to do with the sample.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Leave out of each matrix what is not in its sample."""
    functions = defaultdict[str, list[pytest.Item]](list)
    if os.environ.get("QM_TEST_MATRIX") != "all":
        for item in items:
            if _is_of_matrix(item) and not any(argument.endswith(item.nodeid) for argument in config.args):
                functions[item.nodeid.partition("[")[0]].append(item)
    left_out = {item for matrix in functions.values() for item in _left_out(matrix)}
    yield
    gone = [item for item in items if item in left_out]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in left_out]
    config.stash[LEFT_OUT] = len(gone)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left out of matrices"] = len(gone)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep what a worker has counted; each has collected the same tests."""
    counted = getattr(node, "workeroutput", {}).get("left out of matrices", 0)
    node.config.stash[LEFT_OUT] = max(counted, node.config.stash.get(LEFT_OUT, 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell how many tests were left out, and how they are run."""
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{count} tests of matrices are not in the sample; QM_TEST_MATRIX=all runs them too"
        )


def _is_of_matrix(item: pytest.Item) -> bool:
    return item.get_closest_marker("matrix") is not None and hasattr(item, "callspec")


def _left_out(matrix: list[pytest.Item]) -> list[pytest.Item]:
    """Return what is left out of the matrix of a function."""
    mark = matrix[0].get_closest_marker("matrix")
    assert mark is not None
    # As they were collected, whatever order they have been given since.
    matrix = sorted(matrix, key=lambda item: max(_callspec(item).indices.values()))
    if every := mark.kwargs.get("every"):
        # By the name: what is added to a file, or moved in it, changes nothing of the others.
        first = mark.kwargs.get("first", zlib.crc32(_name(matrix[0]).encode()))
        kept_ones = matrix[first % min(every, len(matrix)) :: every]
        return [item for item in matrix if item not in kept_ones]
    if whole := mark.kwargs.get("whole"):
        matrix = [item for item in matrix if whole not in _callspec(item).params.values()]
    apart = mark.kwargs.get("apart", False)
    numbers = defaultdict[tuple[str, ...], dict[tuple[int, ...], int]](dict)
    rows = [
        tuple(numbers[names].setdefault(value, len(numbers[names])) for names, value in _values(item, apart))
        for item in matrix
    ]
    kept = set(covering(rows, mark.kwargs.get("together", 1)))
    return [item for row, item in zip(rows, matrix, strict=True) if row not in kept]


def _name(item: pytest.Item) -> str:
    """Return the name of the function of a test; a file for asyncio has the same ones as others."""
    return item.nodeid.partition("[")[0].rpartition("::")[2]


def _values(item: pytest.Item, apart: bool) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Yield the names of the parameters of a test that are given together, and which objects they are."""
    params = dict(_callspec(item).params)
    for mark in () if apart else item.iter_markers("parametrize"):
        names = mark.args[0].replace(",", " ").split() if isinstance(mark.args[0], str) else mark.args[0]
        yield tuple(names), tuple(id(params.pop(name)) for name in names)
    for name in sorted(params):
        yield (name,), (id(params[name]),)


def _callspec(item: pytest.Item) -> Any:
    return item.callspec  # type: ignore[attr-defined]
