"""Capacity commands as real processes: who starts them is not held up, and they depend on nobody."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pexpect
import pytest

from tests.fix_process import PATIENCE, ROOT, environment, eventually, is_running

ENTRY = re.compile(r"\d{6}\.[^!]+!capacity\.(?P<pid>\d+)\.\d+: (?P<text>.*)")
SCRIPT = """
import logging, os, signal, sys, threading, time
logging.basicConfig(stream=sys.stdout, format="%(name)s: %(message)s")
from qmadmin.capacity import CapacityEvent, start

def eventually(happened):
    deadline = time.monotonic() + 240
    while not happened():
        if time.monotonic() > deadline:
            raise SystemExit("it has not happened")
        time.sleep(0.002)

def is_without_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False
"""


class Application:
    """A program that starts capacity commands and whose directory keeps what they leave."""

    def __init__(self, directory):
        self.directory = directory
        self.device = str(directory / "QUE")

    def script(self, command, *, before="", after="", queue="ORDERS"):
        """Return a program that starts the command as `event`, with lines of its own before and after."""
        event = ascii([self.device, "QSPACE", queue, command, "80%"])
        return f"{SCRIPT}\nevent = CapacityEvent(*{event}, 83, 'persist')\n{before}\nstart(event)\n{after}\n"

    def run(self, command, *, before="", after="", queue="ORDERS", prefix=(), options=(), status=0, **settings):
        """Run the program to its end; return what it wrote. Nobody may keep its output open beyond that."""
        script = self.script(command, before=before, after=after, queue=queue)
        ran = subprocess.run(
            [*prefix, sys.executable, "-W", "error", *options, "-c", script],
            cwd=self.directory,
            env=environment(**settings),
            input="typed",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (status, "")
        return ran.stdout

    def entries(self):
        """Return what the runners have logged."""
        lines = [line for path in sorted(self.directory.glob("ULOG.*")) for line in path.read_text().splitlines()]
        return [entry for line in lines if (entry := ENTRY.fullmatch(line))]

    def log(self):
        return "\n".join(entry["text"] for entry in self.entries())

    def output(self):
        """Return the lines of output in the log."""
        marks = [entry["text"].partition("INFO: output: ") for entry in self.entries()]
        return [text for before, mark, text in marks if mark and not before]

    def wait_until_logged(self, words):
        eventually(lambda: words in self.log(), words)

    def file(self, name):
        return self.directory / name

    def content(self, name):
        """Wait for a file that a command writes in one go, a line of text, and return it without its end."""
        file = self.file(name)
        return eventually(lambda: file.exists() and file.read_text().endswith("\n") and file, name).read_text()[:-1]

    def runner(self):
        """Return the process id of the one runner that has logged."""
        (pid,) = {int(entry["pid"]) for entry in eventually(self.entries, "a log")}
        return pid

    def close(self):
        for group in re.findall(r"starts as process group (\d+)", self.log()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(group), signal.SIGKILL)


@pytest.fixture
def application(tmp_path):
    directory = tmp_path / "an application"
    directory.mkdir()
    application = Application(directory)
    yield application
    application.close()


@pytest.fixture
def open_directory():
    """Give a directory that every user of the machine can see."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


HANGING = "echo $$ > pid; exec sleep 1000"
UNTIL_GO = "while ! [ -e go ]; do sleep 0.01; done"


def status_of(pid, name):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())[name]


def session_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])


def watched(pid):
    """Return the descriptors that a process waits for with epoll."""
    lines = [line for file in Path(f"/proc/{pid}/fdinfo").iterdir() for line in file.read_text().splitlines()]
    return {line.split()[1] for line in lines if line.startswith("tfd:")}


def test_a_command_runs_once_and_the_log_tells_its_beginning_its_output_and_its_end(application):
    command = "echo ran >> runs; echo one; echo two >&2; printf three"
    application.run(command)
    application.wait_until_logged("exit status")
    assert application.file("runs").read_text() == "ran\n"
    first, *said, last = application.log().splitlines()
    about = f"queue 'ORDERS' of queue space 'QSPACE': capacity command {command!r}"
    assert re.fullmatch(
        re.escape(f"INFO: {about} starts as process group ") + r"\d+" + re.escape(": 83 reached 80% (persist)"), first
    )
    assert said == ["INFO: output: one", "INFO: output: two", "INFO: output: three"]
    assert re.fullmatch(re.escape(f"INFO: {about}: exit status 0 after ") + r"\d+\.\d{3} seconds", last)


