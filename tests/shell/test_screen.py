"""Where results and notices are drawn: on which stream, in which order, how wide, and when through a pager."""

import contextlib
import errno
import fcntl
import io
import os
import pty
import re
import struct
import termios

import pytest
from rich.console import Console

from qmadmin.console.render import OutputLostError, PlainScreen, window
from qmadmin.console.results import Column, Line, Notice, Severity, Table
from qmadmin.console.styled import StyledScreen

ERROR = Notice(Severity.ERROR, "it failed", "Mend it.")
COLUMNS, LINES = 40, 10


class Lost(io.StringIO):
    """A stream on a full disk, or whose reader is gone."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, os.strerror(self.number))


# ---- plain ----


@pytest.fixture
def log(tmp_path):
    """A file that takes results and notices, each through a buffer of its own, as in `qmadmin >log 2>&1`."""
    file = tmp_path / "log"
    with file.open("a") as out, file.open("a") as err:
        yield PlainScreen(out, err), file


def test_notice_stands_behind_the_results_that_were_shown_before(log):
    screen, file = log
    screen.show([Line("a result")])
    screen.notice(ERROR, "crque, line 3")
    screen.show([Line("another")])
    screen.flush()
    assert file.read_text() == "a result\nERROR: it failed (crque, line 3)\nanother\n"


def test_hint_is_for_a_person():
    for hints, shown in ((True, "ERROR: it failed\n  Mend it.\n"), (False, "ERROR: it failed\n")):
        err = io.StringIO()
        PlainScreen(io.StringIO(), err, hints=hints).notice(ERROR)
        assert err.getvalue() == shown


def test_progress_is_seen_at_once_and_its_line_is_ended_before_anything_else(log):
    screen, file = log
    screen.tick("..")
    assert file.read_text() == ".."
    screen.notice(ERROR)
    screen.tick("...")
    screen.show([Line("a result")])
    screen.tick(".\n")
    screen.flush()
    assert file.read_text() == "..\nERROR: it failed\n...\na result\n.\n"


def test_blanks_at_the_ends_of_lines_are_not_written():
    out = io.StringIO()
    PlainScreen(out, io.StringIO()).show([Line("a result  ")])
    assert out.getvalue() == "a result\n"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_output_that_is_lost_is_told_of_unless_its_reader_is_gone(number):
    screen = PlainScreen(Lost(number), io.StringIO())
    for draw in (lambda: screen.show([Line("a result")]), lambda: screen.tick(".")):
        with pytest.raises(OutputLostError, match=f"cannot write the output: {os.strerror(number)}") as lost:
            draw()
        assert lost.value.quiet is (number == errno.EPIPE)


def test_notice_that_is_lost_is_not_told_of():
    out = io.StringIO()
    screen = PlainScreen(out, Lost(errno.ENOSPC))
    screen.notice(ERROR)
    screen.prompt("> ")
    screen.show([Line("a result")])
    assert out.getvalue() == "a result\n"


# ---- a terminal ----


class Window(io.StringIO):
    """A stream with the size of a real terminal, which keeps what is written."""

    def __init__(self):
        super().__init__()
        self.master, self.slave = pty.openpty()
        self.resize(COLUMNS, LINES)

    def fileno(self):
        return self.slave

    def isatty(self):
        return True

    def resize(self, columns, lines):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def shown(self):
        """Return the lines without their colours."""
        return [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", self.getvalue()).splitlines()]

    def draw(self, environ, *results, paged=True):
        """Return the lines that results show here, without those that go through a pager."""
        before = len(self.shown())
        StyledScreen(self, self, environ).show(results, paged=paged)
        return self.shown()[before:]

    def close(self):
        super().close()
        os.close(self.slave)
        os.close(self.master)


@pytest.fixture
def terminal():
    with contextlib.closing(Window()) as found:
        yield found


@pytest.fixture
def pager(tmp_path):
    """The command line of a pager that keeps what it is given, and the file where it does."""
    return f"sh -c 'cat >{tmp_path}/paged'", tmp_path / "paged"


def numbered(count):
    return [Line(f"line {number}") for number in range(count)]


def test_size_of_a_window_is_the_terminal_s_and_where_it_has_none_the_environment_s(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "101")
    monkeypatch.setenv("LINES", "33")
    assert window(terminal) == (COLUMNS, LINES)
    terminal.resize(0, 0)
    assert window(terminal) == (101, 33)
    assert window(io.StringIO()) == (101, 33)


def test_output_that_fits_with_the_prompt_is_not_paged(terminal, pager):
    command, file = pager
    assert terminal.draw({"PAGER": command}, *numbered(LINES - 1)) == [f"line {number}" for number in range(LINES - 1)]
    assert not file.exists()


def test_all_of_the_output_that_does_not_fit_is_paged(terminal, pager):
    command, file = pager
    assert terminal.draw({"PAGER": command}, *numbered(LINES * 3)) == []
    assert file.read_text().splitlines() == [f"line {number}" for number in range(LINES * 3)]


def test_output_that_does_not_fit_by_one_line_is_paged(terminal, pager):
    command, file = pager
    assert terminal.draw({"PAGER": command}, *numbered(LINES)) == []
    assert len(file.read_text().splitlines()) == LINES


def test_line_that_is_wider_than_the_terminal_takes_several_of_its_rows(terminal, pager):
    command, file = pager
    just, wider = Line("x" * COLUMNS), Line("x" * (COLUMNS + 1))
    terminal.draw({"PAGER": command}, *[just] * (LINES - 1))
    assert not file.exists()
    terminal.draw({"PAGER": command}, *[wider] * (LINES // 2))
    assert len(file.read_text().splitlines()) == LINES // 2


def test_output_is_not_paged_where_paging_is_off(terminal, pager):
    command, file = pager
    assert terminal.draw({"PAGER": command}, *numbered(LINES * 3), paged=False) == [
        line.text for line in numbered(LINES * 3)
    ]
    assert not file.exists()


@pytest.mark.parametrize("command", ["cat", "/no/such/pager -x", "LESS=x"])
def test_no_pager_loses_no_output(terminal, command):
    assert terminal.draw({"PAGER": command}, *numbered(LINES * 3)) == [line.text for line in numbered(LINES * 3)]


def test_pager_may_have_settings_before_its_name(terminal, pager):
    command, file = pager
    assert terminal.draw({"PAGER": f"A=1 B=2 {command}"}, *numbered(LINES)) == []
    assert file.exists()


@pytest.mark.parametrize(("present", "used"), [(["less", "more"], "less -FRX"), (["more"], "more ")])
def test_pager_is_less_and_else_more_where_none_is_named(terminal, tmp_path, monkeypatch, present, used):
    for name in present:
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >"{tmp_path}/used"\nwhile read line; do :; done\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert terminal.draw({"PATH": str(tmp_path)}, *numbered(LINES)) == []
    assert (tmp_path / "used").read_text() == f"{used}\n"


def test_pager_may_be_left_before_the_end(terminal):
    assert terminal.draw({"PAGER": "true"}, *numbered(100_000)) == []


def test_notice_is_wrapped_at_blanks_to_the_width_of_the_terminal(terminal):
    screen = StyledScreen(terminal, terminal, {})
    screen.notice(Notice(Severity.WARN, "one two three four five six seven eight nine ten", "Mend it."))
    assert terminal.shown() == ["WARN: one two three four five six seven", "eight nine ten", "  Mend it."]


def test_a_hint_that_is_wrapped_hangs_under_its_notice(terminal):
    screen = StyledScreen(terminal, terminal, {})
    screen.notice(Notice(Severity.WARN, "one two", "Mend it with the one command, or with the other one."))
    assert terminal.shown() == ["WARN: one two", "  Mend it with the one command, or with", "  the other one."]


def test_the_library_that_draws_is_asked_once_for_each_style_and_not_for_each_line(terminal, monkeypatch):
    asked = []
    drawn = Console.print
    monkeypatch.setattr(Console, "print", lambda *given, **how: asked.append(given) or drawn(*given, **how))
    rows = [[f"name {number}", number] for number in range(1000)]
    shown = terminal.draw(
        {"TERM": "xterm"}, Table((Column("name", "Name"), Column("count", "Count", right=True)), rows), paged=False
    )
    assert len(shown) == 1001
    assert terminal.getvalue().startswith("\x1b[1mName      Count\x1b[0m\nname 0        0\n")
    assert len(asked) == 2
