"""Processes that are killed in the middle of what they do, and devices on which they do it."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doom import Doom, environment_of, meet
from tests.fix_process import PATIENCE, environment

PROGRAM = [sys.executable, "-m", "qmadmin.spark.program"]


class Doomed:
    """Runs what is killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0

    def run(self, doom: Doom, work: Callable[[], object]) -> None:
        """Do some work in a process of its own, which ends where it is to."""
        mark = self._mark()
        with warnings.catch_warnings():
            # Threads of libraries are at rest, and what the child does begins anew.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _work(doom, mark, work)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"it has come to its end, with status {status}"
        assert os.WTERMSIG(status) == doom.number
        assert mark.exists()

    def program(self, doom: Doom, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run qmspark, alone in its group, and return how it has ended."""
        mark = self._mark()
        more = environment_of(doom, mark, site := mark.with_suffix(".site"))
        env = environment(**more)
        env["PYTHONPATH"] = os.pathsep.join([str(site), env["PYTHONPATH"]])
        done = subprocess.run(
            [*PROGRAM, *(str(each) for each in arguments)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            start_new_session=True,
        )
        assert mark.exists(), f"it was never at {doom}: {done.stderr}"
        return done

    def _mark(self) -> Path:
        self._count += 1
        return self._directory / f"doom-{self._count}"


def _work(doom: Doom, mark: Path, work: Callable[[], object]) -> None:
    """Do it, and end without what a test process does at its end."""
    try:
        meet(doom, mark)
        work()
    except BaseException:  # noqa: BLE001 - nothing may get into the frames of the test
        traceback.print_exc()
    finally:
        os._exit(1)


@pytest.fixture
def doomed(tmp_path: Path) -> Doomed:
    return Doomed(tmp_path)
