"""Moves millions of messages to another device by the program qmspark, and proves that all of them are there.

Of the messages 99 in 100 stand in one queue, the others in ten. They are exported, verified, imported into a new device
and compared with it, message by message, each by a call of qmspark as an administrator makes it. Of each call is told
how long it took, and how much memory the largest of its processes had at most; 1,000,000 messages take minutes, so that
this is for the night. The exit status is 1 where the two devices differ, or a process had more memory than is allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import qmadmin
from benchmarks import machine
from qmcore.queue import QueueDefinition
from qmcore.space import SpaceDefinition

SPACE, LARGE = "MILLIONS", "LARGE"
_SMALL_QUEUES = tuple(f"SMALL{number}" for number in range(10))
_AT_A_TIME = 2000
_MIB = 2**20


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench millions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--messages", type=int, default=1_000_000, help="messages that are moved (1000000)")
    parser.add_argument("-b", "--bytes", type=int, default=1024, help="bytes of each body (1024)")
    parser.add_argument("-m", "--memory", type=int, default=512, help="MiB that a process may have (512)")
    parser.add_argument("-d", "--directory", help="where the files are made (default: the system's temporary files)")
    parser.add_argument("--master", help="work on Spark there, such as local[2], instead of by processes")
    parser.add_argument("--json", metavar="FILE", help="write the result there, too")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
        result = _result(Path(directory), asked)
    print(_table(result))
    if asked.json:
        Path(asked.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if result["same"] and all(call["memory"] <= asked.memory * _MIB for call in result["calls"]) else 1


def _result(place: Path, asked: argparse.Namespace) -> dict[str, Any]:
    box = machine.description()
    source, archive, target = place / "source", place / "archive", place / "target"
    _fill(source, asked.messages, asked.bytes)
    pages = _pages(asked.messages, asked.bytes)
    with qmadmin.create_device(target, 2 * pages):
        pass
    spark = ["--master", asked.master] if asked.master else []
    calls = [
        _called(what, [command, *map(str, places), *spark], asked.messages)
        for what, command, *places in (
            ("export", "export", source, archive),
            ("verify", "verify", archive),
            ("import", "import", archive, target),
            ("verify and compare", "verify", archive, target),
        )
    ]
    return {
        "machine": box | {"load_after": round(os.getloadavg()[0], 2)},
        "options": {"messages": asked.messages, "bytes": asked.bytes, "master": asked.master},
        "calls": calls,
        "archive": sum(path.stat().st_size for path in archive.iterdir()),
        "same": all(call["status"] == 0 for call in calls),
    }


def _called(what: str, arguments: list[str], messages: int) -> dict[str, Any]:
    """Call qmspark; tell how long that took, and the most memory that one of its processes had."""
    began = time.monotonic()
    program = [sys.executable, "-m", "qmadmin.spark.program", *arguments, "--quiet"]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
    # Of the process and of those that it has waited for.
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    return {
        "what": what,
        "status": process.returncode,
        "seconds": seconds,
        "rate": messages / seconds,
        "memory": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


def _fill(path: Path, messages: int, size: int) -> None:
    pages = _pages(messages, size)
    with qmadmin.create_device(path, pages + 1000) as device:
        device.create_space(
            SpaceDefinition(
                name=SPACE,
                ipc_key=40_000,
                pages=pages,
                queues=len(_SMALL_QUEUES) + 1,
                transactions=100,
                processes=100,
                messages=messages + 1000,
            )
        )
        with device.open_space(SPACE) as space:
            small = messages // 100 // len(_SMALL_QUEUES)
            amounts = dict.fromkeys(_SMALL_QUEUES, small) | {LARGE: messages - small * len(_SMALL_QUEUES)}
            for queue, amount in amounts.items():
                space.create_queue(QueueDefinition(name=queue))
                for done in range(0, amount, _AT_A_TIME):
                    # Bodies that cannot be compressed, as encrypted or compressed ones.
                    space.enqueue_many(queue, [os.urandom(size) for _ in range(min(_AT_A_TIME, amount - done))])


def _pages(messages: int, size: int) -> int:
    return messages * -(-(size + 256) // 4096) * 2 + 10_000


def _table(result: dict[str, Any]) -> str:
    box, options = result["machine"], result["options"]
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    amount = f"{options['messages']:,} messages of {options['bytes']} bytes, 99 of 100 in one queue"
    lines = [
        machine.sentence(box),
        f"{amount}, archive of {result['archive'] / _MIB:,.0f} MiB; this program itself had {own} MiB",
        f"  {'':20}{'seconds':>9}{'messages/s':>12}{'MiB of memory':>15}",
    ]
    lines += [
        f"  {call['what']:20}{call['seconds']:9.1f}{call['rate']:12,.0f}{call['memory'] / _MIB:15,.0f}"
        + ("" if call["status"] == 0 else f"  ended with status {call['status']}")
        for call in result["calls"]
    ]
    lines.append("source and target are the same" if result["same"] else "SOURCE AND TARGET ARE NOT THE SAME")
    return "\n".join(lines)