def test_the_environment_of_a_command_is_the_applications_and_the_facts(application):
    application.run("env -0 > found; echo", OWN="a \n b", PYTHONHASHSEED="7")
    application.wait_until_logged("exit status")
    found = dict(entry.split("=", 1) for entry in application.file("found").read_text().split("\0")[:-1])
    expected = environment(OWN="a \n b", PYTHONHASHSEED="7") | {
        "QMCONFIG": application.device,
        "QMSPACE": "QSPACE",
        "QM_SPACE": "QSPACE",
        "QM_QUEUE": "ORDERS",
        "QM_LEVEL": "80%",
        "QM_VALUE": "83",
        "QM_DELIVERY": "persist",
    }
    for made_by_shells in ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"):
        found.pop(made_by_shells, None)
        expected.pop(made_by_shells, None)
    assert found == expected


@pytest.mark.parametrize("queue", ["it's", '"$(touch no)" `touch no` \\n', "-x; touch no", "Auftr\u00e4ge \u20ac"])
@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_a_queue_name_is_text_to_every_shell_on_the_way(application, queue, locale):
    application.run('printf "%s\n" "$QM_QUEUE" | tee name', queue=queue, **locale)
    application.wait_until_logged("exit status")
    assert application.file("name").read_bytes() == queue.encode() + b"\n"
    assert application.output() == [queue]
    assert f"queue {queue!r} of" in application.log()
    assert not application.file("no").exists()


def test_a_device_may_have_a_name_that_is_no_text(application):
    application.device += "\udcff"
    application.run('printf "%s\n" "$QMCONFIG" > device')
    application.wait_until_logged("exit status")
    assert application.file("device").read_bytes() == os.fsencode(application.device) + b"\n"


def test_a_command_finds_nothing_to_read(application):
    application.run("cat; echo end")
    application.wait_until_logged("exit status 0")
    assert application.output() == ["end"]


def test_a_command_that_begins_like_an_option_is_a_command(application):
    application.run("-x")
    application.wait_until_logged("exit status 127")


@pytest.mark.parametrize(
    ("last", "status"),
    [("os._exit(7)", 7), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL), ("os.abort()", -signal.SIGABRT)],
)
def test_an_application_may_end_right_after(application, last, status):
    application.run("echo ran >> runs", after=last, status=status)
    application.wait_until_logged("exit status 0")
    assert application.file("runs").read_text() == "ran\n"


def test_a_command_may_start_while_the_interpreter_ends(application):
    said = application.run(
        "true",
        before="start_later, start = start, lambda event: None",
        after="""
import atexit
atexit.register(start_later, event)
class Late:
    def __del__(self):
        start_later(event)
kept_to_the_end = Late()
""",
    )
    assert said == ""
    eventually(lambda: application.log().count("exit status 0") == 2)


def test_a_hanging_command_outlives_the_application_and_is_ended_by_its_process_id(application):
    application.run(HANGING)
    pid = int(application.content("pid"))
    application.wait_until_logged(f"process group {pid}:")
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)
    application.wait_until_logged("WARN: queue 'ORDERS' of queue space 'QSPACE': capacity command")
    application.wait_until_logged("ended by SIGKILL after")
    eventually(lambda: not is_running(application.runner()))


def test_a_command_has_a_session_away_from_the_terminal_whose_keys_and_end_do_not_reach_it(application):
    script = application.script(HANGING, after="print('started', flush=True)\ntime.sleep(1000)")
    child = pexpect.spawn(
        sys.executable, ["-c", script], cwd=str(application.directory), env=environment(), timeout=PATIENCE
    )
    child.expect("started")
    pid = int(application.content("pid"))
    runner = application.runner()
    child.sendintr()
    child.expect("KeyboardInterrupt")
    child.expect(pexpect.EOF)
    child.close(force=True)
    for each in (pid, runner):
        assert is_running(each)
        assert session_of(each) not in {child.pid, os.getsid(0)}
    assert os.getpgid(pid) == pid != os.getpgid(runner)
    os.kill(pid, signal.SIGTERM)
    application.wait_until_logged("ended by SIGTERM")


