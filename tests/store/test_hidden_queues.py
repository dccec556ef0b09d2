"""Queues that an import fills: nobody sees them, and nothing takes them for damage."""

import pytest

from qmcore.bulk_rows import Adopted
from qmcore.findings import Severity
from qmcore.purpose import Purpose
from qmcore.records import Use
from tests.fix_postgres import but_for_this_server
from tests.fix_store import attachment_of, drain, make_queue

IMPORT = 77
NOTHING = Use(0, 0, 0)
MORE = Use(10, 20, 300)
"""What an import is charged for beyond what it has loaded."""


def errors(device):
    return [found.sentence for found in but_for_this_server(device.check()) if found.severity is Severity.ERROR]


def hide(store, space, name, *, more=NOTHING, by=IMPORT):
    """Let a queue be one that an import fills, or with less than 0 has replaced, and is charged for more."""
    queue_id = next(queue.id for queue in queues_of(space) if queue.name == name)
    change = f"messages = messages + {more.messages}, pages = pages + {more.pages}, size = size + {more.size}"
    space_id = attachment_of(space).opened.space.id
    store.by_hand(
        f"UPDATE queue SET import_id = {by} WHERE id = {queue_id}",
        f"UPDATE counter SET {change} WHERE space_id = {space_id} AND queue_id IN (0, {queue_id}) AND slot = 0",
        f"UPDATE counter SET generation = generation + 1 WHERE space_id = {space_id} AND queue_id = 0 AND slot = 0",
    )
    return queue_id


def queues_of(space):
    attachment = attachment_of(space)
    return attachment.volume.read(lambda unit: unit.queues.of_space(attachment.opened.space.id))


def hidden_of(space):
    attachment = attachment_of(space)
    return attachment.volume.read(lambda unit: unit.imports.hidden_queues(attachment.opened.space.id))


@pytest.fixture
def space(shared_store):
    opened = shared_store.space(error_queue="ERRORS")
    for name, how in (("ERRORS", {}), ("Q", {}), ("NEW", {"order": "priority", "retention": 60})):
        make_queue(opened, name, **how)
    for queue in ("Q", "NEW", "NEW", "NEW"):
        opened.enqueue(queue, "x" * 100, expires_in=1000)
    opened.dequeue("NEW")
    opened.enqueue("NEW", "later", delay=10)
    return opened


class TestTheDoctor:
    @pytest.mark.parametrize("more", [NOTHING, MORE], ids=["all of it", "a part of it"])
    @pytest.mark.parametrize("by", [IMPORT, -IMPORT], ids=["loaded", "replaced"])
    def test_finds_nothing_wrong_with_what_is_loaded(self, shared_store, space, more, by):
        hide(shared_store, space, "NEW", more=more, by=by)
        assert errors(shared_store.device) == []

    def test_sees_what_was_loaded_beyond_its_charge(self, shared_store, space):
        hide(shared_store, space, "NEW", more=Use(-1, 0, 0))
        has, charged = "3 messages, 4 pages and 205 bytes", "2 messages, 4 pages and 205 bytes"
        assert errors(shared_store.device) == [
            f"queue 'NEW' of import {IMPORT} has {has}, and is charged for {charged}"
        ]

    def test_sees_a_queue_space_that_is_not_charged_for_what_is_hidden(self, shared_store, space):
        hide(shared_store, space, "NEW", more=MORE)
        shared_store.by_hand("UPDATE counter SET messages = messages - 10 WHERE queue_id = 0 AND slot = 0")
        has, counted = "14 messages, 25 pages and 605 bytes", "4 messages, 25 pages and 605 bytes"
        assert errors(shared_store.device) == [f"the queue space has {has}, and {counted} are counted"]

    def test_sees_a_position_that_the_order_of_a_hidden_queue_does_not_know(self, shared_store, space):
        queue_id = hide(shared_store, space, "NEW")
        shared_store.by_hand(f"UPDATE queue SET ordering = 'time' WHERE id = {queue_id}")
        assert errors(shared_store.device) == ["3 messages at a position that the order of the queue does not know"]

    def test_sees_identifiers_that_two_imports_have_given_to_one_message(self, shared_store, space):
        attachment = attachment_of(space)
        for foreign, first in (("f" * 16, 1), ("e" * 16, 4)):
            piece = Adopted(foreign, first, first + 3, 0)
            attachment.volume.write(
                lambda unit, piece=piece: unit.spaces.adopt(attachment.opened.space.id, piece), Purpose.ADMINISTRATION
            )
        assert [sentence.partition(",")[0] for sentence in errors(shared_store.device)] == [
            "message number 4 has two identifiers",
            f"message number 7 has an identifier of {'e' * 16}",
        ]


class TestMemory:
    @pytest.fixture
    def filled(self, shared_store, memory_dir):
        opened = shared_store.space(error_queue="ERRORS", memory=1_000_000)
        for name in ("ERRORS", "NEW"):
            make_queue(opened, name)
        opened.enqueue("NEW", "it has to stay", persistent=False)
        return opened

    def test_of_a_queue_that_is_filled_stays_when_others_come(self, shared_store, filled):
        hide(shared_store, filled, "NEW")
        with shared_store.another().open_space("SPACE") as other:
            make_queue(other, "Q")
            other.enqueue("Q", "x", persistent=False)
            assert drain(other, "Q") == ["x"]
        assert errors(shared_store.device) == []
        shared_store.by_hand("UPDATE queue SET import_id = 0", "UPDATE counter SET generation = generation + 1")
        with shared_store.another().open_space("SPACE") as other:
            assert drain(other, "NEW") == ["it has to stay"]

    def test_of_one_that_is_gone_goes(self, shared_store, filled):
        queue_id = hide(shared_store, filled, "NEW")
        shared_store.by_hand(
            f"DELETE FROM queue WHERE id = {queue_id}", f"DELETE FROM counter WHERE queue_id = {queue_id}"
        )
        with shared_store.another().open_space("SPACE") as other:
            space_id = attachment_of(other).opened.space.id
            counted = attachment_of(other).volume.read(lambda unit: unit.memory(space_id).counters.counted(space_id))
            assert queue_id not in counted


def test_a_hidden_queue_is_none_of_the_queues(shared_store, space):
    queue_id = hide(shared_store, space, "NEW")
    assert [queue.name for queue in queues_of(space)] == ["ERRORS", "Q"]
    assert [(by, queue.id, queue.name) for by, queue in hidden_of(space)] == [(IMPORT, queue_id, "NEW")]
    assert drain(space, "Q") == ["x" * 100]
