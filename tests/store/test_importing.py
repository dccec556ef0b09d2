"""Imports: nobody sees a part of one, and each message arrives once, in its place, with all that it had."""

from __future__ import annotations

import pytest

from qmcore.acts.importing import Stage
from qmcore.bulk_rows import Adopted
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    ProtocolError,
    Resource,
)
from qmcore.message import State, message_id
from qmcore.order import QueueOrder, key_before, key_on_top
from tests.fix_store import count_rows, drain, make_queue, queue_definition
from tests.importer import (
    BEGAN,
    FOREIGN,
    Importer,
    carried_row,
    changed,
    faults_of,
    plan_of,
    planned,
    rows_of,
    use_of,
)


@pytest.fixture
def empty(store):
    """A queue space without a queue."""
    return store.space()


class TestAnImport:
    def test_its_messages_are_there_in_their_order_after_it_was_published(self, empty):
        importer = Importer(empty)
        importer.all_of(rows_of("abc"))
        assert [info.queue for info in empty.messages("Q")] == ["Q"] * 3
        assert drain(empty) == ["a", "b", "c"]
        assert faults_of(empty) == []

    def test_nobody_sees_its_queues_and_messages_before_that(self, empty):
        importer = Importer(empty)
        rows = rows_of("ab")
        importer.begin(plan_of(planned(rows)))
        importer.load(rows)
        assert empty.queues() == []
        for use in (empty.queue, empty.usage, lambda name: list(empty.messages(name)), empty.dequeue):
            with pytest.raises(BadQueueError):
                use("Q")
        with pytest.raises(BadQueueError):
            empty.enqueue("Q", b"")

    def test_its_messages_keep_their_identifiers(self, empty):
        importer = Importer(empty)
        importer.all_of(rows_of("ab"))
        assert [info.msgid for info in empty.messages("Q")] == [message_id(FOREIGN, 101), message_id(FOREIGN, 102)]
        message = empty.dequeue("Q", msgid=message_id(FOREIGN, 102))
        assert message is not None
        assert message.text == "b"

    def test_identifiers_that_the_archive_had_adopted_stay_valid_too(self, empty):
        importer = Importer(empty)
        rows = rows_of("ab")
        older = "e" * 16
        plan = plan_of(planned(rows), adopted=(Adopted(older, 1, 1, 100), Adopted(FOREIGN, 102, 102, 0)))
        importer.begin(plan)
        importer.load(rows)
        importer.publish()
        assert [info.msgid for info in empty.messages("Q")] == [message_id(older, 1), message_id(FOREIGN, 102)]

    def test_what_is_enqueued_later_comes_after_and_has_numbers_of_its_own(self, empty):
        importer = Importer(empty)
        rows = rows_of("ab")
        importer.begin(plan_of(planned(rows)))
        make_queue(empty, "OTHER")
        meanwhile = empty.enqueue("OTHER", b"x")
        importer.load(rows)
        importer.publish()
        later = empty.enqueue("Q", b"c")
        assert int(meanwhile[16:], 16) > int(message_id(FOREIGN, 200)[16:], 16)
        assert drain(empty) == ["a", "b", "c"]
        assert len({meanwhile, later}) == 2

    def test_its_numbers_follow_those_that_were_given(self, space):
        for _ in range(300):
            space.enqueue("Q", b"")
        importer = Importer(space)
        job = importer.all_of(rows_of("ab"), queue_definition("NEW"))
        assert job.shift >= 200
        assert drain(space, "NEW") == ["a", "b"]

    def test_all_that_a_message_has_comes_with_it(self, empty):
        row = carried_row(
            150,
            b"body",
            priority=7,
            urcode=-3,
            appkey=9,
            corrid=b"\0corr",
            reply_queue="R",
            failure_queue="F",
            error_queue="E",
            delivery_asked="persist",
            reply_delivery="nonpersist",
            client_id="me",
            type="STRING",
            subtype="sub",
            origin_queue="O",
            origin_msgid="9" * 32,
            origin_reason="admin",
            origin_error="why",
            moved_at=BEGAN - 5,
            headers='{"k":"v"}',
            retries=2,
        )
        importer = Importer(empty)
        importer.all_of([row], queue_definition("Q", retries=5))
        (info,) = empty.messages("Q")
        assert (info.priority, info.urcode, info.appkey, info.corrid) == (7, -3, 9, b"\0corr")
        assert (info.reply_queue, info.failure_queue, info.error_queue) == ("R", "F", "E")
        assert (info.delivery_asked.value, info.reply_delivery.value) == ("persist", "nonpersist")
        assert (info.client_id, info.type, info.subtype, info.headers) == ("me", "STRING", "sub", {"k": "v"})
        assert (info.origin.queue, info.origin.msgid, info.origin.reason.value) == ("O", "9" * 32, "admin")
        assert (info.origin.error, info.origin.moved_us) == ("why", BEGAN - 5)
        assert (info.retries, info.enqueued_us, info.size) == (2, BEGAN, 4)
        assert faults_of(empty) == []

    def test_its_queues_are_defined_and_stopped_as_planned(self, empty):
        definition = queue_definition("NEW", order="priority,fifo", out_of_order="top", retries=4, expiration=60)
        importer = Importer(empty)
        importer.begin(plan_of(planned((), definition, enqueue_enabled=False, dequeue_enabled=False), first=1, last=0))
        importer.publish()
        queue = empty.queue("NEW")
        assert queue.definition == definition
        assert (queue.enqueue_enabled, queue.dequeue_enabled) == (False, False)

    def test_messages_with_a_body_of_their_own_or_none_are_told_apart(self, empty):
        importer = Importer(empty)
        importer.all_of([carried_row(101, None), carried_row(102, b"")])
        assert [empty.dequeue("Q").body for _ in range(2)] == [None, b""]

    def test_large_bodies_come_whole_and_go_without_a_trace(self, empty):
        body = bytes(range(256)) * 10_000
        importer = Importer(empty)
        importer.all_of([carried_row(101, body), carried_row(102, b"small")])
        assert importer.rows("chunk") == 3
        assert faults_of(empty) == []
        assert empty.dequeue("Q").body == body
        assert importer.rows("chunk") == 0

    def test_delayed_messages_wait_until_their_time(self, empty, store):
        row = carried_row(101, b"late", until=store.clock.now() + 60_000_000)
        importer = Importer(empty)
        importer.all_of([row], state=State.DELAYED)
        assert drain(empty) == []
        store.clock.advance(61)
        assert drain(empty) == ["late"]

    def test_a_delay_that_the_sender_asked_for_is_told_from_one_by_a_consumer(self, empty, store):
        asked, snoozed, tried = (store.clock.now() + seconds * 1_000_000 for seconds in (90, 60, 30))
        rows = [
            carried_row(101, b"asked", until=asked, available_at=asked),
            carried_row(102, b"snoozed", until=snoozed),
        ]
        rows.append(carried_row(103, b"tried", until=tried, available_at=tried, retries=1))
        importer = Importer(empty)
        importer.all_of(rows, state=State.DELAYED)
        assert empty.given_back_until("Q") == snoozed
        store.clock.advance(60)
        assert sorted(drain(empty)) == ["snoozed", "tried"]
        assert empty.given_back_until("Q") is None

    def test_delayed_messages_whose_time_has_passed_come_at_once(self, empty, store):
        importer = Importer(empty)
        importer.all_of([carried_row(101, b"late", until=store.clock.now() - 1)], state=State.DELAYED)
        assert drain(empty) == ["late"]

    def test_messages_that_expire_are_loaded_and_expire_as_ever(self, empty, store):
        now = store.clock.now()
        importer = Importer(empty)
        importer.all_of(
            [carried_row(101, b"old", expires_at=now - 1), carried_row(102, b"new", expires_at=now + 10**6)]
        )
        assert faults_of(empty) == []
        assert drain(empty) == ["new"]
        assert empty.usage("Q").expired == 1

    def test_held_messages_are_ready(self, empty):
        importer = Importer(empty)
        importer.all_of(rows_of("a"), state=State.HELD)
        assert drain(empty) == ["a"]

    def test_consumed_messages_come_into_the_history(self, empty):
        kept = [carried_row(101, b"old", consumed_at=BEGAN + 9, consumer="reader 5", transaction=77)]
        rows = rows_of("b", 102)
        importer = Importer(empty)
        importer.begin(plan_of(planned(rows, queue_definition("Q", retention=-1), retained=kept)))
        importer.load_groups(
            [(("THERE", "Q"), State.CONSUMED, False, kept), (("THERE", "Q"), State.READY, False, rows)]
        )
        importer.publish()
        (consumed,) = empty.history("Q")
        assert (consumed.consumed_us, consumed.consumer, consumed.transaction) == (BEGAN + 9, "reader 5", 77)
        assert empty.recall("Q", message_id(FOREIGN, 101)).text == "old"
        assert empty.usage("Q").messages == 1
        assert faults_of(empty) == []

    def test_messages_of_a_group_stay_together(self, empty):
        rows = [carried_row(101 + at, text.encode(), group_sequence=101) for at, text in enumerate("ab")]
        rows.append(carried_row(103, b"c"))
        importer = Importer(empty)
        importer.all_of(rows, queue_definition("Q", grouping=True))
        with empty.transaction():
            assert empty.dequeue("Q").text == "a"
            assert {info.text for info in [empty.dequeue("Q", transactional=False)]} == {"c"}
            assert empty.dequeue("Q").text == "b"

    def test_messages_on_top_and_before_others_keep_their_places(self, empty):
        order = QueueOrder.parse("fifo")
        last = order.key(priority=50, available_at=0, expires_at=None, sequence=104)
        rows = [
            carried_row(102, b"top", order_key=key_on_top(102)),
            # What it stood before came long before all that is carried.
            carried_row(103, b"before", order_key=key_before(key_on_top(3), 103)),
            carried_row(101, b"first"),
            carried_row(105, b"before last", order_key=key_before(last, 105)),
            carried_row(104, b"last"),
        ]
        importer = Importer(empty)
        importer.all_of(rows, queue_definition("Q", out_of_order="top,msgid"))
        assert faults_of(empty) == []
        assert drain(empty) == ["top", "before", "first", "before last", "last"]

    @pytest.mark.parametrize(
        ("order", "wanted"),
        [("priority,fifo", "cab"), ("lifo", "cba"), ("time", "abc"), ("expiration", "cba")],
    )
    def test_the_order_of_the_queue_holds_among_old_and_new(self, empty, store, order, wanted):
        now = store.clock.now()
        rows = [
            carried_row(
                101 + at, text.encode(), order=order, priority=10 + 90 * (text == "c"), expires_at=now + 10**9 - at
            )
            for at, text in enumerate("abc")
        ]
        rows.sort(key=lambda row: row[1])
        importer = Importer(empty)
        importer.all_of(rows, queue_definition("Q", order=order))
        assert "".join(drain(empty)) == wanted


