"""What the doctor says of a PostgreSQL server and its tables: each finding brought about for real, and its remedy."""

import contextlib
import itertools

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import BadResourceError
from qmcore.findings import Severity
from tests.cluster import Cluster
from tests.fix_postgres import or_do_without
from tests.fix_store import eventually, make_queue, space_definition

psycopg = pytest.importorskip("psycopg")
health = pytest.importorskip("qmstorage.postgres.health")

NOT_VALID = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'qmadmin.due_by_message'::regclass"
BUSY = 1e9
"""More messages a second than there can be, so that nothing is said of what only a flow makes worse."""


@pytest.fixture(scope="module")
def server():
    with or_do_without():
        cluster = Cluster.of_its_own()
    cluster.stop()
    with (cluster.data / "postgresql.conf").open("a") as settings:
        # Autovacuum comes when a test is over, if ever.
        settings.write("max_prepared_transactions = 5\nautovacuum_naptime = 3600\nwal_receiver_status_interval = 1\n")
    cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def numbers():
    return itertools.count(1)


@pytest.fixture
def database(server, numbers):
    name = f"d_{next(numbers)}"
    server.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
    yield name
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def role(server, numbers):
    name = f"r_{next(numbers)}"
    server.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    yield name
    with contextlib.suppress(psycopg.Error):
        server.sql(f"DROP ROLE {name}")


@pytest.fixture
def device(server, database):
    with create_device(server.url(database), 5000) as made:
        yield made


@pytest.fixture
def hand(server, database):
    """Run statements as a careless hand would."""

    def run(*statements):
        with server.connect(database) as connection:
            for statement in statements:
                connection.execute(statement)

    return run


ALTERED = """
DO $$ BEGIN
  EXECUTE replace(pg_get_functiondef('qmadmin.qm_enqueue'::regproc), 'RETURN ARRAY[1,', 'RETURN ARRAY[2,');
END $$
"""


def looked(device, user=None, **limits):
    """Return what is found with other limits, but for what the servers of the tests are known for."""
    address = device.volume_of(device.path).address
    with psycopg.connect(address.conninfo, autocommit=True, **({"user": user} if user else {})) as connection:
        limits = health.Limits(**({"flow": BUSY} | limits))
        found = health.examined(connection, address, device.info, limits)
        return [each for each in found if each.target not in {"setting fsync", "setting full_page_writes"}]


def the_one(device, check, **limits):
    (found,) = looked(device, **limits)
    assert (found.check, found.advice != "") == (check, True), found
    return found


@contextlib.contextmanager
def setting(server, name, value):
    """Have the server run with another setting."""

    def reloaded(statement):
        server.sql(statement)
        server.sql("SELECT pg_reload_conf()")
        wanted = value if "SET" in statement.split()[2:3] else None
        if wanted is not None:
            eventually(lambda: server.sql(f"SHOW {name}") == [(wanted,)], f"{name} is {wanted}")

    before = server.sql(f"SHOW {name}")
    reloaded(f"ALTER SYSTEM SET {name} = '{value}'")
    yield
    server.sql(f"ALTER SYSTEM RESET {name}")
    server.sql("SELECT pg_reload_conf()")
    eventually(lambda: server.sql(f"SHOW {name}") == before, f"{name} is as before")


