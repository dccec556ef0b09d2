"""Where messages go that nobody can work on: the error queue of the message, of the queue, or of the queue space."""

import dataclasses

import pytest

from qmcore.message import EnqueueControl, Reason
from qmcore.queue import Delivery
from tests.fix_store import bodies_held, drain, make_queue


@pytest.fixture
def space(store, monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = store.space(error_queue="OF-SPACE", memory=400_000, pages=10_000, messages=5_000)
    make_queue(opened, "Q", error_queue="OF-QUEUE")
    make_queue(opened, "PLAIN")
    for name in ("OF-SPACE", "OF-QUEUE", "OF-MESSAGE"):
        make_queue(opened, name)
    return opened


def fail(space, name, reason=""):
    """Dequeue the next message in a transaction and roll it back."""
    with space.transaction() as transaction:
        message = space.dequeue(name)
        transaction.rollback(reason)
    return message


def everywhere(space):
    """Return the bodies by queue, of the queues that have any; all stay there."""
    found = {queue.name: [message.text for message in space.browse(queue.name)] for queue in space.queues()}
    return {name: texts for name, texts in found.items() if texts}


class TestPreference:
    @pytest.mark.parametrize("persistent", [True, False])
    def test_that_of_the_message_before_that_of_the_queue_before_that_of_the_space(self, space, persistent):
        space.enqueue("Q", "a", error_queue="OF-MESSAGE", persistent=persistent)
        space.enqueue("Q", "b", persistent=persistent)
        space.enqueue("PLAIN", "c", persistent=persistent)
        for name in ("Q", "Q", "PLAIN"):
            fail(space, name)
        assert everywhere(space) == {"OF-MESSAGE": ["a"], "OF-QUEUE": ["b"], "OF-SPACE": ["c"]}

    @pytest.mark.parametrize(
        ("absent", "named", "said"),
        [
            ([], None, "went to 'OF-QUEUE'"),
            (["OF-QUEUE"], "OF-MESSAGE", "went to 'OF-MESSAGE'"),
            ([], "NONE", "went to 'OF-QUEUE'; error queue 'NONE' does not exist"),
            (["OF-QUEUE"], "NONE", "went to 'OF-SPACE'; error queues 'NONE' and 'OF-QUEUE' do not exist"),
            (["OF-QUEUE", "OF-SPACE"], None, "discarded: error queues 'OF-QUEUE' and 'OF-SPACE' do not exist"),
        ],
    )
    def test_the_log_says_which_was_passed_over(self, space, caplog, absent, named, said):
        for name in absent:
            space.destroy_queue(name)
        msgid = space.enqueue("Q", "a", error_queue=named)
        fail(space, "Q")
        (record,) = caplog.records
        assert record.message.startswith(
            f"message {msgid} of queue 'Q' in queue space 'SPACE' is out of retries (0) and "
        )
        assert record.message.endswith(said)

    @pytest.mark.parametrize(
        ("absent", "said"),
        [
            (["OF-QUEUE"], "goes to 'OF-SPACE': error queue 'OF-QUEUE' does not exist"),
            (["OF-QUEUE", "OF-SPACE"], "is removed: error queues 'OF-QUEUE' and 'OF-SPACE' do not exist"),
        ],
    )
    def test_so_it_does_when_a_message_expires(self, space, clock, caplog, absent, said):
        space.change_queue(dataclasses.replace(space.queue("Q").definition, keep_expired=True))
        for name in absent:
            space.destroy_queue(name)
        msgid = space.enqueue("Q", "a", expires_in=1)
        clock.advance(1)
        assert space.dequeue("Q") is None
        (record,) = caplog.records
        assert record.message == f"message {msgid} of queue 'Q' in queue space 'SPACE' has expired and {said}"

    def test_one_that_does_not_exist_is_passed_over(self, space):
        space.destroy_queue("OF-MESSAGE")
        space.enqueue("Q", "a", error_queue="OF-MESSAGE")
        fail(space, "Q")
        space.destroy_queue("OF-QUEUE", purge=True)
        space.enqueue("Q", "b", error_queue="OF-MESSAGE")
        fail(space, "Q")
        assert everywhere(space) == {"OF-SPACE": ["b"]}
        space.destroy_queue("OF-SPACE", purge=True)
        space.enqueue("Q", "c", error_queue="OF-MESSAGE")
        fail(space, "Q")
        assert everywhere(space) == {}
        assert (space.usage("Q").moved, space.usage("Q").discarded) == (2, 1)

    def test_a_reason_is_kept_whatever_characters_it_has(self, space):
        space.enqueue("PLAIN", "a")
        fail(space, "PLAIN", "no\0good \ud800")
        assert space.dequeue("OF-SPACE").origin.error == "no\\x00good \\ud800"

    def test_what_a_transaction_brings_names_its_own_too(self, space):
        with space.transaction():
            space.enqueue("Q", "a", error_queue="OF-MESSAGE")
        fail(space, "Q")
        assert everywhere(space) == {"OF-MESSAGE": ["a"]}

    def test_a_queue_that_is_the_error_queue_of_a_message_only_has_tries_and_errors_of_its_own(self, space):
        make_queue(space, "SECOND", retries=1)
        msgid = space.enqueue("Q", "a", error_queue="SECOND")
        fail(space, "Q", "first")
        (moved,) = space.browse("SECOND")
        assert (moved.error_queue, moved.origin.queue, moved.origin.msgid) == ("SECOND", "Q", msgid)
        for reason in ("second", "third"):
            fail(space, "SECOND", reason)
        (again,) = space.browse("OF-SPACE")
        assert (again.origin.queue, again.origin.msgid, again.origin.error) == ("SECOND", moved.msgid, "third")

    def test_one_that_names_its_own_queue_stays_there(self, space):
        space.enqueue("PLAIN", "a", error_queue="PLAIN")
        for tries in range(3):
            assert fail(space, "PLAIN").retries == tries
        assert everywhere(space) == {"PLAIN": ["a"]}

    def test_error_queues_in_a_circle_lose_nothing_and_go_nowhere(self, space):
        make_queue(space, "ONE", error_queue="TWO", keep_expired=True)
        make_queue(space, "TWO", error_queue="ONE", keep_expired=True)
        make_queue(space, "SELF", error_queue="SELF")
        for name in ("ONE", "TWO", "SELF"):
            space.enqueue(name, name)
            for _ in range(3):
                assert fail(space, name).text == name
        assert everywhere(space) == {"ONE": ["ONE"], "TWO": ["TWO"], "SELF": ["SELF"]}

    def test_messages_that_name_each_other_s_queues_move_once(self, space):
        make_queue(space, "LEFT")
        make_queue(space, "RIGHT")
        space.enqueue("LEFT", "a", error_queue="RIGHT")
        space.enqueue("RIGHT", "b", error_queue="LEFT")
        fail(space, "LEFT")
        with space.transaction() as transaction:
            assert space.dequeue_many("RIGHT", 9)
            transaction.rollback()
        assert everywhere(space) == {"LEFT": ["b"], "OF-SPACE": ["a"]}

    def test_the_error_queue_of_a_queue_that_is_another_s_error_queue_is_not_asked(self, space):
        make_queue(space, "MIDDLE", error_queue="OF-SPACE")
        make_queue(space, "FIRST", error_queue="MIDDLE")
        space.enqueue("FIRST", "a")
        fail(space, "FIRST")
        for _ in range(3):
            fail(space, "MIDDLE")
        assert everywhere(space) == {"MIDDLE": ["a"]}


class TestExpired:
    @pytest.fixture
    def keeping(self, space):
        make_queue(space, "KEEP", keep_expired=True, error_queue="OF-QUEUE")
        return space

    @pytest.mark.parametrize("persistent", [True, False])
    @pytest.mark.parametrize("how", [{}, {"delay": 5}, {"delay": 50}])
    def test_where_the_queue_says_so_they_go_there_from_wherever_they_stand(self, keeping, clock, persistent, how):
        msgid = keeping.enqueue("KEEP", "a", expires_in=10, persistent=persistent, priority=7, **how)
        clock.advance(10)
        assert keeping.dequeue("KEEP") is None
        message = keeping.dequeue("OF-QUEUE")
        assert (message.text, message.priority, message.expires_at, message.available_at) == ("a", 7, None, None)
        origin = message.origin
        assert (origin.queue, origin.msgid, origin.reason) == ("KEEP", msgid, Reason.EXPIRED)
        assert (origin.moved_us, origin.error) == (clock.now(), "")
        assert message.delivery is (Delivery.PERSIST if persistent else Delivery.NONPERSIST)
        usage = keeping.usage("KEEP")
        assert (usage.expired, usage.moved, usage.messages, usage.pages, usage.memory_pages) == (0, 1, 0, 0, 0)

    def test_that_of_the_message_is_preferred_here_too(self, keeping, clock):
        keeping.enqueue("KEEP", "a", expires_in=10, error_queue="OF-MESSAGE")
        clock.advance(10)
        keeping.dequeue("KEEP")
        assert everywhere(keeping) == {"OF-MESSAGE": ["a"]}

    def test_one_that_expires_while_it_is_held_goes_there_at_the_rollback(self, keeping, clock):
        keeping.enqueue("KEEP", "a", expires_in=10)
        with keeping.transaction() as transaction:
            keeping.dequeue("KEEP")
            clock.advance(20)
            transaction.rollback("not its fault")
        (message,) = keeping.browse("OF-QUEUE")
        assert (message.origin.reason, message.retries) == (Reason.EXPIRED, 0)

    def test_one_that_expires_while_it_is_held_is_consumed_at_the_commit(self, keeping, clock):
        keeping.enqueue("KEEP", "a", expires_in=10)
        with keeping.transaction():
            keeping.dequeue("KEEP")
            clock.advance(20)
        assert everywhere(keeping) == {}
        assert keeping.usage("KEEP").dequeued == 1

    def test_without_an_error_queue_they_are_removed_and_counted(self, keeping, clock):
        for name in ("OF-QUEUE", "OF-SPACE"):
            keeping.destroy_queue(name)
        keeping.enqueue("KEEP", "a", expires_in=10)
        clock.advance(10)
        usage = keeping.usage("KEEP")
        assert (usage.expired, usage.moved, usage.messages) == (1, 0, 0)

    def test_in_an_error_queue_they_are_removed(self, space, clock):
        make_queue(space, "E", keep_expired=True)
        make_queue(space, "X", error_queue="E")
        space.enqueue("E", "a", expires_in=10)
        clock.advance(10)
        assert space.usage("E").expired == 1
        assert everywhere(space) == {}

    def test_more_than_a_step_go_there_in_order_of_their_expiry(self, keeping, clock, store):
        ids = keeping.enqueue_many("KEEP", ["x"] * 2_200, EnqueueControl(lifetime=10_000_000))
        clock.advance(10)
        assert bodies_held(keeping, "KEEP") == (0, 0, 0)
        origins = [message.origin.msgid for message in keeping.dequeue_many("OF-QUEUE", 3_000)]
        assert origins == ids
        assert store.device.space_usage("SPACE").messages == 0


class TestBooks:
    @pytest.mark.parametrize("persistent", [True, False])
    def test_each_way_out_is_counted_once(self, space, clock, store, persistent):
        make_queue(space, "KEEP", keep_expired=True)
        for name in ("Q", "KEEP"):
            space.enqueue(name, "x" * 5_000, persistent=persistent)
            space.enqueue(name, "y", expires_in=10, persistent=persistent)
        fail(space, "Q")
        fail(space, "KEEP")
        clock.advance(10)
        out = {name: space.usage(name) for name in ("Q", "KEEP", "OF-QUEUE", "OF-SPACE")}
        assert [(use.moved, use.expired, use.discarded, use.dequeued) for use in out.values()] == [
            (1, 1, 0, 0),
            (2, 0, 0, 0),
            (0, 0, 0, 0),
            (0, 0, 0, 0),
        ]
        assert [(use.messages, use.enqueued, use.size) for use in out.values()] == [
            (0, 2, 0),
            (0, 2, 0),
            (1, 1, 5_000),
            (2, 2, 5_001),
        ]
        assert (drain(space, "OF-QUEUE"), drain(space, "OF-SPACE")) == (["x" * 5_000], ["x" * 5_000, "y"])
        usage = store.device.space_usage("SPACE")
        assert (usage.messages, usage.pages, usage.memory) == (0, 0, 0)

    def test_what_is_moved_to_a_queue_with_retention_is_kept_there_when_it_is_consumed(self, space):
        make_queue(space, "KEPT", retention=60)
        msgid = space.enqueue("PLAIN", "a", error_queue="KEPT")
        fail(space, "PLAIN", "broken")
        drain(space, "KEPT")
        (consumed,) = space.history("KEPT", condition="origin_queue = 'PLAIN'")
        assert (consumed.info.origin.msgid, consumed.info.origin.error) == (msgid, "broken")
