"""An administrator who ends branches of our own transactions: the decider is asked first, and what differs is told."""

from __future__ import annotations

import contextlib
import signal

import pytest

from qmadmin.opening import open_device
from qmcore.errors import HeuristicError, ProtocolError, UnknownXidError
from tests.fix_crashes import die_deciding
from tests.fix_store import drain, eventually
from tests.race.test_coordinator_stopped import standing_still


@contextlib.contextmanager
def in_doubt(pair, start, tmp_path, caplog, event):
    """Give a branch whose coordinator has died before or after the decision, while the decider cannot be reached."""
    pair.a.enqueue("Q", "x")
    pair.close()
    die_deciding(pair.configs, start, tmp_path, event)
    pair.hide()
    with open_device(pair.configs[1]) as device, device.open_space("B") as space:
        eventually(lambda: not space.dequeue("IDLE") and "have to wait for" in caplog.text, "recovery has asked")
        (info,) = space.transactions()
        assert info.decider == f"A on {pair.configs[0]}"
        yield space, info.name


@pytest.mark.parametrize("pair", ["file-file"], indirect=True)
@pytest.mark.parametrize("event", ["call", "return"])
class TestABranchInDoubt:
    def test_is_ended_as_its_decider_says_and_not_otherwise(self, pair, start, tmp_path, caplog, event):
        with in_doubt(pair, start, tmp_path, caplog, event) as (space, name):
            pair.bring_back()
            right, wrong = space.commit_transaction, space.abort_transaction
            if event == "call":
                right, wrong = wrong, right
            with pytest.raises(ProtocolError, match="has decided"):
                wrong(name)
            # Recovery may come first.
            with contextlib.suppress(UnknownXidError):
                assert right(name) is False
                (last, *_) = space.device.audited(1)
                assert "has decided" in last.outcome
            assert (space.transactions(), drain(space, "OUT")) == ([], [] if event == "call" else ["x"])
        pair.open()
        pair.wait_until_settled()

    @pytest.mark.parametrize("commits", [True, False])
    def test_is_ended_heuristically_while_its_decider_is_away_and_compared_when_it_is_back(
        self, pair, start, tmp_path, caplog, event, commits
    ):
        with in_doubt(pair, start, tmp_path, caplog, event) as (space, name):
            assert (space.commit_transaction if commits else space.abort_transaction)(name) is True
            (info,) = space.transactions()
            assert (info.state.value, info.decided) == (f"heuristic {'commit' if commits else 'rollback'}", "")
            with pytest.raises(ProtocolError, match="cannot be forgotten, before it is compared"):
                space.tpc_forget(name)
            pair.bring_back()
            same = commits is (event == "return")
            eventually(
                lambda: not space.dequeue("IDLE") and [each.decided for each in space.transactions()] != [""],
                "it is compared",
            )
            decided = [each.decided for each in space.transactions()]
            assert decided == ([] if same else ["rolled back" if event == "call" else "committed"])
            if not same:
                space.tpc_forget(name)
            assert (space.transactions(), drain(space, "OUT")) == ([], ["x"] if commits else [])
        pair.open()
        pair.wait_until_settled()

    def test_is_compared_by_whoever_forgets_it(self, pair, start, tmp_path, caplog, event):
        with in_doubt(pair, start, tmp_path, caplog, event) as (space, name):
            # Otherwise than was decided.
            (space.commit_transaction if event == "call" else space.abort_transaction)(name)
            pair.bring_back()
            with pytest.raises(HeuristicError, match="has decided otherwise"):
                space.tpc_forget(name)
            space.tpc_forget(name)
            assert space.transactions() == []
        pair.open()
        pair.wait_until_settled()


@pytest.mark.matrix(every=2)
def test_the_coordinator_of_a_branch_that_is_rolled_back_is_ended_and_that_is_no_heuristic_end(pair, start, tmp_path):
    child = standing_still(pair, start, tmp_path)
    (info,) = pair.b.transactions()
    pair.b.abort_transaction(info.name)
    assert (pair.b.transactions(), pair.a.transactions(), drain(pair.b, "OUT")) == ([], [], [])
    child.signal(signal.SIGCONT)
    child.expect("refused: False")
    child.finish()
    assert drain(pair.a) == ["x"]


@pytest.mark.matrix(every=2)
def test_the_calls_of_a_coordinator_do_not_end_what_is_not_its(pair, start, tmp_path):
    child = standing_still(pair, start, tmp_path)
    (xid,) = pair.b.tpc_recover()
    for end in (pair.b.tpc_commit, pair.b.tpc_rollback):
        with pytest.raises(ProtocolError, match="ends as its decider says"):
            end(xid)
    child.signal(signal.SIGCONT)
    child.finish()
    pair.wait_until_settled()
    assert (drain(pair.a), drain(pair.b, "OUT")) == ([], ["x"])
