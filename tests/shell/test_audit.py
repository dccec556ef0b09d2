"""What destructive commands leave behind in the device: who, when, what, and what came of it.

`test_recorded_commands.py` goes through all of them.
"""

import os

import pytest

from qmadmin import open_device

LAY_OUT = "qopen QSPACE\nqset STRING\n"


@pytest.fixture
def audited(laid_out):
    """Run a script and return what the device has recorded since, the oldest first."""

    def run(script):
        ran = laid_out.run(LAY_OUT + script)
        with open_device(laid_out.device) as device:
            return ran, device.audited()[::-1]

    return run


@pytest.fixture
def filled(laid_out):
    laid_out.run(LAY_OUT + "qput STRING a\nqput STRING b\n")
    return laid_out


def test_a_destructive_command_is_recorded_with_what_it_hit_and_what_came_of_it(filled, audited):
    _, entries = audited("qdeletemsg\ny\n")
    assert [(entry.command, entry.target, entry.outcome) for entry in entries] == [
        ("qdeletemsg", "queue QSPACE/STRING", "2 messages deleted")
    ]
    assert (entries[0].uid, entries[0].pid, entries[0].host) == (os.getuid(), os.getpid(), os.uname().nodename)


def test_what_was_refused_is_recorded_with_the_reason(filled, audited):
    _, entries = audited("qdestroy -y STRING\n")
    assert entries[0].outcome == "ERROR: queue 'STRING' holds 2 messages"


def test_what_was_not_done_is_not_recorded(filled, audited):
    ran, entries = audited("qdeletemsg\nn\nqdeletemsg -n\nqscan -p 3\nqdeletemsg -y\nqlist\nqset errq\n")
    assert entries == []
    assert "Messages not deleted" in ran.err


def test_what_is_selected_and_what_was_asked_for_are_recorded_too(filled, audited):
    _, entries = audited("qscan -p 50\nqchangeprio\n60\ny\n")
    assert [(entry.command, entry.target, entry.outcome) for entry in entries] == [
        (
            "qchangeprio",
            "queue QSPACE/STRING, messages where priority BETWEEN 50 AND 50: priority 60",
            "priority of 2 messages changed",
        )
    ]


def test_the_end_of_a_device_is_its_last_record(shell):
    shell.run(f"crdl {shell.device} 0 100\n")
    ran = shell.run("dsdl -y 0\n")
    assert ran.status == 0, ran.both
    with open_device(shell.device) as device:
        (entry,) = device.audited()
    assert (entry.command, entry.outcome) == ("dsdl -y 0", f"removed: {shell.device}, offset 0, size 100")
