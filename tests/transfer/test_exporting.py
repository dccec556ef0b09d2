"""An export that fails takes everything away that it has made."""

from __future__ import annotations

import contextlib

import pytest

from qmadmin.archive.writing import MARK
from qmadmin.transfer import Local
from qmadmin.transfer.exporting import export


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