def test_output_beyond_64_kib_is_read_and_counted_and_left_out_of_the_log(application):
    application.run("yes 123456789 | head -c 5000000; echo whole > whole")
    application.wait_until_logged("exit status 0")
    assert application.content("whole") == "whole"
    assert application.output() == ["123456789"] * 6553 + ["123456"]
    *_, cut, counted, _ = application.log().splitlines()
    assert cut == "WARN: output: the rest is left out, after 65536 bytes"
    assert counted == f"WARN: output: {5_000_000 - 65536} bytes were left out"


def test_output_of_64_kib_without_an_end_of_line_is_whole(application):
    application.run("head -c 65536 /dev/zero | tr '\\0' x")
    application.wait_until_logged("exit status 0")
    assert application.output() == ["x" * 65536]
    assert "left out" not in application.log()


def test_a_command_that_kills_itself_is_logged_by_its_signal(application):
    application.run("ulimit -c 0; kill -SEGV $$")
    application.wait_until_logged("ended by SIGSEGV after")


def test_output_that_is_no_text_is_logged_in_numbers(application):
    application.run(r"printf 'caf\351\n\033[2Jclear\tit\r\na\rb\303\244\302\205\n\n'")
    application.wait_until_logged("exit status 0")
    assert application.output() == [r"caf\xe9", r"\x1b[2Jclear" + "\tit", r"a\rb" + "\u00e4" + r"\x85", ""]


def test_shell_text_that_is_wrong_is_logged_with_what_the_shell_says(application):
    assert application.run("if then (") == ""
    application.wait_until_logged("exit status 2 after")
    assert "yntax error" in application.output()[0]


@pytest.mark.parametrize(
    "disposition",
    [
        "signal.signal(signal.SIGCHLD, signal.SIG_DFL)",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.signal(signal.SIGCHLD, lambda *_: is_without_children() or os.waitpid(-1, os.WNOHANG))",
    ],
)
def test_an_application_has_no_child_left_while_its_commands_run(application, disposition):
    said = application.run(
        "echo $$ >> pids; exec sleep 1000",
        before=disposition,
        after="start(event)\neventually(is_without_children)\nprint('childless')",
    )
    assert said == "childless\n"
    pids = eventually(lambda: len(found := application.content("pids").split()) == 2 and found)
    for pid in map(int, pids):
        assert is_running(pid)
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: application.log().count("ended by SIGTERM") == 2)


