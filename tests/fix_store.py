"""Fixtures of the engine: a clock that tests move, devices and queue spaces on every store, and real processes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import text

from qmadmin.device import Device
from qmadmin.opening import create_device, open_device
from qmadmin.space import QueueSpace
from qmadmin.volume_makers import address_of
from qmcore.errors import QueueError
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.probe import Point, Probe
from qmcore.queue import Queue, QueueDefinition
from qmcore.space import SpaceDefinition
from qmcore.times import MICROS, to_datetime
from tests.awaited import AwaitedDevice
from tests.fix_postgres import login_of
from tests.fork_server import ForkedProcess, ForkServer, forking

ROOT = Path(__file__).parents[1]
SOURCES = os.pathsep.join(str(ROOT / part) for part in ("", "core", "storage"))
STRICT = ["--strict", "--config-file=", "--cache-dir", str(ROOT / ".mypy_cache" / "strict")]
"""How mypy looks at what users write; what it has read of the library is kept."""

DEADLINE = 240.0
"""Seconds after which a process that says nothing is taken for hung."""


class MovableClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: int = 1_800_000_000 * MICROS) -> None:
        self._now = now
        self._monotonic = 1000.0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def steady(self) -> int:
        return round(self._monotonic * MICROS)

    def now_and_steady(self) -> tuple[int, int]:
        return self.now(), self.steady()

    def is_over(self, _started_us: int, deadline_us: int) -> bool:
        return deadline_us <= self.steady()

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * MICROS)
        self._monotonic += seconds

    def set_back(self, seconds: float) -> None:
        """Set the time of day back, as an administrator may; time goes on all the same."""
        self._now -= round(seconds * MICROS)

    def moment(self, seconds: float = 0) -> Any:
        """Return the aware datetime that many seconds from now."""
        return to_datetime(self._now + round(seconds * MICROS))


MakesDevices = Callable[..., Device]
"""What makes a device and opens it: create_device, or what gives one that was made before."""

LIMITS = {
    "ipc_key": 40_000,
    "pages": 2_000,
    "queues": 20,
    "transactions": 10,
    "processes": 10,
    "messages": 1_000,
}


def space_definition(name: str = "SPACE", **changes: Any) -> SpaceDefinition:
    return SpaceDefinition(**({"name": name} | LIMITS | changes))


def queue_definition(name: str, *, order: str = "fifo", out_of_order: str = "", **changes: Any) -> QueueDefinition:
    return QueueDefinition(
        name=name, order=QueueOrder.parse(order), out_of_order=OutOfOrder.parse(out_of_order), **changes
    )


class Store:
    """A device with what tests make of it."""

    def __init__(
        self, kind: str, path: str, clock: MovableClock, make: MakesDevices = create_device, **how: Any
    ) -> None:
        self.kind = kind
        self.path = path
        self.clock = clock
        self.device = make(path, 20_000, clock=clock, **how)
        self.spaces: list[QueueSpace] = []
        self.others: list[Device] = []
        self.awaited: AwaitedDevice | None = None

    def space(self, name: str = "SPACE", **changes: Any) -> QueueSpace:
        """Create a queue space and open it."""
        self.device.create_space(space_definition(name, **changes))
        opened = self.device.open_space(name)
        self.spaces.append(opened)
        # It has the calls of the other.
        return opened if self.awaited is None else cast("QueueSpace", self.awaited.space(opened))

    def another(self, clock: MovableClock | None = None) -> Device:
        """Open the device once more, as another process would."""
        if self.kind == "memory":
            pytest.skip("a device in memory has one handle only")
        other = open_device(self.path, clock=clock or self.clock)
        self.others.append(other)
        return other

    def by_hand(self, *statements: str) -> None:
        """Change the tables as a careless hand would, whatever refers to what; bytes are written as in x'00ff'."""
        if self.kind == "postgres":
            _changed_in_schema(self.path, statements)
            return
        import sqlite3

        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def close(self) -> None:
        if self.awaited is not None:
            self.awaited.close()
        for device in (*self.others, self.device):
            with contextlib.suppress(QueueError):
                device.close()


def _changed_in_schema(url: str, statements: Sequence[str]) -> None:
    import psycopg

    from tests.fix_postgres import database_of

    database, schema = database_of(url)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'SET search_path = "{schema}"; SET session_replication_role = replica')
        for statement in statements:
            connection.execute(re.sub(r"\bx'([0-9a-f]*)'", r"'\\x\1'::bytea", statement))


def attachment_of(space: QueueSpace) -> Any:
    """Return this process's attachment to a queue space that is open."""
    return space.probe.attachments[space.name]


