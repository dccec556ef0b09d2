"""A device of the tests that was emptied is as a new one: nothing of the test before is to be seen."""

import pytest

from qmadmin.opening import create_device
from qmcore.errors import QueueError
from tests.fix_store import Store, make_queue, space_definition

TABLES = (
    "SELECT table_schema, table_name FROM information_schema.tables"
    " WHERE starts_with(table_schema, %s) AND table_name <> 'alembic_version'"
)


@pytest.fixture
def schemas(database_url, postgres_server, worker_database, emptied_devices):
    """What stands in the schema of a device, and the way back of a device, which comes again under another name."""
    return Schemas(database_url, lambda: postgres_server.connect(worker_database), emptied_devices)


class Schemas:
    def __init__(self, url, connect, emptied):
        self.url = url
        self.schema = url.rpartition("schema=")[2]
        self.connect = connect
        self.emptied = emptied

    def store(self, part, clock, **how):
        return Store("postgres", f"{self.url}_{part}", clock, self.emptied.device, **how)

    def sql(self, part, *statements):
        with self.connect() as connection:
            connection.execute(f"SET search_path = {self.schema}_{part}")
            found = [connection.execute(statement) for statement in statements]
            return found[-1].fetchall() if found[-1].description else []

    def back(self, part):
        """Give a device back; return whether it can be used again."""
        return self.emptied.empty(f"{self.schema}_{part}") != ()

    def rows(self, part):
        """Return the rows of all tables, with what differs from device to device left out."""
        with self.connect() as connection:
            tables = connection.execute(TABLES, [f"{self.schema}_{part}"]).fetchall()
            return {
                f"{schema.removeprefix(f'{self.schema}_{part}')}.{table}": self._shown(connection, part, schema, table)
                for schema, table in tables
            }

    def _shown(self, connection, part, schema, table):
        rows = connection.execute(f"SELECT to_jsonb(one) FROM {schema}.{table} AS one").fetchall()
        changing = {"id", "home"} if table == "device" else set()
        shown = [{key: value for key, value in row.items() if key not in changing} for (row,) in rows]
        return str(shown).replace(f"{self.schema}_{part}", "SCHEMA")


def use(store):
    """Do something of everything."""
    space = store.space(error_queue="ERRORS", memory=100_000)
    for name in ("Q", "ERRORS"):
        make_queue(space, name, retries=1)
    space.enqueue("Q", b"x" * 5_000_000)
    space.enqueue("Q", b"y", persistent=False)
    space.enqueue("Q", b"z", delay=5)
    with space.transaction():
        space.dequeue("Q")
        space.enqueue("Q", b"a")
    store.device.create_space(space_definition("OTHER", ipc_key=41_000, pages=100))


@pytest.mark.parametrize("partitions", [0, 4])
def test_all_that_a_test_has_done_is_gone(schemas, clock, partitions):
    first = schemas.store("a", clock, partitions=partitions)
    new, device_id = schemas.rows("a"), first.device.info.id
    use(first)
    first.close()
    assert schemas.back("a")
    second = schemas.store("b", clock, partitions=partitions)
    assert schemas.rows("b") == new
    assert second.device.info.id != device_id
    use(second)
    assert second.spaces[0].queue("Q").id == 1
    second.close()


def test_it_comes_again_and_again(schemas, clock):
    for part in "abcd":
        store = schemas.store(part, clock)
        use(store)
        store.close()
        assert schemas.back(part)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE INDEX ON message (priority)",
        "ALTER TABLE message ADD COLUMN colour text",
        "ALTER TABLE queue ALTER COLUMN name DROP NOT NULL",
        "ALTER TABLE queue DROP CONSTRAINT queue_pkey CASCADE",
        "CREATE VIEW other AS SELECT 1",
        "DROP TABLE waiter",
        "DROP TABLE alembic_version",
        "GRANT SELECT ON message TO PUBLIC",
        "ALTER TABLE message SET (fillfactor = 10)",
        "CREATE FUNCTION other() RETURNS int LANGUAGE SQL AS 'SELECT 1'",
        "UPDATE alembic_version SET version_num = '0001'",
    ],
)
def test_one_of_which_more_than_rows_was_changed_is_not_used_again(schemas, clock, change):
    store = schemas.store("a", clock)
    use(store)
    store.close()
    schemas.sql("a", change)
    assert not schemas.back("a")


def test_one_of_which_a_schema_was_dropped_or_given_away_is_not_used_again(schemas, clock):
    for part, change in (("a", "DROP SCHEMA {} CASCADE"), ("b", "GRANT USAGE ON SCHEMA {} TO PUBLIC")):
        for name in ("", "_memory"):
            store = schemas.store(part + name.strip("_"), clock)
            store.close()
            schemas.sql(part, change.format(f"{schemas.schema}_{part}{name.strip('_')}{name}"))
            assert not schemas.back(part + name.strip("_"))


def test_one_that_was_made_in_another_way_is_not_used_again(schemas, clock):
    create_device(f"{schemas.url}_a", 1000).close()
    assert not schemas.back("a")


def test_whoever_still_has_it_open_finds_nothing(schemas, clock):
    store = schemas.store("a", clock)
    use(store)
    assert schemas.back("a")
    with pytest.raises(QueueError):
        store.spaces[0].enqueue("Q", b"late")
    again = schemas.store("b", clock)
    with pytest.raises(QueueError):
        store.spaces[0].enqueue("Q", b"later")
    assert again.device.check() is not None
    again.close()
    store.close()
