"""Devices that have moved while a transaction over several volumes was in doubt, or one of them was to be told."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from qmadmin.moved_devices import now_at
from qmadmin.opening import open_device
from qmcore.attached import DeciderReach
from tests.fix_crashes import die_deciding
from tests.fix_distributed import ENDS
from tests.fix_store import drain, eventually


def move(old, new):
    for end in ENDS:
        if Path(old + end).exists():
            Path(old + end).rename(new + end)


@pytest.fixture
def say(tmp_path, monkeypatch):
    """Say in the settings where devices are now."""
    file = tmp_path / "settings.toml"

    def write(*moves, mode=0o600):
        file.write_text("[recovery]\nmoved = [" + ", ".join(f'"{old} -> {new}"' for old, new in moves) + "]\n")
        file.chmod(mode)
        monkeypatch.setenv("QMADMIN_TOML", str(file))

    return write


def left(pair, start, tmp_path, event):
    """Leave a transaction whose coordinator has died before or after it was decided, and all is closed."""
    pair.a.enqueue("Q", "x")
    pair.close()
    die_deciding(pair.configs, start, tmp_path, event)


@pytest.mark.parametrize("pair", ["file-file", "file-postgres"], indirect=True)
@pytest.mark.parametrize("event", ["call", "return"])
def test_a_decider_that_has_moved_is_asked_where_it_is_now(pair, start, tmp_path, caplog, say, event):
    left(pair, start, tmp_path, event)
    first, second = pair.configs[0], str(tmp_path / "SECOND")
    move(first, str(tmp_path / "THIRD"))
    with open_device(pair.configs[1]) as device, device.open_space("B") as space:
        eventually(lambda: not space.dequeue("IDLE") and "have to wait for" in caplog.text, "recovery has asked")
        say((second, tmp_path / "THIRD"), (first, second))
        assert [each.reached for each in space.transactions(ask_deciders=True)] == [DeciderReach.YES]
        eventually(lambda: not space.dequeue("IDLE") and not space.transactions(), "the branch has ended")
        assert drain(space, "OUT") == ([] if event == "call" else ["x"])
    with open_device(tmp_path / "THIRD") as device, device.open_space("A") as space:
        assert drain(space) == (["x"] if event == "call" else [])


@pytest.mark.parametrize("pair", ["file-file", "postgres-file"], indirect=True)
def test_a_participant_that_has_moved_is_told_where_it_is_now(pair, start, tmp_path, caplog, say):
    left(pair, start, tmp_path, "return")
    second, moved = pair.configs[1], str(tmp_path / "MOVED")
    move(second, moved)
    with open_device(pair.configs[0]) as device, device.open_space("A") as space:
        eventually(lambda: not space.dequeue("IDLE") and "have to wait for" in caplog.text, "recovery has tried")
        say((second, moved))
        with open_device(moved) as other:
            eventually(lambda: not space.dequeue("IDLE") and not other.transactions("B"), "the branch was told")
            with other.open_space("B") as its:
                assert drain(its, "OUT") == ["x"]


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
def test_settings_that_others_may_write_move_nothing(pair, start, tmp_path, caplog, say):
    left(pair, start, tmp_path, "return")
    move(pair.configs[0], str(tmp_path / "MOVED"))
    say((pair.configs[0], tmp_path / "MOVED"), mode=0o666)
    with contextlib.closing(open_device(pair.configs[1])) as device:
        (info,) = device.transactions("B", ask_deciders=True)
        assert info.reached is DeciderReach.NO
    assert "others may write the settings file" in caplog.text
    move(str(tmp_path / "MOVED"), pair.configs[0])
    pair.open()
    pair.wait_until_settled()


@pytest.mark.parametrize(
    ("moves", "now"),
    [
        ([("A", "B"), ("B", "C")], "C"),
        ([("A", "B"), ("B", "A")], "B"),
        ([("A", "B"), ("B", "C"), ("C", "A")], "B"),
        ([("A", "B"), ("B", "C"), ("C", "B")], "C"),
        ([("A", "A")], "A"),
    ],
)
def test_moves_are_followed_once_each_also_where_devices_have_changed_places(tmp_path, say, moves, now):
    say(*((tmp_path / old, tmp_path / new) for old, new in moves))
    assert now_at(str(tmp_path / "A")) == str(tmp_path / now)
