"""Queues that are stopped and started, and that get another definition while they are in use."""

import dataclasses
import math

import pytest
import sqlalchemy

from qmadmin.opening import create_device
from qmcore.acts import enqueue_in_transaction, waiting
from qmcore.errors import BadQueueError, InUseError, InvalidArgumentError
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.queue import Delivery
from tests.fix_store import Work, attachment_of, drain, eventually, make_queue, space_definition


def state(space, name="Q"):
    queue = space.queue(name)
    return queue.enqueue_enabled, queue.dequeue_enabled


def change(space, name="Q", **changes):
    return space.change_queue(dataclasses.replace(space.queue(name).definition, **changes))


class TestStopped:
    def test_enqueuing_is_refused_and_dequeuing_goes_on(self, space):
        space.enqueue("Q", "a")
        space.stop_queue("Q", dequeue=False)
        assert state(space) == (False, True)
        with pytest.raises(BadQueueError) as caught:
            space.enqueue("Q", "b")
        assert caught.value.stopped == "enqueuing"
        assert drain(space) == ["a"]
        space.start_queue("Q")
        space.enqueue("Q", "c")
        assert drain(space) == ["c"]

    def test_dequeuing_is_refused_and_enqueuing_goes_on(self, space):
        space.enqueue("Q", "a")
        space.stop_queue("Q", enqueue=False)
        assert state(space) == (True, False)
        for take in (space.dequeue, space.peek, space.remove, lambda name: space.dequeue_many(name, 2)):
            with pytest.raises(BadQueueError) as caught:
                take("Q")
            assert caught.value.stopped == "dequeuing"
        space.enqueue("Q", "b")
        assert [info.size for info in space.messages("Q")] == [1, 1]
        space.start_queue("Q", enqueue=False)
        assert drain(space) == ["a", "b"]

    def test_both_ways_and_only_one_started_again(self, space):
        space.stop_queue("Q")
        assert state(space) == (False, False)
        space.start_queue("Q", dequeue=False)
        assert state(space) == (True, False)
        space.start_queue("Q")
        assert state(space) == (True, True)

    def test_a_transaction_goes_on_after_a_refusal(self, space):
        make_queue(space, "OTHER")
        space.stop_queue("Q")
        with space.transaction():
            for act in (lambda: space.enqueue("Q", "x"), lambda: space.dequeue("Q")):
                with pytest.raises(BadQueueError):
                    act()
            space.enqueue("OTHER", "kept")
        assert drain(space, "OTHER") == ["kept"]

    @pytest.mark.parametrize("spill_bytes", [1, 10_000])
    def test_what_a_transaction_enqueued_before_arrives_at_its_commit(self, space, monkeypatch, spill_bytes):
        monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", spill_bytes)
        with space.transaction():
            space.enqueue("Q", "a")
            space.stop_queue("Q")
        assert [info.size for info in space.messages("Q")] == [1]
        space.start_queue("Q")
        assert drain(space) == ["a"]

    def test_messages_still_come_back_expire_and_move(self, space, clock):
        make_queue(space, "ERRORS")
        change(space, error_queue="ERRORS", retries=0)
        space.enqueue("Q", "expires", expires_in=5)
        space.enqueue("Q", "moves")
        with space.transaction() as transaction:
            assert space.dequeue("Q", condition="expires_at IS NULL")
            space.stop_queue("Q", dequeue=False)
            space.stop_queue("ERRORS", dequeue=False)
            transaction.rollback()
        clock.advance(5)
        assert space.usage("Q").expired == 1
        assert drain(space, "ERRORS") == ["moves"]

    def test_others_see_it_at_once(self, file_store):
        space = file_store.space()
        make_queue(space)
        other = file_store.another().open_space("SPACE")
        other.enqueue("Q", "x")
        space.stop_queue("Q")
        with pytest.raises(BadQueueError):
            other.enqueue("Q", "x")
        other.start_queue("Q")
        assert drain(space) == ["x"]

    def test_it_outlives_the_device_being_closed(self, file_store):
        space = file_store.space()
        make_queue(space)
        space.stop_queue("Q", dequeue=False)
        file_store.device.close()
        assert state(file_store.another().open_space("SPACE")) == (False, True)

    @pytest.mark.parametrize("act", ["stop_queue", "start_queue"])
    def test_a_queue_that_is_not_there_is_refused(self, space, act):
        with pytest.raises(BadQueueError):
            getattr(space, act)("NONE")