def test_the_first_process_of_a_container_has_no_zombie_left(application):
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make process namespaces")
    said = application.run(
        f"cat; exec >&- 2>&-; echo ran >> runs; {UNTIL_GO}",
        prefix=alone,
        before="signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        after="""
eventually(lambda: os.path.exists("runs"))
open("go", "w").close()
eventually(is_without_children)
print(os.getpid(), os.path.getsize("runs"))
""",
    )
    assert said == "1 4\n"
    assert application.output() == []


def test_no_descriptor_of_the_application_is_inherited(application):
    application.run(
        f"ls -l /proc/$$/fd; echo $$ > pid; {UNTIL_GO}",
        before="""
for _ in range(40):
    os.set_inheritable(os.open("secret", os.O_WRONLY | os.O_CREAT), True)
""",
    )
    pid, runner = int(application.content("pid")), application.runner()
    of_command = {int(link.name): str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    of_runner = {int(link.name): str(link.readlink()) for link in Path(f"/proc/{runner}/fd").iterdir()}
    application.file("go").touch()
    assert of_command.pop(0) == "/dev/null"
    assert of_command.pop(1) == of_command.pop(2)
    assert of_command == {}
    assert [of_runner[number] for number in (0, 1, 2)] == ["/dev/null"] * 3
    assert not [target for target in of_runner.values() if "secret" in target]
    application.wait_until_logged("exit status 0")


@pytest.mark.parametrize("taken", ["", "kept = [open('secret', 'w') for _ in range(3)]"], ids=["free", "taken"])
def test_an_application_may_have_closed_its_standard_descriptors(application, taken):
    application.run(
        "cat; echo said; echo more >&2",
        before=f"sys.stdin = sys.stdout = sys.stderr = None\nos.closerange(0, 3)\n{taken}",
        after="os._exit(0)",
    )
    application.wait_until_logged("exit status 0")
    assert application.output() == ["said", "more"]


def test_an_application_may_have_threads_timers_and_fork_hooks(application):
    said = application.run(
        "echo ran",
        before="""
os.register_at_fork(before=lambda: os._exit(9))
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
def turn():
    while True:
        time.sleep(0)
for _ in range(10):
    threading.Thread(target=turn, daemon=True).start()
starters = [threading.Thread(target=start, args=(event,)) for _ in range(4)]
for starter in starters:
    starter.start()
for starter in starters:
    starter.join()
""",
        after="signal.setitimer(signal.ITIMER_REAL, 0)",
    )
    assert said == ""
    eventually(lambda: application.log().count("exit status 0") == 5)
    assert application.output() == ["ran"] * 5


def test_a_command_begins_with_the_usual_signals(application):
    application.run(
        "cat /proc/self/status",
        before="""
signals = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
for number in signals:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
""",
    )
    application.wait_until_logged("exit status 0")
    found = dict(line.split(":", 1) for line in application.output())
    assert [int(found[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt")] == [0, 0, 0]


def test_a_log_that_cannot_be_written_keeps_no_command_from_running(application):
    application.file("taken").touch()
    application.run("seq 20000; echo ran >> runs", ULOGPFX=str(application.file("taken") / "ULOG"))
    assert application.content("runs") == "ran"
    assert not list(application.directory.glob("ULOG*"))


def test_a_log_goes_where_the_application_keeps_its_own(application):
    (application.directory / "logs").mkdir()
    application.run("true", ULOGPFX="logs/APP")
    eventually(lambda: any("exit status" in path.read_text() for path in application.directory.glob("logs/APP.*")))


def test_a_runner_that_is_told_to_end_tells_the_commands_group_and_ends(application):
    command = f"trap 'echo got > got; exit' TERM; printf some; sleep 1000 & echo $! > pid; {UNTIL_GO}; echo up; wait"
    application.run(command)
    sleeping = int(application.content("pid"))
    runner = application.runner()
    os.kill(runner, signal.SIGHUP)
    application.file("go").touch()
    application.wait_until_logged("someup")
    os.kill(runner, signal.SIGTERM)
    assert application.content("got") == "got"
    for each in (sleeping, runner):
        eventually(lambda: not is_running(each))  # noqa: B023 - asked at once
    assert application.log().splitlines()[-1] == (
        f"WARN: queue 'ORDERS' of queue space 'QSPACE': capacity command {command!r}: "
        "SIGTERM, which is passed on to its process group; how it ends is not logged"
    )


def test_what_a_command_leaves_in_the_background_is_logged_after_its_end(application):
    application.run(f"({UNTIL_GO}; echo late; printf later) & echo early; exit 3")
    application.wait_until_logged("exit status 3")
    assert application.output() == ["early"]
    application.file("go").touch()
    eventually(lambda: application.output() == ["early", "late", "later"])
    eventually(lambda: not is_running(application.runner()))
    assert application.log().count("exit status") == 1


def test_a_runner_ends_without_a_signal_to_what_its_command_left(application):
    application.run("sleep 1000 & echo $! > pid")
    left = int(application.content("pid"))
    application.wait_until_logged("exit status 0")
    runner = application.runner()
    os.kill(runner, signal.SIGTERM)
    eventually(lambda: not is_running(runner))
    assert is_running(left)
    os.kill(left, signal.SIGKILL)
    assert application.log().endswith(": SIGTERM; the output of processes that it left running is no longer logged")


def test_a_command_that_closes_its_output_is_followed_to_its_end(application):
    application.run(f"echo said; exec >&- 2>&-; {UNTIL_GO}; exit 5")
    runner = application.runner()
    # Only its signals are watched any more.
    eventually(lambda: len(watched(runner)) == 1)
    application.file("go").touch()
    application.wait_until_logged("exit status 5")


def refusal(command="true"):
    return f"qmadmin.capacity: queue 'ORDERS' of queue space 'QSPACE': capacity command {command!r} cannot be started: "


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("os.environ['X'] = 'x' * 10_000_000", "[Errno 7] Argument list too long: b'/bin/sh'"),
        (
            "sys.executable = '/none/python3'; sys.exec_prefix = sys.base_exec_prefix = '/none'",
            "there is no Python interpreter at /none/python3 or /none/bin/python{0} or /none/bin/python{0}",
        ),
        (
            "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
            "[Errno 24] Too many open files: '/dev/null'",
        ),
    ],
)
def test_what_the_system_refuses_is_logged_and_disturbs_nobody(application, trouble, reason):
    said = application.run("true", before=trouble, after="print('undisturbed')")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert said == f"{refusal()}{reason.format(version)}\nundisturbed\n"


@pytest.mark.parametrize("command", ["a\0b", "a\ud800b"])
def test_what_no_process_can_be_given_is_logged_and_disturbs_nobody(application, command):
    said = application.run(command, before="sys.stdout.reconfigure(errors='strict')", after="print('undisturbed')")
    assert said.startswith(refusal(command))
    assert said.endswith("\nundisturbed\n")


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        (1, "[Errno 11] Resource temporarily unavailable"),
        # The shell itself may run. Neither its child nor a thread that waits for it may.
        (2, "the process that starts it ended with status "),
    ],
)
def test_a_fork_that_the_system_refuses_is_logged_and_disturbs_nobody(application, processes, reason, open_directory):
    become = f"import resource; resource.setrlimit(resource.RLIMIT_NPROC, ({processes}, {processes}))"
    if os.geteuid() == 0:
        # No limit holds the superuser. Whom it becomes may not see this interpreter, which is not going to run.
        python = open_directory / "python3"
        python.touch()
        nobody_else = 20_000 + (2 * os.getpid() + processes) % 40_000
        become += f"; os.setgroups([]); os.setuid({nobody_else}); sys.executable = {str(python)!r}"
    elif processes > 1:
        pytest.skip("how many processes this user has is not known")
    if processes > 1 and Path("/bin/sh").resolve().name == "bash":
        pytest.skip("this shell sleeps and tries again, for longer than anybody waits")
    said = application.run("true", before=become, after="eventually(is_without_children)\nprint('undisturbed')")
    first, last = said.splitlines()
    assert first.startswith(refusal() + reason)
    assert last == "undisturbed"


def test_a_server_that_embeds_python_uses_the_interpreter_of_its_installation(application):
    application.run("echo ran", before="sys.executable = '/bin/false'")
    application.wait_until_logged("exit status 0")
    application.run("echo again", before="sys.executable = None")
    application.wait_until_logged("again")


def copy(directory):
    """Put the packages that a runner needs, and no other, into a folder in the directory."""
    for package in (ROOT / "qmadmin", ROOT / "core" / "qmcore"):
        shutil.copytree(package, directory / "its lib" / package.name)
    return "its lib"


def pack(directory):
    """Put the packages that a runner needs, and no other, into a zip file in the directory."""
    shutil.make_archive(str(directory / "lib"), "zip", directory / copy(directory))
    return "lib.zip"


@pytest.mark.parametrize("put", [copy, pack])
def test_the_runner_finds_its_packages_where_only_the_application_does(application, put):
    (application.directory / "elsewhere").mkdir()
    (application.directory / "elsewhere" / "logging.py").write_text("raise SystemExit('a stranger')")
    script = application.script("echo ran", before="os.chdir('elsewhere')")
    ran = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.append({put(application.directory)!r})\n{script}"],
        cwd=application.directory,
        env={"ULOGPFX": str(application.file("ULOG")), "PYTHONPATH": ".", "PYTHONWARNINGS": "error"},
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0
    application.wait_until_logged("exit status 0")
    assert application.output() == ["ran"]
