"""Exports and imports that are killed at each of their stages: they are done again, and everything is there once."""

from __future__ import annotations

import dataclasses
import shutil
import signal
from pathlib import Path

import pytest

from qmadmin.archive.reading import open_archive
from qmadmin.opening import create_device, open_device
from qmadmin.transfer import Local
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.import_planning import Existing, ImportOptions
from qmadmin.transfer.importing import abandon, load_archive
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.errors import BadResourceError, InUseError, InvalidArgumentError
from tests.doom import Doom
from tests.fix_store import make_queue, space_definition

BODIES = {
    "FIRST": {"Q": [f"q{number:05d}" for number in range(4500)], "R": ["r0", "r1"]},
    "SECOND": {"S": [f"s{number}" for number in range(10)]},
}
"""Three parts, and as many steps of a merge."""

EXPORTING, WRITING = "qmadmin.transfer.exporting", "qmadmin.archive.writing"
IMPORTING, ACTS = "qmadmin.transfer.importing", "qmcore.acts.importing"
LIMITS = {"pages": 30_000, "messages": 30_000}


def lay_out(config):
    """Create a device with all of this."""
    with create_device(config, 100_000) as device:
        for name, queues in BODIES.items():
            device.create_space(space_definition(name, **LIMITS))
            with device.open_space(name) as space:
                for queue, bodies in queues.items():
                    make_queue(space, queue)
                    space.enqueue_many(queue, bodies)


@dataclasses.dataclass(frozen=True)
class Stock:
    """A device and an archive of it, which nobody changes, and the messages of its queue spaces."""

    device: Path
    archive: Path
    messages: dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stock")
    device, archive = directory / "QUE", directory / "archive"
    lay_out(str(device))
    export(str(device), archive, executor=Local())
    return Stock(device, archive, {name: contents(device, name) for name in BODIES})


@pytest.fixture
def source(stock, tmp_path):
    """A device with two queue spaces and three queues."""
    shutil.copy(stock.device, tmp_path / "QUE")
    return str(tmp_path / "QUE")


def contents(config, name):
    """Return the identifiers of the messages of each queue that can be seen, in their order."""
    with open_device(config) as device, device.open_space(name) as space:
        return {queue.name: [message.msgid for message in space.messages(queue.name)] for queue in space.queues()}


def faults(config):
    with open_device(config) as device:
        return [
            f.sentence for space in device.spaces() for f in device.check(space.name) if f.severity.value == "error"
        ]


def takes_messages(config):
    """Prove that somebody can work there."""
    with open_device(config) as device, device.open_space("FIRST") as space:
        space.enqueue("R", "more")
        assert [m.text for m in space.dequeue_many("R", 10)] == ["r0", "r1", "more"]


class TestExport:
    @pytest.mark.parametrize(
        "doom",
        [
            Doom("qmadmin.transfer.snapshot:SnapshotReader.begin"),
            Doom("qmadmin.transfer.snapshot:SnapshotReader.begin", "return"),
            Doom(f"{WRITING}:ArchiveWriter.create", "return"),
            Doom("qmadmin.archive.writing:PartWriter.write", "return"),
            Doom("qmadmin.archive.writing:PartWriter.close"),
            Doom("qmadmin.transfer.units:write_part", "return"),
            Doom("qmadmin.transfer.units:write_part", time=3),
            Doom(f"{WRITING}:ArchiveWriter.finish"),
            Doom(f"{WRITING}:_put_in_place", "return", 2),
            Doom("qmadmin.archive.file_systems:Directory.write", "return", 2),
            Doom(f"{WRITING}:_replace", "return"),
            Doom("qmadmin.archive.file_systems:Directory.write", "return", 3),
        ],
        ids=str,
    )
    def test_an_export_that_was_killed_is_no_archive_and_is_begun_again(self, doomed, source, tmp_path, doom):
        archive = tmp_path / "archive"
        doomed.run(doom, export, source, archive, executor=Local())
        if archive.exists():
            with pytest.raises(BadResourceError):
                open_archive(archive)
        if archive.exists() and any(archive.iterdir()):
            with pytest.raises(InUseError, match="was not finished"):
                export(source, archive)
        export(source, archive, ExportOptions(again=True), executor=Local())
        assert not [path.name for path in archive.iterdir() if path.name.startswith(".")]
        assert compare(archive, source).differences == ()
        takes_messages(source)

    @pytest.mark.parametrize(
        "doom",
        [Doom(f"{WRITING}:_replace", "return", 2), Doom(f"{WRITING}:ArchiveWriter.finish", "return")],
        ids=str,
    )
    def test_one_that_was_killed_behind_its_manifest_is_an_archive(self, doomed, source, tmp_path, doom):
        archive = tmp_path / "archive"
        doomed.run(doom, export, source, archive, executor=Local())
        assert compare(archive, source).differences == ()
        with pytest.raises(InUseError, match="holds an archive already"):
            export(source, archive, ExportOptions(again=True))