class TestServer:
    def test_nothing_is_said_of_a_server_that_is_as_it_should_be(self, server, device):
        with setting(server, "fsync", "on"), setting(server, "full_page_writes", "on"):
            assert [found for found in device.check() if found.severity is not Severity.OK] == []

    def test_a_split_device_is_as_well(self, server, database):
        with create_device(server.url(database), 5000, partitions=3) as device:
            assert looked(device) == []

    @pytest.mark.parametrize("name", ["fsync", "full_page_writes"])
    def test_what_loses_messages_with_the_power_is_an_error(self, device, name):
        found = [each for each in device.check() if each.target == f"setting {name}"]
        assert [(each.severity, each.check) for each in found] == [(Severity.ERROR, "server-setting")]
        assert f"Set {name} to on" in found[0].advice

    @pytest.mark.parametrize("name", ["autovacuum", "track_counts"])
    def test_what_lets_dead_rows_stay_is_an_error(self, server, device, name):
        with setting(server, name, "off"):
            found = the_one(device, "server-setting")
        assert (found.severity, found.target) == (Severity.ERROR, f"setting {name}")

    @pytest.mark.parametrize(
        ("where", "named"),
        [
            ("ROLE {role}", "role {role} in all databases"),
            ("DATABASE {database}", "all roles in database {database}"),
            ("ROLE {role} IN DATABASE {database}", "role {role} in database {database}"),
        ],
    )
    def test_commits_that_reach_no_disk_are_told_of_a_durable_device_only(self, server, database, role, where, named):
        words = {"role": role, "database": database}
        server.sql(f"ALTER {where.format(**words)} SET synchronous_commit = off")
        with create_device(server.url(database), 5000) as device:
            found = the_one(device, "server-setting")
            assert (found.severity, found.target) == (Severity.WARNING, "setting synchronous_commit")
            assert f"it is off for {named.format(**words)}, " in found.sentence
        with create_device(server.url(database) + "?schema=fast", 2000, durability="relaxed") as device:
            assert looked(device) == []

    def test_so_are_those_of_the_whole_server(self, server, device):
        with setting(server, "synchronous_commit", "off"):
            assert "off for the server" in the_one(device, "server-setting").sentence

    def test_an_autovacuum_that_comes_too_seldom_for_the_flow_is_told(self, device, hand):
        hand("INSERT INTO qmadmin.ready SELECT 1, int8send(n), n, 0 FROM generate_series(1, 500) n")
        hand("DELETE FROM qmadmin.ready")
        eventually(lambda: looked(device, flow=0, dead_at_head=0) != [], "the deletions are counted")
        found = the_one(device, "server-setting", flow=0, dead_at_head=0)
        assert (found.target, "it is 3600 seconds" in found.sentence) == ("setting autovacuum_naptime", True)
        assert looked(device, flow=BUSY, dead_at_head=0) == []

    def test_a_database_in_another_encoding_is_an_error(self, server, database, device):
        server.sql(f"UPDATE pg_database SET encoding = pg_char_to_encoding('LATIN1') WHERE datname = '{database}'")
        found = the_one(device, "encoding")
        assert (found.severity, "its encoding is LATIN1" in found.sentence) == (Severity.ERROR, True)

    @pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
    def test_no_device_is_made_in_such_a_one(self, server, numbers, encoding):
        name = f"ascii_{next(numbers)}"
        server.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
        with pytest.raises(BadResourceError, match=f"has the encoding {encoding}") as refused:
            create_device(server.url(name), 2000)
        assert "ENCODING 'UTF8'" in refused.value.hint
        assert server.sql("SELECT 1 FROM pg_namespace WHERE nspname = 'qmadmin'", name) == []
        server.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def test_connections_that_are_nearly_used_up_are_told(self, server, database, device):
        server.sql(f"ALTER DATABASE {database} CONNECTION LIMIT 6")
        assert looked(device) == []
        with contextlib.ExitStack() as others:
            for _ in range(3):
                others.enter_context(server.connect(database))
            found = the_one(device, "limit-near")
        assert (found.target, found.sentence) == (f"database {database}", "5 of 6 connections are in use")
        assert {each.target for each in looked(device, near_percent=0)} == {"server", f"database {database}"}

    def test_transaction_numbers_that_run_out_are_told_in_time(self, device):
        assert the_one(device, "wraparound", frozen_age=0).severity is Severity.WARNING
        assert the_one(device, "wraparound", frozen_age=0, frozen_age_most=0).severity is Severity.ERROR


