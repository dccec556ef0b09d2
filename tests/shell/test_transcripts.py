"""Whole scripts and what they print: results and notices in the order in which they appear on a screen."""

import re
import shutil
from pathlib import Path

import pytest

from qmadmin.shell.catalogue import Catalogue

DATA = Path(__file__).parent / "data"
TRANSCRIPTS = sorted(path.stem for path in DATA.glob("*.qm"))


# From the guide, letter by letter but for the blanks at the ends of lines.
GUIDE = (
    """\
> qspacecreate
Queue space name: myqueuespace
IPC Key for queue space: 230458
Size of queue space in disk pages: 200
Number of queues in queue space: 3
Number of concurrent transactions in queue space: 3
Number of concurrent processes in queue space: 3
Number of messages in queue space: 12
Error queue name: errq
Initialize extents (y, n [default=n]):
Blocking factor [default=16]: 16
""",
    """\
> qcreate
Queue name: service1
Queue order (priority, time, fifo, lifo): fifo
Out-of-ordering enqueueing (top, msgid, [default=none]): none
Retries [default=0]: 2
Retry delay in seconds [default=0]: 30
High limit for queue capacity warning (b for bytes used, B for blocks used,
% for percent used, m for messages [default=100%]): 80%
Reset (low) limit for queue capacity warning [default=0%]: 0%
Queue capacity command:
No default queue capacity command
Queue 'service1' created
""",
)


@pytest.mark.parametrize("session", GUIDE)
def test_sessions_of_the_guide_look_as_in_the_guide(session):
    assert session in expected("guide")


def expected(name):
    """Return the expected output; its last line tells the exit status."""
    return (DATA / f"{name}.out").read_text(encoding="utf-8")


def script_of(shell, name):
    return (DATA / f"{name}.qm").read_text(encoding="utf-8").replace("@DEVICE@", shell.device)


def as_shown(shell, text, status):
    return f"{shell.normal(text)}[exit status {status}]\n"


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_script_prints_what_is_expected(shell, name):
    ran = shell.run(script_of(shell, name), name="stdin")
    assert as_shown(shell, ran.both, int(ran.status)) == expected(name)


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_pipe_and_command_file_give_the_same(shell, name):
    script = script_of(shell, name)
    piped = shell.process(f"{script}", stderr_to_stdout=True)
    assert as_shown(shell, piped.stdout, piped.returncode) == expected(name)
    for path in shell.directory.glob("QUE*"):
        if path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path)
    file = shell.directory / "script"
    file.write_text(script, encoding="utf-8")
    read = shell.process(None, "-f", "script", shell.device, stderr_to_stdout=True)
    shown = as_shown(shell, read.stdout.replace("(script, line", "(stdin, line"), read.returncode)
    assert shown == expected(name)


def test_each_command_is_in_a_script():
    scripts = "".join(path.read_text(encoding="utf-8") for path in DATA.glob("*.qm"))
    for command in Catalogue().commands:
        names = "|".join(re.escape(name) for name in command.names)
        assert re.search(rf"^({names})(\b|\s|$)", scripts, re.MULTILINE), command.name


def test_each_expectation_has_its_script():
    assert sorted(path.stem for path in DATA.glob("*.out")) == TRANSCRIPTS
