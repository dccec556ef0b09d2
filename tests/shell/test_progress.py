"""How far long work has come."""

import io
import os
import sys

import pytest

from qmadmin.console.formats import Format
from qmadmin.console.render import PlainScreen
from qmadmin.console.styled import SECONDS, Bar
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.session import Modes, Session

TOIL = '''\
"""qmadmin with a command that works for as long as nobody writes into a pipe."""
import sys

from qmadmin import program
from qmadmin.shell import session_commands
from qmadmin.console.results import Line


@session_commands.SESSION.command("toil")
def toil(session):
    """Work."""
    with session.progress("Toiling", 200) as reached:
        reached(50)
        open(sys.argv.pop()).read()
        reached(200)
    return Line("toiled")


sys.exit(program.main(sys.argv[1:2]))
'''


@pytest.fixture
def toiling(laid_out, terminal):
    """Start the program with the command toil in a terminal; toiling.release() lets the work end."""
    pipe = laid_out.directory / "pipe"
    os.mkfifo(pipe)
    script = laid_out.directory / "toil.py"
    script.write_text(TOIL)

    def start(**settings):
        screen = terminal(program=[sys.executable, str(script), laid_out.device, str(pipe)], **settings)
        screen.release = lambda: pipe.write_text("")
        screen.at_prompt()
        return screen

    return start


def test_bar_shows_what_is_done_and_is_gone_afterwards(toiling):
    screen = toiling(columns=60)
    screen.send("toil\r")
    screen.see("\nToiling ━━━━", " 25%")
    screen.release()
    screen.at_prompt()
    assert screen.shown.endswith("> toil\ntoiled\n>")
    assert not screen.screen.cursor.hidden


def test_interrupt_lets_the_work_end_and_the_bar_is_gone(toiling):
    screen = toiling()
    screen.send("toil\r")
    screen.see("Toiling ━━━━")
    screen.send("\x03")
    # An interrupt drops what has been written and not been read yet.
    screen.see("^C")
    screen.release()
    screen.at_prompt()
    assert "━" not in screen.shown
    screen.see("INFO: toil was completed before the interrupt; its output is omitted")
    assert not screen.screen.cursor.hidden
    screen.enter("verbose")
    screen.see("Verbose mode is now on")


def test_second_interrupt_breaks_the_work_off(toiling):
    screen = toiling()
    screen.send("toil\r")
    screen.see("Toiling ━━━━")
    screen.send("\x03")
    screen.see("^C")
    screen.send("\x03")
    screen.at_prompt()
    assert "━" not in screen.shown
    assert not screen.screen.cursor.hidden


def test_bar_has_no_colour_where_none_is_wanted(toiling):
    screen = toiling(environ={"NO_COLOR": "1"})
    screen.send("toil\r")
    screen.see("Toiling", " 25%")
    colours = {(cell.fg, cell.bg) for row in screen.screen.buffer.values() for cell in row.values()}
    assert colours == {("default", "default")}
    screen.release()
    screen.at_prompt()


class Console:
    """Refuses to be drawn on."""

    def __getattr__(self, name):
        raise AssertionError(name)


def test_nothing_is_drawn_for_short_work():
    with Bar(Console(), "Toiling", 10, after=SECONDS) as reached:
        reached(10)


def session(modes):
    out = io.StringIO()
    return Session("none", Catalogue(), PlainScreen(out, out), {}, modes=modes), out


def test_script_gets_a_dot_for_each_twentieth_in_verbose_mode():
    made, out = session(Modes(verbose=True))
    with made.progress("Toiling", 200) as reached:
        reached(9)
        assert out.getvalue() == ""
        reached(10)
        reached(25)
        assert out.getvalue() == ".."
        reached(200)
    assert out.getvalue() == "." * 20 + "\n"


@pytest.mark.parametrize(
    ("modes", "total"), [(Modes(), 200), (Modes(verbose=True, format=Format.JSON), 200), (Modes(verbose=True), None)]
)
def test_nothing_is_shown_elsewhere(modes, total):
    made, out = session(modes)
    with made.progress("Toiling", total) as reached:
        reached(200)
    assert out.getvalue() == ""


def test_dots_are_left_out_where_they_are_not_wanted():
    made, out = session(Modes(verbose=True))
    with made.progress("Toiling", 200, dots=False) as reached:
        reached(200)
    assert out.getvalue() == ""
