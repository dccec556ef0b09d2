"""Branches of transactions of Zope that presume an abort where their process dies after the vote."""

import json

import pytest
import transaction

from qmadmin import mib
from qmadmin.opening import open_device
from qmadmin.zope import join
from qmcore.acts import recovering
from qmcore.errors import InvalidArgumentError
from qmcore.records import Outcome
from tests.fix_store import attachment_of, drain, eventually, make_queue

NOBODY = "nobody, its abort is presumed"

DIE = """
import transaction
from pathlib import Path
from tests.doom import Doom, meet
from qmadmin.zope import join

_, path, event, mark = sys.argv
space = open_device(path).open_space("SPACE", role="shop")
join(space, presume="abort")
space.enqueue("OUT", space.dequeue("Q").text)
meet(Doom("qmadmin.two_phase:TwoPhaseTransaction.decide", event), Path(mark))
transaction.commit()
"""


@pytest.fixture(autouse=True)
def _none_is_left():
    yield
    transaction.abort()


@pytest.mark.parametrize("event", ["call", "return"])
def test_whoever_comes_next_rolls_back_what_a_dead_process_has_promised(real_device, start, tmp_path, event, caplog):
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        start(DIE, real_device.config, event, tmp_path / "mark").lines_left()

        def is_over():
            attachment_of(space).do_housekeeping(now=True)
            return not space.transactions()

        if event == "call":
            (found,) = [each for each in real_device.check("SPACE") if each.check.startswith("transaction-")]
            assert (found.check, found.advice) == ("transaction-left", "Open the queue space: that rolls it back.")
            assert "is dead; nobody decides, and its abort is presumed; it has 2 messages" in found.sentence
        eventually(is_over, "the end of the branch")
        assert (drain(space), drain(space, "OUT")) == ((["x"], []) if event == "call" else ([], ["x"]))
        assert ("its abort is presumed" in caplog.text) is (event == "call")


@pytest.fixture
def space(shared_store):
    opened = shared_store.space()
    make_queue(opened, "Q")
    return opened


class Vote:
    """Another data manager, which does something between our vote and our end."""

    transaction_manager = transaction.manager

    def __init__(self, does):
        self.does = does
        transaction.get().join(self)

    def sortKey(self):  # noqa: N802 - the package's name
        return "~"

    def tpc_vote(self, _its):
        self.does()

    def nothing(self, _its):
        pass

    tpc_begin = commit = tpc_finish = tpc_abort = abort = nothing


def test_nothing_is_presumed_of_a_process_that_lives(space, shared_store):
    join(space, presume="abort")
    space.enqueue("Q", "x")
    seen = []

    def look():
        with shared_store.another().open_space("SPACE") as again:
            attachment = attachment_of(again)
            ended = recovering.end_presumed(attachment.volume, attachment.opened)
            seen.append(([info.state for info in again.transactions()], ended))

    Vote(look)
    transaction.commit()
    assert (seen, drain(space)) == ([([Outcome.PREPARED], [])], ["x"])


def test_it_is_told_that_nobody_decides(laid_out):
    seen = []

    def documents(*commands):
        given = (word for command in ("qopen QSPACE", *commands) for word in ("-c", command))
        return [json.loads(line) for line in laid_out.process(None, "--format", "json", *given).stdout.splitlines()][1:]

    with open_device(laid_out.device) as device:
        opened = device.open_space("QSPACE")
        join(opened, presume="abort")
        opened.enqueue("STRING", "x")

        def look():
            (info,) = opened.transactions(ask_deciders=True)
            assert (info.decider, info.presumes_abort, info.reached) == (NOBODY, True, None)
            seen.append(info.name)
            (listed, *questions) = documents("qprinttrans", "qcommittrans -n 0", "qaborttrans -n 0")
            assert [(row["xid"], row["decider"], row["reached"]) for row in listed["rows"]] == [(seen[0], NOBODY, None)]
            for question in questions:
                (row,) = question["rows"]
                assert row["dry_run"].endswith(
                    ", on which nobody decides: its process may end it otherwise while it lives"
                )
            (answer,) = mib.get(device, "T_APPQTRANS", {"TA_APPQSPACENAME": "QSPACE"})
            assert (answer["TA_STATE"], answer["TA_DECIDER"]) == ("REA", NOBODY)

        Vote(look)
        transaction.commit()
        assert (len(seen), drain(opened, "STRING")) == (1, ["x"])


def test_it_is_found_once_its_process_has_it_for_more_than_an_hour(space, shared_store):
    join(space, presume="abort")
    space.enqueue("Q", "x")

    def look():
        shared_store.clock.advance(3_601)
        (found,) = [each for each in shared_store.another().check("SPACE") if each.check.startswith("transaction-")]
        (info,) = space.transactions()
        assert found.check == "transaction-in-doubt"
        assert "is attached; it waits for that process, on whose death its abort is presumed" in found.sentence
        assert found.advice.startswith("End that process, and it is rolled back; or find out how it decided")
        assert found.advice.endswith(f"type qcommittrans {info.name} or qaborttrans {info.name}")

    Vote(look)
    transaction.commit()
    assert drain(space) == ["x"]


def test_a_presumption_is_an_abort_and_stands_beside_no_session(space):
    for wrong in ({"presume": "commit"}, {"presume": "abort", "session": object()}):
        with pytest.raises(InvalidArgumentError, match="what a transaction presumes is 'abort', where no session"):
            join(space, **wrong)
    assert space.transactions() == []
