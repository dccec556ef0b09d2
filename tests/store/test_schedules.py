"""Schedules: one message for each due moment, made by whoever looks after the queue space."""

from __future__ import annotations

import itertools
import logging
import threading
from datetime import UTC, datetime, timedelta

import pytest

from qmcore.errors import BadQueueError, BadResourceError, InvalidArgumentError
from qmcore.message import EnqueueControl
from qmcore.schedule import BODY_MAX, Missed
from qmcore.times import MICROS
from tests.fix_store import MovableClock, attachment_of, make_queue

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
"""A Friday."""


@pytest.fixture
def clock():
    return MovableClock(round(NOON.timestamp()) * MICROS)


def laid_out(store):
    opened = store.space(error_queue="ERRORS", memory=100_000)
    for name in ("Q", "ERRORS"):
        make_queue(opened, name)
    return opened


@pytest.fixture
def space(store):
    return laid_out(store)


def moments(space, queue="Q"):
    """Look after the queue space, take all messages, and return for which moments they were made."""
    attachment_of(space).do_housekeeping(now=True)
    found = []
    while (message := space.dequeue(queue)) is not None:
        found.append(datetime.fromisoformat(message.headers["scheduled_at"]))
    return found


def after(**spans):
    return NOON + timedelta(**spans)


class TestDueMoments:
    def test_a_message_comes_at_each_moment_and_says_for_which(self, space, clock):
        made = space.create_schedule("tea", "Q", "every 10m", "put the kettle on")
        assert (made.next_at, made.created_at, made.last_at) == (after(minutes=10), NOON, None)
        clock.advance(599)
        assert moments(space) == []
        clock.advance(1)
        message = space.dequeue("Q")
        assert (message.text, message.type) == ("put the kettle on", "STRING")
        assert message.headers == {"schedule": "tea", "scheduled_at": "2026-11-27T12:10:00+00:00"}
        assert space.dequeue("Q") is None
        found = space.schedule("tea")
        assert (found.next_at, found.last_at, found.last_msgid) == (
            after(minutes=20), after(minutes=10), message.msgid
        )  # fmt: skip

    def test_an_interval_does_not_drift_by_late_looks(self, space, clock):
        space.create_schedule("tea", "Q", "every 10m")
        found = []
        for _ in range(3):
            clock.advance(607)
            found += moments(space)
        assert found == [after(minutes=10), after(minutes=20), after(minutes=30)]

    def test_fields_of_cron_are_read_in_the_time_zone_of_the_schedule(self, space, clock):
        space.create_schedule("dawn", "Q", "30 6 * * *", timezone="Asia/Kathmandu")
        clock.advance(24 * 3600)
        # 5 hours and 45 minutes before it is that in Greenwich.
        assert moments(space) == [datetime(2026, 11, 28, 0, 45, tzinfo=UTC)]

    def test_what_a_sender_may_ask_for_is_asked_for_each_message(self, space, clock):
        control = EnqueueControl(
            priority=70, corrid=b"\0c", reply_queue="ERRORS", urcode=-7, headers={"a": "b"}, type="X", subtype="y",
            lifetime=3600 * MICROS, reply_delivery=None,
        )  # fmt: skip
        made = space.create_schedule("s", "Q", "every 1m", b"\0\xff", control)
        assert space.schedule("s") == made
        clock.advance(60)
        attachment_of(space).do_housekeeping(now=True)
        (message,) = space.dequeue_many("Q", 5)
        assert (message.body, message.priority, message.corrid) == (b"\0\xff", 70, b"\0c")
        assert (message.type, message.subtype, message.urcode, message.reply_queue) == ("X", "y", -7, "ERRORS")
        assert message.headers.items() > {"a": "b", "schedule": "s"}.items()
        assert message.expires_at == after(minutes=61)

    def test_a_message_may_be_without_a_body_or_for_memory(self, space, clock):
        from qmcore.queue import Delivery

        space.create_schedule("s", "Q", "every 1m", None, EnqueueControl(delivery=Delivery.NONPERSIST))
        clock.advance(60)
        attachment_of(space).do_housekeeping(now=True)
        message = space.dequeue("Q")
        assert (message.body, message.delivery) == (None, Delivery.NONPERSIST)

    def test_moments_that_come_faster_than_looks_are_made_each(self, space, clock):
        space.create_schedule("s", "Q", "every 1s")
        clock.advance(5.5)
        assert moments(space) == [after(seconds=second) for second in range(1, 6)]

    def test_all_schedules_are_made_though_one_cannot_be(self, space, clock):
        for name, queue in (("a", "Q"), ("b", "ERRORS"), ("c", "Q")):
            space.create_schedule(name, queue, "every 1m")
        space.stop_queue("ERRORS")
        clock.advance(60)
        assert len(moments(space)) == 2


