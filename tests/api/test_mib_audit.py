"""What destructive requests to the management information base leave behind in the device."""

import os

import pytest

from qmadmin import mib
from qmcore.errors import InUseError
from tests.fix_mib import QS, Q


@pytest.fixture
def device(mib_device):
    return mib_device


@pytest.fixture
def space(mib_space):
    return mib_space


def recorded(device):
    return [(entry.command, entry.target, entry.outcome) for entry in device.audited()[::-1]]


def test_the_end_of_a_queue_is_recorded_with_what_came_of_it(device, space):
    space.enqueue("Q", "x")
    with pytest.raises(InUseError):
        mib.set(device, "T_APPQ", Q | {"TA_STATE": "INV"})
    mib.set(device, "T_APPQ", Q | {"TA_STATE": "INV"}, mib.QMIB_FORCEPURGE)
    line = "--mib T_APPQ set TA_APPQSPACENAME=QS TA_APPQNAME=Q TA_STATE=INV"
    assert recorded(device) == [
        (line, "queue QS/Q", "ERROR: queue 'Q' holds 1 message"),
        (f"{line} TA_FLAGS=QMIB_FORCEPURGE", "queue QS/Q", "destroyed with 1 message"),
    ]
    assert (device.audited()[0].uid, device.audited()[0].pid) == (os.getuid(), os.getpid())


def test_whatever_is_done_to_a_message_is_recorded(device, space):
    first, second = space.enqueue("Q", "x"), space.enqueue("Q", "y")
    mib.set(device, "T_APPQMSG", Q | {"TA_APPQMSGID": first, "TA_PRIORITY": 7})
    mib.set(device, "T_APPQMSG", Q | {"TA_APPQMSGID": first, "TA_NEWAPPQNAME": "E"})
    mib.set(device, "T_APPQMSG", Q | {"TA_APPQMSGID": second, "TA_STATE": "INV"})
    assert [entry[1:] for entry in recorded(device)] == [
        (f"message QS/Q/{first}", "priority of 1 message changed"),
        (f"message QS/Q/{first}", "1 message moved"),
        (f"message QS/Q/{second}", "1 message deleted"),
    ]


def test_several_changes_of_one_request_are_one_act(device, space):
    msgid = space.enqueue("Q", "x")
    mib.set(device, "T_APPQMSG", Q | {"TA_APPQMSGID": msgid, "TA_PRIORITY": 7, "TA_NEWAPPQNAME": "E"})
    assert [entry[1:] for entry in recorded(device)] == [
        (f"message QS/Q/{msgid}", "priority of 1 message changed; 1 message moved")
    ]


def test_the_ends_of_memory_and_of_a_queue_space_are_recorded(device, space):
    space.close()
    mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "CLEANING"})
    mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "INV"}, mib.QMIB_FORCEDELETE)
    assert [entry[1:] for entry in recorded(device)] == [
        ("queue space QS", "removed with 0 bytes of non-persistent messages"),
        ("queue space QS", "destroyed with 2 queues and 0 messages"),
    ]


def test_another_memory_is_recorded_with_the_request(device, space):
    space.enqueue("Q", "x", persistent=False)
    mib.set(device, "T_APPQSPACE", QS | {"TA_MEMNONPERSIST": "8192b"})
    ((command, _, outcome),) = recorded(device)
    assert command == "--mib T_APPQSPACE set TA_APPQSPACENAME=QS TA_MEMNONPERSIST=8192b"
    assert outcome == "removed with 1 non-persistent message"


def test_what_a_request_refuses_for_another_owner_is_recorded(device, space):
    with pytest.raises(mib.MibError):
        mib.set(device, "T_APPQTRANS", QS | {"TA_XID": "0" * 16, "TA_STATE": "HAB"})
    ((_, target, outcome),) = recorded(device)
    assert target == "transaction QS/0000000000000000"
    assert outcome.startswith("ERROR: ")


def test_requests_that_destroy_nothing_leave_no_record(device, space):
    mib.set(device, "T_APPQ", QS | {"TA_APPQNAME": "N", "TA_STATE": "NEW"})
    mib.set(device, "T_APPQ", Q | {"TA_MAXRETRIES": 9})
    mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "OPE"})
    mib.get(device, "T_APPQ", QS)
    with pytest.raises(mib.MibError):
        mib.set(device, "T_APPQ", Q | {"TA_STATE": "GONE"})
    assert recorded(device) == []


def test_the_record_is_there_before_the_request_is_at_work(device, space, monkeypatch):
    at_work = []

    def broken_off(*_arguments, **_options):
        at_work.extend(recorded(device))
        raise KeyboardInterrupt

    monkeypatch.setattr(type(space), "destroy_queue", broken_off)
    with pytest.raises(KeyboardInterrupt):
        mib.set(device, "T_APPQ", Q | {"TA_STATE": "INV"})
    assert [entry[2] for entry in at_work] == [None]
    assert [entry[2] for entry in recorded(device)] == ["interrupted"]


def test_a_refusal_of_the_request_is_recorded_in_its_own_words(device, space):
    with pytest.raises(mib.MibError):
        mib.set(device, "T_APPQTRANS", QS | {"TA_XID": "7", "TA_STATE": "HCO"})
    ((_, _, outcome),) = recorded(device)
    assert outcome == "ERROR: queue space 'QS' has no transaction 7; it may have ended"
