"""Measures the engine beside the plain sqlite3 module, interleaved in one run, and prints medians and ratios.

"raw" is what SQLite itself gives on this disk: one table with message columns and one index, WAL, synchronous=FULL, a
held connection, one statement between BEGIN IMMEDIATE and COMMIT. Absolute figures mean little on a shared machine;
ratios of one run do. PostgreSQL has a benchmark of its own: scripts/bench postgres --help
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import qmadmin
from qmcore.message import PLAIN_CONTROL, EnqueueControl
from qmcore.times import MICROS

BODY = bytes(1024)
_SMALL = bytes(64)


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("-n", "--operations", type=int, default=1000, help="operations in one round (default 1000)")
    parser.add_argument("-r", "--rounds", type=int, default=5, help="rounds of all measurements (default 5)")
    parser.add_argument("-d", "--directory", help="where the files are made (default: the system's temporary files)")
    parser.add_argument(
        "--stored",
        type=int,
        metavar="MESSAGES",
        help="measure instead how a dequeue depends on what is stored, up to this many messages in a queue",
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
        if asked.stored:
            _measure_stored(Path(directory), asked.operations, asked.rounds, asked.stored)
            return
        _measure(Path(directory), asked.operations, asked.rounds)
    _measure_start()


def _measure(directory: Path, operations: int, rounds: int) -> None:
    raw = Raw(directory / "raw")
    engine = Engine(directory / "QUE", operations * 4)
    work: list[tuple[str, str, Callable[[], None]]] = [
        ("raw insert", "", raw.insert),
        ("enqueue", "raw insert", engine.enqueue),
        ("raw delete", "", raw.delete),
        ("dequeue", "raw delete", engine.dequeue),
        ("(enqueue again)", "", engine.enqueue),
        ("transaction: dequeue, enqueue a reply", "raw insert", engine.reply),
    ]
    rates: dict[str, list[float]] = {name: [] for name, _, _ in work}
    for _ in range(rounds):
        for name, _, operation in work:
            start = time.perf_counter()
            for _ in range(operations):
                operation()
            rates[name].append(operations / (time.perf_counter() - start))
        engine.drain()
    engine.close()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    print(f"{'operations of 1 KiB, durable, one at a time':45} {'per second':>10} {'spread':>13} {'ratio':>6}")
    for name, against, _ in work:
        if not name.startswith("("):
            spread = f"{min(rates[name]):.0f}-{max(rates[name]):.0f}"
            ratio = f"{medians[name] / medians[against]:.2f}" if against else ""
            print(f"{name:45} {medians[name]:10.0f} {spread:>13} {ratio:>6}")


def _measure_stored(directory: Path, operations: int, rounds: int, most: int) -> None:
    """Measure dequeues from queues that differ in what they hold; each message is replaced after it was dequeued."""
    stored = Stored(directory / "QUE", most)
    rates: dict[str, list[float]] = {name: [] for name in stored.names}
    for _ in range(rounds):
        for name in stored.names:
            taken = 0.0
            for _ in range(operations):
                start = time.perf_counter()
                stored.dequeue(name)
                taken += time.perf_counter() - start
                stored.enqueue(name)
            rates[name].append(operations / taken)
    stored.close()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    print(f"{'dequeue, durable, one at a time, from':45} {'per second':>10} {'spread':>13} {'ratio':>6}")
    for name in stored.names:
        spread = f"{min(rates[name]):.0f}-{max(rates[name]):.0f}"
        print(f"{name:45} {medians[name]:10.0f} {spread:>13} {medians[name] / medians[stored.names[0]]:6.2f}")


def _measure_start() -> None:
    programs = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import qmadmin'": [sys.executable, "-c", "import qmadmin"],
        "qmadmin --version": [str(Path(sys.executable).with_name("qmadmin")), "--version"],
        "qmadmin, first command on a device": [str(Path(sys.executable).with_name("qmadmin")), "QUE"],
    }
    print(f"\n{'start-up':45} {'ms':>10}")
    with tempfile.TemporaryDirectory() as directory:
        qmadmin.create_device(Path(directory) / "QUE", 100).close()
        for name, command in programs.items():
            times = []
            for _ in range(7):
                start = time.perf_counter()
                subprocess.run(command, check=True, cwd=directory, input=b"lidl\n", stdout=subprocess.DEVNULL)
                times.append(time.perf_counter() - start)
            print(f"{name:45} {statistics.median(times) * 1000:10.0f}")


class Raw:
    """What SQLite gives without an engine."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE message (id INTEGER PRIMARY KEY, queue INT, key BLOB, priority INT, at INT, expiry INT, body)"
        )
        self._connection.execute("CREATE INDEX ready ON message (queue, key)")
        self._sequence = 0

    def insert(self) -> None:
        """Insert one row in a transaction of its own."""
        self._sequence += 1
        self._run(
            "INSERT INTO message (queue, key, priority, at, body) VALUES (1, ?, 50, 0, ?)",
            self._sequence.to_bytes(8),
            BODY,
        )

    def delete(self) -> None:
        """Delete the first row in a transaction of its own, and read it."""
        self._run(
            "DELETE FROM message WHERE id = (SELECT id FROM message WHERE queue = 1 ORDER BY key LIMIT 1) RETURNING *"
        )

    def _run(self, statement: str, *values: object) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(statement, values).fetchall()
        self._connection.execute("COMMIT")