class TestMissedMoments:
    """Nobody was there for more than a minute."""

    def missed(self, store, clock, missed, rule="every 10m"):
        space = laid_out(store)
        space.create_schedule("s", "Q", rule, missed=missed)
        clock.advance(35 * 60)
        return space

    def test_one_message_stands_for_all_of_them(self, store, clock):
        space = self.missed(store, clock, "once")
        assert moments(space) == [after(minutes=10)]
        assert space.schedule("s").next_at == after(minutes=40)

    def test_or_none_is_made(self, store, clock):
        space = self.missed(store, clock, Missed.SKIP)
        assert moments(space) == []
        assert space.schedule("s").next_at == after(minutes=40)

    def test_one_that_is_less_late_was_not_missed(self, store, clock):
        space = self.missed(store, clock, "skip", rule="every 2050s")
        assert moments(space) == [after(seconds=2050)]

    def test_of_many_the_last_minute_was_not_missed(self, store, clock):
        space = self.missed(store, clock, "skip", rule="every 25s")
        assert moments(space) == [after(seconds=2050), after(seconds=2075), after(seconds=2100)]

    @pytest.mark.parametrize(("missed", "made"), [("once", [after(minutes=10)]), ("skip", [])])
    def test_whoever_attaches_first_makes_up_for_it(self, store, clock, missed, made):
        space = laid_out(store)
        space.create_schedule("s", "Q", "every 10m", missed=missed)
        space.close()
        clock.advance(35 * 60)
        with store.device.open_space("SPACE") as again:
            assert again.schedule("s").next_at == after(minutes=40)
            assert moments(again) == made


class TestPutOff:
    """What is in the way keeps a message back until it is gone."""

    def test_a_queue_that_is_stopped_keeps_it_back_and_the_log_tells_once(self, space, clock, caplog):
        space.create_schedule("s", "Q", "every 1h")
        space.stop_queue("Q", dequeue=False)
        clock.advance(3600)
        with caplog.at_level(logging.WARNING, "qmadmin.engine"):
            for _ in range(3):
                assert moments(space) == []
                clock.advance(1)
        assert [record.getMessage() for record in caplog.records] == [
            "the message of schedule 's' in queue space 'SPACE' is put off: queue 'Q' is stopped for enqueuing"
        ]
        space.start_queue("Q")
        assert moments(space) == [after(hours=1)]

    def test_a_queue_that_is_gone_keeps_it_back_until_there_is_one_again(self, space, clock):
        space.create_schedule("s", "Q", "every 1h")
        space.destroy_queue("Q")
        clock.advance(3600)
        attachment_of(space).do_housekeeping(now=True)
        make_queue(space, "Q")
        assert moments(space) == [after(hours=1)]

    @pytest.mark.parametrize(("missed", "made"), [("once", [after(hours=1)]), ("skip", [])])
    def test_what_was_kept_back_for_long_was_missed(self, space, clock, missed, made):
        space.create_schedule("s", "Q", "every 1h", missed=missed)
        space.stop_queue("Q", dequeue=False)
        clock.advance(3600)
        assert moments(space) == []
        clock.advance(1800)
        if missed == "once":
            assert moments(space) == []
        space.start_queue("Q")
        assert moments(space) == made
        assert space.schedule("s").next_at == after(hours=2)

    def test_no_room_keeps_it_back(self, store, clock):
        space = store.space(messages=2)
        make_queue(space, "Q")
        space.create_schedule("s", "Q", "every 1h")
        for _ in range(2):
            space.enqueue("Q", "x")
        clock.advance(3600)
        attachment_of(space).do_housekeeping(now=True)
        assert space.usage("Q").messages == 2
        assert space.dequeue("Q").text == space.dequeue("Q").text == "x"
        assert moments(space) == [after(hours=1)]

    def test_what_has_expired_makes_room_for_it(self, store, clock):
        space = store.space(messages=1)
        make_queue(space, "Q")
        space.create_schedule("s", "Q", "every 1h")
        space.enqueue("Q", "x", expires_in=10)
        clock.advance(3600)
        assert moments(space) == [after(hours=1)]


