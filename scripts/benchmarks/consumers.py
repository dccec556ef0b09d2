"""Measures queues for several consumers beside queues for one, on SQLite and on PostgreSQL, interleaved in one run.

Each row is a ratio of times for the same number of operations, 1 KiB each: what stands behind "to" is 1. It is told of
the wall and of the processors' time, which the clients take and, on PostgreSQL, the server; less is better. All rounds
measure both next to each other, so that what disturbs the machine disturbs both; the ratio is the median of the rounds.
"Deliveries" count a message once for each consumer. Every commit is durable, but for the rows that say otherwise.

The keys of the JSON: when, machine, options, results (one for each row: store, title, rounds (the ratios of each),
wall, processors).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final, NamedTuple

from postgres_server import NoServerError, Server, durable_server

import qmadmin
from benchmarks import machine
from benchmarks.subject import BODY
from qmcore.message import EnqueueControl

SPACE: Final = "BENCH"
FEW, MANY = 10, 100
WARM_UPS: Final = 5
_PAGES: Final = 400_000
_COPIES: Final = [(f"own{at}", BODY, EnqueueControl()) for at in range(FEW)]
_SUBSCRIBED: Final = {"one": 1, "ten": FEW, "hundred": MANY}
_SETTINGS: Final = {"shared_buffers": "256MB", "max_wal_size": "4GB", "checkpoint_timeout": "1h"}
_TICK: Final = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Seconds that something took."""

    wall: float
    processors: float


class Place(NamedTuple):
    """A device that is measured; `server` is the process of the server that it is on."""

    name: str
    url: str
    space: qmadmin.QueueSpace
    server: int | None


Work = Callable[[Place, int], Cost]


class Row(NamedTuple):
    """Two works that are compared, and which part of the operations that were asked for they do.

    `weight` is what the ratio of times is divided by: how much more the first one does.
    """

    title: str
    work: Work
    bar: Work
    part: float = 1
    weight: float = 1
    relaxed: bool = False


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; return the exit status: 2 where nothing can be run."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench consumers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-d", "--directory", type=Path, default=Path("/var/tmp"),  # noqa: S108 - it is on a disk
                        help="where the file and the server are made (default /var/tmp)")  # fmt: skip
    parser.add_argument("-n", "--operations", type=int, default=300, help="in one measurement (default 300)")
    parser.add_argument("-r", "--rounds", type=int, default=5, help="rounds of all measurements (default 5)")
    parser.add_argument("-m", "--minutes", type=float, default=10, help="begin no round after so many (default 10)")
    parser.add_argument("--stores", default="sqlite,postgres", help="which of them (default sqlite,postgres)")
    parser.add_argument("--rows", default="", metavar="WORDS", help="only those whose titles have these words")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there, too")
    asked = parser.parse_args(arguments)
    try:
        result = _measured(asked)
    except NoServerError as error:
        print(f"scripts/bench: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(machine.sentence(result["machine"]))
    for row in result["results"]:
        print(f"{row['store']:<9} {row['title']:<72} {row['wall']:>6.2f} wall {row['processors']:>6.2f} processors")
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


def _measured(asked: argparse.Namespace) -> dict[str, Any]:
    end = time.monotonic() + asked.minutes * 60
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    description = machine.description()
    with contextlib.ExitStack() as stack:
        places = list(_places(asked, stack))
        for number in range(asked.rounds):
            if number and time.monotonic() > end:
                break
            for row in ROWS:
                for place in places:
                    if asked.rows in row.title and row.relaxed is place.name.endswith("relaxed"):
                        ratio = _compared(row, place, max(round(asked.operations * row.part), 1), number)
                        found.setdefault((place.name, row.title), []).append(ratio)
        description["load_after"] = round(os.getloadavg()[0], 2)
    results = [
        {
            "store": store,
            "title": title,
            "rounds": rounds,
            "wall": statistics.median(wall for wall, _ in rounds),
            "processors": statistics.median(processors for _, processors in rounds),
        }
        for (store, title), rounds in sorted(found.items(), key=lambda item: item[0][0])
    ]
    when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    options = {"operations": asked.operations, "rounds": asked.rounds}
    return {"when": when, "machine": description, "options": options, "results": results}


def _places(asked: argparse.Namespace, stack: contextlib.ExitStack) -> Iterator[Place]:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.directory)))
    stores = asked.stores.split(",")
    if "sqlite" in stores:
        for name, durability in (("sqlite", "full"), ("sqlite, relaxed", "relaxed")):
            yield _laid_out(name, str(directory / durability), durability, stack, None)
    if "postgres" in stores:
        server: Server = stack.enter_context(durable_server(asked.directory, _SETTINGS))
        yield _laid_out("postgres", server.url, "full", stack, _postmaster(server.url))


