"""A password in the name of a device comes out nowhere: not on the screen, in the log, the record or the history."""

import json
import logging
import pickle
import re
import secrets
import subprocess
import sys
import traceback

import pytest

import qmadmin
from qmadmin import atmi
from qmadmin.console.render import PlainScreen
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.session import Session
from qmadmin.ulog import UlogHandler
from qmadmin.volume_makers import address_of
from qmcore.errors import QueueError
from tests.fix_process import eventually

psycopg = pytest.importorskip("psycopg")

SECRET = "s3cr!t-Geheim"
ABSENT = f"postgresql://boss:{SECRET}@127.0.0.1:1/work?sslpassword={SECRET}2"
TYPING_ERRORS = (
    f"postgresql://boss:{SECRET}@x@127.0.0.1:1/work",
    f"postgresql://boss:{SECRET}/x@127.0.0.1:1/work",
    f"postgresql://127.0.0.1:1/work?pasword={SECRET}",
    f"postgresql+psycopg2://boss:{SECRET}@127.0.0.1:1/work",
    f"mysql://boss:{SECRET}@127.0.0.1:1/work",
    f"postgresql://boss:{SECRET}@127.0.0.1:1/work?schema=a-b",
)
EVERYTHING = """\
echo on
verbose on
lidl
crdl {url} 0 2000
crdl {url} 2000 100
lidl
livtoc
qspacecreate QSPACE 54320 200 5 10 10 100 errq n 16
qopen QSPACE
qcreate Q fifo none 2 0 100% 0% ""
qspacedestroy -y QSPACE
qspacedestroy -y {url}
dsdl -y {url}
chdl 0 {url}
nonsense {url}
qopen {url}
qbackup /nowhere/{url}
qrestore -y /nowhere/{url} {url}
qaudit
qcheck
history {url}
help {url}
format json
lidl
chdl 0 {url}
qopen {url}
qaudit
format csv
qaudit
"""


def password_of(url):
    return psycopg.conninfo.conninfo_to_dict(address_of(url).conninfo)["password"]


def left_behind(directory):
    """Return the text of all files in a directory."""
    return "".join(path.read_bytes().decode(errors="replace") for path in directory.rglob("*") if path.is_file())


