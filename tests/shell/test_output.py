"""The output of a command in a file, or read by a shell command."""

import contextlib
import errno
import io
import json
import os
import signal
import stat

import pytest

from qmadmin import create_device, open_device
from qmadmin.console.process import Exit
from qmadmin.console.render import PlainScreen
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.interpreter import Interpreter
from qmadmin.shell.lines import Script
from qmadmin.shell.session import Session
from qmcore.message import State

BODIES = "Message id                        State  Bytes  Body\n"


@pytest.fixture
def shop(laid_out):
    """The queue space QSPACE with two messages on STRING and one on errq."""
    ran = laid_out.run("qopen QSPACE\nqput STRING one\nqput STRING 'two words'\nqput errq lost\n")
    assert ran.status == 0
    return laid_out


def ran(shop, *lines):
    """Run a script, with the queue space open; return what is shown and what is said of it."""
    found = shop.run("\n".join(["qopen QSPACE", *lines]))
    return found.out.removeprefix("Queue space 'QSPACE' opened\n"), found.err, found.status


def bodies(text):
    return [line.split()[-1] for line in text.splitlines()]


# ---- files ----


def test_output_goes_into_a_file_for_its_user_only_as_a_script_has_it(shop):
    file = shop.directory / "out"
    assert ran(shop, f"qlist -b STRING > {file}") == ("", "", 0)
    shown, _, _ = ran(shop, "qlist -b STRING")
    assert file.read_text() == shown
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_file_is_written_again_or_behind_what_it_has_and_keeps_its_mode(shop):
    file = shop.directory / "two words"
    file.write_text("something that is longer than what comes\n" * 9)
    file.chmod(0o644)
    assert ran(shop, f"qset STRING > '{file}'", f"qset >> '{file}'") == ("", "", 0)
    assert file.read_text() == "Current queue is 'STRING'\n" * 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_command_that_shows_nothing_leaves_an_empty_file(shop):
    file = shop.directory / "out"
    file.write_text("before")
    _, said, status = ran(shop, "qset STRING", "qscan -p 99", f"qlist > {file}")
    assert said.startswith("INFO: Queue list - no messages matched")
    assert (file.read_text(), status) == ("", 0)


@pytest.mark.parametrize("line", ["qlist NOPE", "qlist -z STRING", "qinfo a b", "qspacedestroy -y NOPE"])
def test_command_that_is_refused_leaves_files_as_they_were(shop, line):
    old, new = shop.directory / "old", shop.directory / "new"
    old.write_text("before")
    _, said, status = ran(shop, f"{line} > {old}", f"{line} > {new}")
    assert (old.read_text(), new.exists(), status) == ("before", False, 1)
    assert said.count("ERROR: ") == 2


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("/nowhere/out", "Failed to open /nowhere/out: No such file or directory"),
        ("/", "Failed to open /: Is a directory"),
        ("/dev/full", "Failed to write /dev/full: No space left on device"),
    ],
)
def test_file_that_cannot_be_written_is_refused_in_a_sentence(shop, target, said):
    assert ran(shop, f"qlist -b STRING > {target}", "qset errq") == (
        "Current queue is 'errq'\n", f"ERROR: {said} (crque, line 2)\n", 1,
    )  # fmt: skip


def test_place_that_does_not_exist_is_refused_before_anything_is_done_and_the_answers_are_passed_over(shop):
    shown, said, status = ran(shop, "qset STRING", "qdeletemsg > /nowhere/out", "y", "qinfo STRING")
    assert said.splitlines() == [
        "ERROR: Failed to open /nowhere/out: No such file or directory (crque, line 3)",
        "INFO: Skipped the remaining answers to qdeletemsg (crque, line 4)",
    ]
    assert shown.splitlines()[-1].split()[:2] == ["STRING", "2"]
    assert status == 1


@pytest.mark.parametrize("end", ["", "-wal"])
@pytest.mark.parametrize("form", ["lidl > {}", "lidl >> {}", "source {}", "qput -f {} STRING", "qstat -s -f {}"])
def test_files_of_the_device_are_not_touched(shop, end, form):
    with open_device(shop.device) as device, device.open_space("QSPACE"):
        line = form.format(f"{shop.device}{end}")
        _, said, status = ran(shop, line)
        assert said == f"ERROR: File {shop.device}{end} belongs to the device {shop.device} (crque, line 2)\n"
        assert status == 1


