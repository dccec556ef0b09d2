"""What keeps the forwarder from starting: one sentence, exit status 2, and nothing touched."""

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pexpect
import pytest

from qmadmin.forwarder import UsageError, program
from qmadmin.forwarder.options import place, queue_names
from qmadmin.version import __version__
from tests.fix_process import Site, environment

SERVICES = """
[services.STRING]
python = "server:upper"
"""
SERVER = """
def upper(request):
    return request.text.upper()
"""


@pytest.fixture
def space(site):
    site.services(SERVICES, server=SERVER)
    return site.lay_out("STRING", "OTHER", "ERRQUE")


def run(site, *arguments, **settings):
    command = site.command()[:3]
    done = subprocess.run(
        [*command, *arguments],
        cwd=site.directory,
        env=environment(**settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "Traceback" not in done.stderr
    return done


def refusal(site, *arguments, **settings):
    """Return the sentence with which a forwarder refuses to start."""
    done = run(site, *arguments, **settings)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) <= 2
    return lines[0]


def test_version_and_help_are_told(site):
    assert run(site, "--version").stdout == f"tmqforward {__version__}\n"
    told = run(site, "--help")
    assert told.returncode == 0
    assert all(option in told.stdout for option in ("-q", "-t", "-i", "-e", "-s", "QSPACE"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["QUE", "QSPACE", "-q", ""], "-q '': the queue name is empty"),
        (["-q", "STRING"], "no queue space is named"),
        ([], "no queue space is named"),
        (["QSPACE", "-q", "STRING"], "QMCONFIG not set, and no device is named before queue space 'QSPACE'"),
        (["QUE", "QSPACE", "more", "-q", "STRING"], "Invalid argument more"),
        (["QUE", "QSPACE", "-q", "STRING", "-x"], "Invalid option - -x"),
        (["QUE", "QSPACE", "-q"], "Option '-q' requires an argument"),
        (["QUE", "QSPACE", "-q", "STRING,"], "-q 'STRING,': the queue name is empty"),
        (["QUE", "QSPACE", "-q", "x" * 128], f"-q '{'x' * 128}': the queue name '{'x' * 57}...' has 128 bytes"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_made(site, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(site.directory)
    assert program.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    first, second = said.err.splitlines()
    assert first.startswith(f"ERROR: {sentence}")
    assert second.startswith("Usage: tmqforward [DEVICE] QSPACE [-q QUEUE[,QUEUE...]]")
    assert list(site.directory.iterdir()) == []


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("none", "there is no device '{0}/none'"),
        (".", "'{0}' is a directory, not a qmadmin device"),
        ("server.py", "'{0}/server.py' is not a qmadmin device"),
        ("other.db", "'{0}/other.db' is not a qmadmin device"),
    ],
)
def test_device_that_cannot_be_opened_is_named(site, space, device, sentence):
    with sqlite3.connect(site.directory / "other.db") as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    told = refusal(site, device, "QSPACE", "-q", "STRING")
    assert told.startswith("ERROR: " + sentence.format(site.directory))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_device_that_can_only_be_read_is_refused(site, space):
    site.device.chmod(0o400)
    assert "can only be read by this user" in refusal(site, "QUE", "QSPACE", "-q", "STRING")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_device_of_somebody_else_that_can_only_be_read_is_refused(fork_server):
    # Others may not enter the directories of pytest, nor read our Python, which is loaded before.
    become_another = """
import difflib, os, pwd, sqlite3, sys, qmadmin.space
import qmadmin.consumers.function_handler, qmadmin.forwarder.daemon, qmstorage.sqlite.opening
from qmadmin.forwarder import program
os.setuid(pwd.getpwnam("nobody").pw_uid)
sys.exit(program.main(sys.argv[1:]))
"""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        site = Site(directory, fork_server)
        site.services(SERVICES, server=SERVER)
        site.lay_out("STRING")
        site.close()
        site.device.chmod(0o644)
        (directory / "log").mkdir()
        (directory / "log").chmod(0o777)
        site.command = lambda: [sys.executable, "-c", become_another]
        told = refusal(site, "QUE", "QSPACE", "-q", "STRING", ULOGPFX="log/ULOG")
    assert told == f"ERROR: device '{site.device}' can only be read by this user, but forwarding must write to it"


@pytest.mark.parametrize(
    ("arguments", "sentence", "hint"),
    [
        (["NONE", "-q", "STRING"], "there is no queue space 'NONE' on the device", "List the queue spaces with"),
        (["x" * 16, "-q", "STRING"], f"the queue space name '{'x' * 16}' has 16 bytes, the limit is 15", None),
        (["QSPACE", "-q", "STRING,NONE"], "there is no queue 'NONE' in queue space 'QSPACE'", "List the queues with"),
        (
            ["QSPACE", "-q", "OTHER"],
            "services file 'services.toml' has no service for queue 'OTHER'",
            "Describe it in a table [services.OTHER].",
        ),
        (
            ["QSPACE", "-q", "STRING", "-s", "none.toml"],
            "there is no services file 'none.toml'",
            "Name one with -s, or in the environment variable QM_SERVICES.",
        ),
        (["QSPACE", "-q", "STRING", "-s", "."], "services file '.' cannot be read: Is a directory", None),
    ],
)
def test_what_is_not_there_is_named(site, space, arguments, sentence, hint):
    done = run(site, "QUE", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    first, *more = done.stderr.splitlines()
    assert first == f"ERROR: {sentence}"
    assert [line.startswith(hint or "nothing") for line in more] == [True] * bool(hint)
    assert list(site.directory.glob("ULOG.*")) == []
    run(site, "QUE", *arguments, ULOGPFX="./ULOG")
    (log,) = site.directory.glob("ULOG.*")
    assert f"ERROR: {sentence}" in log.read_text()


@pytest.mark.parametrize(
    ("option", "value", "warning", "used"),
    [
        ("-t", "soon", "CAT:1602: WARN: -t option ignored as argument must be numeric", "-t 60 -i 30"),
        ("-t", "-5", "CAT:1602: WARN: -t option ignored as argument must be numeric", "-t 60 -i 30"),
        (
            "-t",
            "2147483648",
            "CAT:1603: WARN: -t option ignored as argument is too large (must be below 2147483648)",
            "-t 60 -i 30",
        ),
        ("-i", "1.5", "CAT:1604: WARN: -i option ignored as argument must be numeric", "-t 60 -i 30"),
        ("-i", "2147483648", "WARN: -i option ignored as argument is too large (must be below 2147483648)", "-i 30"),
        ("-i", "9" * 5000, "WARN: -i option ignored as argument", "-t 60 -i 30"),
        ("-t", "2147483647", "", "-t 2147483647 -i 30"),
    ],
)
def test_number_without_meaning_is_warned_about_and_ignored(site, space, option, value, warning, used):
    done = run(site, "QUE", "QSPACE", "-q", "STRING", "-e", option, value)
    assert done.returncode == 0
    assert done.stderr.startswith(warning.removeprefix(warning.partition("WARN")[0]))
    (log,) = site.directory.glob("ULOG.*")
    assert warning in log.read_text()
    assert used in log.read_text()


def test_queues_are_listed_with_commas_and_blanks_and_each_is_served_once():
    assert queue_names(["A, B", "C,A"]) == ("A", "B", "C")


def test_device_is_the_first_of_two_arguments_and_else_what_the_environment_names():
    assert place(["QUE", "QSPACE"], "OTHER") == ("QUE", "QSPACE")
    assert place(["QSPACE"], "OTHER") == ("OTHER", "QSPACE")
    with pytest.raises(UsageError, match="no queue space is named"):
        place([], "OTHER")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_warning_and_refusal_that_cannot_be_written_change_nothing(site, space):
    def status(*arguments):
        with Path("/dev/full").open("w") as full:
            command = [*site.command()[:3], "QUE", *arguments]
            return subprocess.run(
                command, cwd=site.directory, env=environment(), stderr=full, check=False, timeout=240
            ).returncode

    assert status("NONE", "-q", "STRING") == 2
    assert status("QSPACE", "-q", "STRING", "-e", "-t", "soon") == 0
    (log,) = site.directory.glob("ULOG.*")
    assert "WARN: -t option ignored" in log.read_text()


def test_interrupt_while_a_service_is_loaded_is_status_130(site, space):
    (site.directory / "server.py").write_text("raise KeyboardInterrupt")
    assert run(site, "QUE", "QSPACE", "-q", "STRING").returncode == 130


def test_bug_is_one_line_and_the_log_has_its_traceback(site, space):
    broken = "from qmadmin.consumers.consumer import Dispatcher\nDispatcher.run = lambda *_: 1 / 0\n"
    (site.directory / "server.py").write_text(broken + SERVER)
    done = run(site, "QUE", "QSPACE", "-q", "STRING")
    assert (done.returncode, done.stderr) == (1, "ERROR: the forwarder failed: ZeroDivisionError: division by zero\n")
    (log,) = site.directory.glob("ULOG.*")
    assert "ERROR: the forwarder failed | Traceback (most recent call last): | " in log.read_text()


def test_queue_that_is_named_twice_is_served_once(site, space):
    options = ["-q", "STRING,STRING", "-q", "STRING", "-e", "-s", "services.toml"]
    done = run(site, "QUE", "QSPACE", *options, QM_SERVICES="none.toml")
    assert done.returncode == 0
    (log,) = site.directory.glob("ULOG.*")
    assert "started: queue 'STRING' of" in log.read_text()


def test_forwarder_beyond_the_processes_of_the_queue_space_is_refused(site):
    site.services(SERVICES, server=SERVER)
    site.lay_out("STRING", processes=1)
    assert "attached processes" in refusal(site, "QUE", "QSPACE", "-q", "STRING")


def test_at_a_terminal_it_is_told_where_the_log_is(site, space):
    command = site.command("-q", "STRING", "-e")
    terminal = pexpect.spawn(command[0], command[1:], cwd=str(site.directory), env=environment(), timeout=240)
    terminal.expect(
        rf"tmqforward: what happens is in {re.escape(str(site.directory))}/ULOG\.\d+ too; Ctrl-C stops it\r\n"
    )
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