@pytest.fixture
def own_login(postgres_server, worker_database, database_url):
    """The device's URL with a login that no other process of this run of the tests has."""
    name, password = f"boss_{secrets.token_hex(6)}", secrets.token_hex(12)
    postgres_server.sql(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{password}'")
    yield re.sub("//[^@]*@", f"//{name}:{password}@", database_url)
    postgres_server.sql(f"DROP OWNED BY {name} CASCADE", worker_database)
    postgres_server.sql(f"DROP ROLE {name}")


@pytest.fixture
def secret(shell, database_url):
    """The password of a server; scripts have its URL in QMCONFIG."""
    shell.environ["QMCONFIG"] = database_url
    return password_of(database_url)


def test_a_password_in_qmconfig_and_in_commands_comes_out_nowhere(shell, database_url, secret):
    done = shell.process(EVERYTHING.format(url=database_url))
    assert "Created device postgresql://" in done.stdout
    assert "Queue space 'QSPACE' destroyed" in done.stdout
    assert "***@" in done.stdout
    assert secret not in done.stdout + done.stderr
    assert "ERROR" in left_behind(shell.directory)
    assert secret not in left_behind(shell.directory)


def test_neither_the_device_nor_the_server_keeps_it(shell, database_url, secret, postgres_server, worker_database):
    shell.process(EVERYTHING.format(url=database_url))
    with qmadmin.open_device(database_url) as device:
        device.audit_outcome(device.audit(f"crdl {database_url}", database_url), f"ERROR: {database_url}")
    schema = address_of(database_url).schema
    tables = postgres_server.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'", worker_database)
    kept = [postgres_server.sql(f"SELECT t::text FROM {schema}.{name} t", worker_database) for (name,) in tables]
    assert "qspacedestroy -y QSPACE" in repr(kept)
    assert "crdl postgresql+psycopg://***@" in repr(kept)
    assert secret not in repr(kept)


@pytest.mark.parametrize("option", ["-c", "-f"])
def test_a_password_in_a_command_of_the_options_comes_out_nowhere(shell, database_url, secret, option):
    command = f"crdl {database_url} 0 2000"
    if option == "-f":
        (shell.directory.parent / "script").write_text(f"{command}\n{command} 7\nnonsense {database_url}\n")
        words = ["-f", str(shell.directory.parent / "script")]
    else:
        words = ["-c", command, "-c", f"{command} 7", "-c", f"nonsense {database_url}"]
    done = shell.process("", *words, "--format", "json")
    assert '"size": 2000' in done.stdout
    assert done.returncode == 1
    assert secret not in done.stdout + done.stderr + left_behind(shell.directory)


@pytest.mark.parametrize("url", [ABSENT, TYPING_ERRORS[0], TYPING_ERRORS[2]])
def test_a_device_that_cannot_be_opened_is_told_without_its_password(shell, url):
    shell.environ["QMCONFIG"] = url
    (shell.directory / "services.toml").write_text("")
    forwarder = [sys.executable, "-m", "qmadmin.forwarder.program", "QSPACE", "-q", "Q"]
    surplus = [*forwarder, url, url, url]
    runs = [
        shell.process(f"echo on\nlidl\ncrdl {url} 0 100\n"),
        shell.process("", "-c", f"crdl {url} 0 100", url),
        shell.process("", "--mib", "T_APPQSPACE", "get", f"TA_QMCONFIG={url}"),
        shell.process("", "--mib", "T_APPQSPACE", "set", f"TA_STATE={url}", "TA_QMCONFIG=x"),
        shell.process("", url, url),
        subprocess.run(surplus, env=shell.environ, cwd=shell.directory, capture_output=True, text=True, check=False),
        subprocess.run(forwarder, env=shell.environ, cwd=shell.directory, capture_output=True, text=True, check=False),
    ]
    for done in runs:
        said = done.stdout + done.stderr
        assert done.returncode != 0
        assert said
        assert SECRET not in said
        assert "Traceback" not in said
    assert SECRET not in left_behind(shell.directory)


def test_what_is_typed_is_remembered_without_its_password(shell, terminal):
    shell.environ["QMCONFIG"] = ABSENT
    program = terminal(columns=200)
    program.at_prompt()
    before = program.raw
    assert b"QMCONFIG=postgresql://127.0.0.1:1/work?schema=qmadmin" in before
    assert SECRET.encode() not in before
    program.send(f"crdl {ABSENT} 0 100\r")
    program.see("cannot be reached")
    program.send("quit\r")
    program.ends()
    remembered = (shell.directory / ".local/state/qmadmin/history").read_text()
    assert remembered.splitlines() == ["crdl postgresql://***@127.0.0.1:1/work?sslpassword=*** 0 100", "quit"]


@pytest.mark.parametrize("url", [ABSENT, *TYPING_ERRORS])
def test_no_error_of_the_api_has_it(url):
    acts = (
        lambda: qmadmin.open_device(url),
        lambda: qmadmin.create_device(url, 100),
        lambda: qmadmin.restore_device("/nowhere", url),
        lambda: atmi.tpinit(url),
    )
    for act in acts:
        with pytest.raises((QueueError, atmi.TPException)) as failure:
            act()
        told = "".join(traceback.format_exception(failure.value))
        facts = [pickle.dumps(each) for each in chained(failure.value) if isinstance(each, QueueError)]
        assert SECRET not in told
        assert SECRET.encode() not in b"".join(facts)


def chained(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_a_traceback_in_the_log_does_not_have_it(tmp_path):
    handler = UlogHandler("qmtest", str(tmp_path / "ULOG"), as_json=True)
    try:
        raise RuntimeError(ABSENT)
    except RuntimeError:
        record = logging.LogRecord("qmadmin.x", logging.ERROR, "", 1, "%s fails", (ABSENT,), sys.exc_info())
    handler.emit(record)
    handler.close()
    text = json.loads(left_behind(tmp_path))["text"]
    assert "RuntimeError: postgresql://***@127.0.0.1:1/work" in text
    assert SECRET not in text


def test_the_session_shows_the_device_without_it():
    screen = PlainScreen(sys.stdout, sys.stderr)
    for url in (ABSENT, *TYPING_ERRORS):
        assert SECRET not in Session(url, Catalogue(), screen, {}).path


def test_a_capacity_command_gets_all_it_takes_to_connect_and_nobody_sees_it(shell, own_login):
    settings = shell.directory / "settings.toml"
    settings.write_text(f"[capacity]\ndevices = [{json.dumps(own_login)}]\n")
    settings.chmod(0o600)
    shell.environ |= {"QMCONFIG": own_login, "QMADMIN_TOML": str(settings)}
    ran = shell.process(
        f"""\
crdl {own_login} 0 2000
qspacecreate QSPACE 54320 200 5 10 10 100 errq n 16
qopen QSPACE
qcreate Q fifo none 2 0 1m 0m 'ps -A -o args= > seen; printenv QMCONFIG > config.new; mv config.new config'
qset Q
""",
    )
    assert ran.returncode == 0
    program = "import os, qmadmin; qmadmin.open_device(os.environ['QMCONFIG']).open_space('QSPACE').enqueue('Q', 'x')"
    subprocess.run([sys.executable, "-c", program], env=shell.environ, cwd=shell.directory, check=True)
    eventually((shell.directory / "config").exists, "the command ran")
    assert (shell.directory / "config").read_text() == f"{own_login}\n"
    assert "qmadmin.capacity.command_runner" in (shell.directory / "seen").read_text()
    assert password_of(own_login) not in (shell.directory / "seen").read_text()
