"""An import asks the rules of arrivals once for each queue that it brings messages to, before anything is stored."""

import dataclasses

import pytest

from qmadmin.transfer import importing
from qmadmin.transfer.exporting import export
from qmadmin.transfer.import_planning import Existing, ImportOptions
from qmadmin.transfer.importing import imports_into, load_archive
from qmcore.errors import InvalidArgumentError
from qmcore.queue import Delivery
from tests.fix_store import Store, device_path, drain, make_queue, maker_of_devices
from tests.ways import planting
from tests.ways.transitions import ARRIVE

BRINGING = ["DELAYED", "KEPT", "MEMORY", "Q"]
"""The queues of which there are messages: in each of the states that they are in at first, on disk and in memory."""

MODES = {
    "append": ImportOptions(existing=Existing.APPEND),
    "replace": ImportOptions(existing=Existing.REPLACE),
    "another queue space": ImportOptions(spaces={"SPACE": "COPY"}),
    "other queues": ImportOptions(queues={name: f"{name}2" for name in (*BRINGING, "EMPTY")}),
}


@pytest.fixture(params=["file", "postgres"])
def made(request, tmp_path, clock):
    kind = request.param
    store = Store(kind, device_path(kind, request, tmp_path), clock, maker_of_devices(kind, request))
    yield store
    store.close()


@pytest.fixture
def space(made):
    """A queue space with a queue that has no message, and four that have some."""
    space = made.space(memory=100 * 4096, pages=1000)
    make_queue(space, "KEPT", retention=3600)
    make_queue(space, "MEMORY", delivery=Delivery.NONPERSIST)
    for name in ("Q", "DELAYED", "EMPTY"):
        make_queue(space, name)
    space.enqueue_many("Q", [b"1", b"2", b"3"])
    space.enqueue("DELAYED", b"later", delay=60)
    space.enqueue("MEMORY", b"here")
    space.enqueue("KEPT", b"gone")
    assert space.dequeue("KEPT")
    return space


@pytest.fixture
def archive(made, space, tmp_path):
    export(made.device.config, tmp_path / "archive")
    return tmp_path / "archive"


@pytest.fixture
def asked():
    """The queues that a rule is asked about."""
    names = []
    take_away = planting.plant(lambda transition, name: names.append(name) if transition is ARRIVE else None)
    yield names
    take_away()


def state(made):
    """Return what is in the device, as users see it and as it is charged."""
    device = made.device
    return {
        found.name: (
            _use(device.space_usage(found.name)),
            device.queue_usages(found.name),
            imports_into(device, found.name),
        )
        for found in device.spaces()
    }


def _use(found):
    # How much was in use at most has more in it, such as the process that has looked.
    return dataclasses.replace(found, highest=None)


@pytest.mark.parametrize("mode", MODES)
def test_a_rule_is_asked_once_for_each_queue_that_gets_messages(made, archive, asked, mode):
    renamed = MODES[mode].queues
    load_archive(archive, made.device.config, MODES[mode])
    assert sorted(asked) == [renamed.get(name, name) for name in BRINGING]


def test_a_dry_run_is_refused_as_the_run_would_be(made, archive, asked):
    load_archive(archive, made.device.config, MODES["append"], dry_run=True)
    assert sorted(asked) == BRINGING


def test_a_rule_is_not_asked_about_definitions(made, space, asked, tmp_path):
    from qmadmin.archive.manifest import Content
    from qmadmin.transfer.selecting import ArchiveSelection

    export(made.device.config, tmp_path / "archive")
    definitions = ImportOptions(selection=ArchiveSelection(content=Content.DEFINITIONS), spaces={"SPACE": "COPY"})
    load_archive(tmp_path / "archive", made.device.config, definitions)
    assert asked == []


def test_an_import_that_goes_on_is_not_asked_for_again(made, archive, asked, monkeypatch):
    def cut_short(*_):
        raise InvalidArgumentError("cut short")

    with monkeypatch.context() as patched:
        patched.setattr(importing, "_load", cut_short)
        with pytest.raises(InvalidArgumentError, match="cut short"):
            load_archive(archive, made.device.config, MODES["append"])
    load_archive(archive, made.device.config, MODES["append"])
    assert sorted(asked) == BRINGING


@pytest.mark.parametrize("refused", BRINGING)
@pytest.mark.parametrize("mode", MODES)
def test_a_refusal_leaves_all_as_it_was(made, space, archive, mode, refused):
    before, spaces = state(made), made.device.table_of_contents()
    name = MODES[mode].queues.get(refused, refused)
    take_away = planting.plant(planting.refusing(ARRIVE, name))
    try:
        with pytest.raises(InvalidArgumentError, match=planting.WORDS):
            load_archive(archive, made.device.config, MODES[mode])
    finally:
        take_away()
    assert state(made) == before
    assert made.device.table_of_contents() == spaces
    assert load_archive(archive, made.device.config, MODES[mode]).messages == 6
    assert state(made) != before


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_an_administrator_brings_messages_into_a_queue_that_is_stopped(made, space, archive, mode):
    space.stop_queue("Q", enqueue=True, dequeue=False)
    load_archive(archive, made.device.config, ImportOptions(existing=Existing(mode), start=True))
    assert drain(space, "Q") == ["1", "2", "3"] * (2 if mode == "append" else 1)


def test_two_queue_spaces_are_as_they_were_where_the_second_is_refused(made, space, tmp_path):
    second = made.space("TWO", ipc_key=78)
    make_queue(second, "OF_TWO")
    second.enqueue("OF_TWO", b"x")
    export(made.device.config, tmp_path / "both")
    before = state(made)
    take_away = planting.plant(planting.refusing(ARRIVE, "OF_TWO"))
    try:
        with pytest.raises(InvalidArgumentError, match=planting.WORDS):
            load_archive(tmp_path / "both", made.device.config, MODES["append"])
    finally:
        take_away()
    assert state(made) == before
