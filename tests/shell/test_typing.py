"""What a person types at a terminal, or pastes into it."""

import re
from pathlib import Path

import pytest

from qmadmin.shell.lines import Keyboard

DATA = Path(__file__).parent / "data"
PASTE = "\x1b[200~{}\x1b[201~"


@pytest.fixture
def at_prompt(laid_out, terminal):
    """Start the program in a terminal and wait for its first prompt."""

    def start(**settings):
        screen = terminal(**settings)
        screen.at_prompt()
        return screen

    return start


def without_hints(text):
    return [line for line in text.split("\n") if not line.startswith("  ")]


def test_script_that_is_typed_shows_what_it_shows_when_it_is_piped(shell, terminal):
    script = (DATA / "crque.qm").read_text().replace("@DEVICE@", shell.device)
    screen = terminal(columns=200, lines=80)
    screen.at_prompt()
    # All at once, as an impatient person does.
    screen.send(script.replace("\n", "\r"))
    screen.until(lambda: screen.shown.endswith("Queue 'RPLYQ' created\n>"), "the end of the script")
    expected = re.sub(r" \(stdin, line \d+\)", "", (DATA / "crque.out").read_text()).split("\n")
    assert without_hints(shell.normal(screen.shown))[4:] == ["> echo", *expected[:-2], ">"]


def test_lines_that_are_pasted_are_taken_one_by_one(at_prompt):
    screen = at_prompt(lines=40)
    screen.send(PASTE.format("qopen QSPACE\nqcreate\r\nNEW\r\r\r\r\r\r\r\rqset\tNEW"))
    screen.see("Queue 'NEW' created\n> qset")
    assert "Current queue" not in screen.shown
    screen.send("\r")
    screen.see("Current queue is 'NEW'")
    screen.at_prompt()
    screen.send("\x1b[A\x1b[A")
    screen.until(lambda: screen.shown.endswith("\n> qcreate"), "the line before in the history")


def test_empty_line_repeats_the_line_with_its_arguments_and_no_comment(laid_out):
    ran = laid_out.type("qopen QSPACE\n# a remark\n\nqopne\n  \t\n")
    assert ran.out.count("Queue space 'QSPACE' opened\n") == 3
    assert ran.err == "ERROR: No such command: qopne\n  Did you mean qopen? help lists the commands.\n"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("qput STRING hello", "qput"),
        ("qget STRING", "qget"),
        ("qdestroy -f -y STRING", "qdestroy"),
        ("qstop STRING", "qstop"),
        ("!true", "!"),
    ],
)
def test_empty_line_does_not_repeat_what_takes_puts_or_destroys(laid_out, line, name):
    laid_out.run("qopen QSPACE\nqput STRING one\nqput STRING two\n")
    ran = laid_out.type(f"qopen QSPACE\n{line}\n\n\n")
    told = f"INFO: {name} is not repeated: an empty line repeats only a command that shows something\n"
    assert ran.err == told * 2


def test_words_of_other_programs_are_answered_with_those_of_this_one(laid_out):
    ran = laid_out.type("ls\nclear\nuse QSPACE\n:q\nexit()\n")
    assert [line for line in ran.err.split("\n") if line.startswith("  ")] == [
        "  lidl lists the device list, qspacelist queue spaces, qinfo queues, qlist messages. help lists the commands.",
        "  Ctrl-L clears the screen, !clear too. help lists the commands.",
        "  qopen opens a queue space, qset sets the current queue. help lists the commands.",
        "  quit does. help lists the commands.",
        "  quit does. help lists the commands.",
    ]


@pytest.mark.parametrize("line", ["\\q", "exit", "q", "quit"])
def test_program_is_left_by_several_words(laid_out, line):
    assert "format" not in laid_out.run(f"{line}\nformat\n").out.lower()


class Keys(Keyboard):
    """A person whose terminal cannot be drawn on."""

    def __init__(self, stream, _name, session):
        super().__init__(stream, session)


def test_keyboard_is_prompted_and_told_of_defaults_beside_the_results(laid_out):
    ran = laid_out.run("qopen QSPACE\r\nqcreate NEW\n\n", dialogue=Keys)
    assert ran.out == "Queue space 'QSPACE' opened\n"
    assert ran.err == (
        "> > Queue order (priority, time, fifo, lifo): Default queue order is fifo\n"
        "Out-of-ordering enqueueing (top, msgid, [default=none]): \n"
        "ERROR: Input ended at the prompt 'Out-of-ordering enqueueing (top, msgid, [default=none]):'\n"
        "  Give the value on the line of the command, or the answer on a line of its own.\n"
        "> \n"
    )
    assert ran.status == 1


