"""Backups of several volumes while transactions over them are committed: each is whole, in doubt, or not there."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess

import pytest

from qmadmin.opening import open_device, restore_device
from tests.crashing import SOURCE, Participant, Plan
from tests.doom import Doom
from tests.fix_crashes import die_deciding
from tests.fix_postgres import login_of
from tests.fix_store import drain, eventually

COMMITTING = """
import qmadmin
_, path, name, decider = sys.argv
with open_device(path) as device, device.open_space("A") as a, device.open_space("B") as b:
    number = 0
    while True:
        number += 1
        with qmadmin.transaction(a, b, decider={"A": a, "B": b}[decider]):
            for space in (a, b):
                space.enqueue("OUT", f"{name}{number}")
        say(number)
"""
"""Commits over two volumes, again and again."""


@contextlib.contextmanager
def restored(backup, path):
    """Restore a backup of two volumes; give its queue spaces."""
    path.mkdir()
    restore_device(backup, str(path / "A"))
    with open_device(str(path / "A")) as device, device.open_space("A") as a, device.open_space("B") as b:
        yield a, b


def texts(space):
    """Return what is in its queue, without taking it."""
    return {space.content(info).text for info in space.messages("OUT")}


def wait_until_looked_at(space, caplog):
    """Return when recovery has looked at what is in doubt in a queue space, and has left it."""
    left = [f"transaction {xid} of queue space" for xid in space.tpc_recover()]
    eventually(lambda: not space.dequeue("IDLE") and all(each in caplog.text for each in left), "the log says it")


def end(space, xid, *, commits):
    """End what is in doubt as an administrator; of a copy nobody ever knows whether that was right."""
    is_heuristic = (space.commit_transaction if commits else space.abort_transaction)(str(xid))
    if is_heuristic:
        space.tpc_forget(xid)
    assert space.tpc_recover() == []


@pytest.mark.parametrize("pair", ["volumes-file"], indirect=True)
def test_a_transaction_is_committed_in_all_of_a_backup_or_in_doubt_or_in_none(pair, start, tmp_path, caplog):
    path = pair.configs[0]
    children = [start(COMMITTING, path, f"{decider}-", decider) for decider in "AB"]
    for child in children:
        child.expect("1", "2")
    for number in range(5):
        pair.devices[0].backup(tmp_path / f"backup{number}")
    for child in children:
        child.kill()
    for number in range(5):
        caplog.clear()
        with restored(tmp_path / f"backup{number}", tmp_path / f"restored{number}") as spaces:
            for space, other in (spaces, spaces[::-1]):
                before, its = texts(space), {text for text in texts(other) if text.startswith(f"{other.name}-")}
                in_doubt = space.tpc_recover()
                wait_until_looked_at(space, caplog)
                assert (space.tpc_recover(), texts(space)) == (in_doubt, before)
                for xid in in_doubt:
                    space.commit_transaction(str(xid))
                followed = {text for text in before if text.startswith(f"{other.name}-")}
                brought = texts(space) - before
                assert len(brought) == len(in_doubt)
                # What has followed was decided there, and what was decided has followed, or is in doubt.
                assert followed <= its <= followed | brought


@pytest.mark.parametrize("pair", ["volumes-file"], indirect=True)
@pytest.mark.parametrize("event", ["call", "return"])
def test_what_is_in_doubt_in_a_backup_waits_for_an_administrator_who_ends_nothing_elsewhere(
    pair, start, tmp_path, caplog, event
):
    pair.a.enqueue("Q", "x")
    both = [Participant("A", pair.configs[0]), Participant("B", pair.configs[0])]
    doom = Doom("qmcore.acts.deciding:decide", event, number=signal.SIGSTOP)
    child = start(SOURCE, Plan(both, 0, doom, str(tmp_path / "mark")).told)
    eventually((tmp_path / "mark").exists, "it stands still")
    pair.devices[0].backup(tmp_path / "backup")
    with restored(tmp_path / "backup", tmp_path / "restored") as (a, b):
        (xid,) = b.tpc_recover()
        wait_until_looked_at(b, caplog)
        assert (b.tpc_recover(), drain(b, "OUT")) == ([xid], [])
        assert drain(a) == (["x"] if event == "call" else [])
        end(b, xid, commits=event == "return")
        assert drain(b, "OUT") == ([] if event == "call" else ["x"])
    child.signal(signal.SIGCONT)
    child.expect("committed")
    pair.wait_until_settled()
    assert (drain(pair.a), drain(pair.b, "OUT")) == ([], ["x"])


@pytest.mark.parametrize("event", ["call", "return"])
def test_what_is_in_doubt_in_a_dump_waits_for_an_administrator(
    own_cluster, start, tmp_path, caplog, monkeypatch, event
):
    from tests.fix_distributed import make_pair

    if not (own_cluster.bin / "pg_dump").exists():
        pytest.skip("there is no pg_dump beside the server")
    for name, value in login_of(own_cluster.url()).items():
        monkeypatch.setenv(name, value)
    own_cluster.sql("CREATE DATABASE work")
    own_cluster.sql("CREATE DATABASE copy")
    pair = make_pair("file-postgres", tmp_path, f"{own_cluster.url('work')}?schema=queues")
    pair.a.enqueue("Q", "x")
    pair.close()
    die_deciding(pair.configs, start, tmp_path, event)
    plain = [own_cluster.url(name).replace("+psycopg", "") for name in ("work", "copy")]
    subprocess.run([own_cluster.bin / "pg_dump", "-f", tmp_path / "dump", plain[0]], check=True)
    psql = shutil.which("psql") or own_cluster.bin / "psql"
    subprocess.run([psql, "-qX", "-f", tmp_path / "dump", plain[1]], check=True)
    with open_device(pair.configs[1].replace("/work", "/copy")) as device, device.open_space("B") as b:
        (xid,) = b.tpc_recover()
        wait_until_looked_at(b, caplog)
        assert (b.tpc_recover(), drain(b, "OUT")) == ([xid], [])
        end(b, xid, commits=event == "return")
        assert drain(b, "OUT") == ([] if event == "call" else ["x"])
    pair.open()
    pair.wait_until_settled()
    assert drain(pair.b, "OUT") == ([] if event == "call" else ["x"])
    pair.close()
