"""Bodies that are models: data classes, models of pydantic, Structs of msgspec, classes with a codec of their own."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

import qmadmin
from qmadmin.bodies import encode
from qmadmin.body_kinds import reader_of
from qmcore.errors import BodyError, InvalidArgumentError
from qmcore.message import Message
from tests.fix_service import request_of


class Bill(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int
    due: date = pydantic.Field(alias="dueDate")
    parts: tuple[int, ...] = ()
    weight: float = 0.0
    inner: Bill | None = None

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def doubled(self) -> int:
        return 2 * self.number


class Parcel(msgspec.Struct):
    to: str
    at: datetime
    weights: list[float] = []
    by_shelf: dict[int, str] = {}


class Money:
    """A class that no library knows; its codec stands below."""

    def __init__(self, amount: Decimal, currency: str) -> None:
        self.amount, self.currency = amount, currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        # The name of a test has to be the same in each process.
        return f"Money({self.amount}, {self.currency!r})"

    class _Codec:
        def to_json(self, value: Money, /) -> object:
            if value.currency == "none":
                raise ValueError("money has a currency")
            return [value.amount, value.currency]

        def from_json(self, kind: type[Money], value: Any, /) -> Money:
            amount, currency = value
            return kind(Decimal(amount), currency)

    __qmadmin_codec__ = _Codec()


@dataclasses.dataclass
class Delivery:
    bill: Bill | None = None
    parcels: list[Parcel] = dataclasses.field(default_factory=list)
    price: Money | None = None
    next: Delivery | None = None


class Shelf(TypedDict):
    name: str
    places: NotRequired[list[int]]


class Level(IntEnum):
    LOW = 1


class Place(StrEnum):
    SHOP = "shop"


class Size(Enum):
    SMALL = "small"
    LARGE = 2


BILL = Bill(number=17, dueDate=date(2026, 12, 24), parts=(1, 2), inner=Bill(number=18, dueDate=date(2027, 1, 1)))
PARCEL = Parcel("Ann", datetime(2026, 11, 27, 3, 20), [1.5], {7: "top"})  # noqa: DTZ001 - as an application may
PRICE = Money(Decimal("9.90"), "EUR")


def refusal_of(body: Any, kind: Any, **changes: Any) -> str:
    """Return why a body cannot be read."""
    with pytest.raises(BodyError) as refused:
        qmadmin.decode(request_of(body, **changes), kind)
    assert refused.value.msgid in refused.value.message
    return refused.value.message


ROUND = [
    (BILL, Bill),
    (PARCEL, Parcel),
    (PRICE, Money),
    (Delivery(BILL, [PARCEL], PRICE, Delivery()), Delivery),
    ([BILL, BILL], list[Bill]),
    ({"a": PARCEL}, dict[str, Parcel]),
    ({"a": PARCEL}, Mapping[str, Parcel]),
    ([[PRICE]], Sequence[list[Money]]),
    ((1, "x"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ((1, "x"), tuple),
    ([1, None], list),
    ({"a": 1}, dict),
    ({"name": "A"}, Shelf),
    ({"name": "A", "places": [1]}, Shelf),
    ([Level.LOW, Place.SHOP, Size.LARGE], tuple[Level, Place, Size]),
    ([date(2026, 1, 2), time(3, 4)], tuple[date, time]),
    ([UUID(int=5), Decimal("1.10")], tuple[UUID, Decimal]),
    (7, int),
    (7, float),
    (7.5, float),
    (True, bool),
    (7, Annotated[int, "a number"]),
    (7, NewType("Number", int)),
    (7, int | None),
    (None, int | None),
    (None, None),
    ("x", str | None),
    ("x", str),
    (b"\xff", bytes),
    ([1, "x"], list[int | str]),
    ([1, None], list[int | None]),
    (["a", "b"], list[Literal["a", "b"]]),
    ({"a": [1]}, object),
    ({"a": [1]}, Any),
    ("text", Any),
    (b"x", Any),
    (None, Any),
]


@pytest.mark.parametrize(("body", "kind"), ROUND, ids=repr)
def test_a_body_is_read_as_what_it_was_enqueued_as(body: Any, kind: Any) -> None:
    found = qmadmin.decode(request_of(body), kind)
    assert found == (type(found)(body) if isinstance(body, list) else body)
    assert reader_of(kind)(request_of(body)) == found


def test_a_message_is_read_as_itself_whatever_its_body() -> None:
    message = request_of(b"\xff", type="OTHER")
    assert qmadmin.decode(message, Message) is qmadmin.decode(message, qmadmin.MessageInfo) is message


def test_a_body_that_was_enqueued_as_text_or_bytes_is_read_as_json_and_one_of_another_type_is_not() -> None:
    assert qmadmin.decode(request_of('{"a": 1}'), dict) == {"a": 1}
    assert qmadmin.decode(request_of(b"[1]"), list[int]) == [1]
    assert qmadmin.decode(request_of(b'"x"', type="JSON"), str) == "x"
    assert "is of type 'XML', not JSON" in refusal_of(b"{}", dict, type="XML")
    assert "is not UTF-8 at byte 0" in refusal_of(b"\xff", str)
    assert "has no body" in refusal_of(None, str)
    assert "has no body" in refusal_of(None, bytes)


def test_the_form_of_a_model_is_that_of_its_library() -> None:
    content, kind = encode(BILL)
    assert (kind, bytes(content or b"").decode()) == ("JSON", BILL.model_dump_json(by_alias=True, round_trip=True))
    content, kind = encode(PARCEL)
    assert (kind, content) == ("JSON", msgspec.json.encode(PARCEL))


REFUSED: dict[str, tuple[Any, str]] = {
    "NaN that pydantic would write as null": (
        Bill(number=1, dueDate=date(2026, 1, 2), weight=math.nan),
        'the body\'s ["weight"] is NaN, which JSON does not have',
    ),
    "NaN that msgspec would write as null": (
        Delivery(parcels=[Parcel("Ann", PARCEL.at, [math.inf])]),
        'the body\'s ["parcels"][0]["weights"][0] is Infinity, which JSON does not have',
    ),
    "a model that was never validated": (
        {"bill": Bill.model_construct(number="x", due=date(2026, 1, 2), parts=(), weight=0.0, inner=None)},
        'the body\'s ["bill"], of type Bill, cannot be encoded: Pydantic serializer warnings',
    ),
    "a struct with something else": (
        Parcel("Ann", object()),  # type: ignore[arg-type]
        "the body, of type Parcel, cannot be encoded: Encoding objects of type object is unsupported",
    ),
    "what a codec refuses": (
        [Money(Decimal(1), "none")],
        "the body's [0], of type Money, cannot be encoded: money has a currency",
    ),
    "what a codec has made": ([Money(Decimal(1), "\ud800")], "the body's [0][1] has no UTF-8 form"),
    "a class of pydantic": (Bill, "the body is the class Bill, not an instance of it"),
    "a class of msgspec": ([Parcel], "the body's [0] is the class Parcel, not an instance of it"),
    "a span": ([timedelta(1)], "the body's [0] is of type timedelta, which JSON does not have"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_model_that_cannot_be_encoded_is_refused_by_its_place(what: str) -> None:
    body, sentence = REFUSED[what]
    with pytest.raises(InvalidArgumentError) as refused:
        encode(body)
    assert sentence in refused.value.message


def test_a_model_that_contains_itself_or_is_very_deep_is_refused() -> None:
    around = Bill(number=1, dueDate=date(2026, 1, 2))
    around.inner = around
    deep: Bill | None = None
    for number in range(10_000):
        deep = Bill.model_construct(number=number, due=date(2026, 1, 2), parts=(), weight=0.0, inner=deep)
    cycle = Parcel("Ann", PARCEL.at)
    cycle.weights = [cycle]  # type: ignore[list-item]
    for body in (around, deep, cycle):
        with pytest.raises(InvalidArgumentError, match="cannot be encoded"):
            encode(body)


MISFITS: list[tuple[Any, Any, str]] = [
    ([1, "2"], list[int], 'the body\'s [1] must be int, got "2"'),
    (True, int, "the body must be int, got true"),
    (1.0, int, "the body must be int, got 1.0"),
    (1, bool, "the body must be bool, got 1"),
    (["1"], list[float], 'the body\'s [0] must be float, got "1"'),
    (10**400, float, "the body must be float, got 1000"),
    ([1], dict, "the body must be dict, got [1]"),
    ({"a": 1}, list, 'the body must be list, got {"a": 1}'),
    ([1], tuple[int, int], "the body must be a list of 2, got [1]"),
    (["x"], list[Literal["a", "b"]], "the body's [0] must be one of 'a', 'b', got \"x\""),
    (["x"], list[int | None], 'the body\'s [0] must be int, got "x"'),
    ([None], list[int | str], "the body's [0] must be int | str, got null"),
    ({}, int | str, "the body must be int | str"),
    (["huge"], list[Size], 'the body\'s [0] must be Size, got "huge"'),
    ([[1]], list[Size], "the body's [0] must be Size, got [1]"),
    (["yesterday"], list[date], 'the body\'s [0] must be date, got "yesterday"'),
    ([5], list[UUID], "the body's [0] must be UUID, got 5"),
    (["five"], list[Decimal], 'the body\'s [0] must be Decimal, got "five"'),
    ({"places": []}, Shelf, 'the body lacks "name", which Shelf has'),
    ({"next": {"next": 5}}, Delivery, 'the body\'s ["next"]["next"] must be Delivery, got 5'),
    ({"number": "x", "dueDate": "2026-01-02"}, Bill, 'the body\'s ["number"] is refused by pydantic: Input should be'),
    ({"bill": {"dueDate": "2026-01-02"}}, Delivery, 'the body\'s ["bill"]["number"] is refused by pydantic: Field req'),
    ({"parcels": [{"to": 1}]}, Delivery, 'the body\'s ["parcels"][0]["to"] is refused by msgspec: Expected `str`'),
    ({"parcels": [{"to": "A", "at": "2026-01-02T03:04:05", "weights": [1, "x"]}]}, Delivery, '["weights"][1] is ref'),
    ({"price": [1]}, Delivery, 'the body\'s ["price"] makes no Money: not enough values to unpack'),
    ({"price": [None, "EUR"]}, Delivery, 'the body\'s ["price"] makes no Money: '),
]  # fmt: skip


@dataclasses.dataclass
class Paper:
    sheets: int


@dataclasses.dataclass
class Folder:
    sheets: int
    label: str = ""


LATER: list[tuple[Any, Any, Any]] = [
    ({"name": "A", "colour": 1}, Shelf, {"name": "A"}),
    ({"next": {"price": None, "sku": 1}, "sku": 2}, Delivery, Delivery(next=Delivery())),
    ({"sheets": 1, "label": "x"}, Paper, Paper(1)),
    ({"sheets": 1, "label": "x"}, Paper | None, Paper(1)),
    # Of several, one that has all keys goes first, and then one that has some.
    ({"sheets": 1, "label": "x"}, Paper | Folder, Folder(1, "x")),
    ({"sheets": 1, "size": 4}, Paper | Folder, Paper(1)),
    ([{"sheets": 1, "label": "x"}, {"sheets": 2}], list[Paper | Folder], [Folder(1, "x"), Paper(2)]),
    ([{"sheets": 1, "size": 4}], list[Paper | Folder], [Paper(1)]),
]


@pytest.mark.parametrize(("body", "kind", "read"), LATER, ids=repr)
def test_keys_that_a_class_does_not_have_are_ignored(body: Any, kind: Any, read: Any) -> None:
    assert qmadmin.decode(request_of(body), kind) == read


@pytest.mark.parametrize(("body", "kind", "sentence"), MISFITS, ids=repr)
def test_a_body_that_is_not_what_was_asked_for_is_refused_by_its_place(body: Any, kind: Any, sentence: str) -> None:
    message = refusal_of(body, kind)
    assert sentence in message
    assert len(message) < 300


def test_what_a_model_refuses_when_it_is_made_is_refused() -> None:
    @dataclasses.dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number <= 0:
                raise ValueError("the number must be positive")

    assert "the body makes no" in refusal_of({"number": -1}, Positive)
    assert "the number must be positive" in refusal_of({"number": -1}, Positive)


@pytest.mark.parametrize("kind", [set[int], complex, list[set[int]], [], "Order", type, dict[str, bytes]], ids=repr)
def test_a_kind_that_no_body_can_be_is_refused_before_there_is_a_message(kind: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="a body cannot be read as"):
        reader_of(kind)


def test_a_data_class_whose_fields_name_nothing_that_there_is_is_refused() -> None:
    made = dataclasses.make_dataclass("Odd", [("field", "Nothing")])
    with pytest.raises(InvalidArgumentError, match=r"the fields of Odd cannot be read: name 'Nothing' is not defined"):
        reader_of(made)


def test_the_error_of_a_body_comes_through_pickle() -> None:
    with pytest.raises(BodyError) as refused:
        qmadmin.decode(request_of([]), dict)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (type(again), again.message, again.msgid) == (BodyError, refused.value.message, refused.value.msgid)
