"""What an interrupt does while a command works, and an error while its result is drawn."""

import io
import os
import signal
import time

import pytest

from qmadmin.console.process import Exit, let_through, sleep
from qmadmin.console.render import PlainScreen
from qmadmin.console.results import Column, Line, Table
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.declare import Group
from qmadmin.shell.interpreter import Interpreter
from qmadmin.shell.lines import Script
from qmadmin.shell.session import Session
from qmcore.errors import BadResourceError

done = []
GROUP = Group("Work")


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@GROUP.command("work")
def work(session):
    """Work, and be interrupted meanwhile."""
    interrupt()
    done.append("work")
    return Line("worked")


@GROUP.command("toil")
def toil(session):
    """Work, and be interrupted twice."""
    interrupt()
    interrupt()
    done.append("toil")


@GROUP.command("wait")
def wait(session):
    """Wait, be interrupted meanwhile, and then do something."""
    with let_through():
        interrupt()
        done.append("waited")
    interrupt()
    done.append("wait")


@GROUP.command("late")
def late(session):
    """Be interrupted, and only then wait."""
    interrupt()
    with let_through():
        done.append("waited")


@GROUP.command("fail")
def fail(session):
    """Fail, and be interrupted meanwhile."""
    interrupt()
    raise ValueError


@GROUP.command("tell")
def tell(session):
    """Return rows of which the second cannot be read any more."""

    def rows():
        yield ["first"]
        raise BadResourceError("it is gone")

    return Table((Column("row", "Row"),), rows())


class Person(Script):
    """Lines of a person who can be asked again."""

    patient = True

    def place(self):
        return ""


@pytest.fixture
def run():
    done.clear()

    def run_lines(text, dialogue=Script):
        out = io.StringIO()
        session = Session("none", Catalogue([GROUP]), PlainScreen(out, out), {})
        return Interpreter(session, dialogue(io.StringIO(text), "crque", session)).run(), out.getvalue()

    before = signal.getsignal(signal.SIGINT)
    yield run_lines
    assert signal.getsignal(signal.SIGINT) is before


def test_command_is_completed_before_the_script_ends(run):
    status, shown = run("work\nwork\n")
    assert status is Exit.INTERRUPTED
    assert done == ["work"]
    assert shown == "INFO: work was completed before the interrupt; its output is omitted\n"


def test_person_goes_on_after_the_command_was_completed(run):
    status, shown = run("work\n\nwork\n", Person)
    assert status is Exit.OK
    assert done == ["work", "work"]
    assert "worked" not in shown


def test_second_interrupt_breaks_the_command_off(run):
    status, shown = run("toil\n")
    assert status is Exit.INTERRUPTED
    assert done == []
    assert shown == ""


@pytest.mark.parametrize("command", ["wait", "late"])
def test_wait_ends_with_the_first_interrupt_even_if_that_came_before(run, command):
    status, shown = run(f"{command}\n")
    assert status is Exit.INTERRUPTED
    assert done == []
    assert shown == ""


def test_command_that_fails_meanwhile_tells_so(run):
    status, shown = run("fail\nwork\n")
    assert status is Exit.INTERRUPTED
    assert shown.startswith("ERROR: fail failed inside qmadmin: ValueError; the log has it as fault ")
    assert done == []


def test_error_while_a_result_is_drawn_is_told_and_the_script_goes_on(run):
    status, shown = run("tell\ntell\n")
    assert status is Exit.FAILED
    assert shown == "ERROR: QMEBADRMID: it is gone (crque, line 1)\nERROR: QMEBADRMID: it is gone (crque, line 2)\n"


def test_an_interrupt_right_before_a_long_sleep_ends_it_within_a_second(monkeypatch):
    # Python notices it only when the sleep of the system is over.
    asked = []

    def interrupted_before(seconds):
        asked.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted_before)
    with pytest.raises(KeyboardInterrupt):
        sleep(3600)
    assert asked == [1.0]
