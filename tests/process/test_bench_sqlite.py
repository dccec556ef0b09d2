"""The benchmark on SQLite, with numbers so small that they mean nothing."""

import json
from xml.etree import ElementTree as ET

import pytest
from benchmarks.sqlite import program

from tests.benching import bench

KEYS = {"when", "machine", "options", "complete", "subjects", "results"}
RESULT = {
    "row", "title", "unit", "subject", "durability", "values", "against",
    "median", "least", "most", "ratio", "ratio_least", "ratio_most",
}  # fmt: skip


def measured(tmp_path, *arguments, loud=False):
    """Return what was printed, and what was written as JSON; only who is `loud` may speak of what it does."""
    done = bench("--quick", "--directory", tmp_path, "--json", tmp_path / "found", *arguments)
    assert done.returncode == 0, done.stderr
    assert loud or done.stderr == ""
    return done.stdout, json.loads((tmp_path / "found").read_text())


def of_row(found, row):
    return {result["subject"]: result for result in found["results"] if result["row"] == row}


def test_rows_are_measured_with_those_that_they_are_compared_with(tmp_path):
    printed, found = measured(tmp_path, "--no-peers", "--rows", "transaction,processes_p99", "--rounds", "2")
    assert found.keys() == KEYS
    assert all(result.keys() == RESULT for result in found["results"])
    assert found["complete"] is True
    assert {result["row"] for result in found["results"]} == {
        "enqueue", "transaction", "processes", "processes_p50", "processes_p99",
    }  # fmt: skip
    transaction = of_row(found, "transaction")["qmadmin"]
    assert (len(transaction["values"]), transaction["against"]) == (2, "enqueue of raw")
    assert of_row(found, "enqueue")["raw"]["ratio"] == 1
    assert "transaction: dequeue, enqueue a reply" in printed


def test_each_row_says_what_a_power_failure_would_leave(tmp_path):
    _, found = measured(tmp_path, "--no-peers", "--rows", "enqueue,enqueue_relaxed")
    assert {result["durability"] for result in of_row(found, "enqueue").values()} == {"1 synced commit"}
    assert {result["durability"] for result in of_row(found, "enqueue_relaxed").values()} == {"- (not synced)"}


def test_other_queues_that_cannot_be_installed_are_left_out_with_the_reason(tmp_path):
    (tmp_path / "file").touch()
    done = bench("--quick", "--directory", tmp_path, "--rows", "enqueue", "--peers", tmp_path / "file" / "venv")
    assert done.returncode == 0, done.stderr
    assert "other queues: left out: " in done.stdout


def test_the_rows_are_listed_by_their_groups():
    done = bench("--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in program.GROUPS)
    assert all(row.name in done.stdout for row in program.ROWS)


def test_a_row_that_there_is_not_is_refused_and_the_list_is_named():
    done = bench("--rows", "enqueue,speed")
    assert done.returncode == 2
    assert "no such row or group: speed; scripts/bench --list names them" in done.stderr


def test_a_result_is_shown_again_as_tables_for_the_readme_and_as_a_chart(tmp_path):
    measured(tmp_path, "--no-peers", "--rows", "transaction,wake_p50")
    done = bench("--show", tmp_path / "found", "--markdown", "--chart", tmp_path / "chart.svg")
    assert (done.returncode, done.stderr) == (0, "")
    heads = [line for line in done.stdout.splitlines() if line.startswith("|") and "qmadmin" in line]
    assert [[cell.strip() for cell in head.strip("|").split("|")] for head in heads] == [
        ["", "raw, a second", "qmadmin"],
        ["", "qmadmin", "ratio, or others"],
    ]
    picture = ET.parse(tmp_path / "chart.svg").getroot()
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 2
    assert all(title.startswith("qmadmin: ") for title in titles)


def test_a_result_that_is_not_there_is_refused(tmp_path):
    done = bench("--show", tmp_path / "nothing")
    assert done.returncode == 2
    assert done.stderr == f"scripts/bench: there is no result in {tmp_path}/nothing; --json writes one\n"


def test_a_directory_that_there_is_not_is_refused(tmp_path):
    done = bench("--directory", tmp_path / "nothing")
    assert done.returncode == 2
    assert f"no such directory: {tmp_path}/nothing" in done.stderr


def test_workers_are_measured_beside_what_they_are_compared_with_and_ours_loses_nothing(tmp_path):
    _, found = measured(tmp_path, "--no-peers", "--rows", "consumer_1,enqueue_in_tasks,worker_killed")
    for row, other in (("consumer_1", "forwarder_1"), ("enqueue_in_tasks", "enqueue_awaited")):
        assert of_row(found, row)["qmadmin"]["against"] == f"{other} of qmadmin"
        assert of_row(found, row)["qmadmin"]["ratio"] > 0
    assert of_row(found, "worker_killed")["qmadmin"]["values"] == [0]


@pytest.mark.slow
def test_other_queues_are_installed_and_measured_beside_ours(tmp_path):
    rows = "transaction,processes,working"
    printed, found = measured(tmp_path, "--rows", rows, "--peers", tmp_path / "venv", loud=True)
    if "other queues: left out" in printed:
        pytest.skip("the other queues cannot be installed from here")
    peers = {"huey", "persist-queue", "litequeue"}
    assert of_row(found, "transaction").keys() == {"qmadmin", *peers}
    assert of_row(found, "processes").keys() == {"raw", "qmadmin", *peers}
    assert of_row(found, "worker_1").keys() == {"qmadmin", "huey"}
    # What it was at work on when it was killed.
    assert 1 <= of_row(found, "worker_killed")["huey"]["median"] <= 10


@pytest.mark.slow
def test_every_row_is_measured(tmp_path):
    _, found = measured(tmp_path, "--no-peers")
    assert {result["row"] for result in found["results"]} == {row.name for row in program.ROWS}
