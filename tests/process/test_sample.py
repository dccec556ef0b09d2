"""The sample application, the larger run, and the demonstration of both."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fix_process import ROOT, environment, eventually, is_running

SAMPLE = ROOT / "scripts" / "qsample"

PROGRAMS = {
    "qmadmin": "-m qmadmin.program",
    "tmqforward": "-m qmadmin.forwarder.program",
    "qmspark": "-m qmadmin.spark.program",
    "python": "",
}


@pytest.fixture
def sample(tmp_path):
    """Return the sample in a checkout whose environment is ready: this one."""
    checkout = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", checkout / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, arguments in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    (checkout / "scripts" / "environment").write_text(f'environment() {{ python="{sys.executable}"; }}\n')
    (tmp_path / "temporary").mkdir()
    return checkout / "scripts"


def settings(sample, **more):
    top = sample.parents[1]
    path = os.pathsep.join([str(top / "programs"), os.environ["PATH"]])
    return environment(PATH=path, TMPDIR=str(top / "temporary"), **more)


def run(sample, *command, cwd="/", **more):
    return subprocess.run(
        command,
        cwd=cwd,
        env=settings(sample, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        stdin=subprocess.DEVNULL,
    )


def children_of(number):
    """Return the processes that a process has started, and theirs."""
    pairs = []
    if Path("/proc/self/stat").exists():
        for stat in Path("/proc").glob("[0-9]*/stat"):
            # A process may end while it is looked at.
            with contextlib.suppress(OSError):
                pairs.append((int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])))
    else:
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = {number}
    while more := {pid for pid, parent in pairs if parent in found} - found:
        found |= more
    return found - {number}


def assert_nothing_left(sample):
    assert list((sample.parents[1] / "temporary").iterdir()) == []


def test_sample_prints_its_two_lines_and_cleans_up_each_time(sample):
    for _ in range(2):
        done = run(sample, sample / "qsample" / "runsample")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[-2:] == ["before: this is a q example", "after: THIS IS A Q EXAMPLE"]
        assert "Queue space name: QSPACE" in lines
        assert "Queue 'ERRQUE' created" in lines
        assert_nothing_left(sample)


def test_sample_leaves_its_device_in_a_directory_of_the_caller(sample, tmp_path):
    place = tmp_path / "my application"
    place.mkdir()
    program = sample / "qsample" / "runsample"
    assert run(sample, program, cwd=tmp_path, APPDIR="my application").returncode == 0
    assert (place / "QUE").exists()
    log = "".join(path.read_text() for path in place.glob("ULOG.*"))
    assert "tmqforward stopped: SIGTERM; 1 message forwarded, 0 calls failed" in log

    again = run(sample, program, APPDIR=str(place))
    assert again.returncode == 2
    assert "QUE exists already" in again.stderr


def test_sample_works_from_a_copy_as_its_readme_says(sample, tmp_path):
    copy = tmp_path / "a copy"
    shutil.copytree(sample / "qsample", copy)
    done = run(sample, "/bin/sh", "-c", ". ./setenv && ./crque && echo QMCONFIG=$QMCONFIG", cwd=copy)
    assert done.stdout.endswith(f"QMCONFIG={copy}/QUE\n"), done.stderr
    assert run(sample, "/bin/sh", "-c", ". ./setenv && ./crque", cwd=copy).returncode == 1
    assert "set it with setenv" in run(sample, "./crque", cwd=copy).stderr
    forwarder = subprocess.Popen(
        ["tmqforward", "QSPACE", "-q", "STRING"], cwd=copy, env=settings(sample, QMCONFIG=str(copy / "QUE"))
    )
    try:
        done = run(sample, "python", "client.py", cwd=copy, QMCONFIG=str(copy / "QUE"))
    finally:
        forwarder.terminate()
        assert forwarder.wait(timeout=240) == 0
    assert done.stdout == "before: this is a q example\nafter: THIS IS A Q EXAMPLE\n"


def test_sample_whose_client_fails_has_failed_and_cleans_up(sample):
    (sample / "qsample" / "client.py").write_text("import sys\nsys.exit(5)\n")
    assert run(sample, sample / "qsample" / "runsample").returncode == 5
    assert_nothing_left(sample)


def test_sample_whose_queues_cannot_be_made_has_failed_and_cleans_up(sample):
    crque = sample / "qsample" / "crque"
    crque.write_text(crque.read_text().replace("200\n5\n10", "200\nmany\n10"))
    done = run(sample, sample / "qsample" / "runsample")
    assert done.returncode == 1
    assert "ERROR: The number of queues must be numeric: 'many' (stdin, line 7)\n" in done.stderr
    assert "before:" not in done.stdout
    assert_nothing_left(sample)


def test_client_says_what_is_missing(sample, tmp_path):
    done = run(sample, "python", sample / "qsample" / "client.py", QMCONFIG=str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr.startswith("client: TPE")


def test_the_procedure_for_replies_finds_the_reply_and_the_failure(sample):
    done = run(sample, sys.executable, sample / "qsample" / "replies.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "request 1: sent 'this is a q example'",
        "request 2: sent '4711'",
        "request 1: 'THIS IS A Q EXAMPLE' from RPLYQ, user return code 0",
        "request 2: \"there is no letter in '4711'\" from FAILQ, user return code 1",
    ]
    assert_nothing_left(sample)


def test_the_procedure_for_replies_tells_what_it_does(sample):
    done = run(sample, sys.executable, sample / "qsample" / "replies.py", "--help")
    assert done.returncode == 0, done.stderr
    assert "The procedure for replies" in done.stdout


def interrupt(sample, program, number, **more):
    """Send a signal to a program that is at work; assert that nothing of it is left, and return its status."""
    process = subprocess.Popen(
        program,
        env=settings(sample, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        temporary = sample.parents[1] / "temporary"
        eventually(lambda: any("started" in log.read_text() for log in temporary.glob("**/ULOG.*")), "the start")
        started = children_of(process.pid)
        # The keyboard's interrupt reaches the whole group, a kill(1) the one process.
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert started
    for child in started:
        eventually(lambda: not is_running(child))  # noqa: B023 - asked at once
    assert_nothing_left(sample)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_sample_leaves_nothing(sample, number):
    (sample / "qsample" / "server.py").write_text(
        "import time\n\n\ndef upper(request):\n    time.sleep(1)\n    return ''\n"
    )
    assert interrupt(sample, [sample / "qsample" / "runsample"], number) == 128 + number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_larger_run_leaves_nothing(sample, number):
    lines = sample / "qsample" / "lines.py"
    assert interrupt(sample, [sys.executable, lines], number) == 128 + number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demonstration_leaves_nothing(sample, number):
    (sample / "qsample" / "server.py").write_text(
        "import time\n\n\ndef upper(request):\n    time.sleep(1)\n    return ''\n"
    )
    assert interrupt(sample, [sample / "demo"], number) == 128 + number


def test_larger_run_checks_every_line_of_a_file(sample, tmp_path):
    text = tmp_path / "a text"
    text.write_text("".join(f"line {number} äöß\n" for number in range(500)) + "\n\n \nlast", "utf-8")
    done = run(sample, sys.executable, sample / "qsample" / "lines.py", text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r"^lines     504\nrequests  504\nreplies   504: 0 lost, 0 doubled, 0 wrong$", done.stdout, re.MULTILINE
    )
    assert re.search(r"^time      [\d.]+ seconds, \d+ lines a second there and back$", done.stdout, re.MULTILINE)
    assert re.search(r"^STRING +0 +0 +0 +0 +0 +0 +0$", done.stdout, re.MULTILINE)
    assert_nothing_left(sample)


@pytest.mark.parametrize(
    ("service", "reported"),
    [
        ("request.text.upper().replace('3', '4')", "20: 0 lost, 0 doubled, 20 wrong"),
        ("str(1 / int(request.text != 'LINE 13'.lower())).upper()", "19: 1 lost, 0 doubled, 19 wrong"),
    ],
)
def test_larger_run_finds_what_is_wrong(sample, tmp_path, service, reported):
    text = tmp_path / "text"
    text.write_text("".join(f"line {number}3\n" for number in range(20)))
    lines = sample / "qsample" / "lines.py"
    lines.write_text(lines.read_text().replace("PATIENCE = 60.0", "PATIENCE = 2.0"))
    (sample / "qsample" / "server.py").write_text(f"def upper(request):\n    return {service}\n")
    done = run(sample, sys.executable, lines, text)
    assert done.returncode == 1
    assert f"replies   {reported}" in done.stdout


ANOTHER_REPLY = """
import sys, qmadmin

