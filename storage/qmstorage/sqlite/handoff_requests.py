"""Works that a process may leave to another: a command of the engine, and what came of it, as bytes.

Nothing is asked by its name: whoever does the work need not have opened the queue space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgpack import Packer, unpackb

from qmcore.records import Use
from qmcore.refusals import Refused
from qmcore.selection import Choice
from qmcore.transitions import (
    Arrival,
    Claim,
    Claimed,
    Command,
    Commit,
    Committed,
    Empty,
    Enqueue,
    Enqueued,
    Guard,
    Level,
    Result,
    Route,
    Source,
    Taken,
    Terms,
    Times,
)
from qmstorage.sqlite.handoff_memory import CONTENT_MAX

if TYPE_CHECKING:
    from qmstorage.sqlite.unit import SqliteUnit

# As large as what it packs; it would be made for each.
packb: Final = Packer(buf_size=2 * CONTENT_MAX).pack

_CLAIM, _ENQUEUE, _COMMIT = range(1, 4)
_EMPTY, _CLAIMED, _ENQUEUED, _REFUSED, _COMMITTED = range(5)
_ROW_BYTES: Final = 512
"""About what a message takes in an answer, beside its body: more are not asked for than may find room."""


def run(unit: SqliteUnit, content: bytes) -> bytes | None:
    """Do what another process asks, and return the answer; None: nothing was done, and it has to do it itself."""
    kind, guard, *values = unpackb(content, use_list=False)
    its = Guard(*guard)
    if its.memory_pages and unit.memory(its.space_id) is None:
        # Only who has attached can see it.
        return None
    return _ACTS[kind](unit, its, *values)


def packed(command: Command) -> bytes | None:
    """Return what is asked; None where that is nothing for another process."""
    if isinstance(command, Claim):
        return _packed_claim(command)
    if isinstance(command, Enqueue) and command.holder is None:
        return _packed_if_small((_ENQUEUE, *command[:3]), command.arrivals)
    if isinstance(command, Commit):
        return _packed_if_small((_COMMIT, *command), [each for _, arrivals in command.brings for each in arrivals])
    return None


def outcome(answer: bytes) -> Result | Refused:
    """Return what came of it: what the store answers."""
    kind, values = unpackb(answer, use_list=False)
    if kind == _REFUSED:
        return Refused(*values)
    if kind == _ENQUEUED:
        return Enqueued(*values)
    if kind == _EMPTY:
        return Empty(*values)
    if kind == _COMMITTED:
        return Committed(*values)
    return Claimed([Taken(*each) for each in values])


def _packed(request: tuple[Any, ...]) -> bytes | None:
    try:
        content: bytes = packb(request)
    except (ValueError, OverflowError):
        # What cannot be stored either, as half of a character.
        return None
    return content if len(content) <= CONTENT_MAX else None


def _packed_if_small(request: tuple[Any, ...], arrivals: Sequence[Arrival]) -> bytes | None:
    return None if sum(arrival.size for arrival in arrivals) >= CONTENT_MAX else _packed(request)


def _packed_claim(claim: Claim) -> bytes | None:
    guard, source, choices, limit, body, is_tidy, holder = claim
    if holder is not None or limit * _ROW_BYTES > CONTENT_MAX or any(choice.space is not None for choice in choices):
        return None
    chosen = [(choice.message_id, choice.corrid) for choice in choices]
    return _packed((_CLAIM, guard, source, chosen, limit, body, is_tidy))


def _claim(
    unit: SqliteUnit,
    guard: Guard,
    source: tuple[Any, ...],
    choices: Sequence[tuple[int | None, bytes | None]],
    limit: int,
    body: bool,
    is_tidy: bool,
) -> bytes | None:
    command = Claim(guard, _source(source), [Choice(*choice) for choice in choices], limit, body, is_tidy, None)
    unit.begin_part()
    try:
        result = unit.claim(command)
        if isinstance(result, Refused):
            # Whoever asks tells why.
            return None
        answer: bytes = packb((_CLAIMED, result.taken) if isinstance(result, Claimed) else (_EMPTY, result))
        if len(answer) > CONTENT_MAX:
            unit.undo_part()
            return None
    finally:
        unit.end_part()
    return answer


def _enqueue(
    unit: SqliteUnit, guard: Guard, route: tuple[Any, ...], arrivals: Sequence[tuple[Any, ...]]
) -> bytes | None:
    result = unit.enqueue(Enqueue(guard, _route(route), _arrivals(arrivals)))
    # There is room for it: each message takes more in the request than its number takes here.
    answer: bytes
    if isinstance(result, Refused):
        answer = packb((_REFUSED, result))
    else:
        answer = packb((_ENQUEUED, (tuple(result.sequences), result.reached)))
    return answer


def _commit(
    unit: SqliteUnit,
    guard: Guard,
    transaction_id: int,
    owner_id: int,
    recorded: bool,
    sources: Sequence[tuple[Any, ...]],
    holds: tuple[int, int, int],
    locks: bool,
    stored: Sequence[tuple[Any, ...]],
    spilled: int,
    brings: Sequence[tuple[Any, Any]],
) -> bytes | None:
    its = [_source(source) for source in sources], Use(*holds), locks, [_route(route) for route in stored], spilled
    coming = [(_route(route), _arrivals(arrivals)) for route, arrivals in brings]
    results = unit.execute([Commit(guard, transaction_id, owner_id, recorded, *its, coming)])
    answer: bytes = packb((_REFUSED, results) if isinstance(results, Refused) else (_COMMITTED, results[0]))
    return answer


def _source(source: tuple[Any, ...]) -> Source:
    found = Source(*source)
    return found._replace(levels=_levels(found.levels))


def _route(route: tuple[Any, ...]) -> Route:
    found = Route(*route)
    return found._replace(levels=_levels(found.levels))


def _arrivals(arrivals: Sequence[tuple[Any, ...]]) -> list[Arrival]:
    return [Arrival(body, size, pages, _terms(*terms), given) for body, size, pages, terms, given in arrivals]


def _levels(levels: Sequence[tuple[Any, ...]]) -> tuple[Level, ...]:
    return tuple(Level(*level) for level in levels)


def _terms(memory: bool, kind: str, priority: int, head: bytes, descends: bool, times: Any, *others: Any) -> Terms:
    return Terms(memory, kind, priority, head, descends, None if times is None else Times(*times), *others)


_ACTS: Final[dict[int, Callable[..., bytes | None]]] = {_CLAIM: _claim, _ENQUEUE: _enqueue, _COMMIT: _commit}
