"""What administrators do to messages that no transaction holds."""

import itertools
import re

import pytest

from qmcore.acts import disposing, looking, manage_messages
from qmcore.acts.routes import source_of
from qmcore.condition_parser import parse
from qmcore.errors import BadQueueError, InvalidArgumentError, SystemFailureError
from qmcore.message import Reason, State
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.refusals import Reason as Refusal
from qmcore.transitions import Dispose, Removal, Remove
from tests.fix_store import attachment_of, bodies_held, connection_of, drain, make_queue


def texts(space, queue="Q"):
    return [message.text for message in space.browse(queue)]


@pytest.fixture
def filled(space):
    make_queue(space, "P", order="priority,fifo", out_of_order="top,msgid")
    for number in range(5):
        space.enqueue("P", f"m{number}", priority=50, corrid=f"c{number % 2}", headers={"n": str(number)})
    return space


class TestPriority:
    def test_it_moves_the_chosen_ones_and_keeps_their_order_among_each_other(self, filled):
        assert filled.change_priority("P", 90, condition="corrid = 'c1'") == 2
        assert texts(filled, "P") == ["m1", "m3", "m0", "m2", "m4"]
        assert {info.priority for info in filled.messages("P")} == {50, 90}

    def test_a_condition_over_it_finds_each_message_once(self, filled):
        assert filled.change_priority("P", 10, condition="priority > 5") == 5
        assert filled.change_priority("P", 50) == 5
        assert texts(filled, "P") == ["m0", "m1", "m2", "m3", "m4"]

    def test_a_message_on_top_stands_where_its_priority_puts_it(self, filled):
        filled.enqueue("P", "top", top=True)
        assert filled.change_priority("P", 40, condition="header.n IS NULL") == 1
        assert texts(filled, "P")[-1] == "top"

    @pytest.mark.parametrize("wrong", [0, 101, "x", None, 5.5])
    def test_one_out_of_range_changes_nothing(self, filled, wrong):
        with pytest.raises(InvalidArgumentError):
            filled.change_priority("P", wrong)
        assert {info.priority for info in filled.messages("P")} == {50}

    def test_what_a_transaction_holds_is_not_changed(self, filled):
        with filled.transaction():
            filled.dequeue("P")
            assert filled.change_priority("P", 90) == 4
            assert filled.count("P") == 4
            filled.lock("P")
            assert filled.count("P") == 3

    def test_a_retry_delay_stays_what_it_is(self, store, clock):
        space = store.space()
        make_queue(space, "R", retries=3, retry_delay=60)
        space.enqueue("R", "x")
        with pytest.raises(ZeroDivisionError), space.transaction():
            space.dequeue("R")
            _ = 1 / 0
        assert space.change_priority("R", 90) == 1
        assert bodies_held(space, "R") == (0, 1, 0)
        clock.advance(60)
        message = space.dequeue("R")
        assert (message.priority, message.retries) == (90, 1)


class TestTimes:
    def test_messages_are_kept_back_and_released(self, filled, clock):
        assert filled.change_availability("P", 60, condition="header.n IN ('0', '1')") == 2
        assert texts(filled, "P") == ["m2", "m3", "m4"]
        assert filled.change_availability("P", 0) == 5
        assert texts(filled, "P") == ["m0", "m1", "m2", "m3", "m4"]
        assert filled.change_availability("P", clock.moment(5), condition="header.n = '4'") == 1
        clock.advance(5)
        assert filled.usage("P").ready == 5

    def test_a_queue_in_the_order_of_time_is_in_the_new_order(self, store, clock):
        space = store.space()
        make_queue(space, "T", order="time,fifo")
        for delay in (30, 20, 10):
            space.enqueue("T", str(delay), delay=delay)
        assert space.change_availability("T", 5, condition="corrid IS NULL") == 3
        clock.advance(5)
        assert drain(space, "T") == ["30", "20", "10"]

    def test_expiry_is_set_changed_and_taken_away(self, filled, clock):
        assert filled.change_expiry("P", 10) == 5
        assert filled.change_expiry("P", None, condition="header.n = '2'") == 1
        assert filled.change_expiry("P", clock.moment(100), condition="header.n = '3'") == 1
        assert filled.change_expiry("P", 0, condition="header.n = '4'") == 1
        assert filled.usage("P").messages == 4
        clock.advance(10)
        assert texts(filled, "P") == ["m2", "m3"]
        clock.advance(1000)
        assert texts(filled, "P") == ["m2"]


