"""The program in a real terminal."""

import os
import signal
import termios

import pytest

from qmadmin import QueueDefinition, open_device
from qmadmin.version import __version__


@pytest.fixture
def at_prompt(laid_out, terminal):
    """Start the program in a terminal and wait for its first prompt."""

    def start(**settings):
        screen = terminal(**settings)
        screen.at_prompt()
        return screen

    return start


def test_banner_tells_version_and_device(at_prompt, laid_out):
    screen = at_prompt(columns=120)
    assert (
        screen.shown == f"qmadmin {__version__}\nQMCONFIG={laid_out.device}\nhelp lists the commands, quit leaves the"
        " program.\n>"
    )


def test_session_of_the_guide(shell, terminal):
    screen = terminal(lines=50)
    screen.at_prompt()
    screen.enter("crdl QUE 0 2000")
    screen.send("qspacecreate\r")
    for prompt, answer in (
        ("Queue space name: ", "myqueuespace"),
        ("IPC Key for queue space: ", "230458"),
        ("Size of queue space in disk pages: ", "200"),
        ("Number of queues in queue space: ", "3"),
        ("Number of concurrent transactions in queue space: ", "3"),
        ("Number of concurrent processes in queue space: ", "3"),
        ("Number of messages in queue space: ", "12"),
        ("Error queue name: ", "errq"),
        ("Initialize extents (y, n [default=n]): ", ""),
        ("Blocking factor [default=16]: ", "16"),
    ):
        screen.at_prompt(prompt)
        screen.send(f"{answer}\r")
    screen.at_prompt()
    screen.enter("qopen myqueuespace")
    screen.send("qcreate\r")
    for prompt, answer in (
        ("Queue name: ", "service1"),
        ("Queue order (priority, time, fifo, lifo): ", "fifo"),
        ("Out-of-ordering enqueueing (top, msgid, [default=none]): ", "none"),
        ("Retries [default=0]: ", "2"),
        ("Retry delay in seconds [default=0]: ", "30"),
        ("% for percent used, m for messages [default=100%]): ", "80m"),
        ("Reset (low) limit for queue capacity warning [default=0m]: ", ""),
        ("Queue capacity command: ", ""),
    ):
        screen.at_prompt(prompt)
        screen.send(f"{answer}\r")
    screen.see("Queue 'service1' created")
    screen.at_prompt()
    assert screen.shown.endswith(
        """\
Retry delay in seconds [default=0]: 30
High limit for queue capacity warning (b for bytes used, B for blocks used,
% for percent used, m for messages [default=100%]): 80m
Reset (low) limit for queue capacity warning [default=0m]:
Default low limit for queue capacity warning is 0m
Queue capacity command:
No default queue capacity command
Queue 'service1' created
>"""
    )


def test_required_answer_is_warned_about_and_asked_again(at_prompt):
    screen = at_prompt()
    screen.enter("qopen", "Queue space name: ")
    screen.send("\r")
    screen.see("WARN: Must specify queue space name\n  Ctrl-C leaves qopen.\nQueue space name:")
    screen.enter("QSPACE")
    screen.see("Queue space 'QSPACE' opened")


def test_refused_answer_is_asked_again_with_a_hint(at_prompt):
    screen = at_prompt(columns=100)
    screen.enter("qopen QSPACE")
    screen.enter("qcreate A", "Queue order (priority, time, fifo, lifo): ")
    screen.enter("sideways", "Queue order (priority, time, fifo, lifo): ")
    screen.see(
        "ERROR: the queue order 'sideways' has the unknown criterion 'sideways'\n"
        "  The criteria are priority, time, expiration, fifo and lifo. Ctrl-C leaves qcreate.\n"
    )
    screen.send("\x03")
    screen.at_prompt()


