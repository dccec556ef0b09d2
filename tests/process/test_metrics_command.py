"""`qmadmin --metrics`: the figures of queue spaces once, as a text for Prometheus."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

import qmadmin
from tests.fix_store import SOURCES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with qmadmin.open_device(tmp_path / "QUE", create=True) as device:
        for name in ("ONE", "TWO"):
            device.create_space(name, pages=1000, queues=10)
            with device.open_space(name) as space:
                space.create_queue("orders")
                space.enqueue("orders", name)
    return tmp_path


def ran(place: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": SOURCES, **variables}
    command = [sys.executable, "-m", "qmadmin.program", "--metrics", *arguments]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=120)


def values(text: str, name: str) -> dict[str, float]:
    """Return the values of a metric by queue space."""
    return {
        sample.labels["space"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels.get("queue", "orders") == "orders"
    }


def test_all_queue_spaces_are_told(place: Path) -> None:
    done = ran(place, "QUE")
    assert (done.returncode, done.stderr) == (0, "")
    assert values(done.stdout, "qmadmin_space_up") == {"ONE": 1, "TWO": 1}
    assert values(done.stdout, "qmadmin_queue_ready_messages") == {"ONE": 1, "TWO": 1}
    assert "process_" not in done.stdout


def test_one_is_told_if_it_is_named_and_the_device_may_come_from_the_environment(place: Path) -> None:
    done = ran(place, "-s", "TWO", QMCONFIG=str(place / "QUE"))
    assert (done.returncode, done.stderr) == (0, "")
    assert values(done.stdout, "qmadmin_queue_enqueued_messages_total") == {"TWO": 1}


def test_a_queue_space_that_is_missing_is_refused_in_a_sentence(place: Path) -> None:
    done = ran(place, "-s", "THREE", "QUE")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ERROR: ")
    assert "'THREE'" in done.stderr.splitlines()[0]


def test_a_device_that_is_missing_is_refused_in_a_sentence(place: Path) -> None:
    done = ran(place, "NONE")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ERROR: ")
    assert not (place / "NONE").exists()


def test_a_queue_space_on_a_lost_file_is_told_as_not_up_beside_the_others(place: Path) -> None:
    with qmadmin.open_device(place / "QUE") as device:
        free = sum(each.pages for each in device.free_ranges(0))
        device.create_space("REST", pages=free - free % 4, queues=10)
        device.create_entry(place / "MORE", 0, 400)
        device.create_space("LOST", pages=400, queues=10)
    (place / "MORE").unlink()
    done = ran(place, "QUE")
    assert done.returncode == 1
    assert done.stderr.startswith("ERROR: the figures of queue space 'LOST' cannot be read: ")
    assert values(done.stdout, "qmadmin_space_up") == {"LOST": 0, "ONE": 1, "REST": 1, "TWO": 1}


@pytest.mark.parametrize("other", [["-c", "qlist"], ["--mib", "T_APPQ"], ["--upgrade"]])
def test_it_is_not_combined_with_other_work(place: Path, other: list[str]) -> None:
    done = ran(place, *other, "QUE")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Options {other[0]} and --metrics exclude each other" in done.stderr


def test_figures_are_read_where_as_many_processes_are_attached_as_may_be(place: Path) -> None:
    with qmadmin.open_device(place / "QUE") as device:
        device.create_space("FULL", pages=400, queues=10, processes=1)
        with device.open_space("FULL"):
            done = ran(place, "-s", "FULL", "QUE")
    assert done.returncode == 0, done.stderr
    assert values(done.stdout, "qmadmin_space_limit_processes") == {"FULL": 1}
