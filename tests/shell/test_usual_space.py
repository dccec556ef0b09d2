"""The queue space that is named when the program starts."""

import pytest

from tests.fix_shell import LAY_OUT


@pytest.mark.parametrize("arguments", [("-s", "QSPACE"), ("--space", "QSPACE")])
def test_queue_space_of_an_option_is_open_for_the_first_command(laid_out, arguments):
    done = laid_out.process("", *arguments, "-c", "qset STRING")
    assert (done.returncode, done.stdout) == (0, "Current queue is 'STRING'\n")


@pytest.mark.parametrize("variable", ["QMSPACE", "QM_SPACE"])
def test_queue_space_of_the_environment_is_open_too(laid_out, variable):
    done = laid_out.process("qset STRING\n", environ={variable: "QSPACE"})
    assert (done.returncode, done.stdout) == (0, "Current queue is 'STRING'\n")


def test_option_counts_more_than_the_environment(laid_out):
    done = laid_out.process("", "-s", "QSPACE", "-c", "qset STRING", environ={"QMSPACE": "OTHER"})
    assert done.returncode == 0


def test_script_may_create_the_queue_space_that_the_environment_names(shell):
    done = shell.process(LAY_OUT.format(device=shell.device).replace("qopen QSPACE\n", ""), "-s", "QSPACE")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Queue 'STRING' created" in done.stdout


def test_queue_space_that_a_script_opens_or_closes_takes_the_place_of_the_usual_one(laid_out):
    done = laid_out.process("qopen NOPE\nqset STRING\n", "-s", "QSPACE")
    assert "No queue space is open (stdin, line 2)" in done.stderr
    done = laid_out.process("qset STRING\nqclose\nqset STRING\n", "-s", "QSPACE")
    assert "No queue space is open (stdin, line 3)" in done.stderr


def test_queue_space_that_does_not_exist_is_named_in_the_error_of_the_command(laid_out):
    done = laid_out.process("", "-s", "NOPE", "-c", "qset STRING", "-c", "lidl")
    assert done.returncode == 1
    assert "there is no queue space 'NOPE' on the device (-c 'qset STRING', line 1)" in done.stderr
    assert laid_out.device in done.stdout


def test_person_sees_at_once_what_is_open(laid_out, terminal):
    screen = terminal(arguments=("-s", "QSPACE"), columns=160)
    screen.see("Queue space 'QSPACE' opened\n>")
    assert "Queue space: QSPACE" in screen.bottom


def test_person_is_told_at_once_that_there_is_no_such_queue_space(laid_out, terminal):
    screen = terminal(arguments=("-s", "QSPCE"), columns=250)
    screen.see("there is no queue space 'QSPCE' on the device\n  Did you mean QSPACE?")
    screen.at_prompt()


def test_person_without_a_device_is_told_how_to_make_one(shell, terminal):
    screen = terminal(columns=200)
    made = f"crdl {shell.device} 0 2000"
    screen.see(
        f"This device does not exist yet. This command creates one of 2000 pages: {made}\nhelp lists the commands,"
        " quit leaves the program."
    )
    screen.at_prompt()
    screen.enter(made)
    screen.see("Created device")


def test_person_with_a_device_is_not(laid_out, terminal):
    screen = terminal()
    screen.see("help lists the commands, quit leaves the program.")
    assert "does not exist yet" not in screen.shown
