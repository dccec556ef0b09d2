"""A volume knows who it is: what else is in its place is refused by name, at opening, at chdl and at crdl."""

import contextlib
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from qmadmin import create_device, mib
from qmadmin.volume_makers import address_of
from qmcore.errors import BadResourceError, InUseError
from qmcore.volume_record import Why
from tests.fix_postgres import but_for_this_server
from tests.fix_store import drain, make_queue, space_definition


class Place:
    """Where the volumes of a device are: files, or schemas of a database."""

    def __init__(self, store, tmp_path, server):
        self.store = store
        self.tmp_path = tmp_path
        self.server = server
        self.second, self.away, self.other, self.third = (
            self.name(each) for each in ("second", "away", "other", "third")
        )
        self.main = address_of(store.path).schema if self.is_postgres else store.path

    @property
    def is_postgres(self):
        return self.store.kind == "postgres"

    def name(self, name):
        return f"{address_of(self.store.path).schema}_{name}" if self.is_postgres else str(self.tmp_path / name)

    def move(self, old, new):
        if self.is_postgres:
            self.store.by_hand(*(f"ALTER SCHEMA {old}{end} RENAME TO {new}{end}" for end in ("", "_memory")))
        else:
            Path(old).rename(new)

    def copy(self, old, new):
        if not self.is_postgres:
            with contextlib.closing(sqlite3.connect(old)) as source, contextlib.closing(sqlite3.connect(new)) as target:
                source.backup(target)
            return
        dump = self.server.bin and self.server.bin / "pg_dump"
        if dump is None or not dump.exists():
            pytest.skip("there is no pg_dump beside the server")
        database = self.store.path.partition("?")[0].replace("+psycopg", "")
        text = subprocess.run(
            [dump, "-n", old, "-n", f"{old}_memory", database], check=True, capture_output=True, text=True
        ).stdout
        psql = shutil.which("psql") or self.server.bin / "psql"
        subprocess.run(
            [psql, "-qX", "-v", "ON_ERROR_STOP=1", database], input=text.replace(old, new), text=True, check=True
        )

    # ---- what may be in the place of a volume ---

    def nothing(self, at):
        del at

    def empty(self, at):
        self.store.by_hand(f"CREATE SCHEMA {at}") if self.is_postgres else Path(at).touch()

    def text(self, at):
        if self.is_postgres:
            self.store.by_hand(f"CREATE SCHEMA {at} CREATE TABLE letter (line text)")
        else:
            Path(at).write_text("dear reader\n" * 1000)

    def other_device(self, at):
        create_device(self.store.path.replace(self.main, at), 100, clock=self.store.clock).close()

    def sibling(self, at):
        """A volume of the device that its list does not name any more."""
        with contextlib.closing(self.store.another()) as device:
            device.remove_entry(device.create_entry(self.third, 0, 100).index)
        self.move(self.third, at)

    def device_itself(self, at):
        self.copy(self.main, at)

    def its_copy(self, at):
        self.copy(self.second, at)

    def picture(self, at):
        """Return what is at a path, and beside it."""
        if self.is_postgres:
            return None
        found = Path(at)
        return found.is_file() and found.read_bytes(), {path.name for path in found.parent.glob(f"{found.name}*")}


@pytest.fixture
def place(shared_store, tmp_path, request):
    """A device of two volumes; in the second one is a queue space FAR with a message. Nobody has it open."""
    server = request.getfixturevalue("postgres_server") if shared_store.kind == "postgres" else None
    place = Place(shared_store, tmp_path, server)
    device = shared_store.device
    device.create_entry(place.second, 0, 100_000)
    device.create_space(space_definition("NEAR", pages=40), volume=0)
    device.create_space(space_definition("FAR", pages=25_000))
    for name in ("NEAR", "FAR"):
        with device.open_space(name) as space:
            make_queue(space)
            space.enqueue("Q", name)
    device.close()
    return place


AT_OPENING = {
    "nothing": (Why.ABSENT, "there is no device"),
    "empty": (Why.EMPTY, "is empty"),
    "text": (Why.NOT_A_VOLUME, "is not a qmadmin device"),
    "other_device": (Why.OTHER_DEVICE, "belongs to another device than"),
    "sibling": (Why.OTHER_VOLUME, "is another volume of device"),
    "device_itself": (Why.DEVICE_ITSELF, "itself, or a copy of it"),
}


@pytest.mark.parametrize("what", AT_OPENING)
def test_what_is_in_the_place_of_a_volume_is_refused_by_name_and_all_else_goes_on(place, what):
    why, sentence = AT_OPENING[what]
    if what == "sibling":
        place.sibling(place.other)
        place.move(place.second, place.away)
        place.move(place.other, place.second)
    else:
        place.move(place.second, place.away)
        getattr(place, what)(place.second)
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
    assert [found["TA_APPQSPACENAME"] for found in mib.get(device, "T_APPQSPACE")] == ["NEAR"]
    assert {found.advice for found in but_for_this_server(device.check()) if found.severity.name == "ERROR"} == {
        missing.advice
    }
    with pytest.raises(BadResourceError):
        device.create_entry(place.second, 200_000, 100)
    assert place.picture(place.second) == before, "nothing was written to it"


@pytest.mark.parametrize("what", AT_OPENING)
def test_a_queue_space_is_given_up_whatever_is_in_the_place_of_its_volume(place, what):
    if what == "sibling":
        place.sibling(place.other)
    place.move(place.second, place.away)
    if what == "sibling":
        place.move(place.other, place.second)
    else:
        getattr(place, what)(place.second)
    device = place.store.another()
    with pytest.raises(BadResourceError, match="is lost"):
        device.destroy_space("FAR")
    device.destroy_space("FAR", force=True)
    assert device.remove_entry(1).path == place.second
    assert device.missing_volumes() == []


TAKEN = {"empty": "make a new volume", "other_device": "take it from the other", "sibling": "use that volume"}


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


AT_CRDL = {
    "text": "exists and is not empty|is not a qmadmin device",
    "other_device": "belongs to another device than",
    "device_itself": "itself, or a copy of it",
    "its_copy": "that another entry of its list names, or a copy of it",
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
