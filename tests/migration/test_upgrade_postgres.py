"""`qmadmin --upgrade` on PostgreSQL: the device of release 0.1.0 becomes one of this release in one transaction."""

import os
import shutil
import subprocess
import sys
from datetime import timedelta

import pytest

import qmadmin
from qmadmin.opening import plan_upgrade, upgrade_device
from qmcore import times
from qmcore.errors import ReleaseError
from qmcore.times import SystemClock
from qmstorage import schema
from tests.fix_release import CONTENT, are_known, contents, dump, environment

REVISION = f"{schema.VERSION:04d}"


def run(*arguments, **settings):
    """Run qmadmin with nobody to ask, and return what it did."""
    command = [sys.executable, "-m", "qmadmin.program", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment() | settings,
    )


@pytest.fixture
def place(postgres_server):
    """The name of a database for the test alone, and the schemas of release 0.1.0 in it."""
    name = f"upgrade_{os.getpid()}"
    postgres_server.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    postgres_server.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    with postgres_server.connect(name) as connection:
        connection.execute(dump())
        connection.execute("RESET ALL")
    yield name
    postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def url(postgres_server, place):
    """The URL of the device, whose device list names it so."""
    from qmadmin.volume_makers import path_of

    base = postgres_server.url(place)
    found = f"{base}{'&' if '?' in base else '?'}schema=queues"
    with postgres_server.connect(place) as connection:
        connection.execute("UPDATE queues.entry SET path = %s WHERE dlindex = 0", [path_of(found)])
    return found


def version(postgres_server, place):
    (found,) = postgres_server.sql(
        "SELECT queues.alembic_version.version_num, second.alembic_version.version_num"
        " FROM queues.alembic_version, second.alembic_version",
        place,
    )
    return list(found)


def shape(postgres_server, place, name):
    """Return the columns, the indexes and the rights of the tables in a schema."""
    with postgres_server.connect(place) as connection:
        columns = connection.execute(
            "SELECT table_name, ordinal_position, column_name, data_type, collation_name, is_nullable,"
            " replace(column_default, %s, '') FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2",
            [f"{name}.", name],
        ).fetchall()
        indexes = connection.execute(
            "SELECT tablename, indexname, replace(indexdef, %s, '') FROM pg_indexes"
            " WHERE schemaname = %s ORDER BY 1, 2",
            [f"{name}.", name],
        ).fetchall()
        kinds = connection.execute(
            "SELECT relname, relkind, relpersistence, reloptions FROM pg_class"
            " WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'i', 'p') ORDER BY 1",
            [name],
        ).fetchall()
        functions = connection.execute(
            "SELECT proname, regexp_replace(pg_get_functiondef(pg_proc.oid), %s, '', 'g'), proowner = nspowner"
            " FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace WHERE nspname = %s ORDER BY 1",
            [rf'\m{name}(_memory)?\M(?="?\.)', name],
        ).fetchall()
    return columns, indexes, kinds, functions


def test_an_older_device_is_refused_with_what_to_type(url):
    with pytest.raises(ReleaseError, match="upgrade it with qmadmin --upgrade 'postgresql://"):
        qmadmin.open_device(url)


def test_an_upgraded_device_has_all_that_it_had_and_the_tables_of_a_fresh_one(postgres_server, place, url):
    ran = run("--upgrade", "-y", "--backed-up", url)
    assert ran.returncode == 0, ran.stderr
    assert version(postgres_server, place) == [REVISION] * 2
    qmadmin.create_device(url.replace("schema=queues", "schema=fresh"), 100).close()
    for name, fresh in ("queues", "fresh"), ("queues_memory", "fresh_memory"), ("second", "fresh"):
        assert shape(postgres_server, place, name) == shape(postgres_server, place, fresh)
    with qmadmin.open_device(url) as device:
        assert contents(device) == CONTENT
        assert are_known(device)
        assert device.audited()[0].command == "qmadmin --upgrade"
        there = device.space_usage("QS").messages
        with device.open_space("QS") as space:
            space.purge("Q")
            assert device.space_usage("QS").highest.messages == there


def test_a_device_is_upgraded_whose_memory_a_restore_has_left_out(postgres_server, place, url):
    with postgres_server.connect(place) as connection:
        connection.execute("DROP SCHEMA queues_memory CASCADE")
    assert run("--upgrade", "-y", "--backed-up", url).returncode == 0
    assert version(postgres_server, place) == [REVISION] * 2
    with qmadmin.open_device(url) as device, device.open_space("QS") as space:
        assert space.dequeue("Q", corrid="none") is None
        assert space.dequeue("Q").size


def test_the_record_of_an_upgrade_has_the_time_of_the_server(postgres_server, place, url, monkeypatch):
    monkeypatch.setattr(SystemClock, "now", lambda _clock: 0)
    ((before,),) = postgres_server.sql("SELECT now()", place)
    upgrade_device(url, plan_upgrade(url), None)
    ((after,),) = postgres_server.sql("SELECT now()", place)
    with qmadmin.open_device(url) as device:
        slack = timedelta(seconds=1)
        assert before - slack < times.to_datetime(device.audited()[0].at_us) < after + slack