BEGINNING = [
    Doom("qmadmin.device:Device.create_space", "return"),
    Doom(f"{ACTS}:begin", "return"),
    Doom(f"{IMPORTING}:_Begun.__init__", "return"),
    Doom(f"{IMPORTING}:_load"),
]
LOADING = [
    Doom(f"{ACTS}:_load", "return"),
    Doom(f"{ACTS}:load_batch", "return"),
    Doom(f"{ACTS}:load_batch", "return", 2),
    Doom("qmadmin.transfer.units:load_part", "return", 2),
    Doom(f"{IMPORTING}:_load", "return"),
    Doom(f"{ACTS}:publish"),
    Doom(f"{ACTS}:publish", "return"),
]
PUBLISHED = [
    Doom(f"{IMPORTING}:_Begun.publish", "return"),
    Doom(f"{ACTS}:publish", time=2),
    Doom(f"{ACTS}:publish", "return", 2),
]
MERGING = [
    Doom("qmcore.acts.import_merge:merge"),
    Doom("qmcore.acts.import_merge:merge", "return"),
    Doom("qmcore.acts.import_merge:merge", time=2),
    Doom("qmcore.acts.import_merge:merge", "return", 2),
]


class TestImport:
    @pytest.fixture
    def archive(self, stock):
        return stock.archive

    @pytest.fixture
    def there(self, tmp_path):
        with create_device(tmp_path / "NEW", 100_000) as device:
            return device.path

    @pytest.mark.parametrize("doom", [*BEGINNING, *LOADING], ids=str)
    def test_nobody_sees_anything_of_an_import_that_was_killed_and_it_goes_on(
        self, doomed, archive, there, stock, doom
    ):
        doomed.run(doom, load_archive, archive, there, executor=Local())
        with open_device(there) as device:
            assert [queue.name for space in device.spaces() for queue in device.queues(space.name)] == []
        assert faults(there) == []
        load_archive(archive, there, executor=Local())
        self.is_all_there(archive, there, stock)

    def is_all_there(self, archive, there, stock):
        assert {name: contents(there, name) for name in BODIES} == stock.messages
        assert compare(archive, there).differences == ()
        assert faults(there) == []
        with pytest.raises(InvalidArgumentError):
            load_archive(archive, there)
        with pytest.raises(InvalidArgumentError, match="was imported into this queue space before"):
            load_archive(archive, there, ImportOptions(existing=Existing.APPEND))

    @pytest.mark.parametrize("doom", PUBLISHED, ids=str)
    def test_queue_spaces_that_were_published_stay_and_the_others_follow(self, doomed, archive, there, stock, doom):
        doomed.run(doom, load_archive, archive, there, executor=Local())
        assert contents(there, "FIRST") == stock.messages["FIRST"]
        assert contents(there, "SECOND") == {}
        load_archive(archive, there, executor=Local())
        self.is_all_there(archive, there, stock)

    @pytest.mark.parametrize("doom", [LOADING[1], PUBLISHED[-1]], ids=str)
    def test_one_of_selected_messages_goes_on_although_they_are_counted_again(
        self, doomed, archive, there, stock, doom
    ):
        some = ImportOptions(selection=ArchiveSelection(count=3))
        doomed.run(doom, load_archive, archive, there, some, executor=Local())
        found = load_archive(archive, there, some, executor=Local())
        assert (found.messages, [space.resumed for space in found.spaces]) == (8, [True, True])
        assert {name: contents(there, name) for name in BODIES} == {
            name: {queue: ids[:3] for queue, ids in queues.items()} for name, queues in stock.messages.items()
        }
        with pytest.raises(InvalidArgumentError):
            load_archive(archive, there, some)

    @pytest.mark.parametrize("doom", [BEGINNING[1], LOADING[2], LOADING[-1]], ids=str)
    def test_one_that_was_killed_can_be_given_up_and_leaves_nothing(self, doomed, archive, there, stock, doom):
        doomed.run(doom, load_archive, archive, there, executor=Local())
        with open_device(there) as device:
            names = [space.name for space in device.spaces()]
        for name in names:
            abandon(there, name)
            with open_device(there) as device:
                assert device.space_usage(name).messages == 0
                device.destroy_space(name)
        load_archive(archive, there, executor=Local())
        self.is_all_there(archive, there, stock)

    @pytest.mark.matrix
    @pytest.mark.parametrize("existing", [Existing.APPEND, Existing.REPLACE], ids=lambda value: value.value)
    @pytest.mark.parametrize("doom", [LOADING[1], LOADING[-1], PUBLISHED[-1], *MERGING], ids=str)
    def test_what_is_appended_or_replaced_is_so_once_although_it_was_killed(
        self, doomed, archive, there, stock, doom, existing
    ):
        with open_device(there) as device:
            device.create_space(space_definition("FIRST", **LIMITS))
            with device.open_space("FIRST") as space:
                make_queue(space, "Q")
                space.enqueue_many("Q", [f"old {number}" for number in range(2100)])
        old = contents(there, "FIRST")["Q"]
        options = ImportOptions(existing=existing)
        doomed.run(doom, load_archive, archive, there, options, executor=Local())
        seen = contents(there, "FIRST")["Q"]
        published = stock.messages["FIRST"]["Q"]
        assert sorted(set(seen)) == sorted(seen)
        assert set(seen) <= {*old, *published}
        if doom in LOADING:
            assert seen == old
        assert faults(there) == []
        load_archive(archive, there, options, executor=Local())
        before = old if existing is Existing.APPEND else []
        assert contents(there, "FIRST")["Q"] == [*before, *published]
        assert contents(there, "SECOND") == stock.messages["SECOND"]
        assert faults(there) == []
        with pytest.raises(InvalidArgumentError, match="was imported into this queue space before"):
            load_archive(archive, there, options)


