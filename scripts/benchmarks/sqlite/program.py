"""Measures the engine on SQLite beside the plain module sqlite3 and other queues in one file, interleaved in one run.

"raw" is what SQLite itself gives on this disk: one table with the columns of a message and one index, a write-ahead
log, synchronous=FULL, a held connection, one statement between BEGIN IMMEDIATE and COMMIT, no counters. Bodies have
1 KiB. The engine keeps all that it promises: limits, counters, thresholds, origin, order. Each row says in how many
synced commits a message is dealt with; "-" marks what is not synced, and would be lost by a power failure. Absolute
figures mean little on a shared machine; ratios of one run do.

The keys of the JSON: when, machine, options, complete (false where the minutes were over first), subjects (by name:
version, notes), results (one for each row and subject: row, title, unit, subject, durability, values, one for each
round, median, least, most, against, and ratio, ratio_least, ratio_most of the ratios of each round; null where there is
nothing to compare with).

At the end is said which rows of the engine are worse than in scripts/benchmarks/recorded/sqlite.json, beyond the spread
of both; --json with that name records another.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime as dt
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import qmadmin
from benchmarks import machine, peers_venv, recorded
from benchmarks.hosts import SubjectError, in_turn
from benchmarks.sqlite import (
    backlogs,
    chart,
    footprint,
    forwarding,
    herd,
    markdown,
    metrics,
    rates,
    recovering,
    starting,
    table,
    waking,
    working,
)
from benchmarks.sqlite.benchmark import QUICK, REQUIREMENTS, Benchmark, Numbers
from benchmarks.sqlite.rows import OURS, PER_SECOND, Row, Turn, Values


class Group(Protocol):
    """Rows that are measured by one module."""

    ROWS: tuple[Row, ...]

    def turns(self, benchmark: Benchmark, wanted: frozenset[str], /) -> Iterator[Turn]:
        """Prepare what the wanted rows need; return what is to be measured."""


GROUPS: dict[str, Group] = {
    "rates": rates,
    "backlogs": backlogs,
    "herd": herd,
    "waking": waking,
    "forwarding": forwarding,
    "working": working,
    "metrics": metrics,
    "recovering": recovering,
    "starting": starting,
    "footprint": footprint,
}
ROWS = tuple(row for group in GROUPS.values() for row in group.ROWS)


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; return the exit status: 1 where a subject failed, 2 where nothing can be run."""
    asked = _parser().parse_args(arguments)
    before = recorded.read(asked.against)
    try:
        result = recorded.read(asked.show) if asked.show else _measured(asked)
    except SubjectError as error:
        print(f"scripts/bench: nothing can be measured: {error}", file=sys.stderr)
        return 2
    if result is None:
        print(f"scripts/bench: there is no result in {asked.show}; --json writes one", file=sys.stderr)
        return 2
    print(markdown.markdown(result) if asked.markdown else table.table(result))
    if before and not asked.markdown and before["when"] != result["when"]:
        print("", *recorded.comparison(result, before, OURS, PER_SECOND), sep="\n")
    if asked.json:
        Path(asked.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if asked.chart:
        Path(asked.chart).write_text(chart.chart(result), encoding="utf-8")
    return int(any(subject["failed"] for subject in result["subjects"].values()))


def _measured(asked: argparse.Namespace) -> dict[str, Any]:
    with contextlib.ExitStack() as resources:
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=asked.directory)))
        return Run(asked, directory, resources).result()


def _parser() -> argparse.ArgumentParser:
    usual = Numbers()
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=_rows, default=[row.name for row in ROWS], metavar="NAME,NAME",
                        help="only these rows or groups of rows; see --list")  # fmt: skip
    parser.add_argument("--list", action=_List, nargs=0, help="list the groups and their rows, and end")
    parser.add_argument("-r", "--rounds", type=int, help=f"rounds of all measurements (default {usual.rounds})")
    parser.add_argument("-s", "--seconds", type=float,
                        help=f"of one measurement of a rate, at most (default {usual.seconds:g})")  # fmt: skip
    parser.add_argument("-m", "--minutes", type=float, default=8, help="begin no more after so many (default 8)")
    parser.add_argument("-d", "--directory", type=_directory, default=Path("/var/tmp"),  # noqa: S108 - it is on a disk
                        help="where the files are made (default /var/tmp); 4 GiB are needed there")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="see that it works: so little that figures mean nothing")
    parser.add_argument("--no-peers", action="store_true", help="leave the other queues out")
    parser.add_argument("--peers", type=Path, default=peers_venv.default_directory("sqlite"), metavar="DIRECTORY",
                        help="where the other queues are installed, on demand (default %(default)s)")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the result there, too")
    parser.add_argument("--chart", metavar="FILE", help="draw the ratios there, as SVG")
    parser.add_argument("--markdown", action="store_true", help="print tables for the README instead")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing; show the result that is there")
    parser.add_argument("--against", type=Path, default=recorded.DIRECTORY / "sqlite.json", metavar="FILE",
                        help="the result to compare with (default: the recorded one)")  # fmt: skip
    return parser


