"""The URL of a device on PostgreSQL: what is read out of it, what is shown of it, and what is refused."""

import dataclasses
import os
import pickle

import pytest

from qmadmin import volume_makers
from qmcore.errors import BadResourceError, InvalidArgumentError
from qmstorage.postgres import address
from qmstorage.postgres.address import Address, is_postgres

conninfo = pytest.importorskip("psycopg.conninfo")

SECRET = "s3cr!t-Geheim"
WHOLE = f"postgresql+psycopg://boss:{SECRET}@Db1.example:5433/work?schema=orders&sslmode=require&sslpassword={SECRET}"


def parse(url, **environ):
    return Address.parse(url, environ)


def driver_gets(found):
    """Return what the driver is told, without what every device is told."""
    told = conninfo.conninfo_to_dict(found.conninfo)
    of_all = ("fallback_application_name", "connect_timeout", "tcp_user_timeout")
    return {name: value for name, value in told.items() if name not in of_all and "keepalives" not in name}


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "PostgreSQL"])
def test_the_parts_of_a_url_reach_the_driver_under_any_of_its_schemes(scheme):
    found = parse(f"{scheme}://boss:word@db1:5433/work?schema=orders&sslmode=verify-full&passfile=/etc/pass")
    assert found.schema == "orders"
    assert driver_gets(found) == {
        "user": "boss",
        "password": "word",
        "host": "db1",
        "port": "5433",
        "dbname": "work",
        "sslmode": "verify-full",
        "passfile": "/etc/pass",
    }


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (WHOLE, "postgresql://db1.example:5433/work?schema=orders"),
        ("postgresql://db1/work", "postgresql://db1:5432/work?schema=qmadmin"),
        ("postgresql://boss@db1", "postgresql://db1:5432/?schema=qmadmin"),
        ("postgresql:///work", "postgresql:///work?schema=qmadmin"),
        ("postgresql://a:1,b,c:3/work", "postgresql://a:1,b:5432,c:3/work?schema=qmadmin"),
        ("postgresql://a,b/work?port=7", "postgresql://a:7,b:7/work?schema=qmadmin"),
        ("postgresql://[::1]:5433/work", "postgresql://[::1]:5433/work?schema=qmadmin"),
        ("postgresql:///?service=prod&schema=x", "postgresql:///?service=prod&schema=x"),
        ("postgresql:///w?host=/run/pg&port=5433", "postgresql:///w?host=/run/pg&port=5433&schema=qmadmin"),
        ("postgresql://%2Frun%2Fpg/w", "postgresql:///w?host=/run/pg&port=5432&schema=qmadmin"),
        ("postgresql:///w?hostaddr=10.0.0.7", "postgresql://10.0.0.7:5432/w?schema=qmadmin"),
        ("postgresql://db1/a%2Fb%3F?user=x", "postgresql://db1:5432/a%2Fb%3F?schema=qmadmin"),
        ("postgresql://db1/work?application_name=me&options=-c%20x%3D1", "postgresql://db1:5432/work?schema=qmadmin"),
    ],
)
def test_what_is_shown_says_where_the_database_is_and_no_more(url, shown):
    found = parse(url)
    assert found.shown == shown
    assert parse(found.shown) == found
    assert parse(found.shown).shown == shown


@pytest.mark.parametrize(
    "written",
    [f"boss:{SECRET}@db1/work", f"db1/work?user=boss&password={SECRET}", f"boss@db1/work?password={SECRET}"],
)
def test_a_password_reaches_the_driver_and_shows_nowhere_else(written):
    found = parse(f"postgresql://{written}")
    assert driver_gets(found)["password"] == SECRET
    for text in (found.shown, repr(found), str(found), repr(found.sibling("other"))):
        assert SECRET not in text
        assert "boss" not in text


