"""Schedules in the shell: what programs get, and what is completed and recorded."""

import json


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
