"""Lets messages through one queue on PostgreSQL while its backlog stays the same, and prints what that does to it.

After each share of the messages a line tells: the messages that went through, the median time of an enqueue of one
message, the median and the 99th percentile of a dequeue, in microseconds, the server's pages that a dequeue touches,
the rate at which messages go through, in batches, and of the tables their sizes in MiB (with what is kept beside
them, and indexes), dead rows and runs of autovacuum.
The server is one of its own, without fsync and with autovacuum. The exit status is 1 where the last dequeues took more
than `--flat` times as long as the first, both held against the enqueues beside them: what else the machine does slows
down either, and only dequeues read from the head of the queue.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from postgres_server import NoServerError, durable_server

import qmadmin

_SPACE, _QUEUE = "STEADY", "work"
_SCHEMA = "qmadmin"
_BATCH = 200
_SAMPLE = 400
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
}


def main() -> int:
    """Run what the arguments ask for, and return the exit status."""
    asked = _parser().parse_args()
    settings = _SETTINGS | dict(pair.split("=", 1) for pair in asked.set)
    try:
        with durable_server(asked.directory, settings) as server:
            ratios = list(Run(asked, server.url).shares())
    except NoServerError as error:
        print(f"scripts/steady: {error}", file=sys.stderr)
        return 2
    slower = statistics.median(ratios[-3:]) / ratios[0]
    print(f"the last dequeues took {slower:.2f} times as long as the first")
    return int(slower > asked.flat)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/steady", description=__doc__)
    parser.add_argument("-n", "--messages", type=int, default=10_000_000, help="that go through (default 10000000)")
    parser.add_argument("-m", "--minutes", type=float, default=60, help="at most (default 60)")
    parser.add_argument("-b", "--backlog", type=int, default=10_000, help="messages that wait (default 10000)")
    parser.add_argument("-e", "--every", type=int, default=100_000, help="messages in a share (default 100000)")
    parser.add_argument("-s", "--size", type=int, default=200, help="bytes of a body (default 200)")
    parser.add_argument("-p", "--partitions", type=int, default=0, help="of the device (default: none)")
    parser.add_argument("--hold", action="store_true", help="with a transaction open that vacuum has to wait for")
    parser.add_argument("--flat", type=float, default=2, help="how much slower dequeues may become (default 2)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    parser.add_argument("--table", action="append", default=[], metavar="TABLE:NAME=VALUE",
                        help="a storage parameter to try")  # fmt: skip
    parser.add_argument("-d", "--directory", type=Path, default=Path("/var/tmp"),  # noqa: S108 - it is on a disk
                        help="where the server is (default /var/tmp)")  # fmt: skip
    return parser


class Run:
    """One queue with its backlog."""

    def __init__(self, asked: argparse.Namespace, url: str) -> None:
        """Take the URL of a database that has no device yet."""
        self._asked = asked
        self._url = url
        self._body = b"x" * asked.size

    def shares(self) -> Iterator[float]:
        """Let the messages through, and give for each share the time of a dequeue in that of an enqueue."""
        asked = self._asked
        self._create()
        end = time.monotonic() + asked.minutes * 60
        with (
            psycopg.connect(self._url, autocommit=True) as looker,
            self._holding(),
            qmadmin.open_device(self._url) as device,
            device.open_space(_SPACE) as space,
        ):
            for table, setting in (each.split(":") for each in asked.table):
                looker.execute(f"ALTER TABLE {_SCHEMA}.{table} SET ({setting})".encode())
            self._fill(space, asked.backlog)
            print(
                "   through  enq50us  deq50us  deq99us  pages  msgs/s  " + "  ".join(f"{name:>27}" for name in _TABLES)
            )
            through = 0
            while through < asked.messages and time.monotonic() < end:
                began = time.monotonic()
                for _ in range(asked.every // _BATCH):
                    self._fill(space, _BATCH)
                    space.dequeue_many(_QUEUE, _BATCH)
                through += asked.every
                rate = asked.every / (time.monotonic() - began)
                enqueues, dequeues = (sorted(times) for times in zip(*self._sample(space), strict=True))
                halves = statistics.median(enqueues), statistics.median(dequeues)
                line = f"{through:>10} {halves[0]:>8.0f} {halves[1]:>8.0f} {dequeues[-_SAMPLE // 100]:>8.0f}"
                print(f"{line} {_touched(looker):>6} {rate:>7.0f}  {_sizes(looker)}", flush=True)
                yield halves[1] / halves[0]

    def _create(self) -> None:
        with qmadmin.create_device(self._url, 10**9) as device:
            device.create_space(
                qmadmin.SpaceDefinition(
                    name=_SPACE, ipc_key=40000, pages=10**8, queues=2, transactions=10, processes=10, messages=10**8
                )
            )
            with device.open_space(_SPACE) as space:
                space.create_queue(qmadmin.QueueDefinition(name=_QUEUE, retries=3))

    def _fill(self, space: qmadmin.QueueSpace, count: int) -> None:
        while count > 0:
            space.enqueue_many(_QUEUE, [self._body] * min(count, _BATCH))
            count -= _BATCH

    def _sample(self, space: qmadmin.QueueSpace) -> Iterator[tuple[float, float]]:
        """Yield the microseconds that an enqueue and a dequeue of one message take."""
        for _ in range(_SAMPLE):
            began = time.perf_counter()
            space.enqueue(_QUEUE, self._body)
            between = time.perf_counter()
            space.dequeue(_QUEUE)
            yield (between - began) * 1_000_000, (time.perf_counter() - between) * 1_000_000

    @contextlib.contextmanager
    def _holding(self) -> Iterator[None]:
        """Keep a transaction open that sees all rows as they are now, where that is asked for."""
        with psycopg.connect(self._url) as holder:
            if self._asked.hold:
                holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT txid_current()")
            yield
            holder.rollback()


_TABLES = ("ready", "message", "counter")


def _touched(looker: psycopg.Connection[Any]) -> int:
    """Return how many pages a look at the head of the queue touches."""
    rows = looker.execute(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT order_key FROM qmadmin.ready WHERE queue_id ="
        " (SELECT id FROM qmadmin.queue) ORDER BY order_key LIMIT 1"
    ).fetchall()
    plan = rows[0][0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _sizes(looker: psycopg.Connection[Any]) -> str:
    looker.execute("SELECT pg_stat_clear_snapshot()")
    rows = looker.execute(
        "SELECT regexp_replace(relname, '_[0-9]+$', ''), sum(pg_table_size(relid)), sum(pg_indexes_size(relid)),"
        " sum(n_dead_tup), sum(autovacuum_count) FROM pg_stat_user_tables WHERE schemaname = %s GROUP BY 1",
        [_SCHEMA],
    ).fetchall()
    found = {row[0]: row[1:] for row in rows}
    return "  ".join(_shown(*map(int, found[name])) for name in _TABLES)


def _shown(table: int, indexes: int, dead: int, vacuums: int) -> str:
    return f"{table / 2**20:>6.1f}+{indexes / 2**20:<5.1f} {dead:>9}d {vacuums:>3}v"


if __name__ == "__main__":
    sys.exit(main())
