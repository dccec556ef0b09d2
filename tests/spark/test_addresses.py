"""Queue spaces that are carried to and from archives at addresses."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmadmin.archive.reading import open_archive
from qmadmin.opening import create_device
from qmadmin.spark.hadoop import hadoop_place
from qmadmin.spark.spark_executor import SparkExecutor
from qmadmin.spark.views import ask, shown
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.importing import load_archive
from qmadmin.transfer.moving import move, remove_exported
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.errors import OperatingSystemError, QueueError, SystemFailureError
from tests.doom import Doom
from tests.fix_archive import refuses
from tests.fix_spark import address_of
from tests.fix_store import make_queue, space_definition
from tests.spark.test_executors import Stumbling

PART = "part-00000.parquet"
MANY = 5_000
"""Messages that are too many for one part."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where an archive is to lie."""
    return tmp_path / "an [archive]{of},*x"


@pytest.fixture
def place(spark, directory: Path) -> Iterator:
    """The same, as Hadoop reaches it."""
    with hadoop_place(spark, address_of(directory)) as found:
        yield found


def without_sums(directory: Path) -> None:
    """Leave no sums, for which Hadoop would judge what is altered before we do."""
    for path in directory.glob(".*.crc"):
        path.unlink()


@pytest.fixture
def full(file_device):
    """A device with messages for several parts."""
    with file_device.open_space("SPACE") as space:
        space.enqueue_many("Q", [b"%d" % number for number in range(MANY)])
    return file_device


@pytest.fixture
def there(tmp_path: Path):
    """A device with nothing on it."""
    (tmp_path / "there").mkdir()
    with create_device(str(tmp_path / "there" / "QUE"), 60_000) as device:
        yield device


