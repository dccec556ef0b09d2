"""The arithmetic of the device list: entries that do not overlap, and extents cut from them."""

import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qmcore.device import (
    ENTRIES_MAX,
    EXTENTS_MAX,
    PAGES_MAX,
    RESERVED_PAGES,
    DeviceEntry,
    Extent,
    PageRange,
    allocate,
    checked_entry,
    free_ranges,
    table_of_contents,
)
from qmcore.errors import InvalidArgumentError, NoSpaceError, Resource

FIRST = DeviceEntry(0, "/q", 0, 1000)


def refused(entry, *present):
    with pytest.raises(InvalidArgumentError) as refusal:
        checked_entry(entry, present)
    return refusal.value.message


class TestEntries:
    def test_the_first_entry_starts_at_page_0_and_has_room_for_the_lists(self):
        assert checked_entry(DeviceEntry(0, "/q", 0, 27), []) == DeviceEntry(0, "/q", 0, 27)
        assert "offset 0, got 5" in refused(DeviceEntry(0, "/q", 5, 100))
        assert "more than 26 pages" in refused(DeviceEntry(0, "/q", 0, 26))

    @pytest.mark.parametrize(("offset", "pages"), [(-1, 10), (PAGES_MAX + 1, 10), (0, 0), (0, -5), (0, PAGES_MAX + 1)])
    def test_numbers_out_of_range_are_refused(self, offset, pages):
        message = refused(DeviceEntry(1, "/r", offset, pages), FIRST)
        assert "'/r' in pages must be" in message

    @pytest.mark.parametrize(
        ("offset", "pages"), [(0, 1), (999, 1), (0, 1000), (0, 5000), (500, 100), (500, 5000), (999, 1000)]
    )
    def test_pages_that_another_entry_of_the_same_file_has_are_refused(self, offset, pages):
        message = refused(DeviceEntry(1, "/q", offset, pages), FIRST)
        assert "overlap entry 0" in message
        assert "pages 0 to 999" in message

    def test_pages_beside_another_entry_or_of_another_file_are_taken(self):
        assert checked_entry(DeviceEntry(1, "/q", 1000, 10), [FIRST])
        behind = DeviceEntry(1, "/q", 1500, 10)
        assert checked_entry(DeviceEntry(2, "/q", 1490, 10), [FIRST, behind])
        assert checked_entry(DeviceEntry(1, "/r", 0, 10), [FIRST])

    def test_the_26th_entry_is_refused(self):
        entries = [FIRST, *(DeviceEntry(at, "/q", at * 1000, 1000) for at in range(1, ENTRIES_MAX - 1))]
        last = DeviceEntry(ENTRIES_MAX - 1, "/r", 0, 10)
        assert checked_entry(last, entries) == last
        with pytest.raises(NoSpaceError) as refusal:
            checked_entry(DeviceEntry(ENTRIES_MAX, "/s", 0, 10), [*entries, last])
        assert refusal.value.resource is Resource.DEVICE_ENTRIES
        assert (refusal.value.used, refusal.value.limit) == (25, 25)

    @given(st.lists(st.tuples(st.sampled_from(["/q", "/r"]), st.integers(0, 50), st.integers(1, 20)), max_size=25))
    def test_entries_that_were_taken_share_no_page(self, wanted):
        present = [DeviceEntry(0, "/q", 0, 30)]
        for path, offset, pages in wanted:
            entry = DeviceEntry(len(present), path, offset, pages)
            pages_taken = {(e.path, page) for e in present for page in range(e.offset, e.end)}
            overlaps = any((path, page) in pages_taken for page in range(offset, offset + pages))
            if len(present) == ENTRIES_MAX:
                break
            if overlaps:
                refused(entry, *present)
            else:
                present.append(checked_entry(entry, present))


