"""Which message comes first, and how a certain one is found."""

import pytest

from qmcore.errors import BadMessageIdError, InvalidArgumentError
from tests.fix_store import drain, make_queue


def test_fifo_is_the_order_of_arrival(space):
    for text in "abcde":
        space.enqueue("Q", text)
    assert drain(space) == list("abcde")


def test_lifo_is_the_last_one_first(space):
    make_queue(space, "L", order="lifo")
    for text in "abcde":
        space.enqueue("L", text)
    assert drain(space, "L") == list("edcba")


def test_by_priority_the_highest_comes_first_and_equals_in_order_of_arrival(space):
    make_queue(space, "P", order="priority")
    for text, priority in (("a", 1), ("b", 100), ("c", 50), ("d", 100), ("e", 1), ("f", 50)):
        space.enqueue("P", text, priority=priority)
    assert "".join(drain(space, "P")) == "bdcfae"


def test_by_priority_and_lifo_equals_come_last_one_first(space):
    make_queue(space, "P", order="priority,lifo")
    for text, priority in (("a", 1), ("b", 9), ("c", 1), ("d", 9)):
        space.enqueue("P", text, priority=priority)
    assert "".join(drain(space, "P")) == "dbca"


def test_by_time_the_one_that_became_available_first_comes_first(space, clock):
    make_queue(space, "T", order="time")
    space.enqueue("T", "late", delay=30)
    space.enqueue("T", "early", delay=10)
    clock.advance(20)
    space.enqueue("T", "now")
    clock.advance(20)
    assert drain(space, "T") == ["early", "now", "late"]


def test_by_expiration_the_one_that_goes_first_comes_first_and_what_never_goes_last(space, clock):
    make_queue(space, "E", order="expiration")
    space.enqueue("E", "never")
    space.enqueue("E", "long", expires_in=100)
    space.enqueue("E", "short", expires_in=10)
    space.enqueue("E", "never either")
    assert drain(space, "E") == ["short", "long", "never", "never either"]


def test_a_message_of_a_transaction_takes_the_place_of_its_commit(space):
    with space.transaction():
        space.enqueue("Q", "begun first")
        space.enqueue("Q", "at once", transactional=False)
    assert drain(space) == ["at once", "begun first"]


def test_messages_of_a_transaction_keep_their_order_in_each_queue(space):
    make_queue(space, "L", order="lifo")
    with space.transaction():
        for text in "abc":
            space.enqueue("Q", text)
            space.enqueue("L", text)
    assert (drain(space), drain(space, "L")) == (list("abc"), list("cba"))


def test_the_listing_is_the_order_of_dequeuing(space):
    make_queue(space, "P", order="priority,time")
    for at in range(20):
        space.enqueue("P", str(at), priority=1 + at * 7 % 100)
    listed = [info.msgid for info in space.messages("P")]
    dequeued = [space.dequeue("P").msgid for _ in range(20)]
    assert listed == dequeued


