"""Queues for several consumers: each who subscribes takes each message for itself, and the last one takes it away."""

from functools import partial

import pytest

from qmcore.errors import (
    BadQueueError,
    InUseError,
    InvalidArgumentError,
    NoRecipientsError,
    NoSpaceError,
    Resource,
)
from qmcore.findings import Severity
from qmcore.message import State
from qmcore.queue import FOREVER, Delivery
from tests.fix_store import Work, count_rows, drain, make_queue

MIB = 1024 * 1024


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS", pages=6_000)
    make_queue(opened, "Q", multiple_consumers=True, retries=1, out_of_order="top,msgid")
    make_queue(opened, "PLAIN")
    make_queue(opened, "ERRORS")
    return opened


@pytest.fixture
def both(space):
    space.subscribe("Q", "one")
    space.subscribe("Q", "two")
    return space


def rows(space):
    """Return how many rows there are of messages, bodies kept apart, places and shares."""
    return count_rows(space, "message", "chunk", "ready", "share")


def sound(store, space):
    """Prove that what is stored and what is counted agree."""
    found = store.device.check(space.name)
    assert [finding.sentence for finding in found if finding.severity is Severity.ERROR] == []


def counts(space, *names):
    return [space.usage(name).messages for name in ("Q", *(f"Q:{name}" for name in names))]


