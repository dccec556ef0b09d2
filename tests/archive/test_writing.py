"""An archive appears as a whole or not at all."""

import errno
import io
import itertools
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qmadmin.archive.file_systems import Directory
from qmadmin.archive.reading import SLICE_BYTES, SLICE_ROWS, batches, open_archive, verify_part
from qmadmin.archive.rows import GROUP_BYTES, GROUP_ROWS, batch_of, pa, pq, rows_of, sizes_of, slices
from qmadmin.archive.writing import ArchiveWriter, PartWriter, part_in
from qmcore import bulk_rows
from qmcore.errors import OperatingSystemError, QueueError, SystemFailureError
from qmcore.message import State
from tests.fix_archive import GROUPS, contents, make, manifest_of, msgid, refuses, row, written
from tests.fix_store import ROOT, SOURCES

UNFINISHED = "the archive in the directory '{}' is not finished: it has no manifest.json"


def batch(rows, queue="Q"):
    return batch_of("S", queue, State.READY, False, rows, msgid("S"))


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def in_memory(rows_of_batches):
    """Write a part into memory; return its entry and its file."""
    file = io.BytesIO()
    with PartWriter("x.parquet", file) as writer:
        for rows in rows_of_batches:
            writer.write(batch(rows))
        entry = writer.close()
    return entry, file


class TestDirectory:
    def test_nothing_but_the_archive_is_left_and_only_its_owner_may_read_it(self, archive):
        assert names(archive) == ["manifest.json", "manifest.sha256", *GROUPS]
        assert stat.S_IMODE(archive.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in archive.iterdir()} == {0o600}

    def test_the_digest_is_as_sha256sum_checks_it(self, archive):
        done = subprocess.run(["sha256sum", "-c", "manifest.sha256"], cwd=archive, capture_output=True, check=True)
        assert done.stdout == b"manifest.json: OK\n"

    def test_a_directory_with_something_in_it_is_refused(self, tmp_path):
        (tmp_path / "letter").touch()
        for again in (False, True):
            with refuses("not-empty", f"the directory '{tmp_path}' is not empty"):
                ArchiveWriter.create(tmp_path, again=again)

    def test_a_finished_archive_is_never_written_over(self, archive):
        before = contents(open_archive(archive))
        for again in (False, True):
            with refuses("not-empty", f"the directory '{archive}' holds an archive already"):
                ArchiveWriter.create(archive, again=again)
        writer = ArchiveWriter(archive)
        with refuses("not-empty", f"the directory '{archive}' holds an archive already"):
            writer.finish(manifest_of((), spaces=()))
        writer.discard()
        assert contents(open_archive(archive)) == before

    def test_what_an_export_left_that_was_killed_is_removed_only_where_that_is_asked_for(self, tmp_path):
        abandoned = ArchiveWriter.create(tmp_path / "archive")
        written(abandoned)
        sentence = "holds an archive that is being written, or whose export was not finished"
        with refuses("not-empty", f"the directory '{tmp_path}/archive' {sentence}"):
            ArchiveWriter.create(tmp_path / "archive")
        writer = ArchiveWriter.create(tmp_path / "archive", again=True)
        writer.finish(manifest_of(written(writer)))
        assert contents(open_archive(tmp_path / "archive")) == GROUPS

    def test_other_files_are_not_removed_with_what_an_export_left(self, tmp_path):
        ArchiveWriter.create(tmp_path)
        (tmp_path / "letter").touch()
        with pytest.raises(QueueError):
            ArchiveWriter.create(tmp_path, again=True)
        ArchiveWriter(tmp_path).discard()
        assert names(tmp_path) == ["letter"]

    def test_a_discarded_archive_leaves_nothing(self, tmp_path):
        writer = ArchiveWriter.create(tmp_path / "archive")
        written(writer)
        writer.discard()
        assert names(tmp_path) == []

    def test_a_directory_that_cannot_be_made_is_told(self, tmp_path):
        with refuses("unwritable", f"the archive '{tmp_path}/a/b' cannot be written: No such file or directory"):
            ArchiveWriter.create(tmp_path / "a" / "b")


