"""What a role of the database may do with a device, by the rights that it has."""

import re
import secrets

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import OperatingSystemError, QueueError
from qmcore.records import Forwarding
from tests.fix_store import Work, drain, eventually, make_queue, space_definition, waiting_for

SCHEMAS = '"{schema}", "{schema}_memory"'


@pytest.fixture
def role(postgres_server, worker_database, database_url):
    """A role without rights, and a function that returns the device's URL for it, after what it is granted."""
    name, password = f"role_{secrets.token_hex(6)}", secrets.token_hex(12)
    postgres_server.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    schema = database_url.rpartition("schema=")[2]

    def url(*rights):
        for right in rights:
            statement = f"GRANT {right} {SCHEMAS} TO {name}".format(schema=schema)
            postgres_server.sql(statement, worker_database)
        return re.sub("//[^@]*@", f"//{name}:{password}@", database_url)

    url.name = name
    yield url
    postgres_server.sql(f"DROP OWNED BY {name} CASCADE", worker_database)
    postgres_server.sql(f"DROP ROLE {name}")


def lay_out(path, memory=0, **options):
    device = create_device(path, 5_000, **options)
    device.create_space(space_definition(memory=memory))
    with device.open_space("SPACE") as space:
        make_queue(space, retries=3)
        space.enqueue("Q", "x")
    return device


READING = ("USAGE ON SCHEMA", "SELECT ON ALL TABLES IN SCHEMA", "SELECT ON ALL SEQUENCES IN SCHEMA")


def test_a_role_without_rights_is_refused_in_a_sentence(database_url, role):
    with lay_out(database_url), pytest.raises(QueueError) as refused:
        open_device(role())
    assert "permission" in str(refused.value) or "right" in f"{refused.value} {refused.value.hint}"
    assert refused.value.hint


def test_a_role_that_may_only_read_reads_and_changes_nothing(database_url, role):
    with lay_out(database_url) as device, open_device(role(*READING)) as reader:
        assert reader.readonly
        with reader.open_space("SPACE") as space:
            assert [message.text for message in space.browse("Q")] == ["x"]
            assert space.usage("Q").messages == 1
            for act in (lambda: space.enqueue("Q", "y"), lambda: space.dequeue("Q"), lambda: space.purge("Q")):
                with pytest.raises(OperatingSystemError):
                    act()
        with device.open_space("SPACE") as space:
            assert drain(space) == ["x"]
            space.report_forwarding([Forwarding(queue="Q", calls=7)])
            assert [(process.alive, told.calls) for process, told in reader.forwardings("SPACE")] == [(True, 7)]


def test_a_role_that_may_only_read_counts_all_queues_whatever_is_to_be_done_there(database_url, role):
    with lay_out(database_url) as device, device.open_space("SPACE") as ours:
        make_queue(ours, "MANY", multiple_consumers=True)
        ours.subscribe("MANY", "one")
        ours.enqueue_many("MANY", ["a", "b"])
        ours.enqueue("MANY", "c", expires_in=0.001)
        with open_device(role(*READING)) as reader, reader.open_space("SPACE") as space:
            assert reader.readonly
            counted = {queue.name: usage.enqueued for queue, usage in space.usages(consumers=True)}
            assert counted == {"Q": 1, "MANY": 3, "MANY:one": 3}


def test_the_role_that_the_device_is_for_works_with_it_and_wakes_others(database_url, role):
    with lay_out(database_url, group=role.name) as device, open_device(role()) as member:
        assert not member.readonly
        with device.open_space("SPACE") as ours, member.open_space("SPACE") as theirs:
            assert drain(theirs) == ["x"]
            waiter = Work(lambda: ours.dequeue("Q", wait=30).text)
            eventually(lambda: waiting_for(device.path) == 1, "somebody waits")
            with theirs.transaction():
                theirs.enqueue("Q", "from the member")
            assert waiter.results() == ["from the member"]