class TestDelivery:
    def test_each_consumer_takes_each_message_and_the_last_takes_it_away(self, store, both):
        sent = [both.enqueue("Q", text) for text in "ab"]
        assert counts(both, "one", "two") == [2, 2, 2]
        assert rows(both) == (2, 0, 4, 2)
        first = both.dequeue("Q", consumer="one")
        assert (first.msgid, first.text, first.queue) == (sent[0], "a", "Q:one")
        assert counts(both, "one", "two") == [2, 1, 2]
        assert both.dequeue("Q:two").msgid == sent[0]
        assert counts(both, "one", "two") == [1, 1, 1]
        assert rows(both) == (1, 0, 2, 1)
        assert drain(both, "Q", consumer="two") == drain(both, "Q", consumer="one") == ["b"]
        assert rows(both) == (0, 0, 0, 0)
        assert both.usage("Q").dequeued == both.usage("Q:one").dequeued == 2
        sound(store, both)

    def test_what_was_stored_before_a_consumer_subscribes_is_not_for_it(self, store, space):
        space.subscribe("Q", "one")
        space.enqueue("Q", "before")
        space.subscribe("Q", "two")
        space.enqueue("Q", "after")
        assert drain(space, "Q", consumer="two") == ["after"]
        assert drain(space, "Q", consumer="one") == ["before", "after"]
        sound(store, space)

    def test_a_queue_that_nobody_subscribes_to_takes_nothing(self, store, space):
        with pytest.raises(NoRecipientsError, match="queue 'Q' has no subscription") as refused:
            space.enqueue("Q", "x")
        assert "qsubscribe" in refused.value.hint
        with pytest.raises(NoRecipientsError), space.transaction():
            space.enqueue("PLAIN", "y")
            space.enqueue("Q", "x")
        assert rows(space) == (0, 0, 0, 0)
        space.subscribe("Q", "one")
        space.enqueue("Q", "x")
        assert drain(space, "Q:one") == ["x"]

    def test_who_unsubscribes_before_a_commit_leaves_it_without_anybody(self, space):
        space.subscribe("Q", "one")
        transaction = space.transaction()
        with pytest.raises(NoRecipientsError), transaction:
            space.enqueue("Q", "x")
            Work(lambda: space.unsubscribe("Q", "one")).results()
        assert count_rows(space, "message") == (0,)

    def test_processes_that_share_a_name_get_different_messages(self, both):
        for text in "abc":
            both.enqueue("Q", text)
        with both.transaction():
            assert both.dequeue("Q:one").text == "a"
            (other,) = Work(lambda: both.dequeue("Q:one").text).results()
            assert other == "b"
        assert drain(both, "Q:one") == ["c"]
        assert drain(both, "Q:two") == ["a", "b", "c"]

    def test_many_come_and_go_at_once(self, store, both):
        both.enqueue_many("Q", [f"{number}".encode() for number in range(70)])
        assert counts(both, "one", "two") == [70, 70, 70]
        assert len(both.dequeue_many("Q", 70, consumer="one")) == 70
        assert counts(both, "one", "two") == [70, 0, 70]
        assert [message.text for message in both.dequeue_many("Q:two", 100)] == [f"{number}" for number in range(70)]
        assert rows(both) == (0, 0, 0, 0)
        sound(store, both)

    def test_a_large_body_is_kept_until_the_last_has_read_it(self, store, both):
        large = b"x" * (2 * MIB)
        for _ in range(2):
            both.enqueue("Q", large)
        assert rows(both) == (2, 4, 4, 2)
        assert both.dequeue("Q:one").body == large
        assert both.dequeue("Q:two").body == large
        assert rows(both) == (1, 2, 2, 1)
        with both.transaction():
            assert both.dequeue("Q:one").body == large
        with both.transaction():
            assert both.dequeue("Q:two").body == large
        assert rows(both) == (0, 0, 0, 0)
        sound(store, both)

    def test_delays_orders_and_places_hold_for_each(self, both, clock):
        both.enqueue("Q", "late", delay=5)
        second = both.enqueue("Q", "second")
        both.enqueue("Q", "first", top=True)
        both.enqueue("Q", "between", before=second)
        for name in ("Q:one", "Q:two"):
            assert (both.usage(name).ready, both.usage(name).delayed) == (3, 1)
        assert drain(both, "Q:one") == ["first", "between", "second"]
        clock.advance(6)
        assert drain(both, "Q:one") == ["late"]
        assert drain(both, "Q:two") == ["first", "late", "between", "second"]

    @pytest.mark.parametrize("how", ["msgid", "corrid", "corrid_like", "condition"])
    def test_a_message_is_selected_among_those_of_the_consumer(self, both, how):
        both.enqueue("Q", "other", corrid="a")
        msgid = both.enqueue("Q", "wanted", corrid="wanted", priority=70)
        selection = {"msgid": msgid, "corrid": "wanted", "corrid_like": "want%", "condition": "priority = 70"}[how]
        assert both.peek("Q", consumer="one", **{how: selection}).text == "wanted"
        assert both.dequeue("Q", consumer="one", **{how: selection}).text == "wanted"
        assert both.dequeue("Q", consumer="one", **{how: selection}) is None
        assert both.dequeue("Q", consumer="two", **{how: selection}).text == "wanted"

    def test_listing_and_browsing_tell_what_stands_for_a_consumer(self, both):
        both.enqueue("Q", "a")
        both.enqueue("Q", "b")
        both.dequeue("Q:one")
        assert [info.size for info in both.messages("Q:one")] == [1]
        assert [message.text for message in both.browse("Q", consumer="two")] == ["a", "b"]
        assert both.listen(["PLAIN", "Q:one"]) == "Q:one"
        assert both.purge("Q:two") == 2
        assert counts(both, "one", "two") == [1, 1, 0]


