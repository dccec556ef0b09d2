"""A device on PostgreSQL through the shell: made, listed, extended, destroyed; and what is refused, in one sentence."""

import secrets

import pytest

from qmadmin import atmi, mib
from qmadmin.opening import create_device, open_device
from qmadmin.volume_makers import address_of
from qmcore.errors import BadResourceError, InvalidArgumentError

psycopg = pytest.importorskip("psycopg")


QUEUES = """\
qspacecreate QSPACE 54320 200 5 10 10 100 errq n 16
qopen QSPACE
qcreate Q fifo none 2 0 100% 0% ""
"""


@pytest.fixture
def on_server(shell, database_url):
    """Scripts on a device on PostgreSQL that does not exist yet; `shown` is what people see of its URL."""
    return at(shell, database_url)


@pytest.fixture
def made(on_server):
    """Scripts on a device of 2000 pages."""
    assert on_server.run(f"crdl {on_server.shown} 0 2000\n").status == 0
    return on_server


def at(shell, url):
    shell.device = shell.environ["QMCONFIG"] = url
    shell.shown = address_of(url).shown
    return shell


def refusal(shell, script):
    """Return the sentence of the one notice that a script ends with."""
    ran = shell.run(script)
    assert ran.status != 0
    assert ran.err.count("\n") == 1, ran.err
    assert ran.out == ""
    return ran.err.partition(" (crque")[0]


def with_parts(url, **parts):
    """Return the URL with other parts, as libpq names them."""
    address = address_of(url)
    known = psycopg.conninfo.conninfo_to_dict(address.conninfo) | parts
    known.pop("fallback_application_name")
    query = "&".join(f"{name}={value}" for name, value in known.items() if value != "")
    return f"postgresql:///?{query}&schema={address.schema}"


@pytest.fixture
def role(postgres_server, worker_database):
    """A role that may only connect, and a function that gives a URL its name and password."""
    name, password = f"qm_{secrets.token_hex(6)}", "s3cr-t-Geheim"
    postgres_server.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    yield name, lambda url: with_parts(url, user=name, password=password)
    postgres_server.sql(f"DROP OWNED BY {name}", worker_database)
    postgres_server.sql(f"DROP ROLE {name}")


# ---- what works -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["{url}", "{shown}", "{schema}"])
def test_the_first_crdl_makes_the_device_under_each_of_its_names(on_server, name):
    words = {"url": on_server.device, "shown": on_server.shown, "schema": address_of(on_server.device).schema}
    ran = on_server.run(f"crdl {name.format(**words)} 0 2000\nformat csv\nlidl\nlivtoc\n")
    shown = on_server.shown
    assert ran.err == ""
    assert ran.out.splitlines() == [
        f"Created device {shown}, offset 0, size 2000 on {shown}",
        "index,name,start,size,state,durability,partitions,schema_version",
        f"0,{shown},0,2000,present,full,,6",
        "table,entry,device,offset,pages,state",
        f"VTOC,0,{shown},0,7,present",
        f"UDL,0,{shown},7,19,present",
    ]


def test_a_second_volume_is_another_schema_under_its_bare_name(made):
    second = f"{address_of(made.device).schema}_second"
    beside = made.device.rpartition("=")[0] + "=" + second
    ran = made.run(f"crdl {second} 0 500\ncrdl {beside} 500 500\nformat csv\nlidl\n")
    assert ran.err == ""
    assert ran.out.splitlines()[-3:] == [
        f"0,{made.shown},0,2000,present,full,,6",
        f"1,{second},0,500,present,full,,6",
        f"2,{second},500,500,present,full,,6",
    ]


def test_more_pages_of_the_first_volume_are_told_by_any_of_its_names(made):
    schema = address_of(made.device).schema
    ran = made.run(f"crdl {schema} 2000 100\ncrdl {made.device} 2100 100\nformat csv\nlidl\n")
    assert ran.err == ""
    assert ran.out.splitlines()[-3:] == [f"{at},{made.shown},{start},{size},present,full,,6" for at, start, size in (
        (0, 0, 2000), (1, 2000, 100), (2, 2100, 100))]  # fmt: skip


