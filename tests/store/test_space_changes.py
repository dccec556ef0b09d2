"""A queue space that gets more pages and other limits, also while processes work with it."""

import dataclasses
import json
from pathlib import Path

import pytest

from qmcore.acts import growing
from qmcore.device import PageRange
from qmcore.errors import (
    AbortedError,
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    OperatingSystemError,
    Resource,
)
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.probe import Point
from tests.fix_store import (
    Work,
    attachment_of,
    drain,
    eventually,
    make_queue,
    queue_definition,
    space_definition,
    waiting_for,
)

PAGE = 4096


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(memory_dir):
    pass


def definition_of(device, name="SPACE", **changes):
    return dataclasses.replace(device.space(name).definition, **changes)


def extents(device, name="SPACE"):
    return [row for row in device.table_of_contents() if row.name.startswith(f"{name}.")]


def fill(space, count, **how):
    """Enqueue messages of one page each."""
    return [space.enqueue("Q", "x", **how) for _ in range(count)]


@pytest.fixture
def small(store):
    """A queue space with four pages, one of which holds messages, and two queues."""
    opened = store.space("SMALL", pages=4, queues=2)
    make_queue(opened, "Q")
    return opened


class TestExtending:
    def test_the_pages_of_an_extent_take_messages_at_once(self, store, small):
        fill(small, 1)
        with pytest.raises(NoSpaceError):
            fill(small, 1)
        extended = store.device.extend_space("SMALL", 4)
        assert extended == store.device.space("SMALL")
        assert (extended.definition.pages, small.definition.pages) == (8, 8)
        fill(small, 4)
        with pytest.raises(NoSpaceError) as refusal:
            fill(small, 1)
        assert (refusal.value.used, refusal.value.limit) == (5, 5)
        assert "qaddext" in refusal.value.hint

    def test_the_extent_is_a_row_of_the_table_of_contents_and_its_pages_are_no_longer_free(self, store, small):
        free = store.device.free_ranges(0)[0]
        store.device.extend_space("SMALL", 100)
        assert [(row.name, row.first, row.pages) for row in extents(store.device, "SMALL")] == [
            ("SMALL.0", 26, 4),
            ("SMALL.1", 30, 100),
        ]
        assert store.device.free_ranges(0) == [PageRange(free.first + 100, free.pages - 100)]

    @pytest.mark.parametrize(("asked", "given"), [(4, 4), (7, 4), (11, 8), (50, 48), (52, 52)])
    def test_the_pages_are_rounded_down_to_a_multiple_of_four(self, store, small, asked, given):
        assert store.device.extend_space("SMALL", asked).definition.pages == 4 + given
        assert extents(store.device, "SMALL")[-1].pages == given

    @pytest.mark.parametrize("pages", [0, 3, -4, 2**31, 4.0, "4", None, True])
    def test_a_number_that_makes_no_sense_is_refused(self, store, small, pages):
        with pytest.raises(InvalidArgumentError, match="number of pages for queue space 'SMALL'"):
            store.device.extend_space("SMALL", pages)
        assert store.device.space("SMALL").definition.pages == 4

    def test_a_queue_space_that_is_not_there_is_named(self, store):
        with pytest.raises(BadResourceError, match="no queue space 'NONE'"):
            store.device.extend_space("NONE", 8)

    def test_pages_that_the_device_does_not_have_are_refused_with_those_that_it_has(self, store, small):
        free = store.device.free_ranges(0)[0].pages
        with pytest.raises(NoSpaceError) as refusal:
            store.device.extend_space("SMALL", free + 4)
        assert refusal.value.resource is Resource.PAGES
        assert (refusal.value.used, refusal.value.limit, refusal.value.wanted) == (20_000 - free, 20_000, 19_972)
        assert f"{free} are free" in refusal.value.message
        assert len(extents(store.device, "SMALL")) == 1
        assert store.device.extend_space("SMALL", free).definition.pages == 4 + free - free % 4

    def test_where_no_run_is_long_enough_several_are_taken(self, store, small):
        store.device.create_space(space_definition("BETWEEN", pages=40))
        store.device.create_space(space_definition("REST", pages=store.device.free_ranges(0)[0].pages - 20))
        store.device.destroy_space("BETWEEN")
        assert store.device.extend_space("SMALL", 56).definition.pages == 60
        assert sorted(row.pages for row in extents(store.device, "SMALL")) == [4, 16, 40]

    def test_at_most_a_hundred_extents(self, store, small):
        for _ in range(99):
            store.device.extend_space("SMALL", 4)
        with pytest.raises(NoSpaceError) as refusal:
            store.device.extend_space("SMALL", 4)
        assert (refusal.value.resource, refusal.value.used, refusal.value.limit) == (Resource.EXTENTS, 100, 100)
        assert store.device.space("SMALL").definition.pages == 400

    def test_what_it_holds_stays_whatever_stands_there(self, store):
        opened = store.space("SMALL", pages=40, memory=10 * PAGE)
        make_queue(opened, "Q", retries=1)
        lost = fill(opened, 1, persistent=False)
        kept = fill(opened, 1)
        with opened.transaction() as tx:
            assert opened.dequeue("Q").msgid == lost[0]
            pending = opened.enqueue("Q", "in a transaction")
            store.device.extend_space("SMALL", 40)
            assert opened.dequeue("Q").msgid == kept[0]
            tx.rollback()
        assert [info.msgid for info in opened.messages("Q")] == [lost[0], kept[0]]
        with opened.transaction():
            pending = opened.enqueue("Q", "later")
            store.device.extend_space("SMALL", 40)
        assert [info.msgid for info in opened.messages("Q")] == [lost[0], kept[0], pending]

    def test_an_extent_of_a_destroyed_queue_space_is_free_again(self, store, small):
        before = store.device.free_ranges(0)
        store.device.extend_space("SMALL", 400)
        store.device.destroy_space("SMALL", force=True)
        assert store.device.free_ranges(0) == [PageRange(26, before[0].pages + 4)]

    def test_disk_that_was_allocated_at_the_creation_is_allocated_for_an_extent_too(self, file_store):
        told = []
        file_store.device.create_space(space_definition("DISK", pages=400), initialize=True)
        size = Path(file_store.path).stat().st_size
        file_store.device.extend_space("DISK", 4_000, progress=told.append)
        assert told[-1] == 100
        file_store.device.close()
        assert Path(file_store.path).stat().st_size >= size + 4_000 * PAGE

    def test_disk_that_was_not_allocated_stays_so(self, file_store):
        told = []
        file_store.device.create_space(space_definition("DISK", pages=400))
        file_store.device.extend_space("DISK", 4_000, progress=told.append)
        file_store.device.close()
        assert told == []
        assert Path(file_store.path).stat().st_size < 400 * PAGE

    def test_threads_that_extend_at_once_all_count(self, store, small):
        work = Work(*[lambda: store.device.extend_space("SMALL", 8)] * 6)
        pages = sorted(result.definition.pages for result in work.results())
        assert pages == [12, 20, 28, 36, 44, 52]
        assert store.device.space("SMALL").definition.pages == 52
        assert sum(row.pages for row in extents(store.device, "SMALL")) == 52


