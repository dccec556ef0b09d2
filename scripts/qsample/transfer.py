"""Money moves from one bank to another, with a receipt as a message, and workers are killed on the way.

    transfer.py DEVICE FILE URL [--kills N]

One bank is a file of SQLite, which cannot prepare a transaction and so decides; the other one is a database of
PostgreSQL, whose server has to allow prepared transactions (max_prepared_transactions). The receipts are in a queue
space of the device. Nothing of it may be there yet, and all of it is removed in the end, but for the two files.

A worker moves one unit in each transaction: out of the one bank, into the other one, and a receipt. It is killed after
a random time, and the next one begins by recovery. In the end nothing is lost and nothing is there twice: what both
banks have is what was there in the beginning, and there are as many receipts as units that have moved.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import psycopg

import qmadmin

South: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

SPACE, QUEUE = "BANKS", "RECEIPTS"
MONEY = 100_000
LONGEST = 0.5
"""Seconds that a worker lives at most."""


def main() -> int:
    """Lay all out, have workers move money and die, and count."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", metavar="DEVICE")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--kills", type=int, default=10, metavar="N")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.device, given.file, given.url)
    lay_out(given.device, given.file, given.url)
    try:
        for _ in range(given.kills):
            kill_one(given.device, given.file, given.url)
        return count(given.device, given.file, given.url)
    finally:
        with contextlib.closing(psycopg.connect(given.url)) as south:
            south.execute("DROP TABLE account")
            south.commit()


def lay_out(device: str, file: str, url: str) -> None:
    """Make the queue, and an account in each bank; the one that decides has a table for decisions."""
    with qmadmin.create_device(device) as made:
        made.create_space(SPACE)
        with made.open_space(SPACE) as space:
            space.create_queue(QUEUE)
    with contextlib.closing(sqlite3.connect(file)) as north, contextlib.closing(psycopg.connect(url)) as south:
        north.execute("PRAGMA journal_mode = WAL")
        north.execute("CREATE TABLE account (money INTEGER NOT NULL)")
        north.execute("INSERT INTO account VALUES (?)", [MONEY])
        qmadmin.create_decision_table(north)
        north.commit()
        south.execute("CREATE TABLE account (money INTEGER NOT NULL)")
        south.execute("INSERT INTO account VALUES (0)")
        south.commit()


@contextlib.contextmanager
def at_work(device: str, file: str, url: str) -> Iterator[tuple[qmadmin.QueueSpace, sqlite3.Connection, South]]:
    """Give the queue space and a connection to each bank."""
    with (
        qmadmin.open_device(device) as opened,
        opened.open_space(SPACE) as space,
        contextlib.closing(sqlite3.connect(file)) as north,
        contextlib.closing(psycopg.connect(url)) as south,
    ):
        yield space, north, south


def work(device: str, file: str, url: str) -> None:
    """Move money until somebody kills this process."""
    with at_work(device, file, url) as (space, north, south):
        qmadmin.recover(north, south)
        print("at work", flush=True)
        while True:
            with qmadmin.transaction(space, north, south):
                north.execute("UPDATE account SET money = money - 1")
                south.execute("UPDATE account SET money = money + 1")
                space.enqueue(QUEUE, "one unit has moved")


def kill_one(device: str, file: str, url: str) -> None:
    """Start a worker, and kill it in the middle of whatever it does."""
    command = [sys.executable, __file__, device, file, url, "--worker"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(random.uniform(0, LONGEST))  # noqa: S311 - no secret
        worker.kill()


def count(device: str, file: str, url: str) -> int:
    """End what the last worker has left in doubt, print what there is, and return whether it does not add up."""
    with at_work(device, file, url) as (space, north, south):
        while qmadmin.recover(north, south):
            # What the server still does for a worker that is dead.
            time.sleep(0.1)
        left = int(north.execute("SELECT money FROM account").fetchone()[0])
        moved = int((south.execute("SELECT money FROM account").fetchone() or [0])[0])
        receipts = space.usage(QUEUE).messages
    print(f"{moved} units have moved, {left} are left, and there are {receipts} receipts")
    return int(left + moved != MONEY or receipts != moved)


if __name__ == "__main__":
    sys.exit(main())
