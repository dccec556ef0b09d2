"""Having the server let messages arrive: the values of its function `qm_enqueue`, and what its answer says.

One call brings all messages of a value, unless they are too much for one. Then the first counts all of them, or is
refused, and the others bring what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from qmcore import numbers
from qmcore.limits import Unit
from qmcore.transitions import STALE, Arrival, Enqueue, Enqueued, Level, Reached, Reason, Refused, Terms
from qmstorage import bodies
from qmstorage.positions import position_of
from qmstorage.postgres import keys
from qmstorage.postgres.row_arrays import Buffer, RowsAlike, add_row, array_of, rows_alike
from qmstorage.postgres.tables import quoted

Values: TypeAlias = dict[str, Any]

_USUAL: Final = {
    "volume_lock": "int8",
    "of_space": "int4",
    "known": "int8",
    "most_messages": "int8",
    "most_pages": "int8",
    "most_memory": "int8",
    "of_queue": "int4",
    "at_time": "int8",
    "of_slot": "int4",
    "mark": "int8",
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
}
TYPES: Final = {False: _USUAL, True: _USUAL | _SPECIAL}
"""The values of a call and their types: of most, and of those that ask for something special."""

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


def text_of(schema: str, *, special: bool, asked: str = "*") -> str:
    """Return the call of the function in a schema, with the names of its values."""
    values = ", ".join(f"%({name})s::{kind}" for name, kind in TYPES[special].items())
    called = f"SELECT {asked} FROM {quoted(schema)}.qm_enqueue({values})"  # noqa: S608 - names of ours
    return called.replace("{device}", quoted(schema))


def calls(schema: str) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield the names, the texts and the types of the calls for one small message, for several, and for special ones.

    Of the first it is asked what `refused` takes, behind the number and whether anybody waits.
    """
    of_one = "numbers[1], is_awaited, reason, used, most, wanted"
    yield "qm_enqueue", text_of(schema, special=False, asked=of_one), TYPES[False]
    yield "qm_enqueue_several", text_of(schema, special=False), TYPES[False]
    yield "qm_enqueue_special", text_of(schema, special=True), TYPES[True]


class Answer(NamedTuple):
    """What the function gives: a refusal, or all else."""

    reason: int | None
    used: int | None
    most: int | None
    wanted: int | None
    numbers: list[int]
    reached: list[int] | None
    reached_at: list[int] | None
    is_awaited: bool
    transaction_number: str | None

    @property
    def refused(self) -> Refused:
        """The refusal, where there is a reason."""
        return Refused(Reason(self.reason or 0), self.used or 0, self.most or 0, self.wanted or 0)


_NO_ANSWER: Final = Answer(None, None, None, None, [], None, None, False, None)


class Caller(NamedTuple):
    """Who calls: the schema and the lock of the volume, the slot of the counters that are written.

    `row_type` is the number of the type of the table's rows in this database. `has_memory` says whether the process has
    a part in the non-persistent messages of the queue space.
    """

    schema: str
    lock: int
    slot: int
    row_type: int
    has_memory: bool


def refused(sent: Sequence[bytes | None]) -> Refused:
    """Return the refusal of a call for one message as the server has sent it; without one the queue space is gone."""
    if not sent:
        return STALE
    reason, used, most, wanted = (0 if value is None else int.from_bytes(value, signed=True) for value in sent)
    return Refused(Reason(reason), used, most, wanted)


def is_special(command: Enqueue) -> bool:
    """Return whether a value asks for more than what messages that go to the disk always need."""
    _, route, arrivals = command
    return bool(
        route.levels
        or (route.grouping and len(arrivals) > 1)
        or any(arrival.terms.memory or arrival.terms.before for arrival in arrivals)
    )


def is_small(command: Enqueue) -> bool:
    """Return whether a value brings one message, of which nothing is to be known but that it has come."""
    _, route, arrivals = command
    terms, size = arrivals[0].terms, arrivals[0].size
    is_special = route.levels or terms.memory or terms.before
    return len(arrivals) == 1 and size <= bodies.IN_ROW_MAX and not is_special


def values_of(command: Enqueue, caller: Caller, now: int, mark: int) -> Values:
    """Return the values of the one call for a small value."""
    route, (arrival,) = command.route, command.arrivals
    terms = arrival.terms
    position = position_of(route, terms, now)
    number = numbers.number(command.guard.space_id, arrival.sequence) if arrival.sequence else None
    rows: list[Buffer] = []
    add_row(rows, rows_alike(route.queue_id, terms, position, now), number, arrival)
    values = _usual(command, caller, now, mark)
    values["kinds"] = b"\1" if position.descends else b"\0"
    values["arrivals"] = array_of(caller.row_type, 1, rows)
    return values