def test_what_is_written_with_percent_signs_is_read_as_libpq_reads_it():
    url = "postgresql://b%40ss:p%40%2F%3Aw%C3%A4@db1/w%20k?application_name=a%26b%3Dc"
    assert driver_gets(parse(url)) == conninfo.conninfo_to_dict(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"postgresql://boss:{SECRET}@x@db1/work", "more than one @"),
        (f"postgresql://boss:{SECRET}/x@db1/work", "an @ after the host"),
        (f"postgresql://boss:5/{SECRET}@db1/work", "an @ after the host"),
        (f"postgresql://boss:5?x={SECRET}@db1/work", "an @ after the host"),
        (f"postgresql://db1:{SECRET}/work", "no host with a port"),
        ("postgresql://db1:99999/work", "a port that is not from 1 to 65535"),
        ("postgresql://::1/work", "no host with a port"),
        (f"postgresql://boss:{SECRET}%zz@db1/work", "no two hexadecimal digits"),
        (f"postgresql://boss:{SECRET}%FF@db1/work", "a password that is not UTF-8"),
        (f"postgresql://boss:{SECRET}%00@db1/work", "a control character in its password"),
        (f"postgresql://boss:{SECRET}@db1/work?{SECRET}", "parameters that are not name=value"),
        (f"postgresql://boss:{SECRET}@db1/work?password={SECRET}2", "password more than once"),
        ("postgresql://db1/work?dbname=other", "dbname more than once"),
    ],
)
def test_a_malformed_url_is_refused_without_repeating_what_may_be_a_password(url, words):
    with pytest.raises(InvalidArgumentError, match=words) as refusal:
        parse(url)
    assert SECRET not in f"{refusal.value} {refusal.value.hint} {refusal.value.facts}"
    assert refusal.value.hint.endswith(".")


@pytest.mark.parametrize("driver", ["psycopg2", "asyncpg", "pg8000"])
def test_another_driver_is_refused_by_name(driver):
    with pytest.raises(BadResourceError, match=f"'{driver}'") as refusal:
        parse(f"postgresql+{driver}://boss:{SECRET}@db1/work")
    assert "postgresql+psycopg://" in refusal.value.hint
    assert SECRET not in str(refusal.value)


def test_parameters_that_libpq_does_not_know_are_named_without_their_values():
    found = parse(f"postgresql://boss:{SECRET}@db1/work?sslmod={SECRET}&shema=x")
    with pytest.raises(InvalidArgumentError, match="'shema', 'sslmod'") as refusal:
        _ = found.conninfo
    assert SECRET not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("", "1 to 40 letters"),
        ("a-b", "1 to 40 letters"),
        ("a.b", "1 to 40 letters"),
        ("größe", "1 to 40 letters"),
        ("x" * 41, "1 to 40 letters"),
        ("x\n", "1 to 40 letters"),
        ("pg_toast", "PostgreSQL's own"),
        ("PG_x", "PostgreSQL's own"),
        ("information_schema", "PostgreSQL's own"),
        ("orders_memory", "non-persistent"),
    ],
)
def test_a_name_that_cannot_be_a_schema_is_refused(schema, words):
    with pytest.raises(InvalidArgumentError, match=words):
        parse("postgresql://db1/work").sibling(schema)


@pytest.mark.parametrize("schema", ["a", "x" * 40, "Orders_2", "2026", "_x"])
def test_a_sibling_is_another_schema_of_the_same_database(schema):
    found = parse(WHOLE)
    beside = found.sibling(schema)
    assert beside.schema == schema
    assert beside.shown == f"postgresql://db1.example:5433/work?schema={schema}"
    assert driver_gets(beside) == driver_gets(found)
    assert found.is_beside(beside)


def test_addresses_are_equal_by_database_and_schema_whoever_connects():
    assert parse(WHOLE) == parse("postgres://other@DB1.example:5433/work?schema=orders")
    assert hash(parse(WHOLE)) == hash(parse("postgres://db1.example:5433/work?schema=orders"))
    assert parse("postgresql://db1:5432/work") == parse("postgresql://db1/work")
    for other in ("postgresql://db1/work?schema=y", "postgresql://db1/other", "postgresql://db1:1/work"):
        assert parse(other) != parse("postgresql://db1/work")
    assert not parse("postgresql://db1/work").is_beside(parse("postgresql://db2/work"))


def test_the_environment_says_what_the_url_leaves_open_about_the_place():
    settings = {"PGHOST": "db9", "PGPORT": "7", "PGDATABASE": "stock"}
    assert parse("postgresql://", **settings).shown == "postgresql://db9:7/stock?schema=qmadmin"
    assert parse("postgresql://db1/work", **settings).shown == "postgresql://db1:7/work?schema=qmadmin"
    assert parse("postgresql:///work", PGSERVICE="prod", **settings).shown == (
        "postgresql:///work?service=prod&schema=qmadmin"
    )
    assert parse("postgresql://db1/work", PGSERVICE="prod").shown == "postgresql://db1:5432/work?schema=qmadmin"