class TestHorizon:
    def test_a_session_that_forgot_its_transaction_is_named_and_not_quoted(self, server, database, device):
        with server.connect(database, autocommit=False, application_name="reporting") as forgotten:
            forgotten.execute("SELECT 'secret', pg_current_xact_id()")
            found = the_one(device, "vacuum-held-back", open_seconds=0)
            assert found.target == f"session {forgotten.info.backend_pid} of reporting"
            assert "(idle in transaction)" in found.sentence
            assert "secret" not in repr(found)
            assert looked(device) == [], "it is not open for long"
            server.sql(found.advice.partition("SELECT")[1] + found.advice.partition("SELECT")[2].removesuffix(" does."))
            eventually(lambda: looked(device, open_seconds=0) == [], "the session is gone")
            with pytest.raises(psycopg.Error):
                forgotten.execute("SELECT 1")
            forgotten.close()

    def test_one_that_reads_for_long_is_told_as_well(self, server, database, device):
        with server.connect(database, autocommit=False) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1")
            assert the_one(device, "vacuum-held-back", open_seconds=0).severity is Severity.WARNING

    def test_one_in_another_database_holds_nothing_back_here(self, server, device):
        with server.connect("postgres", autocommit=False) as elsewhere:
            elsewhere.execute("SELECT pg_current_xact_id()")
            assert looked(device, open_seconds=0) == []

    def test_a_prepared_transaction_that_nobody_ends_is_named(self, device, hand):
        hand("BEGIN", "CREATE TABLE public.x ()", "PREPARE TRANSACTION 'forgotten'")
        found = the_one(device, "vacuum-held-back", open_seconds=0)
        assert (found.target, "role postgres" in found.sentence) == ("prepared transaction forgotten", True)
        assert looked(device) == []
        hand("ROLLBACK PREPARED 'forgotten'")
        assert looked(device, open_seconds=0) == []

    def test_whoever_may_not_see_the_sessions_of_others_is_told_so(self, server, database, device, role):
        with server.connect(database, autocommit=False) as other:
            other.execute("SELECT pg_current_xact_id()")
            address = device.volume_of(device.path).address
            user = server.url(database, user=role, password="x").replace("+psycopg", "", 1)
            with psycopg.connect(user, autocommit=True) as connection:
                limits = health.Limits(open_seconds=0)
                found = {each.check: each for each in health.examined(connection, address, device.info, limits)}
        assert found["sessions-hidden"].severity is Severity.INFO
        assert "vacuum-held-back" not in found

    def test_a_slot_that_nobody_reads_keeps_the_log(self, server, device):
        server.sql("SELECT pg_create_physical_replication_slot('forgotten', true)")
        assert looked(device) == []
        found = the_one(device, "slot-idle", kept_log=0)
        assert found.target == "replication slot forgotten"
        server.sql("SELECT pg_drop_replication_slot('forgotten')")
        assert looked(device, kept_log=0) == []

    def test_a_standby_that_holds_rows_back_is_named_and_so_is_its_slot(self, server, device):
        standby = server.standby()
        standby.sql("ALTER SYSTEM SET hot_standby_feedback = on")
        standby.sql("SELECT pg_reload_conf()")
        eventually(lambda: looked(device, old_transactions=0) != [], "the standby tells what it needs")
        assert the_one(device, "vacuum-held-back", old_transactions=0).target.startswith("standby of standby_")
        server.sql("SELECT pg_create_physical_replication_slot('its_own')")
        standby.sql("ALTER SYSTEM SET primary_slot_name = 'its_own'")
        standby.sql("SELECT pg_reload_conf()")
        its_own = "replication slot its_own"
        eventually(lambda: [each.target for each in looked(device, old_transactions=0)] == [its_own], "the slot does")
        with open_device(
            standby.url(device.volume_of(device.path).address.shown.rpartition("/")[2].split("?")[0])
        ) as it:
            assert [each.check for each in looked(it, old_transactions=0)] == []
        standby.close()
        checks = {each.check for each in looked(device, old_transactions=0, kept_log=0)}
        assert checks == {"vacuum-held-back", "slot-idle"}
        eventually(lambda: not server.sql("SELECT 1 FROM pg_replication_slots WHERE active"), "nobody has the slot")
        server.sql("SELECT pg_drop_replication_slot('its_own')")
        assert looked(device, old_transactions=0, kept_log=0) == []


