"""Imports of whole archives: what is refused before anything is changed, and what becomes of names and queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmadmin.archive.manifest import Content
from qmadmin.device import Device
from qmadmin.opening import create_device
from qmadmin.transfer import Local, Processes, exporting, importing
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import ExportOptions, Plan, export
from qmadmin.transfer.import_planning import Existing, ImportOptions
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer.moving import move, remove_exported
from qmadmin.transfer.selecting import ArchiveSelection
from qmadmin.transfer.snapshot import snapshot_of
from qmadmin.transfer.units import ImportUnit
from qmcore.definitions import OpenSpace
from qmcore.device import Extent
from qmcore.errors import BadQueueError, BadResourceError, InUseError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.imports import ImportJob, ImportPlan
from qmcore.port import Unit
from qmcore.purpose import Purpose
from tests.fix_store import drain, make_queue, space_definition


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Device]:
    """A device with two queue spaces, three messages in a queue of each."""
    with create_device(tmp_path / "THERE", 20_000) as device:
        for name in ("ONE", "TWO"):
            device.create_space(space_definition(name, pages=8_000, messages=8_000))
            with device.open_space(name) as space:
                make_queue(space, "A")
                make_queue(space, "B")
                space.enqueue_many("A", [b"1", b"2", b"3"])
        yield device


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Device]:
    with create_device(tmp_path / "HERE", 20_000) as device:
        yield device


@pytest.fixture
def archive(there: Device, tmp_path: Path) -> Path:
    export(there.config, tmp_path / "archive")
    return tmp_path / "archive"


def test_where_the_second_queue_space_does_not_fit_the_first_is_not_made_either(archive: Path, tmp_path: Path) -> None:
    with create_device(tmp_path / "SMALL", 12_000) as small:
        before = small.table_of_contents()
        with pytest.raises(NoSpaceError):
            load_archive(archive, small.config)
        assert small.spaces() == []
        assert small.table_of_contents() == before


def test_a_dry_run_is_refused_as_the_run_would_be(archive: Path, here: Device) -> None:
    here.create_space(space_definition("ONE", messages=5))
    with here.open_space("ONE") as space:
        make_queue(space, "FULL")
        space.enqueue_many("FULL", [b"x"] * 3)
        with pytest.raises(NoSpaceError) as refused:
            load_archive(archive, here.config, dry_run=True)
        assert refused.value.facts["resource"] is Resource.MESSAGES
        assert [queue.name for queue in space.queues()] == ["FULL"]


def test_a_dry_run_changes_nothing_and_tells_what_would_be_imported(archive: Path, here: Device) -> None:
    told = load_archive(archive, here.config, dry_run=True)
    assert (told.messages, [space.name for space in told.spaces]) == (6, ["ONE", "TWO"])
    assert here.spaces() == []


def test_an_import_finishes_a_queue_space_whose_creation_was_cut_short(archive: Path, tmp_path: Path) -> None:
    with create_device(tmp_path / "HERE", 100) as here:
        here.create_entry(tmp_path / "SECOND", 0, 20_000)
        # As an import leaves it that dies between the two files.
        here.volume_of(here.path).write(
            lambda unit: unit.device.add_extents([Extent("ONE", 0, 1, 0, 8_000)]), Purpose.ADMINISTRATION
        )
        told = load_archive(archive, here.config)
        assert told.messages == 6
        with here.open_space("ONE") as space:
            assert space.usage("A").messages == 3


def test_a_device_without_queue_spaces_goes_into_an_archive_and_out_of_it(here: Device, tmp_path: Path) -> None:
    export(here.config, tmp_path / "nothing")
    with create_device(tmp_path / "OTHER", 100) as other:
        told = load_archive(tmp_path / "nothing", other.config)
        assert (told.messages, told.spaces) == (0, ())
        assert compare(tmp_path / "nothing", other.config).differences == ()


def test_the_rate_is_that_of_all_who_have_something_to_do(
    archive: Path, here: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = []

    def load(_crew: object, units: list[tuple[object, ImportUnit]], _progress: object) -> None:
        rates.extend(unit.rate for _, unit in units)
        raise InvalidArgumentError("seen")

    monkeypatch.setattr(importing, "_load", load)
    with pytest.raises(InvalidArgumentError, match="seen"):
        load_archive(archive, here.config, ImportOptions(rate=6.0), executor=Processes(2))
    assert rates == [6.0]


def test_the_rate_of_an_export_is_that_of_all_who_have_something_to_do(there: Device) -> None:
    asked = ExportOptions(rate=6.0)
    with snapshot_of(there, ["ONE", "TWO"], Local()) as (own, _, moment):
        plan = Plan.made(own, ["ONE", "TWO"], asked, moment, 4)
        assert [unit.rate for unit in plan.units(asked, 4)] == [6.0]


@pytest.mark.parametrize("refused", ["ONE", "TWO"])
def test_where_one_of_two_queue_spaces_is_refused_when_it_begins_nothing_is_left_of_either(
    archive: Path, here: Device, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    begin = importing.acts.begin

    def begins(unit: Unit, opened: OpenSpace, plan: ImportPlan, now: int) -> ImportJob:
        if opened.space.name == refused:
            raise InUseError("somebody was faster")
        return begin(unit, opened, plan, now)

    before = here.table_of_contents()
    with monkeypatch.context() as broken:
        broken.setattr(importing.acts, "begin", begins)
        with pytest.raises(InUseError, match="somebody was faster"):
            load_archive(archive, here.config)
    assert (here.spaces(), here.table_of_contents()) == ([], before)
    load_archive(archive, here.config)
    assert compare(archive, here.config).differences == ()


def test_imported_queues_are_stopped_for_dequeuing_unless_they_are_to_start(archive: Path, here: Device) -> None:
    load_archive(archive, here.config, ImportOptions(selection=ArchiveSelection(spaces=("ONE",))))
    load_archive(archive, here.config, ImportOptions(selection=ArchiveSelection(spaces=("TWO",)), start=True))
    with here.open_space("ONE") as one, here.open_space("TWO") as two:
        with pytest.raises(BadQueueError):
            one.dequeue("A")
        assert drain(two, "A") == ["1", "2", "3"]


def test_queue_spaces_and_queues_get_the_names_that_are_given(archive: Path, here: Device) -> None:
    options = ImportOptions(spaces={"ONE": "EINS", "TWO": "ZWEI"}, queues={"A": "X", "TWO/A": "Y"}, start=True)
    load_archive(archive, here.config, options)
    with here.open_space("EINS") as one, here.open_space("ZWEI") as two:
        assert [queue.name for queue in one.queues()] == ["B", "X"]
        assert [queue.name for queue in two.queues()] == ["B", "Y"]
    assert compare(archive, here.config, spaces=options.spaces, queues=options.queues).differences == ()


@pytest.mark.parametrize(
    ("existing", "left"),
    [
        (Existing.SKIP, ["old"]),
        (Existing.REPLACE, ["1", "2", "3"]),
        (Existing.APPEND, ["old", "1", "2", "3"]),
    ],
)
def test_a_queue_that_is_there_is_skipped_replaced_or_appended_to_as_asked(
    existing: Existing, left: list[str], archive: Path, here: Device
) -> None:
    here.create_space(space_definition("ONE"))
    only = ArchiveSelection(spaces=("ONE",), queues=("A",))
    with here.open_space("ONE") as space:
        make_queue(space, "A")
        space.enqueue("A", "old")
        with pytest.raises(InvalidArgumentError, match="exists already"):
            load_archive(archive, here.config, ImportOptions(selection=only))
        load_archive(archive, here.config, ImportOptions(selection=only, existing=existing, start=True))
        assert drain(space, "A") == left


@pytest.mark.parametrize("how", [Existing.REPLACE, Existing.APPEND])
def test_a_queue_for_several_consumers_is_neither_replaced_nor_appended_to(
    archive: Path, here: Device, how: Existing
) -> None:
    here.create_space(space_definition("ONE", pages=8_000, messages=8_000))
    with here.open_space("ONE") as space:
        make_queue(space, "A", multiple_consumers=True)
        space.subscribe("A", "one")
        space.enqueue("A", "old")
        with pytest.raises(InvalidArgumentError, match="queue 'A' is for several consumers"):
            load_archive(archive, here.config, ImportOptions(existing=how))
        assert drain(space, "A:one") == ["old"]


def test_a_queue_does_not_come_by_the_name_of_a_consumer(archive: Path, here: Device) -> None:
    here.create_space(space_definition("ONE", pages=8_000, messages=8_000))
    with here.open_space("ONE") as space:
        make_queue(space, "M", multiple_consumers=True)
        space.subscribe("M", "A")
        with pytest.raises(InvalidArgumentError, match="'M:A' is a consumer of a queue"):
            load_archive(archive, here.config, ImportOptions(queues={"A": "M:A"}))
        assert [queue.name for queue in space.queues()] == ["M"]


def test_the_same_archive_is_not_imported_twice_unless_it_is_to_be(archive: Path, here: Device) -> None:
    only = ArchiveSelection(spaces=("ONE",), queues=("A",))
    load_archive(archive, here.config, ImportOptions(selection=only, start=True))
    another = {"A": "AGAIN"}
    with pytest.raises(InvalidArgumentError, match="imported"):
        load_archive(archive, here.config, ImportOptions(selection=only, queues=another))
    load_archive(archive, here.config, ImportOptions(selection=only, queues=another, again=True, start=True))
    with here.open_space("ONE") as space:
        assert drain(space, "AGAIN") == drain(space, "A") == ["1", "2", "3"]


def test_worker_processes_write_and_load_what_one_process_does(there: Device, here: Device, tmp_path: Path) -> None:
    with there.open_space("ONE") as space:
        space.enqueue_many("B", [str(number) for number in range(5_000)])
    workers = Processes(2)
    exported = export(there.config, tmp_path / "many", executor=workers)
    assert len(exported.manifest.parts) > 1
    load_archive(tmp_path / "many", here.config, executor=workers)
    assert compare(tmp_path / "many", here.config, executor=workers).differences == ()


def test_only_what_is_unchanged_since_the_export_is_removed_from_the_source(there: Device, archive: Path) -> None:
    with there.open_space("ONE") as space:
        assert space.dequeue("A").text == "1"  # type: ignore[union-attr]
        space.enqueue("A", "new")
        transaction = space.transaction()
        with transaction:
            space.dequeue("A")
            transaction.rollback()
        removed = remove_exported(archive, there.config)
        # The second message may be tried no more, and was discarded: the queue has no retries.
        assert (removed.removed, removed.kept) == (4, 2)
        assert drain(space, "A") == ["new"]


def test_a_move_leaves_nothing_at_the_source_and_everything_at_the_destination(
    there: Device, here: Device, tmp_path: Path
) -> None:
    moved = move(there.config, here.config, tmp_path / "way", importing=ImportOptions(start=True))
    assert (moved.removed.removed, moved.removed.kept) == (6, 0)
    with there.open_space("ONE") as left, here.open_space("ONE") as arrived:
        with pytest.raises(BadQueueError):
            left.enqueue("A", "too late")
        assert left.usage("A").messages == 0
        arrived.enqueue("A", "4")
        assert drain(arrived, "A") == ["1", "2", "3", "4"]


def test_a_move_that_is_refused_at_the_destination_leaves_the_source_at_work(there: Device, tmp_path: Path) -> None:
    with create_device(tmp_path / "SMALL", 100) as small, pytest.raises(NoSpaceError):
        move(there.config, small.config, tmp_path / "way")
    with there.open_space("ONE") as space:
        space.enqueue("A", "4")
        assert drain(space, "A") == ["1", "2", "3", "4"]


class TestPickedMessages:
    @pytest.fixture
    def archive(self, there: Device, tmp_path: Path) -> Path:
        with there.open_space("ONE") as space:
            make_queue(space, "P", order="priority")
            for number in range(10):
                space.enqueue(
                    "P", str(number), priority=10 + number, headers={"parity": "odd" if number % 2 else "even"}
                )
            space.enqueue("P", "later", delay=3600, priority=99)
        export(there.config, tmp_path / "archive")
        return tmp_path / "archive"

    @pytest.mark.parametrize(
        ("selection", "left"),
        [
            ({"condition": "priority > 15 AND header.parity = 'odd'"}, ["9", "7"]),
            ({"count": 3}, ["9", "8", "7"]),
            ({"condition": "header.parity = 'even'", "count": 2}, ["8", "6"]),
            ({"older": 0.0, "count": 20}, [str(number) for number in range(9, -1, -1)]),
            ({"newer": 0.0, "older": 1000.0}, []),
            ({"condition": "available_at IS NOT NULL"}, []),
        ],
    )
    def test_only_messages_that_are_picked_are_imported(
        self, selection: dict[str, object], left: list[str], archive: Path, here: Device
    ) -> None:
        asked = ImportOptions(selection=ArchiveSelection(queues=("P",), **selection), start=True)  # type: ignore[arg-type]
        dry = load_archive(archive, here.config, asked, dry_run=True)
        told = load_archive(archive, here.config, asked)
        with here.open_space("ONE") as space:
            assert space.usage("P").messages == told.messages == dry.messages
            assert drain(space, "P") == left
            assert not [found for found in here.check("ONE") if found.severity.value == "error"]

    def test_messages_are_picked_alike_by_an_export_and_by_an_import(
        self, there: Device, here: Device, archive: Path, tmp_path: Path
    ) -> None:
        picked = ArchiveSelection(spaces=("ONE",), queues=("P",), condition="priority BETWEEN 12 AND 99", count=9)
        export(there.config, tmp_path / "picked", ExportOptions(selection=picked))
        load_archive(archive, here.config, ImportOptions(selection=picked))
        assert compare(tmp_path / "picked", here.config).differences == ()

    def test_messages_are_picked_alike_by_what_their_bodies_say(
        self, there: Device, here: Device, tmp_path: Path
    ) -> None:
        with there.open_space("ONE") as space:
            make_queue(space, "J")
            for number in range(4):
                space.enqueue("J", {"a": [number]}, topic="even" if number % 2 == 0 else None)
            space.enqueue("J", '{"a":[2]}')
        export(there.config, tmp_path / "archive")
        picked = ArchiveSelection(spaces=("ONE",), queues=("J",), condition="body.a[0] >= 1 OR topic = 'even'")
        export(there.config, tmp_path / "picked", ExportOptions(selection=picked))
        told = load_archive(tmp_path / "archive", here.config, ImportOptions(selection=picked, start=True))
        assert compare(tmp_path / "picked", here.config).differences == ()
        assert told.messages == 4
        with here.open_space("ONE") as space:
            assert drain(space, "J", condition="body.a[0] < 3") == ['{"a":[0]}', '{"a":[1]}', '{"a":[2]}']


class TestArchivesOfMessages:
    @pytest.fixture
    def archive(self, there: Device, tmp_path: Path) -> Path:
        export(there.config, tmp_path / "archive", ExportOptions(selection=ArchiveSelection(content=Content.MESSAGES)))
        return tmp_path / "archive"

    def test_they_are_not_imported_where_there_is_no_such_queue_space(self, archive: Path, here: Device) -> None:
        with pytest.raises(BadResourceError, match="there is no queue space 'ONE'") as told:
            load_archive(archive, here.config)
        assert told.value.hint == "Import the definitions first, or create it with qspacecreate."
        assert here.spaces() == []

    def test_they_are_not_imported_where_there_is_no_such_queue(self, archive: Path, here: Device) -> None:
        for name in ("ONE", "TWO"):
            here.create_space(space_definition(name))
        with pytest.raises(BadQueueError, match="there is no queue 'A'"):
            load_archive(archive, here.config)

    def test_they_are_appended_to_what_is_there(self, archive: Path, there: Device) -> None:
        only = ImportOptions(selection=ArchiveSelection(spaces=("ONE",), queues=("A",)))
        for expected in (["1", "2", "3"] * 2, ["1", "2", "3"]):
            assert load_archive(archive, there.config, dataclasses.replace(only, again=True)).messages == 3
            with there.open_space("ONE") as space:
                assert drain(space, "A") == expected

    def test_they_follow_definitions_that_are_imported_first(self, archive: Path, here: Device) -> None:
        definitions = ImportOptions(selection=ArchiveSelection(content=Content.DEFINITIONS), start=True)
        assert load_archive(archive, here.config, definitions).messages == 0
        assert load_archive(archive, here.config, ImportOptions(again=True)).messages == 6
        assert compare(archive, here.config, alone=True).differences == ()


@pytest.mark.parametrize("count", [1, 4, 5, 7, 11, 12])
def test_the_first_messages_are_the_same_for_an_export_and_for_an_import_where_some_are_in_memory(
    count: int, there: Device, here: Device, tmp_path: Path
) -> None:
    there.create_space(space_definition("MIX", memory=100 * 4096))
    with there.open_space("MIX") as space:
        make_queue(space, "P", order="priority,fifo")
        for number in range(10):
            space.enqueue("P", str(number), priority=50 + number // 3, persistent=number % 2 == 0)
        for number in range(4):
            space.enqueue("P", "later", delay=3600 - number, persistent=number % 2 == 0)
    picked = ArchiveSelection(spaces=("MIX",), queues=("P",), count=count)
    export(there.config, tmp_path / "all", ExportOptions(selection=ArchiveSelection(spaces=("MIX",))))
    export(there.config, tmp_path / "picked", ExportOptions(selection=picked))
    told = load_archive(tmp_path / "all", here.config, ImportOptions(selection=picked))
    assert told.messages == count
    assert compare(tmp_path / "picked", here.config).differences == ()


def test_the_first_messages_are_shared_among_workers_as_all_are(
    there: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "LEAST_MESSAGES", 10)
    with there.open_space("ONE") as space:
        space.enqueue_many("B", [b"x"] * 100)
    picked = ExportOptions(selection=ArchiveSelection(spaces=("ONE",), queues=("B",), count=90))
    made = export(there.config, tmp_path / "picked", picked, executor=Processes(2)).manifest
    assert [part.rows for part in made.parts] == [12] * 7 + [6]
