"""What was carried away is removed many messages at a time: exactly that, and only where it is as it was."""

import pytest

from qmcore.acts.purging import CarriedMessage, remove_carried
from qmcore.bulk_rows import COLUMNS, SEQUENCE, Run
from qmcore.message import State
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from tests.fix_store import attachment_of, count_rows, drain, make_queue
from tests.importer import faults_of

PAGE = 4096
TABLES = ("message", "ready", "due", "expiring", "chunk")
_KEY, _RETRIES = COLUMNS.index("order_key"), COLUMNS.index("retries")


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(memory_dir):
    pass


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS", pages=10_000, messages=2_000, memory=2_000 * PAGE)
    make_queue(opened, "Q", retries=9, order="priority,fifo", grouping=False)
    make_queue(opened, "GROUPED", grouping=True)
    make_queue(opened, "MEMORY", delivery=Delivery.NONPERSIST, retries=9)
    make_queue(opened, "OTHER")
    return opened


def carried(space, name="Q", *states, memory=False):
    """Return the messages of a queue as an archive says where they stood, in the order of the archive."""

    def read(unit):
        known = attachment_of(space).opened.definitions(unit)
        store = unit.memory(known.space.id) if memory else unit
        for state in states or (State.READY, State.DELAYED):
            for rows in store.bulk_read.rows(known.space, known.queue(name), Run(name, state, memory, None, None, 0)):
                yield from (CarriedMessage(row[SEQUENCE], row[_KEY], row[_RETRIES]) for row in rows)

    return attachment_of(space).volume.read(lambda unit: list(read(unit)))


def removed(space, messages, name="Q", *, memory=False):
    attached = attachment_of(space)
    return attached.volume.write(
        lambda unit: remove_carried(unit, attached.opened, name, messages, memory=memory), Purpose.MESSAGES
    )


def test_all_of_it_goes_with_all_that_belongs_to_it_and_counts_as_moved(space):
    empty = count_rows(space, *TABLES)
    space.enqueue_many("Q", [b"x"] * 300)
    for number in range(20):
        space.enqueue("Q", b"x" * 10_000, expires_in=100 + number % 7, priority=1 + number)
        space.enqueue("Q", b"x", delay=50, expires_in=200)
    space.enqueue("Q", b"x" * (3 * 2**20))
    assert removed(space, carried(space)) == 341
    assert count_rows(space, *TABLES) == empty
    usage = space.usage("Q")
    assert (usage.messages, usage.pages, usage.size, usage.moved, usage.dequeued) == (0, 0, 0, 341, 0)
    assert faults_of(space) == []
    assert removed(space, []) == 0


def test_a_second_time_nothing_is_removed(space):
    space.enqueue_many("Q", [b"x"] * 10)
    messages = carried(space)
    assert [removed(space, messages), removed(space, messages)] == [10, 0]
    assert space.usage("Q").moved == 10


def test_what_is_new_stays_wherever_it_stands(space):
    for number in range(5):
        space.enqueue("Q", f"old {number}", priority=10 * (1 + number))
    messages = carried(space)
    for number in range(5):
        space.enqueue("Q", f"new {number}", priority=5 + 10 * number)
    assert removed(space, messages) == 5
    assert drain(space) == [f"new {number}" for number in reversed(range(5))]


def test_what_was_changed_tried_dequeued_moved_or_is_held_stays_as_it_is(space):
    ids = {name: space.enqueue("Q", name) for name in ("gone", "tried", "raised", "moved", "held", "same")}
    messages = carried(space)
    assert space.dequeue("Q", msgid=ids["gone"])
    transaction = space.transaction()
    with transaction:
        assert space.dequeue("Q", msgid=ids["tried"])
        transaction.rollback()
    space.change_priority("Q", 90, condition=f"msgid = '{ids['raised']}'")
    space.move("Q", "OTHER", condition=f"msgid = '{ids['moved']}'")
    with space.transaction():
        assert space.dequeue("Q", msgid=ids["held"])
        before = [space.usage("Q"), *space.messages("Q")]
        assert removed(space, messages) == 1
        assert [each for each in before[1:] if each.msgid != ids["same"]] == list(space.messages("Q"))
    assert drain(space) == ["raised", "tried"]
    assert drain(space, "OTHER") == ["moved"]
    assert faults_of(space) == []


def test_what_became_available_meanwhile_goes_too(space, clock):
    for _ in range(3):
        space.enqueue("Q", b"x", delay=10)
    space.enqueue("Q", b"y", delay=1000)
    messages = carried(space)
    clock.advance(20)
    assert space.dequeue("Q").body == b"x"
    assert removed(space, messages) == 3
    assert space.usage("Q").messages == 0
    assert faults_of(space) == []


def test_some_of_a_group_can_go(space):
    with space.transaction():
        space.enqueue_many("GROUPED", ["a", "b", "c"])
    messages = carried(space, "GROUPED")
    assert removed(space, messages[:2], "GROUPED") == 2
    assert drain(space, "GROUPED") == ["c"]
    assert faults_of(space) == []


def test_non_persistent_messages_go_from_memory_alone(space):
    for _ in range(50):
        space.enqueue("MEMORY", b"x", expires_in=100)
    space.enqueue("MEMORY", b"on disk", persistent=True)
    messages = carried(space, "MEMORY", memory=True)
    assert len(messages) == 50
    assert removed(space, messages, "MEMORY") == 0
    assert removed(space, messages, "MEMORY", memory=True) == 50
    assert drain(space, "MEMORY") == ["on disk"]
    assert faults_of(space) == []


def test_what_was_kept_after_it_was_consumed_stays(space):
    make_queue(space, "KEPT", retention=-1)
    space.enqueue("KEPT", b"x")
    messages = carried(space, "KEPT")
    space.dequeue("KEPT")
    assert removed(space, messages, "KEPT") == 0
    assert len(list(space.history("KEPT"))) == 1