def _rows(text: str) -> list[str]:
    """Return the names of rows: those that were asked for, and those that they are compared with."""
    found: list[str] = []
    for name in text.split(","):
        if name in GROUPS:
            found += [row.name for row in GROUPS[name].ROWS]
        elif any(row.name == name for row in ROWS):
            found.append(name)
        else:
            raise argparse.ArgumentTypeError(f"no such row or group: {name}; scripts/bench --list names them")
    bars = [row.against[0] for row in ROWS if row.name in found and row.against]
    return found + bars


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"no such directory: {text}; name one that is on a disk")
    return Path(text)


class _List(argparse.Action):
    def __call__(self, *_: object, **__: object) -> None:
        for name, group in GROUPS.items():
            print(name)
            for row in group.ROWS:
                print(f"    {row.name:20}{row.title.strip()}")
        sys.exit()


class Run:
    """One run of everything that was asked for."""

    def __init__(self, asked: argparse.Namespace, directory: Path, resources: contextlib.ExitStack) -> None:
        """Look at the machine, and find the interpreter of the peers."""
        self._end: float = time.monotonic() + asked.minutes * 60
        self._wanted = frozenset(asked.rows)
        numbers = QUICK if asked.quick else Numbers()
        given = {name: getattr(asked, name) for name in ("rounds", "seconds") if getattr(asked, name) is not None}
        self._numbers = dataclasses.replace(numbers, **given)
        self._values = Values(ROWS)
        self._head: dict[str, Any] = {
            "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": machine.description() | {"file_system": machine.file_system(directory)},
            "options": dataclasses.asdict(self._numbers),
        }
        self._notes: dict[str, str] = {}
        self._benchmark = Benchmark(self._numbers, directory, self._peers(asked), resources)

    def result(self) -> dict[str, Any]:
        """Measure, and return what is written as JSON."""
        # All is laid out before anything is measured, so that no measurement finds what others have left.
        turns = [turn for group in GROUPS.values() for turn in group.turns(self._benchmark, self._wanted)]
        rounds = range(self._numbers.rounds)
        complete = all(self._round(turns, number) for number in rounds)
        for turn in turns:
            if turn.last:
                self._take(turn, 0)
        self._head["machine"]["load_after"] = round(os.getloadavg()[0], 2)
        return {**self._head, "complete": complete, "subjects": self._subjects(), "results": self._values.results()}

    def _peers(self, asked: argparse.Namespace) -> str:
        """Return the interpreter of the peers, or "" where they are left out."""
        if asked.no_peers:
            return ""
        try:
            return peers_venv.interpreter(asked.peers, REQUIREMENTS)
        except peers_venv.NoPeersError as error:
            self._notes["other queues"] = f"left out: {error}"
            return ""

    def _round(self, turns: Sequence[Turn], number: int) -> bool:
        """Take all turns of a round; return whether that was done before the time was over."""
        if sys.stderr.isatty():
            print(f"round {number + 1} of {self._numbers.rounds}", file=sys.stderr)
        for turn in turns:
            if number < turn.rounds and not turn.last:
                if time.monotonic() > self._end:
                    return False
                self._take(turn, number)
        return True

    def _take(self, turn: Turn, number: int) -> None:
        for task in in_turn(turn.tasks, number):
            try:
                self._values.add(number, task, task.measure())
            except (SubjectError, qmadmin.QueueError) as error:
                self._values.fail(task, str(error))

    def _subjects(self) -> dict[str, Any]:
        failures = self._values.failures
        found = {
            name: {"version": version, "note": "; ".join(failures.get(name, [])), "failed": name in failures}
            for name, version in self._benchmark.versions.items()
        }
        absent = {name: f"left out: {why}" for name, why in self._benchmark.missing.items()} | self._notes
        return found | {name: {"version": "", "note": note, "failed": False} for name, note in absent.items()}