class TestAttempts:
    def test_two_attempts_at_a_part_do_not_meet_and_the_one_that_is_named_counts(self, tmp_path):
        writer = ArchiveWriter.create(tmp_path)
        entries = written(writer)
        lost = written(writer)
        assert {entry.staged for entry in entries}.isdisjoint(entry.staged for entry in lost)
        late = part_in(tmp_path, "part-00000.parquet")
        writer.finish(manifest_of(entries))
        assert set(names(tmp_path)) == {*GROUPS, "manifest.json", "manifest.sha256"}
        late.abandon()
        opened = open_archive(tmp_path)
        opened.verify()
        assert contents(opened) == GROUPS

    def test_an_attempt_that_ends_after_the_archive_does_it_no_harm(self, tmp_path):
        writer = ArchiveWriter.create(tmp_path)
        with part_in(tmp_path, "part-00000.parquet") as late:
            late.write(batch([row(1)]))
            writer.finish(manifest_of(written(writer)))
            late.close()
        opened = open_archive(tmp_path)
        opened.verify()
        assert contents(opened) == GROUPS

    @pytest.mark.parametrize("end", ["finish", "discard"])
    def test_an_attempt_that_begins_after_the_archive_is_refused_and_leaves_nothing(self, tmp_path, end):
        archive = tmp_path / "archive"
        writer = ArchiveWriter.create(archive)
        if end == "finish":
            writer.finish(manifest_of(written(writer)))
        else:
            (archive / "letter").touch()
            writer.discard()
        before = names(archive)
        with refuses("unwritable", f"the archive '{archive}' cannot be written: it was finished or given up meanwhile"):
            part_in(archive, "part-00000.parquet")
        assert names(archive) == before

    @pytest.mark.parametrize(("step", "time"), [("names", 1), ("names", 2), ("remove", 1), ("names", 3)])
    def test_an_attempt_that_makes_its_file_while_the_archive_is_discarded_leaves_nothing(
        self, tmp_path, monkeypatch, step, time
    ):
        archive, came, done = tmp_path / "archive", itertools.count(1), getattr(Directory, step)
        writer = ArchiveWriter.create(archive)

        def meanwhile(place, *name):
            found = done(place, *name)
            if next(came) == time:
                # It stands still before it sees whether the mark is there.
                (archive / ".part-00000.parquet.01234567").touch()
            return found

        monkeypatch.setattr(Directory, step, meanwhile)
        writer.discard()
        assert next(came) > time
        assert names(tmp_path) == []

    def test_a_directory_that_gets_another_file_while_the_archive_is_discarded_keeps_that_alone(
        self, tmp_path, monkeypatch
    ):
        writer = ArchiveWriter.create(tmp_path / "archive")
        drop = Directory.drop

        def meanwhile(place):
            (tmp_path / "archive" / "letter").touch()
            drop(place)

        monkeypatch.setattr(Directory, "drop", meanwhile)
        writer.discard()
        assert names(tmp_path / "archive") == ["letter"]

    def test_a_part_that_was_given_up_leaves_nothing(self, tmp_path):
        ArchiveWriter.create(tmp_path)
        before = names(tmp_path)
        with pytest.raises(KeyError), part_in(tmp_path, "x.parquet") as writer:
            writer.write(batch([row(1)]))
            raise KeyError
        with part_in(tmp_path, "x.parquet") as writer:
            writer.write(batch([row(1)]))
        assert names(tmp_path) == before

    def test_an_archive_is_not_finished_without_a_part(self, tmp_path):
        writer = ArchiveWriter.create(tmp_path)
        entries = written(writer)
        (tmp_path / entries[1].staged).unlink()
        with refuses("missing-part", "part 'part-00001.parquet' of the archive is missing"):
            writer.finish(manifest_of(entries))
        with refuses("unfinished", UNFINISHED.format(tmp_path)):
            open_archive(tmp_path)

    def test_an_archive_is_not_finished_with_a_part_that_was_cut_off(self, tmp_path):
        writer = ArchiveWriter.create(tmp_path)
        entries = written(writer)
        os.truncate(tmp_path / entries[0].staged, 10)
        with refuses("size", f"part 'part-00000.parquet' has 10 bytes, its manifest says {entries[0].size}"):
            writer.finish(manifest_of(entries))

    def test_parts_that_were_brought_from_elsewhere_are_taken_as_they_stand(self, archive, tmp_path):
        manifest = open_archive(archive).manifest
        writer = ArchiveWriter.create(tmp_path / "other")
        for name in GROUPS:
            (tmp_path / "other" / name).write_bytes((archive / name).read_bytes())
        writer.finish(manifest)
        open_archive(tmp_path / "other").verify()

    def test_a_name_that_no_part_can_have_is_refused(self, tmp_path):
        with refuses("part-name", "'../x.parquet' is not a name that a part of an archive can have"):
            part_in(tmp_path, "../x.parquet")


