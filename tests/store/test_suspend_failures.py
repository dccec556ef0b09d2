"""A transaction whose suspension or resumption fails, or is interrupted."""

import gc

import pytest

from qmadmin import space as spaces
from qmadmin import suspending, transacting
from qmcore.acts import suspending as acts
from qmcore.errors import (
    OutcomeUnknownError,
)
from qmcore.probe import Point
from qmcore.records import Outcome
from tests.fix_store import attachment_of, drain, make_queue
from tests.interrupts import at_every_line
from tests.store.test_suspend import GONE


class TestFailures:
    @pytest.mark.matrix(whole="file")
    @pytest.mark.parametrize("module", [suspending, spaces, transacting, acts])
    def test_an_interrupt_anywhere_loses_and_doubles_nothing(self, store, space, module):
        make_queue(space, "OUT")
        space.enqueue("Q", "x")

        def work():
            with space.transaction() as tx:
                space.enqueue("OUT", space.dequeue("Q").text)
                token = tx.suspend()
            with space.resume(token):
                pass

        for _ in at_every_line(module, work):
            gc.collect()
            attachment_of(space).do_housekeeping(now=True)
            for info in space.transactions():
                # The token went with the call.
                assert info.state is Outcome.SUSPENDED
                space.abort_transaction(info.id)
            there, brought = list(space.messages("Q")), drain(space, "OUT")
            assert (len(there), brought) in ((1, []), (0, ["x"]))
            if not there:
                space.enqueue("Q", "x")
            else:
                space.change_queue("Q", retries=there[0].retries + 3)
            with space.transaction():
                pass

    @pytest.mark.parametrize("point", [Point.BEFORE_WRITE, Point.BEFORE_COMMIT])
    def test_where_the_store_fails_as_it_is_suspended_it_is_rolled_back(self, shared_store, point):
        space = shared_store.space()
        make_queue(space, "Q", retries=3)
        space.enqueue("Q", "x")

        def fails(_fact):
            space.probe.leave(point)
            raise OutcomeUnknownError("the disk has failed")

        with pytest.raises(OutcomeUnknownError), space.transaction() as tx:
            space.dequeue("Q")
            space.probe.at(point, fails)
            tx.suspend()
        attachment_of(space).do_housekeeping(now=True)
        assert (drain(space), space.transactions()) == (["x"], [])

    def test_where_it_is_unknown_whether_it_was_resumed_it_is_rolled_back(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q", retries=3)
        space.enqueue("Q", "x")
        with space.transaction() as tx:
            space.dequeue("Q")
            token = tx.suspend()

        def fails(_fact):
            space.probe.leave(Point.BEFORE_COMMIT)
            raise OutcomeUnknownError("the disk has failed")

        space.probe.at(Point.BEFORE_COMMIT, fails)
        with pytest.raises(OutcomeUnknownError):
            space.resume(token)
        attachment_of(space).do_housekeeping(now=True)
        with GONE:
            space.resume(token)
        assert drain(space) == ["x"]

    def test_suspending_and_resuming_bring_nothing_to_the_disk(self, file_store):
        space = file_store.space()
        make_queue(space, "Q")
        space.enqueue("Q", "x")
        syncs = []
        with space.transaction() as tx:
            space.dequeue("Q")
            space.enqueue("Q", "y")
            space.probe.at(Point.AFTER_SYNC, syncs.append)
            token = tx.suspend()
        with space.resume(token):
            assert syncs == []
        assert len(syncs) == 1