class TestBatches:
    def test_a_batch_that_is_there_is_not_loaded_again(self, empty):
        rows = rows_of("ab")
        importer = Importer(empty)
        importer.begin(plan_of(planned(rows)))
        assert importer.load(rows)
        assert not importer.load(rows)
        importer.publish()
        assert drain(empty) == ["a", "b"]

    def test_it_is_told_which_batches_are_there_and_how_much_that_is(self, empty):
        rows = rows_of("ab")
        importer = Importer(empty)
        plan = plan_of(planned(rows))
        importer.begin(plan)
        importer.load(rows[:1], batch=("part-7", 0))
        assert importer.loaded() == {("part-7", 0)}
        assert importer.begin(plan).loaded == use_of(rows[:1])

    def test_an_import_goes_on_where_it_was(self, empty):
        rows = rows_of("abc")
        plan = plan_of(planned(rows))
        importer = Importer(empty)
        began = importer.begin(plan)
        importer.load(rows[:2])
        again = Importer(empty)
        assert again.begin(plan).id == began.id
        assert again.load(rows[2:], batch=("part-0", 2))
        again.publish()
        assert drain(empty) == ["a", "b", "c"]

    def test_an_attempt_after_the_publication_is_refused(self, empty):
        rows = rows_of("ab")
        importer = Importer(empty)
        importer.all_of(rows)
        drain(empty)
        with pytest.raises(AbortedError, match="is published"):
            importer.load(rows)
        assert drain(empty) == []

    def test_an_attempt_after_the_end_is_refused(self, empty):
        rows = rows_of("abc")
        importer = Importer(empty)
        importer.begin(plan_of(planned(rows)))
        importer.load(rows)
        assert importer.abandon(limit=2) > 0
        with pytest.raises(AbortedError, match="was given up"):
            importer.load(rows, batch=("part-0", 9))
        assert importer.abandon() == 0
        with pytest.raises(AbortedError, match="was given up"):
            importer.load(rows, batch=("part-0", 9))

    def test_rows_with_numbers_that_were_not_planned_are_refused(self, empty):
        importer = Importer(empty)
        importer.begin(plan_of(planned(rows_of("a"))))
        with pytest.raises(InvalidArgumentError, match="numbers from 900"):
            importer.load(rows_of("a", 900))
        with pytest.raises(InvalidArgumentError, match="not in the plan"):
            importer.load(rows_of("a"), source=("THERE", "OTHER"))


