"""The commit of a transaction on PostgreSQL: the function `qm_commit` does most of it, in one call.

The call ends the transaction, lets what it holds on disk go, and lets arrive what it brings there, but for what has to
be seen to besides: messages that `apart` tells arrive by calls of their own in the same database transaction.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from qmcore.purpose import WrongPurposeError
from qmcore.records import Use
from qmcore.transitions import (
    STALE,
    Admit,
    Admitted,
    Arrival,
    Commit,
    Committed,
    Enqueue,
    Reached,
    Reason,
    Refused,
    Route,
)
from qmstorage import bodies, claiming, settling
from qmstorage.postgres import arriving, own_marks
from qmstorage.postgres.arriving import Caller
from qmstorage.postgres.pipeline import Call
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    from qmstorage.postgres.transitions import Transitions

_NOTHING: Final = Use(0, 0, 0)
Values: TypeAlias = dict[str, Any]
Brings: TypeAlias = list[tuple[Route, Sequence[Arrival]]]

_TYPES: Final = {
    "volume_lock": "int8",
    "of_space": "int4",
    "known": "int8",
    "most_messages": "int8",
    "most_pages": "int8",
    "most_memory": "int8",
    "of_slot": "int4",
    "mark": "int8",
    "at_time": "int8",
    "of_transaction": "int8",
    "of_owner": "int8",
    "sources": "int4[]",
    "held": "int8",
    "to_queues": "int4[]",
    "brought": "int8[]",
    "pages": "int8[]",
    "sizes": "int8[]",
    "kinds": "bytea",
    "arrivals": "{device}.message[]",
}
_HEAD, _EACH = 20, 12
"""How many bytes of a list that the server sends stand before its numbers, and how many each takes with its length."""
_KEEPING: Final = _TYPES | {"keeps": "bool[]", "consumer": "text"}


def admit(unit: Transitions, command: Admit) -> Admitted | Refused:
    """Say whether there is room for what a transaction enqueues, and give it numbers."""
    ((generation, *use),) = unit.all(own_marks.LEVEL, space_id=command.guard.space_id)
    return STALE if generation != command.guard.generation else settling.admit(unit, command, Use(*use))


def commit(unit: Transitions, command: Commit) -> Committed | Refused:
    """Commit a transaction: what it holds goes, and what it brings arrives."""
    if not unit.purpose.settles:
        raise WrongPurposeError(unit.purpose, "commits a transaction")
    guard, now = command.guard, unit.clock.now()
    besides = apart(command)
    ended = _read(unit.ask(*asked(command, besides, arriving.caller_of(unit), None, now))[0][0])
    if isinstance(ended, Refused):
        return ended
    number, awaited = ended
    unit.heard.append(str(number))
    arrived = (route.queue_id for route, _ in command.brings if route not in [each for each, _ in besides])
    for queue_id, is_awaited in zip(arrived, awaited, strict=True):
        arriving.note(unit, queue_id, is_awaited=is_awaited)
    if command.spilled and settling.lacks_spilled(unit, command):
        return Refused(Reason.LOST)
    for store in claiming.stores_of(unit, guard):
        if store is not unit:
            for source in command.sources:
                settling.consume_in_memory(command, store, source)
        if command.locks:
            settling.give_back_locked(command, store, now)
    settling.rearm_levels(unit, command)
    result = _settle_spilled(unit, command, besides, now)
    if not is_whole(command):
        # Who waits is asked after the commit: what the call has said is old by then.
        unit.awaited.clear()
    return result


def _settle_spilled(unit: Transitions, command: Commit, besides: Brings, now: int) -> Committed | Refused:
    """Let arrive what a transaction brings that has to be seen to, and what it has spilled."""
    brings = settling.keep_with_spilled(unit, command, besides)
    refused = settling.overflow_of_spilled(unit, command, _NOTHING, _NOTHING) if command.stored else None
    if refused is not None:
        return refused
    reached: list[Reached] = []
    # What stands in the store already comes first.
    for route in command.stored:
        reached += settling.stand_spilled(unit, command, route, now)
    for route, arrivals in brings:
        result = unit.enqueue(Enqueue(command.guard, route, arrivals))
        if isinstance(result, Refused):
            return result
        reached += result.reached
    return Committed(reached)


def asks_only(unit: Transitions, command: Commit) -> tuple[Call, dict[str, Any]] | None:
    """Return the call by which a transaction is committed, where it takes no other statement; else None."""
    return asked(command, [], arriving.caller_of(unit), None, unit.clock.now()) if is_whole(command) else None


# ---- what is asked and answered --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _call(schema: str, *, keeps: bool) -> Call:
    """Return the call of the function of a schema; with what queues need that keep what is consumed, or without."""
    types = _KEEPING if keeps else _TYPES
    values = ", ".join(f"{name} => %({name})s::{its}" for name, its in types.items())
    text = f"SELECT {quoted(schema)}.qm_commit({values})".replace("{device}", quoted(schema))
    return Call("qm_commit_keeping" if keeps else "qm_commit", text, types)


def apart(command: Commit) -> Brings:
    """Return what a transaction brings, and has to be seen to besides the one call."""
    if command.guard.memory_pages:
        return list(command.brings)
    stored = {route.queue_id for route in command.stored} if command.stored else ()
    size, its = 0, []
    for route, arrivals in command.brings:
        is_apart = route.levels or (route.grouping and len(arrivals) > 1) or route.queue_id in stored
        for arrival in arrivals:
            size += arrival.size
            is_apart = is_apart or arrival.terms.memory or arrival.size > bodies.IN_ROW_MAX
        if is_apart or size > arriving.MOST_BYTES:
            its.append((route, arrivals))
    return its


def is_whole(command: Commit) -> bool:
    """Return whether the one call does all of it."""
    if command.guard.memory_pages or command.locks or command.stored:
        return False
    for source in command.sources:
        if source.levels:
            return False
    return not apart(command)


def asked(command: Commit, besides: Brings, caller: Caller, mark: int | None, now: int) -> tuple[Call, Values]:
    """Return the call for a transaction; what is to be seen to `besides` does not arrive by it."""
    guard, transaction_id, owner_id, recorded, sources, holds, _, _, _, _ = command
    brings = [each for each in command.brings if each not in besides] if besides else command.brings
    kinds, rows = arriving.rows_of(brings, guard, now)
    to_queues, pages, sizes = list[int](), list[int](), list[int]()
    for route, arrivals in brings:
        to_queues.append(route.queue_id)
        pages.append(sum(map(arriving.PAGES, arrivals)))
        sizes.append(sum(map(arriving.SIZE, arrivals)))
    its_sources, keeps = list[int](), False
    for source in sources:
        its_sources.append(source.queue_id)
        keeps = keeps or source.retains
    values: Values = {
        "volume_lock": caller.lock,
        "of_space": guard.space_id,
        "known": guard.generation,
        "most_messages": guard.messages,
        "most_pages": guard.pages,
        "most_memory": guard.memory_pages,
        "of_slot": caller.slot,
        "mark": mark,
        "at_time": now,
        "of_transaction": transaction_id if recorded else None,
        "of_owner": owner_id,
        "sources": its_sources,
        "held": holds.messages,
        "to_queues": to_queues,
        "brought": [len(arrivals) for _, arrivals in brings],
        "pages": pages,
        "sizes": sizes,
        "kinds": kinds,
        "arrivals": arriving.packed_rows(rows, caller, len(kinds)),
    }
    if keeps:
        values |= {"keeps": [source.retains for source in sources], "consumer": guard.consumer}
    return _call(caller.schema, keeps=keeps), values


def answer_of(sent: Sequence[bytes | None]) -> tuple[int, Sequence[bool]] | Refused:
    """Return what `read` does of the list as the server has sent it."""
    (numbers_sent,) = sent
    if numbers_sent is None:
        return STALE
    count = (len(numbers_sent) - _HEAD) // _EACH
    return _read(struct.unpack_from("!" + "4xq" * count, numbers_sent, _HEAD))


def _read(answer: Sequence[int] | None) -> tuple[int, Sequence[bool]] | Refused:
    """Return the number of the mark, or of the database transaction, and for which queues somebody waits."""
    if answer is None:
        return STALE
    if answer[0] >= 0:
        reason, used, limit, wanted = answer
        return Refused(Reason(reason), used, limit, wanted)
    return answer[1], list(map(bool, answer[2:]))