class TestTransactions:
    def test_a_rollback_gives_back_to_that_consumer_alone(self, store, both):
        both.enqueue("Q", "x")
        with pytest.raises(RuntimeError), both.transaction():
            both.dequeue("Q:one")
            raise RuntimeError
        assert both.dequeue("Q:two").retries == 0
        assert both.dequeue("Q:one").retries == 1
        assert rows(both) == (0, 0, 0, 0)
        sound(store, both)

    def test_a_commit_brings_to_all_and_takes_for_one(self, store, both):
        both.enqueue("Q", "request")
        with both.transaction():
            both.dequeue("Q:one")
            both.enqueue("Q", "a")
            both.enqueue("PLAIN", "reply")
            both.enqueue("Q", "b")
            assert both.dequeue("Q:two").text == "request"
        assert drain(both, "Q:one") == drain(both, "Q:two") == ["a", "b"]
        assert drain(both, "PLAIN") == ["reply"]
        assert rows(both) == (0, 0, 0, 0)
        sound(store, both)

    def test_what_is_spilled_comes_to_all(self, store, both):
        with both.transaction():
            for _ in range(10):
                both.enqueue("Q", b"x" * MIB)
        assert counts(both, "one", "two") == [10, 10, 10]
        assert rows(both) == (10, 0, 20, 10)
        assert len(both.dequeue_many("Q:one", 10)) == len(both.dequeue_many("Q:two", 10)) == 10
        sound(store, both)

    def test_a_lock_is_one_of_the_consumer(self, both):
        both.enqueue("Q", "x")
        with both.transaction():
            assert both.lock("Q", consumer="one").text == "x"
            assert Work(lambda: both.dequeue("Q:one")).results() == [None]
            assert Work(lambda: both.dequeue("Q:two").text).results() == ["x"]
        assert both.dequeue("Q:one").retries == 0

    def test_a_prepared_branch_keeps_what_it_took_and_brings(self, store, both):
        both.enqueue("Q", "x")
        xid = both.xid(7, b"global", b"branch")
        both.tpc_begin(xid)
        both.dequeue("Q:one")
        both.enqueue("Q", "y")
        both.tpc_prepare()
        assert Work(lambda: drain(both, "Q:one")).results() == [[]]
        both.tpc_commit()
        assert drain(both, "Q:one") == ["y"]
        assert drain(both, "Q:two") == ["x", "y"]
        sound(store, both)

    def test_room_is_given_back_by_the_last_consumer(self, store):
        space = store.space(messages=2)
        make_queue(space, "Q", multiple_consumers=True)
        make_queue(space, "PLAIN")
        for name in ("one", "two"):
            space.subscribe("Q", name)
        space.enqueue("Q", "x")
        space.enqueue("PLAIN", "y")
        with pytest.raises(NoSpaceError), space.transaction():
            space.dequeue("Q:one")
            space.enqueue("PLAIN", "reply")
        space.dequeue("Q:one")
        with space.transaction():
            space.dequeue("Q:two")
            space.enqueue("PLAIN", "reply")
        assert drain(space, "PLAIN") == ["y", "reply"]


class TestFailing:
    def fail(self, space, name):
        with pytest.raises(RuntimeError), space.transaction():
            assert space.dequeue(name) is not None
            raise RuntimeError

    def test_a_consumer_out_of_tries_loses_its_own_place(self, store, both):
        both.enqueue("Q", "x" * (MIB + 1))
        self.fail(both, "Q:one")
        self.fail(both, "Q:one")
        (failed,) = both.messages("ERRORS")
        assert (failed.origin.queue, failed.origin.reason.value) == ("Q:one", "retries")
        assert counts(both, "one", "two") == [1, 0, 1]
        sound(store, both)
        assert both.dequeue("Q:two").retries == 0
        assert both.dequeue("ERRORS").text == "x" * (MIB + 1)
        assert count_rows(both, "message", "chunk", "share") == (0, 0, 0)

    def test_the_last_one_takes_the_message_itself_along(self, store, both):
        sent = both.enqueue("Q", "x")
        both.dequeue("Q:two")
        self.fail(both, "Q:one")
        self.fail(both, "Q:one")
        (failed,) = both.messages("ERRORS")
        assert failed.origin.first == sent
        assert rows(both) == (1, 0, 1, 0)
        sound(store, both)

    def test_it_is_requeued_to_that_consumer_alone(self, store, both):
        both.enqueue("Q", "x")
        self.fail(both, "Q:one")
        self.fail(both, "Q:one")
        assert both.requeue("ERRORS") == 1
        assert counts(both, "one", "two") == [2, 1, 1]
        assert drain(both, "Q:one") == drain(both, "Q:two") == ["x"]
        sound(store, both)