class TestAllocation:
    def test_the_first_entry_keeps_its_first_pages_for_the_lists(self):
        assert free_ranges(FIRST, []) == [PageRange(RESERVED_PAGES, 1000 - RESERVED_PAGES)]
        assert allocate("S", 100, [FIRST], []) == [Extent("S", 0, 0, 26, 100)]

    def test_one_run_is_taken_where_one_is_long_enough(self):
        taken = [Extent("A", 0, 0, 26, 10), Extent("B", 0, 0, 100, 10)]
        assert allocate("S", 64, [FIRST], taken) == [Extent("S", 0, 0, 36, 64)]
        assert allocate("S", 65, [FIRST], taken) == [Extent("S", 0, 0, 110, 65)]

    def test_several_runs_are_taken_where_none_is_long_enough(self):
        entries = [DeviceEntry(0, "/q", 0, 126), DeviceEntry(1, "/q", 200, 50)]
        assert allocate("S", 120, entries, []) == [Extent("S", 0, 0, 26, 100), Extent("S", 1, 1, 200, 20)]

    def test_a_queue_space_lives_wholly_in_one_file(self):
        entries = [DeviceEntry(0, "/q", 0, 126), DeviceEntry(1, "/r", 0, 150)]
        assert allocate("S", 120, entries, []) == [Extent("S", 0, 1, 0, 120)]
        with pytest.raises(NoSpaceError) as refusal:
            allocate("S", 200, entries, [])
        assert refusal.value.resource is Resource.PAGES
        assert allocate("S", 10, entries, [], path="/r") == [Extent("S", 0, 1, 0, 10)]

    def test_the_file_with_the_most_free_pages_is_taken_and_the_first_of_equals(self):
        entries = [DeviceEntry(0, "/q", 0, 126), DeviceEntry(1, "/r", 0, 100), DeviceEntry(2, "/s", 0, 150)]
        assert allocate("S", 10, entries, []) == [Extent("S", 0, 2, 0, 10)]
        assert allocate("S", 10, entries, [Extent("A", 0, 2, 0, 60)]) == [Extent("S", 0, 0, 26, 10)]

    def test_extents_that_are_added_are_numbered_on(self):
        assert allocate("S", 5, [FIRST], [Extent("S", 0, 0, 26, 5), Extent("S", 3, 0, 31, 5)])[0].number == 4

    def test_a_full_device_says_how_much_was_wanted(self):
        with pytest.raises(NoSpaceError) as refusal:
            allocate("S", 975, [FIRST], [])
        assert refusal.value.facts["wanted"] == 975
        assert refusal.value.limit == 1000
        assert refusal.value.limit - refusal.value.used == 974

    def test_the_101st_extent_is_refused(self):
        entry = DeviceEntry(0, "/q", 0, 1000)
        every_other = [Extent(f"S{at}", 0, 0, 26 + 2 * at, 1) for at in range(EXTENTS_MAX - 1)]
        assert len(allocate("S", 700, [entry], every_other)) == 1
        with pytest.raises(NoSpaceError) as refusal:
            allocate("S", 850, [entry], every_other)
        assert refusal.value.resource is Resource.EXTENTS
        assert (refusal.value.used, refusal.value.limit) == (99, 100)

    def test_the_table_of_contents_lists_itself_the_device_list_and_every_extent(self):
        rows = table_of_contents([Extent("B", 1, 1, 0, 5), Extent("A", 0, 0, 26, 4)])
        assert [(row.name, row.entry, row.first, row.pages) for row in rows] == [
            ("VTOC", 0, 0, 7),
            ("UDL", 0, 7, 19),
            ("A.0", 0, 26, 4),
            ("B.1", 1, 0, 5),
        ]


acts = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(1, 120)),
        st.tuples(st.just("destroy"), st.integers(0, 50)),
    ),
    max_size=60,
)
others = st.lists(st.tuples(st.sampled_from(["/q", "/r", "/s"]), st.integers(30, 90)), max_size=6)


@given(others, acts)
def test_extents_never_overlap_nor_leave_their_entry_and_free_pages_are_the_rest(others, acts):
    entries = [DeviceEntry(0, "/q", 0, 150)]
    for path, pages in others:
        end = max((entry.end for entry in entries if entry.path == path), default=0)
        entries.append(checked_entry(DeviceEntry(len(entries), path, end, pages), entries))
    usable = {
        (entry.index, page)
        for entry in entries
        for page in range(entry.offset + (RESERVED_PAGES if entry.index == 0 else 0), entry.end)
    }
    extents = []
    for number, (act, detail) in enumerate(acts):
        spaces = sorted({extent.space for extent in extents})
        if act == "destroy" and spaces:
            gone = spaces[detail % len(spaces)]
            extents = [extent for extent in extents if extent.space != gone]
        elif act == "create":
            room = {
                path: sum(run.pages for entry in entries if entry.path == path for run in free_ranges(entry, extents))
                for path in {entry.path for entry in entries}
            }
            if max(room.values()) < detail:
                with pytest.raises(NoSpaceError, match="pages in use"):
                    allocate(f"S{number}", detail, entries, extents)
                continue
            cut = allocate(f"S{number}", detail, entries, extents)
            assert sum(extent.pages for extent in cut) == detail
            assert len({entries[extent.entry].path for extent in cut}) == 1
            extents += cut
        taken = [(e.entry, page) for e in extents for page in range(e.first, e.first + e.pages)]
        assert len(taken) == len(set(taken))
        assert set(taken) <= usable
        free = {
            (entry.index, page)
            for entry in entries
            for run in free_ranges(entry, extents)
            for page in range(run.first, run.end)
        }
        assert free == usable - set(taken)


@given(st.integers(1, 10**6))
def test_an_entry_that_has_just_the_pages_is_filled_to_the_last(pages):
    assume(pages > 0)
    entry = dataclasses.replace(FIRST, pages=pages + RESERVED_PAGES)
    (extent,) = allocate("S", pages, [entry], [])
    assert free_ranges(entry, [extent]) == []
