"""An administrator's shell and a forwarder at work on one queue space at the same time."""

import signal

import pytest

from qmadmin import QueueDefinition
from tests.fix_process import BEGIN_AND_WAIT
from tests.fix_shell import Shell


@pytest.fixture
def space(site):
    site.services('[services.WORK]\npython = "server:call"', server=BEGIN_AND_WAIT)
    return site.lay_out(QueueDefinition(name="WORK", retries=1), "OTHER", "RPLYQ", "ERRQUE")


@pytest.fixture
def shell(site):
    return Shell(site.directory)


@pytest.fixture
def forwarder(site, space):
    """A forwarder that has a message in hand, while another one waits in the queue."""
    forwarder = site.start("-q", "WORK")
    for body in ("first", "second"):
        space.enqueue("WORK", body, reply_queue="RPLYQ")
    site.wait_for_calls()
    return forwarder


def row_of(ran, queue):
    (row,) = [line.split() for line in ran.out.splitlines() if line.startswith(f"{queue} ")]
    return row[1:5]


def test_message_in_hand_is_shown_as_held(shell, forwarder):
    ran = shell.run("qopen QSPACE\nqset WORK\nqinfo WORK\nqlist\nqspacelist QSPACE\n")
    assert row_of(ran, "WORK") == ["2", "1", "0", "1"]
    assert [line.split()[6] for line in ran.out.splitlines() if " persist " in line] == ["ready", "held"]
    # The forwarder, the test, the shell.
    assert "  Concurrent transactions: 1 of 20 in use, highest 1\n" in ran.out
    assert "  Concurrent processes:    3 of 20 in use, highest 3\n" in ran.out
    assert ran.status == 0


def test_queue_that_is_served_is_not_destroyed_and_who_serves_it_is_named(shell, site, forwarder):
    site.opened.close()
    ran = shell.run("qopen QSPACE\nqdestroy -y OTHER\nqdestroy -y -p OTHER\nqclose\nqspacedestroy -y QSPACE\n")
    assert [line.rpartition(" (")[0] for line in ran.err.splitlines()] == [
        *[f"ERROR: QMEINUSE: tmqforward {forwarder.pid} is attached to the queue space of queue 'OTHER'"] * 2,
        f"ERROR: QMEINUSE: queue space 'QSPACE' has 1 attached process: tmqforward {forwarder.pid}",
    ]
    with site.reopened() as space:
        assert [space.usage(name).messages for name in ("WORK", "OTHER")] == [2, 0]


def test_queue_with_a_message_in_hand_is_not_even_destroyed_by_force(shell, site, space, forwarder):
    ran = shell.run("qopen QSPACE\nqdestroy -y -f WORK\nqdestroy -y -f OTHER\n")
    assert ran.err.startswith("ERROR: QMEINUSE: ")
    assert ran.err.count("\n") == 1
    assert ran.out.endswith("Queue 'OTHER' destroyed\n")
    (site.directory / "go").touch()
    assert [space.dequeue("RPLYQ", wait=60).text for _ in range(2)] == ["first", "second"]
    forwarder.stop()


def test_forwarder_that_ends_when_empty_does_not_wait_for_a_queue_that_was_destroyed(shell, site, space):
    site.services('[services]\nWORK.python = "server:call"\nOTHER.python = "server:call"\n')
    space.enqueue("WORK", "a")
    forwarder = site.start("-q", "WORK,OTHER", "-e")
    site.wait_for_calls()
    assert shell.run("qopen QSPACE\nqdestroy -y -f OTHER\n").status == 0
    (site.directory / "go").touch()
    assert forwarder.wait() == 0
    assert "queue 'OTHER' is paused: QMEBADQUEUE" in forwarder.log()


def test_queue_space_that_is_made_again_under_a_forwarder_is_served_again(shell, site, space):
    (site.directory / "go").touch()
    forwarder = site.start("-q", "WORK", "-i", "1")
    ran = shell.run(
        "qspacedestroy -y -f QSPACE\nqspacecreate QSPACE 54320 200 5 10 10 100 ERRQUE n 16\nqopen QSPACE\n"
        "qcreate ERRQUE fifo none 0 0 100% 0% ''\nqcreate RPLYQ fifo none 0 0 100% 0% ''\n"
        "qcreate WORK fifo none 0 0 100% 0% ''\n"
    )
    assert ran.status == 0, ran.err
    forwarder.wait_until_logged("the device is opened again in 1 seconds")
    with site.reopened() as again:
        msgid = again.enqueue("WORK", "a", reply_queue="RPLYQ")
        assert again.dequeue("RPLYQ", corrid=msgid, wait=60).text == "a"
    forwarder.stop()
    assert forwarder.log().count("started") == 1


def test_forwarder_that_is_stopped_in_vain_for_a_while_keeps_no_shell_from_its_work(shell, space, forwarder):
    forwarder.tell(signal.SIGSTOP)
    try:
        ran = shell.run("qopen QSPACE\nqcreate NEW fifo none 0 0 100% 0% ''\nqset WORK\nqlist\n")
    finally:
        forwarder.tell(signal.SIGCONT)
    assert (ran.err, ran.status) == ("", 0)
