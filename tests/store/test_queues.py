"""Queues and queue spaces: made, changed by others, in use, and gone."""

from pathlib import Path

import pytest

from qmcore.errors import (
    BadQueueError,
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    NotOpenError,
    Resource,
)
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.purpose import Purpose
from qmstorage import queues
from tests.fix_store import (
    MovableClock,
    attachment_of,
    bodies_held,
    count_rows,
    drain,
    make_queue,
    queue_definition,
    space_definition,
)


class TestQueues:
    def test_a_queue_is_as_it_was_defined(self, space):
        high = parse_high("80%")
        wanted = queue_definition(
            "FULL",
            order="priority,time,lifo",
            out_of_order="top,msgid",
            retries=7,
            retry_delay=30,
            threshold=Threshold(high, parse_low("10%", high), "date >> /tmp/full"),
            expiration=3600,
        )
        made = space.create_queue(wanted)
        assert made.definition == wanted
        assert space.queue("FULL") == made
        assert [queue.name for queue in space.queues()] == ["FULL", "Q"]

    def test_a_name_is_taken_once(self, space):
        with pytest.raises(InvalidArgumentError, match="'Q' exists already in queue space 'SPACE'"):
            make_queue(space, "Q", order="lifo")
        assert str(space.queue("Q").definition.order) == "fifo"

    def test_names_that_differ_in_capitals_are_different(self, space):
        make_queue(space, "q")
        space.enqueue("q", "small")
        assert (drain(space, "Q"), drain(space, "q")) == ([], ["small"])

    def test_queues_of_two_queue_spaces_have_nothing_to_do_with_each_other(self, store, space):
        other = store.space("OTHER")
        make_queue(other, "Q", order="lifo")
        space.enqueue("Q", "here")
        other.enqueue("Q", "there")
        assert (drain(space), drain(other)) == (["here"], ["there"])

    def test_a_queue_that_is_destroyed_is_gone(self, space):
        space.destroy_queue("Q")
        assert space.queues() == []
        with pytest.raises(BadQueueError):
            space.enqueue("Q", b"")
        with pytest.raises(BadQueueError):
            space.destroy_queue("Q")

    def test_a_queue_with_messages_is_in_use(self, space):
        space.enqueue("Q", b"one")
        space.enqueue("Q", b"two", delay=10)
        with pytest.raises(InUseError, match="queue 'Q' holds 2 messages"):
            space.destroy_queue("Q")
        assert space.usage("Q").messages == 2

    @pytest.mark.parametrize("how", [{"purge": True}, {"force": True}])
    def test_its_messages_may_be_given_up_with_it(self, store, space, how):
        make_queue(space, "KEPT")
        space.enqueue("KEPT", b"kept")
        for text in "abc":
            space.enqueue("Q", text, corrid="c", expires_in=10)
        space.enqueue("Q", "late", delay=10)
        space.destroy_queue("Q", **how)
        usage = store.device.space_usage("SPACE")
        assert (usage.queues, usage.messages, usage.pages) == (1, 1, 1)
        make_queue(space, "Q")
        assert bodies_held(space) == (0, 0, 0)
        assert space.dequeue("Q", corrid="c") is None
        assert drain(space, "KEPT") == ["kept"]

    def test_messages_that_have_expired_do_not_keep_a_queue_in_use(self, space, clock):
        space.enqueue("Q", b"old", expires_in=10)
        clock.advance(10)
        space.destroy_queue("Q")
        assert space.queues() == []

    @pytest.mark.parametrize("how", [{}, {"purge": True}, {"force": True}])
    def test_a_queue_whose_message_a_transaction_holds_is_in_use_whatever_is_said(self, space, how):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            with pytest.raises(InUseError, match="a transaction holds a message of queue 'Q'"):
                space.destroy_queue("Q", **how)
            transaction.rollback()
        assert drain(space) == ["x"]

    def test_a_queue_to_which_others_are_attached_is_in_use(self, file_store):
        space = file_store.space()
        make_queue(space)
        with file_store.another().open_space("SPACE", role="forwarder"):
            with pytest.raises(InUseError, match=r"forwarder [0-9]+ is attached"):
                space.destroy_queue("Q")
            space.destroy_queue("Q", force=True)
        assert space.queues() == []

    def test_when_the_others_are_gone_it_is_not(self, file_store):
        space = file_store.space()
        make_queue(space)
        file_store.another().open_space("SPACE").close()
        space.destroy_queue("Q")


