"""Parked messages in archives: delayed until a time that never comes, and parked again where they are imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmadmin.device import Device
from qmadmin.opening import create_device
from qmadmin.transfer import Local
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer.moving import move
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.imports import TimePolicy, Times
from qmcore.message import State
from qmcore.times import MICROS, to_datetime
from tests.fix_store import make_queue, space_definition

REASON = "no price yet"
DAY = 86_400 * MICROS


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A device with a ready, a delayed and a parked message, and one that its sender has parked, on disk and memory."""
    with create_device(tmp_path / "DEVICE", 20_000) as made:
        made.create_space(space_definition("ONE", memory=100 * 4096))
        with made.open_space("ONE") as space:
            make_queue(space, "Q")
            for persistent in (True, False):
                space.enqueue("Q", "parked", persistent=persistent)
                with space.transaction() as transaction:
                    space.dequeue("Q")
                    transaction.rollback(REASON, park=True)
            space.enqueue("Q", "by its sender", available_at=to_datetime(253_402_300_799 * MICROS))
            space.enqueue("Q", "later", delay=3600)
            space.enqueue("Q", "now")
        yield made


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Device]:
    with create_device(tmp_path / "EMPTY", 20_000) as made:
        yield made


def standing(device: Device) -> list[tuple[str, State, str]]:
    """Return the messages, their states, and why they are parked."""
    with device.open_space("ONE") as space:
        found = [(space.content(info), info) for info in space.messages("Q")]
        return sorted((message.text, info.state, info.last_error) for message, info in found if message)


WHOLE = [
    ("by its sender", State.PARKED, ""),
    ("later", State.DELAYED, ""),
    ("now", State.READY, ""),
    ("parked", State.PARKED, REASON),
    ("parked", State.PARKED, REASON),
]


@pytest.mark.parametrize(
    "times",
    [Times(), Times(TimePolicy.SHIFT, by_us=-DAY), Times(TimePolicy.SHIFT, by_us=DAY), Times(TimePolicy.RECOMPUTE)],
)
def test_they_stay_parked_whatever_becomes_of_other_times(
    device: Device, empty: Device, tmp_path: Path, times: Times
) -> None:
    export(device.config, tmp_path / "archive")
    load_archive(tmp_path / "archive", empty.config, ImportOptions(times=times))
    found = standing(empty)
    assert [each for each in found if each[1] is State.PARKED] == [each for each in WHOLE if each[1] is State.PARKED]
    assert len(found) == len(WHOLE)


def test_nothing_differs_from_what_was_exported(device: Device, empty: Device, tmp_path: Path) -> None:
    assert standing(device) == WHOLE
    export(device.config, tmp_path / "archive")
    load_archive(tmp_path / "archive", empty.config)
    assert standing(empty) == WHOLE
    for each in (device, empty):
        assert compare(tmp_path / "archive", each.config, alone=True).differences == ()


@pytest.mark.parametrize(("states", "texts"), [((State.PARKED,), 3), ((State.DELAYED,), 1), ((State.READY,), 1)])
def test_they_are_selected_by_their_state(
    device: Device, empty: Device, tmp_path: Path, states: tuple[State, ...], texts: int
) -> None:
    export(device.config, tmp_path / "archive", ExportOptions(selection=ArchiveSelection(states=states)))
    load_archive(tmp_path / "archive", empty.config)
    found = standing(empty)
    assert {state for _, state, _ in found} == set(states)
    assert len(found) == texts


def test_they_are_moved_with_all_others(device: Device, tmp_path: Path) -> None:
    with create_device(tmp_path / "TARGET", 20_000) as target:
        move(device.config, target.config, tmp_path / "archive", executor=Local())
        assert standing(target) == WHOLE