class TestOpenTransactions:
    @pytest.mark.parametrize("take", ["dequeue", "lock"])
    def test_one_that_holds_a_message_refuses_the_stop_and_all_is_as_it_was(self, space, take):
        space.enqueue("Q", "a")
        with space.transaction():
            getattr(space, take)("Q")
            with pytest.raises(InUseError):
                space.stop_queue("Q")
            assert state(space) == (True, True)
            space.enqueue("Q", "b", transactional=False)
        space.stop_queue("Q")
        assert state(space) == (False, False)

    def test_it_does_not_matter_for_enqueuing_alone(self, space):
        space.enqueue("Q", "a")
        with space.transaction():
            space.dequeue("Q")
            space.stop_queue("Q", dequeue=False)
        assert state(space) == (False, True)

    def test_a_refusal_leaves_alone_what_was_not_to_be_stopped(self, space, clock):
        """While the stop of dequeuing waits, an administrator stops enqueuing; that holds."""
        space.enqueue("Q", "a")
        with space.transaction():
            space.dequeue("Q")
            work = Work(lambda: space.stop_queue("Q", enqueue=False, wait=10))
            eventually(lambda: state(space) == (True, False), "dequeuing is stopped")
            space.stop_queue("Q", dequeue=False)
            clock.advance(11)
            (refusal,) = work.results()
        assert isinstance(refusal, InUseError)
        assert state(space) == (False, True)

    @pytest.mark.parametrize("ends", ["commit", "rollback"])
    def test_they_are_waited_for(self, space, ends):
        space.enqueue("Q", "a")
        with space.transaction() as transaction:
            space.dequeue("Q")
            work = Work(lambda: space.stop_queue("Q", wait=60))
            eventually(lambda: state(space) == (False, False), "the queue is stopped")
            getattr(transaction, ends)()
        assert work.results() == [None]
        assert state(space) == (False, False)

    def test_nothing_new_is_taken_meanwhile(self, space):
        for text in "ab":
            space.enqueue("Q", text)
        with space.transaction():
            assert space.dequeue("Q").text == "a"
            work = Work(lambda: space.stop_queue("Q", wait=60))
            eventually(lambda: state(space) == (False, False), "the queue is stopped")
            for take in (space.dequeue, lambda name: space.dequeue(name, transactional=False)):
                with pytest.raises(BadQueueError):
                    take("Q")
        assert work.results() == [None]

    def test_one_that_has_only_enqueued_is_not_waited_for(self, space, monkeypatch):
        monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", 1)
        with space.transaction():
            space.enqueue("Q", "a")
            space.stop_queue("Q")
            assert state(space) == (False, False)
        assert space.usage("Q").messages == 1

    def test_one_whose_time_is_over_is_not_waited_for(self, space, clock):
        space.enqueue("Q", "a")
        with pytest.raises(Exception, match="rolled back"), space.transaction(timeout=5):
            space.dequeue("Q")
            clock.advance(6)
            space.stop_queue("Q")
            assert state(space) == (False, False)
        assert space.usage("Q").ready == 1

    def test_one_whose_process_died_is_not_waited_for(self, file_store, start):
        space = file_store.space()
        make_queue(space, retries=3)
        space.enqueue("Q", "a")
        child = start(
            "device = open_device(sys.argv[1])\n"
            "space = device.open_space('SPACE')\n"
            "with space.transaction():\n"
            "    say(space.dequeue('Q').text)\n"
            "    heard()\n",
            file_store.path,
        )
        child.expect("a")
        with pytest.raises(InUseError):
            space.stop_queue("Q")
        child.kill()
        space.stop_queue("Q")
        assert space.usage("Q").ready == 1

    @pytest.mark.parametrize("wait", [-1, math.nan, "1"])
    def test_no_number_of_seconds_is_refused_and_nothing_is_stopped(self, space, wait):
        with pytest.raises(InvalidArgumentError):
            space.stop_queue("Q", wait=wait)
        assert state(space) == (True, True)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_whoever_waits_for_a_message_is_told(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 1_000.0)
    with create_device(":memory:" if kind == "memory" else tmp_path / "QUE", 5_000) as device:
        device.create_space(space_definition())
        with device.open_space("SPACE") as space:
            make_queue(space)

            def waiters(unit):
                return unit.run(sqlalchemy.text("SELECT count(*) FROM waiter")).fetchone()[0]

            work = Work(*[lambda: space.dequeue("Q", wait=math.inf)] * 2)
            eventually(lambda: attachment_of(space).volume.read(waiters) == 2, "both wait")
            space.stop_queue("Q")
            assert [type(result) for result in work.results()] == [BadQueueError] * 2


