"""The examples for Spark do what they say."""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest

from qmadmin.device import Device
from qmadmin.transfer.exporting import export
from tests.fix_store import make_queue

EXAMPLES = Path(__file__).parents[2] / "scripts" / "spark" / "examples"


@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*.py"))])
@pytest.mark.parametrize("count", [0, 9])
def test_too_few_or_too_many_arguments_are_told_how_it_is_called(name, count, monkeypatch):
    path = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), *["x"] * count])
    with pytest.raises(SystemExit, match=f"usage: python {name}.py DEVICE"):
        runpy.run_path(str(path), run_name="__main__")


@pytest.fixture
def used(file_device: Device):
    """A device with messages that have waited, come back, and been consumed."""
    with file_device.open_space("SPACE") as space:
        make_queue(space, "KEPT", retention=-1)
        make_queue(space, "TEST")
        for number in range(6):
            space.enqueue("KEPT", f"{number}".encode(), expires_in=0.001 if number == 9 else 3600.0)
            space.enqueue("Q", b"x" * (number + 1))
        for _ in range(4):
            space.dequeue("KEPT")
        for _ in range(2):
            with space.transaction() as transaction:
                space.dequeue("Q")
                transaction.rollback()
    return file_device


@pytest.fixture
def run(spark, capsys):
    """Run an example, and return the rows that it prints."""

    def running(name: str, *arguments: str) -> list[list[str]]:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.main(*arguments)
        rows = [line.strip("|").split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in row] for row in rows[1:]]

    return running


def test_every_example_is_tested():
    told = Path(__file__).read_text()
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(re.findall(r'run\(\s*"(\w+)"', told))


def test_depth_ends_with_what_is_in_each_queue(used: Device, run, tmp_path: Path):
    rows = run("depth_over_time", used.config)
    assert {row[1]: row[3] for row in rows} == {"KEPT": "2", "Q": "6"}
    export(used.config, tmp_path / "archive")
    assert run("depth_over_time", str(tmp_path / "archive")) == rows


def test_ages_are_told_of_each_queue_that_has_messages(used: Device, run):
    rows = run("age_percentiles", used.config)
    assert {row[1]: row[2] for row in rows} == {"KEPT": "2", "Q": "6"}
    assert all(0 <= float(row[3]) <= float(row[6]) for row in rows)


def test_messages_that_came_back_are_told_with_the_limit_of_their_queue(used: Device, run):
    (row,) = run("retry_hot_spots", used.config)
    assert row[:2] == ["SPACE", "Q"]
    assert row[4:8] == ["1", "2", "2", "3"]


def test_the_largest_messages_come_first(used: Device, run):
    rows = run("largest_messages", used.config, "2")
    assert [row[4] for row in rows] == ["6", "5"]
    assert rows[0][6] == "28.6"


def test_a_day_of_the_history_is_replayed_in_the_order_in_which_it_was_consumed(used: Device, run):
    with used.open_space("SPACE") as space:
        space.enqueue("TEST", b"left over")
        day = next(iter(space.history("KEPT"))).consumed_at.date().isoformat()
        run("replay_day", used.config, "SPACE", "KEPT", day, used.config, "SPACE", "TEST")
        assert [message.text for message in space.dequeue_many("TEST", 10)] == ["0", "1", "2", "3"]
        run("replay_day", used.config, "SPACE", "KEPT", "2001-01-01", used.config, "SPACE", "TEST")
        assert space.dequeue_many("TEST", 10) == []