class TestExpiry:
    def test_all_places_go_at_once(self, store, both, clock):
        both.enqueue("Q", "x", expires_in=5)
        both.enqueue("Q", "stays")
        both.dequeue("Q:one")
        clock.advance(6)
        assert drain(both, "Q:two") == drain(both, "Q:one") == ["stays"]
        assert [both.usage(name).expired for name in ("Q", "Q:one", "Q:two")] == [1, 0, 1]
        assert count_rows(both, "message", "share", "expiring") == (0, 0, 0)
        sound(store, both)

    def test_what_is_held_is_decided_by_the_end_of_its_transaction(self, store, both, clock):
        both.enqueue("Q", "x", expires_in=5)
        with pytest.raises(RuntimeError), both.transaction():
            both.dequeue("Q:one")
            clock.advance(6)
            assert Work(lambda: drain(both, "Q:two")).results() == [[]]
            raise RuntimeError
        assert counts(both, "one", "two") == [0, 0, 0]
        assert count_rows(both, "message", "share", "expiring") == (0, 0, 0)
        sound(store, both)

    def test_one_message_goes_to_the_error_queue_where_it_is_kept(self, store, both, clock):
        make_queue(both, "K", multiple_consumers=True, keep_expired=True, expiration=5)
        for name in ("one", "two", "three"):
            both.subscribe("K", name)
        both.enqueue("K", "x")
        both.dequeue("K:two")
        clock.advance(6)
        assert drain(both, "K:one") == drain(both, "K:three") == []
        assert drain(both, "ERRORS") == ["x"]
        sound(store, both)


class TestSubscriptions:
    def test_they_are_listed_and_subscribing_again_changes_nothing(self, space, clock):
        made = space.subscribe("Q", "one")
        clock.advance(5)
        assert space.subscribe("Q", "one") == made
        assert (made.queue, made.name, made.since) == ("Q", "one", clock.moment(-5))
        assert space.subscriptions() == space.subscriptions("Q") == [made]
        assert [queue.name for queue in space.queues()] == ["ERRORS", "PLAIN", "Q"]

    def test_who_unsubscribes_has_nothing_more_and_its_backlog_goes(self, store, both, clock):
        for text in "ab":
            both.enqueue("Q", text)
        both.unsubscribe("Q", "one")
        with pytest.raises(BadQueueError, match="queue 'Q' has no subscription 'one'"):
            both.dequeue("Q:one")
        both.subscribe("Q", "one")
        assert counts(both, "one", "two") == [2, 0, 2]
        clock.advance(2)
        store.device.check(both.name)
        both.dequeue("PLAIN")
        both.dequeue("Q:two")
        assert counts(both, "one", "two")[1:] == [0, 1]

    def test_one_that_is_destroyed_takes_its_consumers_along(self, store, both):
        both.enqueue("Q", "x" * (MIB + 1))
        both.dequeue("Q:one")
        with pytest.raises(InUseError, match="holds 1 message"):
            both.destroy_queue("Q")
        both.destroy_queue("Q", purge=True)
        assert rows(both) == (0, 0, 0, 0)
        with pytest.raises(BadQueueError):
            both.dequeue("Q:one")
        make_queue(both, "Q", multiple_consumers=True)
        assert both.subscriptions() == []
        sound(store, both)

    def test_a_queue_is_not_destroyed_while_a_consumer_holds_something(self, both):
        both.enqueue("Q", "x")
        with both.transaction():
            both.dequeue("Q:one")
            (refused,) = Work(lambda: both.destroy_queue("Q", force=True)).results()
            assert isinstance(refused, InUseError)
            assert "holds a message of queue 'Q:one'" in refused.message

    def test_the_queue_space_goes_with_all_of_it(self, store, both):
        both.enqueue("Q", "x")
        both.close()
        store.device.destroy_space("SPACE", force=True)
        again = store.space("AGAIN")
        assert rows(again) == (0, 0, 0, 0)

    def test_there_are_1024_at_most(self, space, monkeypatch):
        monkeypatch.setattr("qmcore.acts.subscriptions.MOST", 2)
        space.subscribe("Q", "one")
        space.subscribe("Q", "two")
        with pytest.raises(NoSpaceError) as refused:
            space.subscribe("Q", "three")
        assert (refused.value.resource, refused.value.used, refused.value.limit) == (Resource.SUBSCRIPTIONS, 2, 2)


