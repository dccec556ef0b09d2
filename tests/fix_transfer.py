"""Processes that are killed in the middle of what they do, and devices on which they do it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doom import Doom, environment_of
from tests.fix_process import PATIENCE, environment, eventually, running_in
from tests.fix_store import SOURCES
from tests.fork_server import ForkServer

_WORK = """
import pickle, sys
from tests.doom import meet
doom, mark, work, arguments, more = pickle.loads(bytes.fromhex(sys.argv[1]))
meet(doom, mark)
work(*arguments, **more)
"""

PROGRAM = [sys.executable, "-m", "qmadmin.spark.program"]


class Doomed:
    """Runs what is killed."""

    def __init__(self, directory: Path, server: ForkServer | None) -> None:
        self._directory = directory
        self._server = server
        self._count = 0
        self._sessions: list[int] = []

    def run(self, doom: Doom, work: Callable[..., object], *arguments: object, **more: object) -> None:
        """Do some work in a process of its own, which ends where it is to; the work can be pickled."""
        mark = self._mark()
        told = pickle.dumps((doom, mark, work, arguments, more)).hex()
        env = {**os.environ, "PYTHONPATH": SOURCES}
        # No fork of this process: it would have the locks of libraries that are loaded here, and none of their threads.
        if self._server is None:
            command = [sys.executable, "-c", _WORK, told]
            ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE)
        else:
            ended = self._server.start(_WORK, [told], env).ended("", PATIENCE)
        assert ended.returncode == -doom.number, f"it ended with status {ended.returncode}: {ended.stderr}"
        assert mark.exists()

    def program(self, doom: Doom, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run qmspark, alone in its session, and return how it has ended."""
        mark = self._mark()
        more = environment_of(doom, mark, site := mark.with_suffix(".site"))
        env = environment(**more)
        env["PYTHONPATH"] = os.pathsep.join([str(site), env["PYTHONPATH"]])
        command = [*PROGRAM, *(str(each) for each in arguments)]
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as started:
            self._sessions.append(started.pid)
            # Its workers have the same pipes, so that this takes until all have ended.
            out, err = started.communicate(timeout=PATIENCE)
        assert mark.exists(), f"it was never at {doom}: {err}"
        return subprocess.CompletedProcess(command, started.returncode, out, err)

    def leaves_nobody(self) -> None:
        """Prove that no process is left of the programs that were run."""
        for session in self._sessions:
            # One whose driver is gone ends when it looks for more to do.
            eventually(lambda session=session: not running_in(session), "the end of all processes")

    def _mark(self) -> Path:
        self._count += 1
        return self._directory / f"doom-{self._count}"


@pytest.fixture
def doomed(tmp_path: Path, fork_server: ForkServer | None) -> Doomed:
    return Doomed(tmp_path, fork_server)