def _laid_out(name: str, url: str, durability: str, stack: contextlib.ExitStack, server: int | None) -> Place:
    device = stack.enter_context(qmadmin.create_device(url, _PAGES, durability=durability))
    device.create_space(
        qmadmin.SpaceDefinition(
            name=SPACE,
            ipc_key=40_000,
            pages=_PAGES - 1000,
            queues=300,
            transactions=100,
            processes=100,
            messages=300_000,
        )
    )
    space = stack.enter_context(device.open_space(SPACE))
    for queue in ("plain", *(f"own{at}" for at in range(FEW))):
        space.create_queue(queue)
    for queue, count in _SUBSCRIBED.items():
        space.create_queue(queue, multiple_consumers=True)
        for at in range(count):
            space.subscribe(queue, f"c{at}")
    return Place(name, url, space, server)


def _postmaster(url: str) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert found is not None
        return _parent(found[0])


# ---- measuring ------------------------------------------------------------------------------------------------------


def _compared(row: Row, place: Place, count: int, number: int) -> tuple[float, float]:
    """Return the ratios of two works; which goes first changes from round to round."""
    _empty(place)
    costs = dict.fromkeys((row.work, row.bar), Cost(0, 0))
    for work in list(costs)[:: -1 if number % 2 else 1]:
        costs[work] = work(place, count)
        _empty(place)
    mine, bar = costs[row.work], costs[row.bar]
    return mine.wall / bar.wall / row.weight, mine.processors / max(bar.processors, 1 / _TICK) / row.weight


def _timed(place: Place, act: Callable[[], object]) -> Cost:
    before, began = _processors(place), time.perf_counter()
    act()
    wall = time.perf_counter() - began
    return Cost(wall, _processors(place) - before)


def _processors(place: Place) -> float:
    """Return the seconds of processors that this process and the server have taken."""
    return time.process_time() + (0 if place.server is None else _of_server(place.server))


def _of_server(postmaster: int) -> float:
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == postmaster:
                ticks += int(fields[11]) + int(fields[12])
            elif path.parent.name == str(postmaster):
                # With those that have ended.
                ticks += sum(map(int, fields[11:15]))
    return ticks / _TICK


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _empty(place: Place) -> None:
    space = place.space
    for queue in space.queues():
        if not queue.definition.multiple_consumers:
            space.purge(queue.name)
    for each in space.subscriptions():
        if space.usage(each.queue).messages:
            space.purge(f"{each.queue}:{each.name}")
    for name in _SUBSCRIBED:
        space.usage(name)


# ---- works ----------------------------------------------------------------------------------------------------------


def _enqueue(queue: str, size: int = len(BODY)) -> Work:
    body = bytes(size)

    def work(place: Place, count: int) -> Cost:
        space = place.space

        def act() -> None:
            for _ in range(count):
                space.enqueue(queue, body)

        return _timed(place, act)

    return work


def _enqueue_copies(place: Place, count: int) -> Cost:
    """Put a message into each of ten queues, in one call."""
    space = place.space

    def act() -> None:
        for _ in range(count):
            space.put_many(_COPIES)

    return _timed(place, act)


def _enqueue_many(queue: str) -> Work:
    def work(place: Place, count: int) -> Cost:
        space, bodies = place.space, [BODY] * 1000

        def act() -> None:
            for _ in range(count):
                space.enqueue_many(queue, bodies)

        return _timed(place, act)

    return work