class TestCarrying:
    def test_queue_space_goes_there_and_comes_back_and_the_archive_is_like_any_other(
        self, spark, place, directory: Path, tmp_path: Path, full, there
    ):
        workers = SparkExecutor(spark, 2)
        steps = []
        exported = export(full.config, place, executor=workers)
        assert len(exported.manifest.parts) > 1
        load_archive(
            place, there.config, ImportOptions(start=True), executor=workers, progress=lambda *step: steps.append(step)
        )
        assert steps[-1] == ("Importing", MANY, MANY)
        with there.open_space("SPACE") as space:
            assert len(list(space.messages("Q"))) == MANY
        compared = compare(place, there.config, executor=workers)
        assert compared.differences == ()
        shutil.copytree(directory, tmp_path / "copy")
        without_sums(tmp_path / "copy")
        assert compare(tmp_path / "copy", full.config).digests == compared.digests

    def test_archive_that_was_copied_there_is_read(self, spark, place, directory: Path, full, there):
        export(full.config, directory)
        load_archive(place, there.config, executor=SparkExecutor(spark, 2))
        assert compare(directory, there.config).differences == ()

    def test_shell_takes_what_lies_there_and_what_it_writes_is_taken(self, spark, place, directory: Path, laid_out):
        assert laid_out.run("qopen QSPACE\nqput STRING hello\nqput -t +3600 STRING later\n").status == 0
        export(laid_out.device, place)
        ran = laid_out.run(f"qimport -y -r COPY '{directory}'\n")
        assert ran.status == 0, ran.both
        shutil.rmtree(directory)
        assert laid_out.run(f"qexport -s COPY '{directory}'\n").status == 0
        assert compare(place, laid_out.device, executor=SparkExecutor(spark, 2)).differences == ()
        assert open_archive(place).manifest.messages == 2

    def test_programs_ask_about_an_address_as_about_a_device(self, spark, place, directory: Path, full):
        export(full.config, place)
        with shown(spark, address_of(directory)):
            assert ask(spark, "SELECT count(*) FROM messages").table.rows == [(MANY,)]

    def test_move_leaves_nothing_and_removal_takes_what_is_there(self, spark, place, full, there):
        workers = SparkExecutor(spark, 2)
        moved = move(full.config, there.config, place, executor=workers)
        assert (moved.removed.removed, moved.removed.kept) == (MANY, 0)
        again = remove_exported(place, full.config, executor=workers)
        assert (again.removed, again.kept) == (0, MANY)
        with full.open_space("SPACE") as space:
            assert list(space.messages("Q")) == []

    def test_selection_is_counted_before_it_is_imported(self, spark, place, full, there):
        export(full.config, place)
        asked = ImportOptions(selection=ArchiveSelection(count=7))
        assert load_archive(place, there.config, asked, executor=SparkExecutor(spark, 2)).messages == 7

    def test_task_that_failed_is_tried_again_and_nothing_is_there_twice(
        self, spark, place, tmp_path: Path, full, there
    ):
        (tmp_path / "marks").mkdir()
        export(full.config, place)
        stumbling = Stumbling(SparkExecutor(spark, 2), tmp_path / "marks")
        load_archive(place, there.config, ImportOptions(start=True), executor=stumbling)
        assert {mark.name.split("-")[0] for mark in (tmp_path / "marks").iterdir()} == {"verify_part", "load_part"}
        with there.open_space("SPACE") as arrived:
            assert [m.text for m in arrived.dequeue_many("Q", 2 * MANY)] == [f"{number}" for number in range(MANY)]

    def test_damage_that_a_task_finds_is_told_in_its_own_sentence(self, spark, place, directory: Path, full):
        export(full.config, place)
        data = bytearray((directory / PART).read_bytes())
        data[10] ^= 1
        (directory / PART).write_bytes(data)
        with pytest.raises(SystemFailureError, match=rf"gave up the job: Checksum error: /.*{PART}") as told:
            compare(place, executor=SparkExecutor(spark, 2))
        assert "\n" not in told.value.message
        without_sums(directory)
        with refuses("digest", f"part '{PART}' was altered: it has another digest"):
            compare(place, executor=SparkExecutor(spark, 2))

    def test_part_that_is_gone_by_then_is_told(self, spark, place, directory: Path, full, monkeypatch):
        export(full.config, place)
        found = open_archive(place)
        (directory / PART).unlink()
        monkeypatch.setattr("qmadmin.transfer.comparing.open_archive", lambda *_: found)
        with pytest.raises(SystemFailureError, match=PART):
            compare(place, executor=SparkExecutor(spark, 2))

    def test_full_disk_of_the_staging_directory_is_told_with_its_path(
        self, spark, directory: Path, full, small_disk: Path, monkeypatch
    ):
        with full.open_space("SPACE") as space:
            make_queue(space, "LARGE")
            space.enqueue_many("LARGE", [os.urandom(2**20) for _ in range(12)])
        monkeypatch.setattr("tempfile.tempdir", str(small_disk))
        with (
            pytest.raises(OperatingSystemError, match=f"cannot be written into '{small_disk}/qmspark-") as told,
            hadoop_place(spark, address_of(directory)) as place,
        ):
            export(full.config, place)
        assert "No space left on device" in told.value.message
        assert list(small_disk.iterdir()) == []
        assert not directory.exists()