class TestPublication:
    def test_what_is_not_complete_is_not_published(self, empty):
        rows = rows_of("abc")
        importer = Importer(empty)
        importer.begin(plan_of(planned(rows)))
        importer.load(rows[:2])
        with pytest.raises(ProtocolError, match="has 2 of 3 messages"):
            importer.publish()
        assert empty.queues() == []

    def test_what_has_other_bytes_than_planned_is_not_published(self, empty):
        importer = Importer(empty)
        importer.begin(plan_of(planned(rows_of(["abc"]))))
        importer.load(rows_of(["abcd"]))
        with pytest.raises(ProtocolError, match="other pages or bytes"):
            importer.publish()

    def test_a_second_time_does_nothing(self, empty):
        importer = Importer(empty)
        first = importer.all_of(rows_of("ab"))
        assert importer.publish() == first
        assert first.state is Stage.DONE

    def test_it_leaves_no_record_of_batches(self, empty):
        importer = Importer(empty)
        importer.all_of(rows_of("ab"))
        assert importer.rows("import_batch") == 0
        assert [job.state for job in importer.jobs()] == [Stage.DONE]

    def test_a_queue_that_was_created_meanwhile_stands_in_the_way(self, empty):
        importer = Importer(empty)
        rows = rows_of("ab")
        importer.begin(plan_of(planned(rows)))
        importer.load(rows)
        make_queue(empty, "Q")
        with pytest.raises(InUseError, match="was created while"):
            importer.publish()
        empty.destroy_queue("Q", force=True)
        importer.publish()
        assert drain(empty) == ["a", "b"]


