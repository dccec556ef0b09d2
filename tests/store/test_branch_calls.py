"""The calls of PEP 249 on a branch: what may follow what, which identifiers there are, and what fails."""

import contextlib
import errno
import gc
import itertools

import pytest

from qmadmin import transacting, two_phase
from qmcore.acts import in_doubt, preparing
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    InUseError,
    InvalidArgumentError,
    OperatingSystemError,
    OutcomeUnknownError,
    ProtocolError,
    QueueError,
    UnknownXidError,
)
from qmcore.probe import Point
from qmcore.two_phase import OUR_FORMAT
from tests.fix_branches import TEXT, XID
from tests.fix_store import Work, attachment_of, drain, make_queue
from tests.interrupts import at_every_line


class TestWhatMayFollowWhat:
    def test_a_branch_is_prepared_once(self, space, branch):
        with pytest.raises(ProtocolError, match=f"transaction {TEXT} is prepared, and takes no more calls"):
            space.tpc_prepare()
        space.tpc_commit()

    def test_no_call_can_be_made_in_a_prepared_branch(self, space, branch):
        for call in (
            lambda: space.enqueue("Q", "x"),
            lambda: space.enqueue_many("Q", ["x"]),
            lambda: space.dequeue("Q"),
            lambda: space.dequeue_many("Q", 2),
            lambda: space.lock("Q"),
        ):
            with pytest.raises(ProtocolError, match="is prepared, and takes no more calls") as refused:
                call()
            assert "tpc_commit or tpc_rollback" in refused.value.hint
        space.tpc_commit()
        assert drain(space) == ["second"]

    @pytest.mark.parametrize("prepared", [False, True])
    def test_transactions_do_not_nest(self, space, prepared):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        if prepared:
            space.tpc_prepare()
        for begin in (lambda: space.tpc_begin((7, b"other", b"")), lambda: space.transaction().__enter__()):
            with pytest.raises(ProtocolError, match="a transaction is open already"):
                begin()
        space.tpc_commit()
        assert drain(space) == ["x"]

    def test_no_branch_begins_in_another_transaction(self, space):
        with space.transaction():
            with pytest.raises(ProtocolError, match="a transaction is open already"):
                space.tpc_begin(XID)
            for call in (space.tpc_prepare, space.tpc_commit, space.tpc_rollback):
                with pytest.raises(ProtocolError, match="was not begun by tpc_begin"):
                    call()
            space.enqueue("Q", "x")
        assert drain(space) == ["x"]

    def test_without_a_branch_none_can_be_ended(self, space):
        for call in (space.tpc_prepare, space.tpc_commit, space.tpc_rollback):
            with pytest.raises(ProtocolError, match="no branch is open in this thread"):
                call()

    def test_one_is_ended_by_its_identifier_outside_of_any(self, space, branch):
        for call in (space.tpc_commit, space.tpc_rollback):
            with pytest.raises(ProtocolError, match="ended by their xid outside of one"):
                call(branch)
        space.tpc_commit()

    def test_the_branch_of_another_thread_is_not_that_of_this_one(self, space, branch):
        (found,) = Work(lambda: _refused(space.tpc_commit)).results()
        assert "no branch is open in this thread" in str(found)
        space.tpc_commit()

    def test_one_is_unknown_that_was_never_there_or_has_ended(self, space, branch):
        space.tpc_commit()
        for call in (space.tpc_commit, space.tpc_rollback, space.tpc_forget):
            with pytest.raises(UnknownXidError, match=f"has no transaction with the xid {TEXT}; it may have ended"):
                call(branch)

    def test_one_of_another_queue_space_is_unknown_here(self, store, space, branch):
        other = store.space("OTHER", ipc_key=40_001)
        with pytest.raises(UnknownXidError, match="queue space 'OTHER' has no transaction"):
            other.tpc_commit(branch)
        space.tpc_commit()

    def test_one_that_is_active_is_not_ended_by_others(self, space):
        space.tpc_begin(XID)
        for call in (space.tpc_commit, space.tpc_rollback, space.tpc_forget):
            (found,) = Work(lambda call=call: _refused(lambda: call(XID))).results()
            assert isinstance(found, ProtocolError)
            assert f"transaction {TEXT} of queue space 'SPACE' is active" in str(found)
        space.tpc_rollback()

    @pytest.mark.parametrize("prepared", [False, True])
    def test_an_identifier_is_in_use_in_whatever_state_its_branch_is(self, space, prepared):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        if prepared:
            space.tpc_prepare()
        (found,) = Work(lambda: _refused(lambda: space.tpc_begin(TEXT))).results()
        assert isinstance(found, InUseError)
        assert f"queue space 'SPACE' has a transaction with the xid {TEXT} already" in str(found)
        space.tpc_commit()
        space.tpc_begin(TEXT)
        space.tpc_rollback()

    def test_of_several_who_begin_with_one_identifier_at_the_same_time_one_does(self, shared_store):
        shared_store.space()
        spaces = [shared_store.another().open_space("SPACE") for _ in range(4)]

        def begin(space, number):
            try:
                space.tpc_begin((7, f"{number}", ""))
            except InUseError:
                return False
            return True

        for number in range(8):
            work = Work(*(lambda space=space, number=number: begin(space, number) for space in spaces))
            assert sorted(work.results()) == [False, False, False, True]

    def test_the_same_identifier_names_another_branch_in_another_queue_space(self, store, space, branch):
        other = store.space("OTHER", ipc_key=40_001)
        make_queue(other, "Q")
        other.tpc_begin(branch)
        other.enqueue("Q", "there")
        other.tpc_prepare()
        space.tpc_rollback()
        assert other.tpc_recover() == [branch]
        other.tpc_commit()
        assert drain(other) == ["there"]

    def test_a_preparation_that_fails_is_ended_by_the_rollback(self, space):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        Work(lambda: space.abort_transaction(space.transactions()[0].id)).results()
        with pytest.raises(AbortedError):
            space.tpc_prepare()
        with pytest.raises(ProtocolError, match=f"transaction {TEXT} is rolled back"):
            space.tpc_commit()
        space.tpc_rollback()
        assert (drain(space), space.transactions()) == ([], [])

    def test_a_queue_that_was_destroyed_meanwhile_is_no_obstacle_to_a_rollback(self, space):
        make_queue(space, "OUT")
        space.tpc_begin(XID)
        space.enqueue("OUT", "x")
        Work(lambda: space.destroy_queue("OUT")).results()
        with pytest.raises(BadQueueError):
            space.tpc_prepare()
        space.tpc_rollback()
        assert (space.transactions(), space.tpc_recover()) == ([], [])


