"""Works that a process may leave to another: what is asked, and what came of it, as bytes.

They are those of the short way, where a single message comes or goes for good. Nothing is asked by its name: whoever
does the work need not have opened the queue space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgpack import Packer, unpackb

from qmcore import numbers
from qmcore.message import Message, State
from qmcore.order import ordinary_key
from qmcore.queue import Delivery
from qmcore.records import Nothing
from qmcore.shortcut import PlainArrival, PlainDeparture
from qmcore.space import Space, SpaceDefinition
from qmstorage import rows
from qmstorage.sqlite.handoff_memory import CONTENT_MAX

if TYPE_CHECKING:
    from qmstorage.sqlite.unit import SqliteUnit

# As large as what it packs; it would be made for each.
packb: Final = Packer(buf_size=2 * CONTENT_MAX).pack

_ARRIVE, _DEPART = range(2)

_SOME_SPACE: Final = Space(
    id=0,
    incarnation="0" * 16,
    definition=SpaceDefinition(name="SOME", ipc_key=1, pages=9, queues=1, transactions=1, processes=1, messages=1),
    initialized=False,
    created_at=0,
)
"""Stands for the queue space of a message, which this process need not have opened."""


Errand: TypeAlias = PlainArrival | PlainDeparture
"""A work that may be left to another process."""


def run(unit: SqliteUnit, request: bytes) -> bytes | None:
    """Do what another process asks, and return the answer; None: nothing was done, and it has to do it itself."""
    kind, *values = unpackb(request)
    return _ACTS[kind](unit, *values)


def packed(errand: Errand) -> bytes | None:
    """Return what is asked; None where that is nothing for another process."""
    return _packed_arrival(errand) if isinstance(errand, PlainArrival) else _packed_departure(errand)


def outcome(errand: Errand, answer: bytes) -> int | Message | Nothing:
    """Return what came of it: the sequence number of a message that came; the message that went, if there was one."""
    if isinstance(errand, PlainArrival):
        sequence: int = unpackb(answer)
        return sequence
    retries, row = unpackb(answer)
    if retries is None:
        due, held = row
        return Nothing((errand.queue_id,), due, held=held)
    its = rows.facts(row[: rows.BODY_ID], errand.space, errand.queue_name, Delivery.PERSIST)
    return rows.to_message(its, row[rows.BODY], retries, State.HELD)


def _packed_arrival(arrival: PlainArrival) -> bytes | None:
    """Return what is asked; None where the body is large, or the message has options that few have."""
    (space, generation, _, head, descends, most_messages, most_pages), new = arrival
    row = rows.row_of(new, 0, b"") if new.size < CONTENT_MAX else None
    if row is None:
        return None
    its = space.id, generation, head, descends, most_messages, most_pages, new.pages, new.size, row
    try:
        request: bytes = packb((_ARRIVE, *its))
    except (ValueError, OverflowError):
        # What cannot be stored either, as half of a character: the ordinary way refuses it.
        return None
    return request if len(request) <= CONTENT_MAX else None


def _packed_departure(departure: PlainDeparture) -> bytes:
    space, generation, queue_id, _, now = departure
    request: bytes = packb((_DEPART, space.id, generation, queue_id, now))
    return request


def _arrive(
    unit: SqliteUnit,
    space_id: int,
    generation: int,
    head: bytes,
    descends: bool,
    most_messages: int,
    most_pages: int,
    pages: int,
    size: int,
    row: list[Any],
) -> bytes | None:
    queue_id = row[1]
    sequence = unit.admit(space_id, generation, queue_id, most_messages, most_pages, pages, size)
    if sequence is None:
        return None
    row[0], row[2] = numbers.number(space_id, sequence), ordinary_key(head, sequence, descends=descends)
    unit.stand(row[0], queue_id, row[2], tuple(row))
    answer: bytes = packb(sequence)
    return answer


def _depart(unit: SqliteUnit, space_id: int, generation: int, queue_id: int, now: int) -> bytes | None:
    found = unit.first_of(space_id, generation, queue_id, now)
    if found is None:
        return None
    answer: bytes
    if isinstance(found, Nothing):
        answer = packb((None, (found.next_due_us, found.held)))
        return answer
    key, retries, row, _ = found
    answer = packb((retries, row))
    # Whoever asks is told of what is damaged by the ordinary way: once it is taken away, it is too late for that.
    if len(answer) > CONTENT_MAX or not unit.is_sound(row, _SOME_SPACE):
        return None
    unit.take_away(space_id, queue_id, key, row)
    return answer


_ACTS: Final[dict[int, Callable[..., bytes | None]]] = {_ARRIVE: _arrive, _DEPART: _depart}
