"""The program where something around it is not as usual: streams, locale, environment, disk, other programs."""

import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory

from qmadmin import open_device
from qmadmin.configuration import Configuration
from qmadmin.shell.terminal import history
from tests.fix_process import eventually
from tests.fix_shell import PROGRAM

FULL = Path("/dev/full")
ON_FULL_DISK = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
MISSING = "ERROR: QMEBADQUEUE: there is no queue '{}' in queue space 'QSPACE' (stdin, line {})\n"


def run(shell, script, *arguments, environ=None, **settings):
    """Run the program with streams of its own; what is not given is a pipe."""
    without = [name for name, value in (environ or {}).items() if value is None]
    given = shell.environ | {name: value for name, value in (environ or {}).items() if value is not None}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    if "stdin" not in streams:
        streams["input"] = script
    return subprocess.run(
        [*PROGRAM, *arguments],
        env={name: value for name, value in given.items() if name not in without},
        cwd=shell.directory,
        timeout=240,
        check=False,
        **streams,
    )


# ---- streams ----


def test_program_in_a_terminal_that_takes_a_command_file_asks_nobody(laid_out, terminal):
    (laid_out.directory / "script").write_text("qopen QSPACE\n\nqset NOPE\nqdestroy STRING\nqinfo\n!cat\n")
    screen = terminal(arguments=["-f", "script"], columns=120)
    screen.see("(script, line 5)")
    screen.send("typed\r\x04")
    assert screen.ends() == 1
    assert screen.shown.splitlines() == [
        "Queue space 'QSPACE' opened",
        MISSING.format("NOPE", 3).replace("stdin", "script").rstrip(),
        (
            "ERROR: The answer must be y or n, got 'qinfo' at 'Destroy queue 'STRING'? (y, n [default=n]):'"
            " (script, line 5)"
        ),
        "typed",
        "typed",
    ]


def test_interrupt_at_a_terminal_ends_a_command_file(laid_out, terminal):
    (laid_out.directory / "script").write_text("!echo working; exec sleep 60\nqopen QSPACE\n")
    screen = terminal(arguments=["-f", "script"])
    screen.see("working")
    screen.send("\x03")
    assert screen.ends() == 130
    assert screen.shown == "working\n^C"


def test_shell_command_in_a_script_may_take_an_interrupt_for_something_else(laid_out, terminal):
    (laid_out.directory / "script").write_text("!trap 'exit 0' INT; echo working; cat\nqopen QSPACE\n")
    screen = terminal(arguments=["-f", "script"])
    screen.see("working")
    screen.send("\x03")
    assert screen.ends() == 0
    assert screen.shown == "working\n^CQueue space 'QSPACE' opened"


@pytest.mark.parametrize("arguments", [[], ["-f", "-"]])
def test_input_that_cannot_be_read_is_told(laid_out, arguments):
    with (laid_out.directory / "written").open("wb") as stream:
        done = run(laid_out, None, *arguments, stdin=stream)
    assert (done.stdout, done.stderr) == (b"", b"ERROR: Failed to read from stdin: Bad file descriptor\n")
    assert done.returncode == 1


@ON_FULL_DISK
def test_errors_that_cannot_be_written_change_neither_results_nor_status(laid_out):
    with FULL.open("w") as full:
        done = run(laid_out, b"qset NOPE\nqopen QSPACE\n", stderr=full)
        assert (done.stdout, done.returncode) == (b"Queue space 'QSPACE' opened\n", 1)
        assert run(laid_out, b"", "-x", stderr=full).returncode == 2


@ON_FULL_DISK
def test_version_that_cannot_be_written_is_an_error(shell):
    with FULL.open("w") as full:
        done = run(shell, b"", "--version", stdout=full)
    assert (done.stderr, done.returncode) == (b"ERROR: cannot write the output: No space left on device\n", 1)


@ON_FULL_DISK
def test_output_that_cannot_be_written_ends_a_script_before_its_next_command(laid_out):
    with FULL.open("w") as full:
        done = run(laid_out, b"qopen QSPACE\nqdestroy -y STRING\n", stdout=full)
    assert (done.stderr, done.returncode) == (b"ERROR: cannot write the output: No space left on device\n", 1)
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        assert [queue.name for queue in space.queues()] == ["STRING", "errq"]


