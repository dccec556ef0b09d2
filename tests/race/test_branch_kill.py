"""Branches whose processes are killed: what was prepared is kept, and ended by whoever knows its identifier."""

import pytest

from qmadmin.opening import open_device
from qmcore.probe import Point
from tests.fix_store import drain, make_queue

XID = "7:676c6f62616c:"

DIE = f"""
from pathlib import Path
from tests.doom import Doom, meet

_, path, act, place, mark = sys.argv
doom = Doom(place), Path(mark)
with open_device(path) as device, device.open_space("SPACE") as space:
    # So that the definitions are known, and no transaction is the first one ever.
    with space.transaction():
        space.enqueue("OUT", "known")
    assert space.dequeue("OUT")
    space.tpc_begin("{XID}")
    space.enqueue("OUT", space.dequeue("Q").text)
    if act == "prepare":
        meet(*doom)
    space.tpc_prepare()
    if act != "prepare":
        meet(*doom)
        (space.tpc_commit if act == "commit" else space.tpc_rollback)()
    say("done")
"""
"""Takes a message and answers it in a branch, and dies at a point of its preparation, or of its end."""

DONE_BEFORE = {"AFTER_COMMIT", "BEFORE_SYNC", "AFTER_SYNC"}
"""Points behind what decides."""

CELLS = [
    (kind, point.name)
    for kind, ends in (("file", ("WRITE", "COMMIT", "SYNC")), ("postgres", ("WRITE", "COMMIT")))
    for point in Point
    if point.name.endswith(ends)
]
"""The points that there are on each store: on PostgreSQL a commit brings itself to the disk."""


@pytest.mark.matrix(together=2, apart=True)
@pytest.mark.parametrize("act", ["prepare", "commit", "rollback"])
@pytest.mark.parametrize(("real_device", "place"), CELLS, indirect=["real_device"])
def test_a_death_at_any_point_of_a_step_leaves_the_branch_as_before_or_as_after(
    real_device, start, tmp_path, act, place
):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        assert start(DIE, real_device.path, act, place, tmp_path / "mark").lines_left() == []
        is_done = place in DONE_BEFORE
        if act == "prepare" and not is_done:
            left = space.dequeue("Q")
            assert (left.text, left.retries, drain(space, "OUT"), space.tpc_recover()) == ("x", 1, [], [])
            return
        if act == "prepare" or not is_done:
            assert [str(xid) for xid in space.tpc_recover()] == [XID]
            assert (drain(space), drain(space, "OUT")) == ([], [])
            (space.tpc_rollback if act == "rollback" else space.tpc_commit)(XID)
        assert space.tpc_recover() == []
        assert (drain(space), drain(space, "OUT")) == ((["x"], []) if act == "rollback" else ([], ["x"]))


PREPARED = f"""
with open_device(sys.argv[1]) as device:
    space = device.open_space("SPACE")
    space.tpc_begin("{XID}")
    space.dequeue("Q")
    space.lock("Q")
    space.enqueue("OUT", bytes(9 << 20))
    space.enqueue("OUT", "reply")
    space.tpc_prepare()
    say("prepared")
    heard()
"""


@pytest.mark.parametrize("commits", [True, False])
def test_a_prepared_branch_outlives_its_process_and_everybody_else(real_device, start, commits):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue_many("Q", ["taken", "locked"])
    child = start(PREPARED, real_device.config)
    child.expect("prepared")
    real_device.close()
    child.kill()
    with open_device(real_device.config) as device, device.open_space("SPACE") as space:
        # Its process is cleaned up after; the branch is not.
        assert [each.alive for each in device.attached("SPACE")] == [True]
        assert [space.dequeue(name) for name in ("Q", "OUT")] == [None, None]
        (space.tpc_commit if commits else space.tpc_rollback)(XID)
        sizes = [info.size for info in space.messages("OUT")]
        assert (drain(space), sizes) == ((["locked"], [9 << 20, 5]) if commits else (["taken", "locked"], []))
