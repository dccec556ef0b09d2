"""An export that fails takes everything away that it has made."""

from __future__ import annotations

import contextlib

import pytest

from qmadmin.archive.reading import open_archive
from qmadmin.archive.writing import MARK
from qmadmin.transfer import Local
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.selecting import ArchiveSelection, Outstanding
from qmcore.errors import InUseError, InvalidArgumentError
from qmcore.queue import ATTRIBUTES
from tests.fix_store import make_queue


class Ending:
    """This process as a worker that ends when the block does, and then sees whether the archive is still wanted."""

    count = 1

    def __init__(self, archive):
        self._archive = archive
        self.wanted = None

    @contextlib.contextmanager
    def workers(self, enter, *arguments):
        with Local().workers(enter, *arguments) as crew:
            try:
                yield crew
            finally:
                self.wanted = (self._archive / MARK).exists()

    gathered = part_workers = workers


def interrupt(_step, done, _total):
    if done:
        raise KeyboardInterrupt


def test_an_interrupted_export_removes_its_directory_after_its_workers_have_ended(file_device, tmp_path):
    with file_device.open_space("SPACE") as space:
        space.enqueue("Q", "x")
    workers = Ending(tmp_path / "archive")
    with pytest.raises(KeyboardInterrupt):
        export(file_device.config, tmp_path / "archive", executor=workers, progress=interrupt)
    assert workers.wanted
    assert not (tmp_path / "archive").exists()


class TestAPreparedTransaction:
    @pytest.fixture
    def space(self, real_device):
        """A queue space with a message of `Q` that is held by a prepared branch, and one that is not."""
        with real_device.open_space("SPACE") as space:
            space.enqueue_many("Q", ["held", "there"])
            space.tpc_begin((7, "global", ""))
            space.dequeue("Q")
            space.tpc_prepare()
            yield space
            space.tpc_rollback()

    def exported(self, space, directory, outstanding):
        export(space.device.config, directory, ExportOptions(outstanding=outstanding), executor=Local())
        (found,) = open_archive(directory).manifest.spaces
        (queue,) = (each for each in found.queues if each.definition.name == "Q")
        return (
            sum(count.messages for count in queue.counts),
            found.left_out.prepared,
            found.left_out.held,
            found.left_out.as_rolled_back,
        )

    def test_its_messages_are_exported_as_if_rolled_back_only_where_that_is_said(self, space, tmp_path):
        with pytest.raises(InUseError, match="prepared transaction 7:676c6f62616c: has messages of"):
            self.exported(space, tmp_path / "one", Outstanding.ROLLED_BACK)
        assert not (tmp_path / "one").exists()
        assert self.exported(space, tmp_path / "two", Outstanding.IN_DOUBT_TOO) == (2, 1, 0, 1)

    def test_they_are_left_out_or_keep_all_from_being_exported(self, space, tmp_path):
        with pytest.raises(InUseError, match="1 open transaction has 1 message of queue space 'SPACE'"):
            self.exported(space, tmp_path / "one", Outstanding.REFUSE)
        assert self.exported(space, tmp_path / "two", Outstanding.LEAVE_OUT) == (1, 1, 1, 0)

    def test_one_of_other_queues_is_no_obstacle(self, space, tmp_path):
        make_queue(space, "R")
        space.enqueue("R", "x", transactional=False)
        asked = ExportOptions(selection=ArchiveSelection(queues=("R",)), outstanding=Outstanding.ROLLED_BACK)
        export(space.device.config, tmp_path / "archive", asked, executor=Local())
        (found,) = open_archive(tmp_path / "archive").manifest.spaces
        assert [count.messages for queue in found.queues for count in queue.counts] == [1]


def test_a_queue_for_several_consumers_is_refused_and_others_are_exported_without_it(real_device, tmp_path):
    with real_device.open_space("SPACE") as space:
        space.create_queue("NEWS", multiple_consumers=True)
        space.enqueue("Q", "x")
    with pytest.raises(InvalidArgumentError, match="queue 'NEWS' is for several consumers") as caught:
        export(real_device.config, tmp_path / "all", executor=Local())
    assert "qbackup" in caught.value.hint
    assert not (tmp_path / "all").exists()
    others = ExportOptions(selection=ArchiveSelection(queues=("Q",)))
    assert export(real_device.config, tmp_path / "others", others, executor=Local()).messages == 1
    assert open_archive(tmp_path / "others").manifest.minor < ATTRIBUTES["multiple_consumers"].since