class TestChanged:
    def test_everything_else_can_be_changed(self, space):
        make_queue(space, "ERRORS")
        high = parse_high("50%")
        wanted = dataclasses.replace(
            space.queue("Q").definition,
            out_of_order=OutOfOrder.parse("top,msgid"),
            retries=9,
            retry_delay=7,
            threshold=Threshold(high, parse_low("10%", high), "true"),
            memory_threshold=Threshold(high, parse_low("20%", high), "false"),
            expiration=30,
            error_queue="ERRORS",
            keep_expired=True,
            retention=50,
        )
        assert space.change_queue(wanted).definition == wanted
        assert space.queue("Q").definition == wanted

    @pytest.mark.parametrize("changes", [{"order": QueueOrder.parse("lifo")}, {"grouping": True}])
    def test_what_messages_stand_by_cannot(self, space, changes):
        before = space.queue("Q")
        with pytest.raises(InvalidArgumentError, match="cannot be changed"):
            change(space, **changes)
        assert space.queue("Q") == before

    def test_a_queue_that_is_not_there_is_refused(self, space):
        with pytest.raises(BadQueueError):
            space.change_queue(dataclasses.replace(space.queue("Q").definition, name="NONE"))

    def test_a_stopped_queue_stays_stopped(self, space):
        space.stop_queue("Q", dequeue=False)
        change(space, retries=9)
        assert state(space) == (False, True)

    def test_retries_hold_for_messages_that_are_held(self, space):
        space.enqueue("Q", "a")
        with space.transaction() as transaction:
            space.dequeue("Q")
            change(space, retries=0)
            transaction.rollback()
        assert space.usage("Q").discarded == 1

    def test_an_expiration_holds_for_those_that_come_after_it(self, space, clock):
        space.enqueue("Q", "before")
        with space.transaction():
            space.enqueue("Q", "at the commit")
            change(space, expiration=5)
        space.enqueue("Q", "after")
        clock.advance(5)
        assert drain(space) == ["before"]

    def test_the_default_delivery_holds_for_those_that_come_after_it(self, store, monkeypatch, tmp_path):
        monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
        space = store.space(memory=400_000)
        make_queue(space)
        space.enqueue("Q", "a")
        change(space, delivery=Delivery.NONPERSIST)
        space.enqueue("Q", "b")
        assert [(info.delivery, space.dequeue("Q").text) for info in list(space.messages("Q"))] == [
            (Delivery.PERSIST, "a"),
            (Delivery.NONPERSIST, "b"),
        ]

    def test_a_limit_that_was_reached_can_be_reached_again_when_it_is_changed(self, store, space):
        store.device.set_commands(enabled=False)

        def threshold(high, command="true"):
            limit = parse_high(high)
            return Threshold(limit, parse_low("0", limit), command)

        def tripped():
            queue_id = space.queue("Q").id
            return attachment_of(space).volume.read(
                lambda unit: unit.capacity_commands.is_tripped(queue_id, memory=False)
            )

        change(space, threshold=threshold("2m"))
        for _ in range(2):
            space.enqueue("Q", "x")
        assert tripped()
        change(space, retries=1)
        assert tripped()
        change(space, threshold=threshold("4m"))
        assert not tripped()
        space.enqueue("Q", "x")
        assert not tripped()
        space.enqueue("Q", "x")
        assert tripped()
