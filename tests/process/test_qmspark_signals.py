"""qmspark that is told to end, or loses one of its processes, at each stage of its work."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from qmadmin.archive.reading import open_archive
from qmadmin.opening import create_device, open_device
from qmadmin.transfer import Local
from qmadmin.transfer.comparing import compare
from qmadmin.transfer.exporting import export
from qmadmin.transfer.importing import load_archive
from tests.doom import Doom
from tests.fix_store import make_queue, space_definition

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
TEXTS = [f"{number:05d}" for number in range(4500)]
UNITS = "qmadmin.transfer.units"


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """A device with as many messages as three parts have."""
    path = tmp_path_factory.mktemp("signals") / "QUE"
    with create_device(path, 30_000) as made:
        made.create_space(space_definition(pages=15_000, messages=10_000))
        with made.open_space("SPACE") as space:
            make_queue(space, "Q")
            space.enqueue_many("Q", TEXTS)
    return str(path)


@pytest.fixture(scope="module")
def archive(device):
    written = Path(device).with_name("archive")
    export(device, written, executor=Local())
    return written


@pytest.fixture
def there(tmp_path):
    with create_device(tmp_path / "NEW", 30_000) as made:
        return made.path


def doom(place, number, event="return", **more):
    """Return an end by a signal: Ctrl-C goes to all processes of the group, a termination to the one that is named."""
    return Doom(place, event, number=number, of_group=number == signal.SIGINT, **more)


@pytest.mark.parametrize(
    ("number", "options", "place", "event"),
    [
        (signal.SIGINT, [], "qmadmin.transfer.snapshot:SnapshotReader.begin", "return"),
        (signal.SIGTERM, [], "qmadmin.archive.writing:PartWriter.write", "return"),
        (signal.SIGINT, [], "qmadmin.archive.writing:_put_in_place", "return"),
        (signal.SIGTERM, ["--processes", "2"], "qmadmin.transfer.pool:Process.__init__", "return"),
        (signal.SIGINT, ["--processes", "2"], "qmadmin.transfer.pool:Pool.run", "call"),
        (signal.SIGTERM, ["--processes", "2"], "qmadmin.transfer.pool:Pool.run", "call"),
    ],
)
def test_an_export_that_is_told_to_end_leaves_nothing(doomed, device, tmp_path, options, place, event, number):
    archive = tmp_path / "archive"
    said = doomed.program(doom(place, number, event), "export", *options, device, archive)
    assert (said.returncode, said.stdout) == (STATUS[number], ""), said.stderr
    assert "Traceback" not in said.stderr
    assert not archive.exists()
    doomed.leaves_nobody()


def test_one_that_is_told_to_end_behind_its_manifest_is_an_archive(doomed, device, tmp_path):
    place = doom("qmadmin.archive.writing:ArchiveWriter.finish", signal.SIGINT)
    said = doomed.program(place, "export", device, tmp_path / "archive")
    assert said.returncode == STATUS[signal.SIGINT]
    assert open_archive(tmp_path / "archive").manifest.messages == len(TEXTS)


@pytest.mark.parametrize(
    ("number", "options", "place", "event"),
    [
        (signal.SIGTERM, [], "qmcore.acts.importing:begin", "return"),
        (signal.SIGINT, [], "qmcore.acts.importing:load_batch", "return"),
        (signal.SIGTERM, [], "qmcore.acts.importing:_load", "return"),
        (signal.SIGINT, [], "qmcore.acts.importing:publish", "call"),
        (signal.SIGTERM, ["--processes", "2"], "qmadmin.transfer.importing:_load", "call"),
        (signal.SIGINT, ["--processes", "2"], "qmadmin.transfer.pool:Pool.run", "return"),
    ],
)
def test_an_import_that_is_told_to_end_is_not_seen_and_goes_on(doomed, archive, there, options, place, event, number):
    said = doomed.program(doom(place, number, event), "import", *options, archive, there)
    assert (said.returncode, said.stdout) == (STATUS[number], ""), said.stderr
    assert "Traceback" not in said.stderr
    doomed.leaves_nobody()
    goes_on(archive, there)


def goes_on(archive, there):
    with open_device(there) as device:
        assert [queue.name for space in device.spaces() for queue in device.queues(space.name)] == []
    load_archive(archive, there, executor=Local())
    assert compare(archive, there, executor=Local()).differences == ()


class TestWorkers:
    """One of two processes is killed."""

    @pytest.mark.parametrize(
        "place",
        [
            Doom("qmadmin.transfer.snapshot:reading", who="worker"),
            Doom("qmadmin.transfer.snapshot:SnapshotReader.begin", who="worker"),
            Doom(f"{UNITS}:write_part", "return", who="worker"),
        ],
        ids=str,
    )
    def test_an_export_tells_it_and_leaves_nothing(self, doomed, device, tmp_path, place):
        said = doomed.program(place, "export", "--processes", "2", device, tmp_path / "archive")
        assert said.returncode == 1
        assert "ended by signal 9 in the middle of its work" in " ".join(said.stderr.split())
        assert "Traceback" not in said.stderr
        assert not (tmp_path / "archive").exists()
        doomed.leaves_nobody()
        with open_device(device) as opened, opened.open_space("SPACE") as space:
            # Nobody is kept from writing.
            msgid = space.enqueue("Q", "more")
            assert space.dequeue("Q", msgid=msgid) is not None

    @pytest.mark.parametrize(
        "place",
        [
            Doom("qmcore.acts.importing:_load", "return", who="worker"),
            Doom(f"{UNITS}:load_part", "return", who="worker"),
        ],
        ids=str,
    )
    def test_an_import_tells_it_is_not_seen_and_goes_on(self, doomed, archive, there, place):
        said = doomed.program(place, "import", "--processes", "2", archive, there)
        assert said.returncode == 1
        assert "ended by signal 9 in the middle of its work" in " ".join(said.stderr.split())
        doomed.leaves_nobody()
        goes_on(archive, there)

    @pytest.mark.parametrize("command", ["export", "import"])
    def test_they_end_when_the_driver_is_killed(self, doomed, device, archive, there, tmp_path, command):
        place = Doom("qmadmin.transfer.pool:Worker.receive", "return", 3)
        arguments = (device, tmp_path / "archive") if command == "export" else (archive, there)
        said = doomed.program(place, command, "--processes", "2", *arguments)
        assert said.returncode == -signal.SIGKILL
        doomed.leaves_nobody()
        if command == "import":
            goes_on(archive, there)