class TestPostgres:
    """As a program: a process that was forked could not use the threads of what a device on PostgreSQL is."""

    @pytest.mark.parametrize("doom", [LOADING[0], LOADING[-1]], ids=str)
    def test_nobody_sees_anything_of_an_import_that_was_killed_and_it_goes_on(self, doomed, stock, database_url, doom):
        create_device(database_url, 100_000).close()
        assert doomed.program(doom, "import", stock.archive, database_url).returncode == -signal.SIGKILL
        with open_device(database_url) as device:
            assert [queue.name for space in device.spaces() for queue in device.queues(space.name)] == []
        load_archive(stock.archive, database_url, executor=Local())
        assert {name: contents(database_url, name) for name in BODIES} == stock.messages
        assert compare(stock.archive, database_url, executor=Local()).differences == ()
        assert faults(database_url) == []

    @pytest.mark.parametrize("doom", [PUBLISHED[-1], MERGING[-1]], ids=str)
    def test_what_is_appended_is_so_once_although_it_was_killed(self, doomed, stock, database_url, doom):
        with create_device(database_url, 100_000) as device:
            device.create_space(space_definition("FIRST", **LIMITS))
            with device.open_space("FIRST") as space:
                make_queue(space, "Q")
                old = space.enqueue("Q", "old")
        appending = ["--existing", "append"]
        assert doomed.program(doom, "import", *appending, stock.archive, database_url).returncode == -signal.SIGKILL
        load_archive(stock.archive, database_url, ImportOptions(existing=Existing.APPEND), executor=Local())
        assert contents(database_url, "FIRST")["Q"] == [old, *stock.messages["FIRST"]["Q"]]
        assert contents(database_url, "SECOND") == stock.messages["SECOND"]
        assert faults(database_url) == []
