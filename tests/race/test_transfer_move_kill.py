"""Moves that are killed at each of their stages: nothing is lost or doubled, and they go on to their end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from qmadmin.opening import create_device, open_device
from qmcore.errors import BadResourceError, InUseError, InvalidArgumentError
from tests.doom import Doom
from tests.fix_store import make_queue, space_definition
from tests.moving import moved

MOVING = "qmadmin.transfer.moving"


@pytest.fixture
def source(tmp_path):
    with create_device(tmp_path / "QUE", 20_000) as device:
        device.create_space(space_definition())
        with device.open_space("SPACE") as space:
            make_queue(space, "Q")
            make_queue(space, "CLOSED")
            space.enqueue_many("Q", [f"{number:04d}" for number in range(900)])
            space.enqueue("CLOSED", "last")
            space.stop_queue("CLOSED", dequeue=False)
        return device.path


@pytest.fixture
def there(tmp_path):
    with create_device(tmp_path / "NEW", 20_000) as device:
        return device.path


def messages(config):
    with open_device(config) as device:
        if not device.spaces():
            return {}
        with device.open_space("SPACE") as space:
            return {queue.name: [m.msgid for m in space.messages(queue.name)] for queue in space.queues()}


def directions(config):
    with open_device(config) as device:
        return {queue.name: (queue.enqueue_enabled, queue.dequeue_enabled) for queue in device.queues("SPACE")}


COMPLETE = [
    Doom(f"{MOVING}:load_archive"),
    Doom("qmadmin.transfer.units:load_part", "return"),
    Doom("qmcore.acts.importing:publish", "return"),
    Doom(f"{MOVING}:load_archive", "return"),
    Doom(f"{MOVING}:compare", "return"),
    Doom("qmcore.acts.purging:remove_carried", "return"),
    Doom("qmcore.acts.purging:remove_carried", time=2),
    Doom(f"{MOVING}:_start"),
    Doom(f"{MOVING}:_start", "return"),
]


@pytest.mark.parametrize("doom", COMPLETE, ids=str)
def test_a_move_whose_archive_is_complete_goes_on_and_queues_are_started_as_they_were(
    doomed, source, there, tmp_path, doom
):
    before = messages(source)
    doomed.run(doom, moved, source, there, tmp_path / "archive")
    here, arrived = messages(source), messages(there)
    for queue, wanted in before.items():
        # A part that was removed here is the first of them, and there is everything then.
        assert here[queue] == wanted or arrived[queue] == wanted
        assert here[queue] == wanted[len(wanted) - len(here[queue]) :]
    with pytest.raises(InUseError, match="holds an archive already"):
        moved(source, there, tmp_path / "archive")
    done = moved(source, there, tmp_path / "archive", again=True)
    assert done.compared.differences == ()
    assert messages(there) == before
    assert messages(source) == {"Q": [], "CLOSED": []}
    assert directions(there) == {"Q": (True, True), "CLOSED": (False, True)}
    assert directions(source) == {"Q": (False, False), "CLOSED": (False, False)}


@pytest.mark.parametrize(
    "doom",
    [
        # The first one is for the numbers alone, before anything is stopped.
        Doom(f"{MOVING}:export", time=2),
        Doom("qmadmin.transfer.units:write_part", "return"),
        Doom("qmadmin.archive.writing:ArchiveWriter.finish"),
    ],
    ids=str,
)
def test_one_that_was_killed_before_its_archive_was_complete_begins_again(doomed, source, there, tmp_path, doom):
    before = messages(source)
    doomed.run(doom, moved, source, there, tmp_path / "archive")
    assert (messages(source), messages(there)) == (before, {})
    assert directions(source) == {"Q": (False, False), "CLOSED": (False, False)}
    moved(source, there, tmp_path / "archive", again=True)
    assert (messages(source), messages(there)) == ({"Q": [], "CLOSED": []}, before)


@pytest.mark.parametrize(
    ("number", "status", "place", "stand"),
    [
        (signal.SIGINT, 130, f"{MOVING}:export", "An archive that was not complete was removed"),
        (signal.SIGINT, 130, f"{MOVING}:load_archive", "The queues are started again, and nothing has arrived"),
        (signal.SIGTERM, 143, f"{MOVING}:compare", "The queues stay stopped in both places"),
    ],
)
def test_one_that_is_told_to_end_says_how_things_stand(doomed, source, there, tmp_path, number, status, place, stand):
    said = doomed.program(Doom(place, number=number), "export", source, tmp_path / "archive", "--move", there)
    assert said.returncode == status
    assert stand in " ".join(said.stderr.split())
    assert "Traceback" not in said.stderr


def test_one_that_was_killed_when_all_had_arrived_goes_on_to_no_other_device(
    doomed, source, there, tmp_path, monkeypatch
):
    before = messages(source)
    with create_device(tmp_path / "THIRD", 20_000) as third:
        pass
    doomed.run(Doom(f"{MOVING}:load_archive", "return"), moved, source, there, tmp_path / "archive")
    with pytest.raises(InvalidArgumentError, match="which may have its messages, and not to"):
        moved(source, third.path, tmp_path / "archive", again=True)
    assert (messages(source), messages(there), messages(third.path)) == (before, before, {})
    # From another working directory it goes on as well.
    monkeypatch.chdir(tmp_path)
    moved("QUE", "NEW", Path("archive"), again=True)
    assert messages(there) == before


def test_an_archive_of_another_device_is_not_gone_on_with(source, there, tmp_path):
    before = messages(source)
    moved(source, there, tmp_path / "archive")
    with create_device(tmp_path / "THIRD", 20_000) as third:
        pass
    with pytest.raises(BadResourceError, match="was exported from device"):
        moved(there, third.path, tmp_path / "archive", again=True)
    assert (messages(there), messages(third.path)) == (before, {})
    assert directions(there) == {"Q": (True, True), "CLOSED": (False, True)}
