"""A volume knows who it is: what else is in its place is refused by name, at opening, at chdl and at crdl."""

import contextlib
import itertools
import os
import pwd
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from qmadmin import create_device, mib, open_device, restore_device
from qmadmin.opening import open_to_administer
from qmadmin.volume_makers import address_of
from qmcore.errors import BadResourceError, InUseError, InvalidArgumentError, NotOpenError, QueueError
from qmcore.probe import Point
from qmcore.volume_record import Why
from qmstorage.sqlite import aliases
from tests.fix_postgres import but_for_this_server
from tests.fix_store import drain, later, make_queue, space_definition

AT_OPENING = {
    "nothing": (Why.ABSENT, "there is no device"),
    "empty": (Why.EMPTY, "is empty"),
    "text": (Why.NOT_A_VOLUME, "is not a qmadmin device"),
    "other_device": (Why.OTHER_DEVICE, "belongs to another device than"),
    "sibling": (Why.OTHER_VOLUME, "is another volume of device"),
    "device_itself": (Why.DEVICE_ITSELF, "itself, or a copy of it"),
    "older": (Why.OLDER, "is an older copy of the volume, 1 opening behind"),
}
MADE_BEFORE = ("sibling", "older")
"""What is made while the volume is in its place."""


def replace(place, what):
    """Move the second volume away, and put something else in its place."""
    if what in MADE_BEFORE:
        getattr(place, what)(place.other)
    place.move(place.second, place.away)
    if what in MADE_BEFORE:
        place.move(place.other, place.second)
    else:
        getattr(place, what)(place.second)


@pytest.mark.parametrize("what", AT_OPENING)
def test_what_is_in_the_place_of_a_volume_is_refused_by_name_and_all_else_goes_on(place, what):
    why, sentence = AT_OPENING[what]
    replace(place, what)
    before = place.picture(place.second)
    device = place.store.another()
    with pytest.raises(BadResourceError, match=f"{place.second}.*{sentence}|{sentence}.*{place.second}") as refusal:
        device.open_space("FAR")
    assert "though the device list of" in refusal.value.message
    (missing,) = device.missing_volumes()
    assert (missing.why, missing.spaces, missing.lost) == (why, ("FAR",), True)
    assert missing.advice == refusal.value.hint
    assert "chdl" in missing.advice
    assert drain(device.open_space("NEAR")) == ["NEAR"]
    gone, near = mib.get(device, "T_APPQSPACE")
    assert near["TA_VOLUMESTATE"] == "PRESENT"
    assert gone == {
        "TA_APPQSPACENAME": "FAR",
        "TA_QMCONFIG": device.path,
        "TA_STATE": "UNA",
        "TA_VOLUME": place.second,
        "TA_VOLUMESTATE": missing.state.upper().replace("-", "_"),
    }
    (told,) = [found for found in but_for_this_server(device.check()) if found.severity.name == "ERROR"]
    kind = "schema" if place.is_postgres else "file"
    assert (told.check, told.target, told.advice) == ("volume-missing", f"{kind} {place.second}", missing.advice)
    assert told.sentence == f"{missing.reason}; queue space FAR cannot be used without it"
    assert [found.check for found in device.check("FAR")] == ["volume-missing"]
    assert "volume-missing" not in {found.check for found in device.check("NEAR")}
    with pytest.raises(BadResourceError):
        device.create_entry(place.second, 200_000, 100)
    assert place.picture(place.second) == before, "nothing was written to it"


@pytest.mark.matrix
@pytest.mark.parametrize("what", AT_OPENING)
def test_a_queue_space_is_given_up_whatever_is_in_the_place_of_its_volume(place, what):
    replace(place, what)
    device = place.store.another()
    for force in (False, True):
        with pytest.raises(BadResourceError, match="is lost"):
            device.destroy_space("FAR", force=force)
    device.destroy_space("FAR", lost=True, dry_run=True)
    assert "FAR" in device.places()
    device.destroy_space("FAR", lost=True)
    assert device.audited(1)[0].outcome.startswith(f"given up with all that was on {place.second}: ")
    assert device.remove_entry(1).path == place.second
    assert device.missing_volumes() == []


