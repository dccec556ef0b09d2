"""What the shell and the MIB show of a suspended transaction, and how an administrator ends one."""

import json
import os
import re

import pytest

from qmadmin import mib, open_device

SUSPENDS = """
device = open_device(sys.argv[1])
space = device.open_space("QSPACE", role="teller")
space.enqueue("STRING", "request")
with space.transaction() as tx:
    space.dequeue("STRING")
    space.enqueue("errq", "reply")
    say(tx.suspend())
heard()
"""


@pytest.fixture
def suspender(laid_out, start):
    """A process that has suspended a transaction."""
    child = start(SUSPENDS, laid_out.device)
    child.token = child.line()
    return child


def rows(shell, command):
    ran = shell.process(None, "--format", "json", "-c", "qopen QSPACE", "-c", command)
    return json.loads(ran.stdout.splitlines()[-1])["rows"]


def test_qprinttrans_lists_it(laid_out, suspender):
    (row,) = rows(laid_out, "qprinttrans")
    assert (row["state"], row["role"], row["pid"], row["alive"]) == ("suspended", "teller", suspender.pid, "yes")
    assert (row["dequeued"], row["locked"], row["enqueued"]) == (1, 0, 1)
    assert row["suspended"] >= row["since"]
    shown = laid_out.run("qopen QSPACE\nqpt\n").out.splitlines()
    assert re.search(r" +0  [0-9a-f]{16} +suspended ", shown[-1])


def test_ipcs_shows_it_with_its_age(laid_out, suspender):
    ran = laid_out.run("ipcs QSPACE\n")
    title, process, suspended = ran.out.splitlines()
    assert title.split() == ["Kind", "Name", "Process", "Host", "Since", "State", "Bytes", "Age", "(s)"]
    host = re.escape(os.uname().nodename)
    time = r'"?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d ?[+-]\d{4}"?'
    assert re.fullmatch(rf"process +teller +{suspender.pid} +{host} +{time} +alive +- +-", process)
    assert re.fullmatch(rf"suspended +[0-9a-f]{{16}} +{suspender.pid} +{host} +{time} +alive +- +\d+", suspended)
    with open_device(laid_out.device) as device:
        (info,) = device.transactions("QSPACE")
        with device.open_space("QSPACE") as space:
            space.resume(suspender.token).commit()
        assert (info.id, device.transactions("QSPACE")) == (suspended.split()[1], [])
    assert "suspended" not in laid_out.run("ipcs QSPACE\n").out


def test_ipcs_says_where_its_process_is_dead(laid_out, suspender):
    suspender.kill()
    kinds = {line.split()[0]: line for line in laid_out.run("ipcs QSPACE\n").out.splitlines()[1:]}
    assert all(" dead " in line for line in kinds.values())
    assert kinds.keys() == {"process", "suspended"}
    laid_out.run("qopen QSPACE\n")
    assert "suspended" not in laid_out.run("ipcs QSPACE\n").out


def test_an_administrator_rolls_it_back_and_does_not_commit_it(laid_out, suspender):
    ran = laid_out.run("qopen QSPACE\nqpt\nqcommittrans -y 0\nqaborttrans -y 0\nqpt\nqset STRING\nqlist\n")
    assert "is suspended and not prepared; only the process that resumes it can commit it" in ran.err
    assert "Transaction 0 rolled back\n" in ran.out
    assert "has no outstanding transactions" in ran.err
    assert ran.out.count(" ready ") == 1


def test_the_mib_has_its_state(laid_out, suspender):
    with open_device(laid_out.device) as device:
        wanted = {"TA_QMCONFIG": str(laid_out.device), "TA_APPQSPACENAME": "QSPACE"}
        (found,) = mib.get(device, "T_APPQTRANS", wanted)
        assert (found["TA_STATE"], "TA_SUSPENDTIME" in found, "TA_PREPARETIME" in found) == ("SUS", True, False)
        assert found["TA_TRANOWNER"].startswith(f"teller {suspender.pid} on ")
        for state in ("HAB", "HCO"):
            with pytest.raises(mib.MibError, match="is suspended and not prepared"):
                mib.set(device, "T_APPQTRANS", wanted | {"TA_XID": found["TA_XID"], "TA_STATE": state})
        with device.open_space("QSPACE") as space, space.resume(suspender.token):
            (found,) = mib.get(device, "T_APPQTRANS", wanted)
            assert (found["TA_STATE"], "TA_SUSPENDTIME" in found) == ("ACT", False)
