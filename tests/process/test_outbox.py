"""The example of a transactional outbox and inbox does what it says, on a file and on PostgreSQL."""

import os
import subprocess
import sys

import pytest

from tests.fix_postgres import database_of
from tests.fix_store import ROOT, SOURCES, device_path

PROGRAM = ROOT / "scripts" / "qsample" / "outbox.py"


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_messages_stand_and_fall_with_the_tables_of_the_application(kind, request, tmp_path):
    place = device_path(kind, request, tmp_path)
    done = subprocess.run(
        [sys.executable, PROGRAM, place],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCES},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "an order was placed: orders 1, messages 1, bills 0",
        "the same order was refused: orders 1, messages 1, bills 0",
        "its bill was cut short: orders 1, messages 1, bills 0",
        "it was billed: orders 1, messages 0, bills 1",
    ]
    if kind == "postgres":
        import psycopg

        with psycopg.connect(database_of(place)[0]) as connection:
            assert connection.execute("SELECT to_regclass('shop_order'), to_regclass('shop_bill')").fetchone() == (
                None,
                None,
            )


def test_it_tells_what_it_does():
    done = subprocess.run(
        [sys.executable, PROGRAM, "--help"], capture_output=True, text=True, check=True, env={"PYTHONPATH": SOURCES}
    )
    assert "transactional outbox and inbox" in done.stdout
