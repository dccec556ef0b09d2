"""Watching a command: what can be watched, what comes of it in a script, and the view at a terminal."""

import contextlib
import io
import json
import re
import signal

import pytest

from qmadmin import open_device
from qmadmin.console.render import PlainScreen
from qmadmin.console.results import Column, Line, Notice, Severity, Table
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.live_view import BAR, WatchedView
from qmadmin.shell.session import Session
from qmadmin.shell.watching import Watched

HEAD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+0000  ")


def watched(laid_out, *lines):
    ran = laid_out.run("\n".join(["qopen QSPACE", *lines]))
    return ran.out.removeprefix("Queue space 'QSPACE' opened\n"), ran.err, ran.status


# ---- in scripts ----


def test_each_look_comes_behind_a_line_with_its_time(laid_out):
    out, err, status = watched(laid_out, "watch -n 0.1 -k 2 livtoc")
    assert (err, status) == ("", 0)
    lines = out.splitlines()
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert HEAD.fullmatch(first[0].removesuffix("livtoc"))
    assert HEAD.fullmatch(second[0].removesuffix("livtoc"))
    assert first[1:] == second[1:]
    assert "QSPACE.0" in out


@pytest.mark.parametrize("line", ["qinfo STRING", "'qinfo STRING'", '"qinfo STRING"', "qinfo  'STRING'", "-- qinfo"])
def test_command_stands_behind_the_options_as_it_is_or_in_quotes(laid_out, line):
    out, err, status = watched(laid_out, f"watch -k 1 {line}")
    assert (err, status) == ("", 0)
    assert "\nSTRING" in out


def test_command_can_be_the_answer_to_a_prompt(laid_out):
    out, err, status = watched(laid_out, "watch -k 1", "qinfo STRING", "qset errq")
    assert (err, status) == ("", 0)
    assert HEAD.sub("", out).startswith("qinfo STRING\nQueue ")
    assert out.endswith("Current queue is 'errq'\n")


def test_programs_get_a_document_for_each_look(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", b"body")
    out, _, status = watched(laid_out, "format json", "watch -n 0.1 -k 2 qpeek STRING")
    one, other = map(json.loads, out.splitlines()[1:])
    assert one["rows"] == other["rows"]
    assert (one["command"], one["rows"][0]["body"], one["ok"], status) == ("watch", "body", True, 0)


def test_notices_of_the_command_come_with_each_look(laid_out):
    _, err, status = watched(laid_out, "watch -n 0.1 -k 2 qlist STRING")
    assert err == "INFO: Queue list - no messages matched on queue STRING\n" * 2
    assert status == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("watch qput STRING x", "qput cannot be watched: only a command that just shows something can"),
        ("watch qdeletemsg -y", "qdeletemsg cannot be watched: only a command that just shows something can"),
        ("watch 'qpurge -y STRING'", "qpurge cannot be watched: only a command that just shows something can"),
        ("watch !date", "! cannot be watched: only a command that just shows something can"),
        ("watch qopen QSPACE", "qopen cannot be watched: only a command that just shows something can"),
        ("watch qset STRING", "qset cannot be watched: only a command that just shows something can"),
        ("watch qscan -p 5", "qscan cannot be watched: only a command that just shows something can"),
        ("watch format json", "format cannot be watched: only a command that just shows something can"),
        ("watch source x", "source cannot be watched: only a command that just shows something can"),
        ("watch qtop", "qtop cannot be watched: it updates its output by itself"),
        ("watch watch qinfo", "watch cannot be watched: it updates its output by itself"),
        ("watch nosuch", "No such command: nosuch"),
        ("watch qinfo a b", "qinfo takes at most 1 argument, got 2"),
        ("watch qpeek", "qpeek is watched with all of its arguments on the line"),
        ("watch qlist", "No current queue is set"),
        ("watch 'qinfo > out'", "watch shows what the command itself shows"),
        ("watch -n x qinfo", "The interval must be a number of seconds: 'x'"),
        ("watch -n 0 qinfo", "The interval must be 0.1 to 3600 seconds, got 0"),
        ("watch -k 0 qinfo", "The number of updates must be 1 to 2147483647, got 0"),
        ("watch 'qinfo", "The quote ' is not closed: 'qinfo"),
        ("watch qinfo NOPE", "QMEBADQUEUE: there is no queue 'NOPE' in queue space 'QSPACE'"),
    ],
)
def test_what_cannot_be_watched_is_refused_in_a_sentence(laid_out, line, said):
    out, err, status = watched(laid_out, line, "qset errq")
    assert err == f"ERROR: {said} (crque, line 2)\n"
    assert (out, status) == ("Current queue is 'errq'\n", 1)