def test_what_a_command_needs_is_told_with_a_hint(laid_out):
    ran = laid_out.type("qinfo\nqopen QSPACE\nqlist\nqset NOPE\nqdestroy -x\n")
    assert ran.err == (
        "ERROR: No queue space is open\n  Open one with qopen. Or start qmadmin with -s SPACE.\n"
        "ERROR: No current queue is set\n  Set it with qset.\n"
        "ERROR: QMEBADQUEUE: there is no queue 'NOPE' in queue space 'QSPACE'\n"
        "  List the queues with qinfo, or create it with qcreate.\n"
        "ERROR: Invalid option -x of qdestroy\n  Usage: qdestroy [{-p | -f}] [-y] [-n] [queue_name]\n"
    )


def test_hint_of_a_refused_creation_is_told_too(laid_out):
    ran = laid_out.type("qopen NOPE\n")
    assert ran.err.endswith("  List the queue spaces with qspacelist, or create it with qspacecreate.\n")


def test_entry_that_does_not_exist_ends_the_command_that_would_ask_for_its_name(laid_out):
    ran = laid_out.type("chdl 9\nchdl\n9\nverbose\n")
    error = f"ERROR: QMEINVAL: the device list of '{laid_out.device}' has no entry 9\n  List them with lidl.\n"
    assert ran.err == error * 2
    assert ran.out.endswith("> chdl\nDevice list index: 9\n> verbose\nVerbose mode is now on\n")


def test_answer_with_a_quote_that_is_not_closed_is_asked_again(laid_out):
    ran = laid_out.type("qopen\n'QSPACE\n\"Q\"SPACE\n'QSPACE'\n")
    assert ran.err == (
        "ERROR: The quote ' is not closed: 'QSPACE\n"
        "  Write ' at the end of the argument, or leave it out. Ctrl-C leaves qopen.\n"
        'ERROR: Must have white space following quoted string: "Q"SPACE\n'
        '  Separate arguments by blanks; a quote inside is \\". Ctrl-C leaves qopen.\n'
    )
    assert ran.out.endswith("Queue space name: 'QSPACE'\nQueue space 'QSPACE' opened\n")


def test_confirmation_that_is_neither_yes_nor_no_is_asked_again(laid_out):
    ran = laid_out.type("qopen QSPACE\nqdestroy STRING\nperhaps\n'YES'\n")
    assert ran.err == "ERROR: The answer must be y or n, got 'perhaps'\n  Ctrl-C leaves qdestroy.\n"
    assert ran.out.count("Destroy queue 'STRING'? (y, n [default=n]): ") == 2
    assert ran.out.endswith("Queue 'STRING' destroyed\n")


def test_end_of_input_at_a_confirmation_destroys_nothing(laid_out):
    ran = laid_out.type("qopen QSPACE\nqdestroy STRING\n")
    assert ran.err.startswith("ERROR: Input ended at the prompt 'Destroy queue 'STRING'? (y, n [default=n]):'\n")
    assert laid_out.run("qopen QSPACE\nqset STRING\n").status == 0


def test_dumb_terminal_goes_on_below_an_interrupt_and_does_not_page(laid_out, terminal):
    screen = terminal(environ={"TERM": "dumb"}, columns=60, lines=40)
    screen.at_prompt()
    screen.send("!echo started; exec cat\r")
    screen.until(lambda: screen.shown.endswith("\nstarted"), "the shell command")
    screen.send("\x03")
    screen.see("\n^C\nERROR: Shell command was ended by signal 2:")
    screen.at_prompt()
    screen.enter("paginate on")
    screen.see("WARN: paginate mode can only be on", "Paginate mode is now off")
    screen.enter("qopen", "Queue space name: ")
    screen.send("\x04")
    screen.see("Queue space name:\nERROR: Input ended at the prompt 'Queue space name:'\n")
    screen.at_prompt()
    screen.enter("qspacelist", "Queue space name: ")
    screen.send("\r")
    screen.see("\nQSPACE\n  IPC key: 54320  Pages: 200  Queues: 5  Trans: 10\n  Procs: 10  Messages: 100")