@pytest.fixture
def unreadable(place):
    """The device, whose second volume has the schema of another release."""
    change = "UPDATE {}alembic_version SET version_num = '0999'"
    if place.is_postgres:
        place.store.by_hand(change.format(f"{place.second}."))
    else:
        with contextlib.closing(sqlite3.connect(place.second, isolation_level=None)) as connection:
            connection.execute(change.format(""))
    return place.store.another()


def test_a_queue_space_is_not_given_up_while_its_volume_is_there_or_only_cannot_be_read(place, unreadable):
    (missing,) = unreadable.missing_volumes()
    assert (missing.why, missing.lost, missing.spaces) == (Why.UNREADABLE, False, ("FAR",))
    with pytest.raises(BadResourceError, match=f"'FAR' is not given up: .*{place.second}.* has schema version 999"):
        unreadable.destroy_space("FAR", lost=True)
    with pytest.raises(InvalidArgumentError, match=r"'NEAR' is not given up: its volume .* is there") as refusal:
        unreadable.destroy_space("NEAR", lost=True)
    assert refusal.value.hint == "Without -L it is destroyed with all that it holds."
    for how in ({}, {"force": True}, {"lost": True}):
        with pytest.raises(BadResourceError, match="there is no queue space 'NONE'"):
            unreadable.destroy_space("NONE", **how)
    assert set(unreadable.places()) == {"FAR", "NEAR"}
    assert drain(unreadable.open_space("NEAR")) == ["NEAR"]


TAKEN = {
    "empty": "make a new volume",
    "other_device": "take it from the other",
    "sibling": "use that volume",
    "older": "take the older copy, 1 opening behind",
}


@pytest.mark.matrix
@pytest.mark.parametrize("what", [what for what in AT_OPENING if what != "nothing"])
def test_an_entry_gets_the_path_of_something_else_only_if_that_is_forced_and_can_be(place, what):
    why, sentence = AT_OPENING[what]
    getattr(place, what)(place.other)
    place.move(place.second, place.away)
    device, before = place.store.another(), place.picture(place.other)
    with pytest.raises(BadResourceError, match=sentence) as refusal:
        device.rename_entry(1, place.other)
    assert refusal.value.why is why
    assert place.picture(place.other) == before, "nothing was written to it"
    if what not in TAKEN:
        for call in (
            lambda: device.rename_entry(1, place.other, force=True),
            lambda: device.loss_by_rename(1, place.other),
        ):
            with pytest.raises(BadResourceError, match=sentence):
                call()
        assert device.entries()[1].path == place.second
        return
    assert TAKEN[what] in refusal.value.hint
    assert "chdl -f" in refusal.value.hint
    assert device.loss_by_rename(1, place.other).startswith(TAKEN[what])
    renamed = device.rename_entry(1, place.other, force=True)
    assert renamed.path == place.other
    device.close()
    again = place.store.another()
    assert again.missing_volumes() == []
    assert again.entries()[1] == renamed
    if what == "older":
        assert drain(again.open_space("FAR")) == ["FAR"], "what was enqueued since is lost"
        assert again.loss_by_rename(1, place.away).startswith("take the older copy"), "the newest one is the older now"
        return
    assert [space.name for space in again.spaces()] == ["NEAR"]
    again.destroy_space("FAR")
    again.create_space(space_definition("NEW", pages=25_000))
    with again.open_space("NEW") as space:
        make_queue(space)
        assert space.enqueue("Q", "x")
    # The one that it had does not come back as the same.
    assert again.loss_by_rename(1, place.away).startswith("use that volume")


def test_what_was_moved_is_taken_without_force(place):
    place.move(place.second, place.other)
    device = place.store.another()
    assert device.loss_by_rename(1, place.other) == ""
    assert device.rename_entry(1, place.other).path == place.other
    assert drain(device.open_space("FAR")) == ["FAR"]