class TestExtendingInAnotherFile:
    @pytest.fixture
    def other(self, file_store, tmp_path):
        """A queue space in a file of its own, which has 100 pages; the device's own file is full."""
        device = file_store.device
        device.create_space(space_definition("FULL", pages=19_960))
        device.create_entry(tmp_path / "B", 0, 100)
        opened = file_store.space("OTHER", pages=40)
        make_queue(opened, "Q")
        return opened

    def test_the_extent_is_cut_from_the_file_of_the_queue_space(self, file_store, other, tmp_path):
        device = file_store.device
        device.create_entry(tmp_path / "C", 0, 1_000)
        assert device.extend_space("OTHER", 60).definition.pages == 100
        assert [(row.entry, row.first, row.pages) for row in extents(device, "OTHER")] == [(1, 0, 40), (1, 40, 60)]
        assert other.definition.pages == 100

    def test_room_in_other_files_only_is_named_and_refused(self, file_store, other, tmp_path):
        device = file_store.device
        device.create_entry(tmp_path / "C", 0, 1_000)
        with pytest.raises(NoSpaceError) as refusal:
            device.extend_space("OTHER", 64)
        assert str(tmp_path / "B") in refusal.value.message
        assert (refusal.value.used, refusal.value.limit, refusal.value.wanted) == (40, 100, 64)
        other = (
            f"60 are free, and entry 2 of the device list, with 1000 free, is in another file, {str(tmp_path / 'C')!r}"
        )
        assert other in refusal.value.message
        assert refusal.value.hint.endswith(f"crdl {tmp_path / 'B'} 100 4")
        device.create_entry(tmp_path / "B", 100, 4)
        assert device.extend_space("OTHER", 64).definition.pages == 104

    def test_where_its_file_refuses_the_extent_is_not_listed(self, file_store, other, monkeypatch):
        device = file_store.device

        def full(*_):
            raise OperatingSystemError("no room on the disk")

        with monkeypatch.context() as patch:
            patch.setattr(growing.thresholds, "note_growth", full)
            with pytest.raises(OperatingSystemError):
                device.extend_space("OTHER", 8)
        assert [row.name for row in extents(device, "OTHER")] == ["OTHER.0"]
        assert device.space("OTHER").definition.pages == 40
        assert device.extend_space("OTHER", 8).definition.pages == 48

    def test_an_extent_that_was_listed_and_not_counted_is_counted_with_the_next(self, file_store, other, once_listed):
        device = file_store.device

        def killed(_works):
            raise KeyboardInterrupt

        # Neither is it counted, nor taken back.
        once_listed(device, lambda: device.probe.at(Point.BEFORE_COMMIT, killed))
        with pytest.raises(KeyboardInterrupt):
            device.extend_space("OTHER", 8)
        device.probe.leave(Point.BEFORE_COMMIT)
        assert len(extents(device, "OTHER")) == 2
        assert device.space("OTHER").definition.pages == 40
        assert device.extend_space("OTHER", 8).definition.pages == 56

    def test_handles_that_extend_at_once_all_count(self, file_store, other):
        others = [file_store.another() for _ in range(3)]
        work = Work(*(lambda device=device: device.extend_space("OTHER", 8) for device in others))
        work.results()
        assert file_store.device.space("OTHER").definition.pages == 64
        assert sum(row.pages for row in extents(file_store.device, "OTHER")) == 64

    def test_an_extension_that_is_overtaken_by_a_later_one_takes_nothing_back(self, file_store, other, once_listed):
        device, second = file_store.device, file_store.another()
        once_listed(device, lambda: second.extend_space("OTHER", 16))
        assert device.extend_space("OTHER", 8).definition.pages == 64
        assert device.space("OTHER").definition.pages == 64

    def test_where_a_later_one_has_counted_it_a_failure_takes_nothing_back(self, file_store, other, once_listed):
        device, second = file_store.device, file_store.another()

        def full(_works):
            device.probe.leave(Point.BEFORE_COMMIT)
            raise OperatingSystemError("no room on the disk")

        def overtake():
            second.extend_space("OTHER", 16)
            device.probe.at(Point.BEFORE_COMMIT, full)

        once_listed(device, overtake)
        with pytest.raises(OperatingSystemError):
            device.extend_space("OTHER", 8)
        assert device.space("OTHER").definition.pages == 64
        assert sum(row.pages for row in extents(device, "OTHER")) == 64

    def test_a_queue_space_that_is_destroyed_meanwhile_leaves_nothing_behind(self, file_store, other, once_listed):
        device, second = file_store.device, file_store.another()
        other.close()
        once_listed(second, lambda: device.destroy_space("OTHER"))
        with pytest.raises(BadResourceError, match="no queue space 'OTHER'"):
            second.extend_space("OTHER", 8)
        assert extents(device, "OTHER") == []

    def test_one_of_the_same_name_that_is_made_meanwhile_gets_no_extent(self, file_store, other, tmp_path):
        device, second = file_store.device, file_store.another()
        other.close()
        device.destroy_space("OTHER")
        device.create_space(space_definition("OTHER", pages=40), initialize=True)

        def made_again(_percent):
            device.destroy_space("OTHER")
            device.create_space(space_definition("OTHER", pages=40))

        with pytest.raises(BadResourceError, match="no queue space 'OTHER'"):
            second.extend_space("OTHER", 8, progress=made_again)
        assert [row.name for row in extents(device, "OTHER")] == ["OTHER.0"]
        assert device.extend_space("OTHER", 8).definition.pages == 48

    @pytest.fixture
    def once_listed(self):
        """Have something done once the next extension of a device has listed its extent, and has not counted it yet."""

        def arrange(device, action):
            def listed(_commit):
                device.probe.leave(Point.AFTER_SYNC)
                action()

            device.probe.at(Point.AFTER_SYNC, listed)

        return arrange