def test_other_name_of_the_device_is_recognised_before_it_is_open(shop):
    link = shop.directory / "link"
    link.symlink_to(shop.path)
    found = shop.run(f"help > {link}")
    assert found.err == f"ERROR: File {link} belongs to the device {shop.device} (crque, line 1)\n"


@pytest.mark.parametrize("sign", [">", ">>"])
def test_a_database_that_is_not_known_yet_is_not_written_over(shop, sign):
    other = shop.directory / "OTHER"
    create_device(other, 100).close()
    before = other.read_bytes()
    found = shop.run(f"help {sign} {other}")
    assert found.err == f"ERROR: File {other} is a database (crque, line 1)\n"
    assert other.read_bytes() == before


def test_answers_and_prompts_stay_out_of_the_file(shop):
    file = shop.directory / "out"
    shown, said, status = ran(
        shop, "echo", f"qspacelist > {file}", "QSPACE", "qset STRING", f"qdeletemsg > {file}2", "y"
    )
    assert (said, status) == ("", 0)
    assert "\nQueue space name: QSPACE\n" in shown
    assert "Delete 2 messages of queue 'STRING'? (y, n [default=n]): y\n" in shown
    assert file.read_text().startswith("Queue space 'QSPACE'\n")
    assert (shop.directory / "out2").read_text() == "2 messages deleted\n"


def test_dry_run_goes_into_the_file_too(shop):
    file = shop.directory / "out"
    ran(shop, f"qpurge -n STRING > {file}")
    assert file.read_text().startswith("Dry run, nothing is done: ")


@pytest.mark.parametrize("form", ["json", "csv"])
def test_file_has_what_programs_get(shop, form):
    file = shop.directory / "out"
    shown = shop.process(None, "--format", form, "-s", "QSPACE", "-c", "qlist STRING").stdout
    done = shop.process(None, "--format", form, "-s", "QSPACE", "-c", f"qlist STRING > {file}")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert file.read_bytes().decode() == shown


def test_document_of_a_refused_command_is_where_its_output_would_be_or_else_on_the_output(shop):
    file = shop.directory / "out"
    shown, _, status = ran(shop, "format json", f"qlist NOPE > {file}", "qlist STRING > /nowhere/out")
    found = json.loads(file.read_text())
    assert (found["command"], found["ok"], status) == ("qlist", False, 1)
    last = json.loads(shown.splitlines()[-1])
    assert (last["command"], last["rows"], last["ok"]) == ("qlist", [], False)
    assert last["notices"][0]["text"] == "Failed to open /nowhere/out: No such file or directory"


def test_message_that_cannot_be_written_stays_on_its_queue(shop):
    _, said, status = ran(shop, "qget STRING > /dev/full")
    assert said.endswith("ERROR: Failed to write /dev/full: No space left on device (crque, line 2)\n")
    assert status == 1
    with open_device(shop.device) as device, device.open_space("QSPACE") as space:
        assert space.usage("STRING").messages == 2


@pytest.fixture
def synced(shop, monkeypatch):
    """What was brought to the disk of the file `out`, and where the first message of STRING stood then."""
    out, seen, sync = shop.directory / "out", [], os.fsync

    with open_device(shop.device) as device, device.open_space("QSPACE") as space:

        def look(descriptor):
            sync(descriptor)
            inode = os.fstat(descriptor).st_ino
            if out.exists() and inode in (out.stat().st_ino, shop.directory.stat().st_ino):
                state = next(space.messages("STRING", states=[State.HELD, State.READY])).state
                seen.append((out.read_text() if inode == out.stat().st_ino else "name", state))

        monkeypatch.setattr(os, "fsync", look)
        yield seen


@pytest.mark.parametrize("where", ["-o {} STRING", "STRING > {}", "STRING >> {}"])
def test_a_message_leaves_its_queue_when_the_file_that_has_it_is_on_the_disk(shop, synced, where):
    out = shop.directory / "out"
    assert ran(shop, f"qget {where.format(out)}")[2] == 0
    assert out.read_text().endswith("one\n" if ">" in where else "one")
    assert (out.read_text(), State.HELD) in synced
    assert "name" in [what for what, _ in synced], "a file without a name is lost, too"