def later(monkeypatch: pytest.MonkeyPatch, seconds: float = 3600) -> None:
    """Let it be later for volumes on SQLite, which look at their files by the clock of the machine."""
    now = time.monotonic() + seconds
    monkeypatch.setattr("qmstorage.sqlite.volume.time", SimpleNamespace(monotonic=lambda: now))


def noted(probe: Probe, point: Point) -> list[Any]:
    """Return what is told at a point from now on: it grows with each time that the point is reached."""
    told: list[Any] = []
    probe.at(point, told.append)
    return told


def connection_of(space: QueueSpace) -> Any:
    """Return the connection of a queue space on SQLite, whose driver tells what it runs."""
    return attachment_of(space).volume.read(lambda unit: unit.run(text("SELECT 1")).connection)


def count_rows(volume: Any, *names: str) -> tuple[int, ...]:
    """Return how many rows the tables of a volume have, whatever the store; of a queue space's, where given that."""
    opened = attachment_of(volume).volume if hasattr(volume, "enqueue") else volume
    return tuple(opened.read(lambda unit: [rows_of(unit, name) for name in names]))


def rows_of(unit: Any, name: str) -> int:
    """Return how many rows a table has in the store, on disk or in memory, that the unit works on."""
    from qmstorage.schema import metadata
    from qmstorage.sql import func, select

    return int(unit.built(select(func.count()).select_from(metadata.tables[name]))[0][0])


def make_queue(space: QueueSpace, name: str = "Q", **changes: Any) -> Queue:
    return space.create_queue(queue_definition(name, **changes))


def drain(space: QueueSpace, name: str = "Q", **how: Any) -> list[str]:
    """Dequeue all that there is, and return the bodies as text."""
    texts = []
    while (message := space.dequeue(name, **how)) is not None:
        texts.append(message.text)
    return texts


def bodies_held(space: QueueSpace, name: str = "Q") -> tuple[int, int, int]:
    """Return how many messages are ready, delayed and held."""
    usage = space.usage(name)
    return usage.ready, usage.delayed, usage.held


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