class TestCapacityInPercent:
    THRESHOLD = Threshold(parse_high("50%"), parse_low("20%", parse_high("50%")), "true")

    def started(self, space):
        """Return whether the limit was reached and its command is not armed again, by the records of the volume."""
        queue = space.queue("Q")
        return attachment_of(space).volume.read(lambda unit: unit.capacity_commands.is_tripped(queue.id, memory=False))

    def test_it_is_percent_of_the_pages_that_there_are_now(self, store):
        store.device.set_commands(enabled=False)
        opened = store.space("SMALL", pages=16, queues=3)
        make_queue(opened, "Q", threshold=self.THRESHOLD)
        fill(opened, 5)
        assert not self.started(opened)
        store.device.extend_space("SMALL", 12)
        fill(opened, 2)
        assert not self.started(opened), "7 of 24 pages are not 50 %"
        fill(opened, 5)
        assert self.started(opened)

    def test_a_limit_that_was_reached_is_armed_again_where_the_use_is_low_now(self, store):
        store.device.set_commands(enabled=False)
        opened = store.space("SMALL", pages=16, queues=3)
        make_queue(opened, "Q", threshold=self.THRESHOLD)
        fill(opened, 6)
        assert self.started(opened)
        store.device.extend_space("SMALL", 16)
        assert self.started(opened), "6 of 28 pages are more than 20 %"
        store.device.extend_space("SMALL", 4)
        assert not self.started(opened), "6 of 32 pages are less than 20 %"