def test_first_line_of_long_output_may_be_all_that_is_wanted(laid_out):
    command = f"{' '.join(PROGRAM)} | head -n 1"
    script = b"help all\n" * 30
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=laid_out.environ, input=script, capture_output=True, timeout=240, check=True
    )
    assert (done.stdout, done.stderr) == (
        b"crdl [-g group] [-s full|relaxed] [-H partitions] [device [offset [size]]]\n",
        b"",
    )


# ---- the log ----


@ON_FULL_DISK
def test_log_on_a_full_disk_is_one_warning(laid_out):
    for day in (0, 86400):
        (laid_out.directory / time.strftime("FULL.%m%d%y", time.gmtime(time.time() + day))).symlink_to(FULL)
    script = b"qopen QSPACE\nqset A\nqset B\nqset STRING\n"
    done = run(laid_out, script, environ={"ULOGPFX": "FULL"})
    warning, *errors = done.stderr.decode().splitlines(keepends=True)
    assert warning.startswith("WARN: the log FULL.")
    assert warning.endswith(" cannot be written: No space left on device\n")
    assert errors == [MISSING.format("A", 2), MISSING.format("B", 3)]
    assert done.stdout == b"Queue space 'QSPACE' opened\nCurrent queue is 'STRING'\n"


def test_log_has_no_place_and_nobody_to_tell(laid_out):
    command = f"{' '.join(PROGRAM)} 2>&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env=laid_out.environ | {"ULOGPFX": "/none/ULOG"},
        input=b"qopen QSPACE\nqset NOPE\n",
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert (done.stdout, done.returncode) == (b"Queue space 'QSPACE' opened\n", 1)


# ---- locale and environment ----

PLAIN = {"LC_ALL": "C", "LANG": "C"}
ASCII = PLAIN | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
GERMAN = "Grüße"


def test_names_beyond_ascii_are_read_and_shown_in_any_locale(laid_out):
    script = f"qopen QSPACE\nqcreate {GERMAN} fifo none 0 0 100% 0% ''\nqset {GERMAN}\nqset 列\n".encode()
    done = run(laid_out, script, environ=PLAIN)
    assert done.stdout.decode().endswith(f"Queue '{GERMAN}' created\nCurrent queue is '{GERMAN}'\n")
    assert done.stderr.decode() == MISSING.format("列", 4)


def test_what_the_locale_cannot_show_is_escaped_and_a_command_file_is_utf_8_all_the_same(laid_out):
    script = f"qopen QSPACE\nqcreate {GERMAN} fifo none 0 0 100% 0% ''\nqset 列\n"
    (laid_out.directory / "script").write_text(script, "utf-8")
    done = run(laid_out, b"", "-f", "script", environ=ASCII)
    assert done.stdout == b"Queue space 'QSPACE' opened\nQueue 'Gr\\xfc\\xdfe' created\n"
    assert done.stderr == MISSING.format("\\u5217", 3).replace("stdin", "script").encode()
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        assert space.queue(GERMAN)


@pytest.mark.parametrize("arguments", [[], ["-f", "script"]])
def test_bytes_that_are_no_text_are_refused_where_they_are_a_name_and_kept_where_they_are_a_command(
    laid_out, arguments
):
    script = b"qopen QSPACE\nqset \xff\xfe\n!printf '\xff\xfe\\n'\nqset STRING\n"
    (laid_out.directory / "script").write_bytes(script)
    done = run(laid_out, b"" if arguments else script, *arguments)
    place = (arguments or ["stdin"])[-1]
    assert done.stderr.decode() == (
        f"ERROR: QMEINVAL: the queue name has no UTF-8 form: surrogates not allowed at 0 ({place}, line 2)\n"
    )
    assert done.stdout == b"Queue space 'QSPACE' opened\n\xff\xfe\nCurrent queue is 'STRING'\n"