class TestChangesByOthers:
    def test_a_queue_that_another_handle_creates_is_there(self, file_store):
        space = file_store.space()
        other = file_store.another().open_space("SPACE")
        with pytest.raises(BadQueueError):
            other.enqueue("NEW", b"")
        make_queue(space, "NEW")
        other.enqueue("NEW", "x")
        assert drain(space, "NEW") == ["x"]

    def test_a_queue_that_another_handle_destroys_is_gone(self, file_store):
        space = file_store.space()
        make_queue(space)
        other = file_store.another().open_space("SPACE")
        other.enqueue("Q", b"")
        space.destroy_queue("Q", force=True)
        with pytest.raises(BadQueueError):
            other.enqueue("Q", b"")
        with pytest.raises(BadQueueError):
            other.dequeue("Q")

    def test_a_change_has_only_what_changed_read_again(self, file_store, monkeypatch):
        space = file_store.space(queues=50)
        other = file_store.another().open_space("SPACE")
        for number in range(40):
            make_queue(space, f"Q{number}")
        assert len(other.queues()) == 40
        read = []
        kept = queues.queue_of
        monkeypatch.setattr(queues, "queue_of", lambda row: read.append(row[2]) or kept(row))
        make_queue(space, "NEW", error_queue="Q1")
        space.destroy_queue("Q7", force=True)
        space.stop_queue("Q3")
        read.clear()
        names = [queue.name for queue in other.queues()]
        assert sorted(read) == ["NEW", "Q3"]
        assert names == sorted({*(f"Q{number}" for number in range(40)), "NEW"} - {"Q7"})
        assert not other.queue("Q3").enqueue_enabled

    def test_a_queue_that_is_made_again_is_a_new_one(self, file_store):
        space = file_store.space()
        make_queue(space)
        other = file_store.another().open_space("SPACE")
        other.enqueue("Q", b"")
        space.destroy_queue("Q", force=True)
        make_queue(space, "Q", order="lifo", retries=5)
        for text in "ab":
            other.enqueue("Q", text)
        assert drain(space) == ["b", "a"]
        assert other.queue("Q").definition.retries == 5

    def test_a_queue_that_is_destroyed_while_a_wait_looks_for_its_number_finds_no_successor(self, file_store):
        space = file_store.space()
        old = make_queue(space)
        space.destroy_queue("Q")
        assert make_queue(space, "Q").id != old.id

    @pytest.mark.parametrize("names", [(), ("Q",), ("Q", "R"), ("Q", "R", "S")])
    def test_a_queue_space_that_is_made_again_is_not_taken_for_the_old_one(self, file_store, names):
        space = file_store.space()
        for name in ("Q", "R"):
            make_queue(space, name)
        other = file_store.another().open_space("SPACE")
        other.enqueue("Q", b"")
        file_store.device.destroy_space("SPACE", force=True)
        space.close()
        again = file_store.space()
        for name in names:
            make_queue(again, name)
        with pytest.raises(BadResourceError, match="there is no queue space 'SPACE'"):
            other.enqueue("Q", b"lost?")
        with pytest.raises(BadResourceError):
            other.dequeue("Q")
        assert all(again.usage(name).enqueued == 0 for name in names)
        assert file_store.device.space_usage("SPACE").messages == 0

    def test_a_definition_that_was_not_committed_is_not_remembered(self, file_store):
        """Someone reads definitions in a database transaction that fails; the next change gets the same number."""
        space = file_store.space()
        other = file_store.another().open_space("SPACE")
        volume, opened = attachment_of(space).volume, attachment_of(space).opened

        def create_read_and_fail(unit):
            known = opened.definitions(unit)
            unit.queues.add(known.space.id, queue_definition("NEVER"), 0)
            assert "NEVER" in opened.definitions(unit).queues
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            volume.write(create_read_and_fail, Purpose.ADMINISTRATION)
        make_queue(other, "REAL")
        assert [queue.name for queue in space.queues()] == ["REAL"]
        with pytest.raises(BadQueueError):
            space.enqueue("NEVER", b"")


