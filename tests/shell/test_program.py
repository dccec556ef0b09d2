"""The program as a process: how it starts, reads, is interrupted, and ends."""

import contextlib
import os
import pty
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qmadmin import open_device, program
from qmadmin.console.process import Exit
from qmadmin.program import USAGE as USAGE_LINE
from qmadmin.version import __version__
from tests.fix_shell import PROGRAM

FULL = Path("/dev/full")
USAGE = f"{USAGE_LINE}\n"


@pytest.fixture
def refused(shell, monkeypatch, capsys):
    """Return what is said to arguments with which the program cannot start."""
    monkeypatch.chdir(shell.directory)

    def run(*arguments):
        before = sorted(shell.directory.iterdir())
        assert program.main(arguments) == Exit.UNUSABLE
        said = capsys.readouterr()
        assert said.out == ""
        assert sorted(shell.directory.iterdir()) == before
        return said.err

    return run


def test_unknown_option_is_message_1100_with_a_usage_line(shell, refused):
    assert refused("-x") == f"ERROR: Invalid option - -x\n{USAGE}"
    done = shell.process("", "--zigzag", "QUE")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"ERROR: Invalid option - --zigzag\n{USAGE}"


def test_option_that_is_written_nearly_so_is_named(refused):
    assert refused("--fromat", "json", "QUE") == f"ERROR: Invalid option - --fromat\nDid you mean --format?\n{USAGE}"


@pytest.mark.parametrize("value", [None, ""])
def test_no_device_is_message_1101(refused, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("QMCONFIG", value)
    said = refused().split("\n")
    assert said[0] == "ERROR: QMCONFIG not set"
    assert said[1].endswith("as in: qmadmin QUE")
    assert max(map(len, said[:-2])) < 80
    assert said[-2:] == [USAGE_LINE, ""]


def test_second_argument_is_message_1102(refused):
    hint = "A command is given with -c: qmadmin QUE -c"
    assert refused("QUE", "more") == f"ERROR: Invalid argument more\n{hint} more\n{USAGE}"
    assert refused("QUE", "qinfo", "Q") == f"ERROR: Invalid argument qinfo\n{hint} 'qinfo Q'\n{USAGE}"


@pytest.mark.parametrize("command", ["help", "qspl", "lidl"])
def test_command_in_the_place_of_the_device_is_no_device(shell, refused, monkeypatch, command):
    monkeypatch.chdir(shell.directory)
    hint = f"A command is given with -c: qmadmin -c {command}\nA device of that name is ./{command}."
    assert refused(command) == f"ERROR: Invalid argument {command}\n{hint}\n{USAGE}"
    (shell.directory / command).touch()
    assert shell.process("", command).returncode == 0


def test_option_without_its_value_is_refused(refused):
    assert refused("-f") == f"ERROR: Option '-f' requires an argument.\n{USAGE}"


@pytest.mark.parametrize(
    ("device", "cause"),
    [
        ("nowhere/QUE", "The directory 'nowhere' does not exist; create it first."),
        (".", "It is a directory; name a file in it."),
        ("file/QUE", "Not a directory."),
        ("x" * 300, "File name too long."),
        ("pipe", "It is neither a file nor a slice of a disk."),
        ("sqlite:///nowhere/QUE", "The directory '{0}/nowhere' does not exist; create it first."),
        ("sqlite:///.", "It is a directory; name a file in it."),
    ],
)
def test_device_that_cannot_be_one_is_message_1104(shell, refused, device, cause):
    (shell.directory / "file").write_text("", encoding="utf-8")
    os.mkfifo(shell.directory / "pipe")
    told = f"ERROR: Failed to get status of {device}\n{cause}\n".format(shell.directory)
    assert refused(device) == told


def test_device_may_be_absent_or_a_slice_of_a_disk_and_a_database_is_left_to_the_first_command(shell):
    program.check_status(shell.device, Path(shell.device))
    program.check_status("postgresql://host/base", None)
    if os.geteuid() == 0:
        program.check_status("/dev/null", Path("/dev/null"))
        with contextlib.suppress(PermissionError):
            os.mknod(shell.directory / "slice", stat.S_IFBLK | 0o600, os.makedev(7, 250))
            program.check_status(str(shell.directory / "slice"), shell.directory / "slice")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://boss:s3cr!t@host/base", "devices of the kind 'mysql' are not supported by this release"),
        ("postgresql+psycopg2://boss:s3cr!t@host/base", "the driver 'psycopg2' of the URL is not supported"),
        ("postgresql://boss:s3cr!t@x@host/base", "the URL of the PostgreSQL device has more than one @"),
        ("postgresql://host/base?schema=pg_x", "the schema 'pg_x' is one of PostgreSQL's own"),
    ],
)
def test_url_that_cannot_be_one_is_refused_before_the_first_command(refused, url, sentence):
    said = refused(url)
    assert said.startswith(f"ERROR: {sentence}")
    assert said.count("\n") == 2
    assert "s3cr!t" not in said