class TestRefusals:
    def test_a_queue_that_is_there_is_not_created(self, space):
        with pytest.raises(InvalidArgumentError, match="'Q' exists already"):
            Importer(space).begin(plan_of(planned(rows_of("a"))))

    def test_what_was_imported_before_is_refused_unless_it_is_wanted_again(self, empty):
        importer = Importer(empty)
        rows = rows_of("a")
        importer.all_of(rows)
        second = plan_of(planned(rows, queue_definition("COPY")))
        with pytest.raises(InvalidArgumentError, match="was imported into this queue space before"):
            importer.begin(second)
        importer.begin(changed(second, again=True))
        importer.load(rows)
        importer.publish()
        (first,), (second,) = (list(empty.messages(name)) for name in ("Q", "COPY"))
        assert first.msgid == second.msgid == message_id(FOREIGN, 101)
        assert drain(empty, "COPY") == ["a"]
        assert drain(empty, "Q") == ["a"]

    def test_an_import_that_is_under_way_is_not_begun_in_another_way(self, empty):
        importer = Importer(empty)
        plan = plan_of(planned(rows_of("a")))
        importer.begin(plan)
        for other in (
            changed(plan, again=True),
            changed(plan, queues=(planned(rows_of("a"), queue_definition("COPY")),)),
            changed(plan, archive="b" * 32),
        ):
            with pytest.raises(InUseError, match="is under way"):
                importer.begin(other)

    def test_one_that_is_being_given_up_is_neither_begun_nor_resumed(self, empty):
        importer = Importer(empty)
        rows = rows_of("abc")
        plan = plan_of(planned(rows))
        importer.begin(plan)
        importer.load(rows)
        importer.abandon(limit=1)
        with pytest.raises(InUseError, match="was given up and is not removed yet"):
            importer.begin(plan)
        while importer.abandon(limit=1):
            pass
        importer.begin(plan)
        importer.load(rows)
        importer.publish()
        assert drain(empty) == ["a", "b", "c"]

    def test_more_messages_than_the_queue_space_may_have_are_refused_before_anything(self, store):
        space = store.space(messages=3)
        importer = Importer(space)
        rows = rows_of("abcd")
        with pytest.raises(NoSpaceError) as refusal:
            importer.begin(plan_of(planned(rows)))
        assert (refusal.value.resource, refusal.value.used, refusal.value.limit) == (Resource.MESSAGES, 0, 3)
        assert refusal.value.wanted == 4
        assert count_rows(space, "import_job", "queue") == (0, 0)

    def test_more_pages_than_there_are_are_refused_before_anything(self, store):
        space = store.space(pages=28, queues=5)
        with pytest.raises(NoSpaceError) as refusal:
            Importer(space).begin(plan_of(planned(rows_of(["x" * 200_000]))))
        assert (refusal.value.resource, refusal.value.limit) == (Resource.PAGES, 22)

    def test_more_queues_than_there_may_be_are_refused_before_anything(self, store):
        space = store.space(queues=2)
        make_queue(space, "ONE")
        plan = plan_of(planned(source="A"), planned(source="B"))
        with pytest.raises(NoSpaceError) as refusal:
            Importer(space).begin(plan)
        assert (refusal.value.resource, refusal.value.used, refusal.value.wanted) == (Resource.QUEUES, 1, 2)

    def test_the_room_of_an_import_is_nobody_elses(self, store):
        space = store.space(queues=2, messages=3)
        make_queue(space, "ONE")
        importer = Importer(space)
        importer.begin(plan_of(planned(rows_of("ab"))))
        space.enqueue("ONE", b"")
        with pytest.raises(NoSpaceError, match="messages"):
            space.enqueue("ONE", b"")
        with pytest.raises(NoSpaceError, match="queues"):
            make_queue(space, "TWO")
        assert importer.abandon() == 0
        space.enqueue("ONE", b"")
        make_queue(space, "TWO")
        assert faults_of(space) == []

    def test_two_queue_spaces_of_an_archive_are_not_imported_at_once(self):
        one = planned(source="A")
        with pytest.raises(InvalidArgumentError, match="one queue space"):
            plan_of(one, type(one)(source_space="ELSEWHERE", source="B", definition=queue_definition("B")))

    def test_two_queues_do_not_become_one(self):
        with pytest.raises(InvalidArgumentError, match="twice"):
            plan_of(planned(source="A"), planned((), queue_definition("A"), source="B"))


