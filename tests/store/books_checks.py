"""What must hold at all times: the engine says what the model says, and every row has its place."""

from __future__ import annotations

from collections import Counter
from typing import Any

from qmadmin.space import QueueSpace
from qmcore.message import Message, MessageInfo, State
from tests.fix_store import Store
from tests.store.books_model import PAGE, Expected, Model

FLOW = ("enqueued", "dequeued", "expired", "moved", "discarded")

PLACES = """
    SELECT message_id, queue_id, order_key FROM {0}ready UNION ALL
    SELECT message_id, queue_id, order_key FROM {0}due UNION ALL
    SELECT message_id, queue_id, order_key FROM {0}held WHERE role <> 1 UNION ALL
    SELECT message_id, queue_id, x'' FROM {0}held WHERE role = 1
"""
HISTORY = """
    UNION ALL SELECT message_id, history.queue_id, order_key FROM history JOIN message ON message.id = message_id
"""
MESSAGES = "SELECT id, queue_id, order_key FROM {0}message ORDER BY id"
EXPIRING = "SELECT queue_id, message_id, expires_at FROM {0}expiring ORDER BY 2"
EXPIRES = """
    SELECT queue_id, id, expires_at FROM {0}message WHERE expires_at IS NOT NULL AND id IN
    (SELECT message_id FROM {0}ready UNION ALL SELECT message_id FROM {0}due) ORDER BY 2
"""
CHUNKS = "SELECT DISTINCT body_id FROM {0}chunk ORDER BY 1"
BODIES = "SELECT body_id FROM {0}message WHERE body_id IS NOT NULL ORDER BY 1"
SUMS = "SELECT count(*), coalesce(sum(pages), 0), coalesce(sum(size), 0) FROM {0}message"
RETAINED = "SELECT count(*), 0, coalesce(sum(size), 0) FROM history JOIN message ON message.id = message_id"
COUNTED = "SELECT messages, pages, size FROM {0}counter WHERE queue_id = 0"
HOLDERS = "SELECT DISTINCT trans_id FROM {0}held WHERE trans_id NOT IN (SELECT id FROM main.trans)"
WITHOUT_OWNER = "SELECT id FROM trans WHERE owner_id NOT IN (SELECT id FROM owner) OR state <> 'active'"
WAITERS = "SELECT count(*) FROM waiter"
MOVED = "SELECT id, origin_msgid FROM {0}message WHERE origin_msgid IS NOT NULL"


class Books:
    """The books of a queue space, to be compared with the model."""

    def __init__(self, store: Store, space: QueueSpace) -> None:
        self.volume = store.device.volume_of(store.path)
        self.incarnation = store.device.space("SPACE").incarnation
        self.stores = ["main."]
        if space.definition.memory:
            self.stores.append(f"memory_{self.incarnation}.")

    def rows(self, *queries: str) -> list[list[tuple[Any, ...]]]:
        def read(unit: Any) -> list[list[tuple[Any, ...]]]:
            return [unit._cursor.execute(query).fetchall() for query in queries]

        found: list[list[tuple[Any, ...]]] = self.volume.read(read)
        return found

    def moved(self) -> dict[str, str]:
        """Return the identifiers of messages that were moved, by those that they had before."""
        queries = [MOVED.format(prefix) for prefix in self.stores]
        both = self.rows(*queries)
        return {was: f"{self.incarnation}{number & 2**48 - 1:016x}" for rows in both for number, was in rows}

    def check_rows(self) -> None:
        """See that each message stands in one place, and that nothing is left over."""
        for prefix in self.stores:
            on_disk = prefix == "main."
            places = PLACES + (HISTORY if on_disk else "") + " ORDER BY 1"
            queries = (places, MESSAGES, EXPIRING, EXPIRES, CHUNKS, BODIES, SUMS, COUNTED, HOLDERS)
            stood, messages, expiring, expires, chunks, bodies, sums, counted, holders = self.rows(
                *(query.format(prefix) for query in queries)
            )
            assert stood == messages
            assert expiring == expires
            assert chunks == bodies
            assert holders == []
            kept = self.rows(RETAINED)[0][0] if on_disk else (0, 0, 0)
            assert tuple(all_ - gone for all_, gone in zip(sums[0], kept, strict=True)) == counted[0]
        assert self.rows(WITHOUT_OWNER, WAITERS) == [[], [(0,)]]


