"""Imports into queues that are there, non-persistent messages in them, and what becomes of times."""

from __future__ import annotations

import pytest

from qmcore.acts import following, manage_spaces
from qmcore.acts.importing import Mode, Stage, TimePolicy, Times
from qmcore.errors import AbortedError, BadQueueError, InUseError, InvalidArgumentError, NoSpaceError, ProtocolError
from qmcore.limits import CapacityLimit, Threshold, Unit
from qmcore.message import State, message_id
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.times import MICROS
from tests.fix_store import DEADLINE, attachment_of, count_rows, drain, make_queue, queue_definition, truth
from tests.importer import (
    BEGAN,
    FOREIGN,
    SOURCE,
    Importer,
    carried_row,
    faults_of,
    plan_of,
    planned,
    rows_of,
)


class TestReplacing:
    def test_the_new_queue_takes_the_place_of_the_old_one_at_once(self, space):
        importer = Importer(space)
        rows = rows_of("ab")
        for text in ("x", "y", "z"):
            space.enqueue("Q", text)
        importer.begin(plan_of(planned(rows, queue_definition("Q", retries=9), mode=Mode.REPLACE)))
        importer.load(rows)
        assert [info.size for info in space.messages("Q")] == [1] * 3
        assert importer.publish().state is Stage.MERGING
        assert space.queue("Q").definition.retries == 9
        assert drain(space) == ["a", "b"]

    def test_the_old_one_is_removed_a_part_at_a_time(self, space):
        importer = Importer(space)
        rows = rows_of("ab")
        for _ in range(5):
            space.enqueue("Q", b"x" * 5000)
        space.enqueue("Q", b"late", delay=60)
        importer.begin(plan_of(planned(rows, mode=Mode.REPLACE)))
        importer.load(rows)
        importer.publish()
        assert importer.merge(limit=4) == 2
        assert faults_of(space) == []
        assert importer.merge(limit=4) == 0
        assert count_rows(space, "message", "ready", "due", "queue") == (2, 2, 0, 1)
        assert faults_of(space) == []
        assert [job.state for job in importer.jobs()] == [Stage.DONE]

    def test_a_queue_that_is_not_there_is_simply_created(self, store):
        space = store.space()
        importer = Importer(space)
        rows = rows_of("ab")
        importer.begin(plan_of(planned(rows, mode=Mode.REPLACE)))
        importer.load(rows)
        assert importer.publish().state is Stage.DONE
        assert drain(space) == ["a", "b"]

    def test_it_is_refused_while_a_transaction_holds_a_message(self, space):
        importer = Importer(space)
        rows = rows_of("ab")
        plan = plan_of(planned(rows, mode=Mode.REPLACE))
        space.enqueue("Q", b"x")
        with space.transaction():
            space.dequeue("Q")
            with pytest.raises(InUseError, match="a transaction holds"):
                importer.begin(plan)
        importer.begin(plan)
        importer.load(rows)
        space.enqueue("Q", b"x")
        with space.transaction():
            space.dequeue("Q")
            with pytest.raises(InUseError, match="a transaction holds"):
                importer.publish()
        importer.publish()
        assert drain(space) == ["a", "b"]

    def test_both_have_to_fit_until_the_old_one_is_removed(self, store):
        space = store.space(messages=4)
        make_queue(space)
        for _ in range(3):
            space.enqueue("Q", b"")
        with pytest.raises(NoSpaceError):
            Importer(space).begin(plan_of(planned(rows_of("ab"), mode=Mode.REPLACE)))


