"""Participants of a transaction that meets a crash: what they are, where each can end, and what has to be then."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import qmadmin
from qmadmin.device import Device
from qmadmin.opening import create_device, open_device
from qmadmin.space import QueueSpace
from qmcore.acts import recovering
from tests import power
from tests.cluster import Cluster
from tests.crashing import RECOVERY, SOURCE, Participant, Plan, connected
from tests.doom import Doom
from tests.fix_databases import decisions_in, forget_tables, prepared_in, rows_of
from tests.fix_distributed import lay_out, rows_on
from tests.fix_postgres import forget_schema, login_of, or_do_without
from tests.fix_store import Child, drain, eventually

FILE, VOLUME, POSTGRES, IDLE = "file", "volume", "postgres", "idle"
"""Queue spaces: on a file, on another volume of the device before, in a schema; on a file, with nothing done there."""
SQLITE, SERVER, PLAIN = "sqlite", "server", "plain"
"""Databases of applications: a file, on a server that can prepare transactions, and on one that cannot."""
PSYCOPG2, PG8000 = "psycopg2", "pg8000"
"""The second kind by other drivers, of which no more is known than PEP 249 says."""
BY_DRIVERS = (PSYCOPG2, PG8000)
SPACES, DATABASES, UNABLE = (FILE, VOLUME, POSTGRES, IDLE), (SQLITE, SERVER, PLAIN, *BY_DRIVERS), (SQLITE, PLAIN)
ON_SERVER = (POSTGRES, SERVER, PLAIN, *BY_DRIVERS)


@dataclasses.dataclass(frozen=True)
class Party:
    """The kinds of participants, and which of them decides, by its index."""

    kinds: tuple[str, ...]
    decider: int

    def __str__(self) -> str:
        return "+".join(f"{kind}!" if at == self.decider else kind for at, kind in enumerate(self.kinds))

    @property
    def files(self) -> list[int]:
        """The participants that are files, by their indices."""
        return [at for at, kind in enumerate(self.kinds) if kind in (FILE, IDLE, SQLITE) or self._is_on_file(at)]

    def _is_on_file(self, at: int) -> bool:
        return self.kinds[at] == VOLUME and self.kinds[at - 1] == FILE

    def place_kind(self, at: int) -> str:
        """Return where a participant lies."""
        kind = self.kinds[at]
        return {IDLE: FILE, VOLUME: self.kinds[at - 1]}.get(kind, kind)


def party(text: str) -> Party:
    """Return a party as it is written, such as "file!+postgres"."""
    words = text.split("+")
    return Party(tuple(word.rstrip("!") for word in words), next(at for at, word in enumerate(words) if "!" in word))


PAIRS = [
    *map(party, (
        "file!+file", "file+file!", "file!+volume", "file!+postgres", "file+postgres!", "postgres!+file",
        "postgres+file!", "postgres!+postgres", "postgres+postgres!", "postgres!+volume",
    )),
    *(party(f"{space}+{also}") for space in (FILE, POSTGRES) for also in ("sqlite!", "server!", "plain!")),
    *map(party, ("file!+server", "postgres!+server")),
    # Databases alone need a queue space, on which nothing is done.
    *map(party, ("idle+sqlite!+server", "idle+plain!+server", "idle+server!+server", "idle!+server+server")),
    *map(party, (
        "file!+psycopg2", "file!+pg8000", "file+psycopg2!", "postgres!+psycopg2", "idle+sqlite!+pg8000",
        "idle+server!+psycopg2",
    )),
]  # fmt: skip
"""Each pair, with each that can decide."""


def triples() -> list[Party]:
    """Return all triples that there may be, with each that can decide."""
    found = []
    for kinds in itertools.product((FILE, POSTGRES), (*SPACES[:3], *DATABASES[:3]), (FILE, POSTGRES, *DATABASES[:3])):
        unable = [at for at, kind in enumerate(kinds) if kind in UNABLE]
        if len(unable) < 2:
            found += [Party(kinds, at) for at in unable or range(3)]
    return found


# ---- where it ends ---------------------------------------------------------------------------------------------------

BEFORE, UNSYNCED, AFTER = "before the decision", "decided, and not on the disk", "after the decision"


@dataclasses.dataclass(frozen=True)
class Step:
    """Where a process ends: before or after a durable step of one of the acts of a commit."""

    doom: Doom
    phase: str

    def __str__(self) -> str:
        module, _, name = (self.doom.since or self.doom.place).partition(":")
        name = name.replace("Participant", module.split(".")[1])
        return f"{name}-{self.doom.place if self.doom.since else self.doom.event}"


_PREPARING, _DECIDING, _RECOVERING = (f"qmcore.acts.{name}" for name in ("preparing", "deciding", "recovering"))
_TABLE = "qmstorage.decision_table:DecisionTable"
_DATABASE = "qmstorage.participants:Participant"
_SQLITE = "qmstorage.sqlite.participating:Participant"
_SERVER = "qmstorage.postgres.participating:Participant"
_SERVER_TABLE = "qmstorage.postgres.deciding_at_once:DecisionTable"
_DRIVER = "qmstorage.participating_drivers:Participant"


def steps(its: Party) -> list[Step]:
    """Return where a commit of a party can end, in the order of what is done; a step is the same one for all."""
    return list(map(_KNOWN.setdefault, _steps(its), _steps(its)))


_KNOWN: dict[Step, Step] = {}


def _steps(its: Party) -> Iterator[Step]:
    decider = its.kinds[its.decider]
    others = [at for at in range(len(its.kinds)) if at != its.decider and its.kinds[at] != IDLE]
    spaces = [its.place_kind(at) for at in others if its.kinds[at] in SPACES]
    databases = [at for at in others if its.kinds[at] in DATABASES]
    by_driver = bool(databases) and its.kinds[databases[0]] in BY_DRIVERS
    if (decider in SPACES and its.decider != 0) or decider == IDLE:
        yield from _points(f"{_PREPARING}:begin", its.place_kind(its.decider), BEFORE, syncs=False)
    if spaces:
        yield from _points(f"{_PREPARING}:prepare", spaces[0], BEFORE)
    if databases:
        yield from _around(f"{_DRIVER if by_driver else _SERVER}.prepare", BEFORE)
    if decider in SPACES:
        yield from _points(f"{_DECIDING}:decide", its.place_kind(its.decider), None)
    else:
        yield Step(Doom(f"{_TABLE}.decide"), BEFORE)
        # The decision and the commit are one message to a server of whose driver more is known.
        commit = f"{_SERVER_TABLE}.commit_with" if decider in (SERVER, PLAIN) else f"{_DATABASE}.commit"
        yield Step(Doom(commit), BEFORE)
        yield Step(Doom(commit, "return"), UNSYNCED if decider == SQLITE else AFTER)
        if decider == SQLITE:
            yield Step(Doom(f"{_SQLITE}.commit", "return"), AFTER)
    if spaces:
        yield from _points(f"{_RECOVERING}:complete", spaces[0], AFTER, syncs=False)
    if databases:
        yield from _around(f"{_DRIVER}.commit" if by_driver else f"{_SERVER}.end_prepared", AFTER)
    if spaces:
        yield from _points(f"{_RECOVERING}:end", spaces[0], AFTER)
    if decider in SPACES:
        yield from _points(f"{_DECIDING}:forget", its.place_kind(its.decider), AFTER, syncs=False)
    else:
        yield from _around(f"{_TABLE}.forget", AFTER)


def _around(function: str, phase: str) -> list[Step]:
    return [Step(Doom(function, event), phase) for event in ("call", "return")]


def _points(function: str, kind: str, phase: str | None, *, syncs: bool = True) -> Iterator[Step]:
    """Give the points of an act in a queue space; without a phase it is the one that decides."""
    for step in ("WRITE", "COMMIT", "SYNC") if syncs and kind == FILE else ("WRITE", "COMMIT"):
        for side in ("BEFORE", "AFTER"):
            point = f"{side}_{step}"
            undecided = step == "WRITE" or point == "BEFORE_COMMIT"
            on_disk = AFTER if kind == POSTGRES or point == "AFTER_SYNC" else UNSYNCED
            yield Step(Doom(point, since=function), phase or (BEFORE if undecided else on_disk))


def die_at(
    start: Callable[..., Child], participants: Sequence[Participant], decider: int, doom: Doom, directory: Path
) -> Child:
    """Let a process die in the middle of a commit over participants that this process does not have open."""
    child = start(SOURCE, Plan(participants, decider, doom, str(directory / "mark")).told)
    child.lines_left()
    return child


def die_deciding(configs: tuple[str, str], start: Callable[..., Child], directory: Path, event: str) -> Child:
    """Let one die before or after A decides, at the "call" or the "return", while the branch in B is prepared."""
    pair = [Participant("A", configs[0]), Participant("B", configs[1])]
    return die_at(start, pair, 0, Doom(f"{_DECIDING}:decide", event), directory)


# ---- what takes part -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Servers:
    """A server that can prepare transactions and one that cannot, which are made when they are asked for."""

    preparing: Callable[[], Cluster]
    plain: Callable[[], Cluster]

    def of(self, kinds: Sequence[str]) -> list[Cluster]:
        """Return those that kinds of participants need."""
        needs = [(self.preparing, {POSTGRES, SERVER, *BY_DRIVERS}), (self.plain, {PLAIN})]
        return [server() for server, its in needs if its & set(kinds)]


class Crash:
    """A party with what it works with, and the process that meets its end."""

    def __init__(self, its: Party, directory: Path, servers: Servers, number: int, start: Callable[..., Child]) -> None:
        self.party = its
        self.servers = servers.of(its.kinds)
        self._start = start
        self._child: Child | None = None
        self._directory = directory / "files"
        self._directory.mkdir(parents=True)
        self._disk, self.mark = directory / "disk", directory / "mark"
        self.participants: list[Participant] = []
        for at, kind in enumerate(its.kinds):
            driver = kind if kind in BY_DRIVERS else "psycopg"
            made = self._made(at, kind, servers, f"c_{number}_{at}")
            self.participants.append(Participant(*made, idle=kind == IDLE, driver=driver))
        self.opened: list[Device] = []
        self.spaces: list[QueueSpace] = []
        self._open()
        self._working_spaces[0].enqueue("Q", "x") if self._working_spaces else None
        self.close()

    def _made(self, at: int, kind: str, servers: Servers, name: str) -> tuple[str, str]:
        """Make a participant; return its name and its place."""
        if kind in DATABASES:
            place = str(self._directory / f"shop{at}.db")
            if kind != SQLITE:
                server = servers.of([kind])[0]
                place = server.url(f"shop{at}").replace("+psycopg", "")
            with contextlib.closing(connected(place)) as connection:
                connection.execute("CREATE TABLE shop_order (text varchar(80) NOT NULL)")
                qmadmin.create_decision_table(connection)
                connection.commit()
            return "", place
        space = "ABC"[at]
        on_server = self.party.place_kind(at) == POSTGRES
        place = _in_schema(servers.preparing().url(), name) if on_server else str(self._directory / space)
        if kind != VOLUME:
            with create_device(place, 20_000) as device:
                lay_out(device, space)
            return space, place
        before = self.participants[-1].place
        with open_device(before) as device:
            device.create_entry(name if on_server else place, 0, 20_000)
            lay_out(device, space, volume=1)
        return space, before

    def run(self, step: Step, *, number: int = signal.SIGKILL, loses_power: bool = False) -> Child:
        """Start the process that commits and meets its end, or stands still there."""
        disk = ""
        if loses_power:
            power.copy(self._directory, self._disk)
            disk = str(self._disk)
        doom = dataclasses.replace(step.doom, number=number)
        plan = Plan(self.participants, self.party.decider, doom, str(self.mark), disk)
        self._child = self._start(SOURCE, plan.told)
        return self._child

    def recover_apart(self) -> None:
        """Have another process do all recovery, on a machine that is about to lose power, and kill it then."""
        plan = Plan(self.participants, self.party.decider, Doom(""), str(self.mark), str(self._disk))
        child = self._start(RECOVERY, plan.told)
        child.expect("settled")
        child.kill()

    def keep_log(self) -> None:
        """Have the files of the application keep a log (WAL)."""
        for each in self.participants:
            if not each.name and "://" not in each.place:
                with contextlib.closing(connected(each.place)) as connection:
                    connection.execute("PRAGMA journal_mode = WAL")

    def cut_power(self, which: Sequence[int]) -> None:
        """Drop what was not synced of some participants that are files."""
        names = [str(self._directory / f"shop{at}.db" if self.party.kinds[at] == SQLITE else "ABC"[at]) for at in which]
        power.cut(self._disk, [str(self._directory / name) for name in names])

    def recovered(self) -> bool:
        """Return whether all was committed, after recovery alone; nothing is half, and nothing is left over."""
        self._open()
        try:
            eventually(self._is_settled, "the end of all that was in doubt")
            return self._outcome()
        finally:
            self.close()

    def check_told(self, line: str, step: Step) -> None:
        """Check that a coordinator has told the truth, with what is there after recovery; an empty line tells nothing.

        Where it has told nothing the step says what is there, unless a server has lost what was not synced.
        """
        said, _, gtrid = line.partition(" ")
        asked = self.outcome(gtrid) if said == "OutcomeUnknownError" else None
        found = self.recovered()
        if said == "OutcomeUnknownError":
            assert found is asked
        elif said:
            assert found is (said in ("committed", "decided")), said
        elif step.phase in (BEFORE, AFTER):
            assert found is (step.phase == AFTER)

    def outcome(self, gtrid: str) -> bool | None:
        """Return what the decider says of a transaction."""
        self._open()
        decider = self.participants[self.party.decider]
        try:
            if decider.name:
                return qmadmin.outcome(next(each for each in self.spaces if each.name == decider.name), gtrid)
            with contextlib.closing(connected(decider.place, decider.driver)) as connection:
                return qmadmin.outcome(connection, gtrid)
        finally:
            self.close()

    def remove(self) -> None:
        """Remove what would be left on the servers, once the process that may still be at work there has ended."""
        if self._child is not None:
            self._child.close()
        self.close()
        for each in self.participants:
            if not each.name:
                forget_tables(each.place)
            elif "://" in each.place:
                forget_schema(each.place)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        places = dict.fromkeys(each.place for each in self.participants if each.name)
        devices = {place: open_device(place) for place in places}
        self.opened = list(devices.values())
        self.spaces = [devices[each.place].open_space(each.name) for each in self.participants if each.name]

    def close(self) -> None:
        """Close what this process has open."""
        for device in self.opened:
            device.close()

    @property
    def _databases(self) -> list[str]:
        return [each.place for each in self.participants if not each.name]

    @property
    def _working_spaces(self) -> list[QueueSpace]:
        idle = {each.name for each in self.participants if each.idle}
        return [space for space in self.spaces if space.name not in idle]

    def _is_settled(self) -> bool:
        left = 0
        with contextlib.ExitStack() as stack:
            connections: list[Any] = [
                stack.enter_context(contextlib.closing(connected(each.place, each.driver)))
                for each in self.participants
                if not each.name
            ]
            if connections:
                left = qmadmin.recover(*connections)
        for space in self.spaces:
            # As any program that waits for messages.
            space.dequeue("IDLE", wait=0.02)
        # A caller that has died may be asked for in its stead, for a day.
        tables = ("trans", "decision WHERE length(xid_branch) > 0")
        on_volumes = sum(rows_on(device, table) for device in self.opened for table in tables)
        return not left and not on_volumes and not any(map(prepared_in, self._databases))

    def _outcome(self) -> bool:
        found: dict[str, bool] = {}
        spaces = self._working_spaces
        for space in spaces[1:] or spaces:
            found[f"message in {space.name}"] = {("x",): True, (): False}[tuple(drain(space, "OUT"))]
        if spaces:
            found["message that was taken"] = {(): True, ("x",): False}[tuple(drain(spaces[0], "Q"))]
        for place in self._databases:
            found[f"row in {place}"] = {1: True, 0: False}[rows_of(place, "shop_order")]
            assert decisions_in(place) <= 1
        assert len(set(found.values())) == 1, found
        return next(iter(found.values()))


def _in_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


@pytest.fixture(scope="session")
def crash_servers() -> Iterator[Servers]:
    """The servers of the tests of crashes, which they may kill and start again."""
    made: dict[int, Cluster] = {}

    def server(most: int) -> Cluster:
        if most not in made:
            with or_do_without():
                cluster = made[most] = Cluster.of_its_own()
            if most == 0:
                # As where nobody has set anything.
                cluster.sql("ALTER SYSTEM SET max_prepared_transactions = 0")
                cluster.stop()
                cluster.start()
            for at in range(3):
                cluster.sql(f"CREATE DATABASE shop{at} TEMPLATE template0")
        return made[most]

    yield Servers(lambda: server(20), lambda: server(0))
    for cluster in made.values():
        cluster.close()


@pytest.fixture
def crash_of(
    crash_servers: Servers, start: Callable[..., Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Party], Crash]]:
    """Give a party what it needs for a crash."""
    made: list[Crash] = []
    # This process only does recovery, and need not wait for a coordinator that is known to be dead.
    monkeypatch.setattr(recovering, "GRACE_US", 0)

    def crash(its: Party) -> Crash:
        if POSTGRES in its.kinds:
            for name, value in login_of(crash_servers.preparing().url()).items():
                monkeypatch.setenv(name, value)
        for cluster in crash_servers.of(its.kinds):
            cluster.be_there()
        made.append(Crash(its, tmp_path, crash_servers, next(_NUMBERS), start))
        return made[-1]

    yield crash
    for each in made:
        each.remove()


_NUMBERS = itertools.count(1)
