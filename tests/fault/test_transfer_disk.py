"""A disk that is full at either end of an export or import: nothing is half there, and with room it goes on."""

from __future__ import annotations

import contextlib
import random
import shutil

import pytest

from qmadmin.archive.reading import open_archive
from qmadmin.opening import create_device, open_device
from qmadmin.transfer import Local, Processes, importing
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.import_planning import Existing, ImportOptions
from qmadmin.transfer.importing import abandon, load_archive
from qmcore.errors import OperatingSystemError, QueueError
from tests.doom import Doom
from tests.fix_store import make_queue, space_definition

PAGE = 4096
LIMITS = {"pages": 10_000, "messages": 10_000}


def leave(disk, pages):
    """Fill a disk except for so many pages, and return the file that takes the rest."""
    filling = disk / "filling"
    filling.unlink(missing_ok=True)
    free = shutil.disk_usage(disk).free // PAGE - pages
    filling.write_bytes(bytes(free * PAGE))
    assert shutil.disk_usage(disk).free // PAGE == pages
    return filling


def lay_out(path, messages, size):
    with create_device(path, 20_000) as device:
        device.create_space(space_definition(**LIMITS))
        with device.open_space("SPACE") as space:
            make_queue(space, "Q")
            noise = random.Random(7)
            space.enqueue_many("Q", [noise.randbytes(size) for _ in range(messages)])
        return device.path


class TestExport:
    def test_wherever_the_room_ends_there_is_an_archive_or_nothing(self, small_disk, tmp_path):
        source = lay_out(tmp_path / "QUE", 40, 2_000)
        directory, refused, why = small_disk / "archive", 0, ""
        # Each number of pages ends it at another place, the last ones between the parts and the manifest.
        for pages in range(60):
            filling = leave(small_disk, pages)
            try:
                export(source, directory)
            except OperatingSystemError as error:
                refused, why = pages, error.message
                assert [path.name for path in small_disk.iterdir()] == ["filling"]
            else:
                break
        filling.unlink()
        assert refused > 20
        assert "No space left" in why
        assert compare(directory, source).differences == ()

    def test_one_of_several_processes_that_finds_no_room_ends_it(self, small_disk, tmp_path):
        source = lay_out(tmp_path / "QUE", 4_100, 300)
        filling = leave(small_disk, 150)
        with pytest.raises(OperatingSystemError, match="No space left"):
            export(source, small_disk / "archive", executor=Processes(2))
        assert [path.name for path in small_disk.iterdir()] == ["filling"]
        filling.unlink()
        export(source, small_disk / "archive", executor=Local())
        assert compare(small_disk / "archive", source, executor=Local()).differences == ()

    def test_what_was_killed_on_a_full_disk_makes_room_when_it_is_begun_again(self, small_disk, tmp_path, doomed):
        source = lay_out(tmp_path / "QUE", 40, 2_000)
        filling = leave(small_disk, 40)
        place = Doom("qmadmin.archive.writing:_put_in_place")
        doomed.run(place, export, source, small_disk / "archive")
        export(source, small_disk / "archive", ExportOptions(again=True))
        filling.unlink()
        assert open_archive(small_disk / "archive").manifest.messages == 40

    def test_a_source_whose_disk_is_full_is_exported_all_the_same(self, small_disk, tmp_path):
        source = lay_out(small_disk / "QUE", 100, 2_000)
        with open_device(source) as device, device.open_space("SPACE"):
            # Others are at work: without them SQLite has to make files before it can read.
            leave(small_disk, 4)
            export(source, tmp_path / "archive")
        assert open_archive(tmp_path / "archive").manifest.messages == 100


class TestImport:
    @pytest.fixture
    def archive(self, tmp_path):
        source = lay_out(tmp_path / "QUE", 500, 1_500)
        export(source, tmp_path / "archive")
        return tmp_path / "archive"

    @pytest.fixture
    def there(self, small_disk):
        with create_device(small_disk / "NEW", 20_000) as device:
            return device.path

    def visible(self, config):
        with open_device(config) as device:
            return [queue.name for space in device.spaces() for queue in device.queues(space.name)]

    @pytest.mark.parametrize("pages", [0, 8, 30, 60, 120, 200])
    def test_wherever_the_room_ends_nobody_sees_anything_and_it_goes_on(self, small_disk, archive, there, pages):
        filling = leave(small_disk, pages)
        with pytest.raises(OperatingSystemError):
            load_archive(archive, there)
        filling.unlink()
        assert self.visible(there) == []
        load_archive(archive, there)
        assert compare(archive, there).differences == ()

    @pytest.mark.parametrize("pages", [0, 2])
    def test_where_it_ends_before_the_publication_everything_is_seen_or_nothing(
        self, small_disk, archive, there, pages
    ):
        fillings = []

        def fill(step, done, total):
            if step == "Importing" and done == total and not fillings:
                fillings.append(leave(small_disk, pages))

        with contextlib.suppress(OperatingSystemError):
            load_archive(archive, there, progress=fill)
        fillings[0].unlink()
        if self.visible(there) == []:
            assert load_archive(archive, there).spaces[0].resumed
        assert compare(archive, there).differences == ()

    def test_it_can_be_given_up_when_there_is_some_room(self, small_disk, archive, there):
        filling = leave(small_disk, 200)
        with pytest.raises(OperatingSystemError):
            load_archive(archive, there)
        filling.unlink()
        assert abandon(there, "SPACE") == 1
        with open_device(there) as device:
            assert device.space_usage("SPACE").messages == 0
            assert device.space_usage("SPACE").pages == 0

    def test_one_of_several_processes_that_finds_no_room_ends_it(self, small_disk, archive, there):
        filling = leave(small_disk, 200)
        with pytest.raises(OperatingSystemError):
            load_archive(archive, there, executor=Processes(2))
        filling.unlink()
        assert self.visible(there) == []
        assert load_archive(archive, there, executor=Local()).spaces[0].resumed
        assert compare(archive, there).differences == ()

    def test_what_is_appended_is_there_once_although_the_room_ended_in_the_merge(
        self, small_disk, archive, there, monkeypatch
    ):
        monkeypatch.setattr(importing, "MERGED_AT_A_TIME", 60)
        with open_device(there) as device:
            device.create_space(space_definition(**LIMITS))
            with device.open_space("SPACE") as space:
                make_queue(space, "Q")
                old = space.enqueue("Q", "old")
        fillings = []

        def fill_when_published(step, done, total):
            if step == "Importing" and done == total and not fillings:
                fillings.append(leave(small_disk, 12))

        appending = ImportOptions(existing=Existing.APPEND)
        with pytest.raises(QueueError):
            load_archive(archive, there, appending, progress=fill_when_published)
        fillings[0].unlink()
        load_archive(archive, there, appending)
        with open_device(there) as device, device.open_space("SPACE") as space:
            found = [message.msgid for message in space.messages("Q")]
            assert (len(found), len(set(found)), found[0]) == (501, 501, old)


def test_the_log_of_the_destination_stays_short_however_much_is_imported(tmp_path):
    source = lay_out(tmp_path / "QUE", 24, 2**20)
    export(source, tmp_path / "archive")
    with create_device(tmp_path / "NEW", 20_000) as device:
        load_archive(tmp_path / "archive", device.path)
        # It is never made shorter as long as the device is open.
        assert 0 < (tmp_path / "NEW-wal").stat().st_size < 12 * 2**20