class TestAbandoning:
    def test_nothing_is_left_of_an_import_that_was_given_up(self, store, empty):
        before = count_rows(empty, *_TABLES)
        rows = [*rows_of("ab"), carried_row(110, b"x" * 3_000_000), carried_row(111, b"e", expires_at=BEGAN)]
        late = [carried_row(120, b"d", until=BEGAN)]
        kept = [carried_row(130, b"k", consumed_at=BEGAN, consumer="c")]
        importer = Importer(empty)
        importer.begin(plan_of(planned([*rows, *late], retained=kept)))
        importer.load_groups(
            [
                (("THERE", "Q"), state, False, each)
                for state, each in ((State.READY, rows), (State.DELAYED, late), (State.CONSUMED, kept))
            ]
        )
        left = [importer.abandon(limit=2) for _ in range(4)]
        assert left == sorted(left, reverse=True)
        assert left[-1] == 0
        assert count_rows(empty, *_TABLES) == before
        usage = store.device.space_usage("SPACE")
        assert (usage.messages, usage.pages, usage.queues) == (0, 0, 0)
        assert faults_of(empty) == []

    def test_what_was_published_is_not_given_up(self, empty):
        importer = Importer(empty)
        importer.all_of(rows_of("a"))
        with pytest.raises(ProtocolError, match="was published"):
            importer.abandon()

    def test_a_queue_space_is_destroyed_with_its_imports(self, empty, store):
        importer = Importer(empty)
        rows = rows_of("ab")
        importer.begin(plan_of(planned(rows)))
        importer.load(rows)
        volume = importer.volume
        empty.close()
        store.device.destroy_space("SPACE", force=True)
        assert count_rows(volume, *_TABLES) == (0,) * len(_TABLES)


_TABLES = ("message", "ready", "due", "expiring", "history", "chunk", "queue", "import_job", "import_batch")
