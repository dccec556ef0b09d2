"""tmqforward --status: who forwards which queues, and how that goes, of daemons that run, were stopped, or died."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest

from qmadmin import QueueDefinition
from qmadmin.forwarder import program
from qmcore.records import Forwarding
from tests.fix_process import environment, eventually

SERVICES = """
[services.STRING]
python = "server:upper"

[services.FAILS]
python = "server:fails"

[services.SLOW]
python = "server:fails"
"""
SERVER = """
def upper(request):
    return request.text.upper()

def fails(request):
    raise ValueError("no such account")
"""
NOT_FORWARDED = 3


@pytest.fixture
def space(site):
    site.services(SERVICES, server=SERVER)
    return site.lay_out("STRING", QueueDefinition(name="FAILS", retries=1), "SLOW", "RPLYQ", "ERRQUE")


@pytest.fixture
def status(site, capsys, monkeypatch):
    """Ask in this process: return the exit status, what was written, and what was complained of."""
    monkeypatch.setenv("QMADMIN_TOML", os.devnull)

    def asked(*arguments):
        exit_status = program.main([str(site.device), "QSPACE", "--status", *arguments])
        written = capsys.readouterr()
        return exit_status, written.out, written.err

    return asked


@pytest.fixture
def forwarders(status):
    """Ask for what programs get: the forwarders of each queue."""

    def asked(*arguments):
        return {
            row["queue"]: row["forwarders"] for row in json.loads(status("--format", "json", *arguments)[1])["rows"]
        }

    return asked


@pytest.mark.parametrize("site", ["file", "postgres"], indirect=True)
def test_a_daemon_at_work_is_told_of_from_its_start_with_what_it_did(site, space, status, forwarders):
    daemon = site.start("-q", "STRING,FAILS", "-i", "1")
    (idle,) = eventually(lambda: forwarders("-q", "FAILS")["FAILS"], "its first figures")
    assert (idle["pid"], idle["process"], idle["alive"], idle["calls"]) == (daemon.pid, "tmqforward", True, 0)
    for text in ("one", "two", "three"):
        space.enqueue("STRING", text, reply_queue="RPLYQ" if text != "three" else "GONE")
    space.enqueue("FAILS", "poison")
    eventually(lambda: space.usage("ERRQUE").messages, "the end of its tries")
    told = eventually(
        lambda: (found := forwarders())["FAILS"][0]["failures"] == 2 and found["STRING"][0]["successes"] == 3 and found,
        "its figures",
    )
    (string,), (fails,) = told["STRING"], told["FAILS"]
    assert (string["calls"], string["failures"], string["dropped_replies"], string["rate"]) == (3, 0, 1, 3)
    assert 0 < string["p50_us"] <= string["p95_us"] <= string["p99_us"]
    assert (fails["calls"], fails["retries"], fails["last_error"]) == (2, 1, "ValueError: no such account")
    assert (string["in_flight"], string["workers"], string["trouble"], string["last_error"]) == (0, 1, None, None)
    assert status("-q", "STRING")[0] == 0
    daemon.stop()
    site.wait_until_alone()
    assert forwarders("-q", "STRING")["STRING"] == []


def test_a_queue_that_nobody_forwards_gives_a_status_of_its_own(site, space, status):
    assert status() == (NOT_FORWARDED, "", "ERROR: no process forwards a queue of queue space 'QSPACE'\n")
    space.report_forwarding([Forwarding(queue="STRING")])
    assert status()[0] == 0
    exit_status, out, err = status("-q", "STRING,SLOW")
    assert (exit_status, err) == (NOT_FORWARDED, "ERROR: no process forwards queue 'SLOW'\n")
    assert out.splitlines()[1].split()[:2] == ["STRING", str(os.getpid())]


def test_a_document_says_that_a_queue_is_not_forwarded(site, space, status):
    exit_status, out, _ = status("-q", "SLOW", "--format", "json")
    document = json.loads(out)
    assert (exit_status, document["ok"], document["rows"]) == (
        NOT_FORWARDED,
        False,
        [{"queue": "SLOW", "forwarders": []}],
    )
    assert document["notices"][0]["text"] == "no process forwards queue 'SLOW'"


def test_a_queue_that_a_reload_has_left_out_is_forwarded_no_more(site, space, status):
    daemon = site.start()
    eventually(lambda: status("-q", "STRING,FAILS,SLOW")[0] == 0, "its first figures")
    site.services(SERVICES.partition("[services.FAILS]")[0])
    daemon.tell(signal.SIGHUP)
    eventually(lambda: status("-q", "FAILS")[0] == NOT_FORWARDED, "the reload")
    assert status("-q", "STRING")[0] == 0


def test_a_daemon_that_was_killed_forwards_nothing(site, space, status):
    daemon = site.start("-q", "STRING")
    eventually(lambda: status("-q", "STRING")[0] == 0, "its first figures")
    daemon.tell(signal.SIGKILL)
    daemon.wait()
    exit_status, out, err = status("-q", "STRING")
    assert (exit_status, err) == (NOT_FORWARDED, "ERROR: no process forwards queue 'STRING'\n")
    assert f"tmqforward {daemon.pid} on " in out
    assert out.rstrip().endswith("which is dead")


def test_the_status_takes_no_place_in_the_queue_space_and_changes_nothing(site, space, status):
    before = [str(process) for process in site.administered.attached("QSPACE")]
    space.report_forwarding([Forwarding(queue="STRING")])
    assert status()[0] == 0
    assert [str(process) for process in site.administered.attached("QSPACE")] == before


def test_a_device_that_may_only_be_read_is_read(site, space, status, monkeypatch):
    space.report_forwarding([Forwarding(queue="STRING", calls=7)])
    monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda path, mode: mode == os.R_OK)
    exit_status, out, _ = status("-q", "STRING")
    assert (exit_status, out.splitlines()[1].split()[2]) == (0, "7")


def test_a_pause_and_the_last_error_are_told_beneath_the_table(site, space, status):
    space.report_forwarding(
        [Forwarding(queue="STRING", last_error="no", last_error_us=0, paused_until_us=10**6, trouble="down")]
    )
    _, out, _ = status()
    me = os.getpid()
    assert [re.sub(r"\d{4}-\d\d-\d\d [\d:]+ [+-]\d{4}", "THEN", line) for line in out.splitlines()[3:]] == [
        f"STRING ({me}): paused until THEN: down",
        f"STRING ({me}): last error at THEN: no",
    ]


def test_an_error_for_which_a_queue_is_paused_is_told_once_beneath_the_table(site, space, status):
    space.report_forwarding(
        [Forwarding(queue="STRING", last_error="down", last_error_us=0, paused_until_us=10**6, trouble="down")]
    )
    assert status()[1].count("down") == 1


def test_a_terminal_of_sixty_columns_gets_no_line_that_is_longer(site, space):
    space.report_forwarding(
        [Forwarding(queue="STRING", calls=10**7, last_error="reason " * 30, last_error_us=0, retries=3, p50_us=1500)]
    )
    command = [*site.command()[:3], str(site.device), "QSPACE", "--status", "--format", "table"]
    done = subprocess.run(
        command, env=environment(COLUMNS="60"), capture_output=True, text=True, check=False, timeout=240
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0], max(map(len, lines)) <= 60) == (0, "STRING", True)
    assert "  Process: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["QSPACE", "--status", "-q", "NOPE"], "there is no queue 'NOPE' in queue space 'QSPACE'"),
        (["NOSPACE", "--status"], "there is no queue space 'NOSPACE' on the device"),
        (["QSPACE", "-q", "STRING", "--format", "json"], "--format is for --status"),
        (["QSPACE", "--status", "--format", "xml"], "Invalid value for '--format'"),
    ],
)
def test_what_has_no_meaning_is_refused(site, space, capsys, arguments, sentence):
    assert program.main([str(site.device), *arguments]) == 2
    assert f"ERROR: {sentence}" in capsys.readouterr().err
