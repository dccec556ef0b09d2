"""The contract of the store where messages are split into eight partitions, and what tells that they are."""

import contextlib

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import InvalidArgumentError
from qmcore.findings import Severity
from qmcore.probe import Point
from qmcore.purpose import Purpose
from tests.fix_postgres import database_of
from tests.fix_store import Store, make_queue, noted

# What is collected here runs on the store of this module.
from tests.store.test_enqueue import (  # noqa: F401
    test_a_listing_goes_on_over_what_happens_meanwhile,
    test_a_message_comes_out_as_it_went_in,
    test_everything_that_the_sender_says_travels_with_the_message,
    test_message_ids_are_never_used_twice,
    test_messages_are_listed_with_everything_but_their_bodies,
)
from tests.store.test_rollback import TestErrorQueue, TestRetries  # noqa: F401
from tests.store.test_transactions import TestCommit, TestRollback  # noqa: F401

psycopg = pytest.importorskip("psycopg")

PARTITIONS = 8


@pytest.fixture
def store(database_url, emptied_devices, clock):
    made = Store("postgres", database_url, clock, emptied_devices.device, partitions=PARTITIONS)
    yield made
    made.close()


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS", pages=10_000)
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "KEPT", retention=1000)
    make_queue(opened, "ERRORS")
    return opened


def rows(store, statement):
    database, schema = database_of(store.path)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'SET search_path = "{schema}"')
        return connection.execute(statement).fetchall()


def used(store):
    """Return how many messages each partition has that has any."""
    return dict(rows(store, "SELECT tableoid::regclass::text, count(*) FROM message GROUP BY 1"))


class TestTables:
    def test_messages_lie_in_all_partitions_and_in_no_other_table(self, store, space):
        space.enqueue_many("Q", [b"x"] * 200)
        assert set(used(store)) == {f"message_{number}" for number in range(PARTITIONS)}
        assert sum(used(store).values()) == 200

    def test_a_message_is_found_in_one_partition_by_its_number(self, store, space):
        space.enqueue_many("Q", [b"x"] * 50)
        plan = "\n".join(line for (line,) in rows(store, "EXPLAIN DELETE FROM message WHERE id = 1"))
        assert plan.count(" Scan ") == 1, plan

    def test_a_move_gives_a_message_another_number_and_leaves_it_whole(self, store, space):
        for at in range(30):
            space.enqueue("Q", f"{at}", corrid=f"{at}")
        before = {row[0] for row in rows(store, "SELECT id FROM message")}
        assert space.move("Q", "ERRORS") == 30
        after = {row[0] for row in rows(store, "SELECT id FROM message")}
        assert before.isdisjoint(after)
        assert [space.dequeue("ERRORS", corrid=f"{at}").text for at in range(30)] == [f"{at}" for at in range(30)]
        assert used(store) == {}

    def test_a_large_body_goes_through_retries_the_error_queue_and_the_history_whole(self, store, space):
        data = bytes(range(256)) * 12_000
        make_queue(space, "HARD", retries=0)
        space.enqueue("HARD", data)
        with space.transaction() as transaction:
            space.dequeue("HARD")
            transaction.rollback()
        moved = space.dequeue("ERRORS")
        assert (moved.body, moved.origin.queue) == (data, "HARD")
        msgid = space.enqueue("KEPT", data)
        assert space.dequeue("KEPT").body == data
        assert space.recall("KEPT", msgid).body == data
        assert space.purge_history("KEPT") == 1
        assert rows(store, "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM chunk)") == [(0, 0)]

    def test_the_doctor_finds_it_sound_and_sees_what_is_lost(self, store, space):
        space.enqueue("Q", b"x" * 3_000_000)
        space.enqueue("Q", "later", delay=100, expires_in=500)
        space.enqueue("KEPT", "consumed")
        space.dequeue("KEPT")
        assert not [found for found in store.device.check() if found.check in ("store-fault", "unreadable")]
        rows(store, "DELETE FROM chunk WHERE number = 0 RETURNING number")
        assert [found.severity for found in store.device.check() if found.check == "store-fault"] == [Severity.ERROR]


class TestDevice:
    def test_it_records_its_partitions_and_each_volume_of_it_is_split(self, store):
        schema = database_of(store.path)[1]
        store.device.create_entry(f"{schema}_second", 0, 500)
        assert open_device(store.path).info.partitions == PARTITIONS
        found = rows(store, f"SELECT count(*) FROM pg_inherits WHERE inhparent = '{schema}_second.message'::regclass")
        assert found == [(PARTITIONS,)]

    @pytest.mark.parametrize("partitions", [1, 257, -1, 2.0, True])
    def test_a_number_that_makes_no_sense_is_refused(self, database_url, partitions):
        with pytest.raises(InvalidArgumentError, match="number of partitions must be a whole number from 2 to 256"):
            create_device(database_url, 1000, partitions=partitions)

    @pytest.mark.parametrize("path", [":memory:", "QUE"])
    def test_a_file_has_no_partitions_and_is_not_made(self, tmp_path, monkeypatch, path):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InvalidArgumentError, match="partitions are possible only on PostgreSQL") as refused:
            create_device(path, 1000, partitions=2)
        assert "PostgreSQL" in refused.value.hint
        assert list(tmp_path.iterdir()) == []


class TestDurability:
    """Here because, like partitions, it is chosen when a device is made."""

    def test_a_relaxed_device_on_postgresql_waits_for_no_disk_but_with_what_it_promises(self, database_url):
        with create_device(database_url, 2000, durability="relaxed") as device:
            assert commits_are(device) == "off"
            assert commits_are(device, Purpose.PROMISE) == "on"
        with open_device(database_url) as device:
            assert (device.info.durability, commits_are(device)) == ("relaxed", "off")

    def test_a_full_one_does_whatever_the_database_says(self, database_url):
        database, _ = database_of(database_url)
        with contextlib.closing(psycopg.connect(database, autocommit=True)) as connection:
            name = connection.info.dbname
            connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
            try:
                with create_device(database_url, 2000) as device:
                    assert (device.info.durability, commits_are(device)) == ("full", "on")
            finally:
                connection.execute(f'ALTER DATABASE "{name}" RESET synchronous_commit')

    def test_a_relaxed_file_is_not_synced_and_a_full_one_is(self, tmp_path):
        def is_synced(device):
            synced = noted(device.probe, Point.AFTER_SYNC)
            with device:
                device.set_commands(enabled=False)
            return bool(synced)

        for durability in ("relaxed", "full"):
            path = tmp_path / durability
            assert is_synced(create_device(path, 2000, durability=durability)) is (durability == "full")
            assert open_device(path).info.durability == durability
            assert is_synced(open_device(path)) is (durability == "full")

    def test_another_word_is_refused(self, tmp_path):
        with pytest.raises(InvalidArgumentError, match="must be full or relaxed, got 'none'"):
            create_device(tmp_path / "QUE", 1000, durability="none")
        assert list(tmp_path.iterdir()) == []


def commits_are(device, purpose=Purpose.ADMINISTRATION):
    volume = device.volume_of(device.path)
    return volume.write(lambda unit: unit.asked("SHOW synchronous_commit")[0], purpose)