def enqueue(
    command: Enqueue,
    caller: Caller,
    now: int,
    call: Callable[[Values, bool], Sequence[Any]],
    keep_apart: Callable[[Arrival, int], None],
) -> tuple[Enqueued, Answer] | Refused:
    """Let messages arrive by as many calls as it takes, in one transaction; the last answer comes with the result.

    `call` is told whether the values are all or the usual ones, `keep_apart` keeps the body of a message by its number.
    """
    guard, route, arrivals = command
    values, special = _usual(command, caller, now, None), is_special(command)
    places: dict[Terms, int] = {}
    if special:
        values |= _special(command, caller, places)
    base, found = guard.space_id << numbers.SEQUENCE_BITS, list[int]()
    levels, answer = _levels(command), _NO_ANSWER
    for start, end in _parts(arrivals):
        part = arrivals[start:end]
        _bring(values, command, part, caller, now, places)
        if levels and end == len(arrivals):
            values |= _of_levels(levels, route.queue_id, caller.schema)
        answer = Answer(*call(values, special))
        if answer.reason is not None:
            return answer.refused
        found += answer.numbers
        for arrival, number in zip(part, answer.numbers, strict=True):
            if arrival.size > bodies.IN_ROW_MAX:
                keep_apart(arrival, base | (arrival.sequence or number))
        values |= _COUNTED_BEFORE
        if special and values["group_id"] is not None:
            values["group_id"] = base | (arrivals[0].sequence or found[0])
    reached = [
        Reached(route.queue_id, levels[at - 1].memory, use)
        for at, use in zip(answer.reached or (), answer.reached_at or (), strict=True)
    ]
    given = [arrival.sequence for arrival in arrivals] if arrivals[0].sequence else found
    return Enqueued(given, reached), answer


# ---- values ----------------------------------------------------------------------------------------------------------


def _usual(command: Enqueue, caller: Caller, now: int, mark: int | None) -> Values:
    guard, route, arrivals = command
    if len(arrivals) == 1:
        ((_, size, pages, _, _),) = arrivals
    else:
        size, pages = sum(arrival.size for arrival in arrivals), sum(arrival.pages for arrival in arrivals)
    return {
        "volume_lock": caller.lock,
        "of_space": guard.space_id,
        "known": guard.generation,
        "most_messages": guard.messages,
        "most_pages": guard.pages,
        "most_memory": guard.memory_pages,
        "of_queue": route.queue_id,
        "at_time": now,
        "of_slot": caller.slot,
        "mark": mark,
        "brought": len(arrivals),
        "pages": pages,
        "size": size,
    }


def _special(command: Enqueue, caller: Caller, places: dict[Terms, int]) -> Values:
    """Return the values that few need; in `places` is noted which message those on such terms are to stand before."""
    guard, route, arrivals = command
    values = _NOTHING_SPECIAL | {"has_memory": caller.has_memory, "of_owner": guard.owner_id}
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
    pages, size = sum(arrival.pages for arrival in arrivals), sum(arrival.size for arrival in arrivals)
    return {"brought": len(arrivals), "pages": pages, "size": size}


def _levels(command: Enqueue) -> list[Level]:
    """Return the high limits that may be reached, where somebody is attached who can claim their commands."""
    guard, route, arrivals = command
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
    guard, route, all_of_them = command
    is_grouped = route.grouping and len(all_of_them) > 1
    base = guard.space_id << numbers.SEQUENCE_BITS
    rows: list[Buffer] = []
    kinds = bytearray()
    last, same, kind = None, RowsAlike(b"", b""), 0
    for arrival in arrivals:
        terms = arrival.terms
        if terms is not last:
            # In a queue that groups, the first one says when they are available and where they stand.
            its = all_of_them[0].terms if is_grouped else terms
            position = position_of(route, its, now)
            same = rows_alike(route.queue_id, terms, position, now)
            kind = (_DESCENDS if position.descends and not its.before else 0) | (_IN_MEMORY if terms.memory else 0)
            last = terms
        kinds.append(kind)
        add_row(rows, same, base | arrival.sequence if arrival.sequence else None, arrival)
    values["kinds"] = kinds
    values["arrivals"] = array_of(caller.row_type, len(arrivals), rows)
    if places:
        at = [places.get(all_of_them[0].terms if is_grouped else arrival.terms, 0) for arrival in arrivals]
        values["stands_before"] = at
