"""The example that moves money between two databases, with a message, balances whenever its workers are killed."""

import os
import re
import subprocess
import sys

from tests.fix_databases import prepared_in
from tests.fix_postgres import database_of
from tests.fix_store import ROOT, SOURCES

PROGRAM = ROOT / "scripts" / "qsample" / "transfer.py"


def test_nothing_is_lost_and_nothing_is_there_twice(database_of_applications, tmp_path):
    url = database_of(database_of_applications)[0]
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "QUE", tmp_path / "north.db", url, "--kills", "5"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCES},
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    moved, left, receipts = map(int, re.findall(r"\d+", done.stdout))
    assert (moved + left, receipts) == (100_000, moved)
    assert prepared_in(database_of_applications) == 0


def test_it_tells_what_it_does():
    done = subprocess.run(
        [sys.executable, PROGRAM, "--help"], capture_output=True, text=True, check=True, env={"PYTHONPATH": SOURCES}
    )
    assert "workers are killed on the way" in done.stdout