def device_path(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where the device of a test goes on this kind of store: "file", "memory" or "postgres"."""
    if kind == "postgres":
        return str(request.getfixturevalue("database_url"))
    return ":memory:" if kind == "memory" else str(tmp_path / "QUE")


def maker_of_devices(kind: str, request: pytest.FixtureRequest) -> MakesDevices:
    """Return what makes devices on this kind of store as `create_device` does, for tests that want nothing special."""
    if kind == "postgres":
        made_before: MakesDevices = request.getfixturevalue("emptied_devices").device
        return made_before
    return create_device


STORES = ("file", "memory", "postgres")

OVER_TASKS = {
    **dict.fromkeys(
        ("conditions", "delay_and_expiry", "enqueue", "error_queues", "groups", "many", "nonpersistent",
         "out_of_order", "retry_policy", "rollback"),
        ("memory-awaited",),
    ),
    **dict.fromkeys(("dequeue_order", "transactions"), ("file-awaited", "postgres-awaited")),
}  # fmt: skip
"""The files of tests/store whose cases also hold for the calls of asyncio, and on which stores: not on all, for their
time. A case that is about something that those calls do not have is marked `synchronous`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of the contract on all stores, and those of messages by the calls of asyncio too."""
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    has_its_own = any("store" in vars(place) for place in (metafunc.module, metafunc.cls) if place)
    if "store" not in metafunc.fixturenames or "store" in marks or has_its_own:
        return
    awaited: tuple[str, ...] = ()
    if metafunc.definition.path.parent.name == "store" and not metafunc.definition.get_closest_marker("synchronous"):
        awaited = OVER_TASKS.get(metafunc.definition.path.stem.removeprefix("test_"), ())
    metafunc.parametrize("store", [*STORES, *awaited], indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: MovableClock) -> Iterator[Store]:
    """A device on each kind of store; the contract holds on all of them."""
    kind, _, awaited = request.param.partition("-")
    path = device_path(kind, request, tmp_path)
    made = Store(kind, path, clock, maker_of_devices(kind, request))
    if awaited:
        made.awaited = AwaitedDevice(made.device)
    yield made
    made.close()


@pytest.fixture(params=["file", "postgres"])
def shared_store(request: pytest.FixtureRequest, tmp_path: Path, clock: MovableClock) -> Iterator[Store]:
    """A device on each kind of store that several processes, or several handles, can share."""
    path = device_path(request.param, request, tmp_path)
    made = Store(request.param, path, clock, maker_of_devices(request.param, request))
    yield made
    made.close()


@pytest.fixture(params=["file", "memory"])
def sqlite_store(request: pytest.FixtureRequest, tmp_path: Path, clock: MovableClock) -> Iterator[Store]:
    """A device of SQLite, for what is its own way of doing things."""
    path = device_path(request.param, request, tmp_path)
    made = Store(request.param, path, clock, maker_of_devices(request.param, request))
    yield made
    made.close()


@pytest.fixture
def file_store(tmp_path: Path, clock: MovableClock) -> Iterator[Store]:
    """A device on a file, for what more than one handle is needed for."""
    made = Store("file", str(tmp_path / "QUE"), clock)
    yield made
    made.close()


@pytest.fixture
def trusted(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this user's settings say that the capacity commands of the test's device may run; return the file."""
    stores = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    on_server = "postgres" in stores or "database_url" in request.fixturenames
    path = device_path("postgres" if on_server else "file", request, tmp_path)
    return name_for_commands(tmp_path, monkeypatch, devices=[path])


def name_for_commands(directory: Path, monkeypatch: pytest.MonkeyPatch, **names: list[str]) -> Path:
    """Make a file of settings that names devices or commands in [capacity]."""
    file = directory / "named.toml"
    file.write_text("[capacity]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in names.items()))
    file.chmod(0o600)
    monkeypatch.setenv("QMADMIN_TOML", str(file))
    return file


@pytest.fixture
def device(store: Store) -> Device:
    return store.device


@pytest.fixture
def space(store: Store) -> QueueSpace:
    """A queue space without an error queue, and with one queue `Q` that gives each message three more tries."""
    opened = store.space()
    make_queue(opened, "Q", retries=3)
    return opened


@pytest.fixture(params=["file", "postgres"])
def real_device(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A device with the machine's own clock, a queue space `SPACE`, its error queue `ERRORS`, a queue `Q`.

    Other processes open it by its path: who they are to the server stands in the environment.
    """
    path = device_path(request.param, request, tmp_path)
    if request.param == "postgres":
        for name, value in login_of(path).items():
            monkeypatch.setenv(name, value)
    yield from _laid_out(path, maker_of_devices(request.param, request))


@pytest.fixture
def file_device(tmp_path: Path) -> Iterator[Device]:
    """The same on a file, for what is about files."""
    yield from _laid_out(str(tmp_path / "QUE"), create_device)


def _laid_out(path: str, make: MakesDevices) -> Iterator[Device]:
    with make(path, 50_000) as made:
        made.create_space(space_definition(pages=20_000, messages=20_000, error_queue="ERRORS"))
        with made.open_space("SPACE") as opened:
            make_queue(opened, "Q", retries=3)
            make_queue(opened, "ERRORS")
        yield made


# ---- processes ------------------------------------------------------------------------------------------------------

PRELUDE = """
import os, signal, sys, threading
import qmadmin
from qmadmin import *
from qmadmin.opening import open_device, create_device

def say(*words):
    print(*words, flush=True)

def heard():
    line = sys.stdin.readline()
    if not line:
        sys.exit("the test is gone")
    return line.strip()

def other_user(group=None):
    "Become a user without rights; what loads late is loaded before, as that user may not read our Python."
    import sqlite3, qmstorage.sqlite.opening, qmadmin.space, qmadmin.device
    import qmstorage.compiling, sqlalchemy.dialects.sqlite, sqlalchemy.schema
    import grp, pwd
    nobody = pwd.getpwnam("nobody")
    os.setgroups([grp.getgrnam(group).gr_gid] if group else [])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
"""


DESCRIPTORS = """
def descriptors():
    "Return the numbers of the descriptors that this process has open; no test but this one has any in it."
    return set(os.listdir("/proc/self/fd"))
"""
"""For a program that says what a call leaves open: in the process of the tests that would be other tests' too."""


def freeze(pid: int) -> None:
    """Stop a process that we have started, and return when it has stopped.

    The signal alone is not enough: a process that waits for a processor in the middle of a call to the kernel, as one
    for a lock, ends the call first.
    """
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


class Child:
    """A real process that a test talks with, line by line."""

    def __init__(self, server: ForkServer | None, source: str, *arguments: object) -> None:
        """Have the process forked by the server; without one it is started fresh, and loads what it needs itself."""
        self.name = f"child-{secrets.token_hex(8)}"
        environment = {**os.environ, "PYTHONPATH": SOURCES, "PGAPPNAME": self.name}
        program = [PRELUDE + source, *map(str, arguments)]
        self.process: ForkedProcess | subprocess.Popen[str]
        if server is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
        else:
            self.process = server.start(program[0], program[1:], environment)
        self.pid = self.process.pid
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def line(self) -> str:
        """Return the next line that the process says."""
        try:
            line = self._lines.get(timeout=DEADLINE)
        except queue.Empty:
            raise AssertionError(f"the process said nothing for {DEADLINE:g} seconds") from None
        if line is None:
            self.process.wait(DEADLINE)
            self._readers[1].join(DEADLINE)
            raise AssertionError(f"the process ended with {self.process.returncode}:\n{''.join(self._errors)}")
        return line

    def expect(self, *wanted: str) -> None:
        for word in wanted:
            assert self.line() == word

    def expect_in_any_order(self, *wanted: str) -> None:
        """Expect lines of a process and of its forks, each of which says its own when it comes to it."""
        assert sorted(self.line() for _ in wanted) == sorted(wanted)

    def lines_left(self) -> list[str]:
        """Return what the process still says until it ends."""
        found = []
        while (line := self._lines.get(timeout=DEADLINE)) is not None:
            found.append(line)
        return found

    def say(self, text: str = "go on") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def freeze(self) -> None:
        """Stop the process where it is, and return when it stands still."""
        if isinstance(self.process, subprocess.Popen):
            freeze(self.pid)
        else:
            self.signal(signal.SIGSTOP)
            eventually(lambda: set(_states(self.pid)) == {"T"}, "it stands still")

    def kill(self) -> None:
        """Kill the process as `kill -9` does, and return when it is dead, and a server of ours has noticed."""
        self.process.kill()
        self.process.wait(DEADLINE)
        if "QM_TEST_DATABASE" in os.environ:
            from tests.fix_postgres import sessions_named

            eventually(lambda: not sessions_named(self.name), "the end of its sessions")

    def finish(self) -> str:
        """Return what the process wrote to its standard error, once it has ended by itself and well."""
        status = self.process.wait(DEADLINE)
        self._readers[1].join(DEADLINE)
        errors = "".join(self._errors)
        assert status == 0, f"the process ended with {status}:\n{errors}"
        return errors

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        for reader in self._readers:
            reader.join(DEADLINE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _states(pid: int) -> Iterator[str]:
    """Give the state of each thread of a process, as Linux tells it."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield (task / "stat").read_text().rpartition(") ")[2][0]


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer | None]:
    """What forks the processes of tests that talk with them; None where the system cannot tell how those end."""
    with forking(LOADED, {**os.environ, "PYTHONPATH": SOURCES}) as server:
        yield server


LOADED = (
    "qmadmin.opening",
    "qmadmin.space",
    "qmstorage.sqlite.opening",
    "qmstorage.postgres.opening",
    "qmadmin.atmi",
    "qmadmin.forwarder.program",
    "qmadmin.forwarder.daemon",
)
"""What most of them load."""


@pytest.fixture
def start(fork_server: ForkServer | None) -> Iterator[Callable[..., Child]]:
    """Start a process that runs a program: its source, then its arguments."""
    with contextlib.ExitStack() as children:
        yield lambda *program: children.enter_context(contextlib.closing(Child(fork_server, *program)))


@pytest.fixture
def start_fresh() -> Iterator[Callable[..., Child]]:
    """The same for a process whose memory or modules are looked at: nothing is loaded before it loads it."""
    with contextlib.ExitStack() as children:
        yield lambda *program: children.enter_context(contextlib.closing(Child(None, *program)))


def eventually(claim: Callable[[], bool], what: str) -> None:
    """Return when the claim holds. For what other processes or threads do to become true, and nothing else."""
    end = time.monotonic() + DEADLINE
    while not claim():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {DEADLINE:g} seconds")
        select.select([], [], [], 0.005)


def waiting_for(volume_path: str | os.PathLike[str]) -> int:
    """Return how many waiters are registered in the file or the schema, as seen by a reader of its tables.

    A URL may be the shown form, which has neither user nor password.
    """
    volume_path = os.fspath(volume_path)
    if "://" in volume_path:
        return _waiting_in_schema(volume_path)
    import sqlite3

    with contextlib.closing(sqlite3.connect(f"file:{volume_path}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM waiter").fetchone()[0])


def _waiting_in_schema(url: str) -> int:
    import psycopg

    from tests.fix_postgres import database_of

    database, schema = database_of(url)
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute(f'SELECT count(*) FROM "{schema}".waiter').fetchone()
    assert row is not None
    return int(row[0])


class Work:
    """Threads that run at the same time, and what they return or raise."""

    def __init__(self, *works: Callable[[], Any]) -> None:
        self._gate = threading.Barrier(len(works))
        self._results: list[Any] = [None] * len(works)
        self._threads = [
            threading.Thread(target=self._run, args=(at, work), daemon=True) for at, work in enumerate(works)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, at: int, work: Callable[[], Any]) -> None:
        self._gate.wait(DEADLINE)
        try:
            self._results[at] = work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self._results[at] = error

    def is_running(self) -> bool:
        """Return whether one of them has not come to its end."""
        return any(thread.is_alive() for thread in self._threads)

    def ended(self) -> int:
        """Return how many of them have come to their ends."""
        return sum(not thread.is_alive() for thread in self._threads)

    def idents(self) -> set[int | None]:
        """Return what `threading.get_ident()` says in the threads."""
        return {thread.ident for thread in self._threads}

    def results(self) -> list[Any]:
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive(), "a thread hangs"
        return self._results


# ---- non-persistent messages ----------------------------------------------------------------------------------------


@pytest.fixture
def memory_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the non-persistent messages of this test are kept, those of its processes too."""
    directory = tmp_path / "shm"
    directory.mkdir()
    monkeypatch.setenv("QM_SHM_DIR", str(directory))
    return directory


def second_volume(store: Store, directory: Path) -> str:
    """List a second file or schema of 100,000 pages on a device, and return its path in the list."""
    name = f"{address_of(store.path).schema}_second" if store.kind == "postgres" else str(directory / "SECOND")
    store.device.create_entry(name, 0, 100_000)
    return name


def truth(space: QueueSpace, name: str = "Q") -> tuple[list[str], list[str]]:
    """Return the messages of a queue by their delivery, and prove that the counters say the same."""
    infos = list(space.messages(name))
    kept = {delivery: [info.msgid for info in infos if info.delivery.value == delivery] for delivery in _DELIVERIES}
    usage = space.usage(name)
    assert usage.messages == len(infos) == len({info.msgid for info in infos})
    assert usage.nonpersistent == len(kept["nonpersist"])
    assert usage.size == sum(info.size for info in infos)
    return kept["persist"], kept["nonpersist"]


_DELIVERIES = ("persist", "nonpersist")
