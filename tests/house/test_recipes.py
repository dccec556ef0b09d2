"""The recipes for systemd and for containers fit the program."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from qmadmin.forwarder.program import tmqforward
from qmadmin.settings import SECTIONS

SCRIPTS = Path(__file__).parents[2] / "scripts"
UNIT = SCRIPTS / "systemd" / "tmqforward@.service"
CONTAINER = SCRIPTS / "container"

KNOWN_OPTIONS = {
    name for parameter in tmqforward.params if isinstance(parameter, click.Option) for name in parameter.opts
}
"""What the program takes; the status is asked for with options of its own."""

OWN_VARIABLES = {"QM_SPACE", "QM_QUEUES", "QM_OPTIONS"}
"""What only the recipes themselves take from the environment."""

KNOWN_VARIABLES = OWN_VARIABLES | {
    setting.variable for section in SECTIONS.values() for setting in section.declared().values()
}


def unit():
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str
    parser.read_string(UNIT.read_text())
    return parser


def options_in(line):
    return {word for word in shlex.split(line) if re.fullmatch(r"--?[a-z][a-z-]*", word)}


def test_systemd_takes_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    program = tmp_path / "tmqforward"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    made = tmp_path / "tmqforward@orders.service"
    made.write_text(
        UNIT.read_text().replace("/opt/qmadmin/bin/tmqforward", str(program)).replace("User=qmadmin", "User=root")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", made],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    # It may also say that the machine it runs on has no systemd at work.
    assert [line for line in done.stderr.splitlines() if made.name in line] == []


def test_the_unit_starts_the_program_and_lets_it_say_when_it_is_ready():
    service = unit()["Service"]
    assert (service["Type"], service["Restart"], service["KillMode"]) == ("notify", "on-failure", "mixed")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert int(service["TimeoutStopSec"]) > 60
    assert options_in(service["ExecStart"]) <= KNOWN_OPTIONS
    assert set(re.findall(r"\$\{?(\w+)", service["ExecStart"])) == OWN_VARIABLES
    assert service["Environment"] == "ULOGPFX=-"


def test_the_unit_tells_of_settings_that_there_are():
    explained = re.findall(r"^# +(\w+)=", UNIT.read_text(), re.MULTILINE)
    assert set(explained) >= OWN_VARIABLES
    assert set(explained) <= KNOWN_VARIABLES


def test_the_image_is_made_of_one_that_the_builder_names():
    text = (CONTAINER / "Containerfile").read_text()
    (base,) = re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"[a-z]+:[\w.-]+", base)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}


def test_the_container_starts_the_program_with_options_and_settings_that_there_are():
    text = (CONTAINER / "Containerfile").read_text()
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    (shell, flag, command, name) = json.loads(entry)
    assert (shell, flag, name) == ("/bin/sh", "-c", "tmqforward")
    assert options_in(command) <= KNOWN_OPTIONS
    settings = set(re.findall(r"^(?:ENV)? +(\w+)=", text, re.MULTILINE)) - {"PATH", "PYTHONUNBUFFERED"}
    assert settings == {"ULOGPFX", "QMCONFIG", "QM_SERVICES"}
    assert settings <= KNOWN_VARIABLES
    explained = set(re.findall(r"^\| `(QM\w+)`", (CONTAINER / "README.md").read_text(), re.MULTILINE))
    assert explained == {"QM_SPACE", "QM_QUEUES", "QMCONFIG", "QM_SERVICES"}


def test_the_container_hands_its_arguments_on(tmp_path):
    """As the engine would run it, with a program that shows what it was given."""
    program = tmp_path / "tmqforward"
    program.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    program.chmod(0o755)
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", (CONTAINER / "Containerfile").read_text(), re.MULTILINE)
    done = subprocess.run(
        [*json.loads(entry), "-t", "a b"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "QM_SPACE": "QSPACE", "QM_QUEUES": "A,B"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "<QSPACE><-q><A,B><--log-format><json><-t><a b>"