class Engine:
    """The engine, everything that it promises switched on."""

    def __init__(self, path: Path, messages: int) -> None:
        self._device = qmadmin.create_device(path, 4 * messages)
        self._device.create_space(
            qmadmin.SpaceDefinition(
                name="BENCH",
                ipc_key=40000,
                pages=3 * messages,
                queues=2,
                transactions=10,
                processes=10,
                messages=2 * messages,
                error_queue="errors",
            )
        )
        self._space = self._device.open_space("BENCH")
        for name in ("requests", "replies"):
            self._space.create_queue(qmadmin.QueueDefinition(name=name, retries=3))

    def enqueue(self) -> None:
        """Enqueue one message."""
        self._space.enqueue("requests", BODY)

    def dequeue(self) -> None:
        """Dequeue one message."""
        assert self._space.dequeue("requests") is not None

    def reply(self) -> None:
        """Dequeue a request and enqueue its reply in one transaction."""
        with self._space.transaction():
            request = self._space.dequeue("requests")
            assert request is not None
            self._space.enqueue("replies", BODY, corrid=request.msgid)

    def drain(self) -> None:
        """Empty both queues."""
        for name in ("requests", "replies"):
            while self._space.dequeue(name) is not None:
                pass

    def close(self) -> None:
        """Close the device."""
        self._device.close()


class Stored:
    """Queues of one queue space that hold few and many messages, ready and delayed."""

    _AT_A_TIME = 1000

    def __init__(self, path: Path, most: int) -> None:
        few, middle = 10, most // 100
        holds = {
            f"a queue of {few:,}": few,
            f"a queue of {middle:,}": middle,
            f"a queue of {most:,}": most,
            f"behind {most:,} that are delayed": few,
        }
        self.names = list(holds)
        pages = 3 * most + 100_000
        self._device = qmadmin.create_device(path, pages + 1000)
        self._device.create_space(
            qmadmin.SpaceDefinition(
                name="STORED",
                ipc_key=40000,
                pages=pages,
                queues=len(holds),
                transactions=10,
                processes=10,
                messages=pages,
            )
        )
        self._space = self._device.open_space("STORED")
        for name, count in holds.items():
            self._space.create_queue(qmadmin.QueueDefinition(name=name))
            self._fill(name, count, PLAIN_CONTROL)
        self._fill(self.names[-1], most, EnqueueControl(delay=86_400 * MICROS))

    def dequeue(self, name: str) -> None:
        """Dequeue one message."""
        assert self._space.dequeue(name) is not None

    def enqueue(self, name: str) -> None:
        """Enqueue one message."""
        self._space.enqueue(name, _SMALL)

    def close(self) -> None:
        """Close the device."""
        self._device.close()

    def _fill(self, name: str, count: int, control: EnqueueControl) -> None:
        for done in range(0, count, self._AT_A_TIME):
            self._space.enqueue_many(name, [_SMALL] * min(self._AT_A_TIME, count - done), control)
