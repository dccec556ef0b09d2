"""The device list, and queue spaces in several files."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from qmadmin import mib
from qmadmin.opening import create_device, open_device, restore_device
from qmcore.device import ENTRIES_MAX, Extent, PageRange
from qmcore.errors import BadResourceError, InUseError, InvalidArgumentError, NoSpaceError, QueueError, Resource
from qmcore.findings import Severity
from qmcore.purpose import Purpose
from tests.fix_postgres import but_for_this_server
from tests.fix_store import drain, make_queue, second_volume, space_definition


class TestEntries:
    def test_the_first_entry_is_the_device_itself(self, store):
        (entry,) = store.device.entries()
        assert (entry.index, entry.path, entry.offset, entry.pages) == (0, store.device.path, 0, 20_000)
        assert [row.name for row in store.device.table_of_contents()] == ["VTOC", "UDL"]
        assert store.device.free_ranges(0) == [PageRange(26, 19_974)]

    def test_more_pages_of_the_device_may_be_added(self, store):
        entry = store.device.create_entry(store.device.path, 20_000, 500)
        assert (entry.index, entry.offset, entry.pages) == (1, 20_000, 500)
        assert store.device.free_ranges(1) == [PageRange(20_000, 500)]

    def test_pages_that_are_listed_already_are_refused(self, store):
        with pytest.raises(InvalidArgumentError, match="overlap entry 0"):
            store.device.create_entry(store.device.path, 19_999, 10)
        assert len(store.device.entries()) == 1

    def test_the_26th_entry_is_refused(self, store):
        device = store.device
        for at in range(ENTRIES_MAX - 1):
            device.create_entry(device.path, 20_000 + at, 1)
        with pytest.raises(NoSpaceError) as refusal:
            device.create_entry(device.path, 50_000, 1)
        assert refusal.value.resource is Resource.DEVICE_ENTRIES
        assert [entry.index for entry in device.entries()] == list(range(25))

    def test_an_entry_that_is_removed_leaves_its_index_to_the_next_one(self, store):
        device = store.device
        for at in range(3):
            device.create_entry(device.path, 20_000 + at * 100, 100)
        removed = device.remove_entry(2)
        assert removed.offset == 20_100
        assert [entry.index for entry in device.entries()] == [0, 1, 3]
        assert device.create_entry(device.path, 90_000, 5).index == 2

    def test_an_entry_that_a_queue_space_uses_is_in_use(self, store):
        device = store.device
        device.create_entry(device.path, 20_000, 500)
        store.space("S", pages=20_200)
        with pytest.raises(InUseError, match=r"entry 1 .* is in use by queue space 'S'") as refusal:
            device.remove_entry(1)
        assert refusal.value.facts["spaces"] == ["S"]

    def test_the_first_entry_goes_last(self, store):
        device = store.device
        device.create_entry(device.path, 20_000, 500)
        with pytest.raises(InUseError, match="holds the list itself, which has 1 other entry"):
            device.remove_entry(0)
        device.remove_entry(1)
        device.remove_entry(0)
        assert (device.entries(), device.table_of_contents(), device.spaces()) == ([], [], [])

    def test_an_empty_device_list_is_begun_again_with_the_device_itself(self, store, tmp_path):
        device = store.device
        device.remove_entry(0)
        with pytest.raises(InvalidArgumentError, match="the device list is empty"):
            device.create_space(space_definition())
        with pytest.raises(InvalidArgumentError):
            device.create_entry(tmp_path / "ELSE", 0, 100)
        assert not (tmp_path / "ELSE").exists()
        assert device.create_entry(device.path, 0, 100).index == 0
        assert device.free_ranges(0) == [PageRange(26, 74)]

    @pytest.mark.parametrize("index", [1, -1, 25, 10**9])
    def test_an_index_that_is_not_there_is_named(self, store, index):
        for act in (
            store.device.remove_entry,
            store.device.free_ranges,
            lambda at: store.device.rename_entry(at, "/x"),
        ):
            with pytest.raises(InvalidArgumentError, match=f"has no entry {index}; its entries are 0 to 0"):
                act(index)

    @pytest.mark.parametrize(
        ("offset", "pages"), [(-1, 10), (0, 0), (0, -1), (2**41, 1), (0, 2**41), (0.5, 1), (0, 1.5)]
    )
    def test_numbers_out_of_range_are_refused_before_a_file_is_made(self, file_store, tmp_path, offset, pages):
        with pytest.raises(InvalidArgumentError):
            file_store.device.create_entry(tmp_path / "NEW", offset, pages)
        assert not (tmp_path / "NEW").exists()


class TestRenaming:
    def test_an_entry_gets_another_path(self, file_store, tmp_path):
        device = file_store.device
        device.create_entry(tmp_path / "B", 0, 100)
        assert device.rename_entry(1, tmp_path / "C").path == str(tmp_path / "C")
        assert [entry.path for entry in device.entries()] == [device.path, str(tmp_path / "C")]

    def test_two_entries_may_not_come_to_overlap(self, file_store, tmp_path):
        device = file_store.device
        device.create_entry(tmp_path / "B", 0, 100)
        device.create_entry(tmp_path / "C", 50, 100)
        with pytest.raises(InvalidArgumentError, match="overlap entry 1"):
            device.rename_entry(2, tmp_path / "B")
        assert device.entries()[2].path == str(tmp_path / "C")

    @pytest.mark.parametrize("path", ["", "x" * 2000])
    def test_a_path_that_is_none_is_refused(self, file_store, tmp_path, path):
        device = file_store.device
        device.create_entry(tmp_path / "B", 0, 100)
        if path:
            with pytest.raises(InvalidArgumentError, match="the limit is 1024"):
                device.rename_entry(1, path)
        assert device.entries()[1].path == str(tmp_path / "B")

    def test_a_volume_that_was_moved_is_found_at_its_new_place(self, file_store, tmp_path):
        device = file_store.device
        device.create_entry(tmp_path / "B", 0, 30_000)
        device.create_space(space_definition(pages=25_000))
        with device.open_space("SPACE") as space:
            make_queue(space)
            space.enqueue("Q", "x")
        device.close()
        (tmp_path / "B").rename(tmp_path / "C")
        again = file_store.another()
        with pytest.raises(BadResourceError, match="there is no device"):
            again.open_space("SPACE")
        again.rename_entry(1, tmp_path / "C")
        assert drain(again.open_space("SPACE")) == ["x"]

    def test_a_device_that_was_moved_is_opened_at_its_new_place(self, file_store, tmp_path):
        space = file_store.space()
        make_queue(space)
        space.enqueue("Q", "x")
        file_store.device.close()
        Path(file_store.path).rename(tmp_path / "MOVED")
        with open_device(tmp_path / "MOVED") as device:
            device.rename_entry(0, tmp_path / "MOVED")
            assert drain(device.open_space("SPACE")) == ["x"]


class TestSecondVolume:
    @pytest.fixture
    def device(self, file_store, tmp_path):
        """A device whose second entry is another file, which alone has room for a large queue space."""
        file_store.device.create_entry(tmp_path / "SECOND", 0, 30_000)
        return file_store.device

    def test_its_file_is_made_and_only_its_owner_may_use_it(self, device, tmp_path):
        assert (tmp_path / "SECOND").stat().st_mode & 0o777 == 0o600

    def test_a_queue_space_lives_wholly_in_it(self, device, tmp_path):
        device.create_space(space_definition(pages=25_000))
        assert [(row.name, row.entry) for row in device.table_of_contents()][2:] == [("SPACE.0", 1)]
        with device.open_space("SPACE") as space:
            make_queue(space, retries=1)
            with space.transaction():
                space.enqueue("Q", "x")
            with space.transaction() as transaction:
                space.dequeue("Q")
                transaction.rollback()
            assert space.usage("Q").messages == 1
        assert [space.name for space in device.spaces()] == ["SPACE"]
        with pytest.raises(InUseError):
            device.destroy_space("SPACE")
        device.destroy_space("SPACE", force=True)
        assert device.spaces() == []
        assert device.free_ranges(1) == [PageRange(0, 30_000)]

    def test_what_is_in_it_is_there_again_after_the_device_was_closed(self, file_store, device):
        device.create_space(space_definition(pages=25_000))
        with device.open_space("SPACE") as space:
            make_queue(space)
            space.enqueue("Q", "x")
        device.close()
        assert drain(file_store.another().open_space("SPACE")) == ["x"]

    def test_one_transaction_does_not_reach_over_two_files(self, device):
        from qmcore.errors import ProtocolError

        device.create_space(space_definition("A", pages=25_000))
        device.create_space(space_definition("B", pages=1_000))
        with device.open_space("A") as one, device.open_space("B") as other:
            for space in (one, other):
                make_queue(space)
            with one.transaction():
                one.enqueue("Q", "one")
                with other.transaction():
                    other.enqueue("Q", "other")
            assert (drain(one), drain(other)) == (["one"], ["other"])
            assert issubclass(ProtocolError, Exception)

    def test_a_volume_of_another_device_is_refused(self, file_store, tmp_path):
        create_device(tmp_path / "ANOTHER", 100).close()
        with pytest.raises(BadResourceError, match="belongs to another device"):
            file_store.device.create_entry(tmp_path / "ANOTHER", 0, 100)
        assert len(file_store.device.entries()) == 1

    def test_a_file_that_is_something_else_is_refused_and_left_alone(self, file_store, tmp_path):
        letter = tmp_path / "letter"
        letter.write_text("dear reader\n" * 1000)
        with pytest.raises(BadResourceError, match="is not a qmadmin device"):
            file_store.device.create_entry(letter, 0, 100)
        assert letter.read_text() == "dear reader\n" * 1000
        assert sorted(path.name for path in tmp_path.iterdir() if "letter" in path.name) == ["letter"]

    def test_a_place_where_no_file_can_be_made_is_refused(self, file_store, tmp_path):
        from qmcore.errors import OperatingSystemError

        with pytest.raises(OperatingSystemError, match="nowhere"):
            file_store.device.create_entry(tmp_path / "nowhere" / "B", 0, 100)
        assert len(file_store.device.entries()) == 1

    def test_its_file_that_is_missing_is_named(self, file_store, device, tmp_path):
        device.create_space(space_definition(pages=25_000))
        device.close()
        (tmp_path / "SECOND").unlink()
        again = file_store.another()
        with pytest.raises(BadResourceError, match=r"there is no device '.*/SECOND'"):
            again.open_space("SPACE")
        assert len(again.entries()) == 2

    def test_all_else_goes_on_without_its_file_and_names_it(self, file_store, device, tmp_path):
        device.create_space(space_definition("HERE", pages=40), volume=0)
        device.create_space(space_definition("THERE", pages=25_000))
        device.close()
        second = tmp_path / "SECOND"
        lost = second.rename(tmp_path / "LOST")
        again = file_store.another()
        assert [space.name for space in again.spaces()] == ["HERE"]
        (missing,) = again.missing_volumes()
        assert (missing.path, missing.spaces) == (str(second), ("THERE",))
        assert missing.advice.startswith("Put it back, for example from a backup, or set its new path with chdl.")
        states = {found["TA_APPQSPACENAME"]: found["TA_VOLUMESTATE"] for found in mib.get(again, "T_APPQSPACE")}
        assert states == {"HERE": "PRESENT", "THERE": "MISSING"}
        report = again.backup(tmp_path / "backup", leave_out_missing=True)
        assert [volume.path for volume in report.volumes] == [again.path]
        assert report.faults[0].startswith(f"'{second}' with queue space THERE cannot be opened")
        assert {found.advice for found in again.check() if found.severity is Severity.ERROR} == {missing.advice}
        with pytest.raises(BadResourceError) as refusal:
            again.create_entry(second, 30_000, 100)
        assert refusal.value.hint == missing.advice
        assert not second.exists(), "nothing takes its place"
        again.rename_entry(1, lost)
        assert [space.name for space in again.spaces()] == ["HERE", "THERE"]
        assert again.missing_volumes() == []

    def test_a_queue_space_is_destroyed_though_another_file_is_damaged(self, file_store, device, tmp_path):
        device.create_space(space_definition("HERE", pages=40), volume=0)
        device.close()
        with contextlib.closing(sqlite3.connect(tmp_path / "SECOND", isolation_level=None)) as connection:
            connection.execute("DROP TABLE space")
        again = file_store.another()
        assert again.left_messages("HERE") is None
        again.destroy_space("HERE", dry_run=True)
        again.destroy_space("HERE")
        assert again.spaces() == []

    def test_what_was_missing_is_missing_in_a_device_that_is_restored(self, file_store, device, tmp_path):
        device.create_space(space_definition("THERE", pages=25_000))
        device.close()
        lost = (tmp_path / "SECOND").rename(tmp_path / "LOST")
        file_store.another().backup(tmp_path / "backup", leave_out_missing=True)
        lost.rename(tmp_path / "SECOND")
        (tmp_path / "elsewhere").mkdir()
        restore_device(tmp_path / "backup", tmp_path / "elsewhere" / "QUE")
        with open_device(tmp_path / "elsewhere" / "QUE") as restored:
            assert [missing.path for missing in restored.missing_volumes()] == [str(tmp_path / "elsewhere" / "SECOND")]

    def test_an_entry_is_given_the_path_of_nothing_that_is_not_a_volume_of_the_device(self, device, tmp_path):
        create_device(tmp_path / "ANOTHER", 100).close()
        letter = tmp_path / "letter"
        letter.write_text("dear reader")
        before = device.entries()
        for index in (0, 1):
            for path in (tmp_path / "ANOTHER", letter, tmp_path, "/dev/null"):
                with pytest.raises(BadResourceError):
                    device.rename_entry(index, path)
        assert device.entries() == before
        assert letter.read_text() == "dear reader"
        assert device.rename_entry(1, tmp_path / "later").path == str(tmp_path / "later")
        assert not device.is_there(str(tmp_path / "later"))

    def test_nor_that_of_another_volume_than_its_queue_spaces_are_in(self, device, tmp_path):
        device.create_space(space_definition("THERE", pages=25_000))
        device.create_entry(tmp_path / "THIRD", 60_000, 100)
        with pytest.raises(BadResourceError, match="that another entry of its list names, or a copy of it"):
            device.rename_entry(1, tmp_path / "THIRD", force=True)
        with pytest.raises(InvalidArgumentError, match="overlap entry 0"):
            device.rename_entry(1, device.path, force=True)
        with pytest.raises(BadResourceError, match="that another entry of its list names"):
            device.rename_entry(2, tmp_path / "SECOND", force=True)
        assert [space.name for space in device.spaces()] == ["THERE"]

    def test_a_creation_that_was_cut_short_is_swept_away_by_the_next_one(self, device, tmp_path):
        """The process died after the volume had the queue space and before the table of contents had it."""
        volume = device.volume_of(str(tmp_path / "SECOND"))
        volume.write(lambda unit: unit.spaces.add(space_definition(pages=24_000), "0" * 16, 1), Purpose.ADMINISTRATION)
        assert device.spaces() == []
        device.create_space(space_definition(pages=25_000))
        assert device.space("SPACE").definition.pages == 25_000

    def test_the_same_creation_finishes_one_that_was_cut_short(self, device):
        half = Extent("SPACE", 0, 1, 0, 25_000)
        device.volume_of(device.path).write(lambda unit: unit.device.add_extents([half]), Purpose.ADMINISTRATION)
        device.refuse_space(space_definition(pages=25_000))
        device.create_space(space_definition(pages=25_000))
        assert device.volume_of(device.path).read(lambda unit: unit.device.extents()) == [half]
        with device.open_space("SPACE") as space:
            make_queue(space, retries=1)
            assert space.enqueue("Q", "x")
        with pytest.raises(InvalidArgumentError, match="exists already"):
            device.create_space(space_definition(pages=25_000))

    def test_another_one_is_refused_where_a_creation_was_cut_short(self, device):
        device.volume_of(device.path).write(
            lambda unit: unit.device.add_extents([Extent("SPACE", 0, 1, 0, 25_000)]), Purpose.ADMINISTRATION
        )
        before = device.table_of_contents()
        for call in (device.create_space, device.refuse_space):
            with pytest.raises(InvalidArgumentError, match="with 25000 pages was cut short") as refusal:
                call(space_definition(pages=24_000))
            assert "qspacedestroy" in refusal.value.hint
        assert device.table_of_contents() == before

    def test_what_another_has_finished_meanwhile_stays(self, device, file_store, tmp_path, monkeypatch):
        volume, wanted = device.volume_of(str(tmp_path / "SECOND")), space_definition(pages=25_000)
        write = volume.write

        def finished_by_another(work, purpose):
            monkeypatch.setattr(volume, "write", write)
            file_store.another().create_space(wanted)
            return write(work, purpose)

        monkeypatch.setattr(volume, "write", finished_by_another)
        with pytest.raises(InvalidArgumentError, match="exists already"):
            device.create_space(wanted)
        assert [space.name for space in device.spaces()] == ["SPACE"]

    def test_one_that_is_listed_and_not_recorded_is_no_queue_space_and_can_be_destroyed(self, device, tmp_path):
        """The process died after the table of contents had it and before the volume had."""
        device.create_space(space_definition("OTHER", pages=40), volume=0)
        volume = device.volume_of(str(tmp_path / "SECOND"))
        assert volume.read(lambda unit: unit.spaces.listed()) == []
        device.volume_of(device.path).write(
            lambda unit: unit.device.add_extents([Extent("HALF", 0, 1, 0, 40)]), Purpose.ADMINISTRATION
        )
        assert [space.name for space in device.spaces()] == ["OTHER"]
        assert [found["TA_APPQSPACENAME"] for found in mib.get(device, "T_APPQSPACE")] == ["OTHER"]
        device.destroy_space("HALF")
        assert [row.name for row in device.table_of_contents()][2:] == ["OTHER.0"]


class TestLostVolume:
    """A file or schema that the device list names is gone, and its administrator knows that it never comes back."""

    @pytest.fixture
    def second(self, shared_store, tmp_path):
        """A second volume with two queue spaces that hold a message each, which the first one has no room for."""
        store, name = shared_store, second_volume(shared_store, tmp_path)
        store.device.create_space(space_definition("HERE", pages=40), volume=0)
        for there in ("ONE", "TWO"):
            store.device.create_space(space_definition(there, pages=25_000))
            with store.device.open_space(there) as space:
                make_queue(space)
                space.enqueue("Q", there)
        return name

    @pytest.fixture
    def lose(self, shared_store, second):
        """A function that moves the second volume away, and one that brings it back."""

        def move(old, new):
            if shared_store.kind == "postgres":
                ends = ("", "_memory")
                shared_store.by_hand(*(f"ALTER SCHEMA {old}{end} RENAME TO {new}{end}" for end in ends))
            else:
                Path(old).rename(new)

        return lambda: move(second, f"{second}_away"), lambda: move(f"{second}_away", second)

    def test_its_queue_spaces_are_given_up_one_by_one_and_then_its_entry(self, shared_store, second, lose):
        shared_store.device.close()
        lose[0]()
        device = shared_store.another()
        before = device.table_of_contents()
        for how in ({}, {"dry_run": True}):
            with pytest.raises(BadResourceError, match="queue space 'ONE' is on a volume that is lost") as refusal:
                device.destroy_space("ONE", **how)
            assert refusal.value.hint == device.missing_volumes()[0].advice
            assert "qspacedestroy -L" in refusal.value.hint
        device.destroy_space("ONE", lost=True, dry_run=True)
        with pytest.raises(InUseError):
            device.remove_entry(1)
        assert device.table_of_contents() == before
        device.destroy_space("ONE", lost=True)
        assert [missing.spaces for missing in device.missing_volumes()] == [("TWO",)]
        with pytest.raises(QueueError, match="is lost") as refusal:
            mib.set(device, "T_APPQSPACE", {"TA_APPQSPACENAME": "TWO", "TA_STATE": "INV"})
        assert "QMIB_GIVEUP" in refusal.value.hint
        for name, flag, said in (
            ("TWO", mib.Flags.QMIB_FORCEDELETE, "is lost"),
            ("HERE", mib.Flags.QMIB_GIVEUP, "'HERE' is not given up: its volume .* is there"),
        ):
            with pytest.raises(QueueError, match=said):
                mib.set(device, "T_APPQSPACE", {"TA_APPQSPACENAME": name, "TA_STATE": "INV"}, flag)
        mib.set(device, "T_APPQSPACE", {"TA_APPQSPACENAME": "TWO", "TA_STATE": "INV"}, mib.Flags.QMIB_GIVEUP)
        assert device.remove_entry(1).path == second
        assert device.missing_volumes() == []
        assert [space.name for space in device.spaces()] == ["HERE"]
        assert {found.severity for found in but_for_this_server(device.check())} == {Severity.OK}

    def test_a_process_that_has_it_open_gives_it_up_and_makes_a_new_one_in_its_place(self, shared_store, second, lose):
        device = shared_store.device
        with device.open_space("ONE") as space:
            lose[0]()
            for name in ("ONE", "TWO"):
                device.destroy_space(name, lost=True)
            with pytest.raises(QueueError):
                space.enqueue("Q", "x")
        device.remove_entry(1)
        device.create_entry(second, 0, 100_000)
        device.create_space(space_definition("ONE", pages=25_000))
        with device.open_space("ONE") as space:
            make_queue(space)
            space.enqueue("Q", "new")
            assert drain(space) == ["new"]

    def test_what_comes_back_later_is_nobodys_and_does_no_harm(self, shared_store, lose):
        lose[0]()
        device = shared_store.another()
        device.destroy_space("ONE", lost=True)
        lose[1]()
        device = shared_store.another()
        assert [space.name for space in device.spaces()] == ["HERE", "TWO"]
        with pytest.raises(BadResourceError, match="there is no queue space 'ONE'"):
            device.open_space("ONE")
        assert drain(device.open_space("TWO")) == ["TWO"]
        device.destroy_space("ONE", force=True)
        device.create_space(space_definition("ONE", pages=25_000))
        with device.open_space("ONE") as space:
            assert space.queues() == []
        assert "space-left" not in {found.check for found in device.check()}

    def test_what_it_still_holds_when_it_comes_back_is_an_error_and_goes_only_when_that_is_said(
        self, shared_store, second, lose
    ):
        lose[0]()
        shared_store.another().destroy_space("ONE", lost=True)
        lose[1]()
        device = shared_store.another()
        (left,) = [found for found in device.check() if found.check == "space-left"]
        assert left.severity is Severity.ERROR
        assert left.sentence == "it holds 1 message in a queue space 'ONE' that is not in the table of contents"
        assert "qspacedestroy -f ONE" in left.advice
        before, wanted = device.table_of_contents(), space_definition("ONE", pages=25_000)
        holds = "'ONE' that is not in the table of contents holds 1 message"
        for refused in (
            lambda: device.refuse_space(wanted),
            lambda: device.create_space(wanted),
            lambda: device.destroy_space("ONE"),
            lambda: device.destroy_space("ONE", dry_run=True),
        ):
            with pytest.raises(InUseError, match=holds) as refusal:
                refused()
            assert "qspacedestroy -f" in refusal.value.hint
            assert "qspacecreate -r" in refusal.value.hint
        device.destroy_space("ONE", force=True, dry_run=True)
        assert device.left_messages("ONE") == 1
        assert device.table_of_contents() == before
        device.destroy_space("ONE", force=True)
        assert device.left_messages("ONE") is None
        for how in ({"force": True}, {"lost": True}):
            with pytest.raises(BadResourceError, match="there is no queue space 'ONE'"):
                device.destroy_space("ONE", **how)
        assert "space-left" not in {found.check for found in device.check()}
        device.create_space(wanted)
        assert [space.name for space in device.spaces()] == ["HERE", "ONE", "TWO"]

    def test_it_is_taken_back_with_all_its_messages(self, shared_store, second, lose):
        device = shared_store.device
        with device.open_space("ONE") as space:
            msgid = space.enqueue("Q", "later", delay=0)
        before = device.space("ONE")
        lose[0]()
        shared_store.another().destroy_space("ONE", lost=True)
        lose[1]()
        device = shared_store.another()
        assert device.take_back_space("ONE") == before
        assert [space.name for space in device.spaces()] == ["HERE", "ONE", "TWO"]
        assert sum(row.pages for row in device.table_of_contents() if row.name.startswith("ONE.")) == 25_000
        with device.open_space("ONE") as space:
            assert space.dequeue("Q", msgid=msgid).text == "later"
            assert drain(space) == ["ONE"]
        assert not {"space-left", "space-missing", "extents", "store-fault"} & {found.check for found in device.check()}

    def test_nothing_else_is_taken_back(self, shared_store, second, lose):
        lose[0]()
        shared_store.another().destroy_space("ONE", lost=True)
        lose[1]()
        device = shared_store.another()
        before = device.table_of_contents()
        with pytest.raises(BadResourceError, match="no file of the device has a queue space 'NONE' that was given up"):
            device.take_back_space("NONE")
        with pytest.raises(InvalidArgumentError, match="queue space 'TWO' is in the table of contents"):
            device.take_back_space("TWO")
        device.create_space(space_definition("FILLS", pages=70_000))
        with pytest.raises(NoSpaceError, match="25000"):
            device.take_back_space("ONE")
        device.destroy_space("FILLS")
        assert device.table_of_contents() == before
        volume, main = device.volume_of(second), device.volume_of(device.path)
        write = main.write

        def meanwhile(work, purpose):
            done = write(work, purpose)
            volume.write(
                lambda unit: unit.spaces.remove(unit.spaces.find("ONE").id) if unit.spaces.find("ONE") else None,
                Purpose.ADMINISTRATION,
            )
            return done

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(main, "write", meanwhile)
            with pytest.raises(BadResourceError, match="there is no queue space 'ONE'"):
                device.take_back_space("ONE")
        assert device.table_of_contents() == before

    def test_what_arrives_in_what_was_given_up_while_one_of_its_name_is_created_stays(
        self, shared_store, second, monkeypatch
    ):
        """A process that has it open all the time enqueues between the look and the creation."""
        with shared_store.device.open_space("ONE") as space:
            assert drain(space) == ["ONE"]
            device = shared_store.another()
            device.volume_of(device.path).write(lambda unit: unit.device.remove_extents("ONE"), Purpose.ADMINISTRATION)
            volume = device.volume_of(second)
            write = volume.write

            def after_an_enqueue(work, purpose):
                monkeypatch.setattr(volume, "write", write)
                space.enqueue("Q", "late")
                return write(work, purpose)

            monkeypatch.setattr(volume, "write", after_an_enqueue)
            before = device.table_of_contents()
            with pytest.raises(InUseError, match="holds 1 message"):
                device.create_space(space_definition("ONE", pages=25_000))
            assert device.table_of_contents() == before
            assert device.left_messages("ONE") == 1

    def test_a_queue_space_is_created_where_there_is_room_without_it(self, shared_store, second, lose):
        device = shared_store.device
        device.create_entry(device.path, 20_000, 40_000)
        lose[0]()
        device = shared_store.another()
        wanted = space_definition("NEW", pages=30_000)
        device.refuse_space(wanted)
        device.create_space(wanted)
        assert device.table_of_contents()[-1].name == "NEW.0"
        with pytest.raises(NoSpaceError, match="cannot take 45000 more") as refusal:
            device.create_space(space_definition("TOO_MUCH", pages=45_000))
        assert f"Not counted, because missing: {second!r}." in refusal.value.hint
        with pytest.raises(BadResourceError, match="though the device list"):
            device.create_space(space_definition("THERE", pages=400), volume=second)

    @pytest.fixture
    def replaced(self, file_store, tmp_path):
        """A function that puts something else in the place of a second file, and opens the device."""

        def replace(make):
            device, second = file_store.device, tmp_path / "SECOND"
            device.create_entry(second, 0, 100_000)
            device.create_space(space_definition("THERE", pages=25_000))
            device.close()
            second.rename(tmp_path / "AWAY")
            make(second)
            return file_store.another()

        return replace

    def test_one_in_whose_place_is_a_file_of_another_device_can_be_given_up(self, replaced, tmp_path):
        device = replaced(lambda path: create_device(path, 100).close())
        with pytest.raises(BadResourceError, match=r"is lost: .* belongs to another device") as refusal:
            device.destroy_space("THERE")
        for word in ("Move away what is there", "chdl", "qspacedestroy -L", "dsdl"):
            assert word in refusal.value.hint
        (missing,) = device.missing_volumes()
        assert (missing.lost, missing.advice) == (True, refusal.value.hint)
        device.destroy_space("THERE", lost=True)
        device.remove_entry(1)
        assert device.missing_volumes() == []
        with open_device(tmp_path / "SECOND") as other:
            assert len(other.entries()) == 1, "the other device is left alone"

    @pytest.mark.parametrize("what", ["text", "directory"])
    def test_one_in_whose_place_is_something_else_can_be_given_up(self, replaced, tmp_path, what):
        device = replaced(Path.mkdir if what == "directory" else lambda path: path.write_text("dear reader"))
        with pytest.raises(BadResourceError, match="though the device list of") as refusal:
            device.destroy_space("THERE")
        assert refusal.value.hint.startswith("Move away what is there")
        assert "give up its queue spaces with qspacedestroy -L" in refusal.value.hint
        assert device.table_of_contents()[-1].name == "THERE.0"
        device.destroy_space("THERE", lost=True)
        assert device.remove_entry(1).path == str(tmp_path / "SECOND")


class TestInitializing:
    def test_the_disk_is_allocated_and_progress_goes_to_100(self, file_store):
        told = []
        space = file_store.device.create_space(space_definition(pages=3_000), initialize=True, progress=told.append)
        assert space.initialized
        assert told[-1] == 100
        assert told == sorted(told)
        file_store.device.close()
        assert Path(file_store.path).stat().st_size >= 3_000 * 4096

    def test_without_it_the_disk_stays_small(self, file_store):
        space = file_store.device.create_space(space_definition(pages=3_000))
        assert not space.initialized
        file_store.device.close()
        assert Path(file_store.path).stat().st_size < 1_000_000

    def test_a_device_in_memory_is_initialized_too(self, store):
        assert store.device.create_space(space_definition(), initialize=True).initialized

    def test_a_queue_space_that_is_refused_allocates_nothing(self, store):
        told = []
        with pytest.raises(NoSpaceError):
            store.device.create_space(space_definition(pages=100_000), initialize=True, progress=told.append)
        assert told == []


class TestInMemory:
    def test_it_has_no_other_files(self, tmp_path):
        with (
            create_device(":memory:", 100) as device,
            pytest.raises(InvalidArgumentError, match="a device in memory has no other files"),
        ):
            device.create_entry(tmp_path / "B", 0, 10)

    def test_it_cannot_be_opened_but_only_created(self):
        with pytest.raises(BadResourceError, match="cannot be opened, only created"):
            open_device(":memory:")

    def test_two_of_them_have_nothing_to_do_with_each_other(self):
        with create_device(":memory:", 2_100) as one, create_device(":memory:", 2_100) as other:
            one.create_space(space_definition())
            assert (len(one.spaces()), len(other.spaces())) == (1, 0)


class TestNaming:
    def test_a_device_is_named_by_a_path_or_a_url(self, tmp_path):
        path = tmp_path / "QUE"
        create_device(f"sqlite:///{path}", 100).close()
        for name in (path, str(path), f"sqlite:///{path}", f"sqlite+pysqlite:///{path}"):
            with open_device(name) as device:
                assert device.path == str(path)

    def test_a_relative_path_is_kept_as_an_absolute_one(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with create_device("QUE", 100) as device:
            monkeypatch.chdir("/")
            assert device.path == device.entries()[0].path == str(tmp_path / "QUE")
            assert open_device(tmp_path / "QUE").close() is None

    @pytest.mark.parametrize("name", ["a b", "a%20b", "a?mode=memory", "a#b", "ä", "a'b", "x" * 200])
    def test_odd_characters_in_a_name_mean_nothing(self, tmp_path, name):
        with create_device(tmp_path / name, 3_000) as device:
            device.create_space(space_definition())
            with device.open_space("SPACE") as space:
                make_queue(space)
                space.enqueue("Q", "x")
                assert space.dequeue("Q", wait=0.01).text == "x"
                assert space.dequeue("Q", wait=0.01) is None
        assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}-run"}
        open_device(tmp_path / name).close()

    def test_other_kinds_of_devices_are_refused(self):
        with pytest.raises(BadResourceError, match="'mysql' are not supported"):
            open_device("mysql://localhost/queues")
