"""The example of a transaction of Zope over messages and rows does what it says, on a file and on PostgreSQL."""

import os
import subprocess
import sys

import pytest

from tests.fix_store import ROOT, SOURCES, device_path

PROGRAM = ROOT / "scripts" / "qsample" / "zope_orders.py"


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_messages_and_rows_are_committed_together(kind, request, tmp_path):
    done = subprocess.run(
        [sys.executable, PROGRAM, device_path(kind, request, tmp_path), tmp_path / "shop.db"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCES},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "an order was placed: orders 1, bills 0, to ship 0",
        "its bill was cut short: orders 1, bills 0, to ship 0",
        "it was billed: orders 0, bills 1, to ship 1",
        "the same order was refused: orders 1, bills 1, to ship 1",
    ]


def test_it_tells_what_it_does():
    done = subprocess.run(
        [sys.executable, PROGRAM, "--help"], capture_output=True, text=True, check=True, env={"PYTHONPATH": SOURCES}
    )
    assert "zope.sqlalchemy has registered" in done.stdout
