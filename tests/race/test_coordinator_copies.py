"""Copies and earlier states of volumes with branches in doubt: nothing is presumed, an administrator ends it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

import qmadmin
from qmadmin.opening import open_device, restore_device
from qmcore.errors import ProtocolError
from tests.fix_crashes import die_deciding
from tests.fix_distributed import ENDS
from tests.fix_store import drain, eventually

pytestmark = pytest.mark.parametrize("pair", ["file-file"], indirect=True)


def copy(source, target):
    """Copy a file with all that is in its log."""
    with contextlib.closing(sqlite3.connect(source)) as one, contextlib.closing(sqlite3.connect(target)) as other:
        one.backup(other)


def put_back(source, path, *, is_same_file):
    """Let a path have the contents of another file again, which may be the same file all the same."""
    for end in ENDS[1:]:
        Path(path + end).unlink(missing_ok=True)
    if is_same_file:
        Path(path).write_bytes(Path(source).read_bytes())
    else:
        shutil.move(source, path)


def left_in_doubt(config, caplog):
    """Return the branch that recovery leaves to an administrator, as it says."""
    caplog.clear()
    with open_device(config) as device, device.open_space("B") as space:
        eventually(lambda: not space.dequeue("IDLE") and "waits for qcommittrans" in caplog.text, "the log says it")
        (xid,) = space.tpc_recover()
        return str(xid)


def test_a_copy_never_ends_its_branches_by_itself(pair, start, tmp_path, caplog):
    pair.a.enqueue("Q", "x")
    pair.close()
    die_deciding(pair.configs, start, tmp_path, "return")
    copied = str(tmp_path / "COPY")
    copy(pair.configs[1], copied)
    pair.open()
    pair.wait_until_settled()
    assert (drain(pair.a), drain(pair.b, "OUT")) == ([], ["x"])
    xid = left_in_doubt(copied, caplog)
    with open_device(copied) as device, device.open_space("B") as space:
        # The decider still knows it, as long as its caller may ask.
        with pytest.raises(ProtocolError, match="is committed, as"):
            space.abort_transaction(xid)
        space.commit_transaction(xid)
        assert (space.transactions(), drain(space, "OUT")) == ([], ["x"])


def test_a_backup_that_is_restored_never_ends_its_branches_by_itself(pair, start, tmp_path, caplog):
    pair.a.enqueue("Q", "x")
    pair.close()
    die_deciding(pair.configs, start, tmp_path, "return")
    restored = str(tmp_path / "RESTORED")
    with open_device(pair.configs[1]) as device:
        device.backup(tmp_path / "BACKUP")
    restore_device(tmp_path / "BACKUP", restored)
    pair.open()
    pair.wait_until_settled()
    assert (drain(pair.a), drain(pair.b, "OUT")) == ([], ["x"])
    left_in_doubt(restored, caplog)


@pytest.mark.parametrize("event", ["call", "return"])
@pytest.mark.parametrize("is_same_file", [True, False])
def test_a_decider_that_was_set_back_presumes_nothing(pair, start, tmp_path, caplog, event, is_same_file):
    first, second = pair.configs
    pair.a.enqueue_many("Q", ["x", "y"])
    earlier = str(tmp_path / "EARLIER")
    pair.close()
    copy(first, earlier)
    die_deciding(pair.configs, start, tmp_path, event)
    put_back(earlier, first, is_same_file=is_same_file)
    # More decisions than were lost make it no later state.
    with open_device(first) as one, one.open_space("A") as a, open_device(second) as other, other.open_space("B") as b:
        for _ in range(3):
            with qmadmin.transaction(a, b, decider=a):
                a.enqueue("OUT", "later")
                b.enqueue("OUT", "later")
    left_in_doubt(second, caplog)
    pair.open()
    assert (drain(pair.b, "OUT"), len(pair.b.tpc_recover())) == (["later"] * 3, 1)


def test_a_stranger_in_the_place_of_the_decider_is_not_asked(pair, start, tmp_path, caplog):
    first, second = pair.configs
    pair.a.enqueue("Q", "x")
    pair.close()
    die_deciding(pair.configs, start, tmp_path, "call")
    pair.hide()
    with qmadmin.create_device(first, 20_000) as device:
        device.create_space("A")
    with open_device(second) as device, device.open_space("B") as space:
        eventually(lambda: not space.dequeue("IDLE") and "not the one that decides" in caplog.text, "the log says it")
        assert len(space.tpc_recover()) == 1
    pair.bring_back()
    pair.open()
    pair.wait_until_settled()
    assert (drain(pair.a), drain(pair.b, "OUT")) == (["x"], [])
