"""What PostgreSQL and its driver refuse comes as one clear sentence, and never with a password."""

import contextlib
import re

import pytest

from qmcore.errors import (
    BadResourceError,
    InvalidArgumentError,
    OperatingSystemError,
    OutcomeUnknownError,
    ReleaseError,
    SystemFailureError,
)
from qmstorage.postgres import translate
from qmstorage.postgres.address import Address

psycopg = pytest.importorskip("psycopg")

PASSWORD = "s3cr!t-Geheim"
SHOWN = "postgresql://db1:5432/work?schema=qmadmin"


@pytest.fixture
def server(postgres_server):
    """Return a function that gives the URL of a server, with what differs from the one that works."""

    def url(**differing):
        parts = psycopg.conninfo.conninfo_to_dict(Address.parse(postgres_server.url()).conninfo)
        parts |= differing
        return "postgresql:///?" + "&".join(f"{name}={escaped(str(value))}" for name, value in parts.items())

    return url


def escaped(text):
    return re.sub(r"[^\w./-]", lambda match: f"%{ord(match[0]):02X}", text)


def refusal_of(url, act=lambda connection: None):
    """Return the diagnostic for what is refused, and check that it is fit to be shown."""
    address = Address.parse(url, {})
    with pytest.raises(psycopg.Error) as failure, psycopg.connect(address.conninfo, autocommit=True) as connection:
        act(connection)
    refusal = translate.from_psycopg(failure.value, address.shown)
    assert PASSWORD not in f"{refusal} {refusal.hint} {refusal.facts}"
    assert address.shown in refusal.message
    assert "\n" not in refusal.message
    assert not refusal.message.endswith((".", ":"))
    assert not refusal.hint or refusal.hint.endswith(".")
    return refusal


def running(statement, *parameters):
    return lambda connection: connection.execute(statement, parameters)


# ---- connections that are not made ----------------------------------------------------------------------------------


def test_a_server_that_is_absent_is_named_with_its_host_and_port():
    refusal = refusal_of(f"postgresql://boss:{PASSWORD}@127.0.0.1:1/work")
    assert isinstance(refusal, OperatingSystemError)
    assert "cannot be reached" in refusal.message
    assert "127.0.0.1" in refusal.message
    assert "Connection refused" in refusal.message


def test_a_host_that_nobody_knows_is_unreachable():
    refusal = refusal_of(f"postgresql://boss:{PASSWORD}@no-such-host.invalid/work")
    assert "cannot be reached" in refusal.message
    assert "no-such-host.invalid" in refusal.message


def test_a_socket_that_is_absent_is_unreachable(tmp_path):
    refusal = refusal_of(f"postgresql://boss:{PASSWORD}@/work?host={tmp_path}")
    assert "cannot be reached" in refusal.message
    assert "No such file" in refusal.message


def test_of_several_hosts_the_last_is_told():
    refusal = refusal_of(f"postgresql://boss:{PASSWORD}@127.0.0.1:1,127.0.0.1:2/work")
    assert "cannot be reached" in refusal.message
    assert "Multiple" not in refusal.message


def test_a_wrong_password_is_told_without_it(server):
    refusal = refusal_of(server(password=PASSWORD))
    assert isinstance(refusal, OperatingSystemError)
    assert "does not accept the user or the password" in refusal.message
    assert "passfile" in refusal.hint


def test_a_missing_password_is_told(server):
    refusal = refusal_of(server(password="", passfile="/dev/null"))
    assert "wants a password, and none was given" in refusal.message


def test_an_unknown_database_is_told(server):
    refusal = refusal_of(server(dbname="nowhere"))
    assert isinstance(refusal, BadResourceError)
    assert 'database "nowhere" does not exist' in refusal.message


def test_a_server_that_has_no_tls_where_it_is_required_is_told(server):
    refusal = refusal_of(server(host="127.0.0.1", sslmode="require"))
    assert "no secure connection" in refusal.message


@pytest.mark.parametrize(
    "why",
    [
        "SSL error: unexpected eof while reading",
        "SSL SYSCALL error: EOF detected",
        "SSL connection has been closed unexpectedly",
        "could not send SSL negotiation packet: Broken pipe",
    ],
)
def test_a_connection_with_tls_that_ends_while_it_is_made_says_nothing_of_certificates(why):
    error = psycopg.OperationalError(f'connection failed: connection to server at "db1", port 5432 failed: {why}')
    refusal = translate.from_psycopg(error, SHOWN)
    assert refusal.message == f"the server of device {SHOWN!r} cannot be reached: {refusal.message.split(': ', 1)[1]}"
    assert why in refusal.message
    assert refusal.unreachable


