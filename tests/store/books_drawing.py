"""What the model test draws: definitions of queues, messages, and what is asked for of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from qmcore.condition import Condition
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.queue import FOREVER, Delivery, QueueDefinition
from tests.store.books_model import Expected, Fits

NAMES = ("A", "B", "C")
"""Queues that are worked on."""

ERROR_QUEUES = ("ERRORS", "OWN")
"""Queues that others may name as error queues."""

ALL = (*NAMES, *ERROR_QUEUES)

names = st.sampled_from(("A", "A", "A", "B", "B", "C"))
all_names = st.sampled_from(("A", "A", "A", "A", "B", "B", "B", "C", *ERROR_QUEUES))
actors = st.sampled_from(range(3))
jumps = st.sampled_from([*[0] * 12, 1, 5, 20, 40])
spans = st.sampled_from([*[None] * 8, 0, 1, 5, 20])
moments = st.sampled_from([*[None] * 16, -5, 0, 5, 20])

orders = st.sampled_from(
    [
        "fifo",
        "lifo",
        "priority",
        "priority,lifo",
        "time",
        "time,lifo",
        "expiration",
        "expiration,priority",
        "priority,time,expiration,lifo",
    ]
).map(QueueOrder.parse)

changeable: dict[str, st.SearchStrategy[Any]] = {
    "out_of_order": st.sampled_from(["top,msgid", "none", "top", "msgid"]).map(OutOfOrder.parse),
    "retries": st.integers(0, 2),
    "retry_delay": st.sampled_from([0, 0, 5]),
    "delivery": st.sampled_from([Delivery.PERSIST, Delivery.PERSIST, Delivery.NONPERSIST]),
    "expiration": st.sampled_from([None, None, None, None, 20, 20]),
    "error_queue": st.sampled_from(["", "", "OWN", "ERRORS", "B"]),
    "keep_expired": st.booleans(),
    "retention": st.sampled_from([0, 0, 5, 40, FOREVER]),
}


@st.composite
def definitions(draw: st.DrawFn, name: str) -> QueueDefinition:
    chosen = {field: draw(strategy) for field, strategy in changeable.items()}
    grouping = draw(st.sampled_from([False, False, True]))
    if grouping:
        chosen["delivery"] = Delivery.PERSIST
    return QueueDefinition(name=name, order=draw(orders), grouping=grouping, **chosen)


@st.composite
def changes(draw: st.DrawFn, old: QueueDefinition) -> QueueDefinition:
    field = draw(st.sampled_from([field for field in changeable if field != "delivery" or not old.grouping]))
    return dataclasses.replace(old, **{field: draw(changeable[field])})


error_queue_definitions = st.sampled_from(["fifo", "lifo", "priority", "time,lifo"]).map(QueueOrder.parse)

sizes = st.sampled_from([None, 0, 1, 100, 100, 3_000, 9_000])
large = 1024 * 1024 + 1

corrids = st.none() | st.sampled_from([b"a", b"ab", b"bb"])


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what a sender asks for, but for what depends on the moment."""
    size = large if draw(st.integers(0, 60)) == 60 else draw(sizes)
    available = draw(moments)
    expires = draw(moments)
    return {
        "size": size,
        "priority": draw(st.sampled_from([1, 50, 100])),
        "corrid": draw(corrids),
        "delay": draw(spans) if available is None else None,
        "available": available,
        "lifetime": draw(spans) if expires is None else None,
        "expires": expires,
        "never": draw(st.booleans()),
        "error_queue": draw(st.sampled_from([None, None, None, None, "OWN", "A", "GONE"])),
        "persistent": draw(st.sampled_from([None, None, True, False])),
        "headers": draw(st.sampled_from([{}, {}, {"region": "eu"}, {"region": "us", "long": "x" * 4_000}])),
        "place": draw(st.sampled_from([None, None, None, None, "top", "before"])),
        "which": draw(st.integers(0, 30)),
    }


CONDITIONS: dict[str, Fits] = {
    "priority > 50": lambda each: each.asked.priority > 50,
    "corrid IN ('a','bb') OR size >= 3000": lambda each: each.asked.corrid in (b"a", b"bb") or each.asked.size >= 3000,
    "header.region = 'eu'": lambda each: each.asked.headers.get("region") == "eu",
    "NOT header.region LIKE 'e%'": lambda each: not each.asked.headers.get("region", "e").startswith("e"),
    "retries >= 1": lambda each: each.retries >= 1,
    "expires_at IS NULL AND priority BETWEEN 2 AND 100": lambda each: each.expires is None and each.asked.priority > 1,
    "origin_reason = 'retries'": lambda each: each.origin is not None and each.origin[2] == "retries",
}

PATTERNS: dict[str, Fits] = {
    "a%": lambda each: (each.asked.corrid or b"").startswith(b"a"),
    "_b": lambda each: each.asked.corrid in (b"ab", b"bb"),
    "%": lambda each: each.asked.corrid is not None,
}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a consumer asks for, and the same for the model."""

    how: dict[str, str | bytes | Condition]
    fits: Fits


FIRST = Wanted({}, lambda _each: True)


def by_corrid(corrid: bytes) -> Wanted:
    return Wanted({"corrid": corrid}, lambda each: each.asked.corrid == corrid)


def by_pattern(pattern: str) -> Wanted:
    return Wanted({"corrid_like": pattern}, PATTERNS[pattern])


def by_condition(condition: str) -> Wanted:
    return Wanted({"condition": condition}, CONDITIONS[condition])


def by_id(msgid: str) -> Wanted:
    def fits(each: Expected) -> bool:
        return each.msgid == msgid

    return Wanted({"msgid": msgid}, fits)


several = st.one_of(
    st.just(FIRST),
    st.just(FIRST),
    st.just(FIRST),
    st.sampled_from([b"a", b"ab"]).map(by_corrid),
    st.sampled_from(sorted(PATTERNS)).map(by_pattern),
    st.sampled_from(sorted(CONDITIONS)).map(by_condition),
)
restrictions = st.none() | st.sampled_from(sorted(CONDITIONS))