def _refused(call):
    try:
        call()
    except QueueError as error:
        return error
    raise AssertionError("it was not refused")


class TestFailures:
    def test_a_rollback_that_is_owed_is_no_success_until_it_is_done(self, file_store):
        space = file_store.space()
        make_queue(space, "Q")
        space.tpc_begin(XID)
        space.enqueue("Q", "x")

        def fail(_fact):
            raise OSError(errno.EIO, "the disk fails")

        file_store.device.probe.at(Point.BEFORE_SYNC, fail)
        with pytest.raises(OutcomeUnknownError):
            space.tpc_prepare()
        for _ in range(2):
            with pytest.raises(QueueError):
                space.tpc_rollback()
        with file_store.another().open_space("SPACE") as other:
            assert other.tpc_recover() == [XID]
            other.tpc_rollback(XID)
            assert (other.tpc_recover(), other.transactions()) == ([], [])

    def test_what_is_owed_is_done_at_the_closing(self, file_store):
        space, probe = file_store.space(), file_store.device.probe
        make_queue(space, "Q")
        space.tpc_begin(XID)
        space.enqueue("Q", "x")

        def interrupt(_fact):
            probe.leave(Point.AFTER_COMMIT)
            probe.at(Point.BEFORE_WRITE, refuse)
            raise KeyboardInterrupt

        def refuse(_fact):
            probe.leave(Point.BEFORE_WRITE)
            raise OperatingSystemError("the disk is full")

        probe.at(Point.AFTER_COMMIT, interrupt)
        with pytest.raises(KeyboardInterrupt):
            space.tpc_prepare()
        assert space.tpc_recover() == [XID]
        file_store.device.close()
        with file_store.another().open_space("SPACE") as other:
            assert (other.tpc_recover(), other.transactions(), drain(other)) == ([], [], [])


