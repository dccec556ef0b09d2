"""The jobs of archives, done by tasks of Spark: what comes of them is the same as without."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark import SparkStageInfo, StatusTracker

from qmadmin.opening import create_device
from qmadmin.spark.spark_executor import SparkExecutor
from qmadmin.transfer import Local
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import export
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.importing import load_archive
from qmcore.errors import InUseError, InvalidArgumentError, SystemFailureError
from tests.fix_store import make_queue, space_definition
from tests.transfer.drawing import ACTS as DRAWN
from tests.transfer.drawing import QUEUES, Act, done, seen
from tests.transfer.test_identity import laid_out, places
from tests.ways import planting
from tests.ways.transitions import Transition

ACTS = [
    *(Act("enqueue", queue.name, f"{queue.name} {number}".encode()) for queue in QUEUES for number in range(6)),
    Act("enqueue", "fifo", b"y" * (1024 * 1024 + 1), {"headers": {"a": "b"}, "priority": 3}),
    Act("enqueue", "urgent", None, {"delay": 3600.0}),
    Act("enqueue", "fifo", b"first", {"top": True}),
    *(Act(what, name) for what in ("dequeue", "roll back", "before", "group") for name in ("fifo", "kept", "groups")),
]
"""Enough of everything to have all states, stores and orders."""

MANY = 9_000
"""Messages of one queue that are too many for one part."""


def workers(who: str, spark):
    return SparkExecutor(spark, 2) if who == "spark" else Local()


@pytest.mark.matrix
@pytest.mark.parametrize(("exporter", "importer"), [("spark", "spark"), ("spark", "alone"), ("alone", "spark")])
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_what_spark_carries_is_the_same_in_everything_that_can_be_seen(
    spark, request, tmp_path: Path, kind, exporter, importer
):
    (tmp_path / "here").mkdir()
    there, here = places(kind, request, tmp_path), places(kind, request, tmp_path / "here")
    with there.device() as device, here.device() as other:
        device.create_space(space_definition(pages=50_000, messages=20_000, memory=2**20))
        with device.open_space("SPACE") as space:
            done(space, ACTS, memory=True)
            space.enqueue_many("empty", [b"%d" % number for number in range(MANY)])
            exported = export(device.config, tmp_path / "archive", executor=workers(exporter, spark))
            before = seen(space)
        assert len(exported.manifest.parts) > 1
        load_archive(tmp_path / "archive", other.config, ImportOptions(start=True), executor=workers(importer, spark))
        with other.open_space("SPACE") as arrived:
            assert seen(arrived) == before
        compared = compare(tmp_path / "archive", other.config, executor=workers(exporter, spark))
        assert compared.differences == ()
        assert compared.digests == compare(tmp_path / "archive", executor=workers(importer, spark)).digests


def test_an_import_on_spark_asks_the_rules_once_for_each_queue(spark, tmp_path: Path):
    asked: list[tuple[Transition, str]] = []
    with create_device(tmp_path / "QUE", 9000) as device, create_device(tmp_path / "NEW", 9000) as other:
        device.create_space(space_definition())
        with device.open_space("SPACE") as space:
            for name in ("ONE", "TWO"):
                make_queue(space, name)
                space.enqueue_many(name, [b"x"] * 3)
        export(device.config, tmp_path / "archive")
        take_away = planting.plant(planting.refusing(Transition.ARRIVE, "TWO"))
        try:
            with pytest.raises(InvalidArgumentError, match=planting.WORDS):
                load_archive(tmp_path / "archive", other.config, executor=SparkExecutor(spark, 2))
        finally:
            take_away()
        assert other.spaces() == []
        take_away = planting.plant(lambda transition, name: asked.append((transition, name)))
        try:
            load_archive(tmp_path / "archive", other.config, executor=SparkExecutor(spark, 2))
        finally:
            take_away()
    assert asked == [(Transition.ARRIVE, "ONE"), (Transition.ARRIVE, "TWO")]


RUNNERS = st.sampled_from(["spark", "alone"])


@pytest.mark.slow
def test_an_import_of_an_export_is_the_same_whoever_of_the_two_has_done_which(spark, request, tmp_path: Path):
    files, numbers = places("file", request, tmp_path), itertools.count()

    @settings(
        max_examples=8,
        # Making smaller what fails takes minutes where an example takes seconds.
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(acts=DRAWN, memory=st.booleans(), exporter=RUNNERS, importer=RUNNERS)
    def check(acts: list[Act], memory: bool, exporter: str, importer: str) -> None:
        archive = tmp_path / f"archive-{next(numbers)}"
        with files.device() as device, laid_out(device, acts, memory=memory) as space, files.device() as other:
            export(device.config, archive, executor=workers(exporter, spark))
            before = seen(space)
            load_archive(archive, other.config, ImportOptions(start=True), executor=workers(importer, spark))
            with other.open_space("SPACE") as arrived:
                assert seen(arrived) == before
            assert compare(archive, other.config, executor=workers(exporter, spark)).differences == ()

    check()


class Stumbling:
    """Tasks of Spark each of which fails once, when it has done all of its work."""

    def __init__(self, workers: SparkExecutor, marks: Path) -> None:
        self.count = workers.count
        self.gathered = workers.gathered
        self._workers = workers
        self._marks = marks

    @contextlib.contextmanager
    def part_workers(self, enter, archive) -> Iterator[_Stumbling]:
        with self._workers.part_workers(enter, archive) as crew:
            yield _Stumbling(crew, self._marks)


class _Stumbling:
    def __init__(self, crew, marks: Path) -> None:
        self._crew = crew
        self._marks = str(marks)

    def run(self, unit, tasks, told):
        return self._crew.run(stumbling(unit, self._marks), tasks, told)


def stumbling(unit, marks: str):
    def work(entered, *task):
        result = unit(entered, *task)
        mark = Path(marks, f"{unit.__name__}-{abs(hash(str(task)))}")
        if not mark.exists():
            mark.touch()
            raise RuntimeError("stumbled")
        return result

    return work


def test_a_task_that_failed_is_tried_again_and_nothing_is_there_twice(spark, tmp_path: Path):
    marks = tmp_path / "marks"
    marks.mkdir()
    (tmp_path / "here").mkdir()
    with create_device(str(tmp_path / "QUE"), 60_000) as device:
        device.create_space(space_definition(pages=30_000, messages=20_000))
        with device.open_space("SPACE") as space:
            space.create_queue(QUEUES[0])
            space.enqueue_many("fifo", [b"%d" % number for number in range(5_000)])
        export(device.config, tmp_path / "archive", executor=SparkExecutor(spark, 2))
    with create_device(str(tmp_path / "here" / "QUE"), 60_000) as other:
        load_archive(
            tmp_path / "archive",
            other.config,
            ImportOptions(start=True),
            executor=Stumbling(SparkExecutor(spark, 2), marks),
        )
        assert {mark.name.split("-")[0] for mark in marks.iterdir()} == {"verify_part", "load_part"}
        with other.open_space("SPACE") as arrived:
            assert [m.text for m in arrived.dequeue_many("fifo", 6_000)] == [f"{number}" for number in range(5_000)]


def test_what_the_engine_refuses_in_a_task_is_raised_as_it_is_without_spark(spark, file_device, tmp_path: Path):
    export(file_device.config, tmp_path / "archive", executor=SparkExecutor(spark, 2))
    with pytest.raises(InvalidArgumentError, match="exists already"):
        load_archive(tmp_path / "archive", file_device.config, executor=SparkExecutor(spark, 2))
    with pytest.raises(InUseError, match="holds an archive already"):
        export(file_device.config, tmp_path / "archive", executor=SparkExecutor(spark, 2))


def test_damage_that_a_task_finds_is_told_in_its_own_sentence(spark, file_device, tmp_path: Path):
    with file_device.open_space("SPACE") as space:
        space.enqueue("Q", b"x" * 1000)
    export(file_device.config, tmp_path / "archive")
    part = tmp_path / "archive" / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[10] ^= 1
    part.write_bytes(data)
    with pytest.raises(SystemFailureError, match=r"part 'part-00000\.parquet' was altered"):
        compare(tmp_path / "archive", executor=SparkExecutor(spark, 2))


@pytest.mark.parametrize("reported", [None, SparkStageInfo(1, 0, "", 1, 0, 2, 0)], ids=["nothing", "a task twice"])
def test_progress_ends_with_all_messages_whatever_spark_has_reported_by_then(
    spark, file_device, tmp_path: Path, monkeypatch, reported
):
    with file_device.open_space("SPACE") as space:
        space.enqueue("Q", b"x")
    steps = []
    monkeypatch.setattr(StatusTracker, "getStageInfo", lambda _tracker, _number: reported)
    with create_device(tmp_path / "NEW", 60_000) as other:
        executor = SparkExecutor(spark, 2)
        export(file_device.config, tmp_path / "archive", executor=Local())
        load_archive(tmp_path / "archive", other.config, executor=executor, progress=lambda *step: steps.append(step))
    last = {step: (done, total) for step, done, total in steps}
    assert last == {"Verifying": (1, 1), "Importing": (1, 1)}
    assert all(done <= total for _, done, total in steps)
