"""The place of an archive that Hadoop reaches, on the file system of this machine, and on one that stands before it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmadmin.archive.reading import holds_archive, open_archive
from qmadmin.archive.writing import MARK, ArchiveWriter
from qmadmin.spark.hadoop import hadoop_place
from qmadmin.spark.session import as_os_errors, reason_of
from qmcore.errors import OperatingSystemError, QueueError
from tests.fix_archive import GROUPS, KEY, contents, make, manifest_of, refuses, resealed, written
from tests.fix_spark import address_of

PART = "part-00000.parquet"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where an archive lies or is to lie."""
    return tmp_path / "an [archive]{of},*x"


@pytest.fixture(params=["file", "viewfs"])
def address(request, directory: Path) -> str:
    """The address of the same, whose name is full of what could be a pattern."""
    return address_of(directory, request.param)


@pytest.fixture
def place(spark, address: str) -> Iterator:
    """The same, as Hadoop reaches it."""
    with hadoop_place(spark, address) as found:
        yield found


def names(directory: Path) -> set[str]:
    """Return the names of files, without those that Hadoop has beside its own for their sums."""
    return {path.name for path in directory.iterdir() if not path.name.endswith(".crc")}


class TestReading:
    @pytest.fixture(autouse=True)
    def made(self, directory: Path) -> None:
        make(directory)

    def test_what_is_read_is_the_same(self, place, directory: Path):
        found = open_archive(place)
        assert found.manifest == open_archive(directory).manifest
        assert contents(found) == GROUPS
        assert holds_archive(place)

    def test_signed_archive_takes_its_key(self, place, directory: Path):
        shutil.rmtree(directory)
        make(directory, KEY)
        assert open_archive(place, KEY).manifest.parts
        with refuses("key-needed", "the archive is signed, and no key was given to check it with"):
            open_archive(place)

    def test_missing_and_extra_files_are_refused(self, place, directory: Path):
        (directory / "letter.txt").touch()
        with refuses("extra-file", "the directory has the file 'letter.txt', which does not belong to the archive"):
            open_archive(place)
        (directory / "letter.txt").rename(directory / ".letter.crc")
        open_archive(place)
        (directory / PART).unlink()
        with refuses("missing-part", f"part '{PART}' of the archive is missing"):
            open_archive(place)

    def test_what_is_no_archive_is_refused(self, place, address: str, directory: Path):
        called = f"'{address}'"
        (directory / "manifest.json").unlink()
        with refuses("unfinished", f"the archive in the directory {called} is not finished: it has no manifest.json"):
            open_archive(place)
        assert not holds_archive(place)
        shutil.rmtree(directory)
        with refuses("no-directory", f"the archive {called} is not there"):
            open_archive(place)
        assert not holds_archive(place)
        directory.touch()
        with refuses("no-directory", f"the archive {called} is not a directory"):
            open_archive(place)
        directory.unlink()
        directory.mkdir()
        with refuses("empty", f"the directory {called} is empty"):
            open_archive(place)

    def test_altered_manifest_is_refused(self, place, directory: Path):
        data = bytearray((directory / "manifest.json").read_bytes())
        data[100] ^= 1
        (directory / "manifest.json").write_bytes(data)
        with refuses("altered", "the manifest was altered: it does not have the digest that manifest.sha256 says"):
            open_archive(place)

    def test_part_of_another_size_is_refused_and_so_is_one_that_changes_while_it_is_read(self, place, directory: Path):
        found, size = open_archive(place), (directory / PART).stat().st_size
        os.truncate(directory / PART, 100)
        sentence = f"part '{PART}' has 100 bytes, its manifest says {size}"
        with refuses("size", sentence):
            open_archive(place)
        with refuses("size", sentence):
            found.verify()

    @pytest.mark.parametrize("address", ["file"], indirect=True)
    def test_what_stands_elsewhere_and_what_is_no_file_is_refused(self, place, directory: Path, tmp_path: Path):
        (directory / PART).rename(tmp_path / "elsewhere")
        (directory / PART).symlink_to(tmp_path / "elsewhere")
        with refuses("link", f"'{PART}' of the archive is a symbolic link"):
            open_archive(place)
        (directory / PART).unlink()
        os.mkfifo(directory / PART)
        with refuses("no-file", f"'{PART}' of the archive is not a file"):
            open_archive(place)

    def test_illegal_name_of_a_part_is_refused(self, place, directory: Path):
        resealed(directory, lambda document: document["parts"][0].update(name="../x.parquet"))
        with pytest.raises(QueueError, match=r"x\.parquet"):
            open_archive(place)