def test_confirmation_is_asked_again_until_it_is_yes_or_no(at_prompt):
    screen = at_prompt()
    question = "Destroy queue 'STRING'? (y, n [default=n]): "
    screen.enter("qopen QSPACE")
    screen.enter("qdestroy STRING", question)
    screen.enter("perhaps", question)
    screen.see("ERROR: The answer must be y or n, got 'perhaps'")
    screen.enter("y")
    screen.see("Queue 'STRING' destroyed")


def test_tab_completes_commands_options_and_live_values(at_prompt):
    screen = at_prompt()
    screen.send("qop\t")
    screen.see("> qopen")
    screen.send(" Q\t")
    screen.see("> qopen QSPACE")
    screen.send("\r")
    screen.at_prompt()
    screen.send("qset S\t\r")
    screen.see("Current queue is 'STRING'")
    screen.at_prompt()
    screen.send("qsp\t")
    screen.see("qspacecreate", "qspacelist", "qspacedestroy", "Create a queue space")


def test_answers_are_completed(at_prompt):
    screen = at_prompt()
    screen.enter("qopen", "Queue space name: ")
    screen.send("QS\t\r")
    screen.see("Queue space 'QSPACE' opened")


def test_empty_line_repeats_the_previous_command(at_prompt):
    screen = at_prompt()
    screen.enter("format")
    screen.send("\r")
    screen.until(lambda: screen.shown.count("Format is table") == 2, "the second run")
    screen.at_prompt()
    screen.send("\r")
    screen.until(lambda: screen.shown.count("Format is table") == 3, "the third run")


def test_argument_that_is_wrong_on_the_line_leads_back_to_the_prompt(at_prompt):
    screen = at_prompt(columns=100)
    screen.enter("qopen QSPACE")
    screen.enter("qcreate A sideways")
    screen.see("the queue order 'sideways' has the unknown criterion 'sideways'")


def test_empty_line_repeats_nothing_at_the_start_and_after_an_interrupt(at_prompt):
    screen = at_prompt()
    screen.send("\r")
    screen.until(lambda: screen.shown.count(">") == 2, "a second prompt")
    screen.enter("verbose")
    screen.send("\x03")
    screen.send("\r")
    screen.enter("verbose on")
    assert screen.shown.count("Verbose mode is now") == 2


def test_history_is_kept_from_session_to_session(at_prompt, laid_out):
    screen = at_prompt()
    screen.enter("qopen QSPACE")
    screen.enter("verbose")
    screen.send("quit\r")
    assert screen.ends() == 0
    file = laid_out.directory / ".local/state/qmadmin/history"
    assert file.stat().st_mode & 0o777 == 0o600
    screen = at_prompt(environ={"XDG_STATE_HOME": "relative/is/ignored"})
    screen.send("\x1b[A\x1b[A\x1b[A")
    screen.see("> qopen QSPACE")


def test_answers_are_not_in_the_history(at_prompt):
    screen = at_prompt()
    screen.enter("qopen", "Queue space name: ")
    screen.enter("QSPACE")
    screen.send("\x1b[A")
    screen.until(lambda: screen.shown.endswith("> qopen"), "the command and not its answer")


def test_history_that_cannot_be_kept_is_no_trouble(at_prompt):
    screen = at_prompt(environ={"XDG_STATE_HOME": "/proc/none"})
    screen.enter("verbose")
    screen.send("\x1b[A")
    screen.until(lambda: screen.shown.endswith("> verbose"), "the line before")


def test_interrupt_at_the_prompt_drops_the_line(at_prompt):
    screen = at_prompt()
    screen.send("qspacedestroy -f -y QSPACE")
    screen.see("-y QSPACE")
    screen.send("\x03")
    screen.at_prompt()
    screen.enter("qopen QSPACE")
    screen.see("Queue space 'QSPACE' opened")