class TestByMessageId:
    def test_the_one_message_is_found_wherever_it_stands(self, space):
        ids = [space.enqueue("Q", str(at)) for at in range(5)]
        assert space.dequeue("Q", msgid=ids[3]).text == "3"
        assert space.dequeue("Q", msgid=ids[3]) is None
        assert drain(space) == ["0", "1", "2", "4"]

    def test_capitals_do_not_matter(self, space):
        assert space.dequeue("Q", msgid=space.enqueue("Q", b"x").upper()).body == b"x"

    def test_it_is_not_found_through_another_queue(self, space):
        make_queue(space, "OTHER")
        msgid = space.enqueue("Q", b"x")
        assert space.dequeue("OTHER", msgid=msgid) is None
        assert space.dequeue("Q", msgid=msgid)

    def test_it_is_not_found_through_another_queue_space(self, store, space):
        msgid = space.enqueue("Q", b"x")
        other = store.space("OTHER")
        make_queue(other)
        other.enqueue("Q", b"y")
        assert other.dequeue("Q", msgid=msgid) is None
        assert other.usage("Q").messages == space.usage("Q").messages == 1

    def test_bits_above_the_sequence_number_find_no_message_of_anybody(self, store, space):
        msgid = space.enqueue("Q", b"x")
        other = store.space("OTHER")
        make_queue(other)
        its = other.enqueue("Q", b"y")
        for space_id in (1, 2, 3, 0x7FFF, 0xFFFF):
            for own in (msgid, its):
                forged = f"{own[:16]}{space_id << 48 | int(own[16:], 16):016x}"
                assert space.dequeue("Q", msgid=forged) is None
                assert other.dequeue("Q", msgid=forged) is None
        assert space.dequeue("Q", msgid=msgid[:16] + "f" * 16) is None

    @pytest.mark.matrix
    @pytest.mark.parametrize("msgid", ["", "x", "0" * 31, "0" * 33, "g" * 32, "\N{DEGREE SIGN}" * 32])
    def test_what_is_no_id_is_refused(self, space, msgid):
        with pytest.raises(BadMessageIdError):
            space.dequeue("Q", msgid=msgid)

    def test_a_message_that_is_not_yet_available_is_not_found(self, space, clock):
        msgid = space.enqueue("Q", b"x", delay=10)
        assert space.dequeue("Q", msgid=msgid) is None
        clock.advance(10)
        assert space.dequeue("Q", msgid=msgid)

    def test_a_message_that_a_transaction_holds_is_not_found(self, space):
        msgid = space.enqueue("Q", b"x")
        with space.transaction():
            assert space.dequeue("Q", msgid=msgid)
            assert space.dequeue("Q", msgid=msgid, transactional=False) is None


class TestByCorrelationId:
    def test_the_first_in_the_order_of_the_queue_with_that_identifier_comes(self, space):
        make_queue(space, "P", order="priority")
        for text, priority, corrid in (("a", 1, "x"), ("b", 9, "y"), ("c", 5, "x"), ("d", 99, None)):
            space.enqueue("P", text, priority=priority, corrid=corrid)
        assert space.dequeue("P", corrid="x").text == "c"
        assert space.dequeue("P", corrid="x").text == "a"
        assert space.dequeue("P", corrid="x") is None
        assert drain(space, "P") == ["d", "b"]

    def test_padding_does_not_matter(self, space):
        space.enqueue("Q", b"1", corrid=b"order-17" + b"\0" * 24)
        space.enqueue("Q", b"2", corrid="order-17")
        assert [space.dequeue("Q", corrid=b"order-17\0").text for _ in range(2)] == ["1", "2"]

    def test_an_empty_identifier_is_not_the_same_as_none(self, space):
        space.enqueue("Q", b"none")
        space.enqueue("Q", b"empty", corrid=b"")
        assert space.dequeue("Q", corrid=b"").text == "empty"
        assert space.dequeue("Q", corrid=b"") is None

    def test_it_is_not_found_through_another_queue(self, space):
        make_queue(space, "OTHER")
        space.enqueue("Q", b"x", corrid="c")
        assert space.dequeue("OTHER", corrid="c") is None

    def test_those_that_are_held_or_delayed_are_passed_over(self, space):
        space.enqueue("Q", b"held", corrid="c")
        space.enqueue("Q", b"delayed", corrid="c", delay=10)
        space.enqueue("Q", b"ready", corrid="c")
        with space.transaction():
            assert space.dequeue("Q", corrid="c").text == "held"
            assert space.dequeue("Q", corrid="c", transactional=False).text == "ready"
            assert space.dequeue("Q", corrid="c") is None

    def test_a_reply_finds_its_request_by_the_message_id(self, space):
        make_queue(space, "REPLIES")
        asked = [space.enqueue("Q", text, reply_queue="REPLIES") for text in "abc"]
        while (request := space.dequeue("Q")) is not None:
            space.enqueue(request.reply_queue, request.text.upper(), corrid=request.msgid)
        assert [space.dequeue("REPLIES", corrid=msgid).text for msgid in reversed(asked)] == ["C", "B", "A"]


def test_a_message_is_looked_for_by_one_thing_at_a_time(space):
    with pytest.raises(InvalidArgumentError, match="msgid and corrid"):
        space.dequeue("Q", msgid="0" * 32, corrid="x")


def test_an_empty_queue_gives_nothing_and_no_error(space):
    assert space.dequeue("Q") is None
    assert space.dequeue("Q", wait=0) is None
    with space.transaction():
        assert space.dequeue("Q") is None