@pytest.mark.parametrize("form", ["plain", "json"])
def test_so_it_does_where_the_whole_output_goes_into_a_file(shop, synced, form):
    with (shop.directory / "out").open("w+") as out:
        session = Session(shop.device, Catalogue(), PlainScreen(out, out), shop.environ)
        with contextlib.closing(session):
            script = Script(io.StringIO(f"format {form}\nqopen QSPACE\nqget STRING\n"), "crque", session)
            assert Interpreter(session, script).run() == 0
    (told,) = [text for text, state in synced if state is State.HELD]
    assert "one" in told


def test_a_message_whose_file_cannot_be_brought_to_the_disk_stays_on_its_queue(shop, monkeypatch):
    sync, file = os.fsync, shop.directory / "out"

    def fail(descriptor):
        if os.fstat(descriptor).st_ino == file.stat().st_ino:
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    file.write_text("")
    monkeypatch.setattr(os, "fsync", fail)
    _, said, status = ran(shop, f"qget STRING >> {file}")
    assert said.endswith(f"ERROR: Failed to write {file}: Input/output error (crque, line 2)\n")
    assert status == 1
    with open_device(shop.device) as device, device.open_space("QSPACE") as space:
        assert [message.state.value for message in space.messages("STRING")] == ["ready", "ready"]


@pytest.mark.parametrize("where", ["-o {}", "> {}"])
def test_a_file_whose_name_cannot_be_brought_to_the_disk_is_refused_before_a_message_is_taken(shop, monkeypatch, where):
    sync, file = os.fsync, shop.directory / "out"

    def fail(descriptor):
        if file.exists() and os.fstat(descriptor).st_ino == shop.directory.stat().st_ino:
            assert not file.read_bytes()
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    _, said, status = ran(shop, f"qget STRING {where.format(file)}")
    assert said == f"ERROR: Failed to write {file}: Input/output error (crque, line 2)\n"
    assert status == 1
    assert not file.exists()
    with open_device(shop.device) as device, device.open_space("QSPACE") as space:
        assert [message.state.value for message in space.messages("STRING")] == ["ready", "ready"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP], ids=["EINVAL", "ENOTSUP"])
@pytest.mark.parametrize("where", ["-o {}", "> {}"])
def test_a_file_system_that_cannot_be_asked_to_sync_is_written_to_all_the_same(shop, monkeypatch, where, number):
    sync, file = os.fsync, shop.directory / "out"

    def refuse(descriptor):
        if file.exists() and os.fstat(descriptor).st_ino in (shop.directory.stat().st_ino, file.stat().st_ino):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    assert ran(shop, f"qget STRING {where.format(file)}")[1:] == ("", 0)
    assert file.read_text().split()[-1] == "one"


@pytest.mark.parametrize("where", ["-o {}", "> {}"])
def test_looking_at_messages_waits_for_no_disk(shop, monkeypatch, where):
    sync, file, seen = os.fsync, shop.directory / "out", []

    def look(descriptor):
        if file.exists():
            seen.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    assert ran(shop, f"qpeek -k 2 STRING {where.format(file)}")[2] == 0
    assert "two words" in file.read_text()
    assert not {shop.directory.stat().st_ino, file.stat().st_ino}.intersection(seen)


# ---- shell commands ----


def test_shell_command_reads_the_output_and_writes_where_the_program_does(shop, capfd):
    assert ran(shop, "qlist -b STRING | grep -c ready", "qlist -b STRING |tail -n 1 | cut -d '\"' -f 2") == ("", "", 0)
    assert capfd.readouterr().out == "2\ntwo words\n"


def test_shell_command_that_has_enough_is_no_error(shop):
    with open_device(shop.device) as device, device.open_space("QSPACE") as space:
        space.enqueue_many("STRING", [b"x" * 3000] * 90)
    done = shop.process(None, "-s", "QSPACE", "-c", "qpeek -k 90 STRING | head -n 1", "-c", "qset STRING")
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.endswith("Current queue is 'STRING'\n")


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("exit 3", "ended with status 3"),
        ("no-such-program", "ended with status 127"),
        ("kill -9 $$", "was ended by signal 9"),
    ],
)
def test_failure_of_the_shell_command_is_one_of_the_line(shop, command, how):
    done = shop.process(None, "-s", "QSPACE", "-c", f"qlist STRING | {command}")
    assert done.stderr.splitlines()[-1].startswith(f"ERROR: Shell command {how}: {command} (-c ")
    assert done.returncode == 1


