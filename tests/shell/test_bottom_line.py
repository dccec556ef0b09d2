"""The line under the prompt, and what is hinted at."""

import os
import sys
from types import SimpleNamespace

import pytest

from qmadmin.console.formats import Format
from qmadmin.shell.session import Modes
from qmadmin.shell.terminal import bottom_line


def session(path="/var/qm/QUE", space="QSPACE", queue="STRING", **more):
    """Return what the line is made of."""
    settings = {"modes": Modes(format=Format.TABLE, paginate=True), "can_page": True, "readonly": False} | more
    opened = SimpleNamespace(name=space) if space else None
    return SimpleNamespace(path=path, space=opened, queue=queue, **settings)


MODES = Modes(echo=True, verbose=True, yes=True, format=Format.JSON)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (session(space=None), " Device: /var/qm/QUE  Queue space: none"),
        (session(queue=None), " Device: /var/qm/QUE  Queue space: QSPACE  Queue: none"),
        (session(readonly=True), " Device: /var/qm/QUE (read-only)  Queue space: QSPACE  Queue: STRING"),
        (
            session(criteria="priority 1-5"),
            " Device: /var/qm/QUE  Queue space: QSPACE  Queue: STRING  Criteria: priority 1-5",
        ),
        (
            session(modes=MODES),
            (
                " Device: /var/qm/QUE  Queue space: QSPACE  Queue: STRING"
                "  Modes: echo, verbose, no paging, yes to all, json"
            ),
        ),
    ],
)
def test_wide_line_has_everything_with_its_label(made, line):
    assert bottom_line(made, 200) == line


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (session(space=None), " /var/qm/QUE  no queue space"),
        (session(queue=None), " /var/qm/QUE  QSPACE  no queue"),
        (session("/a/folder/that/is/too/long/for/it/QUE"), " QUE  QSPACE  STRING"),
        (session(modes=Modes(verbose=True)), " /var/qm/QUE  QSPACE  STRING  verbose, no paging, plain"),
    ],
)
def test_narrow_line_goes_without_labels_and_then_without_folders(made, line):
    assert bottom_line(made, min(len(line) + 1, 60)) == line


def test_longest_part_is_cut_first():
    made = session("QUE", queue="ORDERS." * 10, criteria="prio 1")
    assert bottom_line(made, 40) == " QUE  QSPACE  ORDERS.ORDERS.OR…  prio 1"


@pytest.mark.parametrize("width", [1, 2, 5, 10, 20, 40, 60, 80, 100])
def test_line_is_never_wider_than_the_window(width):
    made = session("/x" * 50, "S" * 15, "Q" * 127, modes=MODES, criteria="c" * 200, readonly=True)
    assert len(bottom_line(made, width)) <= width


def test_name_cannot_drive_the_terminal():
    assert "\x1b" not in bottom_line(session(queue="a\x1b[2J"), 80)


# ---- in a terminal ----


@pytest.fixture
def at_prompt(laid_out, terminal):
    """Start the program in a terminal and wait for its first prompt."""

    def start(**settings):
        screen = terminal(**settings)
        screen.at_prompt()
        return screen

    return start


def test_line_follows_what_is_opened_and_set(at_prompt, laid_out):
    screen = at_prompt(columns=200)
    assert screen.bottom == f"Device: {laid_out.device}  Queue space: none"
    screen.enter("qopen QSPACE")
    screen.enter("qset STRING")
    screen.enter("verbose")
    assert screen.bottom == f"Device: {laid_out.device}  Queue space: QSPACE  Queue: STRING  Modes: verbose"
    screen.enter("qclose")
    assert screen.bottom == f"Device: {laid_out.device}  Queue space: none  Modes: verbose"


def test_line_stands_under_answers_too(at_prompt):
    screen = at_prompt()
    screen.enter("qopen", "Queue space name: ")
    assert screen.bottom.endswith("no queue space") or screen.bottom.endswith("Queue space: none")


def test_line_is_gone_while_a_command_runs_and_leaves_nothing_behind(at_prompt):
    screen = at_prompt(lines=10)
    screen.send("!echo started; read x\r")
    screen.until(lambda: screen.shown.endswith("\nstarted"), "the shell command")
    assert screen.bottom is None
    screen.send("\r")
    screen.at_prompt()
    for _ in range(12):
        # The window scrolls, with the line at its lowest row.
        screen.send("qclose\r")
        screen.at_prompt()
    assert screen.bottom
    assert screen.shown.count("no queue space") == 0
    assert b"Device" not in screen.raw.split(b"started")[1].split(b"> ")[0]


def test_line_has_no_colour(at_prompt):
    for environ in ({}, {"NO_COLOR": "1"}):
        screen = at_prompt(environ=environ)
        row = screen.screen.buffer[screen.screen.cursor.y + 1]
        assert {(cell.fg, cell.bg, cell.reverse) for cell in row.values()} == {("default", "default", True)}


def test_line_follows_the_size_of_the_window(at_prompt, laid_out):
    screen = at_prompt(columns=60)
    screen.resize(200)
    screen.until(lambda: screen.bottom and screen.bottom.startswith("Device: "), "the wide line")
    screen.enter("qopen QSPACE")
    screen.resize(60)
    screen.until(lambda: screen.bottom and "QSPACE" in screen.bottom and len(screen.bottom) < 60, "the narrow line")
    screen.enter("qset STRING")
    assert screen.shown.count("QSPACE") == 2


