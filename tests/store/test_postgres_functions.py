"""The functions of a device on PostgreSQL: they come with it, go where it goes, and do all in few calls."""

import os
import re

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import NoSpaceError, OperatingSystemError, ReleaseError
from qmcore.message import EnqueueControl
from qmcore.queue import Delivery
from tests.fix_postgres import database_of
from tests.fix_store import drain, make_queue, space_definition

psycopg = pytest.importorskip("psycopg")

from qmstorage.postgres import arriving  # noqa: E402 - there is nothing to test without psycopg
from qmstorage.schema import VERSION  # noqa: E402


@pytest.fixture
def by_hand(database_url):
    """Run statements as the owner of the device, `{}` being its schema, and return what the last one gives."""
    database, schema = database_of(database_url)

    def run(*statements):
        with psycopg.connect(database, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.format(schema))
            return cursor.fetchall() if cursor.description else None

    return run


@pytest.fixture
def made(database_url):
    """A device that is closed, with a queue space `SPACE` and its queue `Q`."""
    with create_device(database_url, 20_000) as device:
        device.create_space(space_definition(memory=10_000_000, pages=19_000, messages=100_000))
        with device.open_space("SPACE") as space:
            make_queue(space, "Q")
    return database_url


def bodies(url):
    with open_device(url) as device, device.open_space("SPACE") as space:
        space.enqueue("Q", "new")
        return [message.text for message in space.dequeue_many("Q", 100)]


def test_a_device_that_lost_its_functions_gets_them_again_from_its_owner(made, by_hand):
    by_hand("DROP FUNCTION {}.qm_enqueue")
    assert bodies(made) == ["new"]


def test_one_of_another_form_is_replaced(made, by_hand):
    by_hand(
        "DROP FUNCTION {}.qm_enqueue",
        "CREATE FUNCTION {}.qm_enqueue(a integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION {}.qm_enqueue() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    )
    assert bodies(made) == ["new"]
    named = "SELECT count(*) FROM pg_proc WHERE pronamespace = '{}'::regnamespace AND proname = 'qm_enqueue'"
    assert by_hand(named) == [(1,)]


def test_a_schema_may_get_another_name(made, by_hand):
    by_hand("ALTER SCHEMA {0} RENAME TO {0}_renamed", "ALTER SCHEMA {0}_memory RENAME TO {0}_renamed_memory")
    url = re.sub(r"schema=(\w+)", r"schema=\1_renamed", made)
    with pytest.raises(psycopg.Error):
        by_hand("SELECT FROM {}.device")
    with open_device(url) as device:
        assert device.info.schema_version == VERSION


@pytest.fixture
def role(by_hand):
    name = f"functions_{os.getpid()}"
    by_hand(f"CREATE ROLE {name}")
    yield name
    by_hand(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def acting_as(url, role, monkeypatch):
    monkeypatch.setenv("PGOPTIONS", f"-c role={role}")
    return url


def test_a_role_that_is_not_the_owner_is_told_who_is(made, by_hand, role, monkeypatch):
    by_hand(
        f"GRANT USAGE ON SCHEMA {{0}}, {{0}}_memory TO {role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {{0}}, {{0}}_memory TO {role}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {{0}} TO {role}",
        f"GRANT pg_read_all_stats TO {role}",
        "DROP FUNCTION {}.qm_enqueue",
    )
    with monkeypatch.context() as patch, pytest.raises(OperatingSystemError) as caught:
        open_device(acting_as(made, role, patch))
    assert "lacks its function qm_enqueue as it has to be" in str(caught.value)
    assert "Open it once as" in caught.value.hint
    assert bodies(made) == ["new"]
    with monkeypatch.context() as patch:
        assert bodies(acting_as(made, role, patch)) == ["new"]


def test_an_earlier_release_would_refuse_a_later_version(made, by_hand):
    by_hand(f"UPDATE {{}}.alembic_version SET version_num = '{VERSION + 1:04d}'")
    with pytest.raises(ReleaseError, match=f"newer than version {VERSION} of this release"):
        open_device(made)
    by_hand(f"UPDATE {{}}.alembic_version SET version_num = '{VERSION - 1:04d}'")
    with pytest.raises(ReleaseError, match="upgrade it with qmadmin --upgrade"):
        open_device(made)


class TestParts:
    """More than one call can bring comes in several, all or none."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        monkeypatch.setattr(arriving, "MOST_BYTES", 1_000)

    @pytest.fixture
    def space(self, made):
        with open_device(made) as device, device.open_space("SPACE") as space:
            yield space

    def test_they_come_in_their_order_and_are_counted_once(self, space):
        texts = [str(number) * 300 for number in range(9)]
        msgids = space.enqueue_many("Q", texts)
        assert sorted(msgids) == msgids
        usage = space.usage("Q")
        assert (usage.messages, usage.enqueued, usage.size) == (9, 9, 2_700)
        assert drain(space) == texts

    def test_of_all_kinds_they_come_as_by_one_call(self, space, monkeypatch):
        make_queue(space, "R")
        kinds = [
            EnqueueControl(),
            EnqueueControl(delay=3_600_000_000, corrid=b"c"),
            EnqueueControl(lifetime=10**12, headers={"a": "b"}),
            EnqueueControl(delivery=Delivery.NONPERSIST, priority=7),
            EnqueueControl(subtype="s", client_id="me", reply_queue="R", urcode=3),
        ]

        def come(queue):
            space.put_many([(queue, b"%d" % at * 300, kinds[at % 5]) for at in range(20)])
            names = "state", "size", "priority", "corrid", "headers", "delivery", "subtype", "urcode"
            seen = [[getattr(info, name) for name in names] for info in space.messages(queue)]
            usage = space.usage(queue)
            return seen, usage.messages, usage.pages, usage.delayed, [message.body for message in space.browse(queue)]

        in_parts = come("Q")
        monkeypatch.setattr(arriving, "MOST_BYTES", 10**9)
        assert in_parts == come("R")
        assert in_parts[1:4] == (20, 16, 4)

    def test_groups_stay_together(self, space):
        make_queue(space, "G", grouping=True)
        first, *others = space.enqueue_many("G", ["x" * 600] * 5)
        assert others
        assert {info.group for info in space.messages("G")} == {first}

    def test_where_there_is_no_room_nothing_comes(self, space):
        with pytest.raises(NoSpaceError) as caught:
            space.enqueue_many("Q", ["x" * 600] * 100_001)
        assert caught.value.facts["used"] == 0
        assert space.usage("Q").messages == 0
        assert space.enqueue("Q", "next")

    def test_large_bodies_are_kept_apart_in_between(self, space):
        texts = ["a" * 600, "b" * 1_200_000, "c" * 600, "d" * 1_100_000]
        space.enqueue_many("Q", texts)
        assert drain(space) == texts