@pytest.mark.parametrize(
    "words",
    [
        "consuming input failed: SSL error: unexpected eof while reading",
        "sending query failed: SSL SYSCALL error: Connection reset by peer",
        "consuming input failed: SSL connection has been closed unexpectedly",
        "SSL error: decryption failed or bad record mac",
    ],
)
def test_a_connection_with_tls_that_is_lost_is_lost(words):
    refusal = translate.from_psycopg(psycopg.OperationalError(words), SHOWN)
    assert isinstance(refusal, SystemFailureError)
    assert "was lost" in refusal.message
    assert refusal.unreachable


def test_a_service_that_is_not_described_is_told():
    refusal = refusal_of("postgresql:///?service=nowhere")
    assert isinstance(refusal, BadResourceError)
    assert '"nowhere"' in refusal.message
    assert "PGSERVICEFILE" in refusal.hint


def test_a_server_of_the_wrong_kind_is_told(server):
    refusal = refusal_of(server(target_session_attrs="standby"))
    assert "target_session_attrs" in refusal.message


@pytest.mark.parametrize(("name", "value"), [("sslmode", "maybe"), ("target_session_attrs", "best")])
def test_a_parameter_with_a_wrong_value_is_a_wrong_url(server, name, value):
    refusal = refusal_of(server(**{name: value}))
    assert isinstance(refusal, InvalidArgumentError)
    assert value in refusal.message


@pytest.mark.parametrize(
    "state",
    ["starting up", "not yet accepting connections", "not accepting connections", "shutting down", "in recovery mode"],
)
def test_a_server_that_takes_no_connections_yet_may_come_back(state):
    words = f"the database system is {state}"
    error = psycopg.OperationalError(
        f'connection failed: connection to server at "db1", port 5432 failed: FATAL:  {words}\nDETAIL:  Wait.'
    )
    refusal = translate.from_psycopg(error, SHOWN)
    assert refusal.message == f"the server of device {SHOWN!r} cannot be reached: {words}"
    assert refusal.unreachable


@pytest.mark.parametrize(
    "words", ["Passwort-Authentifizierung für Benutzer »boss« fehlgeschlagen", "das Datenbanksystem startet"]
)
def test_what_a_server_says_in_another_language_is_handed_on_and_may_be_over_soon(words):
    error = psycopg.OperationalError(
        f'connection failed: connection to server at "db1", port 5432 failed: FATAL:  {words}'
    )
    refusal = translate.from_psycopg(error, SHOWN)
    assert refusal.message == f"the server of device {SHOWN!r} refuses the connection: {words}"
    assert refusal.unreachable


def test_a_server_that_does_not_know_this_machine_is_not_waited_for():
    words = 'no pg_hba.conf entry for host "10.1.1.1", user "boss", database "work", no encryption'
    error = psycopg.OperationalError(
        f'connection failed: connection to server at "db1", port 5432 failed: FATAL:  {words}'
    )
    assert not translate.from_psycopg(error, SHOWN).unreachable


# ---- statements that fail -------------------------------------------------------------------------------------------


def test_a_missing_right_names_the_rights_that_are_needed(server):
    refusal = refusal_of(server(), running("SET ROLE pg_monitor; CREATE SCHEMA x"))
    assert isinstance(refusal, OperatingSystemError)
    assert "permission denied" in refusal.message
    assert "CREATE on the database" in refusal.hint
    assert refusal.facts["sqlstate"] == "42501"


def test_a_server_that_is_for_reading_only_is_told(server):
    refusal = refusal_of(server(options="-c default_transaction_read_only=on"), running("CREATE TABLE x ()"))
    assert "cannot be written" in refusal.message
    assert "primary" in refusal.hint


@pytest.mark.parametrize("statement", ["SELECT * FROM nowhere", "CREATE TABLE nowhere.x ()"])
def test_a_schema_without_our_tables_is_no_device(server, statement):
    refusal = refusal_of(server(), running(statement))
    assert isinstance(refusal, BadResourceError)
    assert refusal.message == translate.not_a_device(refusal.facts["path"]).message