class TestInterrupts:
    @pytest.mark.matrix(whole="file")
    @pytest.mark.parametrize("module", [two_phase, transacting, preparing, in_doubt])
    def test_one_at_any_line_leaves_all_of_a_branch_or_nothing_and_its_rollback_ends_it(self, space, module):
        make_queue(space, "OUT")
        space.enqueue("Q", "x")
        numbers = itertools.count()

        def work():
            space.tpc_begin((7, f"{next(numbers)}", ""))
            space.enqueue("OUT", space.dequeue("Q").text)
            space.tpc_prepare()
            space.tpc_commit()

        for _ in at_every_line(module, work):
            # Where it had not begun, or was over, there is none.
            with contextlib.suppress(ProtocolError, UnknownXidError):
                space.tpc_rollback()
            attachment_of(space).do_housekeeping(now=True)
            gc.collect()
            attachment_of(space).do_housekeeping(now=True)
            assert (space.transactions(), space.tpc_recover()) == ([], [])
            there, brought = list(space.messages("Q")), drain(space, "OUT")
            assert (len(there), brought) in ((1, []), (0, ["x"]))
            if not there:
                space.enqueue("Q", "x")
            else:
                space.change_queue("Q", retries=there[0].retries + 3)
            with space.transaction():
                pass

    def test_a_child_of_a_fork_has_no_part_in_it(self, real_device, start):
        child = start(FORKED, real_device.config)
        child.expect("the transaction belongs to process")
        child.expect("ended")
        with real_device.open_space("SPACE") as space:
            assert drain(space) == ["x"]


FORKED = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    space.tpc_begin((7, "forked", ""))
    space.enqueue("Q", "x")
    space.tpc_prepare()
    child = os.fork()
    if not child:
        try:
            space.tpc_commit()
        except QueueError as error:
            say(str(error)[:34])
        os._exit(0)
    os.waitpid(child, 0)
    space.tpc_commit()
    say("ended")
"""


class TestIdentifiers:
    def test_texts_are_bytes_in_utf_8(self, space):
        assert space.xid(1, "gté", "b") == (1, "gté".encode(), b"b")
        assert space.xid(1, b"g") == (1, b"g", b"")

    def test_a_text_leads_back_to_the_same(self, space):
        for xid in (space.xid(0, b"\0"), space.xid(2**31 - 1, bytes(range(64)), bytes(range(64)))):
            space.tpc_begin(str(xid))
            space.enqueue("Q", "x")
            space.tpc_prepare()
            assert space.tpc_recover() == [xid]
            space.tpc_rollback()

    @pytest.mark.matrix
    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ((-1, b"g", b""), "an integer from 0 to 2147483647, got -1"),
            ((2**31, b"g", b""), "an integer from 0 to 2147483647, got 2147483648"),
            ((True, b"g", b""), "got True"),
            (("1", b"g", b""), "got '1'"),
            ((1, b"", b""), "identifier of an xid has 1 to 64 bytes, got 0"),
            ((1, "é" * 33, b""), "identifier of an xid has 1 to 64 bytes, got 66"),
            ((1, b"g", bytes(65)), "qualifier of an xid has 0 to 64 bytes, got 65"),
            ((1, 5, b""), "is bytes or a text, got 5"),
            ((1, "\ud800", b""), "not a text that UTF-8 can encode"),
            ((1, b"g"), "an xid has three parts"),
            (None, "an xid has three parts"),
            ("1:zz:", "'1:zz:' is not the text of an xid"),
            ("global", "'global' is not the text of an xid"),
            ("1_0:61:", "'1_0:61:' is not the text of an xid"),
            (" 7: 61:", "is not the text of an xid"),
            ("7:6:", "is not the text of an xid"),
            ("7" * 5000, "'7{100}' is not the text of an xid"),
            ((OUR_FORMAT, b"g", b""), "is that of the transactions that qmadmin coordinates"),
        ],
    )
    def test_others_are_refused(self, space, wrong, said):
        with pytest.raises(InvalidArgumentError, match=said):
            space.tpc_begin(wrong)
        with space.transaction():
            space.enqueue("Q", "nothing is open")