def test_shell_command_is_not_started_for_a_command_that_is_refused(shop, capfd):
    _, said, status = ran(shop, "qlist NOPE | echo started", "qscan -p 99", "qlist STRING | wc -l")
    assert said.startswith("ERROR: QMEBADQUEUE")
    assert (capfd.readouterr().out.strip(), status) == ("0", 1)


def test_document_can_be_read_by_a_shell_command(shop):
    done = shop.process(
        "qset STRING\n", "--format", "json", "-s", "QSPACE", "-c", "qlist STRING | grep -o '\"ok\": true'"
    )
    assert (done.stdout, done.returncode) == ('"ok": true\n', 0)


def test_shell_command_that_cannot_be_one_is_refused_before_anything_is_done(shop):
    _, said, _ = ran(shop, "qpurge -y STRING | echo \0")
    assert said == "ERROR: A shell command cannot contain the character NUL (crque, line 2)\n"
    with open_device(shop.device) as device, device.open_space("QSPACE") as space:
        assert space.usage("STRING").messages == 2


# ---- half of a redirection ----


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("qinfo >", "ERROR: No file is named after >"),
        ("qlist STRING >>", "ERROR: No file is named after >>"),
        ("qlist STRING |", "ERROR: No shell command is named after |"),
        ("qinfo > one two", "ERROR: More than a file is named after >"),
    ],
)
def test_sign_with_nothing_or_too_much_behind_it_is_refused_in_a_sentence(shop, line, told):
    shown, said, status = ran(shop, line)
    assert (shown, said, status) == ("", f"{told} (crque, line 2)\n", 1)
    assert not list(shop.directory.glob("one*"))


@pytest.mark.parametrize("line", ["qinfo STRING>out", "qlist STRING> out", "qget STRING|cat", "qspacelist QSPACE>out"])
def test_sign_without_a_blank_before_it_is_told_of(shop, line):
    done = shop.process(None, "--format", "json", "-s", "QSPACE", "-c", line)
    (notice,) = json.loads(done.stdout)["notices"]
    assert notice["hint"].startswith("To send output elsewhere, put a blank before the sign")
    assert done.returncode == 1


# ---- command files ----


def test_echo_of_a_command_file_goes_where_its_output_does(shop):
    file, out = shop.directory / "file", shop.directory / "out"
    file.write_text(f"qset STRING\nqspacelist > {shop.directory}/inner\nQSPACE\n")
    shown, said, status = ran(shop, "echo", f"source {file} > {out}", "qset errq")
    assert (said, status) == ("", 0)
    assert shown.splitlines()[-3:] == [f"> source {file} > {out}", "> qset errq", "Current queue is 'errq'"]
    assert out.read_text() == (
        f"> qset STRING\nCurrent queue is 'STRING'\n> qspacelist > {shop.directory}/inner\nQueue space name: QSPACE\n"
    )
    assert (shop.directory / "inner").read_text().startswith("Queue space 'QSPACE'\n")


def test_output_of_a_command_file_goes_where_its_line_says(shop, capfd):
    file, out = shop.directory / "file", shop.directory / "out"
    file.write_text(f"qset STRING\nqset NOPE\nqset > {shop.directory}/inner\nqlist | wc -l\n!echo shell\nqset errq\n")
    shown, said, status = ran(shop, f"source {file} > {out}", "qset")
    assert shown == "Current queue is 'errq'\n"
    assert out.read_text() == "Current queue is 'STRING'\n3\nshell\nCurrent queue is 'errq'\n"
    assert (shop.directory / "inner").read_text() == "Current queue is 'STRING'\n"
    assert said.endswith(f"({file}, line 2)\n")
    assert (said.count("\n"), status) == (1, 1)
    assert capfd.readouterr().out == ""


def test_command_file_whose_output_nobody_reads_is_left_and_the_script_goes_on(shop):
    file = shop.directory / "file"
    file.write_text("qpeek -k 9 STRING\n" * 2000 + "qset errq\n")
    shown, said, status = ran(shop, "qset STRING", f"source {file} | exit 0", "qset")
    assert shown == "Current queue is 'STRING'\n" * 2
    assert said == "ERROR: The command file was left before its end: its output is not read any more (crque, line 3)\n"
    assert status == 1