CHANGES = {
    "ipc_key": 55_555,
    "transactions": 77,
    "processes": 88,
    "messages": 99,
    "error_queue": "E",
    "blocking": 4,
    "actions": 5,
    "overflow": 1,
    "handles": 2,
    "cursors": 3,
    "owners": 4,
    "temporary_queues": 5,
    "filter_memory": 6,
    "queues": 40,
}


class TestChanging:
    @pytest.mark.parametrize(("field", "value"), CHANGES.items())
    def test_everything_but_the_pages_may_change_while_others_are_attached(self, store, space, field, value):
        wanted = definition_of(store.device, **{field: value})
        assert store.device.change_space(wanted).definition == wanted
        assert store.device.space("SPACE").definition == wanted
        assert space.definition == wanted

    def test_every_value_of_a_definition_is_stored(self, store, space):
        wanted = definition_of(store.device, **CHANGES)
        store.device.change_space(wanted)
        assert store.device.space("SPACE").definition == wanted

    def test_what_is_no_definition_is_refused(self, store, space):
        with pytest.raises(InvalidArgumentError):
            store.device.change_space(definition_of(store.device, messages=0))
        with pytest.raises(BadResourceError):
            store.device.change_space(space_definition("NONE"))

    @pytest.mark.parametrize("pages", [1_996, 2_004])
    def test_the_pages_are_those_that_it_has(self, store, space, pages):
        with pytest.raises(InvalidArgumentError, match=f"has 2000 pages, which cannot be changed to {pages}") as no:
            store.device.change_space(definition_of(store.device, pages=pages))
        assert "qaddext" in no.value.hint

    def test_the_same_definition_changes_nothing(self, store, space):
        fill(space, 2)
        store.device.change_space(definition_of(store.device))
        assert len(drain(space)) == 2

    def test_another_limit_of_messages_holds_from_the_next_operation_on(self, store, space):
        store.device.change_space(definition_of(store.device, messages=2))
        fill(space, 2)
        with pytest.raises(NoSpaceError) as refusal:
            fill(space, 1)
        assert (refusal.value.resource, refusal.value.limit) == (Resource.MESSAGES, 2)
        store.device.change_space(definition_of(store.device, messages=3))
        fill(space, 1)

    def test_another_error_queue_gets_what_nobody_can_work_on(self, store, space):
        make_queue(space, "E")
        space.change_queue(queue_definition("Q"))
        fill(space, 1)
        store.device.change_space(definition_of(store.device, error_queue="E"))
        with space.transaction() as tx:
            space.dequeue("Q")
            tx.rollback()
        assert len(drain(space, "E")) == 1

    def test_another_limit_of_queues(self, store, space):
        store.device.change_space(definition_of(store.device, queues=2))
        make_queue(space, "R")
        with pytest.raises(NoSpaceError) as refusal:
            make_queue(space, "S")
        assert refusal.value.limit == 2
        store.device.change_space(definition_of(store.device, queues=3))
        make_queue(space, "S")

    def test_initializing_takes_the_disk_now_once(self, file_store):
        told = []
        file_store.device.create_space(space_definition("DISK", pages=4_000))
        wanted = definition_of(file_store.device, "DISK", blocking=1)
        assert file_store.device.change_space(wanted, initialize=True, progress=told.append).initialized
        assert told[-1] == 100
        assert file_store.device.space("DISK").initialized
        told.clear()
        file_store.device.change_space(wanted, initialize=True, progress=told.append)
        assert told == []
        file_store.device.close()
        assert Path(file_store.path).stat().st_size >= 4_000 * PAGE


