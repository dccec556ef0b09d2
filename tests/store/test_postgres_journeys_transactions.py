"""Journeys to PostgreSQL of transactions: two for what is taken, one for the commit."""

import contextlib

import pytest

from qmadmin.opening import open_device
from qmcore.errors import AbortedError, BadQueueError, NoSpaceError
from tests.fix_store import make_queue, queue_definition


@pytest.fixture
def space(known_space):
    return known_space


@pytest.fixture
def filled(space):
    for at in range(5):
        space.enqueue("Q", f"message {at}", headers={"at": str(at)}, expires_in=100)
    return space


def test_the_commit_of_all_that_was_taken_and_is_brought_to_several_queues_is_one_journey(filled, arena, journeys):
    with filled.transaction():
        for queue in ("R", "ERRORS", "R", "R"):
            filled.enqueue(queue, filled.dequeue("Q").text)
        journeys.clear()
    assert len(journeys) == 1
    assert [message.text[-1] for message in filled.dequeue_many("R", 5)] == ["0", "2", "3"]
    assert filled.dequeue("ERRORS").text == "message 1"
    arena.check_counters()


def test_the_hold_does_not_wait_for_the_disk_and_all_that_is_for_good_does(filled, arena):
    arena.sql(
        "CREATE TABLE qm.seen (step text, setting text);"
        " CREATE FUNCTION qm.seeing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO qm.seen"
        " VALUES (TG_OP || '' '' || TG_TABLE_NAME, current_setting(''synchronous_commit'')); RETURN NULL; END';"
        " CREATE TRIGGER seeing AFTER INSERT OR DELETE ON qm.held FOR EACH ROW EXECUTE FUNCTION qm.seeing();"
        " CREATE TRIGGER seeing AFTER INSERT OR DELETE ON qm.message FOR EACH ROW EXECUTE FUNCTION qm.seeing()"
    )

    def seen():
        return set(arena.sql("DELETE FROM qm.seen RETURNING *"))

    for _ in range(2):
        with filled.transaction():
            filled.dequeue("Q")
            assert seen() == {("INSERT held", "off")}
            filled.enqueue("R", b"x")
        assert seen() == {("DELETE held", "on"), ("DELETE message", "on"), ("INSERT message", "on")}
        filled.dequeue("R")
        assert seen() == {("DELETE message", "on")}
        filled.enqueue("Q", b"x")
        assert seen() == {("INSERT message", "on")}
        filled.enqueue_many("Q", [b"x", b"x"])
        assert seen() == {("INSERT message", "on")}
        assert len(filled.dequeue_many("Q", 2)) == 2
        assert seen() == {("DELETE message", "on")}


@pytest.mark.parametrize("queue", ["Q", "R"])
def test_counters_are_right_whether_the_reply_goes_to_the_same_queue_or_to_another(filled, arena, queue):
    with filled.transaction():
        filled.enqueue(queue, bytes(5000) + filled.dequeue("Q").body)
    arena.check_counters()
    gone, come = filled.usage("Q"), filled.usage(queue)
    assert (gone.dequeued, come.enqueued) == (3, 8 if queue == "Q" else 3)
    with filled.transaction():
        filled.dequeue("Q")
    arena.check_counters()


def test_the_reply_has_the_identifier_that_it_was_given_and_stands_behind_what_came_meanwhile(filled, arena):
    with filled.transaction():
        msgid = filled.enqueue("Q", filled.dequeue("Q").body)
        with contextlib.closing(open_device(arena.url, clock=arena.clock)) as device:
            device.open_space("SPACE").enqueue("Q", "meanwhile")
    listed = list(filled.messages("Q"))
    assert listed[-1].msgid == msgid
    assert filled.content(listed[-2]).text == "meanwhile"


def test_what_is_held_expires_for_nobody_and_comes_back_with_its_expiry(filled, clock):
    with filled.transaction() as transaction:
        assert filled.dequeue("Q").text == "message 0"
        clock.advance(50)
        assert filled.usage("Q").held == 1
        transaction.rollback()
    back = filled.dequeue("Q")
    assert (back.text, back.retries) == ("message 0", 1)
    assert back.expires_us is not None


def test_several_that_were_dequeued_go_together(filled, journeys):
    with filled.transaction():
        assert [filled.dequeue("Q").text[-1] for _ in range(3)] == ["0", "1", "2"]
        filled.enqueue("R", "all")
        journeys.clear()
    assert len(journeys) == 1
    assert filled.usage("Q").messages == 2


def test_a_transaction_that_others_have_rolled_back_is_told_so_and_brings_nothing(filled, arena):
    with pytest.raises(AbortedError, match="was rolled back by others"), filled.transaction():
        filled.enqueue("R", filled.dequeue("Q").body)
        arena.by_hand("DELETE FROM trans")
    assert filled.usage("R").messages == 0


def test_pages_are_given_back_that_were_to_be_retained_when_the_message_was_taken(arena):
    space = arena.space()
    make_queue(space, "Q", retention=10)
    space.enqueue("Q", bytes(10_000))
    with space.transaction():
        space.dequeue("Q")
        with contextlib.closing(open_device(arena.url, clock=arena.clock)) as device:
            device.open_space("SPACE").change_queue(queue_definition("Q", retention=0))
        # Which lets this process know.
        space.enqueue("Q", b"x", transactional=False)
    arena.check_counters()
    assert space.usage("Q").pages == 1


def test_one_of_which_a_message_was_lost_is_rolled_back(filled, arena):
    with pytest.raises(AbortedError, match="lost a part of it"), filled.transaction():
        filled.enqueue("R", filled.dequeue("Q").body)
        arena.by_hand("DELETE FROM held")
    assert filled.usage("R").messages == 0


def test_room_that_the_commit_gives_back_is_room_for_what_it_brings(filled):
    for _ in range(95):
        filled.enqueue("Q", b"x")
    with pytest.raises(NoSpaceError):
        filled.enqueue("Q", b"x")
    with filled.transaction():
        filled.enqueue("R", filled.dequeue("Q").body)
    with pytest.raises(NoSpaceError), filled.transaction():
        filled.enqueue("R", b"x")


def test_what_a_queue_has_stopped_for_since_holds_for_the_next_message(filled, arena):
    with pytest.raises(BadQueueError, match="is stopped for enqueuing"), filled.transaction():
        body = filled.dequeue("Q").body
        with contextlib.closing(open_device(arena.url)) as device:
            device.open_space("SPACE").stop_queue("R", enqueue=True, dequeue=False)
        filled.enqueue("R", body)
