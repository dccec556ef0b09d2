"""Messages that ask for a place of their own: on top of the queue, or before another message."""

import dataclasses
from random import Random

import pytest

from qmcore.acts import enqueue_in_transaction
from qmcore.errors import BadMessageIdError, InvalidArgumentError
from qmcore.message import EnqueueControl
from qmcore.order import QueueOrder, key_before, key_on_top
from qmcore.queue import Delivery
from tests.fix_store import drain, make_queue

ORDERS = ("fifo", "lifo", "priority", "priority,lifo", "time", "time,lifo", "expiration,fifo", "priority,time,lifo")


@pytest.fixture
def space(store, monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = store.space(memory=400_000, pages=10_000)
    make_queue(opened, "Q", out_of_order="top,msgid", retries=3)
    make_queue(opened, "TOP", out_of_order="top")
    make_queue(opened, "BEFORE", out_of_order="msgid")
    make_queue(opened, "STRICT")
    return opened


class TestTop:
    @pytest.mark.parametrize("order", ORDERS)
    def test_the_last_one_on_top_is_the_first_whatever_the_order(self, space, order):
        make_queue(space, "O", order=order, out_of_order="top")
        space.enqueue("O", "best", priority=100, expires_in=1)
        for text in "abc":
            space.enqueue("O", text, priority=1, top=True)
        assert drain(space, "O") == ["c", "b", "a", "best"]

    def test_on_top_of_what_a_transaction_brings_later_too(self, space):
        with space.transaction():
            space.enqueue("Q", "a", top=True)
            space.enqueue("Q", "b")
            space.enqueue("Q", "c", top=True)
            space.enqueue("Q", "at once", top=True, transactional=False)
        assert drain(space) == ["c", "a", "at once", "b"]

    def test_it_waits_for_its_time_and_is_on_top_then(self, space, clock):
        space.enqueue("Q", "late", top=True, delay=10)
        space.enqueue("Q", "a")
        space.enqueue("Q", "b")
        assert space.dequeue("Q").text == "a"
        clock.advance(10)
        assert drain(space) == ["late", "b"]

    def test_it_comes_back_on_top_from_a_rollback(self, space):
        space.enqueue("Q", "a")
        space.enqueue("Q", "top", top=True)
        with space.transaction() as transaction:
            assert drain(space) == ["top", "a"]
            transaction.rollback()
        assert drain(space) == ["top", "a"]

    def test_messages_in_memory_and_on_disk_share_the_top(self, space):
        for at, text in enumerate("abcdef"):
            space.enqueue("Q", text, top=True, persistent=at % 2 == 0)
        assert drain(space) == list("fedcba")

    def test_the_first_of_several_that_are_enqueued_together_is_the_last(self, space):
        space.enqueue("Q", "old")
        space.put_many([("Q", text.encode(), _control(top=True)) for text in "abc"])
        assert drain(space) == ["c", "b", "a", "old"]


class TestBefore:
    @pytest.mark.parametrize("order", ORDERS)
    def test_several_before_the_same_stand_in_the_order_of_their_arrival(self, space, order):
        make_queue(space, "O", order=order, out_of_order="msgid")
        ids = [space.enqueue("O", text) for text in "xyz"]
        first = drain_bodies(space, "O")
        for text in "abc":
            space.enqueue("O", text, before=ids[1], priority=100)
        at = first.index("y")
        assert drain(space, "O") == [*first[:at], "a", "b", "c", *first[at:]]

    def test_one_before_one_that_is_before_another(self, space):
        last = space.enqueue("Q", "last")
        middle = space.enqueue("Q", "middle", before=last)
        space.enqueue("Q", "late", before=last)
        inner = space.enqueue("Q", "first", before=middle)
        space.enqueue("Q", "very first", before=inner)
        assert drain(space) == ["very first", "first", "middle", "late", "last"]

    def test_one_before_the_top_stays_before_it_and_a_new_top_before_both(self, space):
        top = space.enqueue("Q", "top", top=True)
        space.enqueue("Q", "before", before=top)
        space.enqueue("Q", "new top", top=True)
        assert drain(space) == ["new top", "before", "top"]

    def test_before_a_message_that_a_transaction_holds(self, space):
        ids = [space.enqueue("Q", text) for text in "ab"]
        with space.transaction() as transaction:
            assert space.dequeue("Q", msgid=ids[1])
            space.enqueue("Q", "before b", before=ids[1], transactional=False)
            transaction.rollback()
        assert drain(space) == ["a", "before b", "b"]

    def test_before_a_message_that_is_consumed_afterwards(self, space):
        ids = [space.enqueue("Q", text) for text in "abc"]
        with space.transaction():
            assert space.dequeue("Q", msgid=ids[1])
            space.enqueue("Q", "before b", before=ids[1])
        assert drain(space) == ["a", "before b", "c"]

    def test_before_a_message_that_is_delayed(self, space, clock):
        space.enqueue("Q", "a")
        delayed = space.enqueue("Q", "delayed", delay=10)
        space.enqueue("Q", "c")
        space.enqueue("Q", "before", before=delayed)
        clock.advance(10)
        assert drain(space) == ["a", "before", "delayed", "c"]

    def test_before_a_message_of_the_other_store(self, space):
        on_disk, in_memory = space.enqueue("Q", "disk"), space.enqueue("Q", "memory", persistent=False)
        space.enqueue("Q", "before memory", before=in_memory)
        space.enqueue("Q", "before disk", before=on_disk, persistent=False)
        space.enqueue("Q", "directly before memory", before=in_memory, persistent=False)
        assert drain(space) == ["before disk", "disk", "before memory", "directly before memory", "memory"]

    def test_in_a_transaction_it_takes_its_place_at_the_commit(self, space):
        target = space.enqueue("Q", "target")
        with space.transaction():
            for text in "ab":
                space.enqueue("Q", text, before=target)
            space.enqueue("Q", "at once", before=target, transactional=False)
        assert drain(space) == ["at once", "a", "b", "target"]

    def test_the_place_is_kept_when_the_message_goes_before_the_commit(self, space):
        ids = [space.enqueue("Q", text) for text in "abc"]
        with space.transaction():
            space.enqueue("Q", "before b", before=ids[1])
            assert space.dequeue("Q", msgid=ids[1], transactional=False)
        assert drain(space) == ["a", "before b", "c"]

    @pytest.mark.parametrize("persistent", [True, False])
    def test_what_a_transaction_spills_takes_its_place_too(self, space, monkeypatch, persistent):
        monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", 1)
        target = space.enqueue("Q", "target")
        with space.transaction():
            space.enqueue("Q", "a", before=target, persistent=persistent)
            space.enqueue("Q", "top", top=True, persistent=persistent)
            space.enqueue("Q", "b", before=target, persistent=persistent)
            space.enqueue("Q", "end", persistent=persistent)
        assert drain(space) == ["top", "a", "b", "target", "end"]

    @pytest.mark.parametrize("spill_bytes", [1, 10_000])
    def test_what_no_transaction_has_committed_yet_has_no_place(self, space, monkeypatch, spill_bytes):
        monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", spill_bytes)
        with space.transaction():
            pending = space.enqueue("Q", "pending")
            for transactional in (True, False):
                with pytest.raises(BadMessageIdError):
                    space.enqueue("Q", "before", before=pending, transactional=transactional)
        assert drain(space) == ["pending"]

    def test_a_message_that_is_gone_is_refused_and_the_transaction_goes_on(self, space):
        gone = space.enqueue("Q", "gone")
        space.dequeue("Q")
        with space.transaction():
            space.enqueue("Q", "kept")
            with pytest.raises(BadMessageIdError) as caught:
                space.enqueue("Q", "x", before=gone)
            assert caught.value.facts["msgid"] == gone
        assert drain(space) == ["kept"]

    def test_a_message_that_expired_or_was_purged_or_moved_is_gone(self, space, clock):
        space.change_queue(_changed(space, "Q", retries=0, error_queue="TOP"))
        moved = space.enqueue("Q", "moved")
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.rollback()
        expired, purged = space.enqueue("Q", "x", expires_in=5), space.enqueue("Q", "y")
        space.purge("Q", condition=f"msgid = '{purged}'")
        clock.advance(5)
        assert space.usage("Q").messages == 0
        for msgid in (moved, expired, purged):
            with pytest.raises(BadMessageIdError):
                space.enqueue("Q", "x", before=msgid)

    def test_a_message_of_another_queue_or_queue_space_or_none_is_refused(self, space, store):
        other = store.space("OTHER")
        make_queue(other, "Q", out_of_order="msgid")
        elsewhere = [space.enqueue("BEFORE", "x"), other.enqueue("Q", "x"), "0" * 32, "nonsense"]
        space.enqueue("Q", "x")
        for msgid in elsewhere:
            with pytest.raises(BadMessageIdError):
                space.enqueue("Q", "y", before=msgid)
        assert space.usage("Q").messages == 1

    def test_a_message_that_is_only_kept_for_the_record_is_gone(self, space):
        space.change_queue(_changed(space, "Q", retention=100))
        kept = space.enqueue("Q", "kept")
        assert space.dequeue("Q")
        assert space.recall("Q", kept)
        with pytest.raises(BadMessageIdError):
            space.enqueue("Q", "x", before=kept)

    def test_one_bad_place_among_several_messages_refuses_all(self, space):
        target = space.enqueue("Q", "target")
        with pytest.raises(BadMessageIdError):
            space.put_many([("Q", b"a", _control(before=target)), ("Q", b"b", _control(before="0" * 32))])
        assert drain(space) == ["target"]


class TestRefused:
    @pytest.mark.parametrize("queue", ["STRICT", "BEFORE"])
    def test_on_top_where_the_queue_does_not_allow_it(self, space, queue):
        with pytest.raises(InvalidArgumentError, match="on top"):
            space.enqueue(queue, "x", top=True)
        assert space.usage(queue).messages == 0

    @pytest.mark.parametrize("queue", ["STRICT", "TOP"])
    def test_before_another_where_the_queue_does_not_allow_it(self, space, queue):
        target = space.enqueue(queue, "target")
        with pytest.raises(InvalidArgumentError, match="before another message"):
            space.enqueue(queue, "x", before=target)
        # Not even whether the message exists is told.
        with pytest.raises(InvalidArgumentError):
            space.enqueue(queue, "x", before="0" * 32)
        assert drain(space, queue) == ["target"]

    def test_in_a_transaction_at_the_call_and_the_rest_commits(self, space):
        with space.transaction():
            space.enqueue("STRICT", "kept")
            with pytest.raises(InvalidArgumentError):
                space.enqueue("STRICT", "x", top=True)
        assert drain(space, "STRICT") == ["kept"]

    def test_both_at_once(self, space):
        target = space.enqueue("Q", "target")
        with pytest.raises(InvalidArgumentError, match="not both"):
            space.enqueue("Q", "x", top=True, before=target)

    def test_what_a_queue_allows_can_be_changed(self, space):
        space.change_queue(_changed(space, "STRICT", out_of_order=space.queue("TOP").definition.out_of_order))
        space.enqueue("STRICT", "a")
        space.enqueue("STRICT", "b", top=True)
        assert drain(space, "STRICT") == ["b", "a"]


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_any_run_of_places_is_what_a_list_makes_of_it(space, clock, order, seed):
    """Enqueue at random, in transactions and outside of them, in memory and on disk, beside a plain list."""
    random = Random(f"{order} {seed}")
    make_queue(space, "O", order=order, out_of_order="top,msgid")
    parsed = QueueOrder.parse(order)
    keys: dict[str, bytes] = {}

    def place(msgid, sequence, priority, lifetime, how):
        if how.get("top"):
            keys[msgid] = key_on_top(sequence)
        elif "before" in how:
            keys[msgid] = key_before(keys[how["before"]], sequence)
        else:
            expires = None if lifetime is None else clock.now() + lifetime * 1_000_000
            keys[msgid] = parsed.key(priority=priority, available_at=clock.now(), expires_at=expires, sequence=sequence)

    def enqueue():
        priority, lifetime = random.choice((1, 50, 100)), random.choice((None, 500, 900))
        how = random.choice(({}, {"top": True}, {"before": random.choice(list(keys))} if keys else {}))
        delivery = random.choice((True, False))
        msgid = space.enqueue("O", b"", priority=priority, expires_in=lifetime, persistent=delivery, **how)
        return msgid, priority, lifetime, how

    sequence = 0
    for _ in range(12):
        clock.advance(random.choice((0, 1)))
        if random.random() < 0.5:
            made = [enqueue()]
        else:
            with space.transaction():
                made = [enqueue() for _ in range(3)]
        for item in made:
            sequence += 1
            place(item[0], sequence, *item[1:])
        if random.random() < 0.4:
            first = min(keys, key=keys.__getitem__)
            assert space.dequeue("O").msgid == first
            del keys[first]
    wanted = sorted(keys, key=keys.__getitem__)
    assert [info.msgid for info in space.messages("O")] == wanted
    assert [message.msgid for message in space.browse("O")] == wanted
    assert [message.msgid for message in space.dequeue_many("O", 100)] == wanted


@pytest.mark.parametrize("order", ORDERS)
def test_the_number_that_a_key_was_made_with_can_be_read_from_it(order):
    random = Random(order)
    parsed = QueueOrder.parse(order)
    keys: list[bytes] = []
    for _ in range(500):
        sequence = random.choice((0, 1, 255, 2**31, 2**48 - 1, random.randrange(2**48)))
        kind = random.choice(("ordinary", "top", "before")) if keys else "ordinary"
        if kind == "ordinary":
            key = parsed.key(
                priority=random.randint(1, 100),
                available_at=random.randrange(-(2**40), 2**52),
                expires_at=random.choice((None, random.randrange(2**52))),
                sequence=sequence,
            )
        elif kind == "top":
            key = key_on_top(sequence)
        else:
            key = key_before(random.choice(keys), sequence)
        assert parsed.sequence_in(key) == sequence
        keys.append(key)


def test_a_queue_for_messages_in_memory_keeps_places_too(space):
    make_queue(space, "M", delivery=Delivery.NONPERSIST, out_of_order="top,msgid")
    target = space.enqueue("M", "target")
    with space.transaction():
        space.enqueue("M", "a", before=target)
        space.enqueue("M", "top", top=True)
        space.enqueue("M", "b", before=target)
    assert drain(space, "M") == ["top", "a", "b", "target"]


def drain_bodies(space, queue):
    """Return the bodies as text in order; all stay there."""
    return [message.text for message in space.browse(queue)]


def _control(**how):
    return EnqueueControl(**how)


def _changed(space, name, **changes):
    return dataclasses.replace(space.queue(name).definition, **changes)