def test_device_of_somebody_else_that_cannot_be_read_is_message_1105(shell, monkeypatch, capsys):
    shell.lay_out()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert program.main([shell.device]) == Exit.UNUSABLE
    assert capsys.readouterr().err == (
        f"ERROR: Effective user id, {owner + 1}, must match the owner of QMCONFIG, {owner}\n"
        f"Run qmadmin as the owner of '{shell.device}'.\n"
    )


def test_command_file_that_cannot_be_read_is_refused(refused):
    assert refused("-f", "none", "QUE") == "ERROR: Failed to open command file none\nNo such file or directory.\n"
    assert refused("-f", ".", "QUE") == "ERROR: Failed to open command file .\nIs a directory.\n"


def test_command_file_that_is_not_text_is_refused(laid_out, refused):
    told = f"ERROR: File {laid_out.device} is not a command file: it is not text\n"
    assert refused("-f", laid_out.device, "QUE") == f"{told}Name a file that has a command on each line.\n"


def test_a_device_on_the_standard_input_is_not_obeyed(laid_out):
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        space.enqueue("STRING", b"x\n!touch pwned\nx\n" * 40)
    with Path(laid_out.device).open("rb") as script:
        done = subprocess.run(
            PROGRAM, stdin=script, env=laid_out.environ, cwd=laid_out.directory, capture_output=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"ERROR: stdin is not a command file: it is not text\n"
    assert not (laid_out.directory / "pwned").exists()


def test_version_and_help_end_well(shell):
    assert shell.process("", "--version").stdout == f"qmadmin {__version__}\n"
    done = shell.process("", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(USAGE)


def test_argument_wins_over_qmconfig(shell):
    done = shell.process("crdl OTHER 0 100\n", "OTHER")
    assert done.stdout == f"Created device {shell.directory}/OTHER, offset 0, size 100 on {shell.directory}/OTHER\n"
    assert not shell.path.exists()


def test_file_that_is_not_a_device_is_refused_by_the_first_command_and_left_as_it_was(shell):
    shell.path.write_text("a letter to my aunt\n" * 500, encoding="utf-8")
    done = shell.process(f"lidl\ncrdl {shell.device} 0 2000\n")
    assert done.returncode == 1
    assert [line.split(":")[1] for line in done.stderr.splitlines()] == [" QMEBADRMID", " QMEBADRMID"]
    assert shell.path.read_text(encoding="utf-8") == "a letter to my aunt\n" * 500


def test_dash_as_command_file_is_the_standard_input(laid_out):
    done = laid_out.process("qopen QSPACE\n", "-f", "-")
    assert (done.stdout, done.returncode) == ("Queue space 'QSPACE' opened\n", 0)


def test_shell_command_in_a_command_file_may_read_the_standard_input(laid_out):
    (laid_out.directory / "script").write_text("!cat\nqopen QSPACE\n", encoding="utf-8")
    done = laid_out.process("from stdin\n", "-f", "script")
    assert done.stdout == "from stdin\nQueue space 'QSPACE' opened\n"


def test_only_what_is_needed_is_loaded(laid_out, compiled_texts):
    def loaded(script):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *PROGRAM[1:]],
            input=script,
            env=laid_out.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        names = [line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()]
        return {"alembic", "prompt_toolkit", "rich", "sqlalchemy"} & set(names)

    assert loaded("help\nverbose\n!true\n# nothing of the device\n") == set()
    assert loaded("qopen QSPACE\nqinfo\n") == set()
    assert loaded("qopen QSPACE\nqset errq\nqscan -w 'size > 1'\nqlist\n") == {"sqlalchemy"}


def test_results_go_to_stdout_and_notices_to_stderr(laid_out):
    done = laid_out.process("qopen QSPACE\nqset NOPE\nqinfo errq\n")
    assert done.stdout.splitlines()[0] == "Queue space 'QSPACE' opened"
    assert done.stderr.endswith("(stdin, line 2)\n")
    assert done.returncode == 1


def test_script_of_a_thousand_commands_is_done(laid_out):
    done = laid_out.process("qopen QSPACE\n" + "qset STRING\n" * 1000)
    assert done.returncode == 0
    assert done.stdout.count("Current queue is 'STRING'\n") == 1000


def test_closed_streams_do_no_harm(laid_out):
    def run(redirections, script="qopen QSPACE\\nqset NOPE\\n"):
        command = f"printf '{script}' | {' '.join(PROGRAM)} {redirections}; echo $?"
        return subprocess.run(
            ["/bin/sh", "-c", command],
            env=laid_out.environ,
            cwd=laid_out.directory,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    assert run(">&- 2>&-").stdout == "1\n"
    assert run(">&-", script="qopen QSPACE\\n").stdout == "0\n"
    assert run("2>&-").stdout == "Queue space 'QSPACE' opened\n1\n"
    assert run("<&-").stdout == "0\n"
    assert run(">&-", script="!echo lost\\nqopen QSPACE\\n").stderr == ""


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_full_disk_under_the_output_is_told(laid_out):
    with FULL.open("w") as full:
        done = subprocess.run(
            PROGRAM,
            input="livtoc\n",
            stdout=full,
            stderr=subprocess.PIPE,
            env=laid_out.environ,
            cwd=laid_out.directory,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.stderr == "ERROR: cannot write the output: No space left on device\n"
    assert done.returncode == 1


class Piped:
    """The program reading a pipe that stays open."""

    def __init__(self, shell):
        self.child = subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=shell.environ,
            cwd=shell.directory,
            text=True,
            bufsize=1,
        )

    def say(self, line):
        """Send a command and return the line that it prints."""
        self.child.stdin.write(f"{line}\n")
        return self.child.stdout.readline()

    def ends(self):
        """Return what else is printed on stderr, and the status."""
        _, errors = self.child.communicate(timeout=240)
        return errors, self.child.returncode


@pytest.fixture
def piped(laid_out):
    found = Piped(laid_out)
    with found.child:
        yield found
        found.child.kill()


def test_reader_that_goes_away_ends_the_program_quietly(piped):
    assert piped.say("qopen QSPACE") == "Queue space 'QSPACE' opened\n"
    piped.child.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        piped.child.stdin.write("qinfo\nqinfo\n")
        piped.child.stdin.close()
    errors = piped.child.stderr.read()
    assert (errors, piped.child.wait(60)) == ("", 1)


def test_interrupt_ends_a_script_with_status_130(piped):
    assert piped.say("qopen QSPACE") == "Queue space 'QSPACE' opened\n"
    piped.child.send_signal(signal.SIGINT)
    assert piped.ends() == ("", 130)


def test_termination_ends_a_script_with_status_143(piped):
    assert piped.say("qopen QSPACE") == "Queue space 'QSPACE' opened\n"
    piped.child.send_signal(signal.SIGTERM)
    assert piped.ends() == ("", 143)


def test_killed_program_leaves_the_device_usable(piped, laid_out):
    assert piped.say("qopen QSPACE") == "Queue space 'QSPACE' opened\n"
    piped.child.kill()
    piped.child.wait(60)
    ran = laid_out.run("qopen QSPACE\nqdestroy -y STRING\nqclose\nqspds -y QSPACE\n")
    assert (ran.err, ran.status) == ("", 0)


def test_two_shells_work_on_one_device_at_the_same_time(piped, laid_out):
    assert piped.say("qopen QSPACE") == "Queue space 'QSPACE' opened\n"
    assert laid_out.run("qopen QSPACE\nqcreate NEW fifo none 0 0 100% 0% ''\n").status == 0
    assert piped.say("qset NEW") == "Current queue is 'NEW'\n"
    refusal = laid_out.run("qspds -y QSPACE\n").err
    assert refusal.startswith("ERROR: QMEINUSE: ")
    assert f"qmadmin {piped.child.pid}" in refusal


def test_prompts_of_a_keyboard_go_to_stderr_when_the_output_goes_to_a_file(laid_out):
    keyboard, stdin = pty.openpty()
    child = subprocess.Popen(
        PROGRAM,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=laid_out.environ,
        cwd=laid_out.directory,
        text=True,
    )
    os.close(stdin)
    os.write(keyboard, b"qopen\n\nQSPACE\nqset NOPE\nquit\n")
    out, err = child.communicate(timeout=240)
    os.close(keyboard)
    assert out == "Queue space 'QSPACE' opened\n"
    assert err == (
        "> Queue space name: WARN: Must specify queue space name\n  Ctrl-C leaves qopen.\n"
        "Queue space name: > ERROR: QMEBADQUEUE: there is no"
        " queue 'NOPE' in queue space 'QSPACE'\n  List the queues with qinfo, or create it with qcreate.\n> "
    )
    assert child.returncode == 1


def test_errors_of_the_queue_manager_are_logged_and_those_of_the_typist_are_not(laid_out):
    done = laid_out.process("qopen QSPACE\nqopne QSPACE\nqset NOPE\nqcreate STRING fifo none 0 0 100% 0% ''\n")
    assert done.returncode == 1
    (log,) = laid_out.directory.glob("ULOG.*")
    assert log.name == time.strftime("ULOG.%m%d%y", time.gmtime())
    first, second = log.read_text(encoding="utf-8").splitlines()
    assert "!qmadmin." in first
    assert first.endswith(": ERROR: QMEBADQUEUE: there is no queue 'NOPE' in queue space 'QSPACE'")
    assert ": QM_CAT:1216: ERROR: Queue creation failed for queue STRING: QMEINVAL: " in second


@pytest.mark.parametrize("line", ["qopen QSPACEE", "qopen QSPACE\nqinfo NOPE", "qopen QSPACE\nqset NOPE"])
def test_a_mistyped_name_makes_no_log_in_the_directory_in_which_somebody_is(laid_out, line):
    del laid_out.environ["ULOGPFX"]
    assert laid_out.process(f"{line}\n").returncode == 1
    assert list(laid_out.directory.glob("ULOG*")) == []


def test_program_that_has_nothing_to_log_makes_no_log(laid_out):
    assert laid_out.process("qopen QSPACE\nqopne\n").returncode == 1
    assert list(laid_out.directory.glob("ULOG*")) == []


def test_person_who_gives_a_command_as_an_option_is_told_what_was_meant(laid_out, terminal):
    screen = terminal(arguments=("-c", "qopne QSPACE", "-c", "qinfo"), columns=120)
    assert screen.ends() == 1
    assert "  Did you mean qopen? help lists the commands." in screen.shown
    assert "  Open one with qopen. Or start qmadmin with -s SPACE." in screen.shown
    assert "Did you mean" not in laid_out.process("", "-c", "qopne QSPACE").stderr


def test_crdl_makes_a_database_of_an_application_a_device(shell):
    with contextlib.closing(sqlite3.connect(shell.path)) as application:
        application.execute("CREATE TABLE shop_order (text)")
        application.commit()
    done = shell.process(f"crdl {shell.device} 0 2000\nlidl\n")
    assert (done.returncode, done.stderr) == (0, "")
    with contextlib.closing(sqlite3.connect(shell.path)) as application:
        assert application.execute("SELECT * FROM shop_order").fetchall() == []


def test_crdl_names_a_table_that_has_the_name_of_one_of_a_device(shell):
    with contextlib.closing(sqlite3.connect(shell.path)) as application:
        application.execute("CREATE TABLE queue (text)")
        application.commit()
    done = shell.process(f"crdl {shell.device} 0 2000\n")
    assert done.returncode == 1
    assert "has table 'queue', whose names a device needs itself" in done.stderr
