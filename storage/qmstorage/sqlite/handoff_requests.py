"""Works that a process may leave to another: what is asked, and what came of it, as bytes.

They are those of the short way, where a single message comes or goes for good. Nothing is asked by its name: whoever
does the work need not have opened the queue space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgpack import Packer, unpackb

from qmcore.message import Message, State
from qmcore.queue import Delivery
from qmcore.records import Nothing
from qmcore.shortcut import PlainDeparture
from qmcore.space import Space, SpaceDefinition
from qmcore.transitions import Arrival, Command, Enqueue, Enqueued, Guard, Level, Refused, Result, Route, Terms, Times
from qmstorage import rows
from qmstorage.sqlite.handoff_memory import CONTENT_MAX

if TYPE_CHECKING:
    from qmstorage.sqlite.unit import SqliteUnit

# As large as what it packs; it would be made for each.
packb: Final = Packer(buf_size=2 * CONTENT_MAX).pack

_DEPART, _ENQUEUE = range(1, 3)

_SOME_SPACE: Final = Space(
    id=0,
    incarnation="0" * 16,
    definition=SpaceDefinition(name="SOME", ipc_key=1, pages=9, queues=1, transactions=1, processes=1, messages=1),
    initialized=False,
    created_at=0,
)
"""Stands for the queue space of a message, which this process need not have opened."""


Request: TypeAlias = Command | PlainDeparture
"""A work that may be left to another process."""


def run(unit: SqliteUnit, content: bytes) -> bytes | None:
    """Do what another process asks, and return the answer; None: nothing was done, and it has to do it itself."""
    kind, *values = unpackb(content, use_list=False)
    return _ACTS[kind](unit, *values)


def packed(request: Request) -> bytes | None:
    """Return what is asked; None where that is nothing for another process."""
    return _packed_departure(request) if isinstance(request, PlainDeparture) else _packed_command(request)


def outcome(request: Request, answer: bytes) -> Sequence[Result] | Refused | Message | Nothing:
    """Return what came of it: of a command what the store answers; the message that went, if there was one."""
    if not isinstance(request, PlainDeparture):
        is_refused, values = unpackb(answer)
        return Refused(*values) if is_refused else [Enqueued(*values)]
    retries, row = unpackb(answer)
    if retries is None:
        due, held = row
        return Nothing((request.queue_id,), due, held=held)
    its = rows.facts(row[: rows.BODY_ID], request.space, request.queue_name, Delivery.PERSIST)
    return rows.to_message(its, row[rows.BODY], retries, State.HELD)


def _packed_command(command: Command) -> bytes | None:
    """Return what is asked; None where the bodies are large."""
    if sum(arrival.size for arrival in command.arrivals) >= CONTENT_MAX:
        return None
    try:
        content: bytes = packb((_ENQUEUE, *command))
    except (ValueError, OverflowError):
        # What cannot be stored either, as half of a character.
        return None
    return content if len(content) <= CONTENT_MAX else None


def _packed_departure(departure: PlainDeparture) -> bytes:
    space, generation, queue_id, _, now = departure
    content: bytes = packb((_DEPART, space.id, generation, queue_id, now))
    return content


def _enqueue(
    unit: SqliteUnit, guard: tuple[Any, ...], route: tuple[Any, ...], arrivals: Sequence[tuple[Any, ...]]
) -> bytes | None:
    its = Guard(*guard)
    if its.memory_pages and unit.memory(its.space_id) is None:
        # Only who has attached can see it.
        return None
    queue_id, head, criteria, descends, groups, levels = route
    way = Route(queue_id, head, criteria, descends, groups, tuple(Level(*level) for level in levels))
    made = [Arrival(body, size, pages, _terms(*terms), given) for body, size, pages, terms, given in arrivals]
    result = unit.enqueue(Enqueue(its, way, made))
    # There is room for it: each message takes more in the request than its number takes here.
    answer: bytes
    if isinstance(result, Refused):
        answer = packb((True, result))
    else:
        answer = packb((False, (tuple(result.sequences), result.reached)))
    return answer


def _terms(memory: bool, kind: str, priority: int, head: bytes, descends: bool, times: Any, *others: Any) -> Terms:
    return Terms(memory, kind, priority, head, descends, None if times is None else Times(*times), *others)


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


_ACTS: Final[dict[int, Callable[..., bytes | None]]] = {_DEPART: _depart, _ENQUEUE: _enqueue}