def check_usage(model: Model, store: Store, space: QueueSpace) -> None:
    """See that what the engine counts is what the model has. Looking at a queue does what is due in it."""
    for name in model.queues:
        usage = space.usage(name)
        model.freshen(name)
        there = [each for each in model.there if each.queue == name]
        states = Counter(state_of(model, each) for each in there)
        disk = [each for each in there if each.persistent]
        disk += [each for _, each in model.retained if each.queue == name]
        assert usage.messages == len(there)
        assert (usage.ready, usage.delayed, usage.held) == tuple(
            states[state] for state in (State.READY, State.DELAYED, State.HELD)
        )
        assert usage.size == sum(each.asked.size for each in there)
        assert usage.pages == sum(each.asked.pages for each in disk)
        assert usage.nonpersistent == sum(not each.persistent for each in there)
        assert usage.memory_pages == sum(each.asked.pages for each in there if not each.persistent)
        ready = model.ready(name)
        assert usage.first_us == (ready[0].enqueued if ready else None) or not all(each.msgid for each in ready)
        for what in FLOW:
            expected = model.counts[name, True, what] + model.counts[name, False, what]
            assert getattr(usage, what) == expected, (name, what)
    whole = store.device.space_usage("SPACE")
    messages, disk_pages, memory_pages = model.level()
    assert (whole.messages, whole.pages, whole.memory) == (messages, disk_pages, memory_pages * PAGE)
    assert whole.transactions == sum(each.seen for each in model.transactions)


def check_listings(model: Model, space: QueueSpace) -> None:
    """See that each queue lists what the model has, those that are ready in their order."""
    for name in model.queues:
        listed = list(space.messages(name))
        mine = [each for each in model.there if each.queue == name]
        ready = [info for info in listed if info.state is State.READY]
        assert [info.msgid for info in ready] == [each.msgid for each in model.ready(name)]
        found = {info.msgid: info for info in listed}
        assert len(found) == len(listed) == len(mine)
        for each in mine:
            assert found[each.msgid].state is state_of(model, each)
            check_same(each, found[each.msgid])
        kept = [(consumed.info.msgid, consumed.consumed_us) for consumed in space.history(name)]
        expected = sorted((at, each.msgid) for at, each in model.retained if each.queue == name)
        assert kept == [(msgid, at) for at, msgid in expected]


def check_same(expected: Expected, found: MessageInfo, *, body: bool = True) -> None:
    """See that a message is the one that the model has."""
    asked = expected.asked
    origin = found.origin and (found.origin.queue, found.origin.msgid, found.origin.reason.value)
    assert (found.msgid, found.queue, found.priority, found.corrid, found.headers) == (
        expected.msgid,
        expected.queue,
        asked.priority,
        asked.corrid,
        asked.headers,
    )
    assert (found.enqueued_us, found.expires_us, found.size) == (expected.enqueued, expected.expires, asked.size)
    assert (found.delivery.value == "persist", origin) == (expected.persistent, expected.origin)
    assert (found.error_queue, found.group) == (expected.error_queue, expected.group)
    if found.state is not State.CONSUMED:
        assert found.retries == expected.retries
    if isinstance(found, Message):
        assert found.body == (asked.body if body else None)


def state_of(model: Model, message: Expected) -> State:
    if message.holder is not None:
        return State.HELD
    late = message.available is not None and message.available > model.now()
    return State.DELAYED if late else State.READY