class TestAppending:
    def begun(self, space, texts, **changes):
        importer = Importer(space)
        rows = rows_of(texts, **changes)
        importer.begin(plan_of(planned(rows, mode=Mode.APPEND)))
        importer.load(rows)
        return importer

    def test_messages_come_into_the_queue_after_the_publication_some_at_a_time(self, space):
        space.enqueue("Q", b"old")
        importer = self.begun(space, "abcd")
        assert importer.publish().state is Stage.MERGING
        assert [info.size for info in space.messages("Q")] == [3]
        assert importer.merge(limit=3) == 1
        assert faults_of(space) == []
        assert drain(space) == ["old", "a", "b", "c"]
        assert importer.merge(limit=3) == 0
        assert drain(space) == ["d"]
        assert faults_of(space) == []
        assert space.usage("Q").enqueued == 5
        assert count_rows(space, "message", "queue") == (0, 1)

    def test_they_keep_their_identifiers_and_stand_before_what_comes_later(self, space):
        importer = self.begun(space, "ab")
        importer.publish()
        space.enqueue("Q", b"later")
        importer.merge()
        assert [info.msgid for info in space.messages("Q")][:2] == [message_id(FOREIGN, at) for at in (101, 102)]
        assert drain(space) == ["a", "b", "later"]

    def test_nothing_is_merged_before_the_publication(self, space):
        importer = self.begun(space, "ab")
        with pytest.raises(ProtocolError, match="not published"):
            importer.merge()
        importer.abandon()
        with pytest.raises(AbortedError):
            importer.merge()

    def test_a_second_run_goes_on_with_the_merge(self, space):
        importer = self.begun(space, "abc")
        importer.publish()
        importer.merge(limit=2)
        again = Importer(space)
        assert again.begin(importer.at_work.plan).state is Stage.MERGING
        assert again.publish().state is Stage.MERGING
        assert again.merge() == 0
        assert again.merge() == 0
        assert drain(space) == ["a", "b", "c"]

    def test_all_kinds_of_messages_are_merged(self, space, store):
        now = store.clock.now()
        body = b"x" * 3_000_000
        ready = [carried_row(101, body, expires_at=now + 50 * MICROS)]
        late = [carried_row(102, b"late", until=now + 10 * MICROS, expires_at=now + 5 * MICROS)]
        kept = [carried_row(103, b"kept", consumed_at=now, consumer="me")]
        space.change_queue(queue_definition("Q", retention=-1))
        importer = Importer(space)
        importer.begin(plan_of(planned([*ready, *late], retained=kept, mode=Mode.APPEND)))
        states = ((State.READY, ready), (State.DELAYED, late), (State.CONSUMED, kept))
        importer.load_groups([(SOURCE, state, False, rows) for state, rows in states])
        importer.publish()
        while importer.merge(limit=1):
            assert faults_of(space) == []
        assert faults_of(space) == []
        store.clock.advance(11)
        assert [info.size for info in space.messages("Q")] == [len(body)]
        assert space.usage("Q").expired == 1
        assert [each.info.msgid for each in space.history("Q")] == [message_id(FOREIGN, 103)]
        assert space.dequeue("Q").body == body

    def test_a_group_is_never_merged_in_parts(self, store):
        space = store.space()
        make_queue(space, "Q", grouping=True)
        rows = [carried_row(101 + at, text.encode(), group_sequence=101 + at % 2) for at, text in enumerate("abcd")]
        importer = Importer(space)
        importer.begin(plan_of(planned(rows, queue_definition("Q", grouping=True), mode=Mode.APPEND)))
        importer.load(rows)
        importer.publish()
        assert importer.merge(limit=1) == 2
        with space.transaction():
            assert drain(space) == ["a", "c"]
        assert importer.merge(limit=1) >= 0
        importer.merge()
        assert drain(space) == ["b", "d"]
        assert faults_of(space) == []

    def test_a_queue_of_another_order_or_grouping_is_refused(self, space):
        for definition in (queue_definition("Q", order="lifo"), queue_definition("Q", grouping=True)):
            with pytest.raises(InvalidArgumentError, match="of queue 'Q' is"):
                Importer(space).begin(plan_of(planned(rows_of("a"), definition, mode=Mode.APPEND)))

    def test_a_queue_that_is_not_there_is_refused(self, store):
        with pytest.raises(BadQueueError):
            Importer(store.space()).begin(plan_of(planned(rows_of("a"), mode=Mode.APPEND)))

    def test_a_queue_that_goes_meanwhile_can_come_again(self, space):
        importer = self.begun(space, "ab")
        importer.publish()
        space.destroy_queue("Q", force=True)
        with pytest.raises(BadQueueError):
            importer.merge()
        make_queue(space, order="lifo")
        with pytest.raises(InvalidArgumentError, match="order"):
            importer.merge()
        space.destroy_queue("Q", force=True)
        make_queue(space)
        assert importer.merge() == 0
        assert drain(space) == ["a", "b"]


class TestWaiting:
    @pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
    def test_whoever_waits_for_the_queue_is_told(self, space, mode):
        importer = Importer(space)
        rows = rows_of("a")
        importer.begin(plan_of(planned(rows, mode=mode)))
        importer.load(rows)
        volume, owner, queue = importer.volume, importer.opened.owner, space.queue("Q")
        wakeup = volume.wakeups.new()
        volume.write(lambda unit: unit.waits.add(queue.id, wakeup.address, owner.id), Purpose.TIDY)
        wakeup.wait(0.01)
        importer.publish()
        importer.merge()
        assert wakeup.wait(DEADLINE)
        volume.write(lambda unit: unit.waits.remove(queue.id, wakeup.address), Purpose.TIDY)
        wakeup.close()