def test_interrupt_at_the_prompt_of_an_argument_drops_the_command(at_prompt, laid_out):
    screen = at_prompt()
    screen.enter("qopen QSPACE")
    screen.enter("qcreate NEW", "Queue order (priority, time, fifo, lifo): ")
    screen.enter("fifo", "Out-of-ordering enqueueing (top, msgid, [default=none]): ")
    screen.send("\x03")
    screen.at_prompt()
    screen.send("quit\r")
    assert screen.ends() == 0
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        assert "NEW" not in [queue.name for queue in space.queues()]


def test_interrupt_stops_output_forgets_what_was_typed_ahead_and_the_session_goes_on(at_prompt, laid_out):
    laid_out.run("qspacecreate BIG 54321 600 300 10 10 100 '' n 16\nqopen BIG\n")
    with open_device(laid_out.device) as device, device.open_space("BIG") as space:
        for number in range(300):
            space.create_queue(QueueDefinition(name=f"Q{number:03}"))
    screen = at_prompt()
    screen.enter("paginate off")
    screen.enter("verbose")
    screen.enter("qopen BIG")
    screen.send("qinfo\rqset Q001\r")
    # As it came: what is read at once may be many screens, and is 80 queues at most.
    screen.until(lambda: b"Queue 'Q00" in screen.raw, "the first queues")
    # Nothing is read from the terminal here, so that the program stands in the middle of its output.
    screen.send("\x03")
    screen.send("\r")
    screen.enter("qset Q299")
    screen.see("Current queue is 'Q299'")
    assert b"Queue 'Q299'" not in screen.raw
    assert b"Current queue is 'Q001'" not in screen.raw


def test_interrupt_of_a_shell_command_reaches_only_it(at_prompt):
    screen = at_prompt()
    screen.send("!echo started; exec cat\r")
    screen.until(lambda: screen.shown.endswith("\nstarted"), "the shell command")
    screen.send("\x03")
    screen.see("ERROR: Shell command was ended by signal 2: echo started; exec cat")
    screen.at_prompt()
    screen.enter("verbose")
    screen.see("Verbose mode is now on")


def test_shell_command_reads_the_keyboard(at_prompt):
    screen = at_prompt()
    screen.send("!echo ready; read x; echo got $x\r")
    screen.until(lambda: screen.shown.endswith("\nready"), "the shell command")
    screen.send("this\r")
    screen.see("got this")
    screen.at_prompt()


def test_end_of_input_at_the_prompt_ends_the_program(at_prompt):
    screen = at_prompt()
    screen.send("\x04")
    assert screen.ends() == 0


def test_end_of_input_at_the_prompt_of_an_argument_drops_the_command(at_prompt):
    screen = at_prompt(columns=100)
    screen.enter("qopen", "Queue space name: ")
    screen.send("\x04")
    screen.see("ERROR: Input ended at the prompt 'Queue space name:'")
    screen.at_prompt()
    screen.send("quit\r")
    assert screen.ends() == 1


@pytest.mark.parametrize(("keys", "shown"), [("", "> "), ("qset", "> qset"), ("qopen\r", "Queue space name: ")])
def test_termination_leaves_the_terminal_as_it_was(at_prompt, keys, shown):
    screen = at_prompt()
    echo = termios.tcgetattr(screen.child.child_fd)[3] & (termios.ECHO | termios.ICANON)
    assert not echo  # line editing has switched it off
    screen.send(keys)
    screen.at_prompt(shown)
    os.kill(screen.child.pid, signal.SIGTERM)
    assert screen.ends() == 143
    assert screen.bottom is None
    assert "Traceback" not in screen.shown


def test_mistyped_command_gets_the_nearest_name(at_prompt):
    screen = at_prompt()
    screen.enter("qcraete")
    screen.see("ERROR: No such command: qcraete\n  Did you mean qcreate? help lists the commands.")


def test_long_output_goes_through_the_pager_and_the_pager_can_be_left(at_prompt):
    screen = at_prompt(environ={"PAGER": "sh -c 'read line; echo paged: $line'"})
    screen.enter("help qspacecreate")
    screen.see("paged: qspacecreate [-A actions]")
    screen.enter("page")
    screen.enter("help qspacecreate")
    assert screen.shown.count("paged:") == 1