class TestQueueSpaces:
    def test_a_queue_space_is_as_it_was_defined(self, store):
        wanted = space_definition("FULL", error_queue="E", pages=104, memory=0, actions=7, overflow=9)
        made = store.device.create_space(wanted)
        assert made.definition == wanted
        assert store.device.space("FULL") == made
        assert [space.name for space in store.device.spaces()] == ["FULL"]
        assert store.device.open_space("FULL").definition == wanted

    def test_its_pages_are_rounded_down_to_a_multiple_of_four(self, store):
        assert store.device.create_space(space_definition("S", pages=103)).definition.pages == 100

    def test_a_name_is_taken_once(self, store, space):
        with pytest.raises(InvalidArgumentError, match="'SPACE' exists already"):
            store.device.create_space(space_definition())
        assert len(store.device.table_of_contents()) == 3

    @pytest.mark.parametrize("name", ["NONE", "space", ""])
    def test_one_that_is_not_there_is_named(self, store, space, name):
        for act in (store.device.open_space, store.device.space, store.device.space_usage, store.device.destroy_space):
            with pytest.raises((BadResourceError, InvalidArgumentError)):
                act(name)

    def test_one_that_somebody_has_open_is_in_use(self, store, space):
        with pytest.raises(InUseError, match="queue space 'SPACE' has 1 attached process: application"):
            store.device.destroy_space("SPACE")
        space.close()
        store.device.destroy_space("SPACE")
        assert store.device.spaces() == []
        assert len(store.device.table_of_contents()) == 2

    def test_one_that_holds_messages_is_in_use(self, store, space):
        space.enqueue("Q", b"")
        space.close()
        with pytest.raises(InUseError, match="queue space 'SPACE' holds 1 message"):
            store.device.destroy_space("SPACE")
        store.device.destroy_space("SPACE", force=True)
        with pytest.raises(BadResourceError):
            store.device.open_space("SPACE")

    def test_its_pages_are_free_again(self, store):
        whole = store.device.free_ranges(0)
        store.space("ONE").close()
        store.space("TWO").close()
        store.device.destroy_space("ONE")
        assert store.device.free_ranges(0) != whole
        store.device.destroy_space("TWO")
        assert store.device.free_ranges(0) == whole

    def test_nothing_of_it_is_found_in_its_successor(self, store, clock):
        for text in ("one", "two"):
            space = store.space()
            make_queue(space, retries=3)
            assert bodies_held(space) == (0, 0, 0)
            msgid = space.enqueue("Q", text, corrid="c", expires_in=10)
            assert space.dequeue("Q", msgid=msgid).text == text
            space.enqueue("Q", text, delay=5)
            space.close()
            store.device.destroy_space("SPACE", force=True)
        assert set(count_rows(store.device.volume_of(store.device.path), *TABLES)) == {0}

    def test_what_it_uses_is_told(self, store, space):
        space.enqueue("Q", bytes(5000))
        usage = store.device.space_usage("SPACE")
        assert (usage.queues, usage.processes, usage.messages, usage.pages) == (1, 1, 1, 2)


TABLES = [
    *("space", "queue", "message", "ready", "due", "expiring", "held", "history"),
    *("counter", "highest", "trans", "owner", "waiter", "extent"),
]