# ---- hints ----


@pytest.mark.parametrize("key", ["\x1b[C", "\x1b[F", "\x05"])
def test_hint_from_the_history_is_taken_with_a_key(at_prompt, key):
    screen = at_prompt()
    screen.enter("qopen QSPACE")
    screen.send("qo")
    screen.until(lambda: screen.shown.endswith("> qopen QSPACE"), "the hint")
    assert screen.screen.cursor.x == len("> qo")
    screen.send(key)
    screen.until(lambda: screen.screen.cursor.x == len("> qopen QSPACE"), "the hint taken")
    screen.send("\r")
    screen.until(lambda: screen.shown.count("Queue space 'QSPACE' opened") == 2, "the command again")


def test_hint_that_is_not_taken_is_not_obeyed(at_prompt):
    screen = at_prompt()
    screen.enter("verbose on")
    screen.send("verbose")
    screen.until(lambda: screen.shown.endswith("> verbose on"), "the hint")
    screen.send("\r")
    screen.see("Verbose mode is now off")
    assert "\n> verbose\n" in screen.shown


@pytest.mark.parametrize(("environ", "style"), [({}, ("808080", False)), ({"NO_COLOR": "1"}, ("default", True))])
def test_hint_is_grey_and_without_colours_underlined(at_prompt, environ, style):
    screen = at_prompt(environ={"COLORTERM": "truecolor", **environ})
    screen.enter("verbose on")
    screen.send("verb")
    screen.until(lambda: screen.shown.endswith("> verbose on"), "the hint")
    cell = screen.screen.buffer[screen.screen.cursor.y][screen.screen.cursor.x]
    assert (cell.fg, cell.underscore) == style


def test_answers_are_not_hinted_at(at_prompt):
    screen = at_prompt()
    screen.enter("QSPACE")
    screen.enter("qopen", "Queue space name: ")
    screen.send("QS")
    screen.until(lambda: screen.screen.cursor.x == len("Queue space name: QS"), "what was typed")
    assert screen.shown.endswith("Queue space name: QS")


# ---- completion ----


def test_rest_of_the_word_behind_the_cursor_is_not_written_twice(at_prompt, laid_out):
    laid_out.run("qopen QSPACE\nqcreate 'two words' fifo none 0 0 100% 0% ''\n")
    screen = at_prompt()
    screen.enter("qopen QSPACE")
    screen.send('qset "two words"' + "\x1b[D" * 4 + "\t\r")
    screen.see("Current queue is 'two words'")


def test_files_are_completed_for_a_shell_command(at_prompt, laid_out):
    (laid_out.directory / "a file").write_text("its content\n")
    screen = at_prompt()
    screen.send("!cat a\t\r")
    screen.see("its content")


def test_sessions_at_one_time_share_a_history(at_prompt, laid_out):
    one, other = at_prompt(), at_prompt()
    one.enter("verbose on")
    other.enter("qopen QSPACE")
    one.enter("echo on")
    # Each goes back in its own lines, and the next session in those of both.
    other.send("\x1b[A")
    other.until(lambda: other.shown.endswith("\n> qopen QSPACE"), "its own line")
    third = at_prompt()
    for line in ("echo on", "qopen QSPACE", "verbose on"):
        third.send("\x1b[A")
        third.until(lambda line=line: third.shown.endswith(f"> {line}"), line)


STUCK = '''\
"""qmadmin with a command whose values come when somebody writes into a pipe, if there is one."""
import os
import sys

from qmadmin import program
from qmadmin.shell import session_commands
from qmadmin.shell.declare import Positional
from qmadmin.shell.kinds import Candidate, Words
from qmadmin.console.results import Line


class Slow(Words):
    def candidates(self, session, begun):
        return [Candidate(open(sys.argv[2]).read() if os.path.exists(sys.argv[2]) else "it")]


@session_commands.SESSION.command("take", Positional("value", Slow(), "It."))
def take(session, value):
    """Take a value."""
    return Line(f"taken: {value}")


sys.exit(program.main(sys.argv[1:2]))
'''


def test_device_that_does_not_answer_does_not_keep_anybody_from_typing(laid_out, at_prompt):
    script, pipe = laid_out.directory / "stuck.py", laid_out.directory / "pipe"
    script.write_text(STUCK)
    os.mkfifo(pipe)
    screen = at_prompt(program=[sys.executable, str(script), laid_out.device, str(pipe)])
    screen.send("take \t")
    screen.until(lambda: "The device does not answer" in (screen.bottom or ""), "the remark")
    screen.send("\t\x15verbose\r")
    screen.see("Verbose mode is now on")
    screen.at_prompt()
    with pipe.open("w") as opened:
        pipe.unlink()
        opened.write("it")
    screen.send("\t")
    screen.until(lambda: screen.bottom and "does not answer" not in screen.bottom, "the device again")
    screen.send("\x15take \t\r")
    screen.see("taken: it")
    screen.send("quit\r")
    assert screen.ends() == 0