class TestLimitsBelowWhatIsInUse:
    def refused(self, store, resource, used, limit, **changes):
        with pytest.raises(InUseError) as refusal:
            store.device.change_space(definition_of(store.device, **changes))
        facts = refusal.value.facts
        assert (facts["resource"], facts["used"], facts["limit"]) == (resource, used, limit)
        assert "queue space 'SPACE' has" in refusal.value.message
        assert f"{used} of {limit}" in refusal.value.message

    def test_messages(self, store):
        opened = store.space(memory=10 * PAGE)
        make_queue(opened, "Q")
        fill(opened, 2)
        fill(opened, 1, persistent=False)
        self.refused(store, Resource.MESSAGES, 3, 1_000, messages=2)
        store.device.change_space(definition_of(store.device, messages=3))

    def test_queues(self, store, space):
        make_queue(space, "R")
        self.refused(store, Resource.QUEUES, 2, 20, queues=1)
        store.device.change_space(definition_of(store.device, queues=2))

    def test_transactions(self, store, space):
        fill(space, 1)
        with space.transaction():
            space.dequeue("Q")
            store.device.change_space(definition_of(store.device, transactions=1))
        assert store.device.space("SPACE").definition.transactions == 1

    def test_transactions_of_others(self, file_store):
        opened = file_store.space()
        make_queue(opened, "Q")
        fill(opened, 2)
        other = file_store.another().open_space("SPACE")
        with opened.transaction(), other.transaction():
            opened.dequeue("Q")
            other.dequeue("Q")
            self.refused(file_store, Resource.TRANSACTIONS, 2, 10, transactions=1)

    def test_processes(self, file_store):
        file_store.space()
        file_store.another().open_space("SPACE")
        self.refused(file_store, Resource.PROCESSES, 2, 10, processes=1)

    def test_actions(self, file_store):
        opened = file_store.space()
        make_queue(opened, "Q")
        work = Work(*[lambda: opened.dequeue("Q", wait=30)] * 3)
        eventually(lambda: waiting_for(file_store.path) == 3, "three threads wait")
        self.refused(file_store, Resource.ACTIONS, 2, 64, actions=1)
        file_store.device.change_space(definition_of(file_store.device, actions=2))
        fill(opened, 3)
        assert [message.text for message in work.results()] == ["x"] * 3

    def test_pages_that_more_queues_would_take(self, store):
        opened = store.space(pages=12, queues=2)
        make_queue(opened, "Q")
        fill(opened, 8)
        store.device.change_space(definition_of(store.device, queues=3))
        self.refused(store, Resource.PAGES, 8, 8, queues=4)
        store.device.extend_space("SPACE", 4)
        store.device.change_space(definition_of(store.device, queues=7))

    def test_a_limit_that_stays_is_not_asked_about(self, store, space):
        fill(space, 5)
        store.device.change_space(definition_of(store.device, blocking=99))
        assert store.device.space("SPACE").definition.blocking == 99


