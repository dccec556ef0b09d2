"""What must hold at all times: the engine says what the model says, and every row has its place."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import text

from qmadmin.space import QueueSpace
from qmcore.message import Message, MessageInfo, State
from tests.fix_postgres import database_of
from tests.fix_store import Store
from tests.store.books_model import PAGE, Expected, Model

FLOW = ("enqueued", "dequeued", "expired", "moved", "discarded")

PLACES = """
    SELECT message_id, queue_id, order_key FROM {0}ready UNION ALL
    SELECT message_id, queue_id, order_key FROM {0}due UNION ALL
    SELECT message_id, queue_id, order_key FROM {0}held WHERE role <> 1 UNION ALL
    SELECT message_id, queue_id, {1} FROM {0}held WHERE role = 1
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
COUNTED = "SELECT sum(messages), sum(pages), sum(size) FROM {0}counter WHERE queue_id = 0"
HOLDERS = "SELECT DISTINCT trans_id FROM {0}held WHERE trans_id NOT IN (SELECT id FROM trans)"
WITHOUT_OWNER = """
    SELECT id FROM trans
    WHERE state <> 'prepared' AND (state <> 'active' OR owner_id NOT IN (SELECT id FROM owner))
"""
WAITERS = "SELECT count(*) FROM waiter"
STANDING = """
    SELECT name, key, number, tries, holder, until FROM (
        SELECT queue_id, order_key AS key, message_id AS number, retries AS tries, CAST(NULL AS BIGINT) AS holder,
            CAST(NULL AS BIGINT) AS until
        FROM {0}ready UNION ALL
        SELECT queue_id, order_key, message_id, retries, NULL, available_at FROM {0}due UNION ALL
        SELECT queue_id, order_key, message_id, retries, trans_id, NULL FROM {0}held WHERE role <> 1
    ) AS standing JOIN queue ON id = queue_id
"""
COUNTERS = """
    SELECT name, sum(messages), sum(pages), sum(size), sum(enqueued), sum(dequeued), sum(expired), sum(moved),
        sum(discarded)
    FROM {0}counter AS counter JOIN queue ON id = queue_id GROUP BY name
"""
MOVED = "SELECT id, origin_msgid FROM {0}message WHERE origin_msgid IS NOT NULL"