class FullDisk(io.BytesIO):
    def __init__(self, room):
        super().__init__()
        self.room = room

    def write(self, data):
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


@pytest.mark.parametrize("room", [0, 3, 500, 5000])
def test_a_full_disk_is_told_and_gives_the_part_up(room):
    gone = []
    sentence = "part 'x.parquet' of the archive cannot be written: No space left on device"
    with (
        refuses("unwritable", sentence),
        PartWriter("x.parquet", FullDisk(room), dispose=lambda: gone.append(1)) as writer,
    ):
        writer.write(batch([row(1, body=os.urandom(4000))]))
        writer.close()
    assert gone == [1]


def test_a_part_that_finds_no_room_leaves_none_of_it_taken(small_disk):
    ArchiveWriter.create(small_disk)
    before = names(small_disk)
    sentence = f"part 'x.parquet' of the archive cannot be written into '{small_disk}': No space left on device"
    with refuses("unwritable", sentence), part_in(small_disk, "x.parquet") as writer:
        for at in range(1, 3):
            writer.write(batch([row(at, body=os.urandom(3 * 2**20))]))
        writer.close()
    assert names(small_disk) == before
    with part_in(small_disk, "x.parquet") as writer:
        writer.write(batch([row(1, body=os.urandom(3 * 2**20))]))
        assert writer.close().rows == 1


def test_giving_a_part_up_writes_nothing_to_a_disk_that_may_be_full():
    with pytest.raises(KeyError), PartWriter("x.parquet", FullDisk(4)) as writer:
        writer.write(batch([row(1)]))
        raise KeyError


@pytest.mark.parametrize("step", range(12))
def test_a_disk_that_fails_at_any_step_of_the_end_leaves_all_or_nothing(tmp_path, monkeypatch, step):
    writer = ArchiveWriter.create(tmp_path)
    entries = written(writer)
    steps = iter(range(100))

    def failing(real):
        def call(*arguments, **named):
            if next(steps) == step:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as broken:
        for name in ("fsync", "rename", "unlink"):
            broken.setattr(os, name, failing(getattr(os, name)))
        try:
            writer.finish(manifest_of(entries))
            said = ""
        except OperatingSystemError as error:
            said = error.message
    assert said in {"", f"the archive '{tmp_path}' cannot be written: Input/output error"}
    if not (tmp_path / "manifest.json").exists():
        with refuses("unfinished", UNFINISHED.format(tmp_path)):
            open_archive(tmp_path)
        assert said
        writer.finish(manifest_of(entries))
    opened = open_archive(tmp_path)
    opened.verify()
    assert contents(opened) == GROUPS
    assert {name for name in names(tmp_path) if not name.startswith(".")} == {
        *GROUPS,
        "manifest.json",
        "manifest.sha256",
    }