class TestMemory:
    def test_other_memory_loses_the_messages_in_it_and_keeps_the_others(self, store):
        opened = store.space(memory=10 * PAGE)
        make_queue(opened, "Q")
        kept = fill(opened, 1)
        fill(opened, 3, persistent=False)
        store.device.change_space(definition_of(store.device, memory=2 * PAGE))
        assert [info.msgid for info in opened.messages("Q")] == kept
        assert store.device.space_usage("SPACE").memory == 0
        fill(opened, 2, persistent=False)
        with pytest.raises(NoSpaceError) as refusal:
            fill(opened, 1, persistent=False)
        assert (refusal.value.resource, refusal.value.limit) == (Resource.MEMORY, 2 * PAGE)

    def test_it_can_be_given_to_a_queue_space_that_had_none(self, store, space):
        kept = fill(space, 1)
        store.device.change_space(definition_of(store.device, memory=2 * PAGE))
        lost = fill(space, 1, persistent=False)
        assert [info.msgid for info in space.messages("Q")] == kept + lost

    def test_it_can_be_taken_and_leaves_no_file(self, store, memory_dir):
        opened = store.space(memory=2 * PAGE)
        make_queue(opened, "Q")
        fill(opened, 1, persistent=False)
        store.device.change_space(definition_of(store.device, memory=0))
        assert list(memory_dir.iterdir()) == []
        assert (opened.usage("Q").messages, opened.usage("Q").nonpersistent) == (0, 0)
        with pytest.raises(NoSpaceError):
            fill(opened, 1, persistent=False)
        fill(opened, 1)
        opened.close()
        assert list(memory_dir.iterdir()) == []

    def test_messages_that_stay_where_the_memory_does(self, store):
        opened = store.space(memory=2 * PAGE)
        make_queue(opened, "Q")
        lost = fill(opened, 1, persistent=False)
        store.device.change_space(definition_of(store.device, messages=500))
        assert [info.msgid for info in opened.messages("Q")] == lost

    def test_not_while_somebody_else_is_attached(self, file_store):
        opened = file_store.space(memory=2 * PAGE)
        make_queue(opened, "Q")
        other = file_store.another().open_space("SPACE", role="TMQFORWARD")
        lost = fill(other, 1, persistent=False)
        with pytest.raises(InUseError, match="the memory of queue space 'SPACE' cannot be changed while TMQFORWARD"):
            file_store.device.change_space(definition_of(file_store.device, memory=0))
        assert [info.msgid for info in opened.messages("Q")] == lost
        other.close()
        file_store.device.change_space(definition_of(file_store.device, memory=0))

    def test_not_while_a_transaction_is_open(self, store):
        opened = store.space(memory=2 * PAGE)
        make_queue(opened, "Q")
        fill(opened, 1, persistent=False)
        with opened.transaction():
            opened.dequeue("Q")
            with pytest.raises(InUseError, match="a transaction is open"):
                store.device.change_space(definition_of(store.device, memory=0))

    def test_what_a_transaction_was_about_to_put_into_it_is_not_lost_silently(self, store):
        opened = store.space(memory=2 * PAGE)
        make_queue(opened, "Q")

        def enqueue_and_take_the_memory():
            with opened.transaction():
                opened.enqueue("Q", "lost", persistent=False)
                store.device.change_space(definition_of(store.device, memory=0))

        with pytest.raises((NoSpaceError, AbortedError)):
            enqueue_and_take_the_memory()

    def test_a_process_that_attached_later_has_the_memory_of_now(self, file_store):
        opened = file_store.space(memory=2 * PAGE)
        make_queue(opened, "Q")
        opened.close()
        file_store.device.change_space(definition_of(file_store.device, memory=4 * PAGE))
        with file_store.another().open_space("SPACE") as later:
            fill(later, 4, persistent=False)
            with pytest.raises(NoSpaceError):
                fill(later, 1, persistent=False)

    def test_a_process_that_read_the_definition_before_it_changed_attaches_what_is_there_now(
        self, file_store, memory_dir, monkeypatch
    ):
        from qmadmin import device as module

        opened = file_store.space(memory=2 * PAGE)
        make_queue(opened, "Q")
        opened.close()
        second = file_store.another()
        attach = module.processes.attach

        def changed_before(*given):
            file_store.device.change_space(definition_of(file_store.device, memory=0))
            return attach(*given)

        with monkeypatch.context() as patch:
            patch.setattr(module.processes, "attach", changed_before)
            later = second.open_space("SPACE")
        assert list(memory_dir.iterdir()) == []
        fill(later, 1)