class TestClock:
    def test_a_clock_that_is_set_back_brings_no_moment_twice(self, space, clock):
        space.create_schedule("s", "Q", "0 * * * *")
        clock.advance(3600)
        assert moments(space) == [after(hours=1)]
        clock.set_back(1800)
        for _ in range(3):
            clock.advance(900)
            assert moments(space) == []
        assert space.schedule("s").next_at == after(hours=2)

    def test_nor_does_a_schedule_that_is_resumed_then_or_gets_another_time_zone(self, space, clock):
        space.create_schedule("s", "Q", "0 * * * *")
        clock.advance(3600)
        assert len(moments(space)) == 1
        clock.set_back(1800)
        assert space.resume_schedule("s").next_at == after(hours=2)
        assert space.change_schedule("s", timezone="Europe/Berlin").next_at == after(hours=2)

    def test_one_that_was_far_ahead_is_forgotten_by_a_resume(self, space, clock):
        space.create_schedule("s", "Q", "0 * * * *")
        clock.advance(1000 * 3600)
        assert moments(space) == [after(hours=1)]
        clock.set_back(999 * 3600)
        assert space.schedule("s").next_at == after(hours=1001)
        assert space.resume_schedule("s").next_at == after(hours=2)


class TestPause:
    def test_a_paused_schedule_makes_none_and_goes_on_with_the_next_moment(self, space, clock):
        space.create_schedule("s", "Q", "every 10m")
        assert space.pause_schedule("s").next_at is None
        clock.advance(3600)
        assert moments(space) == []
        assert space.resume_schedule("s").next_at == after(minutes=70)
        clock.advance(600)
        assert moments(space) == [after(minutes=70)]

    def test_it_may_be_created_so_and_changed_meanwhile(self, space, clock):
        assert space.create_schedule("s", "Q", "every 10m", paused=True).next_at is None
        clock.advance(60)
        assert space.change_schedule("s", rule="every 1h").next_at is None
        assert space.resume_schedule("s").next_at == after(minutes=61)


class TestChange:
    def test_what_is_not_given_stays(self, space, clock):
        space.create_schedule("s", "Q", "every 10m", "x", EnqueueControl(priority=9))
        clock.advance(60)
        changed = space.change_schedule("s", missed="skip", queue="ERRORS", body="y")
        assert (changed.next_at, changed.missed, changed.queue) == (after(minutes=10), Missed.SKIP, "ERRORS")
        assert (changed.body, changed.control.priority) == (b"y", 9)
        assert space.schedule("s") == changed

    def test_a_new_body_has_its_own_type_beside_what_stays_or_is_given(self, space):
        space.create_schedule("s", "Q", "every 10m", "x", EnqueueControl(priority=9))
        assert space.change_schedule("s", body={"n": 1}).control == EnqueueControl(priority=9, type="JSON")
        assert space.change_schedule("s", body=b"x").control == EnqueueControl(priority=9)
        control = EnqueueControl(priority=7)
        assert space.change_schedule("s", body=[1], control=control).control == EnqueueControl(priority=7, type="JSON")
        assert space.change_schedule("s", control=EnqueueControl(type="OWN")).control.type == "OWN"
        assert space.change_schedule("s", body="y").control.type == "OWN"

    def test_another_interval_counts_from_the_change(self, space, clock):
        space.create_schedule("s", "Q", "every 10m")
        clock.advance(90)
        assert space.change_schedule("s", rule="every 5m").next_at == after(seconds=390)

    def test_the_messages_of_one_that_is_deleted_stay(self, space, clock):
        space.create_schedule("s", "Q", "every 10m")
        space.create_schedule("t", "Q", "every 1h")
        clock.advance(600)
        attachment_of(space).do_housekeeping(now=True)
        space.delete_schedule("s")
        assert [each.name for each in space.schedules()] == ["t"]
        assert moments(space) == [after(minutes=10)]
        clock.advance(600)
        assert moments(space) == []

    def test_a_deletion_is_recorded(self, space, device):
        space.create_schedule("s", "Q", "every 10m")
        space.delete_schedule("s")
        deleted, _created = [entry for entry in device.audited() if "schedule" in entry.target]
        assert (deleted.target, deleted.outcome) == ("schedule SPACE/s", "done")


