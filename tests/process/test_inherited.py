"""Programs that inherit what some supervisors, containers and shells hand on: they work as they do elsewhere."""

import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from tests.fix_postgres import database_of
from tests.fix_process import environment

PROGRAMS = ["qmadmin.program", "qmadmin.forwarder.program", "qmadmin.spark.program"]
SERVICE = '[services.WORK]\ncommand = ["sh", "-c", "{}"]\n'


IGNORING_CHILDREN = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
BLOCKING_SIGTERM = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})"


def after(act):
    """Return the words that do something and then become the program that follows."""
    return [sys.executable, "-c", f"import os, signal, sys; {act}; os.execv(sys.argv[1], sys.argv[1:])"]


def start(*words, directory, options=(), closed=(), prefix=(), **settings):
    """Run a program to its end."""
    shut = "".join(f" {descriptor}>&-" for descriptor in closed)
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@"{shut}', "sh", *prefix, sys.executable, *options, "-m", *words],
        cwd=directory,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def forward(site, **how):
    return start(
        "qmadmin.forwarder.program", str(site.device), "QSPACE", "-q", "WORK", "-e", directory=site.directory, **how
    )


@pytest.fixture
def job(site):
    """A queue space in which a request waits."""
    space = site.lay_out("WORK", "ERRQUE", "OUT")
    space.enqueue("WORK", "job", reply_queue="OUT")
    return space


def test_a_command_that_fails_is_a_failure_where_the_end_of_children_is_ignored(site, job):
    site.services(SERVICE.format("exit 3"))
    forward(site, prefix=after(IGNORING_CHILDREN))
    assert (job.usage("ERRQUE").messages, job.usage("OUT").messages) == (1, 0)


def test_the_shell_tells_the_status_of_a_command_too(tmp_path):
    done = start(
        "qmadmin.program",
        "QUE",
        "-c",
        "!exit 3",
        directory=tmp_path,
        prefix=after(IGNORING_CHILDREN),
    )
    assert done.returncode == 1
    assert "ended with status 3" in done.stderr


def test_a_forwarder_can_be_stopped_where_the_signals_for_that_were_blocked(site, job):
    site.services(SERVICE.format("sleep 0"))
    daemon = site.start("-q", "WORK", prefix=after(BLOCKING_SIGTERM))
    daemon.stop()


@pytest.mark.parametrize("closed", [(2,), (1, 2), (0, 1, 2)], ids=str)
def test_a_forwarder_works_where_standard_streams_are_closed(site, job, closed):
    site.services(SERVICE.format("cat"))
    assert forward(site, closed=closed).returncode == 0
    assert [message.text for message in site.all_of("OUT")] == ["job"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_refusal_without_a_stream_to_say_it_on_has_its_status_all_the_same(program, tmp_path):
    assert start(program, "--no-such-option", directory=tmp_path, closed=(0, 1, 2)).returncode == 2


def test_a_current_directory_that_is_gone_is_named_in_a_sentence(tmp_path):
    words = {
        "qmadmin.program": ["QUE", "-c", "lidl"],
        "qmadmin.forwarder.program": ["QUE", "QS"],
        "qmadmin.spark.program": ["export", "QUE", "archive"],
    }
    for program, its in words.items():
        directory = tmp_path / program
        directory.mkdir()
        done = start(program, *its, directory=directory, prefix=after(f"os.rmdir({str(directory)!r})"))
        assert done.returncode != 0
        assert "is a relative path, and the current directory was removed" in done.stderr
        assert "FileNotFoundError" not in done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_the_same_where_python_leaves_docstrings_out(program, tmp_path):
    plain, without = (start(program, "--help", directory=tmp_path, options=options) for options in ([], ["-OO"]))
    assert (without.returncode, without.stdout) == (plain.returncode, plain.stdout)
    assert without.stdout.count("\n") > 5


def test_so_is_the_help_of_all_commands_of_the_shell(tmp_path):
    shown = []
    for options in ([], ["-OO"]):
        done = start("qmadmin.program", "QUE", "-c", "help", "-c", "help qlist", directory=tmp_path, options=options)
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    assert shown[0] == shown[1]


def test_a_forwarder_works_where_python_leaves_docstrings_out(site, job):
    site.services(SERVICE.format("cat"))
    assert forward(site, options=["-OO"]).returncode == 0
    assert [message.text for message in site.all_of("OUT")] == ["job"]


def test_settings_and_services_may_begin_with_a_byte_order_mark(site, job):
    services = SERVICE.format("cat").replace("\n", "\r\n")
    (site.directory / "services.toml").write_bytes(b"\xef\xbb\xbf" + services.encode())
    settings = site.directory / "settings.toml"
    settings.write_bytes(b"\xef\xbb\xbf[tmqforward]\r\nworkers = 2\r\n")
    done = forward(site, QMADMIN_TOML=str(settings))
    assert (done.returncode, done.stderr) == (0, "")
    assert [message.text for message in site.all_of("OUT")] == ["job"]


APPLICATION = """
import logging, os, sys
import qmadmin
try:
    qmadmin.open_device(sys.argv[1]).close()
except qmadmin.QueueError as error:
    print(type(error).__name__)
logging.getLogger("psycopg").warning("what the driver has to say")
"""


def test_the_driver_writes_nothing_on_the_standard_error_output_of_an_application(database_url, tmp_path):
    passwords = tmp_path / "pgpass"
    passwords.write_text("*:*:*:*:secret\n")
    passwords.chmod(0o644)
    where = database_of(database_url)[0].replace("+psycopg", "")
    address = urlsplit(where)
    nobody = f"postgresql://{address.hostname}:{address.port}{address.path}?user={address.username}&schema=nowhere"
    done = subprocess.run(
        [sys.executable, "-c", APPLICATION, nobody],
        env=environment(PGPASSFILE=str(passwords), PGPASSWORD=""),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout in ("OperatingSystemError\n", "BadResourceError\n")
