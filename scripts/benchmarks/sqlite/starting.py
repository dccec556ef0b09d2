"""How long it takes until something can be done: devices are opened, programs are started, a layout is made."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.engine import SPACE
from benchmarks.hosts import SubjectError
from benchmarks.sqlite.benchmark import Benchmark
from benchmarks.sqlite.child_process import begun, run_child, told
from benchmarks.sqlite.rows import OURS, RAW, Row, Task, Turn

OPEN = (
    Row("open", "open a device with 1,000,000 messages, modules loaded", "ms"),
    Row("open_killed", "open it after kill -9 of a process at work, and dequeue", "ms"),
)
PROGRAM = (
    Row("version", "qmadmin --version", "ms"),
    Row("lidl", "qmadmin -c lidl", "ms"),
    Row("prompt", "qmadmin, to the first prompt", "ms"),
)
LAYOUT = Row("qcreate", "1,000 qcreate from one file, raw: as many inserts", "s")
ROWS: tuple[Row, ...] = (*OPEN, *PROGRAM, LAYOUT)

_KILLED_AFTER = 100
"""Operations of a process before it is killed."""

_QMADMIN = str(Path(sys.executable).with_name("qmadmin"))


def turns(benchmark: Benchmark, wanted: frozenset[str]) -> Iterator[Turn]:
    """Lay out what is opened; return what is to be measured."""
    if not wanted & {row.name for row in ROWS}:
        return
    small = benchmark.device("small")
    opening = {"open": _open, "open_killed": _open_killed}
    for row in OPEN:
        if row.name in wanted:
            yield Turn([_task(OURS, row, opening[row.name], small, benchmark.stored)])
    programs: dict[str, Callable[[str], float]] = {
        "version": lambda _: _seconds(_QMADMIN, "--version"),
        "lidl": lambda path: _seconds(_QMADMIN, path, "-c", "lidl"),
        "prompt": _until_prompt,
    }
    for row in PROGRAM:
        if row.name in wanted:
            python = _task("python -c pass", row, lambda _: _milliseconds(_seconds(sys.executable, "-c", "pass")), "")
            yield Turn(
                [python, _task(OURS, row, lambda path, take: _milliseconds(take(path)), small, programs[row.name])]
            )
    if LAYOUT.name in wanted:
        yield Turn(list(_layouts(benchmark)))


def _task(subject: str, row: Row, take: Callable[..., float], *arguments: object, durability: str = "") -> Task:
    return Task(subject, durability, lambda: {row.name: take(*arguments)})


def _milliseconds(seconds: float) -> float:
    return seconds * 1000


def _open(small: str, path: str) -> float:
    return run_child("open_device", small, path, "no")["milliseconds"]


def _open_killed(small: str, path: str) -> float:
    with begun("work_until_killed", path, _KILLED_AFTER) as output:
        told(output)
    return run_child("open_device", small, path, "yes")["milliseconds"]


def _seconds(*command: str) -> float:
    """Return how long a program takes from its start to its end."""
    began = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        raise SubjectError(f"{' '.join(command)} has ended with status {done.returncode}: {done.stderr.strip()}")
    return took


def _until_prompt(path: str) -> float:
    """Return how long the shell takes on a terminal until it asks for a command."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm"
        os.execv(_QMADMIN, [_QMADMIN, path])  # noqa: S606 - a program of ours
    seen = b""
    try:
        while b"> " not in seen:
            seen += os.read(terminal, 4096)
        took = time.perf_counter() - began
        os.write(terminal, b"quit\r")
        _read_to_the_end(terminal)
    except OSError as error:
        raise SubjectError(f"qmadmin has ended without a prompt: {seen.decode(errors='replace')}") from error
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return took


def _read_to_the_end(terminal: int) -> None:
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        # What Linux says where the other side of a terminal is closed.
        return


def _layouts(benchmark: Benchmark) -> Iterator[Task]:
    """Return the tasks that create queues, each time on another device, and commit as often without an engine."""
    count = benchmark.numbers.queues
    raw = benchmark.subject(RAW)
    if raw is not None:
        path = benchmark.attended(raw)

        def inserts() -> float:
            done = raw.ask("measure", path, producers=1, consumers=0, operations=count, seconds=60)
            return float(done["seconds"])

        yield _task(RAW, LAYOUT, inserts, durability="1,000 synced commits")
    made = iter(range(1_000_000))

    def creates() -> float:
        device = benchmark.device(f"layout{next(made)}")
        script = Path(device).with_name("layout.qm")
        lines = [f"qcreate queue{number} fifo none 2 30 80% 0% ''" for number in range(count)]
        script.write_text("\n".join([f"qopen {SPACE}", *lines, ""]))
        return _seconds(_QMADMIN, device, "-f", str(script), "--stop-on-error")

    yield _task(OURS, LAYOUT, creates, durability="1,000 synced commits")
