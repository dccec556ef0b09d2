"""The benchmark of queues for several consumers, with numbers so small that they mean nothing."""

import json

import pytest

from tests.benching import bench


@pytest.mark.slow
def test_each_row_is_measured_on_a_file(tmp_path):
    done = bench(
        "consumers", "--stores", "sqlite", "-n", "2", "-r", "1", "-d", tmp_path, "--json", tmp_path / "found"
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "found").read_text())
    assert found.keys() == {"when", "machine", "options", "results"}
    assert [row["store"] for row in found["results"]] == ["sqlite"] * 9 + ["sqlite, relaxed"] * 3
    assert all(row["wall"] > 0 and len(row["rounds"]) == 1 for row in found["results"])
    assert all(row["title"] in done.stdout for row in found["results"])