class TestMove:
    def test_messages_keep_everything_but_their_identifiers(self, filled, clock):
        filled.change_expiry("P", 500)
        old = {info.headers["n"]: info for info in filled.messages("P")}
        assert filled.move("P", "Q", condition="header.n > '2'") == 2
        assert texts(filled) == ["m3", "m4"]
        for info in filled.messages("Q"):
            before = old[info.headers["n"]]
            assert info.msgid != before.msgid
            assert (info.origin.queue, info.origin.msgid) == ("P", before.msgid)
            assert (info.origin.reason, info.origin.moved_us) == (Reason.ADMIN, clock.now())
            assert (info.priority, info.expires_us, info.corrid) == (before.priority, before.expires_us, before.corrid)
        usage = filled.usage("P")
        assert (usage.messages, usage.moved) == (3, 2)
        clock.advance(500)
        assert (filled.usage("Q").messages, filled.usage("Q").expired) == (0, 2)

    def test_a_delayed_message_stays_delayed(self, filled, clock):
        filled.change_availability("P", 60)
        assert filled.move("P", "Q") == 5
        assert bodies_held(filled) == (0, 5, 0)
        clock.advance(60)
        assert drain(filled) == ["m0", "m1", "m2", "m3", "m4"]

    def test_to_a_queue_that_is_absent_or_the_same_is_refused(self, filled):
        with pytest.raises(BadQueueError):
            filled.move("P", "NONE")
        with pytest.raises(InvalidArgumentError, match="already"):
            filled.move("P", "P")
        assert filled.usage("P").messages == 5

    def test_more_than_a_step_are_moved(self, store):
        space = store.space(messages=5000, pages=8000)
        for name in ("Q", "OTHER"):
            make_queue(space, name)
        space.enqueue_many("Q", [str(number) for number in range(2500)])
        assert space.move("Q", "OTHER") == 2500
        assert [message.text for message in space.dequeue_many("OTHER", 3000)] == [str(n) for n in range(2500)]


class TestRequeue:
    def test_messages_go_from_the_error_queue_back_to_where_they_came_from(self, store):
        space = store.space(error_queue="ERRORS")
        for name in ("A", "B", "ERRORS"):
            make_queue(space, name)
        for name in ("A", "B"):
            space.enqueue(name, f"of {name}")
            with pytest.raises(ZeroDivisionError), space.transaction():
                space.dequeue(name)
                _ = 1 / 0
        space.enqueue("ERRORS", "its own")
        assert space.requeue("ERRORS") == 2
        assert (texts(space, "A"), texts(space, "B"), texts(space, "ERRORS")) == (["of A"], ["of B"], ["its own"])

    def test_one_whose_queue_is_gone_stays(self, store):
        space = store.space(error_queue="ERRORS")
        for name in ("A", "ERRORS"):
            make_queue(space, name)
        space.enqueue("A", "x")
        with pytest.raises(ZeroDivisionError), space.transaction():
            space.dequeue("A")
            _ = 1 / 0
        space.destroy_queue("A")
        assert space.requeue("ERRORS") == 0
        assert texts(space, "ERRORS") == ["x"]


def test_non_persistent_messages_are_changed_too_or_alone(store, tmp_path, monkeypatch):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    space = store.space(memory=100_000)
    make_queue(space, "P", order="priority,fifo")
    make_queue(space, "Q")
    space.enqueue("P", "disk")
    space.enqueue("P", "memory", persistent=False)
    assert space.change_priority("P", 60, delivery=Delivery.NONPERSIST) == 1
    assert texts(space, "P") == ["memory", "disk"]
    assert space.change_priority("P", 70, delivery=Delivery.PERSIST) == 1
    assert texts(space, "P") == ["disk", "memory"]
    assert space.move("P", "Q") == 2
    assert sorted((info.delivery.value, info.priority) for info in space.messages("Q")) == [
        ("nonpersist", 60),
        ("persist", 70),
    ]