def test_short_output_does_not_go_through_the_pager(at_prompt):
    screen = at_prompt(environ={"PAGER": "echo paged; cat"})
    screen.enter("lidl")
    assert "paged" not in screen.shown


def test_pager_that_does_not_exist_loses_no_output(at_prompt):
    screen = at_prompt(environ={"PAGER": "/no/such/pager"})
    screen.send("help qspacecreate\r")
    screen.see("Recorded, without effect. The default is 16.")


def test_interrupt_of_the_pager_reaches_only_it(at_prompt):
    screen = at_prompt(environ={"PAGER": "echo paging; exec cat >/dev/null 2>&1 /dev/tty"})
    screen.send("help all\r")
    screen.see("paging")
    screen.send("\x03")
    screen.at_prompt()
    screen.enter("verbose")
    screen.see("Verbose mode is now on")


def test_tables_fit_into_sixty_columns(at_prompt, laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        msgid = space.enqueue("STRING", b"x", delay=3600)
    screen = at_prompt(columns=60, lines=40)
    screen.enter("qopen QSPACE")
    screen.enter("qinfo")
    screen.see(
        "Queue   Messages  Ready  Delayed  Held  Pages  Bytes  Parked\n"
        "STRING         1      0        1     0      1      1       0"
    )
    screen.enter("qset STRING")
    screen.enter("qlist")
    screen.see(f"\n{msgid}\n  Prio: 50  Retries: 0  Bytes: 1  Delivery: persist\n  State: delayed  Available: ")
    screen.enter("paginate off")
    screen.enter("help qdestroy")
    assert max(map(len, screen.shown.split("\n"))) <= 60


def test_table_follows_the_size_of_the_window(at_prompt, laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", b"x")
    screen = at_prompt(columns=60)
    screen.enter("qopen QSPACE")
    screen.enter("qset STRING")
    screen.screen.resize(24, 150)
    screen.child.setwinsize(24, 150)
    screen.enter("qlist")
    screen.see("Message id                        Prio  Retries  Bytes  Delivery")


def test_prompt_of_two_lines_is_whole_in_a_narrow_terminal(at_prompt):
    screen = at_prompt(columns=60)
    screen.enter("qopen QSPACE")
    screen.enter("qcreate A fifo none 0 0", "% for percent used, m for messages [default=100%]): ")
    screen.see("High limit for queue capacity warning (b for bytes used, B\nfor blocks used,\n% for percent used")


def test_severity_has_a_colour_unless_no_color_is_set(at_prompt):
    screen = at_prompt()
    screen.enter("xyzzy")
    assert b"\x1b[1;31mERROR:" in screen.raw
    screen = at_prompt(environ={"NO_COLOR": "1"})
    screen.enter("xyzzy")
    screen.see("ERROR: No such command: xyzzy")
    assert b"31m" not in screen.raw


def test_program_can_be_driven_by_what_it_writes(at_prompt):
    """As expect(1) does, which looks for texts and does not answer a terminal's questions."""
    screen = at_prompt()
    screen.enter("qopen", "Queue space name: ")
    assert b"> " in screen.raw
    assert b"Queue space name: " in screen.raw
    assert b"\x1b[6n" not in screen.raw


def test_dumb_terminal_gets_plain_lines(laid_out, terminal):
    screen = terminal(environ={"TERM": "dumb"})
    screen.at_prompt()
    screen.enter("qopen", "Queue space name: ")
    screen.enter("QSPACE")
    screen.enter("qset NOPE")
    screen.see("List the queues with qinfo, or create it with qcreate.")
    screen.at_prompt()
    screen.send("qset STRI\x03")
    screen.at_prompt()
    screen.enter("qset STRING")
    screen.see("Current queue is 'STRING'")
    screen.send("\x04")
    assert screen.ends() == 1
    assert b"\x1b" not in screen.raw