def test_the_server_learns_who_connects_unless_the_url_says_so():
    told = conninfo.conninfo_to_dict(parse("postgresql://db1/work").conninfo)
    assert told["fallback_application_name"] == f"qmadmin {os.getpid()} {os.uname().nodename}"[:63]
    told = conninfo.conninfo_to_dict(parse("postgresql://db1/work?application_name=me").conninfo)
    assert told["application_name"] == "me"


def test_a_server_has_ten_seconds_to_answer_unless_somebody_says_otherwise(monkeypatch):
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)

    def seconds(url):
        return conninfo.conninfo_to_dict(parse(url).conninfo).get("connect_timeout")

    assert str(seconds("postgresql://db1/work")) == "10"
    assert str(seconds("postgresql://db1/work?connect_timeout=3")) == "3"
    assert seconds("postgresql:///?service=prod") is None
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "4")
    assert seconds("postgresql://db1/work") is None


@pytest.mark.parametrize(
    ("given", "hurried"),
    [
        ("postgresql://db1/work", "postgresql://db1/work?connect_timeout=5"),
        ("postgresql://db1?schema=a", "postgresql://db1?schema=a&connect_timeout=5"),
        ("postgresql://db1?connect_timeout=60&schema=a", "postgresql://db1?schema=a&connect_timeout=5"),
        ("postgresql://db1?connect_timeout=0", "postgresql://db1?connect_timeout=5"),
        ("postgresql://db1?connect_timeout=3", "postgresql://db1?connect_timeout=3"),
        ("/var/lib/QUE?connect_timeout=60", "/var/lib/QUE?connect_timeout=60"),
    ],
)
def test_who_must_not_wait_long_gives_up_sooner(given, hurried, monkeypatch):
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    assert volume_makers.hurried(given, 5) == hurried
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    assert volume_makers.hurried("postgresql://db1/work", 5) == "postgresql://db1/work"


def test_a_url_is_known_by_its_scheme():
    for url in ("postgresql://x", "postgres://x", "postgresql+psycopg2://x", "POSTGRES://"):
        assert is_postgres(url)
    for text in ("postgresql", "sqlite://x", "mysql://x", "/postgresql:/x", "post://x", ""):
        assert not is_postgres(text)
    with pytest.raises(InvalidArgumentError, match="begins with postgresql://"):
        parse("host=db1")


def test_an_address_does_not_change_and_goes_to_other_processes():
    found = parse(WHOLE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.schema = "other"
    back = pickle.loads(pickle.dumps(found))
    assert (back, back.conninfo) == (found, found.conninfo)


def test_a_name_that_is_too_long_for_the_device_list_is_refused():
    with pytest.raises(InvalidArgumentError, match="the limit is 1024"):
        parse(f"postgresql://{','.join(['db.example'] * 100)}/work")


def test_without_the_driver_one_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    found = parse(WHOLE)
    assert found.shown.endswith("schema=orders")
    with pytest.raises(BadResourceError, match="psycopg is not installed") as refusal:
        _ = found.conninfo
    assert "pip install 'psycopg[binary]'" in refusal.value.hint
    with pytest.raises(BadResourceError):
        address.require_driver()


def test_the_kernel_looks_after_connections_unless_the_url_or_a_service_says_how():
    def told(url):
        found = conninfo.conninfo_to_dict(parse(url).conninfo)
        return {name: str(found.get(name)) for name in ("keepalives_idle", "tcp_user_timeout")}

    assert told("postgresql://db1/work") == {"keepalives_idle": "10", "tcp_user_timeout": "30000"}
    own = told("postgresql://db1/work?keepalives_idle=99&tcp_user_timeout=5")
    assert own == {"keepalives_idle": "99", "tcp_user_timeout": "5"}
    assert told("postgresql:///?service=nowhere") == {"keepalives_idle": "None", "tcp_user_timeout": "None"}


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604])
def test_libpq_is_not_shown_a_password_file_that_it_would_complain_of(mode, tmp_path, monkeypatch):
    file = tmp_path / "pgpass"
    file.write_text("")
    file.chmod(mode)
    monkeypatch.setenv("PGPASSFILE", str(file))
    for url in ("postgresql://db1/work", f"postgresql://db1/work?passfile={file}"):
        address = parse(url)
        told = conninfo.conninfo_to_dict(address.conninfo).get("passfile", str(file))
        assert (told != str(file), bool(address.refused_file)) == (bool(mode & 0o077),) * 2
    assert not parse("postgresql://ann:secret@db1/work").refused_file
