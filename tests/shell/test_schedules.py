"""Schedules in the shell: what programs get, and what is completed and recorded."""

import json

import pytest


def test_programs_get_everything_about_a_schedule_but_its_body(laid_out):
    laid_out.run("qopen QSPACE\nqschedulecreate -p 9 tea STRING 'every 10m' hello")
    (row,) = json.loads(laid_out.run("qopen QSPACE\nformat json\nqschedule tea").out.splitlines()[-1])["rows"]
    made, coming = row.pop("created"), row.pop("next")
    assert made < coming
    assert row == {
        "schedule": "tea",
        "queue": "STRING",
        "rule": "every 10m",
        "timezone": "UTC",
        "missed": "once",
        "state": "started",
        "last": None,
        "last_msgid": None,
        "type": "STRING",
        "priority": 9,
        "size": 5,
    }


def test_a_deletion_is_recorded_with_the_line_that_was_typed(laid_out):
    laid_out.run("qopen QSPACE\nqschedulecreate tea STRING 'every 10m' hello\nqscheduledelete -y tea")
    row = json.loads(laid_out.run("format json\nqaudit").out.splitlines()[-1])["rows"][0]
    assert (row["command"], row["object"], row["outcome"]) == ("qscheduledelete -y tea", "schedule QSPACE/tea", "done")


def test_what_is_done_to_a_schedule_is_recorded_with_the_line_that_was_typed(laid_out):
    lines = [
        "qschedulecreate -P tea STRING 'every 10m' hello",
        "qschedulechange -r 'every 5m' tea",
        "qscheduleresume tea",
        "qschedulepause tea",
    ]
    laid_out.run("\n".join(["qopen QSPACE", *lines]))
    rows = json.loads(laid_out.run("format json\nqaudit").out.splitlines()[-1])["rows"]
    # But for the body, which is nobody else's to read.
    lines[0] = "qschedulecreate -P tea STRING 'every 10m' ***"
    assert [row["command"] for row in reversed(rows)] == lines
    assert [row["outcome"] for row in reversed(rows)] == [
        "created paused: every 10m for queue STRING",
        "changed: every 5m for queue STRING",
        "resumed",
        "paused",
    ]


def test_the_destruction_of_a_queue_names_the_schedules_that_it_leaves_before_and_after(laid_out):
    laid_out.run("qopen QSPACE\nqschedulecreate tea STRING 'every 10m' hello")
    ran = laid_out.run("qopen QSPACE\nqdestroy -n STRING\nqdestroy -y STRING\nqdestroy -y errq")
    assert "Destroy queue 'STRING', and leave schedule 'tea' without a queue" in ran.both
    assert ran.err.count("no message of schedule 'tea' can be enqueued without queue 'STRING'") == 1
    assert "Queue 'errq' destroyed" in ran.out


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        ("qschedulecreate tea STRING 'every 10m' 'every 10m'", "qschedulecreate tea STRING 'every 10m' ***"),
        ("qschedulecreate tea STRING 'every 10m' STRING -p 7", "qschedulecreate tea STRING 'every 10m' *** -p 7"),
        ("qschedulecreate tea STRING 'every 10m' \"\"", "qschedulecreate tea STRING 'every 10m' ***"),
        ("qschedulecreate tea STRING 'every 10m'\nSTRING", "qschedulecreate tea STRING 'every 10m'"),
        ("qschedulecreate -z tea STRING 'every 10m'", "qschedulecreate -z tea STRING 'every 10m'"),
    ],
)
def test_the_text_of_a_schedule_is_not_recorded(laid_out, line, recorded):
    laid_out.run(f"qopen QSPACE\n{line}")
    row = json.loads(laid_out.run("format json\nqaudit").out.splitlines()[-1])["rows"][0]
    assert (row["command"], row["object"]) == (recorded, "schedule QSPACE/tea")
