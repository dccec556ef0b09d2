"""The benchmark on PostgreSQL, with numbers so small that they mean nothing."""

import json

import pytest

from tests.benching import bench

KEYS = {"when", "machine", "server", "options", "complete", "subjects", "results"}
ROW = {
    "measure", "title", "clients", "subject", "durability", "rates", "median", "least", "most", "ratio",
}  # fmt: skip
MEASURES = (
    "answer", "backlog", "dequeue", "dequeue_100", "enqueue", "enqueue_100", "mixed", "worker", "worker_killed",
    "worker_together",
)  # fmt: skip
OURS = ("record_apart", "record_prepared", "record_together")
"""What is measured of qmadmin alone."""
SMALL = ("--clients", "2", "--operations", "10", "--rounds", "1", "--backlog", "30")


def plain(url):
    return url.replace("postgresql+psycopg://", "postgresql://")


def databases(server):
    return server.sql("SELECT datname FROM pg_database WHERE starts_with(datname, 'qmadmin_bench')")


@pytest.mark.slow
def test_each_subject_is_measured_in_every_way(postgres_server, tmp_path):
    done = bench(
        "postgres",
        "--url",
        plain(postgres_server.url()),
        *SMALL,
        "--subjects",
        "hand-written,qmadmin",
        "--json",
        tmp_path / "found",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "found").read_text())
    assert found.keys() == KEYS
    assert found["complete"] is True
    assert [subject["note"] for subject in found["subjects"].values()] == ["", ""]
    for name in ("hand-written", "qmadmin"):
        rows = [row for row in found["results"] if row["subject"] == name]
        ways = sorted((*MEASURES, *(OURS if name == "qmadmin" else ())))
        assert sorted((row["measure"], row["clients"]) for row in rows) == [(measure, 2) for measure in ways]
        assert {len(row["rates"]) for row in rows} == {1}
    assert all(row.keys() == ROW for row in found["results"])
    ratios = {row["measure"]: row["ratio"] for row in found["results"] if row["subject"] == "hand-written"}
    assert ratios == dict.fromkeys(MEASURES, 1.0) | {"worker_killed": None}
    assert {row["median"] for row in found["results"] if row["measure"] == "worker_killed"} == {0.0}
    assert databases(postgres_server) == []
    shown = bench("postgres", "--show", tmp_path / "found", "--markdown")
    assert (shown.returncode, shown.stderr) == (0, "")
    head, *lines = [line for line in shown.stdout.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in head.split("|")] == ["", "", "", "hand-written, a second", "qmadmin", ""]
    assert len(lines) == 1 + len(MEASURES) + len(OURS)


def test_a_result_that_is_not_there_is_refused(tmp_path):
    done = bench("postgres", "--show", tmp_path / "nothing")
    assert (done.returncode, str(tmp_path / "nothing") in done.stderr) == (2, True)


def test_a_subject_whose_packages_are_absent_is_left_out_with_the_reason(postgres_server, tmp_path):
    (tmp_path / "file").touch()
    done = bench(
        "postgres", "--url", plain(postgres_server.url()), *SMALL, "--subjects", "pgqueuer",
        "--peers", tmp_path / "file" / "venv", "--json", tmp_path / "found",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "pgqueuer: left out: " in done.stdout
    found = json.loads((tmp_path / "found").read_text())
    assert found["subjects"]["pgqueuer"]["note"].startswith("left out: ")
    assert found["results"] == []


def test_a_server_that_does_not_answer_is_told_in_one_line(tmp_path):
    done = bench("postgres", "--url", f"postgresql://nobody@/nowhere?host={tmp_path}")
    assert done.returncode == 2
    assert done.stderr.startswith("scripts/bench: ")
    assert (str(tmp_path) in done.stderr, len(done.stderr.splitlines())) == (True, 1)


def test_a_directory_in_memory_is_refused():
    done = bench("postgres", "--directory", "/dev/shm")
    assert (done.returncode, "is in memory" in done.stderr) == (2, True)


def test_a_measure_that_there_is_not_is_refused():
    done = bench("postgres", "--measures", "worker,speed")
    assert (done.returncode, "no such measure: speed" in done.stderr) == (2, True)