class Books:
    """The books of a queue space, to be compared with the model."""

    def __init__(self, store: Store, space: QueueSpace) -> None:
        self.volume = store.device.volume_of(store.device.path)
        self.incarnation = store.device.space("SPACE").incarnation
        self.schema = database_of(store.path)[1] if store.kind == "postgres" else ""
        self.stores = [f"{self.schema}." if self.schema else "main."]
        self.no_key = "CAST('' AS bytea)" if self.schema else "x''"
        if space.definition.memory:
            self.stores.append(f"{self.schema}_memory." if self.schema else f"memory_{self.incarnation}.")

    def rows(self, *queries: str) -> list[list[tuple[Any, ...]]]:
        def read(unit: Any) -> list[list[tuple[Any, ...]]]:
            if self.schema:
                unit.run(text(f"SET LOCAL search_path = {self.schema}"))
            return [list(unit.run(text(query)).fetchall()) for query in queries]

        found: list[list[tuple[Any, ...]]] = self.volume.read(read)
        return found

    def moved(self) -> dict[str, str]:
        """Return the identifiers of messages that were moved, by those that they had before."""
        queries = [MOVED.format(prefix) for prefix in self.stores]
        both = self.rows(*queries)
        return {was: self.msgid(number) for rows in both for number, was in rows}

    def msgid(self, number: int) -> str:
        return f"{self.incarnation}{number & 2**48 - 1:016x}"

    def check_rows(self) -> None:
        """See that each message stands in one place, and that nothing is left over."""
        for prefix in self.stores:
            on_disk = prefix == self.stores[0]
            places = PLACES + (HISTORY if on_disk else "") + " ORDER BY 1"
            queries = (places, MESSAGES, EXPIRING, EXPIRES, CHUNKS, BODIES, SUMS, COUNTED, HOLDERS)
            stood, messages, expiring, expires, chunks, bodies, sums, counted, holders = self.rows(
                *(query.format(prefix, self.no_key) for query in queries)
            )
            assert stood == messages
            assert expiring == expires
            assert chunks == bodies
            assert holders == []
            kept = self.rows(RETAINED)[0][0] if on_disk else (0, 0, 0)
            assert tuple(all_ - gone for all_, gone in zip(sums[0], kept, strict=True)) == counted[0]
        assert self.rows(WITHOUT_OWNER, WAITERS) == [[], [(0,)]]

    def check_order(self, model: Model) -> None:
        """See that each queue has what the model has: ready in the order, delayed, and held."""
        stood: list[tuple[str, bytes, int, int, int | None, int | None]] = []
        for prefix in self.stores:
            stood += self.rows(STANDING.format(prefix))[0]
        for name in model.queues:
            mine = sorted((row for row in stood if row[0] == name), key=lambda row: row[1])
            ready = [row for row in mine if row[4] is None and (row[5] is None or row[5] <= model.now())]
            assert [(self.msgid(row[2]), row[3]) for row in ready] == [
                (each.msgid, each.retries) for each in model.ready(name)
            ]
            later = {(self.msgid(row[2]), row[3], row[4] is not None) for row in mine if row not in ready}
            waiting = [each for each in model.there if each.queue == name and each not in model.ready(name)]
            assert later == {(each.msgid, each.retries, each.holder is not None) for each in waiting}

    def check_counters(self, model: Model) -> None:
        """See that what is counted is what the model has."""
        for persistent, prefix in zip((True, False), self.stores, strict=False):
            for name, messages, pages, size, *flow in self.rows(COUNTERS.format(prefix))[0]:
                there = [each for each in model.there if each.queue == name and each.persistent == persistent]
                kept = [each for _, each in model.retained if each.queue == name and persistent]
                assert (messages, pages, size) == (
                    len(there),
                    sum(each.asked.pages for each in there + kept),
                    sum(each.asked.size for each in there),
                )
                assert flow == [model.counts[name, persistent, what] for what in FLOW], (name, FLOW)


def check_usage(model: Model, store: Store, space: QueueSpace, name: str) -> None:
    """See that a queue tells of itself what the model has. Looking at it does what is due in it."""
    usage = space.usage(name)
    model.look()
    model.freshen(name)
    there = [each for each in model.there if each.queue == name]
    disk = [each for each in there if each.persistent]
    disk += [each for _, each in model.retained if each.queue == name]
    states = Counter(state_of(model, each) for each in there)
    assert usage.messages == len(there)
    assert (usage.ready, usage.delayed, usage.held) == tuple(
        states[state] for state in (State.READY, State.DELAYED, State.HELD)
    )
    assert usage.size == sum(each.asked.size for each in there)
    assert usage.pages == sum(each.asked.pages for each in disk)
    assert usage.nonpersistent == sum(not each.persistent for each in there)
    assert usage.memory_pages == sum(each.asked.pages for each in there if not each.persistent)
    for what in FLOW:
        assert getattr(usage, what) == model.counts[name, True, what] + model.counts[name, False, what], what
    whole = store.device.space_usage("SPACE")
    messages, disk_pages, memory_pages = model.level()
    assert (whole.messages, whole.pages, whole.memory) == (messages, disk_pages, memory_pages * PAGE)
    assert whole.transactions == sum(each.seen for each in model.transactions)


def check_listing(model: Model, space: QueueSpace, name: str) -> None:
    """See that a queue lists what the model has, those that are ready in their order."""
    listed = list(space.messages(name))
    mine = [each for each in model.there if each.queue == name]
    ready = [info for info in listed if info.state is State.READY]
    expected = model.ready(name)
    assert [info.msgid for info in ready] == [each.msgid for each in expected]
    assert space.usage(name).first_us == (expected[0].enqueued if expected else None)
    found = {info.msgid: info for info in listed}
    assert len(found) == len(listed) == len(mine)
    for each in mine:
        assert found[each.msgid].state is state_of(model, each)
        check_same(each, found[each.msgid])
    kept = [(consumed.consumed_us, consumed.info.msgid) for consumed in space.history(name)]
    assert kept == sorted((at, each.msgid) for at, each in model.retained if each.queue == name)


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
