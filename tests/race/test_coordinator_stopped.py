"""Coordinators that stand still before they decide, are given up, and come back: they are refused."""

from __future__ import annotations

import signal

import pytest

from tests.doom import Doom
from tests.fix_store import drain, eventually

STAND_STILL = """
import qmadmin
from pathlib import Path
from tests.doom import Doom, meet

_, first, second, timeout, mark = sys.argv
with open_device(first) as one, open_device(second) as other:
    if first == second:
        other = one
    with one.open_space("A") as a, other.open_space("B") as b:
        try:
            with qmadmin.transaction(a, b, timeout=float(timeout) or None, decider=a) as tx:
                b.enqueue("OUT", a.dequeue("Q").text)
                meet(Doom("qmcore.acts.deciding:decide", number=19), Path(mark))
        except qmadmin.AbortedError as error:
            say(f"refused: {tx.complete}")
"""
"""Moves a message from a volume to another one, and stands still before it decides."""
assert Doom("", number=19).number == signal.SIGSTOP


def standing_still(pair, start, tmp_path, timeout=0):
    """Return a coordinator that has prepared the branch in B, and stands still before it decides in A."""
    pair.a.enqueue("Q", "x")
    mark = tmp_path / "mark"
    child = start(STAND_STILL, *pair.configs, timeout, mark)
    eventually(mark.exists, "it stands still")
    eventually(lambda: len(pair.b.tpc_recover()) == 1, "the other branch is prepared")
    return child


@pytest.mark.matrix
@pytest.mark.parametrize("by", ["timeout", "administrator"])
def test_one_that_was_given_up_and_comes_back_is_refused_and_nothing_is_done(pair, start, tmp_path, by):
    child = standing_still(pair, start, tmp_path, 2 if by == "timeout" else 0)
    if by == "administrator":
        (info,) = pair.a.transactions()
        pair.a.abort_transaction(info.name)
    pair.wait_until_settled()
    message = pair.a.dequeue("Q")
    assert (message.text, message.retries, drain(pair.b, "OUT")) == ("x", 1, [])
    child.signal(signal.SIGCONT)
    child.expect("refused: False")
    child.finish()
    assert (drain(pair.a), drain(pair.b, "OUT"), pair.rows("trans"), pair.rows("decision")) == ([], [], 0, 0)


@pytest.mark.matrix(every=2)
def test_one_that_lives_is_waited_for(pair, start, tmp_path):
    child = standing_still(pair, start, tmp_path)
    seen = set[str]()

    def is_asked():
        pair.work()
        seen.update(process.role for process in pair.a.device.attached("A"))
        return pair.devices[0] is pair.devices[-1] or "recovery" in seen

    eventually(is_asked, "the decider is asked")
    assert (len(pair.b.tpc_recover()), drain(pair.a), drain(pair.b, "OUT")) == (1, [], [])
    child.signal(signal.SIGCONT)
    child.finish()
    pair.wait_until_settled()
    assert (drain(pair.a), drain(pair.b, "OUT")) == ([], ["x"])
