"""Measures the engine on PostgreSQL beside a hand-written loop and three other queues, interleaved in one run.

The hand-written loop is what PostgreSQL itself gives on this disk: one table, DELETE ... FOR UPDATE SKIP LOCKED, one
statement a commit. Every client is a process with one connection. Every commit is synced to the disk before it returns.
In the rows of workers each subject's own worker calls a function that does nothing, with one message in each
transaction and so many calls at a time, or with so many messages in one transaction; or it dies in a call by SIGKILL,
and the messages are counted with which neither it nor the next worker is done when that finds nothing more.
procrastinate leaves them marked as taken, to a job of one's own; pgqueuer takes them again after 30 seconds.
Absolute figures mean little on a shared machine; ratios of one run do.

The keys of the JSON: when, machine, server, options, complete (false where the minutes were over first), subjects (by
name: version, note, failed; a note tells why it was not measured), results (one for each measure, number of clients and
subject: measure, title, clients, subject, durability, rates, median, least, most, ratio; rates are operations or
messages per second, one for each round; the ratio is to the hand-written loop, the median of the ratios of each round,
or null where that was not measured).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from postgres_server import NoServerError, durable_server

from benchmarks import machine, peers_venv, recorded, report
from benchmarks.hosts import SubjectError
from benchmarks.measuring import MEASURES, DatabaseHost, Measure, Measurements, database, interleaved

SUBJECTS = {
    "hand-written": "benchmarks.hand_written:Measured",
    "qmadmin": "benchmarks.engine:Measured",
    "procrastinate": "benchmarks.procrastinate_peer:Measured",
    "pgqueuer": "benchmarks.pgqueuer_peer:Measured",
    "pgmq": "benchmarks.pgmq_peer:Measured",
}
"""Where the subjects are. The first is the one that the others are compared with."""

PEERS = ("procrastinate", "pgqueuer", "pgmq")
REQUIREMENTS = (
    "procrastinate>=3,<4", "pgqueuer>=1,<2", "pgmq>=1.1.4,<2", "psycopg[binary]>=3.2,<4", "asyncpg>=0.30,<1",
)  # fmt: skip
"""What the peers need, which the project does not have."""

BAR = next(iter(SUBJECTS))
_SETTINGS = {
    "max_connections": "300",
    "max_prepared_transactions": "100",
    "shared_buffers": "256MB",
    # No checkpoint falls into one measurement and not into its neighbour.
    "max_wal_size": "4GB",
    "checkpoint_timeout": "1h",
}
_SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; return the exit status: 1 where a subject failed, 2 where nothing can be run."""
    asked = _parser().parse_args(arguments)
    if asked.show and not asked.show.exists():
        print(f"scripts/bench: there is no result in {asked.show}; --json writes one", file=sys.stderr)
        return 2
    try:
        result = recorded.read(asked.show) if asked.show else None
        if result is None:
            with _server(asked) as (url, place):
                result = Run(asked, url, place).result()
    except (NoServerError, psycopg.OperationalError) as error:
        print(f"scripts/bench: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(report.markdown(result) if asked.markdown else report.table(result))
    if asked.json:
        Path(asked.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return int(any(subject["failed"] for subject in result["subjects"].values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench postgres", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="a server to use, as libpq names it; databases are made there and dropped")
    parser.add_argument("-d", "--directory", type=Path, default=Path("/var/tmp"),  # noqa: S108 - it is on a disk
                        help="where a server of its own keeps its data (default /var/tmp)")  # fmt: skip
    parser.add_argument("-c", "--clients", type=_numbers, default=[1, 4, 16, 32], metavar="N,N",
                        help="numbers of clients (default 1,4,16,32)")  # fmt: skip
    parser.add_argument("-n", "--operations", type=int, default=2000, help="in one measurement (default 2000)")
    parser.add_argument("-s", "--seconds", type=float, default=1, help="at most, for one measurement (default 1)")
    parser.add_argument("-r", "--rounds", type=int, default=3, help="rounds of all measurements (default 3)")
    parser.add_argument("-m", "--minutes", type=float, default=8, help="begin nothing after so many (default 8)")
    parser.add_argument("-b", "--backlog", type=int, default=100_000, help="messages of backlog (default 100000)")
    parser.add_argument("--subjects", type=_subjects, default=list(SUBJECTS), metavar="NAME,NAME",
                        help=f"which of {', '.join(SUBJECTS)} (default: all)")  # fmt: skip
    parser.add_argument("--measures", type=_measures, default=list(MEASURES), metavar="NAME,NAME",
                        help=f"which of {', '.join(each.name for each in MEASURES)} (default: all)")  # fmt: skip
    parser.add_argument("--peers", type=Path, default=peers_venv.default_directory("postgres"), metavar="DIRECTORY",
                        help="where the other queues are installed, on demand (default %(default)s)")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the result there, too")
    parser.add_argument("--markdown", action="store_true", help="print a table for the README instead")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing; show the result that is there")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _measures(text: str) -> list[Measure]:
    names = text.split(",")
    if unknown := set(names) - {each.name for each in MEASURES}:
        raise argparse.ArgumentTypeError(f"no such measure: {', '.join(sorted(unknown))}")
    return [each for each in MEASURES if each.name in names]


def _subjects(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(SUBJECTS):
        raise argparse.ArgumentTypeError(f"no such subject: {', '.join(sorted(unknown))}")
    return names


@contextlib.contextmanager
def _server(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Give the URL of a server, and where it keeps its data, for people."""
    if asked.url:
        yield asked.url, "given by its URL"
        return
    kind = machine.file_system(asked.directory)
    if kind in machine.IN_MEMORY:
        raise NoServerError(f"{asked.directory} is in memory, where nothing is durable; name a directory on a disk")
    with durable_server(asked.directory, _SETTINGS) as server:
        yield server.url, f"in {asked.directory} ({kind or 'unknown file system'})"


class Run:
    """One run of everything that was asked for."""

    def __init__(self, asked: argparse.Namespace, url: str, place: str) -> None:
        """Look at the machine and at the server."""
        self._asked = asked
        self._url = url
        self._end: float = time.monotonic() + asked.minutes * 60
        self._hosts: list[DatabaseHost] = []
        self._measurements = Measurements(asked.operations, asked.backlog, asked.seconds)
        self._subjects: dict[str, dict[str, Any]] = {}
        self._head: dict[str, Any] = {
            "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": machine.description(),
            "server": _described(url, place),
            "options": {
                name: getattr(asked, name) for name in ("clients", "operations", "seconds", "rounds", "backlog")
            },
        }

    def result(self) -> dict[str, Any]:
        """Measure, and return what is written as JSON."""
        with contextlib.ExitStack() as resources:
            for name in self._asked.subjects:
                self._set_up(name, resources)
            kinds, clients, rounds = self._asked.measures, self._asked.clients, self._asked.rounds
            complete = interleaved(self._hosts, kinds, clients, rounds, self._measure, self._is_over)
            rows = self._measurements.results(self._hosts, BAR)
        self._head["machine"]["load_after"] = round(os.getloadavg()[0], 2)
        order = {name: number for number, name in enumerate(self._asked.subjects)}
        rows.sort(key=lambda row: order[row["subject"]])
        return {**self._head, "complete": complete, "subjects": self._subjects, "results": rows}

    def _is_over(self) -> bool:
        return time.monotonic() > self._end

    def _set_up(self, name: str, resources: contextlib.ExitStack) -> None:
        """Start a subject and lay out its databases; one that cannot be had is left out, and the result says why."""
        self._subjects[name] = {"version": "", "note": "", "failed": False}
        try:
            python = peers_venv.interpreter(self._asked.peers, REQUIREMENTS) if name in PEERS else sys.executable
            host = resources.enter_context(DatabaseHost(name, python, SUBJECTS[name]))
            self._subjects[name]["version"] = host.facts["version"]
            prefix = f"qmadmin_bench_{os.getpid()}_{name}"
            host.url = resources.enter_context(database(self._url, prefix))
            host.deep_url = resources.enter_context(database(self._url, f"{prefix}_deep"))
            resources.enter_context(database(self._url, f"{prefix}_application"))
            for url in (host.url, host.deep_url):
                host.ask("set_up", url)
        except (peers_venv.NoPeersError, SubjectError) as error:
            self._subjects[name]["note"] = f"left out: {error}"
            return
        self._hosts.append(host)

    def _measure(self, host: DatabaseHost, measure: Measure, clients: int) -> None:
        subject = self._subjects[host.name]
        if subject["failed"]:
            return
        try:
            self._measurements.measure(host, measure, clients)
        except SubjectError as error:
            subject["failed"] = True
            subject["note"] = f"failed: {measure.name}, {clients} clients: {error}"
            self._measurements.forget(host.name)


def _described(url: str, place: str) -> dict[str, Any]:
    with psycopg.connect(url) as connection:
        settings = {}
        for name in _SHOWN:
            row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
            settings[name] = row[0] if row else ""
        version = connection.info.parameter_status("server_version") or ""
    return {"version": version.split()[0], "place": place, "settings": settings}