class TestBadInput:
    def test_a_consumer_is_named_where_there_are_several(self, both):
        with pytest.raises(InvalidArgumentError, match="queue 'Q' has several consumers") as refused:
            both.dequeue("Q")
        assert "'one', 'two'" in refused.value.hint

    def test_an_unknown_one_is_told_the_nearest(self, both):
        with pytest.raises(BadQueueError, match="queue 'Q' has no subscription 'onne'") as refused:
            both.dequeue("Q", consumer="onne")
        assert "Did you mean 'one'?" in refused.value.hint

    def test_nothing_is_enqueued_to_a_consumer(self, both):
        with pytest.raises(BadQueueError, match="'Q:one' is a consumer of queue 'Q' in") as refused:
            both.enqueue("Q:one", "x")
        assert refused.value.hint.startswith("Name the queue, 'Q'")

    def test_a_queue_for_one_has_no_consumers_by_name(self, both):
        with pytest.raises(InvalidArgumentError, match="queue 'PLAIN' has one consumer"):
            both.dequeue("PLAIN", consumer="one")
        with pytest.raises(InvalidArgumentError, match="queue 'PLAIN' is for one consumer"):
            both.subscribe("PLAIN", "one")
        with pytest.raises(BadQueueError, match="no subscription 'three'"):
            both.unsubscribe("Q", "three")

    @pytest.mark.parametrize(
        ("name", "what"), [("", "is empty"), ("x\n", "cannot be printed"), ("x" * 128, "128 bytes")]
    )
    def test_a_name_is_refused_that_cannot_be_one(self, both, name, what):
        with pytest.raises(InvalidArgumentError, match=what):
            both.subscribe("Q", name)

    def test_one_text_never_means_two(self, both):
        with pytest.raises(InvalidArgumentError, match="'Q:one' is a consumer of a queue already"):
            make_queue(both, "Q:one")
        make_queue(both, "Q:three")
        with pytest.raises(InvalidArgumentError, match="'Q:three' would be the consumer 'three' of queue 'Q'"):
            both.subscribe("Q", "three")
        make_queue(both, "Q:a", multiple_consumers=True)
        both.subscribe("Q:a", "b")
        with pytest.raises(InvalidArgumentError, match="a consumer of another queue"):
            both.subscribe("Q", "a:b")

    @pytest.mark.parametrize(
        ("attributes", "what"),
        [
            ({"grouping": True}, "group messages"),
            ({"retention": FOREVER}, "retain messages"),
            ({"delivery": Delivery.NONPERSIST}, "keep messages in memory"),
        ],
    )
    def test_what_such_a_queue_cannot_do_is_refused(self, both, attributes, what):
        with pytest.raises(InvalidArgumentError, match=f"for several consumers, and cannot {what}"):
            make_queue(both, "NEW", multiple_consumers=True, **attributes)

    def test_messages_in_memory_are_refused(self, store):
        space = store.space("MEMORY", memory=400_000)
        make_queue(space, "Q", multiple_consumers=True)
        space.subscribe("Q", "one")
        with pytest.raises(InvalidArgumentError, match="takes persistent messages only"):
            space.enqueue("Q", "x", persistent=False)
        space.enqueue("Q", "x")
        assert drain(space, "Q:one") == ["x"]

    def test_an_error_queue_is_for_one(self, both):
        both.create_queue("HAS", error_queue="FAILS")
        with pytest.raises(InvalidArgumentError, match="'FAILS' is an error queue, which is for one consumer"):
            make_queue(both, "FAILS", multiple_consumers=True)

    def test_it_stays_what_it_was_created_for(self, both):
        with pytest.raises(InvalidArgumentError, match="multiple_consumers of queue 'PLAIN' is"):
            both.change_queue("PLAIN", multiple_consumers=True)


