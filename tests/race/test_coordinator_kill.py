"""Coordinators that are killed in the middle of a commit over two volumes: all of it is done, or nothing of it."""

from __future__ import annotations

import pytest

from tests.fix_store import drain

DIE = """
import qmadmin
from pathlib import Path
from tests.doom import Doom, meet

_, first, second, decider, place, event, mark = sys.argv
with open_device(first) as one, open_device(second) as other:
    if first == second:
        other = one
    with one.open_space("A") as a, other.open_space("B") as b:
        for space in (a, b):
            with space.transaction():
                space.enqueue("OUT", "known")
            assert space.dequeue("OUT")
        with qmadmin.transaction(a, b, decider={"a": a, "b": b}[decider]):
            b.enqueue("OUT", a.dequeue("Q").text)
            meet(Doom(place, event), Path(mark))
        say("done")
        # Until recovery has told everybody, too.
        while True:
            a.dequeue("IDLE", wait=0.1)
            b.dequeue("IDLE", wait=0.1)
"""
"""Moves a message from a volume to another one, and dies at the call or at the return of a step."""

BEFORE = [
    ("a", "qmcore.acts.preparing:prepare", "call"),
    ("a", "qmcore.acts.preparing:prepare", "return"),
    ("a", "qmcore.acts.deciding:decide", "call"),
    ("b", "qmcore.acts.preparing:begin", "call"),
    ("b", "qmcore.acts.preparing:begin", "return"),
    ("b", "qmcore.acts.preparing:prepare", "call"),
    ("b", "qmcore.acts.preparing:prepare", "return"),
    ("b", "qmcore.acts.deciding:decider_of", "return"),
    ("b", "qmcore.acts.deciding:decide", "call"),
]
"""Steps before the decision."""
AFTER = [
    ("a", "qmcore.acts.deciding:decide", "return"),
    ("a", "qmcore.acts.recovering:complete", "call"),
    ("a", "qmcore.acts.recovering:complete", "return"),
    ("a", "qmcore.acts.recovering:end", "call"),
    ("a", "qmcore.acts.recovering:end", "return"),
    ("a", "qmcore.acts.deciding:forget", "call"),
    ("a", "qmcore.acts.deciding:forget", "return"),
    ("b", "qmcore.acts.deciding:decide", "return"),
    ("b", "qmcore.acts.recovering:complete", "return"),
]


@pytest.mark.matrix(whole="file-file")
@pytest.mark.parametrize(("decider", "place", "event"), [*BEFORE, *AFTER])
def test_a_death_at_any_step_leaves_all_or_nothing_and_nobody_has_to_do_anything(
    pair, start, tmp_path, decider, place, event
):
    pair.a.enqueue("Q", "x")
    pair.close()
    child = start(DIE, *pair.configs, decider, place, event, tmp_path / "mark")
    child.lines_left()
    pair.open()
    pair.wait_until_settled()
    if (decider, place, event) in BEFORE:
        message = pair.a.dequeue("Q")
        assert (message.text, message.retries, drain(pair.b, "OUT")) == ("x", 1, [])
    else:
        assert (drain(pair.a), drain(pair.b, "OUT")) == ([], ["x"])