class TestRefusals:
    @pytest.fixture
    def known(self, space):
        space.create_schedule("known", "Q", "every 10m")
        return space

    @pytest.mark.matrix
    @pytest.mark.parametrize(
        ("given", "error", "said"),
        [
            ({"name": "known"}, InvalidArgumentError, "schedule 'known' exists already in queue space 'SPACE'"),
            ({"name": ""}, InvalidArgumentError, "the schedule name is empty"),
            ({"name": "x" * 128}, InvalidArgumentError, "the limit is 127"),
            ({"queue": "NONE"}, BadQueueError, "there is no queue 'NONE'"),
            ({"rule": "61 * * * *"}, InvalidArgumentError, "is no rule of cron: bad minute"),
            ({"rule": "0 0 31 2 *"}, InvalidArgumentError, "bad day-of-month"),
            ({"rule": "* * */20 * 1L"}, InvalidArgumentError, "never comes"),
            ({"rule": "every -1"}, InvalidArgumentError, "is not one"),
            ({"timezone": "Mars/Olympus"}, InvalidArgumentError, "there is no time zone 'Mars/Olympus'"),
            ({"missed": "twice"}, InvalidArgumentError, "missed must be 'once' or 'skip', got 'twice'"),
            ({"body": bytes(BODY_MAX + 1)}, InvalidArgumentError, "has 1048577 bytes, the limit is 1048576"),
            ({"control": EnqueueControl(headers={"schedule": "x"})}, InvalidArgumentError, "is set by schedule"),
            ({"control": EnqueueControl(available_us=5)}, InvalidArgumentError, "needs times of its own"),
            ({"control": EnqueueControl(before="x" * 32)}, InvalidArgumentError, "no place before"),
        ],
    )
    def test_what_is_wrong_is_said_in_a_sentence_and_nothing_is_created(self, known, given, error, said):
        asked = {"name": "new", "queue": "Q", "rule": "every 10m", "body": "x"} | given
        with pytest.raises(error, match=said):
            known.create_schedule(**asked)
        assert [each.name for each in known.schedules()] == ["known"]

    @pytest.mark.parametrize(
        "verb", ["schedule", "change_schedule", "pause_schedule", "resume_schedule", "delete_schedule"]
    )
    def test_one_that_does_not_exist_is_named(self, known, verb):
        with pytest.raises(BadResourceError, match="there is no schedule 'none' in queue space 'SPACE'"):
            getattr(known, verb)("none")

    @pytest.mark.parametrize("given", [{"rule": "x"}, {"timezone": "x"}, {"queue": "x"}, {"missed": "x"}])
    def test_a_change_that_is_refused_changes_nothing(self, known, given):
        before = known.schedule("known")
        with pytest.raises((InvalidArgumentError, BadQueueError)):
            known.change_schedule("known", **given)
        assert known.schedule("known") == before


class TestSeveral:
    @pytest.fixture
    def spaces(self, shared_store):
        return [laid_out(shared_store), *(shared_store.another().open_space("SPACE") for _ in range(2))]

    def test_each_moment_is_made_once_by_all_that_are_attached(self, spaces, clock):
        spaces[0].create_schedule("s", "Q", "every 1m")
        for _ in range(5):
            clock.advance(60)
            for each in spaces:
                attachment_of(each).do_housekeeping(now=True)
        assert moments(spaces[0]) == [after(minutes=minute) for minute in range(1, 6)]

    def test_changes_of_the_body_and_of_its_control_keep_each_other(self, spaces):
        spaces[0].create_schedule("s", "Q", "every 1m", "0")
        kept, ended = [], threading.Event()

        def change_bodies():
            for number in itertools.count():
                spaces[1].change_schedule("s", body=str(number))
                if ended.is_set():
                    return

        thread = threading.Thread(target=change_bodies)
        thread.start()
        try:
            for priority in range(1, 101):
                spaces[2].change_schedule("s", control=EnqueueControl(priority=priority))
                kept.append(spaces[0].schedule("s").control.priority)
        finally:
            ended.set()
            thread.join()
        assert kept == list(range(1, 101))

    def test_one_is_enough(self, spaces, clock):
        spaces[0].create_schedule("s", "Q", "every 1m")
        clock.advance(60)
        assert moments(spaces[2]) == [after(minutes=1)]
        assert moments(spaces[1]) == []