def test_entries_of_one_volume_follow_it_one_by_one_and_take_another_together(place):
    device = place.store.another()
    device.create_entry(place.second, 200_000, 100)
    first, second = device.entries()[1:]
    assert (first.volume, first.opened) == (second.volume, second.opened)
    device.close()
    place.move(place.second, place.other)
    device = place.store.another()
    for index in (1, 2):
        device.rename_entry(index, place.other)
    assert device.missing_volumes() == []
    device.close()
    place.empty(place.third)
    device = place.store.another()
    device.rename_entry(2, place.third, force=True)
    assert [entry.path for entry in device.entries()[1:]] == [place.third] * 2
    assert len({entry.volume for entry in device.entries()[1:]}) == 1


def test_a_volume_of_another_device_that_is_in_use_is_not_taken(place):
    with create_device(place.store.path.replace(place.main, place.other), 30_000) as other:
        other.create_space(space_definition("LIVES", pages=40))
        with other.open_space("LIVES"):
            device = place.store.another()
            with pytest.raises(InUseError, match=r"'LIVES'.* has processes attached"):
                device.rename_entry(1, place.other, force=True)
    device.rename_entry(1, place.other, force=True)
    assert device.take_back_space("LIVES").name == "LIVES"


def test_a_device_of_several_volumes_is_not_taken_for_one(place):
    with create_device(place.store.path.replace(place.main, place.other), 30_000) as other:
        further = other.create_entry(place.third, 0, 100).path
    device = place.store.another()
    with pytest.raises(BadResourceError, match=r"is a device itself, and its device list names .* too") as refused:
        device.rename_entry(1, place.other, force=True)
    assert further in str(refused.value)
    with open_device(place.store.path.replace(place.main, place.other)) as again:
        assert len(again.entries()) == 2


AT_CRDL = {
    "text": "exists and is not empty|is not a qmadmin device",
    "other_device": "belongs to another device than",
    "device_itself": "itself, or a copy of it",
    "its_copy": "that another entry of its list names, or a copy of it",
    "older": "that another entry of its list names, or a copy of it",
}


@pytest.mark.parametrize("what", AT_CRDL)
def test_pages_are_not_listed_in_what_is_not_a_volume_or_a_copy_of_one(place, what):
    getattr(place, what)(place.other)
    device, before = place.store.another(), place.picture(place.other)
    with pytest.raises(BadResourceError, match=AT_CRDL[what]):
        device.create_entry(place.other, 0, 100)
    assert len(device.entries()) == 2
    assert place.picture(place.other) == before, "nothing was written to it"


@pytest.mark.parametrize("what", ["nothing", "empty", "sibling"])
def test_pages_are_listed_in_a_new_volume_and_in_one_that_nobody_lists(place, what):
    getattr(place, what)(place.other)
    device = place.store.another()
    entry = device.create_entry(place.other, 0, 30_000)
    assert entry.volume not in {"", *(each.volume for each in device.entries()[:2])}
    device.close()
    assert place.store.another().missing_volumes() == []


def test_an_older_copy_is_taken_in_its_own_place_only_if_that_is_forced(place):
    replace(place, "older")
    device = place.store.another()
    with pytest.raises(BadResourceError, match="is an older copy"):
        device.rename_entry(1, place.second)
    device.rename_entry(1, place.second, force=True)
    assert drain(device.open_space("FAR")) == ["FAR"]


# ---- a volume that vanishes under a process --------------------------------------------------------------------------


@pytest.fixture
def pass_a_second(place, monkeypatch):
    """A function that lets a second pass, as far as anybody looks at a clock for what happens once a second."""
    seconds = itertools.count(10, 10)

    def passes():
        place.store.clock.advance(2)
        later(monkeypatch, next(seconds))

    return passes


def calls_of(space):
    return (
        lambda: space.enqueue("Q", "x"),
        lambda: space.dequeue("Q"),
        space.queues,
        lambda: space.usage("Q"),
        lambda: list(space.messages("Q")),
        lambda: space.enqueue("Q", "x", transactional=False),
    )


