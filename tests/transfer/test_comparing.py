"""What a device has is compared with an archive both ways: nothing is missing there, and nothing is there besides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmadmin.archive.manifest import Content
from qmadmin.console import archives
from qmadmin.console.results import Severity
from qmadmin.device import Device
from qmadmin.opening import create_device, open_device
from qmadmin.transfer.comparing import Difference, compare
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.message import State
from qmcore.times import MICROS
from tests.fix_store import MovableClock, make_queue, space_definition

PAGE = 4096
YEARS = 365 * 86_400


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A device with messages in queue A, on disk and in memory, and none in B."""
    with create_device(tmp_path / "DEVICE", 20_000) as made:
        made.create_space(space_definition("ONE", memory=100 * PAGE))
        with made.open_space("ONE") as space:
            make_queue(space, "A")
            make_queue(space, "B")
            space.enqueue_many("A", [b"1", b"2", b"3"])
            space.enqueue("A", b"4", persistent=False)
        yield made


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Device]:
    with create_device(tmp_path / "EMPTY", 20_000) as made:
        yield made


@pytest.fixture
def archive(device: Device, tmp_path: Path) -> Path:
    export(device.config, tmp_path / "archive")
    return tmp_path / "archive"


def differences(archive: Path, device: Device, **more: object) -> dict[str, str]:
    """Return what differs, by whose it is."""
    found = compare(archive, device.config, **{"alone": True, **more})  # type: ignore[arg-type]
    return {each.whose: each.sentence for each in found.differences}


def test_nothing_differs_from_what_was_exported(archive: Path, device: Device) -> None:
    assert differences(archive, device) == {}


def test_messages_that_only_the_device_has_are_a_difference(archive: Path, device: Device) -> None:
    with device.open_space("ONE") as space:
        space.enqueue("A", b"later", delay=60)
        space.enqueue("B", b"strange")
        space.enqueue("B", b"strange too", persistent=False)
        space.enqueue("B", b"and another", persistent=False)
    found = compare(archive, device.config, alone=True).differences
    assert found == (
        Difference("ONE", "A", State.DELAYED, False, "0 messages in the archive, 1 on the device"),
        Difference("ONE", "B", State.READY, False, "0 messages in the archive, 1 on the device"),
        Difference("ONE", "B", State.READY, True, "0 messages in the archive, 2 on the device"),
    )
    assert found[0].whose == "queue 'A' of queue space 'ONE', delayed"


def test_messages_that_only_the_device_has_are_none_where_others_may_be_in_the_queues(
    archive: Path, device: Device
) -> None:
    with device.open_space("ONE") as space:
        space.enqueue("A", b"later", delay=60)
        space.enqueue("B", b"strange")
    assert differences(archive, device, alone=False) == {}


@pytest.fixture
def ageing(tmp_path: Path) -> Iterator[Device]:
    """A device, left alone for years, with messages whose time has come and others."""
    with create_device(tmp_path / "AGEING", 20_000, clock=MovableClock(1_600_000_000 * MICROS)) as made:
        made.create_space(space_definition("ONE", memory=100 * PAGE))
        with made.open_space("ONE") as space:
            make_queue(space, "ERRORS")
            make_queue(space, "A", error_queue="ERRORS", keep_expired=True, order="priority")
            make_queue(space, "KEPT", retention=3600)
            space.enqueue("ERRORS", b"old")
            space.enqueue("KEPT", b"consumed")
            assert space.dequeue("KEPT") is not None
            for persistent in (True, False):
                space.enqueue("A", b"lasting", persistent=persistent)
                space.enqueue("A", b"soon", delay=60, priority=90, persistent=persistent)
                space.enqueue("A", b"in years", delay=60 * YEARS, persistent=persistent)
                space.enqueue("A", b"short-lived", expires_in=60, persistent=persistent)
                space.enqueue("A", b"late and short-lived", delay=30, expires_in=60, persistent=persistent)
    with open_device(tmp_path / "AGEING") as made:
        yield made


def test_what_time_alone_has_made_of_messages_is_no_difference(ageing: Device, tmp_path: Path) -> None:
    export(ageing.config, tmp_path / "archive")
    assert differences(tmp_path / "archive", ageing) == {}
    with ageing.open_space("ONE") as space:
        seen = {queue.name: (usage.ready, usage.delayed) for queue, usage in space.usages()}
        assert seen == {"A": (4, 2), "ERRORS": (5, 0), "KEPT": (0, 0)}
        assert differences(tmp_path / "archive", ageing) == {}
        space.change_priority("A", 10, condition="priority = 90")
        whose = "queue 'A' of queue space 'ONE', ready"
        assert differences(tmp_path / "archive", ageing) == {
            whose: "messages differ",
            f"{whose} in memory": "messages differ",
        }
        space.enqueue("ERRORS", b"new")
        assert differences(tmp_path / "archive", ageing)["queue 'ERRORS' of queue space 'ONE', ready"] == (
            "1 message in the archive, 2 on the device"
        )


@pytest.mark.parametrize("alone", [False, True])
def test_a_queue_that_is_not_there_is_a_difference_also_where_it_is_empty(
    archive: Path, device: Device, alone: bool
) -> None:
    with device.open_space("ONE") as space:
        space.destroy_queue("B")
    assert differences(archive, device, alone=alone) == {
        "queue 'B' of queue space 'ONE'": "there is no queue 'B' in queue space 'ONE' on the device"
    }


@pytest.mark.parametrize("content", [Content.ALL, Content.DEFINITIONS])
def test_a_queue_space_that_is_not_there_is_told_once(
    content: Content, device: Device, empty: Device, tmp_path: Path
) -> None:
    export(device.config, tmp_path / "archive", ExportOptions(selection=ArchiveSelection(content=content)))
    missing = {"queue space 'ONE'": "there is no queue space 'ONE' on the device"}
    assert differences(tmp_path / "archive", empty) == missing
    renamed = {"queue space 'ONE'": "there is no queue space 'NOPE' on the device"}
    assert differences(tmp_path / "archive", device, spaces={"ONE": "NOPE"}) == renamed


def test_an_archive_of_definitions_says_nothing_of_messages(device: Device, tmp_path: Path) -> None:
    definitions = ArchiveSelection(content=Content.DEFINITIONS)
    export(device.config, tmp_path / "archive", ExportOptions(selection=definitions))
    assert differences(tmp_path / "archive", device) == {}


def test_what_is_renamed_is_compared_under_its_names(archive: Path, empty: Device) -> None:
    assert load_archive(archive, empty.config).messages == 4
    missing = "there is no queue 'C' in queue space 'ONE' on the device"
    assert differences(archive, empty, queues={"B": "C"}) == {"queue 'B' of queue space 'ONE'": missing}


def test_each_difference_is_told_in_a_row_of_its_own(archive: Path, device: Device) -> None:
    with device.open_space("ONE") as space:
        space.enqueue("A", b"strange", persistent=False)
        space.enqueue("A", b"later", delay=60)
        space.destroy_queue("B")
    told = archives.compared(compare(archive, device.config, alone=True), with_device=True)
    assert [row[:-1] for row in told.queues.rows] == [
        ("A", "ONE", "ready", "disk", 3, "same"),
        ("A", "ONE", "ready", "memory", 1, "1 message in the archive, 2 on the device"),
        ("A", "ONE", "delayed", "disk", 0, "0 messages in the archive, 1 on the device"),
        ("B", "ONE", None, None, 0, "there is no queue 'B' in queue space 'ONE' on the device"),
    ]
    assert [notice.severity for notice in told.notices] == [Severity.ERROR] * 3
