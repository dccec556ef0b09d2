"""What is sent as JSON comes out equal on every store, and what JSON does not have is refused and leaves nothing."""

import dataclasses
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qmadmin
from qmadmin.consumers import Call, current
from qmcore.errors import BodyError, InvalidArgumentError
from qmcore.message import EnqueueControl
from tests.fix_service import request_of
from tests.fix_store import make_queue


class Colour(Enum):
    OAK = "oak"


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    sku: str
    quantity: int
    price: Decimal


@dataclasses.dataclass
class Order:
    number: UUID
    lines: list[Line]
    colour: Colour
    at: datetime
    due: date | None = None
    parts: "tuple[Order, ...]" = ()
    total: Decimal = dataclasses.field(init=False, default=Decimal(0))

    def __post_init__(self):
        self.total = sum((line.price * line.quantity for line in self.lines), Decimal(0))


def order(**changes):
    lines = [Line("chair", 2, Decimal("19.90")), Line("table", 1, Decimal("120.00"))]
    return Order(UUID(int=17), lines, Colour.OAK, datetime(2026, 11, 27, 3, 20, tzinfo=UTC), **changes)


@pytest.mark.parametrize(
    "value", [{}, {"sku": "Stühle", "lines": [1, None, [2.5, {}]]}, [], [1], 0, -7, 2.5, True, False]
)
def test_a_value_of_json_is_sent_as_json(space, value):
    space.enqueue("Q", value)
    message = space.dequeue("Q")
    assert (message.type, message.json(), json.loads(message.body)) == ("JSON", value, value)
    assert type(message.json()) is type(value)


def test_none_is_still_a_message_without_a_body_and_a_str_and_bytes_are_no_json(space):
    space.enqueue_many("Q", [None, "{}", b"{}"])
    assert [(message.type, message.body) for message in space.dequeue_many("Q", 3)] == [
        ("CARRAY", None), ("STRING", b"{}"), ("CARRAY", b"{}"),
    ]  # fmt: skip


def test_a_key_that_looks_like_a_number_is_a_text_all_the_same(space):
    value = {"1": {"-2.5e+16": [{"true": "1", "false": 2, "null": None, "": '"5":'}]}}
    space.enqueue("Q", value)
    assert space.dequeue("Q").json() == value


def test_a_tuple_becomes_a_list_and_what_is_derived_from_a_type_of_json_is_sent_as_it(space):
    class Many(dict):
        pass

    space.enqueue("Q", (1, Many(a=("x",))))
    assert space.dequeue("Q").json() == [1, {"a": ["x"]}]


def test_a_whole_number_may_be_longer_than_that_of_a_machine(space):
    space.enqueue("Q", {"n": 2**70, "m": -(10**4000)})
    assert space.dequeue("Q").json() == {"n": 2**70, "m": -(10**4000)}


def test_messages_that_come_together_have_each_its_type_unless_the_control_says_one(space):
    bodies = [b"x", {"a": 1}, order()]
    space.enqueue_many("Q", bodies)
    assert [message.type for message in space.dequeue_many("Q", 3)] == ["CARRAY", "JSON", "JSON"]
    space.enqueue_many("Q", bodies, EnqueueControl(priority=70))
    assert [(message.type, message.priority) for message in space.dequeue_many("Q", 3)] == [
        ("CARRAY", 70), ("JSON", 70), ("JSON", 70),
    ]  # fmt: skip
    space.enqueue_many("Q", bodies, EnqueueControl(type="OTHER"))
    assert {message.type for message in space.dequeue_many("Q", 3)} == {"OTHER"}
    space.enqueue("Q", {"a": 1}, type="OTHER")
    assert (found := space.dequeue("Q")).type == "OTHER"
    assert found.json() == {"a": 1}


def test_a_value_is_sent_as_it_was_when_it_was_enqueued_in_a_transaction(space):
    value = {"before": 1}
    with space.transaction():
        space.enqueue("Q", value, priority=70)
        value["after"] = 2
    assert space.dequeue("Q").json() == {"before": 1}