class TestRowGroups:
    def test_row_groups_are_bounded_by_rows(self):
        entry, file = in_memory([[row(at) for at in range(first, first + 900)] for first in range(1, 40_000, 900)])
        groups = pq.ParquetFile(file).metadata
        sizes = [groups.row_group(at).num_rows for at in range(groups.num_row_groups)]
        assert max(sizes) <= GROUP_ROWS
        assert len(sizes) == 3
        assert entry.rows == sum(sizes)

    def test_one_long_batch_becomes_several_row_groups(self):
        entry, file = in_memory([[row(at) for at in range(1, GROUP_ROWS + 10)]])
        groups = pq.ParquetFile(file).metadata
        assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [GROUP_ROWS, 9]
        assert [first for first, _ in batches(entry, file)][-1] == GROUP_ROWS

    def test_row_groups_are_bounded_by_bytes(self):
        body = bytes(GROUP_BYTES // 4 + 1)
        entry, file = in_memory([[row(1, body=body)], [row(2, body=body), row(3, body=body)], [row(4, body=body)]])
        groups = pq.ParquetFile(file).metadata
        assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [3, 1]
        entry, file = in_memory([[row(at, body=body) for at in range(1, 6)]])
        groups = pq.ParquetFile(file).metadata
        assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [3, 2]
        verify_part(entry, file)

    def test_headers_count_as_bodies_do(self):
        headers = '{"x":"' + "y" * SLICE_BYTES + '"}'
        entry, file = in_memory([[row(1), row(2, headers=headers), row(3), row(4)]])
        assert [(first, found.num_rows) for first, found in batches(entry, file)] == [(0, 1), (1, 1), (2, 2)]

    def test_a_body_of_the_greatest_length_is_carried(self):
        body = bytes(64 * 2**20)
        entry, file = in_memory([[row(1, body=b"x")], [row(2, body=body)], [row(3, body=b"y")]])
        verify_part(entry, file)
        found = [row for _, each in batches(entry, file) for _, rows in rows_of(each) for row in rows]
        assert [len(row[bulk_rows.BODY]) for row in found] == [1, 64 * 2**20, 1]

    def test_a_part_without_messages_is_one(self):
        entry, file = in_memory([])
        assert (entry.rows, entry.portions) == (0, ())
        verify_part(entry, file)
        assert list(batches(entry, file)) == []


class TestSlices:
    def test_slices_are_bounded_and_the_same_each_time(self):
        sizes = [0, 1, SLICE_BYTES, SLICE_BYTES - 1, 1, 1, 2 * SLICE_BYTES, 0, 0]
        entry, file = in_memory([[row(at, body=bytes(size)) for at, size in enumerate(sizes, 1)]])
        cut = [(first, found.num_rows) for first, found in batches(entry, file)]
        assert cut == [(0, 2), (2, 1), (3, 2), (5, 1), (6, 1), (7, 2)]
        assert [(first, found.num_rows) for first, found in batches(entry, file)] == cut

    def test_slices_are_bounded_by_rows(self):
        entry, file = in_memory([[row(at) for at in range(1, 2 * SLICE_ROWS + 4)]])
        assert [(first, found.num_rows) for first, found in batches(entry, file)] == [
            (0, SLICE_ROWS),
            (SLICE_ROWS, SLICE_ROWS),
            (2 * SLICE_ROWS, 3),
        ]

    def test_slices_leave_no_row_out(self):
        for sizes in ([], [5], [5, 5, 5], [1, 9, 1, 1, 1, 1, 30, 2]):
            cut = list(slices(sizes, 3, 10))
            assert [at for first, count in cut for at in range(first, first + count)] == list(range(len(sizes)))
            assert all(count <= 3 and (count == 1 or sum(sizes[first : first + count]) <= 10) for first, count in cut)


def test_what_a_part_holds_is_counted_by_queue_and_state(tmp_path):
    first, second = make(tmp_path / "archive").parts
    told = [(found.queue, found.state.value, found.memory, found.messages, found.size) for found in first.portions]
    assert told == [
        ("Q", "ready", False, 4, 257),
        ("Q", "ready", True, 1, 9),
        ("Q", "delayed", False, 1, 0),
        ("Q", "consumed", False, 2, 256),
    ]
    assert [(found.space, found.first, found.last, found.pages) for found in second.portions] == [
        ("OTHER", 20, 22, 2),
        ("QSPACE", 10, 18, 301),
    ]


def test_a_message_whose_body_is_not_as_long_as_it_says_is_not_written():
    damaged = list(row(1, body=b"abc"))
    damaged[bulk_rows.SIZE] = 4
    with refuses("contents", "a message for part 'x.parquet' has a body of another size than it says"):
        in_memory([[tuple(damaged)]])


def test_a_message_without_what_each_has_is_not_written():
    damaged = list(row(1))
    damaged[bulk_rows.ORDER_KEY] = None
    with pytest.raises(SystemFailureError, match=r"part 'x.parquet' has a message without 'order_key'"):
        in_memory([[tuple(damaged)]])


def test_parts_of_the_same_messages_are_the_same():
    many = [[row(at, body=b"x" * at) for at in range(1, 50)]]
    assert in_memory(many)[0] == in_memory(many)[0]


def test_statistics_keep_no_bodies():
    _, file = in_memory([[row(1, body=b"secret", headers='{"a":"secret"}')]])
    group = pq.ParquetFile(file).metadata.row_group(0)
    told = {group.column(at).path_in_schema: group.column(at).statistics for at in range(group.num_columns)}
    assert told["body"] is None
    assert told["headers"] is None
    assert told["sequence"].min == 1


def child(program):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": SOURCES},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stderr == ""
    return done.stdout


def test_large_bodies_take_memory_for_a_few_of_them_only(tmp_path):
    said = child(f"""
import resource, sys
from pathlib import Path
from qmadmin.archive.reading import open_archive
from qmadmin.archive.writing import ArchiveWriter
from qmadmin.archive.rows import rows_of, batch_of
from tests.archive.test_writing import batch
from tests.fix_archive import row
from qmadmin.archive.reading import batches, verify_part

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

path = Path({str(tmp_path)!r}) / "x.parquet"
body = bytes(16 * 2**20)
before = peak()
from qmadmin.archive.writing import PartWriter
with path.open("wb") as file, PartWriter("x.parquet", file) as writer:
    for at in range(1, 13):
        writer.write(batch([row(at, body=body)]))
    entry = writer.close()
with path.open("rb") as file:
    verify_part(entry, file)
    for _, found in batches(entry, file):
        assert len(rows_of(found)[0][1]) == 1
print(peak() - before)
""")
    assert int(said) < 8 * 16


def test_neither_pandas_nor_all_of_arrow_is_loaded(tmp_path):
    said = child(f"""
import sys
from pathlib import Path
from qmadmin.archive.reading import open_archive
from qmadmin.archive.rows import batch_of, rows_of
from qmadmin.archive.writing import ArchiveWriter
before = set(sys.modules)
from tests.fix_archive import make, contents
for name in set(sys.modules) - before:
    if name.split(".")[0] in ("pandas", "pyarrow"):
        del sys.modules[name]
make(Path({str(tmp_path)!r}) / "archive")
contents(open_archive(Path({str(tmp_path)!r}) / "archive"))
print(sorted({{"pandas", "pyarrow.compute", "pyarrow.dataset"}} & set(sys.modules)))
""")
    assert said == "[]\n"


def test_without_pyarrow_one_sentence_names_the_extra():
    said = child("""
import sys
sys.modules["pyarrow"] = None
from qmcore.errors import ReleaseError
import qmadmin.archive.manifest_file, qmadmin.archive.columns, qmadmin.archive.manifest_file
try:
    import qmadmin.archive.reading
except ReleaseError as error:
    print(error.message, error.hint, sep="\\n")
""")
    first, second = said.splitlines()
    assert first.startswith("archives need pyarrow, which cannot be imported: ")
    assert second == "Install it with: pip install pyarrow."


def test_importing_the_package_loads_no_pyarrow():
    assert child("import sys, qmadmin, qmadmin.archive.manifest_file; print('pyarrow' in sys.modules)") == "False\n"


def test_the_parts_module_and_the_arrays_agree_on_lengths():
    rows = batch([row(1), row(2, body=b"abc"), row(3, body=b"")])
    table = pa.Table.from_batches([rows, rows])
    assert sizes_of(table.slice(1, 4)) == [3, 0, 0, 3]


def test_where_messages_stood_is_read_without_them(archive):
    opened = open_archive(archive)
    for name, groups in GROUPS.items():
        found = [
            (*standing, place) for standing, places in opened.places(opened.manifest.part(name), 3) for place in places
        ]
        assert found == [
            (space, queue, state, memory, (row[0], row[1], row[bulk_rows.COLUMNS.index("retries")]))
            for space, queue, state, memory, rows in groups
            for row in rows
        ]
        assert all(len(places) <= 3 for _, places in opened.places(opened.manifest.part(name), 3))


def test_a_directory_is_meant_from_where_it_was_named(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    place = Directory(Path("archive"))
    place.make()
    monkeypatch.chdir("elsewhere")
    there = pickle.loads(pickle.dumps(place))
    assert (there.names(), str(there)) == ([], "archive")