def _dequeue(queue: str, *, others: int = 0) -> Work:
    """Take messages one at a time, once so many other consumers have taken all of them."""
    filled, _, mine = queue.partition(":")

    def work(place: Place, count: int) -> Cost:
        space = place.space
        space.enqueue_many(filled, [BODY] * count)
        for at in range(1, others + 1):
            space.dequeue_many(f"{filled}:c{at}", count)

        def act() -> None:
            for _ in range(count):
                space.dequeue(queue)

        assert mine in ("", "c0")
        return _timed(place, act)

    return work


def _at_work(backlogs: Sequence[str], takers: Sequence[str]) -> Work:
    """Let processes empty backlogs at the same time, each by a name of its own."""

    def work(place: Place, count: int) -> Cost:
        for queue in backlogs:
            place.space.enqueue_many(queue, [BODY] * WARM_UPS)
            for start in range(0, count, 1000):
                place.space.enqueue_many(queue, [BODY] * min(1000, count - start))
        # They come of a process that has nothing open.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.consumers", "qmadmin.opening", "qmstorage.postgres.opening"])
        gate, told = context.Barrier(len(takers) + 1), context.SimpleQueue()
        children = [context.Process(target=_take, args=(place.url, name, count, gate, told)) for name in takers]
        for child in children:
            child.start()
        gate.wait()
        before, began = _processors(place), time.perf_counter()
        gate.wait()
        wall = time.perf_counter() - began
        processors = _processors(place) - before + sum(told.get() for _ in children)
        for child in children:
            child.join()
        return Cost(wall, processors)

    return work


def _take(url: str, name: str, count: int, gate: Barrier, told: SimpleQueue[float]) -> None:
    with qmadmin.open_device(url) as device, device.open_space(SPACE) as space:
        for _ in range(WARM_UPS):
            space.dequeue(name)
        gate.wait()
        taken, before = 0, time.process_time()
        while taken < count:
            taken += space.dequeue(name) is not None
        gate.wait()
        told.put(time.process_time() - before)


_PLAIN = _enqueue("plain")
_ONE_OF_TEN = _dequeue("ten:c0")
_OWN = [f"own{at}" for at in range(FEW)]
ROWS: Final = (
    Row("enqueue to 1 subscription, to an enqueue", _enqueue("one"), _PLAIN),
    Row("enqueue to 10 subscriptions, to an enqueue", _enqueue("ten"), _PLAIN),
    Row("enqueue to 10 subscriptions, to put_many of ten copies", _enqueue("ten"), _enqueue_copies),
    Row("enqueue of 100 KiB to 10, to an enqueue of it", _enqueue("ten", 102_400), _enqueue("plain", 102_400), 0.3),
    Row("enqueue to 100 subscriptions, to an enqueue", _enqueue("hundred"), _PLAIN, 0.2),
    Row(
        "enqueue_many of 1,000 to 10, a delivery to a message to a queue",
        _enqueue_many("ten"), _enqueue_many("plain"), 0.01, FEW,
    ),
    Row("dequeue by one of ten, to a dequeue", _ONE_OF_TEN, _dequeue("plain")),
    Row("dequeue by the last of ten, to a dequeue", _dequeue("ten:c0", others=FEW - 1), _dequeue("plain")),
    Row(
        "10 processes at work on one backlog, to 10 on 10 queues",
        _at_work(["ten"], [f"ten:c{at}" for at in range(FEW)]), _at_work(_OWN, _OWN),
    ),
    Row("enqueue to 10 subscriptions, to an enqueue, relaxed", _enqueue("ten"), _PLAIN, relaxed=True),
    Row("enqueue to 10, to put_many of ten copies, relaxed", _enqueue("ten"), _enqueue_copies, relaxed=True),
    Row("dequeue by one of ten, to a dequeue, relaxed", _ONE_OF_TEN, _dequeue("plain"), relaxed=True),
)  # fmt: skip