def test_a_data_class_comes_out_equal_with_all_that_it_contains(space):
    sent = order(due=date(2026, 12, 24), parts=(order(), order()))
    space.enqueue("Q", sent)
    space.enqueue("Q", {"orders": [sent]})
    alone, inside = space.dequeue("Q"), space.dequeue("Q")
    assert qmadmin.decode(alone, Order) == sent
    assert qmadmin.decode(inside, dict[str, list[Order]]) == {"orders": [sent]}
    assert alone.json()["lines"][0] == {"sku": "chair", "quantity": 2, "price": "19.90"}


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inside: st.lists(inside, max_size=5) | st.dictionaries(TEXTS, inside, max_size=5),
    max_leaves=30,
)
WHOLE_VALUES = VALUES.filter(lambda value: value is not None and not isinstance(value, str))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=WHOLE_VALUES, inside=st.booleans())
def test_whatever_value_goes_in_comes_out_equal(space, value, inside):
    if inside:
        with space.transaction():
            space.enqueue("Q", value)
    else:
        space.enqueue("Q", value)
    message = space.dequeue("Q")
    assert message.json() == qmadmin.decode(message, object) == value
    # As text too, which tells 1 from 1.0 and 0.0 from -0.0.
    assert repr(message.json()) == repr(value)


def nested(levels, value=0):
    for _ in range(levels):
        value = [value]
    return value


def itself():
    found = {"orders": []}
    found["orders"].append(found)
    return found


def a_chain_of_orders(length):
    found = order()
    for _ in range(length):
        found = order(parts=(found,))
    return found


def an_order_in_itself():
    found = order()
    found.parts = (found,)
    return found


REFUSED = {
    "NaN": ({"lines": [0, 1, 2, math.nan]}, 'the body\'s ["lines"][3] is NaN, which JSON does not have'),
    "infinity": ([math.inf], "the body's [0] is Infinity, which JSON does not have"),
    "minus infinity": (-math.inf, "the body is -Infinity, which JSON does not have"),
    "a surrogate": ({"a": ["x\ud800"]}, 'the body\'s ["a"][0] has no UTF-8 form: surrogates not allowed at 1'),
    "a key with a surrogate": ({"\udfff": 1}, 'the body\'s ["\\udfff"] has no UTF-8 form: surrogates not allowed at 0'),
    "a number as a key": ({"a": {1: "x"}}, 'the body\'s ["a"] has the key 1, and a key of JSON is a text'),
    "a bool as a key": ([{True: 1}], "the body's [0] has the key True, and a key of JSON is a text"),
    "a float as a key": ({"1": [{-1e300: 1}]}, 'the body\'s ["1"][0] has the key -1e+300, and a key of JSON is a text'),
    "None as a key": ({None: 1}, "the body has the key None, and a key of JSON is a text"),
    "a tuple as a key": ({(1, 2): 1}, "the body has the key (1, 2), and a key of JSON is a text"),
    "bytes": ({"a": b"x"}, 'the body\'s ["a"] is of type bytes, which JSON does not have'),
    "a set": ([{1}], "the body's [0] is of type set, which JSON does not have"),
    "5,000 digits": ({"n": 10**5000}, 'the body\'s ["n"] is a whole number of more than 4300 digits'),
    "itself": (itself(), 'the body\'s ["orders"][0] is a value that contains it, and JSON has no references'),
    "10,000 levels": (nested(10_000), "is more than 256 levels deep, which is the limit of a body"),
    "257 levels": (nested(257), "is more than 256 levels deep, which is the limit of a body"),
    "a class": (Order, "the body is the class Order, not an instance of it"),
    "a class inside": ({"order": Order}, 'the body\'s ["order"] is the class Order, not an instance of it'),
    "an order in itself": (an_order_in_itself(), 'the body\'s ["parts"][0] is a value that contains it'),
    "10,000 levels of orders": (
        a_chain_of_orders(10_000),
        "is more than 256 levels deep, which is the limit of a body",
    ),
    "NaN in an order": (order(due=math.nan), 'the body\'s ["due"] is NaN, which JSON does not have'),
    "something else in an order": (order(due=b"x"), 'the body\'s ["due"] is of type bytes, which JSON does not have'),
    "more than 64 MiB": (["x" * (64 << 20)], "the body has 67108868 bytes, the limit is 67108864"),
}


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("what", REFUSED)
def test_what_json_does_not_have_is_refused_by_its_place_and_leaves_nothing(space, what, inside):
    value, sentence = REFUSED[what]
    with pytest.raises(InvalidArgumentError) as alone:
        if inside:
            with space.transaction():
                space.enqueue("Q", value)
        else:
            space.enqueue("Q", value)
    with pytest.raises(InvalidArgumentError) as among_others:
        space.enqueue_many("Q", [{"good": 1}, value])
    assert sentence in alone.value.message
    assert alone.value.message == among_others.value.message
    assert len(alone.value.message) < 300
    assert (space.usage("Q").enqueued, list(space.messages("Q"))) == (0, [])


