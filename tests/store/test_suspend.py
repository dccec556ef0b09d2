"""A transaction that is suspended, and goes on where it is resumed: in another thread, another handle, by a token."""

import contextlib
import gc
import pickle

import pytest

import qmadmin
from qmcore.errors import (
    AbortedError,
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    NotSuspendedError,
    ProtocolError,
    Resource,
)
from qmcore.message import State
from qmcore.records import Outcome
from tests.fix_branches import TEXT, XID
from tests.fix_store import Work, attachment_of, bodies_held, drain, make_queue, space_definition, truth

GONE = pytest.raises(NotSuspendedError, match="has ended: its timeout passed, its process died or closed the queue")
RESUMED = pytest.raises(NotSuspendedError, match="was resumed already")


@pytest.fixture
def token(space):
    """The token of a suspended transaction that has taken `first` and brings `reply`; `second` is left."""
    make_queue(space, "OUT")
    space.enqueue_many("Q", ["first", "second"])
    with space.transaction() as tx:
        assert space.dequeue("Q").text == "first"
        space.enqueue("OUT", "reply")
        return tx.suspend()


class TestResumed:
    def test_its_commit_makes_all_of_it_take_effect(self, space, token):
        with space.resume(token):
            assert space.dequeue("Q").text == "second"
            space.enqueue("OUT", "more")
        assert (drain(space), drain(space, "OUT"), space.transactions()) == ([], ["reply", "more"], [])

    def test_its_rollback_gives_back_what_it_took_which_is_a_try(self, space, token):
        space.resume(token).rollback()
        first = space.dequeue("Q")
        assert (first.text, first.retries, drain(space), drain(space, "OUT")) == ("first", 1, ["second"], [])

    def test_another_thread_resumes_it(self, space, token):
        def work():
            with space.resume(token) as tx:
                assert tx.is_here
                return space.dequeue("Q").text

        assert Work(work).results() == ["second"]
        assert (drain(space), drain(space, "OUT")) == ([], ["reply"])

    def test_another_handle_resumes_it_and_is_its_owner(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q")
        space.enqueue("Q", "x")
        with space.transaction() as tx:
            space.dequeue("Q")
            token = tx.suspend()
        with shared_store.another().open_space("SPACE", role="second") as other:
            (info,) = other.transactions()
            assert (info.owner.role, info.state) == ("application", Outcome.SUSPENDED)
            with other.resume(token):
                (info,) = space.transactions()
                assert (info.owner.role, info.state, info.suspended) == ("second", Outcome.ACTIVE, None)
        assert (drain(space), space.transactions()) == ([], [])

    def test_it_is_forgotten_as_any_other(self, space, token):
        space.resume(token)
        gc.collect()
        attachment_of(space).do_housekeeping(now=True)
        assert (drain(space), drain(space, "OUT"), space.transactions()) == (["first", "second"], [], [])

    def test_it_may_be_suspended_again_by_another_token(self, space, token):
        tokens = [token]
        for text in "abc":
            with space.resume(tokens[-1]) as tx:
                space.enqueue("OUT", text)
                tokens.append(tx.suspend())
        assert len(set(tokens)) == len(tokens)
        for used in tokens[:-1]:
            with RESUMED:
                space.resume(used)
        space.resume(tokens[-1]).commit()
        assert (drain(space), drain(space, "OUT")) == (["second"], ["reply", "a", "b", "c"])

    def test_messages_keep_their_bodies_places_and_terms(self, store):
        space = store.space(pages=10_000)
        make_queue(space, "OUT", out_of_order="top,msgid")
        large = bytes(9 << 20)
        before = space.enqueue("OUT", "before")
        with space.transaction() as tx:
            space.enqueue("OUT", "last")
            space.enqueue("OUT", large)
            space.enqueue("OUT", "first", top=True)
            space.enqueue("OUT", "beside", before=before)
            msgid = space.enqueue("OUT", "late", delay=60)
            token = tx.suspend()
        with space.resume(token):
            space.enqueue("OUT", "more")
        assert [info.size for info in space.messages("OUT")] == [5, 6, 6, 4, 9 << 20, 4, 4]
        assert [info.state for info in space.messages("OUT") if info.msgid == msgid] == [State.DELAYED]
        truth(space, "OUT")

    def test_what_it_has_locked_is_its_own_and_stays_when_it_commits(self, space):
        space.enqueue_many("Q", ["locked", "other"])
        with space.transaction() as tx:
            locked = space.lock("Q")
            token = tx.suspend()
        assert drain(space) == ["other"]
        with space.resume(token) as tx:
            token = tx.suspend()
        with space.resume(token):
            pass
        assert space.dequeue("Q").text == locked.text
        space.enqueue("Q", "again")
        with space.transaction() as tx:
            space.lock("Q")
            token = tx.suspend()
        with space.resume(token):
            assert space.dequeue("Q").text == "again"
        assert drain(space) == []

    def test_nonpersistent_messages_go_with_it(self, shared_store):
        space = shared_store.space(memory=1_000_000)
        make_queue(space, "Q")
        make_queue(space, "OUT")
        for text in ("request", "another"):
            space.enqueue("Q", text, persistent=False)
        with space.transaction() as tx:
            assert space.dequeue("Q").text == "request"
            space.enqueue("OUT", "first", persistent=False)
            space.enqueue("OUT", "second")
            token = tx.suspend()
        with shared_store.another().open_space("SPACE") as other, other.resume(token):
            other.enqueue("OUT", "third", persistent=False)
        assert (drain(space), drain(space, "OUT")) == (["another"], ["first", "second", "third"])
        truth(space, "OUT")

    def test_a_queue_that_keeps_what_is_consumed_keeps_it(self, space):
        make_queue(space, "KEPT", retention=3600)
        space.enqueue("KEPT", "x")
        with space.transaction() as tx:
            space.dequeue("KEPT")
            token = tx.suspend()
        space.resume(token).commit()
        assert [(each.info.size, each.consumer.split()[0]) for each in space.history("KEPT")] == [(1, "application")]

    def test_groups_stay_together(self, space):
        make_queue(space, "GROUPS", grouping=True)
        with space.transaction():
            space.enqueue_many("GROUPS", ["a", "b"])
        with space.transaction() as tx:
            assert space.dequeue("GROUPS").text == "a"
            token = tx.suspend()
        assert space.dequeue("GROUPS") is None
        with space.resume(token):
            assert space.dequeue("GROUPS").text == "b"
        assert space.usage("GROUPS").messages == 0

    def test_one_that_has_done_nothing_yet_is_resumed_too(self, space):
        with space.transaction() as tx:
            token = tx.suspend()
        (info,) = space.transactions()
        assert (info.state, info.messages) == (Outcome.SUSPENDED, 0)
        with space.resume(token):
            space.enqueue("Q", "x")
        assert (drain(space), space.transactions()) == (["x"], [])


class TestSuspended:
    def test_nobody_has_what_it_has(self, space, token):
        (info,) = space.transactions()
        assert (info.state, info.dequeued, info.spilled, info.lives) == (Outcome.SUSPENDED, 1, 1, True)
        assert info.suspended >= info.since
        assert (drain(space), drain(space, "OUT")) == (["second"], [])
        assert bodies_held(space) == (0, 0, 1)

    def test_calls_of_the_thread_belong_to_no_transaction(self, space):
        with space.transaction() as tx:
            token = tx.suspend()
            space.enqueue("Q", "at once")
            assert Work(lambda: space.dequeue("Q").text).results() == ["at once"]
            with space.transaction():
                space.enqueue("Q", "in another one")
        space.resume(token).rollback()
        assert drain(space) == ["in another one"]

    @pytest.mark.parametrize(
        "call",
        [
            lambda tx: tx.commit(),
            lambda tx: tx.rollback(),
            lambda tx: tx.suspend(),
            lambda tx: tx.give_back([]),
            lambda tx: tx.__enter__() and tx.commit(),
        ],
    )
    def test_its_object_takes_no_more_calls(self, space, call):
        space.enqueue("Q", "x")
        with space.transaction() as tx:
            space.dequeue("Q")
            token = tx.suspend()
        assert (tx.active, repr(tx)) == (False, "<Transaction suspended>")
        with pytest.raises(ProtocolError, match="was suspended, and this object takes no more calls") as refused:
            call(tx)
        assert "resume" in refused.value.hint
        tx.leave_context()
        space.resume(token).commit()
        assert drain(space) == []

    def test_the_end_of_its_block_does_nothing_to_it(self, space):
        space.enqueue("Q", "x")
        with contextlib.suppress(ZeroDivisionError), space.transaction() as tx:
            space.dequeue("Q")
            token = tx.suspend()
            1 / 0  # noqa: B018 - it leaves the block
        del tx
        gc.collect()
        attachment_of(space).do_housekeeping(now=True)
        assert space.dequeue("Q") is None
        space.resume(token).commit()
        assert drain(space) == []

    def test_the_end_of_its_block_leaves_one_alone_that_was_resumed_within(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as tx:
            space.dequeue("Q")
            resumed = space.resume(tx.suspend())
        assert (resumed.active, space.dequeue("Q")) == (True, None)
        resumed.rollback()
        assert drain(space) == ["x"]

    def test_it_counts_as_a_transaction(self, store):
        space = store.space(transactions=1)
        make_queue(space, "Q")
        space.enqueue_many("Q", ["x", "y"])
        with space.transaction() as tx:
            space.dequeue("Q")
            token = tx.suspend()
        with space.transaction() as tx:
            with pytest.raises(NoSpaceError) as refused:
                space.dequeue("Q")
            assert refused.value.resource is Resource.TRANSACTIONS
            with pytest.raises(NoSpaceError):
                tx.suspend()
            space.enqueue("Q", "z")
        space.resume(token).commit()
        assert drain(space) == ["y", "z"]

    def test_its_queue_is_not_destroyed(self, space, token):
        with pytest.raises(InUseError):
            space.destroy_queue("Q", purge=True)
        with pytest.raises(InUseError):
            space.destroy_queue("OUT", purge=True)
        space.resume(token).commit()

    def test_it_is_rolled_back_when_its_process_closes_the_queue_space(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q", retries=3)
        space.enqueue("Q", "x")
        with shared_store.another() as other, other.open_space("SPACE") as its, its.transaction() as tx:
            its.dequeue("Q")
            token = tx.suspend()
            assert space.dequeue("Q") is None
        with GONE:
            space.resume(token)
        assert drain(space) == ["x"]

    def test_so_is_one_that_was_resumed_when_the_other_process_does(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q", retries=3)
        space.enqueue("Q", "x")
        with space.transaction() as tx:
            space.dequeue("Q")
            token = tx.suspend()
        with shared_store.another() as other, other.open_space("SPACE") as its:
            kept = its.resume(token)
            attachment_of(space).do_housekeeping(now=True)
            assert space.dequeue("Q") is None
        del kept
        with GONE:
            space.resume(token)
        assert drain(space) == ["x"]

    def test_an_administrator_aborts_it(self, space, token):
        (info,) = space.transactions()
        with pytest.raises(ProtocolError, match="not prepared"):
            space.commit_transaction(info.id)
        space.abort_transaction(info.id)
        with GONE:
            space.resume(token)
        assert sorted(drain(space)) == ["first", "second"]


class TestItsTimeout:
    def test_it_goes_on(self, space, store):
        space.enqueue("Q", "x")
        with space.transaction(timeout=30) as tx:
            space.dequeue("Q")
            token = tx.suspend()
        store.clock.advance(29)
        with space.resume(token) as tx:
            assert tx.remaining() == pytest.approx(1)
            token = tx.suspend()
        store.clock.advance(2)
        with GONE as gone:
            space.resume(token)
        assert gone.value.resumed is False
        assert drain(space) == ["x"]

    def test_one_that_was_resumed_ends_by_itself(self, space, store):
        space.enqueue("Q", "x")
        with space.transaction(timeout=30) as tx:
            space.dequeue("Q")
            token = tx.suspend()
        with pytest.raises(AbortedError, match="its timeout of 30 seconds is over"), space.resume(token):
            store.clock.advance(31)
            space.dequeue("Q")
        assert drain(space) == ["x"]

    def test_others_end_it_while_it_is_suspended(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q", retries=3)
        space.enqueue("Q", "x")
        with space.transaction(timeout=30) as tx:
            space.dequeue("Q")
            token = tx.suspend()
        shared_store.clock.advance(31)
        with shared_store.another().open_space("SPACE") as other:
            assert drain(other) == ["x"]
        with GONE:
            space.resume(token)

    def test_one_whose_time_is_over_is_not_suspended(self, space, store):
        space.enqueue("Q", "x")
        with contextlib.suppress(AbortedError), space.transaction(timeout=30) as tx:
            space.dequeue("Q")
            store.clock.advance(31)
            with pytest.raises(AbortedError, match="its timeout of 30 seconds is over"):
                tx.suspend()
        assert (drain(space), space.transactions()) == (["x"], [])


class TestTokens:
    def test_it_is_a_text_that_can_be_sent(self, space, token):
        assert (type(token), pickle.loads(pickle.dumps(token))) == (str, token)
        assert (token.isascii(), len(token)) == (True, 69)
        space.resume(token).commit()

    @pytest.mark.parametrize(
        "wrong",
        [
            None,
            7,
            b"tx1-",
            "",
            "tx1-",
            "tx1-" + "0" * 31,
            "tx2-" + "0" * 32,
            "x" * 10_000,
            ("tx1-",),
            "tx1-" + "g" * 32,
        ],
    )
    def test_anything_else_is_refused(self, space, token, wrong):
        with pytest.raises(InvalidArgumentError, match="is not the token of a suspended transaction") as refused:
            space.resume(wrong)
        assert len(str(refused.value)) < 200
        for mangled in (token[:-1], token + "0", token.upper(), token + "\n", f" {token}"):
            with pytest.raises(InvalidArgumentError):
                space.resume(mangled)
        space.resume(token).commit()
        assert drain(space) == ["second"]

    def test_one_with_another_secret_is_no_key(self, space, token):
        secret = token.split("-")[1]
        with pytest.raises(NotSuspendedError, match="was resumed already"):
            space.resume(token.replace(secret, secret[::-1]))
        space.resume(token).commit()

    def test_one_of_no_transaction_is_refused(self, space, token):
        with GONE:
            space.resume(token[:-16] + "0" * 16)
        space.resume(token).commit()

    def test_one_of_another_queue_space_is_refused(self, store, space, token):
        other = store.space("OTHER", ipc_key=40_001)
        with pytest.raises(InvalidArgumentError, match="suspended in another queue space than 'OTHER'"):
            other.resume(token)
        incarnation = attachment_of(other).opened.space.incarnation
        with pytest.raises(InvalidArgumentError, match="over 2 queue spaces, of which 'SPACE' is one"):
            space.resume(f"{token}-{incarnation}{7:016x}")
        space.resume(token).commit()
        assert (drain(space), drain(space, "OUT")) == (["second"], ["reply"])

    def test_one_of_a_queue_space_that_had_the_name_before_is_refused(self, store, space, token):
        space.close()
        store.device.destroy_space("SPACE", force=True)
        again = store.space()
        with pytest.raises(InvalidArgumentError, match="in another queue space"):
            again.resume(token)

    def test_it_is_used_once(self, space, token):
        resumed = space.resume(token)
        with RESUMED as refused:
            space.resume(token)
        assert refused.value.resumed is True
        resumed.commit()
        with GONE as refused:
            space.resume(token)
        assert refused.value.resumed is False
        assert (drain(space), drain(space, "OUT")) == (["second"], ["reply"])

    def test_of_several_that_have_it_one_resumes(self, shared_store):
        space = shared_store.space()
        make_queue(space, "Q", retries=3)
        make_queue(space, "OUT")
        others = [shared_store.another().open_space("SPACE") for _ in range(3)]

        def resumer(each, token):
            def work():
                with each.resume(token):
                    each.enqueue("OUT", "x")

            return work

        for number in range(5):
            space.enqueue("Q", str(number))
            with space.transaction() as tx:
                space.dequeue("Q")
                token = tx.suspend()
            results = Work(*(resumer(each, token) for each in (space, *others))).results()
            lost = [result for result in results if result is not None]
            assert [type(each) for each in lost] == [NotSuspendedError] * 3
        assert (drain(space), drain(space, "OUT"), space.transactions()) == ([], ["x"] * 5, [])


class TestWhatIsRefused:
    def test_nothing_is_resumed_inside_a_transaction(self, space, token):
        with space.transaction():
            space.enqueue("OUT", "own")
            with pytest.raises(ProtocolError, match="a transaction is open already in this thread"):
                space.resume(token)
        space.resume(token).commit()
        assert (drain(space), sorted(drain(space, "OUT"))) == (["second"], ["own", "reply"])

    def test_one_of_another_thread_is_not_suspended(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as tx:
            space.dequeue("Q")
            (refused,) = Work(tx.suspend).results()
            assert isinstance(refused, ProtocolError)
            assert "belongs to another thread" in str(refused)
        assert drain(space) == []

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_one_that_has_ended_is_not_suspended(self, space, end):
        with space.transaction() as tx:
            space.enqueue("Q", "x")
            getattr(tx, end)()
            with pytest.raises(ProtocolError, match=r"the transaction was .* already"):
                tx.suspend()

    def test_one_that_others_have_ended_is_not_suspended(self, space):
        space.enqueue("Q", "x")
        with contextlib.suppress(AbortedError), space.transaction() as tx:
            space.dequeue("Q")
            (info,) = space.transactions()
            space.abort_transaction(info.id)
            with pytest.raises(AbortedError, match="was rolled back by others"):
                tx.suspend()
        assert (drain(space), space.transactions()) == (["x"], [])

    def test_where_there_is_no_room_any_more_it_goes_on_as_it_was(self, store):
        space = store.space(messages=3)
        make_queue(space, "Q")
        make_queue(space, "OTHER")
        with space.transaction() as tx:
            space.enqueue_many("Q", ["a", "b"])
            space.enqueue_many("OTHER", ["c", "d"], transactional=False)
            with pytest.raises(NoSpaceError) as refused:
                tx.suspend()
            assert refused.value.resource is Resource.MESSAGES
            assert (tx.active, space.transactions()) == (True, [])
            assert drain(space, "OTHER", transactional=False) == ["c", "d"]
            token = tx.suspend()
        space.resume(token).commit()
        assert drain(space) == ["a", "b"]

    def test_a_closed_queue_space_resumes_nothing(self, space, token):
        space.close()
        with pytest.raises(qmadmin.NotOpenError):
            space.resume(token)


class TestBranches:
    def test_one_goes_on_with_its_identifier(self, space):
        space.enqueue("Q", "x")
        space.tpc_begin(XID)
        space.dequeue("Q")
        token = space.tpc_suspend()
        (info,) = space.transactions()
        assert (info.state, str(info.xid), info.name) == (Outcome.SUSPENDED, TEXT, TEXT)
        assert space.tpc_recover() == []
        with pytest.raises(InUseError, match="has a transaction with the xid"):
            space.tpc_begin(XID)
        assert Work(lambda: (space.tpc_resume(token), space.enqueue("Q", "y"), space.tpc_prepare())[0]).results() == [
            XID
        ]
        space.tpc_commit(XID)
        assert drain(space) == ["y"]

    @pytest.mark.parametrize("end", ["tpc_commit", "tpc_rollback"])
    def test_it_ends_as_any_other(self, space, end):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        space.tpc_resume(space.tpc_suspend())
        getattr(space, end)()
        assert (drain(space), space.transactions()) == (["x"] if end == "tpc_commit" else [], [])

    def test_a_prepared_one_is_not_suspended(self, space):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        space.tpc_prepare()
        with pytest.raises(ProtocolError, match=f"transaction {TEXT} is prepared, and takes no more calls"):
            space.tpc_suspend()
        space.tpc_commit()
        assert drain(space) == ["x"]

    def test_what_is_no_branch_is_not_suspended_as_one(self, space):
        with pytest.raises(ProtocolError, match="no branch is open in this thread"):
            space.tpc_suspend()
        with space.transaction(), pytest.raises(ProtocolError, match="was not begun by tpc_begin"):
            space.tpc_suspend()

    def test_each_is_resumed_by_the_call_of_its_kind(self, space):
        space.tpc_begin(XID)
        space.enqueue("Q", "x")
        branch = space.tpc_suspend()
        with pytest.raises(ProtocolError, match=f"is branch {TEXT} of a coordinator") as refused:
            space.resume(branch)
        assert "tpc_resume" in refused.value.hint
        with space.transaction() as tx:
            space.enqueue("Q", "y")
            plain = tx.suspend()
        with pytest.raises(ProtocolError, match="is no branch of a coordinator"):
            space.tpc_resume(plain)
        space.resume(plain).commit()
        space.tpc_resume(branch)
        space.tpc_commit()
        assert drain(space) == ["y", "x"]


def test_a_device_in_memory_has_its_tokens_for_itself():
    with qmadmin.create_device(":memory:", 10_000) as one, qmadmin.create_device(":memory:", 10_000) as two:
        for device in (one, two):
            device.create_space(space_definition())
        with one.open_space("SPACE") as space, two.open_space("SPACE") as other:
            with space.transaction() as tx:
                token = tx.suspend()
            with pytest.raises(InvalidArgumentError, match="in another queue space"):
                other.resume(token)
            space.resume(token).commit()
