"""Having the server let messages arrive: the values of its function `qm_enqueue`, and what its answer says.

One call brings all messages of a value, unless they are too much for one. Then the first counts all of them, or is
refused, and the others bring what is left.
"""

from __future__ import annotations

import enum
import functools
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from qmcore import numbers
from qmcore.limits import Unit
from qmcore.refusals import STALE, Reason, Refused
from qmcore.transitions import Arrival, Enqueue, Enqueued, Guard, Level, Reached, Route, Terms
from qmstorage import bodies
from qmstorage.postgres import keys
from qmstorage.postgres.pipeline import Call
from qmstorage.postgres.row_arrays import LENGTH_BYTES, SENT, Buffer, add_rows, array_of, row_of, rows_alike
from qmstorage.postgres.tables import quoted
from qmstorage.rows import position_of

if TYPE_CHECKING:
    from qmstorage.postgres.transitions import Transitions

Values: TypeAlias = dict[str, Any]

_OF_QUEUE: Final = {
    "volume_lock": "int8",
    "of_space": "int4",
    "known": "int8",
    "most_messages": "int8",
    "most_pages": "int8",
    "most_memory": "int8",
    "of_queue": "int4",
    "of_slot": "int4",
    "mark": "int8",
}
_ALONE: Final = _OF_QUEUE | {
    "at_time": "int8",
    "pages": "int8",
    "size": "int8",
    "kinds": "bytea",
    "arrival": "{device}.message",
}
_SEVERAL: Final = _OF_QUEUE | {
    "at_time": "int8",
    "brought": "int8",
    "pages": "int8",
    "size": "int8",
    "kinds": "bytea",
    "arrivals": "{device}.message[]",
}
_SPECIAL: Final = {
    "has_memory": "bool",
    "memory_brought": "int8",
    "memory_pages": "int8",
    "memory_size": "int8",
    "group_id": "int8",
    "candidates": "int8[]",
    "candidate_of": "int4[]",
    "stands_before": "int4[]",
    "of_owner": "int8",
    "level_memory": "bool[]",
    "level_unit": "text[]",
    "level_at": "int8[]",
    "level_capacity": "int8[]",
    "level_lock": "int8[]",
    "consumers": "int4[]",
}
_PACK_OF_QUEUE: Final = [SENT[kind] for kind in _OF_QUEUE.values()]


class Kind(enum.Enum):
    """What a call brings: one message that asks for nothing special, to one or all consumers, several, or others."""

    ALONE = "qm_enqueue"
    FOR_ALL = "qm_enqueue_for_all"
    SEVERAL = "qm_enqueue_several"
    SPECIAL = "qm_enqueue_special"


_TYPES: Final = {
    Kind.ALONE: _ALONE,
    Kind.FOR_ALL: _ALONE | {"consumers": "int4[]"},
    Kind.SEVERAL: _SEVERAL,
    Kind.SPECIAL: _SEVERAL | _SPECIAL,
}