WORK = """
space = open_device(sys.argv[1]).open_space("SPACE")
import json
for line in sys.stdin:
    try:
        say(json.dumps(eval(line)))
    except QueueError as error:
        say(json.dumps([error.name, error.facts.get("limit")]))
"""


class TestAnotherProcess:
    @pytest.fixture
    def active(self, file_store, start):
        """A queue space that is full, and a process that has it open."""
        opened = file_store.space(pages=8, queues=2, messages=6, memory=4 * PAGE)
        make_queue(opened, "Q")
        fill(opened, 5)
        child = start(WORK, file_store.path)

        def ask(text):
            child.say(text)
            return json.loads(child.line())

        assert ask("space.name") == "SPACE"
        return ask

    def test_it_has_the_room_at_its_next_operation(self, file_store, active):
        assert active("space.enqueue('Q', 'y')") == ["QMENOSPACE", 5]
        file_store.device.extend_space("SPACE", 4)
        assert len(active("space.enqueue('Q', 'y')")) == 32
        assert active("space.enqueue('Q', 'y')") == ["QMENOSPACE", 6]
        file_store.device.change_space(definition_of(file_store.device, messages=7))
        assert len(active("space.enqueue('Q', 'y')")) == 32

    def test_its_non_persistent_messages_and_open_transaction_stay(self, file_store, active):
        file_store.device.change_space(definition_of(file_store.device, messages=20))
        lost = active("space.enqueue('Q', 'lost', persistent=False)")
        assert active("[tx := space.transaction(), tx.__enter__(), space.dequeue('Q').msgid][2]")
        held = active("space.enqueue('Q', 'at the commit')")
        file_store.device.extend_space("SPACE", 40)
        active("tx.__exit__(None, None, None)")
        infos = [info.msgid for info in file_store.spaces[0].messages("Q")]
        assert infos[-2:] == [lost, held]
        assert len(infos) == 6

    def test_two_processes_that_extend_at_once_both_count(self, file_store, active, start):
        program = """
device = open_device(sys.argv[1])
say("ready")
heard()
for _ in range(10):
    device.extend_space("SPACE", 4)
say("done")
"""
        children = [start(program, file_store.path) for _ in range(2)]
        for child in children:
            child.expect("ready")
        for child in children:
            child.say()
        for child in children:
            child.expect("done")
        assert file_store.device.space("SPACE").definition.pages == 88
        assert sum(row.pages for row in extents(file_store.device)) == 88
        assert len(extents(file_store.device)) == 21
