"""Where the files of a test lie: in memory, where what is tested is not what a disk or a kill leaves behind.

A device waits for the disk at each commit, and half of the time of the tests of files is that. In memory lies what lies
there for the servers of the tests too: where TMPDIR names no place, and there is room. The files of a test that failed
are then copied to where pytest keeps them.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import memory_for_tests

ON_THE_DISK = {"fault", "house", "process", "race", "spark"}
"""The folders of tests about kills, full disks, whole programs and what stays of them."""

_FAILED = pytest.StashKey[bool]()
_TESTS = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Note whether a test has failed."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def place_in_memory() -> Iterator[Path | None]:
    """A directory in memory for the files of all tests of this process; None where there is no room."""
    memory = memory_for_tests()
    if memory is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="qmtest-", dir=memory, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path, place_in_memory: Path | None) -> Iterator[Path]:
    """A directory of the test's own."""
    if place_in_memory is None or request.path.relative_to(_TESTS).parts[0] in ON_THE_DISK:
        yield tmp_path
        return
    place = place_in_memory / tmp_path.name
    place.mkdir()
    yield place
    if request.node.stash.get(_FAILED, False):
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(place, tmp_path, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
