"""Fixtures of PostgreSQL: one server for the whole run, a schema for each test, and clusters that a test may kill.

A server starts when the first test asks for it, in pytest-xdist's workers too: one of them starts it, all use it, and
it lasts as long as the process that was called, however that ends. QM_TEST_POSTGRES=URL names a running server instead,
with a role that may create databases. Where none can be had, tests are skipped, and fail where the environment says CI.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from qmcore.findings import Finding
from tests import cluster_guard
from tests.cluster import Cluster, Missing, Server, end_of_run, room_for_servers
from tests.emptied import EmptiedDevices

KEEPER = "qmtest-keeper"
"""The name of the session that each test process keeps from test to test."""

_ROOM = pytest.StashKey[Path]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where the server of this run is, or will be."""
    node.workerinput["postgres_room"] = str(room_of_run(node.config))


def room_of_run(config: pytest.Config) -> Path:
    """Return the room of this run, with its server: the process that was called holds it until it ends."""
    if given := getattr(config, "workerinput", {}).get("postgres_room"):
        return Path(given)
    if _ROOM not in config.stash:
        room, run = cluster_guard.make_room(room_for_servers())
        config.stash[_ROOM] = room
        config.add_cleanup(lambda: end_of_run(room, run))
    return config.stash[_ROOM]


def _running(room: Path) -> Cluster:
    """Return this run's server, started unless another worker has done it."""
    with (room / "starting").open("w") as starting:
        fcntl.lockf(starting, fcntl.LOCK_EX)
        address = room / "address"
        if not address.exists():
            cluster = Cluster.made(room)
            address.touch(0o600)
            address.write_text(cluster.saved())
        return Cluster.restored(address.read_text())


def _do_without(reason: str) -> NoReturn:
    """Skip the test; where everything is meant to be installed, that would hide it, so there it fails."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextlib.contextmanager
def or_do_without() -> Iterator[None]:
    """Turn Missing, and a missing psycopg, into the skip or the failure of the test."""
    try:
        import psycopg  # noqa: F401 - each fixture here needs it
    except ImportError as problem:
        _do_without(f"psycopg does not load ({problem}): pip install 'psycopg[binary]'")
    try:
        yield
    except Missing as missing:
        _do_without(str(missing))


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Server:
    """The server of this run, for what is no danger to its other users."""
    with or_do_without():
        if named := os.environ.get("QM_TEST_POSTGRES"):
            scheme, _, rest = named.partition("://")
            assert scheme.partition("+")[0] in {"postgresql", "postgres"}, "QM_TEST_POSTGRES is no URL of PostgreSQL"
            return Server(f"postgresql://{rest}")
        return _running(room_of_run(request.config))


@pytest.fixture(scope="session")
def worker_database(postgres_server: Server) -> Iterator[str]:
    """The name of a database that is this process's alone: advisory locks and notifications are per database."""
    name = f"qmtest_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}"
    postgres_server.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
    yield name
    if not isinstance(postgres_server, Cluster):
        postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def schema_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture(scope="session")
def emptied_devices(postgres_server: Server, worker_database: str) -> Iterator[EmptiedDevices]:
    """Devices that are made once, and emptied for the next test that asks for one."""
    devices = EmptiedDevices(lambda: postgres_server.connect(worker_database, application_name=KEEPER))
    yield devices
    devices.close()


@pytest.fixture
def database_url(
    postgres_server: Server,
    worker_database: str,
    schema_numbers: Iterator[int],
    emptied_devices: EmptiedDevices,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """The URL of a device that is not there yet: its schema is `t_<n>`.

    At the end that schema is dropped or emptied, and so is each whose name begins with its name and an underscore.
    QM_TEST_DATABASE in the environment is the URL of the database, for what has to look into it from outside and has no
    password.
    """
    schema = f"t_{next(schema_numbers)}"
    base = postgres_server.url(worker_database)
    monkeypatch.setenv("QM_TEST_DATABASE", base)
    yield f"{base}{'&' if '?' in base else '?'}schema={schema}"
    connection = emptied_devices.connection()
    found = interrupted_schemas(connection, schema)
    kept = {kept for name in found for kept in emptied_devices.empty(name)}
    _drop(connection, [name for name in found if name not in kept])


def drop_schemas(connection: Any, schema: str) -> None:
    """Drop the schema and those named after it, whoever is still at work in them."""
    _drop(connection, interrupted_schemas(connection, schema))


def interrupted_schemas(connection: Any, schema: str) -> list[str]:
    """Return the schema, if it is there, and those named after it, once nobody is at work in them."""
    found = connection.execute(_INTERRUPTED, {"name": schema, "named_after": f"{schema}_"}).fetchall()
    return [name for name, _ in found]


_INTERRUPTED = """
WITH found AS (SELECT oid, nspname FROM pg_namespace WHERE nspname = %(name)s OR starts_with(nspname, %(named_after)s)),
at_work AS (
    SELECT DISTINCT pid FROM pg_locks JOIN pg_class ON pg_class.oid = relation
    WHERE relnamespace IN (SELECT oid FROM found) AND pid <> pg_backend_pid()
)
SELECT nspname, (SELECT count(pg_terminate_backend(pid)) FROM at_work) FROM found
"""


def _drop(connection: Any, schemas: Sequence[str]) -> None:
    if schemas:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA {', '.join(map(_quoted, schemas))} CASCADE")


def login_of(url: str) -> dict[str, str]:
    """Return the environment in which programs reach the database of a URL that is shown without its login."""
    parts = urlsplit(url)
    return {"PGUSER": unquote(parts.username or ""), "PGPASSWORD": unquote(parts.password or "")}


def sessions_named(name: str) -> int:
    """Return how many sessions of a program the database of the test has."""
    import psycopg

    database = urlsplit(os.environ["QM_TEST_DATABASE"])._replace(scheme="postgresql").geturl()
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]).fetchone()
    assert row is not None
    return int(row[0])


def forget_schema(url: str) -> None:
    """Drop the schema of the device of this URL, and those named after it."""
    import psycopg

    database, schema = database_of(url)
    with psycopg.connect(database, autocommit=True) as connection:
        drop_schemas(connection, schema)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def but_for_this_server(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out what a doctor says of the server of the tests, which does without what survives a power failure.

    How many messages a second go through the tables of a test depends on how quick the tests are.
    """
    its = {"setting fsync", "setting full_page_writes", "setting autovacuum_naptime"}
    return [finding for finding in findings if finding.target not in its]


def database_of(url: str) -> tuple[str, str]:
    """Return what to give psycopg for the device of this URL, shown form or whole, and the name of its schema."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        parts = urlsplit(os.environ["QM_TEST_DATABASE"])
    query = "&".join(part for part in parts.query.split("&") if part and not part.startswith("schema="))
    whole = parts._replace(scheme="postgresql", query=query).geturl()
    return whole, parse_qs(urlsplit(url).query).get("schema", ["qmadmin"])[0]


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A server of the test's own, which it may stop, kill, start again and give a standby."""
    with or_do_without():
        cluster = Cluster.of_its_own()
    yield cluster
    cluster.close()