def cursors(space, queue, condition, state, store_number, read):
    """Return the cursors of the messages of a queue, two at a time."""
    attachment, at, parts = attachment_of(space), None, []
    while part := attachment.volume.read(
        lambda unit, at=at: read(unit, attachment.opened, store_number, queue, state, at, 2, condition)
    ):
        parts.append(part)
        at = part[-1] if read is looking.cursors else part[-1][0]
    return parts


class TestCursors:
    @pytest.mark.parametrize("condition", [None, parse("corrid = 'c1'")], ids=["all", "chosen"])
    @pytest.mark.parametrize("queue", ["P", "M"])
    def test_they_are_those_of_the_listing_a_part_at_a_time(self, store, monkeypatch, tmp_path, queue, condition):
        monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
        space = store.space(memory=4_000_000)
        make_queue(space, "P", order="priority,fifo")
        make_queue(space, "M", delivery=Delivery.NONPERSIST)
        for number in range(12):
            space.enqueue(queue, "x", priority=50 + number % 3, corrid=f"c{number % 2}", delay=5 * (number // 6))
        for store_number, state in itertools.product((0, 1), (State.READY, State.DELAYED)):
            chosen = queue, condition, state, store_number
            listed = cursors(space, *chosen, looking.listing)
            assert cursors(space, *chosen, looking.cursors) == [[at for at, _ in part] for part in listed]
            assert bool(listed) == (store_number == (queue == "M"))

    def test_to_count_a_queue_reads_no_message(self, sqlite_store):
        """SQLite tells what it runs; other stores run the same statement."""
        filled = sqlite_store.space()
        make_queue(filled, "P")
        filled.enqueue_many("P", ["x"] * 5)
        statements = []
        connection_of(filled).set_trace_callback(statements.append)
        assert filled.count("P") == 5
        assert not [statement for statement in statements if re.search(r"\bmessage\.", statement)]


@pytest.mark.parametrize(
    "act",
    [
        lambda space, told: space.change_priority("P", 7, progress=told),
        lambda space, told: space.change_availability("P", 0, progress=told),
        lambda space, told: space.change_expiry("P", None, progress=told),
        lambda space, told: space.move("P", "Q", progress=told),
    ],
)
def test_progress_is_told_how_many_have_been_changed(filled, act):
    told = []
    assert act(filled, told.append) == 5
    assert told == [5]


def test_progress_of_moving_back_counts_what_was_moved(filled):
    filled.move("P", "Q", condition="corrid = 'c1'")
    told = []
    assert filled.requeue("Q", progress=told.append) == 2
    assert told == [2]


class TestWhatIsNotWhereItWasLookedAt:
    """One of the messages is taken out twice: by then it is gone."""

    @pytest.fixture
    def removals(self, filled):
        volume, opened = attachment_of(filled).volume, attachment_of(filled).opened
        first, *others = manage_messages.choose(volume, opened, "P", None, None).by_store[0]
        queue = volume.read(opened.definitions).queue("P")
        found = [
            volume.read(lambda unit, at=at: unit.states.changeable(queue.id, at)) for at in (*others, first, first)
        ]
        return [Remove(each.holding, Removal.DISCARDED) for each in found]

    def test_a_work_fails_and_has_changed_nothing(self, filled, removals):
        volume, opened = attachment_of(filled).volume, attachment_of(filled).opened

        def discard(unit):
            disposing.dispose(unit, opened, opened.definitions(unit).queue("P"), unit, removals)

        with pytest.raises(SystemFailureError, match="a message is not where it was"):
            volume.write(discard, Purpose.ADMINISTRATION)
        assert texts(filled, "P") == ["m0", "m1", "m2", "m3", "m4"]

    def test_a_list_of_commands_is_refused_and_has_changed_nothing(self, filled, removals):
        volume, opened = attachment_of(filled).volume, attachment_of(filled).opened
        known = volume.read(opened.definitions)
        command = Dispose(opened.guard(known), source_of(known, known.queue("P")), False, removals)
        assert volume.run([command], purpose=Purpose.ADMINISTRATION).reason == Refusal.GONE
        assert texts(filled, "P") == ["m0", "m1", "m2", "m3", "m4"]
