"""Message ids, the pages of a message, and what a sender may ask for."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmcore import numbers
from qmcore.acts.enqueue import commands_for, prepare
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import BadMessageIdError, InvalidArgumentError
from qmcore.message import BODY_MAX, EnqueueControl, checked_body, checked_id, message_id, pages_of, parts_of
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.queue import Delivery, Queue, QueueDefinition
from qmcore.space import Space, SpaceDefinition

OURS = "0123456789abcdef"
sequences = st.integers(0, 2**48 - 1)


@given(sequences)
def test_a_message_id_has_32_printable_characters_and_leads_back_to_its_number(sequence):
    made = message_id(OURS, sequence)
    assert len(made) == 32
    assert made.isprintable()
    assert parts_of(made) == (OURS, sequence)


@given(sequences)
def test_capitals_and_padding_do_not_matter(sequence):
    written = f" {message_id(OURS, sequence).upper()}\n"
    assert parts_of(written) == (OURS, sequence)
    assert checked_id(written) == message_id(OURS, sequence)


@pytest.mark.parametrize("text", ["", "x", OURS, OURS * 2 + "0", "g" * 32, "٣" * 32, "0x" + "0" * 30, "-" + "0" * 31])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(BadMessageIdError) as refusal:
        checked_id(text)
    assert repr(text) in refusal.value.message


@given(st.integers(1, 32767), sequences)
def test_the_number_in_the_volume_fits_64_bits_and_gives_the_sequence_back(space, sequence):
    number = numbers.number(space, sequence)
    assert 0 < number < 2**63
    assert numbers.sequence(number) == sequence


@given(st.tuples(st.integers(1, 32767), sequences), st.tuples(st.integers(1, 32767), sequences))
def test_numbers_sort_by_queue_space_then_sequence(one, other):
    assert (numbers.number(*one) < numbers.number(*other)) == (one < other)


class TestPages:
    def test_256_bytes_of_control_are_charged_and_every_message_takes_a_page(self):
        assert pages_of(0, None, 4096) == 1
        assert pages_of(4096 - 256, None, 4096) == 1
        assert pages_of(4096 - 256 + 1, None, 4096) == 2

    def test_headers_count_in_bytes(self):
        assert pages_of(4096 - 256 - 10, "é" * 5, 4096) == 1
        assert pages_of(4096 - 256 - 10, "é" * 5 + "x", 4096) == 2

    @given(st.integers(0, BODY_MAX), st.sampled_from([512, 1024, 4096, 65536]))
    def test_the_pages_hold_the_message_and_none_is_empty(self, size, page):
        pages = pages_of(size, None, page)
        assert (pages - 1) * page < size + 256 <= pages * page


def test_a_body_may_have_64_mib_and_no_byte_more():
    largest = bytes(BODY_MAX)
    assert checked_body(largest) is largest
    assert checked_body(None) is None
    assert checked_body(b"") == b""
    with pytest.raises(InvalidArgumentError, match="67108865 bytes, the limit is 67108864"):
        checked_body(bytes(BODY_MAX + 1))


class TestControl:
    @pytest.mark.parametrize("priority", [1, 50, 100])
    def test_priorities_from_1_to_100_are_taken(self, priority):
        assert EnqueueControl(priority=priority).priority == priority

    @pytest.mark.parametrize("priority", [0, -1, 101, 2**40, 50.5])
    def test_other_priorities_are_refused(self, priority):
        with pytest.raises(InvalidArgumentError, match=f"must be a whole number from 1 to 100, got {priority}"):
            EnqueueControl(priority=priority)

    @pytest.mark.parametrize("corrid", ["id", bytearray(b"id"), b"id".ljust(40, b"\0")])
    def test_a_correlation_identifier_is_taken_as_text_or_in_any_buffer(self, corrid):
        assert EnqueueControl(corrid=corrid).corrid == b"id"

    @pytest.mark.parametrize(("corrid", "why"), [(5, "must be bytes or str"), (b"x" * 33, "the limit is 32")])
    def test_another_correlation_identifier_is_refused_before_it_is_sent(self, corrid, why):
        with pytest.raises(InvalidArgumentError, match=why):
            EnqueueControl(corrid=corrid)

    def test_a_delay_and_a_time_of_availability_exclude_each_other(self):
        with pytest.raises(InvalidArgumentError, match="not both"):
            EnqueueControl(delay=1, available_us=1)

    @pytest.mark.parametrize(
        "ways",
        [
            {"lifetime": 1, "expires_us": 1},
            {"lifetime": 1, "never_expires": True},
            {"expires_us": 1, "never_expires": True},
            {"lifetime": 0, "expires_us": 0, "never_expires": True},
        ],
    )
    def test_there_is_one_way_to_expire(self, ways):
        with pytest.raises(InvalidArgumentError, match="takes one of"):
            EnqueueControl(**ways)

    @pytest.mark.parametrize("urcode", [-(2**63), 0, 2**63 - 1])
    def test_a_user_return_code_of_64_bits_is_taken(self, urcode):
        assert EnqueueControl(urcode=urcode).urcode == urcode

    @pytest.mark.parametrize("urcode", [-(2**63) - 1, 2**63, 1.5])
    def test_a_user_return_code_of_more_is_refused(self, urcode):
        with pytest.raises(InvalidArgumentError, match=f"got {urcode}"):
            EnqueueControl(urcode=urcode)

    @pytest.mark.parametrize("which", ["reply_queue", "failure_queue"])
    def test_queues_for_answers_are_checked_as_names(self, which):
        with pytest.raises(InvalidArgumentError, match=f"the {which.replace('_', ' ')} name is empty"):
            EnqueueControl(**{which: ""})

    def test_what_the_sender_says_beats_the_default_of_the_queue(self):
        now, default = 1_000, 60
        assert EnqueueControl().expires_at(now, None) is None
        assert EnqueueControl().expires_at(now, default) == now + 60_000_000
        assert EnqueueControl(lifetime=5).expires_at(now, default) == now + 5
        assert EnqueueControl(expires_us=7).expires_at(now, default) == 7
        assert EnqueueControl(never_expires=True).expires_at(now, default) is None

    def test_a_delay_counts_from_now_and_a_time_is_itself(self):
        assert EnqueueControl().available_at(1_000) is None
        assert EnqueueControl(delay=5).available_at(1_000) == 1_005
        assert EnqueueControl(available_us=5).available_at(1_000) == 5


ASKED = {
    "priority": 1,
    "delay": 1,
    "available_us": 1,
    "lifetime": 1,
    "expires_us": 1,
    "delivery": Delivery.NONPERSIST,
    "top": True,
    "before": message_id("0" * 16, 1),
    "corrid": b"x",
    "reply_queue": "X",
    "failure_queue": "X",
    "error_queue": "X",
    "urcode": 1,
    "appkey": 1,
    "client_id": "X",
    "reply_delivery": Delivery.PERSIST,
    "headers": {"a": "b"},
    "topic": "order.created",
    "type": "X",
    "subtype": "X",
    "never_expires": True,
}
"""What a sender may ask for, each as he does not ask for it by saying nothing."""


def sent(control):
    """Return how a message comes on these terms to a queue that grants all of them and lets messages expire."""
    definition = SpaceDefinition(
        name="S", ipc_key=1, pages=99, queues=1, transactions=1, processes=1, messages=9, memory=2**20
    )
    space = Space(1, "0" * 16, definition, initialized=True, created_at=0)
    order = QueueOrder.parse("priority,time,expiration")
    queue = Queue(
        1, 1, QueueDefinition(name="Q", order=order, out_of_order=OutOfOrder.parse("top,msgid"), expiration=9)
    )
    known = Definitions(1, space, {"Q": queue}, {1: queue}, {1: 1}, frozenset(), 4096)
    opened = OpenSpace(space)
    (command,) = commands_for(opened, known, prepare([("Q", b"body", control)], 4096))
    return command.arrivals


@pytest.mark.parametrize("name", ASKED)
def test_all_that_a_sender_may_ask_for_reaches_the_store(name):
    assert sent(EnqueueControl(**{name: ASKED[name]})) != sent(EnqueueControl())


def test_nothing_that_a_sender_may_ask_for_is_left_out():
    assert {field.name for field in dataclasses.fields(EnqueueControl)} == ASKED.keys()