def test_a_wait_that_begins_before_anybody_has_noticed_fails_like_any_other_call(place):
    device = place.store.another()
    with device.open_space("FAR") as far:
        assert drain(far) == ["FAR"]
        ends = ("", "-run") if not place.is_postgres else ("",)
        for end in ends:
            place.move(f"{place.second}{end}", f"{place.away}{end}")
        with pytest.raises((NotOpenError, BadResourceError)):
            far.dequeue("Q", wait=60)


@pytest.mark.matrix
@pytest.mark.parametrize("first", range(6))
def test_its_queue_spaces_fail_within_a_second_no_others_and_come_back_by_themselves(place, pass_a_second, first):
    device = place.store.another()
    with device.open_space("FAR") as far, device.open_space("NEAR") as near:
        far.enqueue("Q", "before")
        place.move(place.second, place.away)
        pass_a_second()
        calls = calls_of(far)
        for call in (calls[first], *calls):
            with pytest.raises(QueueError):
                call()
            near.enqueue("Q", "beside")
        assert [missing.why for missing in device.missing_volumes()] == [Why.ABSENT]
        place.move(place.away, place.second)
        pass_a_second()
        far.enqueue("Q", "after")
        assert drain(far) == ["FAR", "before", "after"]
        assert len(drain(near)) == 8
        pass_a_second()
        with device.open_space("FAR") as again:
            again.enqueue("Q", "x")
    assert [found for found in but_for_this_server(device.check()) if found.severity.name != "OK"] == []


def test_what_a_transaction_had_taken_is_there_when_its_volume_is(place, pass_a_second):
    device = place.store.another()
    with device.open_space("FAR") as far:
        make_queue(far, "RETRIED", retries=9)
        far.enqueue("RETRIED", "taken")
        with pytest.raises(QueueError), far.transaction():
            assert far.dequeue("RETRIED").text == "taken"
            place.move(place.second, place.away)
            pass_a_second()
            far.enqueue("Q", "x")
        place.move(place.away, place.second)
        for _ in range(2):
            pass_a_second()
            far.enqueue("Q", "x")
        assert far.dequeue("RETRIED").text == "taken"


@pytest.mark.matrix
@pytest.mark.parametrize("first", range(6))
def test_the_device_itself_comes_back_too_and_a_queue_space_on_another_volume_goes_on_without_it(
    place, pass_a_second, first
):
    device = place.store.another()
    with device.open_space("FAR") as far, device.open_space("NEAR") as near:
        place.move(place.main, place.away)
        pass_a_second()
        calls = calls_of(near)
        for call in (calls[first], *calls):
            with pytest.raises(QueueError):
                call()
            far.enqueue("Q", "beside")
        place.move(place.away, place.main)
        pass_a_second()
        near.enqueue("Q", "after")
        assert drain(near) == ["NEAR", "after"]
        assert len(drain(far)) == 8
        assert [space.name for space in device.spaces()] == ["FAR", "NEAR"]


def test_its_return_is_looked_for_once_a_second(place, pass_a_second):
    if place.is_postgres:
        pytest.skip("a schema is found by the next statement")
    device = place.store.another()
    with device.open_space("FAR") as far:
        place.move(place.second, place.away)
        pass_a_second()
        with pytest.raises(NotOpenError, match="was removed or replaced while it was open") as refusal:
            far.enqueue("Q", "x")
        assert refusal.value.hint.startswith("Put it back")
        with pytest.raises(BadResourceError, match=r"there is no device .*, though the device list of"):
            far.enqueue("Q", "x")
        place.move(place.away, place.second)
        with pytest.raises(BadResourceError, match=r"there is no device .*, though the device list of"):
            far.enqueue("Q", "x")
        pass_a_second()
        far.enqueue("Q", "after")
        assert drain(far) == ["FAR", "after"]