class TestLooking:
    def test_parked_messages_are_those_of_the_consumer(self, both):
        both.enqueue("Q", "x")
        assert [info.state for info in both.messages("Q:one")] == [State.READY]
        assert both.usage("Q:one").ready == 1


class TestBesideOthers:
    def test_what_was_prepared_for_those_who_have_gone_since_is_discarded_and_counted(self, store, both, caplog):
        both.tpc_begin(both.xid(7, b"global", b"branch"))
        both.enqueue("Q", "x")
        both.tpc_prepare()
        for name in ("one", "two"):
            Work(partial(both.unsubscribe, "Q", name)).results()
        Work(lambda: both.subscribe("Q", "late")).results()
        both.tpc_commit()
        assert drain(both, "Q:late") == []
        assert (both.usage("Q").enqueued, both.usage("Q").discarded, both.usage("Q").messages) == (1, 1, 0)
        assert rows(both) == (0, 0, 0, 0)
        assert "1 message of a transaction is discarded" in caplog.text
        sound(store, both)

    def test_what_is_prepared_is_for_those_who_had_subscribed_then(self, store, both):
        both.tpc_begin(both.xid(7, b"global", b"branch"))
        both.enqueue("Q", "x")
        both.tpc_prepare()
        Work(lambda: both.unsubscribe("Q", "one")).results()
        Work(lambda: both.subscribe("Q", "late")).results()
        both.tpc_commit()
        assert counts(both, "two", "late") == [1, 1, 0]
        assert drain(both, "Q:two") == ["x"]
        sound(store, both)

    def test_nothing_is_moved_to_where_nobody_would_get_it(self, space):
        space.enqueue("PLAIN", "x")
        with pytest.raises(NoRecipientsError):
            space.move("PLAIN", "Q")
        assert drain(space, "PLAIN") == ["x"]

    def test_what_is_moved_to_it_comes_to_all(self, store, both):
        both.enqueue("PLAIN", "x")
        assert both.move("PLAIN", "Q") == 1
        assert drain(both, "Q:one") == drain(both, "Q:two") == ["x"]
        sound(store, both)

    def test_what_was_only_locked_expires_with_the_others(self, store, both, clock):
        both.enqueue("Q", "x", expires_in=5)
        with both.transaction():
            both.lock("Q", consumer="one")
            clock.advance(6)
            assert Work(lambda: drain(both, "Q:two")).results() == [[]]
        assert drain(both, "Q:one") == []
        assert count_rows(both, "message", "share", "expiring") == (0, 0, 0)
        sound(store, both)

    def test_a_transaction_that_takes_all_places_of_a_message_gives_its_room_back(self, store):
        space = store.space(messages=1)
        make_queue(space, "Q", multiple_consumers=True)
        make_queue(space, "PLAIN")
        for name in ("one", "two"):
            space.subscribe("Q", name)
        space.enqueue("Q", "x")
        with space.transaction():
            space.dequeue("Q:one")
            space.dequeue("Q:two")
            space.enqueue("PLAIN", "reply")
        assert drain(space, "PLAIN") == ["reply"]

    def test_a_queue_for_several_is_no_error_queue_of_another(self, both):
        for act in (both.create_queue, both.change_queue):
            with pytest.raises(InvalidArgumentError, match="queue 'Q' is for several consumers"):
                act("NEW" if act == both.create_queue else "PLAIN", error_queue="Q")
        with pytest.raises(InvalidArgumentError, match="cannot be the error queue of queue space"):
            both.device.change_space(both.name, error_queue="Q")

    def test_one_that_goes_leaves_every_name_to_queues(self, store, both):
        number = both.queue("Q:one").id
        make_queue(both, f":{number}")
        both.unsubscribe("Q", "one")
        assert [each.name for each in both.subscriptions()] == ["two"]
        sound(store, both)