def test_a_queue_space_is_laid_out_used_and_destroyed(made):
    second = f"{address_of(made.device).schema}_second"
    ran = made.run(f"""\
crdl {second} 0 500
qspacecreate QSPACE 54320 200 5 10 10 100 errq y 16
qopen QSPACE
qcreate errq fifo none 0 0 100% 0% ""
qcreate Q fifo none 2 0 100% 0% ""
qclose
qaddext QSPACE 100
qspacelist QSPACE
qcheck
qspacedestroy -y QSPACE
dsdl -y 1
dsdl -y 0
lidl
""")
    assert ran.err.count("ERROR") == 1
    # The server of the tests does without what survives a power failure, and is told so.
    assert "ERROR: qcheck has found 2 errors" in ran.err
    assert "INFO: no disk is allocated now" in ran.err
    assert "2 errors, 0 warnings" in ran.out
    assert f"Destroyed device {second}, offset 0, size 500 on {made.shown}" in ran.out
    assert f"Destroyed device {made.shown}, offset 0, size 2000 on {made.shown}" in ran.out


def test_another_program_uses_what_the_shell_has_laid_out(made):
    assert made.run(QUEUES).status == 0
    with open_device(made.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("Q", "hello")
    ran = made.process("", "--format", "json", "-c", "qopen QSPACE", "-c", "qset Q", "-c", "qlist")
    assert ran.returncode == 0
    assert '"priority": 50' in ran.stdout


def test_a_device_knows_itself_by_the_url_that_may_be_shown(made):
    with open_device(made.device) as device:
        assert device.path == made.shown
        assert device.entries()[0].path == made.shown
        assert list(mib.get(device, "T_APPQSPACE", {"TA_QMCONFIG": made.device})) == []


def test_atmi_joins_the_same_device_under_its_url_and_under_what_is_shown_of_it(made):
    atmi.tpinit(made.device)
    try:
        atmi.tpinit(made.shown)
        with pytest.raises(atmi.TPException, match="TPEPROTO") as failure:
            atmi.tpinit(made.device + "_other")
        assert repr(made.shown) in failure.value.message
    finally:
        atmi.tpterm()


def test_several_devices_share_a_database(made, shell):
    other = made.device + "_other"
    with create_device(other, 100) as device:
        assert device.path == made.shown + "_other"
    with open_device(made.device) as first, open_device(other) as second:
        assert first.info.id != second.info.id


def test_a_role_that_the_device_is_for_may_use_it_and_does_not_own_it(on_server, role):
    name, url = role
    assert on_server.run(f"crdl -g {name} {on_server.shown} 0 2000\n{QUEUES}").status == 0
    with open_device(url(on_server.device)) as device, device.open_space("QSPACE") as space:
        assert not device.readonly
        space.enqueue("Q", "hello")
        assert space.dequeue("Q").text == "hello"


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_a_device_that_was_not_made_is_told(on_server):
    said = refusal(on_server, "lidl\n")
    assert said == f"ERROR: QMEBADRMID: {on_server.shown!r} is not a qmadmin device"


def test_a_schema_of_another_program_is_neither_used_nor_changed(on_server, postgres_server, worker_database):
    schema = address_of(on_server.device).schema
    postgres_server.sql(f"CREATE SCHEMA {schema} CREATE TABLE device (id int)", worker_database)
    assert "is not a qmadmin device" in refusal(on_server, "lidl\n")
    assert f"schema {schema!r}" in refusal(on_server, f"crdl {schema} 0 100\n")
    assert refusal(on_server, f"crdl {schema} 0 100\n").startswith("ERROR: QMEBADRMID: ")
    found = postgres_server.sql(
        f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace", worker_database
    )
    assert found == [("device",)]


def test_an_empty_schema_becomes_a_device(on_server, postgres_server, worker_database):
    postgres_server.sql(f"CREATE SCHEMA {address_of(on_server.device).schema}", worker_database)
    assert on_server.run(f"crdl {on_server.shown} 0 100\n").status == 0


def test_a_volume_of_another_device_is_refused(made):
    other = f"{address_of(made.device).schema}_other"
    create_device(made.device + "_other", 100).close()
    assert "belongs to another device" in refusal(made, f"crdl {other} 0 100\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pg_catalog", "one of PostgreSQL's own"),
        ("/var/qm/QUE", "must be 1 to 40 letters"),
        ("postgresql://elsewhere/work?schema=x", "all volumes of a device are in one database"),
    ],
)
def test_what_cannot_be_a_further_volume_is_refused(made, name, words):
    assert words in refusal(made, f"crdl {name} 0 100\n")