def test_a_refused_body_does_not_spoil_its_transaction(space):
    with space.transaction():
        space.enqueue("Q", [1])
        with pytest.raises(InvalidArgumentError):
            space.enqueue("Q", [math.nan])
        space.enqueue("Q", [2])
    assert [message.json() for message in space.dequeue_many("Q", 3)] == [[1], [2]]


def test_a_body_is_no_deeper_than_the_stack_where_a_program_has_raised_the_limit_of_recursion(start):
    program = """
from qmadmin.bodies import encode
from qmcore.errors import InvalidArgumentError

sys.setrecursionlimit(1_000_000)
deep = []
for _ in range(200_000):
    deep = [deep]
try:
    encode(deep)
except InvalidArgumentError as error:
    say(error.message[-28:])
os._exit(0)
"""
    assert start(program).line() == "which is the limit of a body"


def test_256_levels_are_not_too_many(space):
    space.enqueue("Q", nested(256))
    assert space.dequeue("Q").json() == nested(256)


UNREADABLE = {
    "nothing": (b"", "is not JSON: Expecting value at character 0"),
    "half of it": (b'{"a": ', "is not JSON: Expecting value at character 6"),
    "no UTF-8": (b'["\xff"]', "is not JSON: it is not UTF-8 at byte 2"),
    "NaN": (b"[NaN]", "is not JSON: it has NaN"),
    "infinity": (b"-Infinity", "is not JSON: it has -Infinity"),
    "a number out of range": (b"[1e999]", "is not JSON: it has the number 1e999, which is out of range"),
    "5,000 digits": (b"1" * 5000, "is not JSON: it has a whole number of more than 4300 digits"),
    "a surrogate": (b'{"a": "\\uD800"}', 'is not JSON: the body\'s ["a"] has no UTF-8 form'),
    "10,000 levels": (b"[" * 10_000 + b"]" * 10_000, "is more than 256 levels deep, which is the limit"),
    "a million levels that do not end": (b'{"a":' * 1_000_000, "is more than 256 levels deep, which is the limit"),
    "levels behind a quote in a text": (b'["\\"",' + b"[" * 300, "is more than 256 levels deep, which is the limit"),
    "no body": (None, "has no body"),
}


@pytest.mark.matrix
@pytest.mark.parametrize("what", UNREADABLE)
def test_a_body_that_is_no_json_is_told_with_its_message(space, what):
    body, sentence = UNREADABLE[what]
    msgid = space.enqueue("Q", body)
    message = space.dequeue("Q")
    for read in (message.json, lambda: qmadmin.decode(message, dict)):
        with pytest.raises(BodyError) as refusal:
            read()
        assert refusal.value.msgid == msgid
        assert f"message {msgid} {sentence}" in refusal.value.message
        assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize("text", ["[" * 300, '"' + "{" * 300, '\\"' + "[" * 300, "\\"])
def test_brackets_in_a_text_are_no_levels(space, text):
    space.enqueue("Q", [text])
    assert space.dequeue("Q").json() == [text]


def test_a_character_that_is_escaped_in_two_halves_is_one(space):
    space.enqueue("Q", json.dumps(["\N{GRINNING FACE}"]))
    assert space.dequeue("Q").json() == ["\N{GRINNING FACE}"]


def test_what_a_handler_enqueues_is_json_also_where_it_is_enqueued_at_the_end_of_its_call(space):
    make_queue(space, "NEXT")
    value = {"step": 1}
    with space.transaction(), current.CurrentCall(space, Call(request_of()), collects=True):
        current.enqueue("NEXT", value)
        current.enqueue("NEXT", value, type="OTHER")
        value["step"] = 2
        with pytest.raises(InvalidArgumentError, match="is NaN"):
            current.enqueue("NEXT", [math.nan])
    assert [(message.type, message.json()) for message in space.dequeue_many("NEXT", 3)] == [
        ("JSON", {"step": 1}), ("OTHER", {"step": 1}),
    ]  # fmt: skip