def test_the_group_of_a_device_may_use_what_the_upgrade_has_made(postgres_server, place, url):
    role = f"writers_{os.getpid()}"
    with postgres_server.connect(place) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        try:
            for name in ("queues", "queues_memory"):
                connection.execute(f"GRANT USAGE ON SCHEMA {name} TO {role}")
                connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {name} TO {role}")
                connection.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {name} TO {role}")
            assert run("--upgrade", "-y", "--backed-up", url).returncode == 0
            right = "SELECT has_table_privilege(%s, 'queues.highest', 'INSERT, UPDATE, DELETE')"
            assert connection.execute(right, [role]).fetchone() == (True,)
            granted = "SELECT oid::regprocedure FROM pg_proc WHERE proname = 'qm_enqueue' AND proacl::text LIKE %s"
            assert len(connection.execute(granted, [f"%{role}=X%"]).fetchall()) == 1
        finally:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


def test_processes_that_are_attached_are_named_and_keep_the_device_as_it_is(postgres_server, place, url):
    assert run("--upgrade", "-y", "--backed-up", url).returncode == 0
    with qmadmin.open_device(url) as device, device.open_space("QS"):
        postgres_server.sql("UPDATE queues.alembic_version SET version_num = '0001'", place)
        ran = run("--upgrade", "-y", "--backed-up", url)
    assert ran.returncode == 1
    assert f"has processes attached: application {os.getpid()} on " in ran.stderr
    assert version(postgres_server, place) == ["0001", REVISION]


def test_without_pg_dump_a_device_has_to_be_saved_before_and_the_command_is_told(postgres_server, place, url, tmp_path):
    ran = run("--upgrade", "-y", url, PATH=str(tmp_path))
    assert ran.returncode == 1
    assert "pg_dump is not installed" in ran.stderr
    assert (
        "pg_dump --format=custom --schema=queues --schema=queues_memory --schema=second --schema=second_memory"
        in ran.stderr
    )
    assert "--backed-up" in ran.stderr
    assert version(postgres_server, place) == ["0001", "0001"]


def test_pg_dump_saves_a_device_before_and_what_it_saved_is_what_was_there(postgres_server, place, url, tmp_path):
    if postgres_server.bin is None or not (postgres_server.bin / "pg_dump").exists():
        pytest.skip("the server of this run has no pg_dump beside it")
    path = f"{postgres_server.bin}{os.pathsep}{os.environ['PATH']}"
    ran = run("--upgrade", "-y", "--backup", str(tmp_path / "saved"), url, PATH=path)
    assert ran.returncode == 0, ran.stderr
    assert f"Saved as {tmp_path / 'saved'}\n" in ran.stdout
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o600
    listed = subprocess.run(
        [shutil.which("pg_restore", path=path), "--list", tmp_path / "saved"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "TABLE DATA queues message" in listed.stdout
    assert "TABLE DATA second message" in listed.stdout
    assert "highest" not in listed.stdout


def test_a_backup_that_cannot_be_made_is_named_and_one_that_exists_stays(postgres_server, place, url, tmp_path):
    if postgres_server.bin is None or not (postgres_server.bin / "pg_dump").exists():
        pytest.skip("the server of this run has no pg_dump beside it")
    path = f"{postgres_server.bin}{os.pathsep}{os.environ['PATH']}"
    ran = run("--upgrade", "-y", "--backup", f"{tmp_path}/absent/saved", url, PATH=path)
    assert f"ERROR: making the backup '{tmp_path}/absent/saved' failed: No such file or directory" in ran.stderr
    (tmp_path / "saved").write_text("precious")
    ran = run("--upgrade", "-y", "--backup", f"{tmp_path}/saved", url, PATH=path)
    assert f"ERROR: '{tmp_path}/saved' exists already, and a backup never overwrites anything" in ran.stderr
    assert (tmp_path / "saved").read_text() == "precious"
    assert version(postgres_server, place) == ["0001", "0001"]


def test_a_role_that_does_not_own_a_device_is_refused(postgres_server, place, url):
    role = f"stranger_{os.getpid()}"
    with postgres_server.connect(place) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
        try:
            connection.execute(f"GRANT USAGE ON SCHEMA queues, second TO {role}")
            connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA queues, second TO {role}")
            theirs = postgres_server.url(place, user=role, password="secret")
            ran = run("--upgrade", "-y", "--backed-up", f"{theirs}{'&' if '?' in theirs else '?'}schema=queues")
            assert ran.returncode == 1
            assert "belongs to postgres, which alone can upgrade it" in ran.stderr
        finally:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")
    assert version(postgres_server, place) == ["0001", "0001"]
