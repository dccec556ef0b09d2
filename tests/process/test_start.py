"""What keeps the forwarder from starting: one sentence, exit status 2, and nothing touched."""

import os
import sqlite3
import subprocess

import pytest

from qmadmin.version import __version__
from tests.fix_process import environment

SERVICES = """
[services.STRING]
python = "server:upper"
"""
SERVER = """
def upper(request):
    return request.text.upper()


async def later(request):
    return request.body


constant = 17
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
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done


def refusal(site, *arguments, **settings):
    """Return the sentence with which a forwarder refuses to start."""
    done = run(site, *arguments, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) <= 2
    return lines[0]


def refused_services(site, text, name="STRING"):
    """Return why a services file is refused."""
    (site.directory / "services.toml").write_text(text)
    return refusal(site, "QUE", "QSPACE", "-q", name)


def test_version_and_help_are_told(site):
    assert run(site, "--version").stdout == f"tmqforward {__version__}\n"
    told = run(site, "--help")
    assert told.returncode == 0
    assert all(option in told.stdout for option in ("-q", "-t", "-i", "-e", "-s", "QSPACE"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["QUE", "QSPACE"], "ERROR: no queue is named"),
        ([], "ERROR: QMCONFIG not set"),
        (["QSPACE", "-q", "STRING"], "ERROR: QMCONFIG not set"),
        (["QUE", "QSPACE", "more", "-q", "STRING"], "ERROR: Invalid argument more"),
        (["QUE", "QSPACE", "-q", "STRING", "-x"], "ERROR: Invalid option - -x"),
        (["QUE", "QSPACE", "-q"], "ERROR: Option '-q' requires an argument"),
        (["QUE", "QSPACE", "-q", "STRING,"], "ERROR: -q 'STRING,': the queue name is empty"),
        (["QUE", "QSPACE", "-q", "x" * 128], f"ERROR: -q '{'x' * 128}': the queue name '{'x' * 57}...' has 128 bytes"),
    ],
)
def test_wrong_arguments_are_named(site, arguments, sentence):
    assert refusal(site, *arguments).startswith(sentence)
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["NONE", "-q", "STRING"], "there is no queue space 'NONE' on the device"),
        (["x" * 16, "-q", "STRING"], f"the queue space name '{'x' * 16}' has 16 bytes, the limit is 15"),
        (["QSPACE", "-q", "STRING,NONE"], "there is no queue 'NONE' in queue space 'QSPACE'"),
        (["QSPACE", "-q", "OTHER"], "services file 'services.toml' has no service for queue 'OTHER'"),
        (["QSPACE", "-q", "STRING", "-s", "none.toml"], "there is no services file 'none.toml'"),
        (["QSPACE", "-q", "STRING", "-s", "."], "services file '.' cannot be read: Is a directory"),
    ],
)
def test_what_is_not_there_is_named(site, space, arguments, sentence):
    assert refusal(site, "QUE", *arguments) == f"ERROR: {sentence}"
    (log,) = site.directory.glob("ULOG.*")
    assert f"ERROR: {sentence}" in log.read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[services", "services file 'services.toml' is not TOML: "),
        ("[service.STRING]", "services file 'services.toml' has the unknown key 'service'; did you mean 'services'?"),
        ("services = 1", "services in services file 'services.toml' must be a table, got 1"),
        ("services.STRING = 1", "service 'STRING' in services file 'services.toml' must be a table, got 1"),
        (
            "[services.STRING]\npyhton = 'a:b'",
            "service 'STRING' in services file 'services.toml' has the unknown key 'pyhton'; did you mean 'python'?",
        ),
        (
            "[services.STRING]\nurl = 'a:b'",
            "service 'STRING' in services file 'services.toml' has the unknown key 'url'; known are python and command",
        ),
        ("[services.STRING]", "service 'STRING' in services file 'services.toml' must have either python or command"),
        (
            "[services.STRING]\npython = 'a:b'\ncommand = ['a']",
            "service 'STRING' in services file 'services.toml' must have either python or command, and has both",
        ),
        (
            "[services.STRING]\npython = 'server'",
            "service 'STRING' in services file 'services.toml': python must be of",
        ),
        (
            "[services.STRING]\npython = 1",
            "service 'STRING' in services file 'services.toml': python must be of the form",
        ),
        ("[services.STRING]\npython = 'a b:c'", "service 'STRING': python must be of the form 'module:function'"),
        (
            "[services.STRING]\ncommand = 'tr a b'",
            "service 'STRING' in services file 'services.toml': command must be a",
        ),
        (
            "[services.STRING]\ncommand = []",
            "service 'STRING' in services file 'services.toml': command must be a list",
        ),
        ("[services.STRING]\ncommand = ['a', 1]", "service 'STRING' in services file 'services.toml': every word of"),
        (
            "[services.STRIN]\ncommand = ['true']",
            "services file 'services.toml' has no service for queue 'STRING'; did you",
        ),
        (
            "[services.STRING]\npython = 'none:upper'",
            "service 'STRING': module 'none' cannot be imported: ModuleNotFound",
        ),
        ("[services.STRING]\npython = 'bad:upper'", "service 'STRING': module 'bad' cannot be imported: SystemExit: 7"),
        (
            "[services.STRING]\npython = 'server:uper'",
            "service 'STRING': module 'server' has no function 'uper'; did you",
        ),
        (
            "[services.STRING]\npython = 'server:constant'",
            "service 'STRING': 'server:constant' is a int, which cannot be",
        ),
        ("[services.STRING]\npython = 'server:later'", "service 'STRING': 'server:later' is an async function"),
        ("[services.STRING]\ncommand = ['no-such-tool']", "service 'STRING': command 'no-such-tool' was not found"),
        (
            "[services.STRING]\ncommand = ['./server.py']",
            "service 'STRING': command './server.py' was not found, or may",
        ),
    ],
)
def test_wrong_services_file_is_refused(site, space, text, sentence):
    (site.directory / "bad.py").write_text("raise SystemExit(7)")
    assert refused_services(site, text).startswith(f"ERROR: {sentence}")


def test_services_file_that_is_no_text_is_refused(site, space):
    (site.directory / "services.toml").write_bytes(b"\xff\xfe")
    assert refusal(site, "QUE", "QSPACE", "-q", "STRING").startswith("ERROR: services file 'services.toml' is not TOML")


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


def test_queue_that_is_named_twice_is_served_once(site, space):
    done = run(site, "QUE", "QSPACE", "-q", "STRING,STRING", "-q", "STRING", "-e")
    assert done.returncode == 0
    (log,) = site.directory.glob("ULOG.*")
    assert "started: queue 'STRING' of" in log.read_text()


def test_forwarder_beyond_the_processes_of_the_queue_space_is_refused(site):
    site.services(SERVICES, server=SERVER)
    site.lay_out("STRING", processes=1)
    assert "attached processes" in refusal(site, "QUE", "QSPACE", "-q", "STRING")