@pytest.mark.parametrize(
    "content",
    [b"\x7fELF\0\0", b"qset STRING\0\n", b"qset STRING\n" * 2000 + bytes(512)],
    ids=["program", "line", "zero-filled end"],
)
def test_file_that_is_not_text_is_not_run(shop, content):
    file = shop.directory / "file"
    file.write_bytes(content)
    shown, said, status = ran(shop, f"source {file}")
    assert (shown, said, status) == (
        "",
        f"ERROR: File {file} is not a command file: it is not text (crque, line 2)\n",
        1,
    )
    done = shop.process(None, "-s", "QSPACE", "-f", str(file))
    assert (done.stdout, done.returncode) == ("", Exit.UNUSABLE)
    assert done.stderr.startswith(f"ERROR: File {file} is not a command file: it is not text\n")


def test_a_line_that_is_not_text_is_refused_alone_where_commands_come_from_the_standard_input(shop):
    done = shop.process("qset STRING\nqset \0\nqset errq\n", "-s", "QSPACE")
    assert (done.stdout.splitlines()[-1], done.returncode) == ("Current queue is 'errq'", 1)
    assert "(stdin, line 2)" in done.stderr


# ---- at a terminal ----


@pytest.fixture
def typed(shop, terminal):
    """Start the program in a terminal with the queue space open."""

    def start(**settings):
        screen = terminal(arguments=["-s", "QSPACE"], **settings)
        screen.at_prompt()
        return screen

    return start


def test_terminal_has_no_part_in_what_goes_elsewhere(shop, typed):
    screen = typed(columns=40)
    screen.enter("qlist STRING > out")
    screen.enter("qlist -b STRING | cat >piped")
    screen.enter("qtop -n 2 -d 0.1 > top")
    for name in ("out", "piped", "top"):
        assert "\x1b" not in (shop.directory / name).read_text()
    assert (shop.directory / "out").read_text() == ran(shop, "qlist STRING")[0]
    assert (shop.directory / "piped").read_text() == ran(shop, "qlist -b STRING")[0]
    assert (shop.directory / "top").read_text().count("Depth") == 2


def test_interrupt_ends_the_shell_command_and_the_session_goes_on(typed):
    screen = typed()
    screen.send("qlist STRING | cat; echo ready; sleep 1000\r")
    screen.see("\nready")
    screen.send("\x03")
    screen.at_prompt()
    screen.enter("qset STRING")
    screen.see("Current queue is 'STRING'")


def test_interrupt_ends_what_is_shown_again_and_again(typed):
    screen = typed()
    screen.send("qtop -n 100 -d 3600 | cat\r")
    screen.see("Depth")
    screen.send("\x03")
    screen.at_prompt()
    screen.enter("qset STRING")


def test_line_that_sends_its_output_elsewhere_is_not_repeated(shop, typed):
    screen = typed(columns=120)
    screen.enter("qset STRING >> out")
    screen.send("\r")
    screen.see("INFO: A line that sends its output elsewhere is not repeated")
    assert (shop.directory / "out").read_text() == "Current queue is 'STRING'\n"


def test_files_are_offered_behind_the_sign(shop, typed):
    (shop.directory / "report one").touch()
    screen = typed()
    screen.send("qlist STRING > rep\t")
    screen.see('> qlist STRING > "report one"')
    screen.send("\r")
    screen.until((shop.directory / "report one").read_text, "the file")
    screen.at_prompt()
    screen.send("qlist STRING | wc -l rep\t")
    screen.see("| wc -l report\\ one")


def test_interrupt_of_a_script_ends_it_with_its_status(shop, terminal):
    screen = terminal(arguments=["-s", "QSPACE", "-c", "qlist STRING | cat; echo ready; sleep 1000", "-c", "lidl"])
    screen.see("ready")
    screen.send("\x03")
    assert screen.ends() == 130
    assert "Index" not in screen.shown


def test_termination_waits_for_nobody(shop, terminal):
    screen = terminal(arguments=["-s", "QSPACE", "-c", "qtop -n 9 -d 3600 | (cat; trap '' TERM; echo left)"])
    screen.see("Depth")
    os.kill(screen.child.pid, signal.SIGTERM)
    assert screen.ends() == 143