class TestTables:
    @pytest.fixture
    def with_dead_rows(self, hand):
        def made(count):
            hand(f"INSERT INTO qmadmin.ready SELECT 1, int8send(n), n, 0 FROM generate_series(1, {count}) n")
            hand("DELETE FROM qmadmin.ready")

        return made

    def test_dead_rows_that_pile_up_are_told_until_they_are_gone(self, device, with_dead_rows, hand):
        with_dead_rows(3000)
        # What two sessions have done may be counted one after the other.
        eventually(
            lambda: any(" 0 live " in found.sentence for found in looked(device, dead_rows=2000)),
            "all that was done is counted",
        )
        found = the_one(device, "dead-rows", dead_rows=2000)
        assert found.target == "table qmadmin.ready"
        assert found.sentence.startswith("it has 3000 dead rows beside 0 live ones; it has not been vacuumed")
        assert looked(device) == []
        hand('VACUUM "qmadmin".ready')
        eventually(lambda: looked(device, dead_rows=2000) == [], "the rows are gone")

    def test_an_autovacuum_that_does_not_come_is_told(self, device, with_dead_rows):
        with_dead_rows(25_000)
        eventually(lambda: looked(device, vacuum_seconds=0) != [], "the deletions are counted")
        assert the_one(device, "vacuum-late", vacuum_seconds=0).target == "table qmadmin.ready"
        assert looked(device, vacuum_seconds=3600) == []

    def test_a_table_that_is_much_larger_than_its_rows_is_told(self, device, with_dead_rows, hand):
        with_dead_rows(20_000)
        found = the_one(device, "table-large", large_bytes=2**20)
        assert (found.severity, found.target) == (Severity.INFO, "table qmadmin.ready")
        hand(found.advice.partition(",")[0])
        assert looked(device, large_bytes=2**20) == []

    @pytest.mark.parametrize(
        ("change", "severity", "named"),
        [
            ("RESET (autovacuum_vacuum_threshold)", Severity.WARNING, "autovacuum_vacuum_threshold"),
            ("SET (autovacuum_vacuum_scale_factor = 0.5)", Severity.WARNING, "autovacuum_vacuum_scale_factor"),
            ("SET (autovacuum_enabled = false)", Severity.ERROR, "autovacuum_enabled"),
        ],
    )
    @pytest.mark.parametrize("table", ["qmadmin.ready", "qmadmin.counter", "qmadmin_memory.message"])
    def test_storage_parameters_that_were_changed_are_told_and_set_again(
        self, device, hand, table, change, severity, named
    ):
        hand(f"ALTER TABLE {table} {change}")
        found = the_one(device, "table-settings")
        assert (found.severity, found.target) == (severity, f"table {table}")
        assert found.sentence.endswith(f": {named}")
        hand(found.advice)
        assert looked(device) == []

    def test_those_of_a_partition_are_looked_at_too(self, server, database, hand):
        with create_device(server.url(database), 5000, partitions=3) as device:
            hand("ALTER TABLE qmadmin.message_2 RESET (autovacuum_vacuum_threshold)")
            found = the_one(device, "table-settings")
            assert found.target == "table qmadmin.message_2"
            hand(found.advice)
            assert looked(device) == []

    @pytest.mark.parametrize(
        ("table", "index", "change"),
        [
            ("message", "message_by_corrid", "DROP INDEX qmadmin.message_by_corrid"),
            ("ready", "ready_pkey", "ALTER TABLE qmadmin.ready DROP CONSTRAINT ready_pkey"),
            (
                "queue",
                "queue_space_id_name_import_id_key",
                "ALTER TABLE qmadmin.queue DROP CONSTRAINT queue_space_id_name_import_id_key",
            ),
            ("due", "due_by_message", NOT_VALID),
        ],
    )
    def test_an_index_that_is_missing_or_not_valid_is_told_and_made_again(self, device, hand, table, index, change):
        hand(change)
        found = the_one(device, "index-missing")
        assert (found.severity, found.target) == (Severity.ERROR, f"table qmadmin.{table}")
        assert f"its index {index} is" in found.sentence
        hand(found.advice)
        assert looked(device) == []

    def test_a_table_that_is_not_logged_any_more_is_told(self, device, hand):
        hand("ALTER TABLE qmadmin.message SET UNLOGGED")
        found = the_one(device, "not-logged")
        assert (found.severity, found.target) == (Severity.ERROR, "table qmadmin.message")
        hand(found.advice)
        assert looked(device) == []

    def test_a_table_that_is_gone_is_told(self, device, hand):
        hand("DROP TABLE qmadmin.adopted")
        assert the_one(device, "table-missing").target == "table qmadmin.adopted"

    @pytest.mark.parametrize(
        ("change", "check"),
        [
            ("DROP FUNCTION qmadmin.qm_enqueue", "function-missing"),
            (ALTERED, "function-altered"),
        ],
    )
    def test_a_function_that_is_missing_or_altered_is_told_and_made_again_by_whoever_opens(
        self, server, database, device, hand, change, check
    ):
        hand(change)
        found = the_one(device, check)
        assert (found.severity, found.target) == (Severity.ERROR, "function qmadmin.qm_enqueue")
        open_device(server.url(database)).close()
        assert looked(device) == []

    def test_a_table_of_somebody_else_is_told(self, device, hand, role):
        hand(f"ALTER TABLE qmadmin.chunk OWNER TO {role}")
        found = the_one(device, "owner")
        assert (found.target, role in found.sentence) == ("table qmadmin.chunk", True)
        hand(found.advice)
        assert looked(device) == []