class TestThresholds:
    @pytest.mark.parametrize("mode", [Mode.CREATE, Mode.APPEND])
    def test_an_import_that_reaches_a_high_limit_has_its_command_started(self, store, mode, monkeypatch):
        space = store.space()
        started = []
        limit = Threshold(CapacityLimit(2, Unit.MESSAGES), CapacityLimit(0, Unit.MESSAGES), "true")
        definition = queue_definition("Q", threshold=limit)
        if mode is Mode.APPEND:
            space.create_queue(definition)
        importer = Importer(space)
        monkeypatch.setattr(importer.opened, "start", lambda _opened, claim: started.append(claim.value))
        rows = rows_of("ab")
        importer.begin(plan_of(planned(rows, definition, mode=mode)))
        importer.load(rows)
        assert started == []
        importer.publish()
        importer.merge()
        assert started == [2]


class TestNonPersistentMessages:
    @pytest.fixture
    def fast(self, store, memory_dir):
        """A queue space that has memory, and no queue."""
        return store.space(memory=1_000_000)

    def begun(self, space):
        importer = Importer(space)
        disk, memory = rows_of("ac"), [carried_row(110, b"b"), carried_row(111, b"d")]
        importer.begin(plan_of(planned(disk, memory=memory)))
        return importer, [(SOURCE, State.READY, False, disk), (SOURCE, State.READY, True, memory)]

    def test_they_come_into_memory(self, fast):
        importer, groups = self.begun(fast)
        importer.load_groups(groups)
        importer.publish()
        persistent, other = truth(fast)
        assert (len(persistent), len(other)) == (2, 2)
        assert faults_of(fast) == []
        assert drain(fast) == ["a", "c", "b", "d"]

    def test_their_room_is_kept_and_given_back(self, store, memory_dir):
        space = store.space(memory=2 * 4096)
        make_queue(space, "OTHER", delivery=Delivery.NONPERSIST)
        importer, groups = self.begun(space)
        with pytest.raises(NoSpaceError, match="memory"):
            space.enqueue("OTHER", b"")
        importer.load_groups(groups)
        importer.abandon()
        space.enqueue("OTHER", b"")
        assert faults_of(space) == []

    def test_a_queue_space_without_memory_refuses_them_with_a_sentence(self, store):
        with pytest.raises(NoSpaceError, match="which the non-persistent messages of the import need"):
            Importer(store.space()).begin(plan_of(planned(memory=rows_of("a"))))

    def test_a_batch_that_is_there_is_not_loaded_again(self, fast):
        importer, groups = self.begun(fast)
        assert importer.load_groups(groups)
        assert not importer.load_groups(groups)
        assert importer.loaded() == {("part-0", 0)}
        importer.publish()
        assert len(drain(fast)) == 4

    def test_what_memory_has_lost_is_loaded_again(self, fast):
        importer, groups = self.begun(fast)
        importer.load_groups(groups)
        opened = importer.opened
        importer.volume.write(lambda unit: manage_spaces.clear_memory(unit, opened, force=True), Purpose.ADMINISTRATION)
        with pytest.raises(ProtocolError, match="0 of 2 non-persistent"):
            importer.publish()
        importer.begin(importer.at_work.plan)
        assert importer.loaded() == frozenset()
        assert importer.load_groups(groups)
        importer.publish()
        assert faults_of(fast) == []
        assert sorted(drain(fast)) == ["a", "b", "c", "d"]

    def test_they_are_merged_too(self, fast):
        make_queue(fast)
        importer = Importer(fast)
        memory = rows_of("ab")
        importer.begin(plan_of(planned(memory=memory, mode=Mode.APPEND)))
        importer.load(memory, memory=True)
        importer.publish()
        while importer.merge(limit=1):
            assert faults_of(fast) == []
        assert faults_of(fast) == []
        assert drain(fast) == ["a", "b"]

    def test_a_replaced_queue_leaves_nothing_in_memory(self, fast):
        make_queue(fast, delivery=Delivery.NONPERSIST)
        fast.enqueue("Q", b"x")
        importer = Importer(fast)
        rows = rows_of("a")
        importer.begin(plan_of(planned(memory=rows, mode=Mode.REPLACE)))
        importer.load(rows, memory=True)
        importer.publish()
        assert importer.merge() == 0
        assert drain(fast) == ["a"]
        assert faults_of(fast) == []

    def test_others_who_look_after_the_memory_leave_them_alone(self, fast):
        importer, groups = self.begun(fast)
        importer.load_groups(groups)
        opened, now = importer.opened, importer.now
        assert not importer.volume.read(lambda unit: following.has_to_follow(unit, opened))
        importer.volume.write(lambda unit: following.let_memory_follow(unit, opened, now), Purpose.FOLLOWING)
        importer.publish()
        assert len(drain(fast)) == 4

    def test_consumed_messages_are_never_in_memory(self, fast):
        importer, _ = self.begun(fast)
        with pytest.raises(InvalidArgumentError, match="on disk only"):
            importer.load([carried_row(120, b"", consumed_at=1, consumer="c")], state=State.CONSUMED, memory=True)