class TestClosed:
    def test_a_closed_queue_space_takes_nothing(self, space):
        space.close()
        space.close()
        acts = (
            lambda: space.enqueue("Q", b""),
            lambda: space.dequeue("Q"),
            lambda: space.dequeue("Q", wait=1),
            space.transaction,
            space.queues,
            lambda: space.usage("Q"),
            lambda: list(space.messages("Q")),
            lambda: make_queue(space, "R"),
            lambda: space.destroy_queue("Q"),
            lambda: space.definition,
        )
        for act in acts:
            with pytest.raises(NotOpenError, match="'SPACE' is closed"):
                act()

    def test_a_closed_device_takes_nothing(self, store, space):
        device = store.device
        device.close()
        device.close()
        acts = (
            device.entries,
            device.spaces,
            device.table_of_contents,
            lambda: device.open_space("SPACE"),
            lambda: device.create_space(space_definition("NEW")),
            lambda: device.destroy_space("SPACE"),
            lambda: device.create_entry("/tmp/never", 0, 10),
            lambda: space.enqueue("Q", b""),
            lambda: space.dequeue("Q"),
            space.queues,
        )
        for act in acts:
            with pytest.raises(NotOpenError, match="is closed"):
                act()
        space.close()

    def test_other_handles_go_on(self, store, space):
        again = store.device.open_space("SPACE")
        space.close()
        again.enqueue("Q", "x")
        assert drain(again) == ["x"]
        assert store.device.space_usage("SPACE").processes == 1
        again.close()
        assert store.device.space_usage("SPACE").processes == 0

    def test_nothing_that_was_committed_is_lost_by_closing(self, file_store):
        space = file_store.space()
        make_queue(space)
        for at in range(100):
            space.enqueue("Q", str(at))
        file_store.device.close()
        assert drain(file_store.another().open_space("SPACE")) == [str(at) for at in range(100)]

    def test_closing_leaves_nothing_beside_the_device_but_its_directory(self, file_device):
        with file_device.open_space("SPACE") as space:
            assert space.dequeue("Q", wait=0.001) is None
            file_device.close()
        path = Path(file_device.path)
        assert {entry.name for entry in path.parent.iterdir()} <= {"QUE", "QUE-run"}
        assert {entry.name for entry in Path(f"{path}-run").iterdir()} <= {"gate", "handoff.2", "1.turn"}

    def test_handles_show_what_they_are(self, store, space):
        assert repr(space) == f"<QueueSpace 'SPACE' of {store.device.path!r}>"
        assert repr(store.device) == f"<Device {store.device.path!r}>"
        store.device.close()
        space.close()
        assert repr(space).endswith("closed>")
        assert repr(store.device).endswith("closed>")


def test_a_clock_that_jumps_hurts_no_definition(file_store, clock):
    space = file_store.space()
    clock.set_back(10_000_000)
    make_queue(space)
    other = file_store.another(MovableClock(0)).open_space("SPACE")
    other.enqueue("Q", "x")
    assert drain(space) == ["x"]


def test_a_space_that_takes_more_than_is_free_is_refused_and_leaves_the_device_as_it_was(store, space):
    before = store.device.table_of_contents()
    with pytest.raises(NoSpaceError) as refusal:
        store.device.create_space(space_definition("BIG", pages=100_000))
    assert refusal.value.resource is Resource.PAGES
    assert store.device.table_of_contents() == before


@pytest.mark.parametrize("replaced", [False, True])
def test_a_device_whose_file_is_removed_or_replaced_takes_no_more_messages(file_store, clock, replaced):
    space = file_store.space()
    make_queue(space)
    space.enqueue("Q", "kept")
    path = Path(file_store.path)
    moved = path.rename(path.with_name("moved"))
    if replaced:
        path.write_bytes(b"")
    clock.advance(2)
    with pytest.raises(NotOpenError, match="was removed or replaced while it was open"):
        space.enqueue("Q", "lost")
    for call in (lambda: space.enqueue("Q", "lost"), lambda: space.dequeue("Q"), lambda: space.usage("Q")):
        with pytest.raises(BadResourceError, match=r"is not a qmadmin device|there is no device"):
            call()
    file_store.device.close()
    assert moved.exists()
