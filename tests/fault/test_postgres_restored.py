"""A database that was restored, or whose standby took over: no identifier comes twice, and nothing counts as a try."""

import contextlib
import shutil
import subprocess

import pytest

from qmadmin import create_device, open_device
from qmcore.findings import Severity
from tests.fix_postgres import but_for_this_server
from tests.fix_store import drain, eventually, make_queue, space_definition

WORK, COPY = "work", "copy"


@pytest.fixture
def server(own_cluster):
    own_cluster.sql(f"CREATE DATABASE {WORK}")
    return own_cluster


@pytest.fixture
def device(server):
    with create_device(url_of(server, WORK), 20_000) as made:
        made.create_space(space_definition(error_queue="ERRORS"))
        with made.open_space("SPACE") as space:
            make_queue(space, "Q")
            make_queue(space, "ERRORS")
        yield made


@pytest.fixture
def space(device):
    with device.open_space("SPACE") as opened:
        yield opened


def url_of(server, database):
    return f"{server.url(database)}?schema=queues"


@contextlib.contextmanager
def opened(url):
    with open_device(url) as device, device.open_space("SPACE") as space:
        yield device, space


def given(space, count=5):
    return {space.enqueue("Q", "after") for _ in range(count)}


def wrong(device):
    return [found for found in but_for_this_server(device.check()) if found.severity is Severity.ERROR]


def copy(server):
    """Copy the database as it stands, with whoever is attached to it."""
    server.sql(f"ALTER DATABASE {WORK} ALLOW_CONNECTIONS false")
    server.sql(f"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = '{WORK}'")
    server.sql(f"CREATE DATABASE {COPY} TEMPLATE {WORK}")
    server.sql(f"ALTER DATABASE {WORK} ALLOW_CONNECTIONS true")


def test_a_copy_gives_other_identifiers_than_the_original(server, device, space):
    before = space.enqueue("Q", "before")
    gone = space.enqueue("Q", "gone")
    space.dequeue("Q", msgid=gone)
    copy(server)
    ours = given(space)
    with opened(url_of(server, COPY)) as (there, restored):
        theirs = given(restored)
        assert not theirs & (ours | {before, gone})
        assert restored.dequeue("Q", msgid=before).msgid == before
        assert {message.msgid for message in restored.dequeue_many("Q", 100)} == theirs
        assert wrong(there) == []
    assert {message.msgid for message in space.dequeue_many("Q", 100)} == ours | {before}


def test_what_was_in_hand_at_the_backup_is_back_and_was_not_tried(server, device, space):
    space.enqueue("Q", "in hand")
    with contextlib.suppress(Exception), space.transaction():
        space.dequeue("Q")
        copy(server)
    with opened(url_of(server, COPY)) as (there, restored):
        eventually(lambda: restored.usage("Q").ready == 1, "the transaction is given up")
        assert (restored.dequeue("Q").retries, restored.usage("ERRORS").messages) == (0, 0)
        assert wrong(there) == []


def test_a_copy_that_is_opened_again_keeps_its_identifiers(server, device, space):
    copy(server)
    named = []
    for _ in range(2):
        with opened(url_of(server, COPY)) as (_, restored):
            named.append(restored.enqueue("Q", "x"))
    assert named[0][:16] == named[1][:16]


def test_a_copy_of_a_copy_knows_the_identifiers_of_both(server, device, space):
    first = space.enqueue("Q", "first")
    copy(server)
    with opened(url_of(server, COPY)) as (_, restored):
        second = restored.enqueue("Q", "second")
    server.sql(f"DROP DATABASE {WORK} WITH (FORCE)")
    server.sql(f"CREATE DATABASE {WORK} TEMPLATE {COPY}")
    with opened(url_of(server, WORK)) as (there, again):
        third = again.enqueue("Q", "third")
        assert len({first[:16], second[:16], third[:16]}) == 3
        assert [again.dequeue("Q", msgid=each).text for each in (first, second, third)] == ["first", "second", "third"]
        assert wrong(there) == []


def test_a_schema_that_is_dropped_and_restored_in_its_database_gives_other_identifiers(server, device, space, tmp_path):
    program = server.bin / "pg_dump"
    if not program.exists():
        pytest.skip("there is no pg_dump beside the server")
    before = space.enqueue("Q", "before")
    dump = tmp_path / "dump"
    plain = server.url(WORK).replace("+psycopg", "")
    subprocess.run([program, "-f", dump, "-n", "queues", "-n", "queues_memory", plain], check=True)
    after = given(space)
    device.close()
    server.sql("DROP SCHEMA queues, queues_memory CASCADE", WORK)
    subprocess.run([shutil.which("psql") or server.bin / "psql", "-qX", "-f", dump, plain], check=True)
    with opened(url_of(server, WORK)) as (there, restored):
        assert not given(restored) & after
        assert restored.dequeue("Q").msgid == before
        assert wrong(there) == []


def test_a_standby_that_took_over_gives_other_identifiers_to_whoever_has_it_open(server):
    standby = server.standby()
    one = f"127.0.0.1:{server.port}"
    both = url_of(server, WORK).replace(one, f"{one},127.0.0.1:{standby.port}")
    with create_device(f"{both}&target_session_attrs=read-write", 20_000) as device:
        device.create_space(space_definition(error_queue="ERRORS"))
        with device.open_space("SPACE") as space:
            make_queue(space, "Q", retries=1)
            make_queue(space, "ERRORS")
            before = space.enqueue("Q", "before")
            eventually(lambda: standby.sql("SELECT count(*) FROM queues.message", WORK) == [(1,)], "it is replicated")
            server.kill()
            standby.promote()
            eventually(lambda: space.usage("Q").messages == 1, "it takes over")
            with space.transaction():
                named = space.enqueue("Q", "after")
            assert named[:16] != before[:16]
            assert drain(space) == ["before", "after"]
            assert wrong(device) == []
