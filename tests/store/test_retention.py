"""Messages that are kept for the record after they were consumed, and for how long."""

import dataclasses
import os
import socket

import pytest

from qmcore.acts import expiry
from qmcore.errors import BadMessageIdError, BadQueueError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import State
from qmcore.queue import FOREVER, Delivery
from tests.fix_store import attachment_of, count_rows, drain, make_queue, queue_definition

MIB = 1024 * 1024


@pytest.fixture
def space(store, monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = store.space(error_queue="ERRORS", memory=400_000, pages=6_000)
    make_queue(opened, "Q", retention=60, retries=1, out_of_order="msgid")
    make_queue(opened, "EVER", retention=FOREVER)
    make_queue(opened, "PLAIN")
    make_queue(opened, "ERRORS")
    return opened


def retain(space, name, seconds):
    space.change_queue(dataclasses.replace(space.queue(name).definition, retention=seconds))


def kept(space, name="Q", **how):
    return [consumed.info.msgid for consumed in space.history(name, **how)]


def rows(space):
    """Return how many rows there are of messages, bodies kept apart, and history."""
    return count_rows(space, "message", "chunk", "history")


class TestHistory:
    def test_it_tells_who_consumed_a_message_and_when(self, space, clock):
        sent = clock.now()
        msgid = space.enqueue("Q", "x", corrid="c", priority=7, headers={"h": "v"})
        clock.advance(5)
        space.dequeue("Q")
        clock.advance(5)
        (consumed,) = space.history("Q")
        assert consumed.consumer == f"application {os.getpid()} on {socket.gethostname()}"
        assert (consumed.consumed_at, consumed.transaction) == (clock.moment(-5), None)
        info = consumed.info
        assert (info.msgid, info.enqueued_us, info.size, info.state) == (msgid, sent, 1, State.CONSUMED)
        assert (info.corrid, info.priority, info.headers, info.queue) == (b"c", 7, {"h": "v"}, "Q")

    def test_what_a_transaction_consumes_is_kept_at_its_commit_with_its_number(self, space, clock):
        for text in "abc":
            space.enqueue("Q", text)
        with space.transaction():
            space.dequeue_many("Q", 2)
            clock.advance(5)
            assert kept(space) == []
        found = list(space.history("Q"))
        assert [consumed.consumed_us for consumed in found] == [clock.now()] * 2
        assert found[0].transaction == found[1].transaction
        assert found[0].transaction is not None
        assert space.usage("Q").ready == 1

    def test_a_rollback_and_a_lock_and_a_peek_consume_nothing(self, space):
        space.enqueue("Q", "x")
        with space.transaction():
            space.lock("Q")
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.rollback()
        space.peek("Q")
        assert kept(space) == []
        assert drain(space) == ["x"]

    @pytest.mark.parametrize("take", ["dequeue", "dequeue_many", "remove", "dequeue in a transaction"])
    def test_every_way_to_consume_is_kept(self, space, take):
        ids = [space.enqueue("Q", text) for text in "ab"]
        if take == "dequeue_many":
            space.dequeue_many("Q", 9)
        elif take.endswith("transaction"):
            with space.transaction():
                drain(space)
        else:
            for _ in ids:
                getattr(space, take)("Q")
        assert kept(space) == ids
        assert [space.recall("Q", msgid).text for msgid in ids] == ["a", "b"]

    def test_what_is_purged_or_expires_or_moves_or_is_discarded_is_not_kept(self, space, clock):
        space.enqueue("Q", "purged")
        space.purge("Q")
        space.enqueue("Q", "expired", expires_in=1)
        clock.advance(1)
        space.enqueue("Q", "moved")
        for _ in range(2):
            with space.transaction() as transaction:
                space.dequeue("Q")
                transaction.rollback()
        assert space.usage("ERRORS").messages == 1
        assert kept(space) == []
        assert rows(space) == (1, 0, 0)

    def test_it_comes_in_the_order_of_consumption_a_step_at_a_time(self, space, clock):
        ids = space.enqueue_many("EVER", ["x"] * 520)
        order = [*ids[260:], *ids[:260]]
        for msgids in (order[:260], order[260:]):
            with space.transaction():
                for msgid in msgids:
                    space.remove("EVER", msgid=msgid)
            clock.advance(1)
        assert kept(space, "EVER") == order

    def test_only_what_fulfils_the_condition_is_shown(self, space):
        ids = [space.enqueue("Q", str(at), priority=at + 1, headers={"odd": str(at % 2)}) for at in range(6)]
        drain(space)
        assert kept(space, condition="header.odd = '1' AND priority > 2") == [ids[3], ids[5]]
        assert kept(space, condition=f"msgid = '{ids[4]}'") == [ids[4]]
        assert kept(space, condition="priority > 50") == []

    def test_consumed_messages_are_found_by_nothing_else(self, space):
        msgid = space.enqueue("Q", "x", corrid="c")
        drain(space)
        for how in ({}, {"msgid": msgid}, {"corrid": "c"}, {"corrid_like": "%"}, {"condition": "size = 1"}):
            assert space.dequeue("Q", **how) is None
            assert space.peek("Q", **how) is None
        assert list(space.messages("Q")) == list(space.browse("Q")) == []
        assert space.purge("Q") == 0
        assert space.usage("Q").messages == 0

    def test_what_is_over_is_given_out_no_more_although_nobody_has_removed_it(self, space, clock):
        msgid = space.enqueue("Q", "x")
        drain(space)
        clock.advance(60)
        assert space.recall("Q", msgid).text == "x"
        clock.advance(1)
        assert space.recall("Q", msgid) is None
        opened, volume = attachment_of(space).opened, attachment_of(space).volume
        # As whoever may only read the device lists it.
        assert volume.read(lambda unit: expiry.history(unit, opened, "Q", None, 9, None, clock.now())) == []
        assert rows(space) == (1, 0, 1)

    def test_messages_in_memory_are_not_kept(self, space):
        make_queue(space, "M", delivery=Delivery.NONPERSIST, retention=60)
        space.enqueue("M", "x")
        space.enqueue("Q", "y", persistent=False)
        assert (drain(space, "M"), drain(space)) == (["x"], ["y"])
        assert kept(space, "M") == kept(space) == []
        assert space.usage("Q").memory_pages == 0

    def test_a_queue_without_retention_keeps_nothing(self, space):
        space.enqueue("PLAIN", "x")
        drain(space, "PLAIN")
        assert kept(space, "PLAIN") == []
        assert rows(space) == (0, 0, 0)

    def test_a_queue_that_is_not_there_is_refused(self, space):
        for look in (
            lambda: next(space.history("NONE")),
            lambda: space.purge_history("NONE"),
            lambda: space.recall("NONE", "0" * 32),
        ):
            with pytest.raises(BadQueueError):
                look()


class TestRecall:
    @pytest.mark.parametrize("body", [None, b"", b"x", bytes(range(256)) * 4096 * 3])
    def test_it_gives_the_whole_message(self, space, body):
        msgid = space.enqueue(
            "Q", body, corrid="c", headers={"h": "v"}, reply_queue="R", urcode=5, type="X", subtype="y"
        )
        consumed = space.dequeue("Q")
        recalled = space.recall("Q", msgid)
        assert recalled == dataclasses.replace(consumed, state=State.CONSUMED)
        assert recalled.body == body

    def test_only_what_was_consumed_from_that_queue_is_there(self, space, store):
        waiting, consumed = space.enqueue("Q", "a"), space.enqueue("EVER", "b")
        drain(space, "EVER")
        assert space.recall("Q", waiting) is None
        assert space.recall("Q", consumed) is None
        assert space.recall("EVER", consumed).text == "b"
        other = store.space("OTHER")
        make_queue(other, "EVER", retention=FOREVER)
        assert other.recall("EVER", consumed) is None
        with pytest.raises(BadMessageIdError):
            space.recall("EVER", "nonsense")


class TestHowLong:
    def test_it_is_kept_for_the_seconds_of_its_queue(self, space, clock, store):
        msgid = space.enqueue("Q", "x")
        drain(space)
        clock.advance(60)
        assert space.dequeue("Q") is None
        assert kept(space) == [msgid]
        clock.advance(0.000_001)
        assert kept(space) == []
        assert space.recall("Q", msgid) is None
        assert (rows(space), store.device.space_usage("SPACE").pages) == ((0, 0, 0), 0)

    def test_for_ever_is_for_ever(self, space, clock):
        msgid = space.enqueue("EVER", "x")
        drain(space, "EVER")
        clock.advance(10**9)
        assert space.dequeue("EVER") is None
        assert kept(space, "EVER") == [msgid]

    def test_a_consumer_of_the_queue_lets_those_go_that_outlived_it(self, space, clock):
        space.enqueue_many("Q", ["x"] * 990)
        space.dequeue_many("Q", 990)
        clock.advance(61)
        assert space.dequeue("Q") is None
        assert rows(space) == (0, 0, 0)

    def test_a_longer_retention_holds_for_what_is_kept_already(self, space, clock):
        space.enqueue("Q", "x")
        drain(space)
        clock.advance(50)
        retain(space, "Q", 600)
        clock.advance(500)
        assert len(kept(space)) == 1
        retain(space, "Q", FOREVER)
        clock.advance(5_000)
        assert len(kept(space)) == 1

    def test_a_shorter_one_lets_it_go_sooner(self, space, clock):
        for text in "ab":
            space.enqueue("EVER", text)
            space.dequeue("EVER")
            clock.advance(100)
        retain(space, "EVER", 150)
        assert [consumed.info.size for consumed in space.history("EVER")] == [1]
        clock.advance(100)
        assert kept(space, "EVER") == []

    @pytest.mark.parametrize("queue", ["Q", "EVER"])
    def test_none_at_all_lets_everything_go(self, space, store, clock, queue):
        space.enqueue_many(queue, ["x"] * 900)
        space.dequeue_many(queue, 900)
        clock.set_back(1_000)
        retain(space, queue, 0)
        assert (rows(space), store.device.space_usage("SPACE").pages) == ((0, 0, 0), 0)
        space.enqueue(queue, "y")
        drain(space, queue)
        assert kept(space, queue) == []

    def test_what_a_transaction_holds_follows_the_definition_at_its_commit(self, space):
        for name in ("PLAIN", "EVER"):
            space.enqueue(name, "x")
        with space.transaction():
            for name in ("PLAIN", "EVER"):
                space.dequeue(name)
            retain(space, "PLAIN", 60)
            retain(space, "EVER", 0)
        assert len(kept(space, "PLAIN")) == 1
        assert kept(space, "EVER") == []

    @pytest.mark.parametrize("seconds", [-2, 2**31, 1.5, None])
    def test_other_numbers_are_refused(self, seconds):
        with pytest.raises(InvalidArgumentError):
            queue_definition("Q", retention=seconds)

    def test_a_queue_that_is_destroyed_or_a_space_takes_its_history_with_it(self, space, store):
        body = b"x" * (2 * MIB)
        for name in ("Q", "EVER"):
            space.enqueue(name, body)
            drain_bodies(space, name)
        space.destroy_queue("Q")
        assert rows(space) == (1, 2, 1)
        assert store.device.space_usage("SPACE").pages == space.usage("EVER").pages
        space.close()
        store.device.destroy_space("SPACE", force=True)
        other = store.space("NEW")
        assert rows(other) == (0, 0, 0)


class TestRoom:
    def test_what_is_kept_takes_room_of_its_queue_and_counts_as_no_message(self, space, store):
        space.enqueue("Q", b"x" * 10_000)
        before = space.usage("Q")
        space.dequeue("Q")
        after = space.usage("Q")
        assert (before.pages, after.pages) == (3, 3)
        assert (after.messages, after.size, after.dequeued) == (0, 0, 1)
        usage = store.device.space_usage("SPACE")
        assert (usage.messages, usage.pages) == (0, 3)

    def test_a_purge_gives_it_back(self, space, store, clock):
        for size in (1, 3 * MIB):
            space.enqueue("EVER", b"x" * size)
            space.dequeue("EVER")
            clock.advance(10)
        assert space.purge_history("EVER", before=clock.moment(-10)) == 1
        assert [consumed.info.size for consumed in space.history("EVER")] == [3 * MIB]
        assert space.purge_history("EVER") == 1
        assert space.purge_history("EVER") == 0
        assert (rows(space), store.device.space_usage("SPACE").pages) == ((0, 0, 0), 0)
        assert space.usage("EVER").dequeued == 2

    def test_a_purge_of_more_than_a_step_takes_all(self, store):
        space = store.space("MANY", pages=10_000, messages=5_000)
        make_queue(space, "Q", retention=FOREVER)
        space.enqueue_many("Q", ["x"] * 2_300)
        space.dequeue_many("Q", 2_300)
        assert space.purge_history("Q") == 2_300
        assert rows(space) == (0, 0, 0)

    def test_a_full_queue_space_lets_go_what_has_outlived_its_retention_and_nothing_else(self, store, clock):
        space = store.space("SMALL", pages=100, queues=4)
        make_queue(space, "Q", retention=60)
        make_queue(space, "EVER", retention=FOREVER)
        room = 100 - 5
        for name in ("Q", "EVER"):
            space.enqueue_many(name, ["x"] * (room // 2))
            space.dequeue_many(name, room)
        space.enqueue("EVER", "last")
        with pytest.raises(NoSpaceError) as caught:
            space.enqueue("EVER", "x")
        assert caught.value.resource is Resource.PAGES
        clock.advance(61)
        space.enqueue("EVER", "x")
        assert len(kept(space, "EVER")) == room // 2
        assert drain(space, "EVER") == ["last", "x"]

    def test_a_commit_and_a_large_message_find_that_room_too(self, store, clock):
        space = store.space("SMALL", pages=100, queues=4)
        make_queue(space, "Q", retention=60)
        space.enqueue_many("Q", ["x"] * 95)
        space.dequeue_many("Q", 95)
        clock.advance(61)
        with space.transaction():
            space.enqueue("Q", b"x" * 300_000)
        assert space.usage("Q").pages == 74

    def test_the_capacity_command_is_armed_again_when_the_record_goes(self, store, clock):
        space = store.space("SMALL", pages=100, queues=4)
        high = parse_high("10B")
        make_queue(space, "Q", retention=60, threshold=Threshold(high, parse_low("2B", high), "true"))
        store.device.set_commands(enabled=False)
        space.enqueue_many("Q", ["x"] * 12)
        space.dequeue_many("Q", 12)
        queue_id = space.queue("Q").id

        def tripped():
            return attachment_of(space).volume.read(
                lambda unit: unit.capacity_commands.is_tripped(queue_id, memory=False)
            )

        assert tripped()
        clock.advance(61)
        assert space.usage("Q").pages == 0
        assert not tripped()


def drain_bodies(space, name):
    while space.dequeue(name) is not None:
        pass
