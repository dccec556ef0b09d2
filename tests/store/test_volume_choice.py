"""On which volume a queue space is put, on devices of several files or schemas."""

import re

import pytest

from qmadmin import mib
from qmcore.device import Extent
from qmcore.errors import InvalidArgumentError, NoSpaceError
from qmcore.purpose import Purpose
from tests.fix_store import second_volume, space_definition


@pytest.fixture
def second(shared_store, tmp_path):
    return second_volume(shared_store, tmp_path)


def test_it_is_the_one_with_the_most_free_pages_unless_it_is_named(shared_store, second):
    device = shared_store.device
    first = device.entries()[0].path
    for name, volume in (("MOST", None), ("PATH", device.path), ("INDEX", 0), ("THERE", second)):
        device.create_space(space_definition(name, pages=400), volume=volume)
    assert device.places() == {"MOST": second, "PATH": first, "INDEX": first, "THERE": second}
    for found in mib.get(device, "T_APPQSPACE"):
        assert found["TA_VOLUME"] == device.places()[found["TA_APPQSPACENAME"]]


def test_one_that_is_not_listed_or_has_no_room_is_refused_and_nothing_is_created(shared_store, second):
    device, wanted = shared_store.device, space_definition(pages=60_000)
    before = device.table_of_contents()
    for create in (device.create_space, device.refuse_space):
        with pytest.raises(InvalidArgumentError, match="has no entry 7; its entries are 0 to 1"):
            create(wanted, volume=7)
        with pytest.raises(InvalidArgumentError, match=r"the device list of .* has no '.*other'"):
            create(wanted, volume="other")
        for wrong in (1.5, True, -1, b"x"):
            with pytest.raises(InvalidArgumentError, match="index of the volume"):
                create(wanted, volume=wrong)
        with pytest.raises(NoSpaceError, match="in use and cannot take 60000 more") as refusal:
            create(wanted, volume=0)
        assert f"entry 1 of the device list, with 100000 free, is in another file, {second!r}" in str(refusal.value)
    assert device.table_of_contents() == before


def test_a_creation_that_was_cut_short_on_one_is_not_finished_on_another(shared_store, second):
    device = shared_store.device
    device.volume_of(device.path).write(
        lambda unit: unit.device.add_extents([Extent("HALF", 0, 1, 0, 400)]), Purpose.ADMINISTRATION
    )
    with pytest.raises(InvalidArgumentError, match=f"creation of queue space 'HALF' on {second!r} was cut short"):
        device.create_space(space_definition("HALF", pages=400), volume=0)
    device.create_space(space_definition("HALF", pages=400), volume=second)
    assert device.places() == {"HALF": second}


def test_a_mib_request_names_it_and_cannot_change_it(shared_store, second):
    device = shared_store.device
    made = {"TA_APPQSPACENAME": "S", "TA_STATE": "NEW", "TA_IPCKEY": 70_000, "TA_MAXMSG": 9, "TA_MAXPROC": 9}
    made |= {"TA_MAXTRANS": 9, "TA_MAXPAGES": 400, "TA_MAXQUEUES": 9, "TA_VOLUME": device.path}
    first = device.entries()[0].path
    assert mib.set(device, "T_APPQSPACE", made)["TA_VOLUME"] == first
    with pytest.raises(mib.MibError, match=re.escape(f"queue space 'S' is on {first!r} and stays there")):
        mib.set(device, "T_APPQSPACE", {"TA_APPQSPACENAME": "S", "TA_VOLUME": second})
    assert device.places() == {"S": first}