_NOTHING_SPECIAL: Final[Values] = dict.fromkeys(_SPECIAL) | {
    "has_memory": False,
    "memory_brought": 0,
    "memory_pages": 0,
    "memory_size": 0,
}
_COUNTED_BEFORE: Final[Values] = dict.fromkeys(
    ("brought", "pages", "size", "memory_brought", "memory_pages", "memory_size"), 0
)
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of messages that one call brings, about."""

_BYTES_OF_ROW: Final = 400
_DESCENDS, _IN_MEMORY = 1, 2
SIZE, PAGES, _TERMS = (itemgetter(Arrival._fields.index(name)) for name in ("size", "pages", "terms"))
_LONG: Final = SENT["int8"]


@functools.lru_cache(maxsize=64)
def call_of(schema: str, kind: Kind) -> Call:
    """Return the call of the function in a schema."""
    values = [f"{name} => %({name})s::{its}" for name, its in _TYPES[kind].items()]
    if kind in (Kind.ALONE, Kind.FOR_ALL):
        values.append("brought => 1")
    called = f"SELECT {quoted(schema)}.qm_enqueue({', '.join(values)})"
    return Call(kind.value, called.replace("{device}", quoted(schema)), _TYPES[kind])


class Answer(NamedTuple):
    """What the function gives where it does not refuse."""

    is_awaited: bool
    transaction_number: str
    numbers: list[int]
    reached: list[int]
    reached_at: list[int]


_NO_ANSWER: Final = Answer(is_awaited=False, transaction_number="", numbers=[], reached=[], reached_at=[])
_DONE_AND_AWAITED: Final = -2
_FIRST_TWO: Final = struct.Struct("!20x4xq4xq").unpack_from
"""The numbers of a list as the server sends it, each behind its length."""
_FIRST_FOUR: Final = struct.Struct("!20x4xq4xq4xq4xq").unpack_from


def _answer(found: list[int] | None, count: int) -> Answer | Refused:
    """Return what the function says of so many messages; without anything the queue space is gone."""
    if not found:
        return STALE
    if found[0] >= 0:
        return _refused(found)
    done, transaction_number, limits, *rest = found
    numbers, reached, reached_at = rest[:count], rest[count : count + limits], rest[count + limits :]
    return Answer(done == _DONE_AND_AWAITED, str(transaction_number), numbers, reached, reached_at)


def answer_of_one(sent: Sequence[bytes | None]) -> tuple[int, Sequence[bool]] | Refused:
    """Return the number that one message has, and whether anybody waits for its queue, by the list that was sent."""
    (numbers_sent,) = sent
    if numbers_sent is None:
        return STALE
    done, number = _FIRST_TWO(numbers_sent)
    return _refused(_FIRST_FOUR(numbers_sent)) if done >= 0 else (number, (done == _DONE_AND_AWAITED,))


def rows_of(
    brings: Sequence[tuple[Route, Sequence[Arrival]]], guard: Guard, now: int
) -> tuple[bytearray, list[Buffer]]:
    """Return the kinds and the rows of messages that ask for nothing special."""
    kinds, rows = bytearray(), list[Buffer]()
    for route, arrivals in brings:
        _add_rows(kinds, rows, guard, route, arrivals, arrivals, now)
    return kinds, rows


def row_alone(guard: Guard, route: Route, arrival: Arrival, now: int) -> tuple[bytes, bytes]:
    """Return the kind and the row of a message that comes alone and asks for nothing special."""
    position = position_of(route, arrival.terms, now)
    number = numbers.number(guard.space_id, arrival.sequence) if arrival.sequence else None
    row = row_of(rows_alike(route.queue_id, arrival.terms, position, now), number, arrival)
    return b"\1" if position.descends else b"\0", row


def _refused(found: Sequence[int]) -> Refused:
    reason, used, limit, wanted = found
    return Refused(Reason(reason), used, limit, wanted)


class Caller(Protocol):
    """Who calls: the schema and the lock of the volume, the slot of the counters that are written.

    `row_type` is the number of the type of the table's rows in this database.
    """

    schema: str
    lock_key: int
    slot: int
    row_type: int


def note(unit: Transitions, route: Route, *, is_awaited: bool) -> None:
    """Note in a unit that messages have come to a queue, or for its consumers, and whether somebody waits for it."""
    if not route.consumers:
        unit.notifications.came(route.queue_id)
        unit.awaited[route.queue_id] = is_awaited
    for each in route.consumers:
        unit.notifications.came(each)


def is_special(command: Enqueue) -> bool:
    """Return whether a value asks for more than what messages that go to the disk always need."""
    _, route, arrivals, _ = command
    return bool(
        route.levels
        or route.consumers
        or (route.grouping and len(arrivals) > 1)
        or any(terms.memory or terms.before for terms, _ in itertools.groupby(arrivals, _TERMS))
    )


def is_small(command: Enqueue) -> bool:
    """Return whether a value brings one message, of which nothing is to be known but that it has come."""
    _, route, arrivals, holder = command
    terms, size = arrivals[0].terms, arrivals[0].size
    is_special = route.levels or terms.memory or terms.before or holder is not None
    return len(arrivals) == 1 and size <= bodies.IN_ROW_MAX and not is_special


def values_for(command: Enqueue, caller: Caller, mark: int) -> list[Buffer | None]:
    """Return what all small values of one guard and route have in common, as it is sent."""
    return [pack(value) for pack, value in zip(_PACK_OF_QUEUE, _of_queue(command, caller, mark).values(), strict=True)]


def values_of(command: Enqueue, common: list[Buffer | None], now: int) -> list[Buffer | None]:
    """Return the values of the one call for a small value, as they are sent."""
    guard, route, (arrival,), _ = command
    kinds, row = row_alone(guard, route, arrival, now)
    return [*common, _LONG(now), _LONG(arrival.pages), _LONG(arrival.size), kinds, row]


def values_for_all(command: Enqueue, caller: Caller, mark: int, now: int) -> Values:
    """Return the values of the one call for a small value that comes to several consumers."""
    guard, route, (arrival,), _ = command
    kinds, row = row_alone(guard, route, arrival, now)
    its = {"consumers": list(route.consumers), "at_time": now, "pages": arrival.pages, "size": arrival.size}
    return _of_queue(command, caller, mark) | its | {"kinds": kinds, "arrival": row}


def enqueue(
    command: Enqueue,
    caller: Caller,
    has_memory: bool,
    now: int,
    call: Callable[[Kind, Values], list[int] | None],
    keep_apart: Callable[[Arrival, int], None],
) -> tuple[Enqueued, Answer] | Refused:
    """Let messages arrive by as many calls as it takes, in one transaction; the last answer comes with the result.

    `has_memory` says whether the process has a part in the non-persistent messages of the queue space. `call` gives
    what the function does, `keep_apart` keeps the body of a message by its number.
    """
    guard, route, arrivals, _ = command
    is_alone = len(arrivals) == 1 and arrivals[0].size <= bodies.IN_ROW_MAX
    kind = Kind.SPECIAL if is_special(command) else Kind.ALONE if is_alone else Kind.SEVERAL
    values = _of_queue(command, caller, None) | {"at_time": now} | _counts(arrivals)
    places: dict[Terms, int] = {}
    if kind is Kind.SPECIAL:
        values |= _special(command, has_memory, places)
    base, found = guard.space_id << numbers.SEQUENCE_BITS, list[int]()
    levels, answer = _levels(command), _NO_ANSWER
    for start, end in _parts(arrivals):
        part = arrivals[start:end]
        _bring(values, command, part, caller, now, places)
        if levels and end == len(arrivals):
            values |= _of_levels(levels, route.queue_id, caller.schema)
        given = _answer(call(kind, values), len(part))
        if isinstance(given, Refused):
            return given
        answer = given
        found += answer.numbers
        if max(map(SIZE, part)) > bodies.IN_ROW_MAX:
            for arrival, number in zip(part, answer.numbers, strict=True):
                if arrival.size > bodies.IN_ROW_MAX:
                    keep_apart(arrival, base | (arrival.sequence or number))
        values |= _COUNTED_BEFORE
        if values.get("group_id") is not None:
            values["group_id"] = base | (arrivals[0].sequence or found[0])
    reached = [
        Reached(route.queue_id, levels[at - 1].memory, use)
        for at, use in zip(answer.reached, answer.reached_at, strict=True)
    ]
    its = [arrival.sequence for arrival in arrivals] if arrivals[0].sequence else found
    return Enqueued(its, reached), answer


# ---- values ----------------------------------------------------------------------------------------------------------


def _of_queue(command: Enqueue, caller: Caller, mark: int | None) -> Values:
    guard, route, _, _ = command
    return {
        "volume_lock": caller.lock_key,
        "of_space": guard.space_id,
        "known": guard.generation,
        "most_messages": guard.messages,
        "most_pages": guard.pages,
        "most_memory": guard.memory_pages,
        "of_queue": route.queue_id,
        "of_slot": caller.slot,
        "mark": mark,
    }


def _special(command: Enqueue, has_memory: bool, places: dict[Terms, int]) -> Values:
    """Return the values that few need; in `places` is noted which message those on such terms are to stand before."""
    guard, route, arrivals, _ = command
    values = _NOTHING_SPECIAL | {"has_memory": has_memory, "of_owner": guard.owner_id}
    values["consumers"] = list(route.consumers) or None
    its = [arrival for arrival in arrivals if arrival.terms.memory]
    if its:
        ours = [arrival for arrival in arrivals if not arrival.terms.memory]
        values |= {f"memory_{name}": count for name, count in _counts(its).items()} | _counts(ours)
    if route.grouping and len(arrivals) > 1:
        values["group_id"] = 0
    for arrival in arrivals:
        if arrival.terms.before:
            places.setdefault(arrival.terms, len(places) + 1)
    if places:
        values["candidates"] = [number for terms in places for number in terms.before]
        values["candidate_of"] = [place for terms, place in places.items() for _ in terms.before]
    return values


def _counts(arrivals: Sequence[Arrival]) -> Values:
    return {"brought": len(arrivals), "pages": sum(map(PAGES, arrivals)), "size": sum(map(SIZE, arrivals))}


def _levels(command: Enqueue) -> list[Level]:
    """Return the high limits that may be reached, where somebody is attached who can claim their commands."""
    guard, route, arrivals, _ = command
    if not route.levels or guard.owner_id is None:
        return []
    stores = {arrival.terms.memory for arrival in arrivals}
    return [
        level
        for level in route.levels
        if (True in stores if level.memory else False in stores or Unit(level.unit) is Unit.MESSAGES)
    ]


def _of_levels(levels: Iterable[Level], queue_id: int, schema: str) -> Values:
    memory, units, at, capacity = zip(*levels, strict=True)
    locks = [keys.key(schema, keys.Kind.CLAIM, 2 * queue_id + in_memory) for in_memory in memory]
    return {
        "level_memory": list(memory),
        "level_unit": list(units),
        "level_at": list(at),
        "level_capacity": list(capacity),
        "level_lock": locks,
    }


def _parts(arrivals: Sequence[Arrival]) -> Iterator[tuple[int, int]]:
    """Yield where the messages of each call begin and end."""
    if len(arrivals) * _BYTES_OF_ROW + sum(map(SIZE, arrivals)) <= MOST_BYTES:
        yield 0, len(arrivals)
        return
    start, size = 0, 0
    for at, arrival in enumerate(arrivals):
        its = _BYTES_OF_ROW + (arrival.size if arrival.size <= bodies.IN_ROW_MAX else 0)
        if at > start and size + its > MOST_BYTES:
            yield start, at
            start, size = at, 0
        size += its
    yield start, len(arrivals)


def _bring(
    values: Values,
    command: Enqueue,
    arrivals: Sequence[Arrival],
    caller: Caller,
    now: int,
    places: Mapping[Terms, int],
) -> None:
    """Add the rows of messages to the values, and what kind each is of."""
    guard, route, all_of_them, _ = command
    is_grouped = route.grouping and len(all_of_them) > 1
    rows: list[Buffer] = []
    kinds = bytearray()
    _add_rows(kinds, rows, guard, route, arrivals, all_of_them, now)
    values["kinds"] = kinds
    values["arrival"] = memoryview(b"".join(rows))[LENGTH_BYTES:] if len(arrivals) == 1 else None
    values["arrivals"] = array_of(caller.row_type, len(arrivals), rows)
    if places:
        at = [places.get(all_of_them[0].terms if is_grouped else arrival.terms, 0) for arrival in arrivals]
        values["stands_before"] = at


def _add_rows(
    kinds: bytearray,
    rows: list[Buffer],
    guard: Guard,
    route: Route,
    arrivals: Sequence[Arrival],
    all_of_them: Sequence[Arrival],
    now: int,
) -> None:
    """Write the rows of some of the messages that come to a queue together, and what kind each is of."""
    is_grouped = route.grouping and len(all_of_them) > 1
    base = guard.space_id << numbers.SEQUENCE_BITS
    for terms, alike in itertools.groupby(arrivals, _TERMS):
        # In a queue that groups, the first one says when they are available and where they stand.
        its = all_of_them[0].terms if is_grouped else terms
        position = position_of(route, its, now)
        kind = (_DESCENDS if position.descends and not its.before else 0) | (_IN_MEMORY if terms.memory else 0)
        same = rows_alike(route.queue_id, terms, position, now)
        kinds += bytes((kind,)) * add_rows(rows, same, base, alike)
