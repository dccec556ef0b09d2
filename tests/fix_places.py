"""Where the files of a test lie: in memory, where what is tested is not what a disk or a kill leaves behind.

A device waits for the disk at each commit, and half of the time of the tests of files is that. In memory lies what lies
there for the servers of the tests too: where TMPDIR names no place, and there is room. The files of a test that failed
are then copied to where pytest keeps them.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import memory_for_tests

ON_THE_DISK = {"fault", "house", "process", "race", "spark"}
"""The folders of tests about kills, full disks, whole programs and what stays of them."""

_LONGEST = 30
"""Characters of a test's name that its directory has: a path may be no longer than the name of a Unix socket."""

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


@pytest.fixture(scope="session")
def used_names() -> Counter[str]:
    """How many tests of this process have had a directory of each name."""
    return Counter()


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    place_in_memory: Path | None,
    used_names: Counter[str],
) -> Iterator[Path]:
    """A directory of the test's own.

    It takes the place of pytest's own fixture, which looks for a free number among the directories of all tests before:
    with thousands of them that takes as long as many a test.
    """
    name = re.sub(r"\W", "_", request.node.name)[:_LONGEST]
    used_names[name] += 1
    name = f"{name}_{used_names[name] - 1}"
    if place_in_memory is None or request.path.relative_to(_TESTS).parts[0] in ON_THE_DISK:
        yield tmp_path_factory.mktemp(name, numbered=False)
        return
    place = place_in_memory / name
    place.mkdir()
    yield place
    if request.node.stash.get(_FAILED, False):
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(place, tmp_path_factory.getbasetemp() / name, symlinks=True)
    shutil.rmtree(place, ignore_errors=True)