class TestWriting:
    def test_archive_is_that_of_a_directory_and_only_its_owner_may_read_it(
        self, place, directory: Path, tmp_path: Path
    ):
        writer = ArchiveWriter.create(place)
        staging = writer.staging
        assert staging.stat().st_mode & 0o777 == 0o700
        entries = tuple(writer.taken(entry) for entry in written(writer))
        assert [path.name for path in staging.iterdir()] == [MARK]
        writer.finish(manifest_of(entries))
        make(tmp_path / "other")
        assert names(directory) == names(tmp_path / "other")
        for name in names(directory):
            assert (directory / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
        assert directory.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
        assert contents(open_archive(directory)) == contents(open_archive(place)) == GROUPS

    def test_staging_directory_is_gone_in_the_end_whatever_happens(self, spark, address: str, directory: Path):
        with pytest.raises(KeyError), hadoop_place(spark, address) as place:
            writer = ArchiveWriter.create(place)
            written(writer)
            raise KeyError
        assert not writer.staging.exists()

    def test_finished_archive_is_never_written_over(self, place, address: str, directory: Path):
        make(directory)
        for again in (False, True):
            with refuses("not-empty", f"the directory '{address}' holds an archive already"):
                ArchiveWriter.create(place, again=again)
        ArchiveWriter(place).discard()
        assert contents(open_archive(directory)) == GROUPS

    def test_directory_with_something_in_it_is_refused(self, place, address: str, directory: Path):
        directory.mkdir()
        (directory / "letter").touch()
        for again in (False, True):
            with refuses("not-empty", f"the directory '{address}' is not empty"):
                ArchiveWriter.create(place, again=again)

    def test_full_disk_there_is_told_and_nothing_is_left(self, spark, small_disk: Path):
        address = address_of(small_disk / "archive", "file")
        with hadoop_place(spark, address) as place:
            writer = ArchiveWriter.create(place)
            entry = written(writer)[0]
            os.truncate(writer.staging / entry.staged, 8 * 2**20)
            with refuses("unwritable", f"the archive '{address}' cannot be written: No space left on device"):
                writer.taken(entry)
            writer.discard()
        assert list(small_disk.iterdir()) == []

    def test_directory_for_temporary_files_that_is_full_is_told(self, place, directory: Path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", "/proc")
        sentence = "parts cannot be written into a directory of '/proc' first: No such file or directory"
        with refuses("unwritable", sentence):
            ArchiveWriter.create(place)
        assert not directory.exists()

    @pytest.mark.parametrize("taken", [0, 1, 2])
    def test_what_a_killed_export_left_is_removed_only_where_that_is_asked_for(
        self, spark, place, address: str, directory: Path, taken
    ):
        with hadoop_place(spark, address) as abandoned:
            writer = ArchiveWriter.create(abandoned)
            for entry in written(writer)[:taken]:
                writer.taken(entry)
        assert len(names(directory)) == 1 + taken
        sentence = "holds an archive that is being written, or whose export was not finished"
        with refuses("not-empty", f"the directory '{address}' {sentence}"):
            ArchiveWriter.create(place)
        writer = ArchiveWriter.create(place, again=True)
        writer.finish(manifest_of(tuple(map(writer.taken, written(writer)))))
        assert contents(open_archive(directory)) == GROUPS
        assert names(directory) == {*GROUPS, "manifest.json", "manifest.sha256"}

    @pytest.mark.parametrize("step", range(8))
    def test_file_system_that_fails_at_any_step_of_the_end_leaves_all_or_nothing(
        self, place, directory: Path, monkeypatch, step
    ):
        writer = ArchiveWriter.create(place)
        entries = tuple(map(writer.taken, written(writer)))
        steps = iter(range(100))

        def failing(real):
            def call(*arguments):
                if next(steps) == step:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return real(*arguments)

            return call

        with monkeypatch.context() as broken:
            for name in ("write", "rename", "remove"):
                broken.setattr(place, name, failing(getattr(place, name)))
            with contextlib.suppress(OperatingSystemError):
                writer.finish(manifest_of(entries))
        if not (directory / "manifest.json").exists():
            with pytest.raises(QueueError, match="is not finished"):
                open_archive(place)
            writer.finish(manifest_of(entries))
        found = open_archive(place)
        found.verify()
        assert contents(found) == GROUPS

    def test_discarded_archive_leaves_nothing(self, place, directory: Path):
        writer = ArchiveWriter.create(place)
        for entry in written(writer):
            writer.taken(entry)
        writer.discard()
        assert not directory.exists()

    def test_two_exports_do_not_meet(self, spark, place, address: str, directory: Path, monkeypatch):
        with hadoop_place(spark, address) as other:
            monkeypatch.setattr(place, "names", lambda: ArchiveWriter.create(other) and [])
            with refuses("unwritable", f"the archive '{address}' cannot be written: File exists"):
                ArchiveWriter.create(place)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nosuch://host/a", 'No FileSystem for scheme "nosuch"'),
        ("hdfs://", "Incomplete HDFS URI, no host: hdfs:/"),
        ("hdfs:///a", "Incomplete HDFS URI, no host: hdfs:///a"),
        ("hdfs://no.such.host.invalid/a", "there is no host 'no.such.host.invalid'"),
        ("hdfs://127.0.0.1:1/a", "no server answers at '127.0.0.1:1': Connection refused"),
        (
            "s3a://bucket/a",
            "Spark has no org.apache.hadoop.fs.s3a.S3AFileSystem; --conf spark.jars.packages brings it",
        ),
    ],
)
def test_what_cannot_be_reached_is_one_sentence(spark, address, reason):
    with (
        refuses("unreachable", f"the archive '{address}' cannot be reached: {reason}"),
        hadoop_place(spark, address) as place,
    ):
        open_archive(place)