def test_a_file_has_no_volumes_in_a_database(laid_out, database_url):
    with open_device(laid_out.device) as device, pytest.raises(InvalidArgumentError, match="no volumes in a database"):
        device.create_entry(database_url, 0, 10)


def test_a_server_that_is_absent_is_named(shell):
    at(shell, "postgresql://boss:s3cr-t@127.0.0.1:1/work")
    for script in ("lidl\n", f"crdl {shell.shown} 0 100\n"):
        said = refusal(shell, script)
        assert said.startswith(f"ERROR: QMEOS: the server of device {shell.shown!r} cannot be reached: ")
        assert "Connection refused" in said


def test_a_wrong_password_is_told(on_server):
    at(on_server, with_parts(on_server.device, password="s3cr-t"))
    for script in ("lidl\n", f"crdl {on_server.shown} 0 100\n"):
        assert "does not accept the user or the password" in refusal(on_server, script)


def test_a_database_that_is_absent_is_told(on_server):
    at(on_server, with_parts(on_server.device, dbname="nowhere"))
    for script in ("lidl\n", f"crdl {on_server.shown} 0 100\n"):
        assert 'database "nowhere" does not exist' in refusal(on_server, script)


def test_whoever_may_make_no_schema_is_told_the_missing_right(on_server, role):
    at(on_server, role[1](on_server.device))
    said = refusal(on_server, f"crdl {on_server.shown} 0 100\n")
    assert said.startswith(f"ERROR: QMEOS: device {on_server.shown!r} cannot be used with the rights of this user")
    assert "permission denied for database" in said


def test_whoever_may_not_use_the_schema_is_told_the_missing_right(made, role):
    at(made, role[1](made.device))
    said = refusal(made, "lidl\n")
    assert "cannot be used with the rights of this user" in said
    assert "permission denied for schema" in said


def test_a_role_that_is_absent_is_refused_and_nothing_is_made(on_server):
    assert "there is no role 'nobody_at_all'" in refusal(on_server, f"crdl -g nobody_at_all {on_server.shown} 0 100\n")
    assert "is not a qmadmin device" in refusal(on_server, "lidl\n")


def test_a_backup_is_left_to_postgresql(made, tmp_path):
    assert "is made with PostgreSQL's own programs" in refusal(made, f"qbackup {tmp_path}/backup\n")
    assert "a backup of files is not restored there" in refusal(made, f"qrestore -y {tmp_path}/backup {made.shown}\n")
    with open_device(made.device) as device, pytest.raises(BadResourceError) as failure:
        device.backup(tmp_path / "backup")
    schema = address_of(made.device).schema
    assert f"pg_dump --schema={schema} --schema={schema}_memory saves" in failure.value.hint
    assert not (tmp_path / "backup").exists()


def test_the_primary_is_written_and_the_standby_read(own_cluster, shell):
    at(shell, own_cluster.url("postgres"))
    assert shell.run(f"crdl {shell.shown} 0 2000\nqspacecreate QSPACE 54320 200 5 10 10 100 errq n 16\n").status == 0
    standby = own_cluster.standby()
    own_cluster.wait_until("SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn()")
    at(shell, standby.url("postgres"))
    ran = shell.run("lidl\nqspacedestroy -y QSPACE\n")
    assert "open for reading only" in ran.err
    assert "ERROR: QMEOS: device" in ran.err
    assert "2000" in ran.out
    new = at(shell, standby.url("postgres") + "?schema=other")
    assert "cannot be written" in refusal(new, f"crdl {new.shown} 0 100\n")


def test_partitions_and_durability_are_chosen_and_shown(on_server):
    ran = on_server.run(
        f"crdl -s relaxed -H 8 {on_server.shown} 0 2000\nformat csv\nlidl\nformat table\nverbose\nlidl\n"
    )
    assert ran.err == ""
    assert f"0,{on_server.shown},0,2000,present,relaxed,8,6\n" in ran.out
    assert "      durability: relaxed\n      schema:     6\n      partitions: 8\n" in ran.out