class TestCommands:
    """The commands of qmspark, which find the session of the tests."""

    @pytest.fixture(autouse=True)
    def address(self, spark, qmspark) -> str:
        del spark
        return f"file://{qmspark.path('monday')}"

    def test_all_take_an_address(self, qmspark, address):
        new = qmspark.empty_device()
        exported = qmspark.json("export", qmspark.device, address).found
        assert (exported["path"], exported["messages"]) == (address, 5)
        assert qmspark.json("show", address).found["manifest_sha256"] == exported["manifest_sha256"]
        qmspark("import", "--start", address, new)
        assert qmspark.json("verify", address, new).found["differences"] == 0
        sql = "SELECT queue, count(*) AS messages FROM messages GROUP BY queue ORDER BY queue"
        asked = json.loads(qmspark("query", "--format", "json", address, sql).out)
        assert asked["rows"] == [{"queue": "errq", "messages": 1}, {"queue": "orders", "messages": 4}]
        assert f"Archive '{address}'" in qmspark("show", address).out

    def test_archive_that_is_there_is_refused_like_any_other(self, qmspark, address):
        qmspark("export", "-q", qmspark.device, address)
        refusal = qmspark.refusal("export", qmspark.device, address)
        assert f"the directory '{address}' holds an archive already" in refusal

    def test_removal_goes_on_where_the_archive_is_complete(self, qmspark, address):
        qmspark("export", "-q", qmspark.device, address)
        removed = qmspark.json("export", "--remove", "--resume", "--queue", "errq", qmspark.device, address).found
        assert removed["removed"] == 5

    def test_move_goes_on_where_the_archive_is_complete_and_to_no_other_device(self, qmspark, address):
        new, other = qmspark.empty_device(), qmspark.empty_device("OTHER")
        moving = ("export", "--move", new, qmspark.device, address)
        assert qmspark.json(*moving).found["removed"] == 5
        again = qmspark.json(*moving, "--resume").found
        assert (again["messages"], again["removed"], again["removed_before"], again["kept"]) == (5, 0, 5, 0)
        assert len(qmspark.messages(new)) == 4
        refusal = qmspark.refusal("export", "--move", other, "--resume", qmspark.device, address)
        assert f"is of a move to device {new!r}, which may have its messages" in refusal

    def test_import_that_was_cut_short_is_given_up(self, qmspark, address):
        new = qmspark.empty_device()
        qmspark("export", "-q", qmspark.device, address)
        assert qmspark.json("import", "--abandon", address, new).found["imports"] == 0

    def test_processes_are_no_workers_for_what_only_spark_reads(self, qmspark, address):
        assert "--processes is for work without Spark" in qmspark.refusal("verify", "--processes", "2", address)

    def test_what_is_wrong_with_an_address_is_one_sentence(self, qmspark):
        for command in (["show"], ["verify"], ["import"]):
            device = [] if command == ["show"] else [qmspark.device]
            refusal = qmspark.refusal(*command, "nosuch://host/a", *device)
            assert refusal.startswith("ERROR: QMEOS: the archive 'nosuch://host/a' cannot be reached: No FileSystem")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "place",
    [
        Doom("qmadmin.spark.hadoop:HadoopPlace.take", "call", 2),
        Doom("qmadmin.spark.hadoop:HadoopPlace.rename", "return", 2),
        Doom("qmadmin.spark.hadoop:HadoopPlace.take", "return", number=signal.SIGTERM),
        Doom("qmadmin.spark.hadoop:HadoopPlace.take", "return", number=signal.SIGINT, of_group=True),
        Doom("qmadmin.spark.hadoop:hadoop_place", "return", number=signal.SIGINT, of_group=True),
    ],
    ids=str,
)
def test_export_that_is_told_to_end_leaves_nothing_and_one_that_is_killed_no_archive(
    spark, doomed, tmp_path: Path, monkeypatch, place
):
    with create_device(tmp_path / "QUE", 30_000) as made:
        made.create_space(space_definition(pages=15_000, messages=10_000))
        with made.open_space("SPACE") as space:
            make_queue(space, "Q")
            space.enqueue_many("Q", [f"{number}" for number in range(MANY)])
    address = address_of(tmp_path / "archive", "file")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    said = doomed.program(place, "export", tmp_path / "QUE", address)
    assert "Traceback" not in said.stderr
    if place.number != signal.SIGKILL:
        assert (said.returncode, said.stdout) == (128 + place.number, ""), said.stderr
        assert not (tmp_path / "archive").exists()
        assert list(tmp_path.glob("qmspark-*")) == []
    else:
        assert said.returncode == -signal.SIGKILL
        with pytest.raises(QueueError, match="is not finished"):
            open_archive(tmp_path / "archive")
    with hadoop_place(spark, address) as there:
        export(str(tmp_path / "QUE"), there, ExportOptions(again=True))
        assert open_archive(there).manifest.messages == MANY
    doomed.leaves_nobody()