class TestRights:
    @pytest.fixture
    def shared(self, server, database, role):
        with create_device(server.url(database), 5000, group=role) as device:
            device.create_space(space_definition(queues=2))
            with device.open_space("SPACE") as space:
                make_queue(space)
                yield device

    def test_a_role_that_has_its_rights_is_not_told(self, shared):
        assert looked(shared) == []

    @pytest.mark.parametrize(
        ("change", "lacks"),
        [
            ("REVOKE DELETE ON qmadmin.ready FROM {}", "DELETE on 1 tables"),
            ("REVOKE ALL ON ALL TABLES IN SCHEMA qmadmin_memory FROM {}", "DELETE on 8 tables, INSERT on 8 tables"),
            ("REVOKE ALL ON SCHEMA qmadmin FROM {}", "USAGE on schema qmadmin"),
            ("REVOKE ALL ON ALL SEQUENCES IN SCHEMA qmadmin FROM {}", "USAGE on "),
            ("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA qmadmin FROM PUBLIC, {}", "EXECUTE on 8 functions"),
        ],
    )
    def test_a_role_that_lacks_rights_is_told_and_gets_them_by_the_remedy(self, shared, hand, role, change, lacks):
        hand(change.format(role))
        found = the_one(shared, "rights")
        assert (found.severity, found.target) == (Severity.ERROR, f"role {role}")
        assert f"it lacks rights: {lacks}" in found.sentence
        hand(found.advice)
        assert looked(shared) == []

    def test_a_role_that_is_gone_is_told(self, shared, hand, role):
        hand(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
        assert "it does not exist" in the_one(shared, "rights").sentence

    def test_rights_of_everybody_are_an_error_and_are_taken_back_by_the_remedy(self, device, hand):
        hand("GRANT SELECT ON qmadmin.message TO PUBLIC")
        found = the_one(device, "rights")
        assert (found.severity, found.target) == (Severity.ERROR, "schema qmadmin")
        hand(found.advice)
        assert looked(device) == []


class TestTelling:
    def test_what_concerns_the_server_is_told_once_for_all_volumes(self, server, device, hand):
        device.create_entry("second", 0, 500)
        hand("ALTER TABLE second.ready RESET (fillfactor, autovacuum_vacuum_threshold)")
        told = [(each.check, each.target) for each in device.check() if each.severity is not Severity.OK]
        assert sorted(told) == [
            ("server-setting", "setting fsync"),
            ("server-setting", "setting full_page_writes"),
            ("table-settings", "table second.ready"),
        ]

    def test_a_look_at_one_queue_space_leaves_the_server_out(self, device):
        device.create_space(space_definition(queues=2))
        assert [each.target for each in device.check("SPACE") if each.check == "server-setting"] == []
