"""Executors of a cluster that are killed in the middle of a task, or stand still and wake up when it is done."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import pytest

from qmadmin.opening import create_device, open_device
from qmadmin.transfer import Local
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import export
from qmadmin.transfer.importing import load_archive
from qmcore.acts import importing
from qmcore.errors import InvalidArgumentError
from tests.doom import Doom
from tests.fix_process import eventually
from tests.fix_spark_cluster import Ended
from tests.fix_store import make_queue, space_definition

TEXTS = [f"{number:05d}" for number in range(12_000)]
"""What an export by one process has four parts for, each of two batches."""

LOADING = "qmcore.acts.importing"
WELL = Ended("", "", 0)
WRITTEN = Doom("qmadmin.archive.writing:PartWriter.write", "return", who="executor")


@dataclasses.dataclass(frozen=True)
class Stock:
    """A device and an archive of it, which nobody changes."""

    device: str
    archive: Path
    messages: list[str]


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stock")
    device = str(directory / "QUE")
    fill(device)
    exported = export(device, directory / "archive", executor=Local())
    assert len(exported.manifest.parts) == 4
    return Stock(device, directory / "archive", contents(device))


@pytest.fixture
def there(request, tmp_path, kind):
    """An empty device."""
    config = str(tmp_path / "NEW") if kind == "file" else request.getfixturevalue("database_url")
    create_device(config, 60_000).close()
    return config


def fill(config):
    with create_device(config, 60_000) as device:
        device.create_space(space_definition(pages=40_000, messages=30_000))
        with device.open_space("SPACE") as space:
            make_queue(space, "Q")
            space.enqueue_many("Q", TEXTS)


def contents(config):
    with open_device(config) as device, device.open_space("SPACE") as space:
        return [message.msgid for message in space.messages("Q")]


def faults(config):
    with open_device(config) as device:
        return [each.sentence for each in device.check("SPACE") if each.severity.value == "error"]


def batches(config):
    """Return the batches that are loaded of the only import."""
    with open_device(config) as device:
        its = device.volume_of_space("SPACE")
        space = next(space for space in device.spaces() if space.name == "SPACE")
        (job,) = its.read(lambda unit: importing.imports(unit, space.id))
        return its.read(lambda unit: importing.loaded_batches(unit, job))


def is_archive_of(config, archive):
    compared = compare(archive, config, executor=Local())
    assert (compared.messages, compared.differences) == (len(TEXTS), ())


def is_all_there(stock, there):
    assert contents(there) == stock.messages
    assert compare(stock.archive, there, executor=Local()).differences == ()
    assert faults(there) == []
    with pytest.raises(InvalidArgumentError, match="exists already"):
        load_archive(stock.archive, there)


@pytest.mark.slow
@pytest.mark.timeout(700)
class TestExecutorLoss:
    """An executor is killed in the middle of a task."""

    @pytest.mark.matrix(every=2, first=1)
    @pytest.mark.parametrize(("kind", "place"), [("file", f"{LOADING}:load_batch"), ("postgres", f"{LOADING}:_load")])
    def test_an_import_goes_on_with_another_one(self, local_cluster, stock, there, place):
        ended = local_cluster.run(Doom(place, "return", who="executor"), "import", "-q", stock.archive, there)
        assert ended == WELL
        is_all_there(stock, there)

    @pytest.mark.parametrize("kind", ["postgres"])
    def test_an_import_that_spark_gives_up_is_refused_in_a_sentence_and_can_be_finished_without_spark(
        self, local_cluster, stock, there
    ):
        doom = Doom(f"{LOADING}:_load", "return", who="executor")
        words = ("import", "-q", "--conf", "spark.task.maxFailures=1", stock.archive, there)
        ended = local_cluster.run(doom, *words)
        assert ended.status == 1
        assert ended.err.startswith("ERROR: QMESYSTEM: Spark gave up the job: Lost task")
        assert "Command exited with code 137" in ended.err
        assert "Traceback" not in ended.err
        with open_device(there) as device:
            assert device.queues("SPACE") == []
        load_archive(stock.archive, there, executor=Local())
        is_all_there(stock, there)

    def test_an_export_goes_on_with_another_one(self, local_cluster, database_url, tmp_path):
        fill(database_url)
        assert local_cluster.run(WRITTEN, "export", "-q", database_url, tmp_path / "archive") == WELL
        is_archive_of(database_url, tmp_path / "archive")

    def test_an_export_whose_readers_have_to_stay_is_refused_in_a_sentence_and_nothing_is_in_the_way_of_the_next_one(
        self, local_cluster, stock, tmp_path
    ):
        words = ("export", "-q", stock.device, tmp_path / "archive")
        ended = local_cluster.run(WRITTEN, *words)
        assert ended.status == 1
        assert "a worker ended in the middle of its work" in ended.err
        assert "Traceback" not in ended.err
        assert not (tmp_path / "archive").exists()
        export(stock.device, tmp_path / "archive", executor=Local())
        is_archive_of(stock.device, tmp_path / "archive")


@pytest.mark.slow
@pytest.mark.timeout(700)
class TestSpeculation:
    """A task stands still with its executor, and is begun a second time on another machine."""

    @pytest.mark.matrix(every=2)
    @pytest.mark.parametrize("kind", ["file", "postgres"])
    def test_an_attempt_that_wakes_up_after_the_import_was_published_changes_nothing(
        self, speculating_cluster, stock, there
    ):
        doom = Doom(f"{LOADING}:load_batch", number=signal.SIGSTOP, who="executor")
        with speculating_cluster.started(doom, "import", "-q", "--start", stock.archive, there) as started:
            assert started.end() == WELL
            assert contents(there) == stock.messages
            with open_device(there) as device, device.open_space("SPACE") as space:
                taken = space.dequeue_many("Q", 7_000)
            started.held_up().wake_up()
        assert len(taken) == 7_000
        assert contents(there) == stock.messages[7_000:]
        assert faults(there) == []

    @pytest.mark.parametrize("kind", ["postgres"])
    def test_two_attempts_at_the_same_time_load_each_message_once(self, speculating_cluster, stock, there):
        doom = Doom(f"{LOADING}:load_batch", number=signal.SIGSTOP, who="executor")
        slowly = ("--rate", "2000")
        with speculating_cluster.started(doom, "import", "-q", *slowly, stock.archive, there) as started:
            held_up = started.held_up()
            # All of the three other parts, and one of the part whose first attempt has none yet.
            eventually(lambda: len(batches(there)) == 7, "the second attempt")
            held_up.go_on()
            assert started.end() == WELL
        is_all_there(stock, there)

    @pytest.mark.parametrize("kind", ["postgres"])
    def test_one_that_stands_still_in_a_transaction_leaves_all_loaded_or_refused_and_the_same_command_finishes(
        self, speculating_cluster, stock, there
    ):
        doom = Doom(f"{LOADING}:_load", "return", number=signal.SIGSTOP, who="executor")
        words = ("import", "-q", stock.archive, there)
        with speculating_cluster.started(doom, *words) as started:
            ended = started.end()
            if ended != WELL:
                # As a rule: where the second attempt begins late, the server has ended the session of the first one.
                assert ended.status == 1
                assert "stayed locked by others for too long" in ended.err
                assert "Traceback" not in ended.err
                with open_device(there) as device:
                    assert device.queues("SPACE") == []
            started.held_up().kill()
            if ended != WELL:
                assert speculating_cluster.run(doom, *words) == WELL
        is_all_there(stock, there)

    def test_an_attempt_that_wakes_up_after_the_export_was_finished_leaves_nothing_behind(
        self, speculating_cluster, database_url, tmp_path
    ):
        fill(database_url)
        archive = tmp_path / "archive"
        doom = Doom("qmadmin.transfer.units:write_part", number=signal.SIGSTOP, who="executor")
        with speculating_cluster.started(doom, "export", "-q", database_url, archive) as started:
            assert started.end() == WELL
            files = {path.name: path.read_bytes() for path in archive.iterdir()}
            started.held_up().wake_up()
        assert {path.name: path.read_bytes() for path in archive.iterdir()} == files
        is_archive_of(database_url, archive)