def test_a_lock_that_others_keep_is_blocked(server):
    with psycopg.connect(Address.parse(server()).conninfo) as other:
        other.execute("SELECT pg_advisory_xact_lock(7)")
        refusal = refusal_of(server(options="-c lock_timeout=1ms"), running("SELECT pg_advisory_xact_lock(7)"))
    assert isinstance(refusal, SystemFailureError)
    assert refusal.blocked


def test_a_text_with_nul_is_an_argument_that_is_not_allowed(server):
    assert isinstance(refusal_of(server(), running("SELECT %s::text", "a\0b")), InvalidArgumentError)
    assert isinstance(refusal_of(server(), running("SELECT convert_from('\\x00', 'UTF8')")), InvalidArgumentError)


def test_no_data_comes_into_the_message(server):
    def twice(connection):
        connection.execute("CREATE TEMPORARY TABLE x (a text PRIMARY KEY)")
        connection.execute("INSERT INTO x VALUES (%s), (%s)", (PASSWORD, PASSWORD))

    assert isinstance(refusal_of(server(), twice), SystemFailureError)


# ---- sessions that are lost -----------------------------------------------------------------------------------------


def lost_session(server):
    """Return what two statements say of a session that was ended before, and what happened after the first."""
    address = Address.parse(server())
    with psycopg.connect(address.conninfo, autocommit=True) as admin:
        connection = psycopg.connect(address.conninfo, autocommit=True)
        admin.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])
    errors = []
    for _ in range(2):
        with pytest.raises(psycopg.Error) as failure:
            connection.execute("SELECT 1")
        errors.append(failure.value)
    return errors


def test_a_session_that_was_ended_is_known_to_be_lost(server):
    for error in lost_session(server):
        assert translate.is_connection_lost(error)
        assert not translate.is_retriable(error)
        assert isinstance(translate.from_psycopg(error, SHOWN), SystemFailureError)
        assert "was lost" in translate.from_psycopg(error, SHOWN).message
    unknown = translate.outcome_unknown(error, SHOWN)
    assert isinstance(unknown, OutcomeUnknownError)


def test_a_server_that_was_not_reached_is_a_lost_connection_too():
    with pytest.raises(psycopg.Error) as failure:
        psycopg.connect("host=127.0.0.1 port=1")
    assert translate.is_connection_lost(failure.value)


def test_a_statement_that_fails_is_neither_lost_nor_to_be_tried_again(server):
    with psycopg.connect(Address.parse(server()).conninfo, autocommit=True) as connection:
        with pytest.raises(psycopg.Error) as failure:
            connection.execute("SELECT 1/0")
        assert not translate.is_connection_lost(failure.value)
        assert not translate.is_retriable(failure.value)
        with pytest.raises(psycopg.Error) as failure:
            connection.execute("SELECT %s::text", ["a\0b"])
        assert not translate.is_connection_lost(failure.value)


def test_a_statement_after_one_that_failed_is_told_to_be_undone_but_where_the_application_decides_that(server):
    def go_on(connection):
        with connection.transaction():
            with contextlib.suppress(psycopg.errors.DivisionByZero):
                connection.execute("SELECT 1/0")
            with pytest.raises(psycopg.errors.InFailedSqlTransaction) as failure:
                connection.execute("SELECT 1")
            joined = translate.from_psycopg(failure.value, SHOWN, joined=True)
            assert joined.message.startswith(f"the store of device {SHOWN!r} failed: ")
            assert not joined.hint
            raise failure.value

    refusal = refusal_of(server(), go_on)
    assert isinstance(refusal, SystemFailureError)
    assert "is undone, because a statement in it had failed" in refusal.message
    assert "nothing of it was done" in refusal.hint


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_conflict_is_tried_again_and_told_as_one_when_that_did_not_help(server, state):
    raising = f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$"
    with psycopg.connect(Address.parse(server()).conninfo) as connection, pytest.raises(psycopg.Error) as failure:
        connection.execute(raising)
    assert translate.is_retriable(failure.value)
    assert translate.from_psycopg(failure.value, SHOWN).blocked


# ---- servers that are too old ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "said"), [(130014, "13.14"), (100023, "10.23"), (90624, "9.6")])
def test_a_server_before_14_is_refused_with_its_version(version, said):
    with pytest.raises(ReleaseError, match=f"PostgreSQL {re.escape(said)};.* 14$"):
        translate.refuse_old_server(version, SHOWN)


@pytest.mark.parametrize("version", [140000, 150004, 180004])
def test_a_server_from_14_on_is_taken(version):
    translate.refuse_old_server(version, SHOWN)
