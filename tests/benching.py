"""Calls scripts/bench as a process of its own."""

import os
import subprocess
import sys

from tests.fix_process import ROOT, environment


def bench(*arguments):
    settings = environment()
    paths = os.pathsep.join([str(ROOT / "scripts"), settings["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        env=settings | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
