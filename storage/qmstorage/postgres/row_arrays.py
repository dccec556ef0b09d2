"""Messages that come, as rows of their table, in the form in which the server takes an array of them.

A value stands behind the number of its type and its length, a row behind its length and the number of its columns, and
all rows behind the number of their type. What messages on the same terms have in common is written once.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from qmcore.transitions import ALL_OPTIONS, Arrival, Terms
from qmstorage import bodies
from qmstorage.postgres.tables import TYPE_NAMES
from qmstorage.rows import Position
from qmstorage.schema import message
from qmstorage.sql import type_of

Buffer: TypeAlias = bytes | bytearray | memoryview

SENT: Final[dict[str, Callable[[Any], Buffer]]] = {
    "bool": struct.Struct("!?").pack,
    "int2": struct.Struct("!h").pack,
    "int4": struct.Struct("!i").pack,
    "int8": struct.Struct("!q").pack,
    # As it is: bytes and views are not copied.
    "bytea": itemgetter(slice(None)),
    "text": str.encode,
}
"""How a value is sent, by what the server calls its type."""

_HEADER: Final = struct.Struct("!Ii").pack
"""The type of a value and its length; -1 is that of none."""

_FIELDS: Final = {
    column.name: (psycopg.adapters.types[its_type].oid, SENT[its_type])
    for column in message.columns
    for its_type in (TYPE_NAMES[type_of(column)],)
}
_NAMES: Final = list(_FIELDS)
_PLACES: Final = _NAMES[1 : _NAMES.index("pages")]
_OPTIONS: Final = _NAMES[_NAMES.index("urcode") : _NAMES.index("body_id")]
# What else differs from one to the other stands between these.
assert ["id", *_PLACES, "pages", "size", *_OPTIONS, "body_id", "body", *_NAMES[-2:]] == _NAMES  # noqa: S101


def _value(name: str, value: Any) -> bytes:
    oid, send = _FIELDS[name]
    if value is None:
        return _HEADER(oid, -1)
    sent = send(value)
    return _HEADER(oid, len(sent)) + sent


_LONG, _INTEGER, _SHORT, _BYTES = (_FIELDS[name][0] for name in ("size", "queue_id", "priority", "body"))
_QUEUE_AND_KEY: Final = struct.Struct("!IiiIi").pack
_PRIORITY_AND_TIME: Final = struct.Struct("!IihIiq").pack
_NO_TIMES: Final = _value("available_at", None) + _value("expires_at", None)
_COUNT: Final = struct.pack("!i", len(_NAMES))
_NO_NUMBER: Final = _value("id", None)
_CHARGE: Final = struct.Struct("!IiqIiq").pack
_IN_ROW: Final = _value("body_id", None)
_APART: Final = _value("body_id", 0) + _value("body", None)
_NO_BODY: Final = _IN_ROW + _value("body", None)
_END: Final = b"".join(_value(name, None) for name in _NAMES[-2:])
_LENGTH: Final = struct.Struct("!i").pack
LENGTH_BYTES: Final = 4
"""How long the length is that stands before a row among others."""

_ARRAY: Final = struct.Struct("!iiIii").pack
_UNSET: Final = [_value(name, {"urcode": 0, "appkey": 0}.get(name)) for name in _OPTIONS]
"""What is sent of each option where a message does not have it."""
_OPTION_AT: Final = {name: at for at, name in enumerate(_OPTIONS)}


class RowsAlike(NamedTuple):
    """What messages on the same terms have in common, before and behind what each is charged for."""

    place: bytes
    options: bytes


def rows_alike(queue_id: int, terms: Terms, position: Position, now: int) -> RowsAlike:
    """Return what messages have in common that come to a position in a queue; their keys lack the numbers."""
    available, expires, head, _ = position
    times = _NO_TIMES
    if available is not None or expires is not None:
        times = _value("available_at", available) + _value("expires_at", expires)
    queue_and_key = _QUEUE_AND_KEY(_INTEGER, 4, queue_id, _BYTES, len(head))
    place = queue_and_key + head + _PRIORITY_AND_TIME(_SHORT, 2, terms.priority, _LONG, 8, now) + times
    return RowsAlike(place, _options(terms.type, terms.options) if terms.options else _without_options(terms.type))


def add_rows(rows: list[Buffer], same: RowsAlike, base: int, arrivals: Iterable[Arrival]) -> int:
    """Write the rows of messages that have so much in common behind others, and return how many they are.

    Their numbers are those of their identifiers behind `base`; the server gives them where there are none.
    """
    count, last, front, is_inside = 0, None, b"", False
    for arrival in arrivals:
        body, size, pages, _, sequence = arrival
        its = size, pages, sequence, body is None
        if its != last:
            # Those that come together mostly have this in common, too.
            last, is_inside = its, size <= bodies.IN_ROW_MAX
            start = _start(same, base | sequence if sequence else None, arrival)
            front = _LENGTH(len(start) + (size if is_inside else 0) + len(_END)) + start
        rows += (front, (body or b"") if is_inside else b"", _END)
        count += 1
    return count


def row_of(same: RowsAlike, number: int | None, arrival: Arrival) -> bytes:
    """Return the row of a message by itself, of which the body is in the row."""
    return b"".join((_start(same, number, arrival), arrival.body or b"", _END))


def _start(same: RowsAlike, number: int | None, arrival: Arrival) -> bytes:
    """Return the row of a message as far as its body, if that is in the row."""
    body, size, pages, _, _ = arrival
    place, options = same
    numbered = _NO_NUMBER if number is None else _HEADER(_LONG, 8) + SENT["int8"](number)
    content = _NO_BODY if body is None else _IN_ROW + _HEADER(_BYTES, size)
    if size > bodies.IN_ROW_MAX:
        content = _APART
    return b"".join((_COUNT, numbered, place, _CHARGE(_LONG, 8, pages, _LONG, 8, size), options, content))


class Packed(NamedTuple):
    """A row, or an array of rows, as a value for a cursor of the driver."""

    sent: bytes


class PackedDumper(Dumper):
    """Sends rows as they are. The server finds out which type they have."""

    format = Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        """Return what is sent."""
        return obj.sent


def array_of(row_type: int, count: int, rows: list[Buffer]) -> bytes:
    """Return rows as an array, by the number that the server has given the type of their table."""
    return b"".join((_ARRAY(1, 0, row_type, count, 1), *rows))


def _options(kind: str, options: tuple[Any, ...]) -> bytes:
    parts = _UNSET.copy()
    parts[_OPTION_AT["type"]] = _value("type", kind)
    for name, value in zip(ALL_OPTIONS, options, strict=False):
        # 0 is what the two numbers are that are always there.
        if value is not None and value != 0:
            parts[_OPTION_AT[name]] = _value(name, value)
    return b"".join(parts)


@functools.lru_cache(maxsize=256)
def _without_options(kind: str) -> bytes:
    return _options(kind, ())