def test_an_older_copy_in_its_place_is_noticed_by_whoever_has_it_open(place, pass_a_second):
    place.copy(place.second, place.other)
    device = place.store.another()
    with device.open_space("FAR") as far, device.open_space("NEAR") as near:
        far.enqueue("Q", "since")
        place.move(place.second, place.away)
        place.move(place.other, place.second)
        pass_a_second()
        with pytest.raises(QueueError):
            far.enqueue("Q", "lost")
        with pytest.raises(BadResourceError, match="is an older copy of the volume, 1 opening behind"):
            far.enqueue("Q", "lost")
        assert [missing.why for missing in device.missing_volumes()] == [Why.OLDER]
        assert drain(near) == ["NEAR"]
        place.move(place.second, place.other)
        place.move(place.away, place.second)
        pass_a_second()
        assert drain(far) == ["FAR", "since"]


HAVING = """
with open_device(sys.argv[1]) as device, device.open_space("FAR") as space:
    say("has it open")
    heard()
"""


def test_who_looks_does_not_wait_for_a_process_that_has_not_noticed(place, monkeypatch, start):
    if place.is_postgres:
        pytest.skip("nobody waits for others there")
    rested = []
    place.copy(place.second, place.other)
    child = start(HAVING, place.store.path)
    child.expect("has it open")
    place.move(place.second, place.away)
    place.move(place.other, place.second)
    clock = SimpleNamespace(monotonic=lambda: sum(rested), sleep=rested.append)
    monkeypatch.setattr(aliases, "time", clock)
    device = place.store.another()
    assert [space.name for space in device.spaces()] == ["NEAR"]
    assert [missing.why for missing in device.missing_volumes()] == [Why.UNREADABLE]
    assert 0 < sum(rested) < 2 * 2 * 0.6
    child.say()
    child.finish()


# ---- the number -----------------------------------------------------------------------------------------------------


def commits_of(device):
    commits = []
    device.probe.at(Point.AFTER_COMMIT, commits.append)
    return commits


def test_the_number_grows_with_the_first_who_works_with_a_volume_and_not_with_others_beside_it(place):
    before = place.store.another().entries()[1].opened
    one, two = place.store.another(), place.store.another()
    with one.open_space("FAR"):
        assert one.entries()[1].opened == before + 1
        with two.open_space("FAR") as space:
            space.enqueue("Q", "beside")
        assert one.entries()[1].opened == before + 1
    with one.open_space("FAR"):
        assert one.entries()[1].opened == before + 1, "it has been open all the time"
    with place.store.another().open_space("FAR"):
        assert one.entries()[1].opened == before + 2
    for device in (one, two):
        volume = device.volume_of(place.second, looks=True)
        assert volume.read(lambda unit: unit.device.volume()).opened == before + 2
    assert one.entries()[0].opened == 0


def test_who_changes_queue_spaces_without_attaching_raises_it_too(place):
    device = place.store.another()
    before = device.entries()[1].opened
    device.create_space(space_definition("MORE", pages=25_000))
    assert device.entries()[1].opened == before + 1


def test_who_looks_commits_nothing(place):
    device = place.store.another()
    commits, before = commits_of(device), device.entries()
    assert {space.name for space in device.spaces()} == {"NEAR", "FAR"}
    assert device.missing_volumes() == []
    for look in (
        device.queues,
        device.queue_usages,
        device.space_usage,
        device.space,
        device.attached,
        device.memory_files,
    ):
        look("FAR")
    assert [found for found in but_for_this_server(device.check()) if found.severity.name != "OK"] == []
    assert commits == []
    assert device.entries() == before


def test_a_reader_compares_and_writes_nothing(place):
    if place.is_postgres or os.geteuid() != 0:
        pytest.skip("only root can make a file another user's")
    os.chown(place.main, pwd.getpwnam("nobody").pw_uid, -1)
    with open_to_administer(place.main) as device:
        assert device.readonly
        before = device.entries()
        with device.open_space("FAR") as space:
            assert [queue.name for queue in space.queues()] == ["Q"]
        assert device.entries() == before
    replace(place, "older")
    with open_to_administer(place.main) as device, pytest.raises(BadResourceError, match="is an older copy"):
        device.open_space("FAR")