def test_indexes_of_transactions_are_those_that_were_shown(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", b"body")
        with space.transaction():
            space.dequeue("STRING")
            _, err, _ = watched(laid_out, "watch -k 1 qprinttrans", "qaborttrans -n 0", "qaborttrans -n 1")
    assert err.count("ERROR: ") == 1, err


def test_look_that_is_still_under_way_takes_no_part_in_what_follows(laid_out):
    session = Session(laid_out.device, Catalogue(), PlainScreen(io.StringIO(), io.StringIO()), laid_out.environ)
    with contextlib.closing(session):
        looking = Watched(session, "lidl")
        before = session.draw, session.output
        rows = looking.run()
        assert isinstance(rows[0], Table)
        assert (session.draw, session.output) == before


def test_interrupt_ends_a_script_that_watches(laid_out, terminal):
    screen = terminal(arguments=["-s", "QSPACE", "-c", "watch -n 3600 qinfo"])
    screen.see("qinfo", "STRING")
    screen.child.kill(signal.SIGINT)
    assert screen.ends() == 130


def test_looks_go_into_a_file(laid_out):
    file = laid_out.directory / "out"
    assert watched(laid_out, f"watch -n 0.1 -k 3 qinfo STRING > {file}") == ("", "", 0)
    assert file.read_text().count("\nSTRING ") == 3


# ---- the view ----


def drawn(view, width, height):
    return ["".join(text for text, _ in spans) for spans in view.lines(width, height)]


@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("height", [3, 10, 24])
def test_view_fits_the_window(width, height):
    view = WatchedView("qlist -b " + "Q" * 100, 2.0)
    assert len(drawn(view, width, height)) == height
    rows = [[f"{number:032}", "x" * 200] for number in range(50)]
    view.show(
        [
            Table((Column("msgid", "Message id"), Column("body", "Body", cut=True)), rows),
            Notice(Severity.INFO, "word " * 50),
        ]
    )
    shown = view.lines(width, height)
    assert len(shown) == height
    assert [style for _, style in (shown[0][0], shown[-1][0])] == [BAR, BAR]
    assert all(len("".join(text for text, _ in spans)) == width for spans in (shown[0], shown[-1]))


def test_view_scrolls_as_far_as_there_is_something():
    view = WatchedView("qlist", 2.0)
    view.show([Line(f"line {number}") for number in range(10)])
    assert drawn(view, 60, 6)[1:-1] == [f"line {number}" for number in range(4)]
    view.scroll(1)
    assert drawn(view, 60, 6)[1] == "line 1"
    view.scroll(100)
    assert drawn(view, 60, 6)[1:-1] == [f"line {number}" for number in range(6, 10)]
    assert "7-10 of 10" in drawn(view, 60, 6)[-1]
    view.show([Line("line")])
    assert drawn(view, 60, 6)[1:-1] == ["line", "", "", ""]
    view.show([])
    assert drawn(view, 60, 6)[1] == "Nothing is shown."


# ---- at a terminal ----


@pytest.fixture
def screen(laid_out, terminal):
    made = terminal(arguments=["-s", "QSPACE"], columns=80)
    made.at_prompt()
    return made


@pytest.fixture
def space(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as opened:
        yield opened


def test_view_is_renewed_and_gone_when_it_is_left(screen, space):
    before = screen.shown
    screen.send("watch -n 0.1 qlist -b STRING\r")
    screen.see(" qlist -b STRING ", "every 0.1s", "INFO: Queue list - no messages matched on queue STRING")
    space.enqueue("STRING", b"the body")
    screen.see("the body")
    screen.send("q")
    screen.at_prompt()
    assert screen.shown == f"{before} watch -n 0.1 qlist -b STRING\n>"


@pytest.mark.parametrize("command", ["qpeek STRING", "qcheck", "help qinfo", "qinfo", "qstat -s", "lidl"])
def test_interrupt_leaves_the_view_of_any_command(screen, space, command):
    space.enqueue("STRING", b"the body")
    screen.send(f"watch {command}\r")
    screen.until(lambda: (screen.bottom or "").startswith("q leave") and "0-0" not in screen.bottom, "a look")
    assert "ERROR" not in screen.shown
    screen.send("\x03")
    screen.at_prompt()
    screen.enter("qset errq")
    screen.see("Current queue is 'errq'")


def test_rounds_end_the_view_and_a_refusal_is_told_behind_it(screen, laid_out):
    screen.enter("watch -n 0.1 -k 2 qinfo")
    screen.send("watch -n 0.1 qinfo STRING\r")
    screen.see("every 0.1s", "STRING")
    laid_out.run("qspacedestroy -y -f QSPACE\n")
    screen.see("ERROR: QMEBADRMID: there is no queue space 'QSPACE'")
    screen.at_prompt()


def test_view_follows_the_size_of_the_window(screen, space):
    space.enqueue("STRING", b"x" * 150)
    screen.send("watch -n 3600 qlist -b STRING\r")
    screen.see("xx\N{HORIZONTAL ELLIPSIS}")
    screen.resize(250)
    screen.see("x" * 150)
    screen.resize(60, 12)
    screen.until(lambda: "x" * 30 not in screen.shown and "every 3600s" in screen.shown, "the narrow view")
    screen.send("q")
    screen.at_prompt()


def test_commands_and_their_arguments_are_offered(screen):
    screen.send("watch -n 5 qprintt\t")
    screen.see("> watch -n 5 qprinttrans")
    screen.send("\x15watch qlist -b STR\t")
    screen.see("> watch qlist -b STRING")
