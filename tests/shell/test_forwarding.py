"""How queues are forwarded, as qinfo shows it in verbose mode and to programs."""

from __future__ import annotations

import csv
import json
import os

import pytest

import qmadmin
from qmadmin.console import formats
from qmadmin.monitoring import forwarding
from qmcore.attached import AttachedProcess
from qmcore.records import Forwarding
from qmcore.times import MICROS

NOON = 1_795_262_400 * MICROS
FIGURES = Forwarding(
    queue="STRING",
    calls=14,
    successes=8,
    failures=3,
    retries=2,
    refused=1,
    dropped_replies=4,
    in_flight=2,
    workers=8,
    rate=5,
    p50_us=1_500,
    p95_us=20_000,
    p99_us=1_200_000,
    last_error="ValueError: no such account",
    last_error_us=NOON,
    paused_until_us=NOON + 30 * MICROS,
    trouble="QMENOSPACE: no room",
    changed_us=NOON + 1,
)
ME = f"tmqforward {os.getpid()} on {os.uname().nodename}"


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def forwarder(laid_out):
    """This process, attached as a forwarder."""
    with qmadmin.open_device(laid_out.device) as device, device.open_space("QSPACE", role="tmqforward") as space:
        yield space


def forwarded(ran):
    """Return the lines of verbose qinfo that tell who forwards the queue, blanks folded."""
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    first = next(at for at, line in enumerate(lines) if line.startswith("Forwarded by"))
    return [line.partition(" since ")[0] if line.startswith("Forwarded") else line for line in lines[first:]]


def test_a_queue_that_is_not_forwarded_says_so(laid_out):
    assert forwarded(laid_out.run("qopen QSPACE\nverbose on\nqinfo STRING\n")) == ["Forwarded by: no process"]


def test_verbose_mode_tells_who_forwards_a_queue_and_all_that_there_is_to_tell(laid_out, forwarder):
    forwarder.report_forwarding([FIGURES])
    assert forwarded(laid_out.run("qopen QSPACE\nverbose on\nqinfo STRING\n")) == [
        f"Forwarded by: {ME}",
        "Calls: 14: 8 done, 3 failed (2 tried again), 1 refused; 2 of 8 running",
        "Rate: 5 a minute; 50 % within 1.5ms, 95 % within 20ms, 99 % within 1.2s",
        "Dropped replies: 4",
        "Last error: 2026-11-21 12:00:00 +0000: ValueError: no such account",
        "Paused until: 2026-11-21 12:00:30 +0000: QMENOSPACE: no room",
    ]


def test_what_has_not_happened_is_not_told(laid_out, forwarder):
    forwarder.report_forwarding([Forwarding(queue="STRING")])
    assert forwarded(laid_out.run("qopen QSPACE\nverbose on\nqinfo STRING\n"))[1:] == [
        "Calls: 0: 0 done, 0 failed; 0 of 1 running",
        "Rate: 0 a minute",
    ]


def test_each_forwarder_of_a_queue_is_told_of(laid_out, forwarder):
    forwarder.report_forwarding([FIGURES])
    with qmadmin.open_device(laid_out.device) as device, device.open_space("QSPACE", role="reserve") as other:
        other.report_forwarding([Forwarding(queue="STRING")])
        told = forwarded(laid_out.run("qopen QSPACE\nverbose on\nqinfo STRING\n"))
    assert [line for line in told if line.startswith("Forwarded")] == [
        f"Forwarded by: {ME}",
        f"Forwarded by: {ME.replace('tmqforward', 'reserve')}",
    ]


def test_programs_get_an_object_for_each_forwarder(laid_out, forwarder):
    forwarder.report_forwarding([FIGURES])
    ran = laid_out.run("format json\nqopen QSPACE\nqinfo\n")
    rows = {row["queue"]: row for row in json.loads(ran.out.splitlines()[-1])["rows"]}
    assert rows["errq"]["forwarders"] == []
    (told,) = rows["STRING"]["forwarders"]
    assert told.pop("since").endswith("Z")
    assert told == {
        "process": "tmqforward",
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "alive": True,
        "calls": 14,
        "successes": 8,
        "failures": 3,
        "retries": 2,
        "refused": 1,
        "dropped_replies": 4,
        "in_flight": 2,
        "workers": 8,
        "rate": 5,
        "p50_us": 1_500,
        "p95_us": 20_000,
        "p99_us": 1_200_000,
        "last_error": "ValueError: no such account",
        "last_error_at": "2026-11-21T12:00:00.000000Z",
        "paused_until": "2026-11-21T12:00:30.000000Z",
        "trouble": "QMENOSPACE: no room",
        "told": "2026-11-21T12:00:00.000001Z",
    }


def test_each_key_that_programs_get_is_explained():
    process = AttachedProcess(pid=7, host="h", role="tmqforward", since_us=NOON, alive=True)
    assert list(forwarding.data([(process, FIGURES)])[0]) == list(forwarding.KEYS)


def test_in_csv_they_are_the_json_in_one_cell(laid_out, forwarder):
    forwarder.report_forwarding([FIGURES])
    ran = laid_out.run("format csv\nqopen QSPACE\nqinfo\n")
    found = {row["queue"]: json.loads(row["forwarders"]) for row in csv.DictReader(ran.out.splitlines())}
    assert (found["errq"], found["STRING"][0]["paused_until"]) == ([], "2026-11-21T12:00:30.000000Z")


def test_a_forwarder_that_died_is_told_as_dead():
    dead = AttachedProcess(pid=7, host="h", role="tmqforward", since_us=NOON, alive=False)
    (line,) = forwarding.sentences([(dead, Forwarding(queue="Q"))])
    assert line.text == "tmqforward 7 on h since 2026-11-21 12:00:00 +0000, which is dead"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_table_and_what_goes_with_it_fit_into_the_terminal(width):
    process = AttachedProcess(pid=4_194_304, host="a-host-of-some-length", role="tmqforward", since_us=NOON, alive=True)
    told = [(process, FIGURES), (process, Forwarding(queue="A.QUEUE.WITH.A.LONG.NAME", calls=10**9))]
    results = [forwarding.table(told), *forwarding.sentences(told)]
    lines = ["".join(part for part, _ in spans) for each in results for spans in formats.lines(each, width)]
    assert max(map(len, lines)) <= width
    assert sum("4194304" in line for line in lines) >= 4
