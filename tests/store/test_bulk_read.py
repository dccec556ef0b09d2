"""Messages are read in bulk, each once, in runs of about equal length, with all that is known of them."""

import itertools
import json
from urllib.parse import quote

import pytest

from qmcore import bulk_rows
from qmcore.bulk_rows import COLUMNS, Run
from qmcore.condition_parser import parse
from qmcore.errors import InvalidArgumentError
from qmcore.message import EnqueueControl, State, message_id
from qmcore.queue import FOREVER, Delivery
from qmcore.records import Role
from tests.fix_store import Store, attachment_of, make_queue, queue_definition

MIB = 1024 * 1024
PAGE = 4096


@pytest.fixture(autouse=True)
def memory_here(monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS", pages=19_900, messages=20_000, memory=2_000 * PAGE)
    for name, definition in {
        "Q": {"retries": 9, "out_of_order": "top,msgid"},
        "OTHER": {},
        "GROUPED": {"grouping": True},
        "KEPT": {"retention": FOREVER, "retries": 3},
        "MEMORY": {"delivery": Delivery.NONPERSIST, "retries": 3},
        "ERRORS": {},
    }.items():
        make_queue(opened, name, **definition)
    return opened


def look(space, work):
    """Do something in one unit, and return what comes of it."""
    return attachment_of(space).volume.read(work)


def placed(space, unit, name, *, memory=False):
    """Return the store, the queue space and the queue that are asked for, as a unit knows them."""
    known = attachment_of(space).opened.definitions(unit)
    return unit.memory(known.space.id) if memory else unit, known.space, known.queue(name)


def runs(space, name, state, every, condition=None, *, memory=False, most=None):
    """Return the runs that the messages of a queue are cut into."""

    def cut(unit):
        store, known, queue = placed(space, unit, name, memory=memory)
        after, found = None, []
        for until, count in store.bulk_read.boundaries(known, queue, state, every, condition, most=most):
            found.append(Run(name, state, memory, after, until, count))
            after = until
        return found

    return look(space, cut)


def batches(space, run, condition=None, *, body=True):
    """Return the batches of a run."""

    def read(unit):
        store, known, queue = placed(space, unit, run.queue, memory=run.memory)
        return list(store.bulk_read.rows(known, queue, run, condition, body=body))

    return look(space, read)


def whole(name, state=State.READY, *, memory=False):
    """Return the run of all messages of a queue in one state."""
    return Run(name, state, memory, None, None, 0)


def rows(space, run, condition=None, *, body=True):
    """Return the rows of a run, each by the names of its columns."""
    found = batches(space, run, condition, body=body)
    return [dict(zip(COLUMNS, row, strict=True)) for row in itertools.chain.from_iterable(found)]


def bodies(space, run, condition=None):
    return [row["body"] for row in rows(space, run, condition)]


def number_of(msgid):
    return int(msgid[16:], 16)


def test_a_row_has_everything_about_a_ready_message(space, clock):
    space.enqueue("Q", b"another")
    now = clock.now()
    msgid = space.enqueue(
        "Q", b"\x00body", priority=7, corrid=b"\xff\x00\x01", reply_queue="R", failure_queue="F", error_queue="E",
        urcode=-3, headers={"a": "ä"}, type="VIEW", subtype="v", expires_in=60,
        reply_persistent=False, persistent=True, top=True,
    )  # fmt: skip
    with space.transaction() as transaction:
        space.dequeue("Q", msgid=msgid)
        transaction.rollback()
    row = rows(space, whole("Q"))[0]
    assert json.loads(row.pop("headers")) == {"a": "ä"}
    queue = space.queue("Q")
    key = look(space, lambda unit: unit.messages.key_of(queue.id, queue.space_id << 48 | number_of(msgid)))
    assert row == {
        "sequence": number_of(msgid), "order_key": key, "priority": 7, "enqueued_at": now, "available_at": None,
        "expires_at": now + 60_000_000, "pages": 1, "size": 5, "urcode": -3, "appkey": 0, "corrid": b"\xff\x00\x01",
        "reply_queue": "R", "failure_queue": "F", "error_queue": "E", "delivery_asked": "persist",
        "reply_delivery": "nonpersist", "client_id": None, "type": "VIEW", "subtype": "v", "group_sequence": None,
        "origin_queue": None, "origin_msgid": None, "origin_reason": None, "origin_error": None, "moved_at": None,
        "body": b"\x00body", "first_msgid": None, "expires_before": None,
        "retries": 1, "until": None, "consumed_at": None, "consumer": None, "transaction": None,
    }  # fmt: skip


def test_a_row_of_a_delayed_message_says_until_when(space, clock):
    now = clock.now()
    msgid = space.enqueue("Q", b"x", delay=5)
    (row,) = rows(space, whole("Q", State.DELAYED))
    assert (row["sequence"], row["until"], row["available_at"]) == (number_of(msgid), now + 5_000_000, now + 5_000_000)
    assert rows(space, whole("Q")) == []


def test_a_row_of_a_consumed_message_says_when_and_by_whom(space, clock):
    first = space.enqueue("KEPT", b"one")
    space.enqueue("KEPT", b"two")
    assert space.dequeue("KEPT").msgid == first
    clock.advance(1)
    with space.transaction() as transaction:
        space.dequeue("KEPT")
        number = transaction.id if isinstance(getattr(transaction, "id", None), int) else None
    one, two = rows(space, whole("KEPT", State.CONSUMED))
    assert (one["sequence"], one["body"], one["consumed_at"]) == (number_of(first), b"one", clock.now() - 1_000_000)
    assert one["consumer"]
    assert one["transaction"] is None
    assert (two["body"], two["consumed_at"]) == (b"two", clock.now())
    assert two["transaction"] is not None
    assert number in (None, two["transaction"])
    assert one["retries"] == 0


def test_held_messages_are_those_that_are_dequeued_or_locked_and_not_those_to_be_enqueued(space, monkeypatch):
    from qmcore.acts import enqueue_in_transaction

    monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", 10)
    ids = space.enqueue_many("Q", [b"a", b"b", b"c"])
    with space.transaction():
        space.dequeue("Q")
        space.lock("Q")
        space.enqueue("Q", b"is to come" * 10)
        assert look(space, lambda unit: {role for _, role in unit.holdings.count_held()}) == set(Role)
        found = rows(space, whole("Q", State.HELD))
        assert {row["sequence"] for row in found} == set(map(number_of, ids[:2]))
        assert sorted(row["body"] for row in found) == [b"a", b"b"]
        assert bodies(space, whole("Q")) == [b"c"]


def test_a_row_of_a_grouped_message_names_the_first_of_its_group(space):
    with space.transaction():
        space.enqueue_many("GROUPED", [b"a", b"b"])
    first, second = rows(space, whole("GROUPED"))
    assert first["group_sequence"] == second["group_sequence"] == first["sequence"]


def test_a_row_of_a_moved_message_says_where_it_came_from(space):
    msgid = space.enqueue("OTHER", b"x")
    with space.transaction() as transaction:
        space.dequeue("OTHER")
        transaction.rollback()
    (row,) = rows(space, whole("ERRORS"))
    assert (row["origin_queue"], row["origin_msgid"], row["origin_reason"]) == ("OTHER", msgid, "retries")
    assert row["moved_at"]


def test_nonpersistent_messages_are_read_from_their_own_store(space):
    space.enqueue("MEMORY", b"here")
    space.enqueue("MEMORY", b"there", persistent=True)
    assert bodies(space, whole("MEMORY", memory=True)) == [b"here"]
    assert bodies(space, whole("MEMORY")) == [b"there"]
    assert runs(space, "MEMORY", State.CONSUMED, 5, memory=True) == []
    assert batches(space, whole("MEMORY", State.CONSUMED, memory=True)) == []


def test_a_message_without_a_body_and_one_with_an_empty_one_are_told_apart(space):
    space.enqueue_many("Q", [None, b"", b"x"])
    assert bodies(space, whole("Q")) == [None, b"", b"x"]


@pytest.mark.parametrize("memory", [False, True])
def test_large_bodies_are_whole(space, memory):
    sizes = [1, MIB, MIB + 1, 3 * MIB + 7, 2]
    sent = [bytes([at]) * size for at, size in enumerate(sizes)]
    space.enqueue_many("Q", sent, EnqueueControl(delivery=Delivery.NONPERSIST if memory else None))
    found = batches(space, whole("Q", memory=memory))
    assert [row[bulk_rows.BODY] for batch in found for row in batch] == sent


def test_a_batch_is_bounded_in_messages_and_in_bytes(space):
    small = [b"x"] * 700
    # The first part of the rest fits just so, and the last message is too large for any bound.
    space.enqueue_many("Q", [*small, *small, *[bytes(MIB)] * 3, bytes(MIB - 400), bytes(5 * MIB), b"end"])
    found = batches(space, whole("Q"))
    assert [len(batch) for batch in found] == [1000, 404, 1, 1]
    assert all(len(batch) == 1 or sum(row[bulk_rows.SIZE] for row in batch) <= bulk_rows.BYTES_MAX for batch in found)


def test_without_bodies_all_else_is_there(space):
    space.enqueue_many("Q", [b"a", bytes(2 * MIB), None])
    with_bodies = rows(space, whole("Q"))
    without = rows(space, whole("Q"), body=False)
    assert without == [{**row, "body": None} for row in with_bodies]
    assert [row["size"] for row in without] == [1, 2 * MIB, 0]


def stand_in_all_states(space, clock, count):
    """Put as many messages into each state of queue KEPT."""
    space.enqueue_many("KEPT", [f"p{at}" for at in range(count)])
    with space.transaction() as transaction:
        space.dequeue_many("KEPT", count)
        transaction.rollback(park=True)
    space.enqueue_many("KEPT", [f"{at}" for at in range(2 * count)])
    for at in range(count):
        clock.advance(at % 2)
        space.dequeue("KEPT")
    held = space.transaction()
    held.__enter__()
    space.dequeue_many("KEPT", count)
    for at in range(count):
        space.enqueue("KEPT", f"d{at}", delay=1 + at // 3, transactional=False)
    space.enqueue_many("KEPT", [f"r{at}" for at in range(count)], transactional=False)
    return held


STATES = list(State)


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("every", [1, 3, 4, 10, 11, 1000])
def test_runs_have_each_message_once_in_order(space, clock, state, every):
    held = stand_in_all_states(space, clock, 10)
    try:
        cut = runs(space, "KEPT", state, every)
        assert [run.messages for run in cut] == [every] * (10 // every) + ([10 % every] if 10 % every else [])
        parts = [rows(space, run) for run in cut]
        assert [len(part) for part in parts] == [run.messages for run in cut]
        assert list(itertools.chain.from_iterable(parts)) == rows(space, whole("KEPT", state))
        open_end = Run("KEPT", state, False, cut[0].until, None, 0)
        assert rows(space, open_end) == list(itertools.chain.from_iterable(parts[1:]))
        assert runs(space, "OTHER", state, every) == []
    finally:
        held.__exit__(None, None, None)


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("most", [0, 1, 3, 4, 9, 10, 11])
def test_runs_of_the_first_messages_have_no_more_than_those(space, clock, state, most):
    held = stand_in_all_states(space, clock, 10)
    try:
        cut = runs(space, "KEPT", state, 3, most=most)
        found = [row for run in cut for row in rows(space, run)]
        assert found == rows(space, whole("KEPT", state))[:most]
        assert sum(run.messages for run in cut) == len(found)
        assert all(run.messages == 3 for run in cut[:-1])
    finally:
        held.__exit__(None, None, None)


@pytest.mark.parametrize("state", STATES)
def test_places_are_those_where_runs_of_one_message_end(space, clock, state):
    held = stand_in_all_states(space, clock, 10)
    condition = parse("urcode = 0")
    try:
        found = look(
            space, lambda unit: list(unit.bulk_read.places(*placed(space, unit, "KEPT")[1:], state, condition))
        )
        assert len(found) == 10
        assert found == [run.until for run in runs(space, "KEPT", state, 1)]
    finally:
        held.__exit__(None, None, None)


def test_places_in_both_stores_say_which_message_comes_first(space):
    for at in range(6):
        space.enqueue("MEMORY", str(at), persistent=at % 3 == 0)

    def read(unit):
        known, queue = placed(space, unit, "MEMORY")[1:]
        both = [sorted(store.bulk_read.places(known, queue, State.READY)) for store in (unit, unit.memory(known.id))]
        assert list(map(len, both)) == [2, 4]
        return sorted(itertools.chain(*both))

    found = [number & 0xFFFF for _, number in look(space, read)]
    assert found == sorted(found)


@pytest.mark.parametrize("state", STATES)
def test_runs_stand_in_the_order_of_the_listing(space, clock, state):
    held = stand_in_all_states(space, clock, 10)
    try:
        found = [row["sequence"] for row in rows(space, whole("KEPT", state))]
        if state is State.CONSUMED:
            listed = [info.info.msgid for info in space.history("KEPT")]
        else:
            queue = space.queue("KEPT")
            listed = look(
                space,
                lambda unit: [
                    info.msgid
                    for _, info in unit.listing.messages(unit.spaces.find(space.name), queue, state, None, 99)
                ],
            )
        assert found == list(map(number_of, listed))
    finally:
        held.__exit__(None, None, None)


@pytest.mark.parametrize("state", STATES)
def test_a_condition_leaves_out_what_it_does_not_say(space, clock, state):
    held = stand_in_all_states(space, clock, 10)
    try:
        chosen = rows(space, whole("KEPT", state))[3:8:2]
        incarnation = look(space, lambda unit: unit.spaces.find(space.name).incarnation)
        numbers = ", ".join(f"'{message_id(incarnation, row['sequence'])}'" for row in chosen)
        condition = parse(f"msgid IN ({numbers})")
        cut = runs(space, "KEPT", state, 2, condition)
        assert [run.messages for run in cut] == [2, 1]
        assert [row for run in cut for row in rows(space, run, condition)] == chosen
        assert runs(space, "KEPT", state, 2, parse("priority > 50")) == []
    finally:
        held.__exit__(None, None, None)


def test_a_condition_knows_until_when_a_message_is_kept_back_that_came_back(space, clock):
    space.change_queue(queue_definition("Q", retries=9, retry_delay=5))
    space.enqueue("Q", b"x")
    with space.transaction() as transaction:
        space.dequeue("Q")
        transaction.rollback()
    (row,) = rows(space, whole("Q", State.DELAYED))
    assert (row["available_at"], row["until"], row["retries"]) == (None, clock.now() + 5_000_000, 1)
    until = row["until"] // 1_000_000
    for condition, found in ((f"available_at = {until}", 1), (f"available_at > {until}", 0), ("retries = 1", 1)):
        assert len(rows(space, whole("Q", State.DELAYED), parse(condition))) == found
        assert len(runs(space, "Q", State.DELAYED, 5, parse(condition))) == found


def test_other_things_may_be_asked_while_messages_are_read(space):
    space.enqueue_many("Q", [b"x"] * 2_500)

    def read(unit):
        _, known, queue = placed(space, unit, "Q")
        first, second = (unit.bulk_read.rows(known, queue, whole("Q")) for _ in range(2))
        return [len(batch) + len(next(second)) + len(unit.queues.of_space(known.id)) for batch in first]

    assert look(space, read) == [2_006, 2_006, 1_006]


def test_a_reader_that_stops_early_leaves_nothing_behind(space):
    space.enqueue_many("Q", [b"x"] * 2_500)
    found = look(space, lambda unit: len(next(unit.bulk_read.rows(*placed(space, unit, "Q")[1:], whole("Q")))))
    assert found == 1_000
    assert len(space.dequeue_many("Q", 3_000)) == 2_500


def test_a_snapshot_is_joined_by_its_token_as_long_as_it_is_kept(database_url, clock):
    store = Store("postgres", database_url, clock)
    opened = store.space()
    make_queue(opened, "Q")
    volume = attachment_of(opened).volume

    def count(snapshot):
        return snapshot.read(lambda unit: unit.counters.level(opened.queue("Q").space_id).messages)

    opened.enqueue("Q", b"x")
    with volume.snapshot() as first:
        token = first.token
        assert token == first.token
        opened.enqueue("Q", b"y")
        with store.another().volume_of(store.device.entries()[0].path).snapshot(token) as second:
            assert count(first) == count(second) == 1
    with pytest.raises(InvalidArgumentError, match="or no longer"), volume.snapshot(token):
        pass
    with pytest.raises(InvalidArgumentError, match="nobody has a snapshot"), volume.snapshot("'; SELECT"):
        pass
    store.close()


def test_a_snapshot_may_lie_idle_for_as_long_as_its_readers_need(database_url, clock):
    limits = "-c idle_in_transaction_session_timeout=9000 -c statement_timeout=9000"
    store = Store("postgres", f"{database_url}&options={quote(limits)}", clock)
    with attachment_of(store.space()).volume.snapshot() as made:
        for name in ("idle_in_transaction_session_timeout", "statement_timeout"):
            assert made.read(lambda unit, name=name: unit.asked(f"SHOW {name}")) == ("0",)
    store.close()


def test_a_snapshot_of_a_file_has_no_token(file_store):
    volume = attachment_of(file_store.space()).volume
    with volume.snapshot() as made:
        assert made.token == ""
    with pytest.raises(InvalidArgumentError, match="has a name"), volume.snapshot("a"):
        pass