def test_directory_that_cannot_be_made_is_told(spark):
    sentence = "the archive 'file:///proc/x/y' cannot be written: the directory cannot be made"
    with refuses("unwritable", sentence), hadoop_place(spark, "file:///proc/x/y") as place:
        ArchiveWriter.create(place)


def test_what_java_raises_is_an_error_of_the_operating_system_with_a_reason(spark):
    java = spark.sparkContext._jvm
    cases = [
        (java.org.apache.hadoop.security.AccessControlException("not you"), errno.EACCES, "Permission denied: not you"),
        (
            java.org.apache.hadoop.security.AccessControlException("Permission denied: user=ann"),
            errno.EACCES,
            "Permission denied: user=ann",
        ),
        (java.java.io.FileNotFoundException("/x"), errno.ENOENT, "No such file or directory"),
        (java.java.net.SocketTimeoutException("20000 ms"), errno.EHOSTUNREACH, "no server answers at 'h:1': 20000 ms"),
        (java.java.io.IOException("disk\n\tat x.y(Z.java)"), errno.EIO, "disk"),
        (java.java.io.IOException(), errno.EIO, "IOException"),
    ]
    for raised, number, reason in cases:
        promise = java.java.util.concurrent.CompletableFuture()
        promise.completeExceptionally(raised)
        with pytest.raises(OSError) as told, as_os_errors("h:1"):
            promise.join()
        assert (told.value.errno, told.value.strerror) == (number, reason)


def test_reason_has_no_classes_and_no_advice():
    assert reason_of("java.io.IOException: a.BException: gone; For more details see:  http://x\n\tat c.D") == "gone"
    assert reason_of("") == ""