class TestTimes:
    def infos(self, store, rows, times, *, order="fifo", state=State.READY):
        space = store.space()
        importer = Importer(space)
        importer.begin(plan_of(planned(rows, queue_definition("Q", order=order)), times=times))
        store.clock.advance(7)
        importer.load(rows, state=state)
        importer.publish()
        assert faults_of(space) == []
        return space, list(space.messages("Q"))

    def test_they_move_by_a_span(self, store):
        far = store.clock.now() + 1000 * MICROS
        rows = [carried_row(101, b"a", available_at=BEGAN + 1, expires_at=far)]
        _, (info,) = self.infos(store, rows, Times(TimePolicy.SHIFT, by_us=-5))
        assert (info.enqueued_us, info.available_us, info.expires_us) == (BEGAN - 5, BEGAN - 4, far - 5)

    def test_they_move_by_what_has_passed_since_a_moment(self, store):
        now = store.clock.now()
        rows = [carried_row(101, b"a", enqueued_at=now - 50, expires_at=now + 50)]
        _, (info,) = self.infos(store, rows, Times(TimePolicy.SHIFT, since_us=now - 20 * MICROS))
        assert (info.enqueued_us, info.expires_us) == (now - 50 + 20 * MICROS, now + 50 + 20 * MICROS)

    def test_those_that_count_for_the_order_move_with_them(self, store):
        rows = [
            carried_row(101, b"a", order="time", enqueued_at=BEGAN + 2),
            carried_row(102, b"b", order="time", enqueued_at=BEGAN + 1),
        ]
        space, _ = self.infos(store, rows[::-1], Times(TimePolicy.SHIFT, by_us=10), order="time")
        key = space.queue("Q").definition.order.key(priority=50, available_at=BEGAN + 11, expires_at=None, sequence=102)
        queue, attachment = space.queue("Q"), attachment_of(space)
        stored = attachment.volume.read(
            lambda unit: unit.listing.cursors(attachment.opened.space, queue, State.READY, None, 1)
        )
        assert stored[0][0] == key
        assert drain(space) == ["b", "a"]

    def test_delays_and_lifetimes_begin_again(self, store):
        now = store.clock.now()
        rows = [
            carried_row(101, b"a", available_at=BEGAN + 60 * MICROS, expires_at=BEGAN + 90 * MICROS),
            carried_row(102, b"b", enqueued_at=BEGAN + 5),
        ]
        space, infos = self.infos(store, rows, Times(TimePolicy.RECOMPUTE))
        assert [(info.state, info.enqueued_us) for info in infos] == [(State.READY, now), (State.DELAYED, now)]
        assert (infos[1].available_us, infos[1].expires_us) == (now + 60 * MICROS, now + 90 * MICROS)
        assert drain(space) == ["b"]
        store.clock.advance(60)
        assert drain(space) == ["a"]

    def test_what_a_retry_has_delayed_keeps_its_time(self, store):
        until = store.clock.now() + 30 * MICROS
        rows = [carried_row(101, b"a", until=until, retries=1)]
        _, (info,) = self.infos(store, rows, Times(TimePolicy.RECOMPUTE), state=State.DELAYED)
        assert info.available_us == until

    def test_a_shift_says_either_by_how_much_or_since_when(self):
        for how in ({}, {"by_us": 1, "since_us": 1}):
            with pytest.raises(InvalidArgumentError):
                Times(TimePolicy.SHIFT, **how)
        with pytest.raises(InvalidArgumentError):
            Times(TimePolicy.KEEP, by_us=1)