def test_nothing_but_the_device_has_to_be_in_the_environment(laid_out):
    keep = ("PYTHONPATH", "QMCONFIG")
    bare = {name: None for name in laid_out.environ if name not in keep}
    done = run(laid_out, b"qopen QSPACE\nqset NOPE\n!echo $QMCONFIG\n", environ=bare)
    assert done.stdout.decode() == f"Queue space 'QSPACE' opened\n{laid_out.device}\n"
    assert done.stderr.decode() == MISSING.format("NOPE", 2)
    # A mistyped name leaves no log behind; else the log is in the current directory then.
    assert list(laid_out.directory.glob("ULOG.*")) == []
    run(laid_out, b"qopen QSPACE\nqcreate STRING fifo none 0 0 100% 0% ''\n", environ=bare)
    assert list(laid_out.directory.glob("ULOG.*"))


@pytest.mark.parametrize("settings", [{"HOME": None}, {"HOME": ""}])
def test_history_is_kept_nowhere_where_there_is_no_home(settings):
    environ = {name: value for name, value in settings.items() if value is not None}

    def file(environ):
        return Configuration("", {}, environ).qmadmin.history

    assert file(environ) == ""
    assert file(environ | {"XDG_STATE_HOME": "relative"}) == ""
    assert file(environ | {"XDG_STATE_HOME": "/state"}) == "/state/qmadmin/history"
    assert isinstance(history("", 5), InMemoryHistory)


def test_history_keeps_as_many_lines_as_the_settings_say(tmp_path):
    name = str(tmp_path / "history")
    first = history(name, 3)
    for number in range(6):
        first.append_string(f"qset Q{number}")
    assert list(history(name, 3).load_history_strings()) == ["qset Q5", "qset Q4", "qset Q3"]
    first.append_string("qset Q6")
    assert list(history(name, 3).load_history_strings()) == ["qset Q6", "qset Q5", "qset Q4"]
    assert (tmp_path / "history").read_text().count("\n") == 3


def test_shell_command_gets_the_environment(laid_out):
    done = run(laid_out, b"!echo $WHATEVER\n", environ={"WHATEVER": "it is"})
    assert done.stdout == b"it is\n"


@pytest.mark.parametrize("name", [None, "unknown"])
def test_terminal_that_is_not_known_gets_plain_lines(shell, terminal, name):
    shell.environ.pop("TERM")
    screen = terminal(environ={} if name is None else {"TERM": name})
    screen.at_prompt()
    assert b"\x1b" not in screen.raw


# ---- the device ----


def limited(size):
    """Return what lets a process write no file beyond a size, as if the disk were full."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def test_device_that_finds_no_room_on_the_disk_is_refused_and_leaves_nothing(shell):
    done = run(shell, f"crdl {shell.device} 0 2000\n".encode(), preexec_fn=limited(20_000))
    assert done.returncode == 1
    assert done.stderr.decode().startswith("ERROR: QMEOS: ")
    assert done.stderr.count(b"\n") == 1
    assert [path.name for path in shell.directory.iterdir() if not path.name.startswith("ULOG")] == []


def test_command_that_finds_no_room_on_the_disk_is_refused_and_changes_nothing(laid_out):
    size = laid_out.path.stat().st_size
    creates = "".join(f"qcreate Q{number} fifo none 0 0 100% 0% ''\n" for number in range(3))
    done = run(laid_out, f"qopen QSPACE\n{creates}qset STRING\n".encode(), preexec_fn=limited(4096))
    assert b"QMEOS" in done.stderr
    assert done.returncode == 1
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        assert [queue.name for queue in space.queues()] == ["STRING", "errq"]
    assert laid_out.path.stat().st_size == size


# ---- signals ----


def test_hangup_leaves_the_device_usable(laid_out, terminal):
    screen = terminal()
    screen.at_prompt()
    screen.enter("qopen QSPACE")
    screen.child.close(force=False)
    eventually(lambda: not screen.child.isalive(), "the end of the program")
    ran = laid_out.run("qspds -y QSPACE\n")
    assert (ran.err, ran.status) == ("", 0)


def test_files_of_a_device_that_are_removed_meanwhile_are_told_in_a_sentence(laid_out):
    directory = laid_out.directory / "QUE-run"
    ran = laid_out.run(f"qopen QSPACE\nqclose\n! rm -r '{directory}'\nqopen QSPACE\nlidl\n")
    assert "failed: No such file or directory" in ran.err
    assert "failed inside" not in ran.err
    assert ran.out.endswith(" 2000  present  full             6\n")
