"""A pager that is left before the end, or interrupted, while there are rows without end."""

import shutil
import sys

import pytest

ENDLESS = '''\
"""qmadmin with a command whose rows have no end, and one that tells how many of them were read."""
import itertools
import sys

from qmadmin import program
from qmadmin.shell import session_commands
from qmadmin.console.results import Column, Line, Table

read = itertools.count()
asked = []


def rows():
    for number in itertools.count():
        asked[:] = [number]
        yield [number, "x" * 50]


@session_commands.SESSION.command("endless")
def endless(session):
    """List without end."""
    return Table((Column("number", "Number", right=True), Column("text", "Text")), rows())


@session_commands.SESSION.command("asked")
def tell(session):
    """Tell how many rows were read."""
    return Line("only so many" if asked[0] < 100_000 else "too many")


sys.exit(program.main(sys.argv[1:2]))
'''


@pytest.fixture
def paging(laid_out, terminal):
    """Start the program with the commands endless and asked in a terminal."""
    script = laid_out.directory / "endless.py"
    script.write_text(ENDLESS)
    screen = terminal(program=[sys.executable, str(script), laid_out.device])
    screen.at_prompt()
    return screen


needs_less = pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")


@needs_less
def test_pager_is_left_at_once_and_what_it_did_not_show_is_not_read(paging):
    paging.send("endless\r")
    paging.see("Number", "\n    10  xxx")
    paging.send("q")
    paging.at_prompt()
    paging.enter("asked")
    paging.see("only so many")


@needs_less
def test_interrupt_in_the_pager_stops_its_search_for_the_end_and_the_session_goes_on(paging):
    paging.send("endless\r")
    paging.see("Number", "\n    10  xxx")
    paging.until(lambda: paging.shown.endswith("\n:"), "its prompt")
    paging.send("G")
    paging.until(lambda: not paging.shown.endswith("\n:"), "the search")
    paging.send("\x03")
    # It may say that it cannot find the end, and waits for a key then.
    paging.until(lambda: paging.shown.endswith(("\n:", "(press RETURN)")), "the end of the search")
    paging.send("\r")
    paging.until(lambda: paging.shown.endswith("\n:"), "its prompt again")
    paging.send("q")
    paging.at_prompt()
    paging.enter("verbose")
    paging.see("Verbose mode is now on")


def test_output_without_end_is_stopped_by_an_interrupt(paging):
    paging.enter("paginate off")
    paging.send("endless\r")
    paging.see("  xxx")
    paging.send("\x03")
    paging.until(lambda: paging.shown.endswith("\n>"), "the prompt")
    paging.enter("verbose")
    paging.see("Verbose mode is now on")