def test_a_role_that_is_taken_on_in_each_session_has_to_see_the_sessions(
    postgres_server, worker_database, database_url, role
):
    """It must not be told that the server does not answer."""
    group = f"{role.name}_group"
    postgres_server.sql(f"CREATE ROLE {group}")
    postgres_server.sql(f"GRANT {group} TO {role.name}")
    try:
        with lay_out(database_url, group=group):
            taken_on = f"{role()}&options=-c%20role%3D{group}"
            with pytest.raises(OperatingSystemError, match="may not see in pg_stat_activity") as refused:
                open_device(taken_on)
            assert "pg_read_all_stats" in refused.value.hint
            postgres_server.sql(f"GRANT pg_read_all_stats TO {group}")
            with open_device(taken_on) as device, device.open_space("SPACE") as space:
                assert drain(space) == ["x"]
    finally:
        postgres_server.sql(f"DROP OWNED BY {group} CASCADE", worker_database)
        postgres_server.sql(f"DROP ROLE {group}")


def test_what_a_restore_has_left_out_of_a_device_is_made_again_by_its_owner(
    postgres_server, worker_database, database_url, role
):
    """Non-persistent messages are lost with their schema, and nothing else."""
    schema = database_url.rpartition("schema=")[2]
    with lay_out(database_url, memory=1_000_000, group=role.name) as device, device.open_space("SPACE") as space:
        space.enqueue("Q", "lost", persistent=False)
    postgres_server.sql(f"DROP SCHEMA {schema}_memory CASCADE", worker_database)
    with pytest.raises(OperatingSystemError, match=f"lacks its schema '{schema}_memory'") as refused:
        open_device(role())
    assert "the role that owns it" in refused.value.hint
    with open_device(database_url) as device, device.open_space("SPACE") as space:
        space.enqueue("Q", "y", persistent=False)
    with open_device(role()) as member, member.open_space("SPACE") as space:
        space.enqueue("Q", "z", persistent=False)
        assert drain(space) == ["x", "y", "z"]


def test_what_an_administrator_makes_again_is_the_owners_and_widens_no_rights(
    postgres_server, worker_database, database_url, role
):
    schema = database_url.rpartition("schema=")[2]
    rights = (
        f"SELECT nspacl::text FROM pg_namespace WHERE nspname = '{schema}' UNION ALL SELECT relacl::text FROM pg_class"
    )
    rights += f" WHERE relnamespace = '{schema}'::regnamespace AND relname = 'message'"
    postgres_server.sql(f"GRANT CREATE ON DATABASE {worker_database} TO {role.name}")
    with lay_out(role(), memory=1_000_000):
        writer = f"{role.name}_writer"
        postgres_server.sql(f"CREATE ROLE {writer}")
        try:
            postgres_server.sql(f"GRANT USAGE ON SCHEMA {schema} TO {writer}", worker_database)
            postgres_server.sql(
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.message TO {writer}", worker_database
            )
            before = postgres_server.sql(rights, worker_database)
            postgres_server.sql(f"DROP SCHEMA {schema}_memory CASCADE", worker_database)
            open_device(database_url).close()
            assert postgres_server.sql(rights, worker_database) == before
            owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class"
            owners += f" WHERE relnamespace = '{schema}_memory'::regnamespace"
            assert postgres_server.sql(owners, worker_database) == [(role.name,)]
            with open_device(role()) as device, device.open_space("SPACE") as space:
                space.enqueue("Q", "y", persistent=False)
                assert drain(space) == ["x", "y"]
        finally:
            postgres_server.sql(f"DROP OWNED BY {writer} CASCADE", worker_database)
            postgres_server.sql(f"DROP ROLE {writer}")


def test_a_role_with_rights_on_the_persistent_messages_alone_works_with_them(database_url, role, postgres_server):
    schema = database_url.rpartition("schema=")[2]
    with lay_out(database_url):
        url = role()
        database = url.rpartition("/")[2].partition("?")[0]
        for right in ("USAGE ON SCHEMA", "ALL ON ALL TABLES IN SCHEMA", "ALL ON ALL SEQUENCES IN SCHEMA"):
            postgres_server.sql(f"GRANT {right} {schema} TO {role.name}", database)
        with open_device(url) as device, device.open_space("SPACE") as space:
            assert drain(space) == ["x"]