def test_qcheck_warns_of_a_device_list_that_is_behind(place):
    place.store.by_hand("UPDATE entry SET opened = opened - 2 WHERE dlindex = 1")
    (found,) = (found for found in place.store.another().check() if found.check == "device-list-behind")
    assert found.severity.name == "WARNING"
    assert f"2 openings behind {place.second!r}" in found.sentence


def test_a_queue_space_in_the_device_itself_costs_no_commit_more(shared_store):
    device = shared_store.device
    device.create_space(space_definition("ALONE", pages=40))
    device.close()
    found = []
    for more in (False, True):
        other = shared_store.another()
        commits = commits_of(other)
        other.open_space("ALONE").close()
        found.append(len(commits))
        if not more:
            name = f"{address_of(other.path).schema}_more" if shared_store.kind == "postgres" else f"{other.path}-more"
            other.create_entry(name, 0, 100)
        other.close()
    assert found[0] == found[1]
    assert shared_store.another().entries()[0].opened == 0


KILLED = """
import os
from qmcore.probe import Point
device = open_device(sys.argv[1])
device.probe.at(Point.AFTER_COMMIT, lambda _: os.kill(os.getpid(), 9))
device.open_space("FAR")
"""


def test_a_volume_that_is_ahead_of_the_list_after_a_kill_is_accepted(place, start):
    entry = place.store.another().entries()[1]
    child = start(KILLED, place.store.path)
    assert child.lines_left() == []
    child.kill()
    device = place.store.another()
    volume = device.volume_of(place.second, looks=True)
    assert volume.read(lambda unit: unit.device.volume()).opened == entry.opened + 1
    assert device.entries()[1].opened == entry.opened
    assert drain(device.open_space("FAR")) == ["FAR"]
    assert device.entries()[1].opened == entry.opened + 2


CUT = """
import os, shutil
from qmcore.probe import Point
device = open_device(sys.argv[1])

def save(_):
    for end in ("", "-wal"):
        shutil.copy(sys.argv[2] + end, sys.argv[3] + end)

device.probe.at(Point.AFTER_SYNC, save)
device.open_space("FAR")
os.kill(os.getpid(), 9)
"""


def test_a_power_cut_leaves_no_relaxed_volume_behind_the_list(tmp_path, start):
    """The worst case: all that was written to the list is on the disk, and of the volume only what was synced."""
    path, second, saved = (str(tmp_path / name) for name in ("QUE", "second", "saved"))
    with create_device(path, 1_000, durability="relaxed") as device:
        device.create_entry(second, 0, 100_000)
        device.create_space(space_definition("FAR", pages=25_000))
        before = device.entries()[1].opened
    child = start(CUT, path, second, saved)
    assert child.lines_left() == []
    child.kill()
    for end in ("", "-wal"):
        Path(saved + end).replace(second + end)
    Path(f"{second}-shm").unlink()
    with open_device(path) as device:
        assert device.entries()[1].opened == before + 1
        assert device.missing_volumes() == []
        device.open_space("FAR").close()


def test_a_volume_of_the_original_is_none_of_a_device_that_was_restored(file_store, tmp_path):
    device = file_store.device
    device.create_entry(tmp_path / "second", 0, 100_000)
    device.create_space(space_definition("FAR", pages=25_000))
    device.backup(tmp_path / "backup")
    device.close()
    (tmp_path / "elsewhere").mkdir()
    restore_device(tmp_path / "backup", tmp_path / "elsewhere" / "QUE")
    with open_device(tmp_path / "elsewhere" / "QUE") as restored:
        assert restored.missing_volumes() == []
        ours = {entry.volume for entry in restored.entries()}
    with file_store.another() as original:
        assert len(ours | {entry.volume for entry in original.entries()}) == 4
    shutil.copy(tmp_path / "second", tmp_path / "elsewhere" / "second")
    with open_device(tmp_path / "elsewhere" / "QUE") as restored:
        assert [missing.why for missing in restored.missing_volumes()] == [Why.OTHER_VOLUME]
