"""Copies of a queue space with a branch of Zope that presumes an abort: nothing is presumed there."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

import pytest

from qmadmin.opening import open_device
from qmcore.attached import DeciderReach
from tests.fix_distributed import PAIRS, make_pair
from tests.fix_postgres import login_of
from tests.fix_store import drain, eventually
from tests.race.test_coordinator_copies import copy

DIE = """
import transaction
from pathlib import Path
from tests.doom import Doom, meet
from qmadmin.zope import join

_, config, name, mark = sys.argv
space = open_device(config).open_space(name, role="shop")
join(space, presume="abort")
space.enqueue("OUT", space.dequeue("Q").text)
meet(Doom("qmadmin.two_phase:TwoPhaseTransaction.decide"), Path(mark))
transaction.commit()
"""
"""Moves a message, and dies when that is prepared."""


def check_left(config, name, caplog):
    """Check that a branch is left to an administrator, and shown so, and end it."""
    caplog.clear()
    with open_device(config) as device, device.open_space(name) as space:
        eventually(lambda: not space.dequeue("IDLE") and "waits for qcommittrans" in caplog.text, "the log says it")
        assert "abort is presumed" not in caplog.text
        (info,) = space.transactions(ask_deciders=True)
        assert (info.presumes_abort, info.reached) == (True, DeciderReach.NEVER)
        assert "from which this one was copied or restored" in info.unreached
        (found,) = [each for each in device.check(name) if each.check.startswith("transaction-")]
        assert found.check == "transaction-undecidable"
        assert (drain(space), drain(space, "OUT")) == ([], [])
        assert space.commit_transaction(info.name)
        assert (drain(space), drain(space, "OUT")) == ([], ["x"])


def check_presumed(pair, name):
    """Check that where it was prepared it is rolled back by whoever comes next."""
    space = {"A": pair.a, "B": pair.b}[name]
    eventually(lambda: not space.dequeue("IDLE") and not space.transactions(), "its abort is presumed")
    assert (drain(space), drain(space, "OUT")) == (["x"], [])


@pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
def test_in_a_copied_file_it_waits_for_an_administrator(pair, start, tmp_path, caplog):
    pair.a.enqueue("Q", "x")
    pair.close()
    start(DIE, pair.configs[0], "A", tmp_path / "mark").lines_left()
    copied = str(tmp_path / "COPY")
    copy(pair.configs[0], copied)
    check_left(copied, "A", caplog)
    pair.open()
    check_presumed(pair, "A")


def test_in_a_dump_that_is_restored_it_waits_for_an_administrator(own_cluster, start, tmp_path, caplog, monkeypatch):
    if not (own_cluster.bin / "pg_dump").exists():
        pytest.skip("there is no pg_dump beside the server")
    for name, value in login_of(own_cluster.url()).items():
        monkeypatch.setenv(name, value)
    own_cluster.sql("CREATE DATABASE work")
    own_cluster.sql("CREATE DATABASE copy")
    pair = make_pair("file-postgres", tmp_path, f"{own_cluster.url('work')}?schema=queues")
    with contextlib.closing(pair):
        pair.b.enqueue("Q", "x")
        pair.close()
        start(DIE, pair.configs[1], "B", tmp_path / "mark").lines_left()
        plain = [own_cluster.url(name).replace("+psycopg", "") for name in ("work", "copy")]
        subprocess.run([own_cluster.bin / "pg_dump", "-f", tmp_path / "dump", plain[0]], check=True)
        psql = shutil.which("psql") or own_cluster.bin / "psql"
        subprocess.run([psql, "-qX", "-f", tmp_path / "dump", plain[1]], check=True)
        check_left(pair.configs[1].replace("/work", "/copy"), "B", caplog)
        pair.open()
        check_presumed(pair, "B")
