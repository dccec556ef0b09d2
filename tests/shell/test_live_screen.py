"""qtop in a real terminal."""

import os
import signal

import pytest

from qmadmin import QueueDefinition, open_device


@pytest.fixture
def watched(laid_out, terminal):
    """Start the program in a terminal with the queue space open."""

    def start(**settings):
        screen = terminal(**settings)
        screen.at_prompt()
        screen.enter("qopen QSPACE")
        return screen

    return start


@pytest.fixture
def space(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as opened:
        yield opened


def line_of(screen, queue):
    return next((line.split() for line in screen.shown.split("\n") if line.startswith(f"{queue} ")), [])


def test_view_shows_what_changes_and_is_gone_when_it_is_left(watched, space):
    screen = watched(columns=80)
    before = screen.shown
    screen.send("qtop -d 0.1\r")
    screen.see(" QSPACE on ", "*Depth", "every 0.1s")
    screen.until(lambda: line_of(screen, "STRING")[1:2] == ["0"], "the empty queue")
    for _ in range(3):
        space.enqueue("STRING", b"x")
    screen.until(lambda: line_of(screen, "STRING")[1:2] == ["3"], "three messages")
    screen.send("q")
    screen.at_prompt()
    assert screen.shown == f"{before} qtop -d 0.1\n>"


def test_interrupt_leaves_the_view_and_the_session_goes_on(watched):
    screen = watched()
    screen.send("qtop\r")
    screen.see("*Depth")
    screen.send("\x03")
    screen.at_prompt()
    screen.enter("qset STRING")
    screen.see("Current queue is 'STRING'")


def test_interrupt_signal_leaves_the_view_too(watched):
    screen = watched()
    screen.send("qtop\r")
    screen.see("*Depth")
    os.kill(screen.child.pid, signal.SIGINT)
    screen.at_prompt()


def test_rounds_end_the_view(watched):
    screen = watched()
    screen.send("qtop -n 2 -d 0.1\r")
    screen.see("*Depth")
    screen.at_prompt()
    screen.enter("verbose")


def test_view_follows_the_size_of_the_window(watched):
    screen = watched(columns=60)
    screen.send("qtop -d 3600\r")
    screen.see("*Depth", "STRING")
    assert "Lost" not in screen.shown
    screen.resize(200)
    screen.see("Lost", "Course")
    assert len(screen.bottom) > 150
    screen.resize(60, 12)
    screen.until(lambda: "Lost" not in screen.shown and (screen.bottom or "").endswith("of 2"), "the narrow view")
    screen.send("q")
    screen.at_prompt()


def test_keys_sort_and_scroll(watched, laid_out, space):
    laid_out.run("qspacecreate BIG 54321 200 50 10 10 100 '' n 16\n")
    with open_device(laid_out.device) as device, device.open_space("BIG") as big:
        for number in range(30):
            big.create_queue(QueueDefinition(name=f"Q{number:02}"))
        big.enqueue("Q17", b"x")
    screen = watched(lines=16)
    screen.enter("qopen BIG")
    screen.send("qtop -d 3600\r")
    screen.see("\nQ17", "*Depth")

    def first():
        lines = screen.shown.split("\n")
        return next((lines[at + 1].split()[0] for at, line in enumerate(lines) if "Depth" in line), "")

    assert first() == "Q17"
    screen.send("sssss")
    screen.until(lambda: first() == "Q00" and "sort (name)" in screen.bottom, "the order of the names")
    screen.send("\x1b[B\x1b[B\x1b[B\x1b[A")
    screen.until(lambda: first() == "Q02", "the third queue")
    screen.send("\x1b[F")
    screen.until(lambda: "of 30" in screen.bottom and "-30 of" in screen.bottom, "the last queue")
    screen.send("\x1b[H")
    screen.until(lambda: first() == "Q00", "the first queue")
    screen.send("r")
    screen.until(lambda: first() == "Q29", "the other way round")
    screen.send("q")
    screen.at_prompt()


def test_refusal_of_the_device_ends_the_view_and_is_told(watched, laid_out):
    screen = watched(columns=120)
    screen.send("qtop -d 0.1\r")
    screen.see("*Depth")
    laid_out.run("qspacedestroy -y -f QSPACE\n")
    screen.see("ERROR: QMEBADRMID: there is no queue space 'QSPACE' on the device")
    screen.at_prompt()


def test_view_has_no_colours(watched):
    screen = watched()
    screen.send("qtop\r")
    screen.see("*Depth", "STRING")
    colours = {(cell.fg, cell.bg) for row in screen.screen.buffer.values() for cell in row.values()}
    assert colours == {("default", "default")}
    screen.send("q")
    screen.at_prompt()


def test_documents_are_written_at_a_terminal_too(watched):
    screen = watched(columns=200)
    screen.enter("format json")
    screen.enter("qtop -n 2 -d 0.1 STRING")
    assert screen.shown.count('{"command": "qtop"') == 2


def test_termination_leaves_the_terminal_as_it_was(watched):
    screen = watched()
    screen.send("qtop\r")
    screen.see("*Depth")
    os.kill(screen.child.pid, signal.SIGTERM)
    assert screen.ends() == 143
    assert "*Depth" not in screen.shown
    assert not screen.screen.cursor.hidden
