"""Programs that inherit what some supervisors, containers and shells hand on: they work as they do elsewhere."""

import subprocess
import sys

import pytest

from tests.fix_process import environment

PROGRAMS = ["qmadmin.program", "qmadmin.forwarder.program", "qmadmin.spark.program"]
SERVICE = '[services.WORK]\ncommand = ["sh", "-c", "{}"]\n'


IGNORING_CHILDREN = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
BLOCKING_SIGTERM = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})"


def after(act):
    """Return the words that do something and then become the program that follows."""
    return [sys.executable, "-c", f"import os, signal, sys; {act}; os.execv(sys.argv[1], sys.argv[1:])"]


def start(*words, directory, options=(), closed=(), prefix=(), **settings):
    """Run a program to its end."""
    shut = "".join(f" {descriptor}>&-" for descriptor in closed)
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@"{shut}', "sh", *prefix, sys.executable, *options, "-m", *words],
        cwd=directory,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def forward(site, **how):
    return start(
        "qmadmin.forwarder.program", str(site.device), "QSPACE", "-q", "WORK", "-e", directory=site.directory, **how
    )


@pytest.fixture
def job(site):
    """A queue space in which a request waits."""
    space = site.lay_out("WORK", "ERRQUE", "OUT")
    space.enqueue("WORK", "job", reply_queue="OUT")
    return space


def test_a_command_that_fails_is_a_failure_where_the_end_of_children_is_ignored(site, job):
    site.services(SERVICE.format("exit 3"))
    forward(site, prefix=after(IGNORING_CHILDREN))
    assert (job.usage("ERRQUE").messages, job.usage("OUT").messages) == (1, 0)


def test_the_shell_tells_the_status_of_a_command_too(tmp_path):
    done = start(
        "qmadmin.program",
        "QUE",
        "-c",
        "!exit 3",
        directory=tmp_path,
        prefix=after(IGNORING_CHILDREN),
    )
    assert done.returncode == 1
    assert "ended with status 3" in done.stderr


def test_a_forwarder_can_be_stopped_where_the_signals_for_that_were_blocked(site, job):
    site.services(SERVICE.format("sleep 0"))
    daemon = site.start("-q", "WORK", prefix=after(BLOCKING_SIGTERM))
    daemon.stop()


@pytest.mark.parametrize("closed", [(2,), (1, 2), (0, 1, 2)], ids=str)
def test_a_forwarder_works_where_standard_streams_are_closed(site, job, closed):
    site.services(SERVICE.format("cat"))
    assert forward(site, closed=closed).returncode == 0
    assert [message.text for message in site.all_of("OUT")] == ["job"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_refusal_without_a_stream_to_say_it_on_has_its_status_all_the_same(program, tmp_path):
    assert start(program, "--no-such-option", directory=tmp_path, closed=(0, 1, 2)).returncode == 2


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_the_same_where_python_leaves_docstrings_out(program, tmp_path):
    plain, without = (start(program, "--help", directory=tmp_path, options=options) for options in ([], ["-OO"]))
    assert (without.returncode, without.stdout) == (plain.returncode, plain.stdout)
    assert without.stdout.count("\n") > 5


def test_so_is_the_help_of_all_commands_of_the_shell(tmp_path):
    shown = []
    for options in ([], ["-OO"]):
        done = start("qmadmin.program", "QUE", "-c", "help", "-c", "help qlist", directory=tmp_path, options=options)
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    assert shown[0] == shown[1]


def test_a_forwarder_works_where_python_leaves_docstrings_out(site, job):
    site.services(SERVICE.format("cat"))
    assert forward(site, options=["-OO"]).returncode == 0
    assert [message.text for message in site.all_of("OUT")] == ["job"]