with qmadmin.open_device(sys.argv[1]) as device, device.open_space("QSPACE") as space:
    space.enqueue("RPLYQ", "TWO", corrid="1")
"""
DOUBLING = f"""
import subprocess, sys


def upper(request):
    if request.text == "two":
        subprocess.run([sys.executable, "-c", {ANOTHER_REPLY!r}, sys.argv[1]], check=True)
    return request.text.upper()
"""


def test_larger_run_finds_a_reply_that_comes_twice(sample, tmp_path):
    text = tmp_path / "text"
    text.write_text("one\ntwo\nthree\n")
    (sample / "qsample" / "server.py").write_text(DOUBLING)
    done = run(sample, sys.executable, sample / "qsample" / "lines.py", text)
    assert done.returncode == 1
    assert "replies   4: 0 lost, 1 doubled, 0 wrong" in done.stdout


def test_larger_run_refuses_arguments_and_directories_that_it_cannot_use(sample, tmp_path):
    lines = sample / "qsample" / "lines.py"
    done = run(sample, sys.executable, lines, "one", "two")
    assert (done.returncode, done.stderr) == (1, "usage: lines.py [FILE]\n")
    (tmp_path / "QUE").write_text("mine")
    done = run(sample, sys.executable, lines, lines, APPDIR=str(tmp_path))
    assert done.returncode == 1
    assert f"{tmp_path}/QUE exists already" in done.stderr
    assert (tmp_path / "QUE").read_text() == "mine"


def test_larger_run_refuses_a_file_that_cannot_be_read(sample, tmp_path):
    done = run(sample, sys.executable, sample / "qsample" / "lines.py", tmp_path / "none")
    assert done.returncode == 1
    assert "none cannot be read" in done.stderr


def test_demonstration_tells_how_it_is_used_and_does_nothing_then(sample):
    done = run(sample, sample / "demo", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: scripts/demo [--keep] [FILE]\n")
    for wrong in (["--fast"], [__file__, __file__]):
        done = run(sample, sample / "demo", *wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: scripts/demo [--keep] [FILE]\n")
    for unreadable in ("", "/nowhere", sample):
        done = run(sample, sample / "demo", unreadable)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"{sample}/demo: {unreadable} is not a file that can be read\n"
    assert_nothing_left(sample)


def test_demonstration_ends_with_the_first_job_that_fails(sample):
    """The job works in a directory of its own, whatever the caller works with."""
    (sample / "qsample" / "runsample").write_text(
        '#!/bin/sh\necho "${QMCONFIG-none} ${ULOGPFX-none} $PWD $APPDIR"\nexit 3\n'
    )
    done = run(sample, sample / "demo", QMCONFIG="/mine", ULOGPFX="/mine")
    assert done.returncode == 1
    assert done.stderr == f"{sample}/demo: the job ended with status 3\n"
    *_, shown = done.stdout.splitlines()
    assert re.fullmatch(rf"none none ({sample.parents[1]}/temporary/qmadmin-demo\.\w+/sample) \1", shown)
    assert_nothing_left(sample)
