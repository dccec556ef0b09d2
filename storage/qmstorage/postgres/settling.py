"""The commit of a transaction on PostgreSQL: the function `qm_commit` does most of it, in one call.

The call ends the transaction, lets what it holds on disk go, and lets arrive what it brings there, but for what has to
be seen to besides: messages that `apart` tells arrive by calls of their own in the same database transaction.
"""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from qmcore.purpose import WrongPurposeError
from qmcore.records import Use
from qmcore.refusals import STALE, Reason, Refused
from qmcore.transitions import Admit, Admitted, Arrival, Commit, Committed, Enqueue, Guard, Reached, Route
from qmstorage import bodies, claiming, settling
from qmstorage.postgres import arriving, own_marks
from qmstorage.postgres.arriving import Caller
from qmstorage.postgres.pipeline import Call
from qmstorage.postgres.row_arrays import array_of
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    from qmstorage.postgres.transitions import Transitions

_NOTHING: Final = Use(0, 0, 0)
Values: TypeAlias = dict[str, Any]
Brings: TypeAlias = Sequence[tuple[Route, Sequence[Arrival]]]

_ALWAYS: Final = {
    "volume_lock": "int8",
    "of_space": "int4",
    "known": "int8",
    "most_messages": "int8",
    "most_pages": "int8",
    "of_slot": "int4",
    "mark": "int8",
    "at_time": "int8",
    "of_transaction": "int8",
    "of_owner": "int8",
    "held": "int8",
    "sources": "int4",
    "queues": "int4[]",
    "brought": "int8[]",
    "pages": "int8[]",
    "sizes": "int8[]",
}
_ONE: Final = _ALWAYS | {"of_queue": "int4", "kinds": "bytea", "arrival": "{device}.message"}
_SEVERAL: Final = _ALWAYS | {"targets": "int4[]", "kinds": "bytea", "arrivals": "{device}.message[]"}
_HEAD, _EACH = 20, 12
"""How many bytes of a list that the server sends stand before its numbers, and how many each takes with its length."""
_KEEPING: Final = {"keeps": "bool[]", "consumer": "text"}
_PARTING: Final = {"parents": "int4[]"}


class _Kind(enum.Enum):
    """What a call brings: nothing, one message, or several."""

    NOTHING = "qm_commit"
    ONE = "qm_commit_one"
    SEVERAL = "qm_commit_several"


_TYPES: Final = {_Kind.NOTHING: _ALWAYS, _Kind.ONE: _ONE, _Kind.SEVERAL: _SEVERAL}


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
    ended = _read(unit.ask(*asked(command, besides, unit, None, now))[0][0])
    if isinstance(ended, Refused):
        return ended
    number, awaited = ended
    unit.heard.append(str(number))
    arrived = (route for route, _ in command.brings if route not in [each for each, _ in besides])
    for route, is_awaited in zip(arrived, awaited, strict=True):
        arriving.note(unit, route, is_awaited=is_awaited)
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
    return asked(command, [], unit, None, unit.clock.now()) if is_whole(command) else None


# ---- what is asked and answered --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _call(schema: str, kind: _Kind, keeps: bool, parts: bool) -> Call:
    """Return the call of the function of a schema.

    It has what queues need that keep what is consumed, and what consumers need that part with messages, or not.
    """
    types = _TYPES[kind] | (_KEEPING if keeps else {}) | (_PARTING if parts else {})
    values = ", ".join(f"{name} => %({name})s::{its}" for name, its in types.items())
    text = f"SELECT {quoted(schema)}.qm_commit({values})".replace("{device}", quoted(schema))
    name = f"{kind.value}{'_keeping' if keeps else ''}{'_parting' if parts else ''}"
    return Call(name, text, types)


def apart(command: Commit) -> Brings:
    """Return what a transaction brings, and has to be seen to besides the one call."""
    if command.guard.memory_pages:
        return list(command.brings)
    stored = {route.queue_id for route in command.stored} if command.stored else ()
    size, its = 0, []
    for route, arrivals in command.brings:
        is_apart = route.levels or route.consumers or (route.grouping and len(arrivals) > 1) or route.queue_id in stored
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
    queues, keeps, parts = [0], False, False
    for source in sources:
        queues.append(source.queue_id)
        keeps = keeps or source.retains
        parts = parts or source.parent_id > 0
    values: Values = {
        "volume_lock": caller.lock_key,
        "of_space": guard.space_id,
        "known": guard.generation,
        "most_messages": guard.messages,
        "most_pages": guard.pages,
        "of_slot": caller.slot,
        "mark": mark,
        "at_time": now,
        "of_transaction": transaction_id if recorded else None,
        "of_owner": owner_id,
        "held": holds.messages,
        "sources": len(sources),
        "queues": queues,
    }
    brings = [each for each in command.brings if each not in besides] if besides else command.brings
    kind = _bring(values, brings, guard, caller, now)
    if keeps:
        values |= {"keeps": [source.retains for source in sources], "consumer": guard.consumer}
    if parts:
        values["parents"] = [source.parent_id for source in sources]
    return _call(caller.schema, kind, keeps, parts), values


def _bring(values: Values, brings: Brings, guard: Guard, caller: Caller, now: int) -> _Kind:
    """Add what arrives to the values, and to the queues those that lack."""
    queues: list[int] = values["queues"]
    targets = list[int]()
    for route, _ in brings:
        if route.queue_id not in queues:
            queues.append(route.queue_id)
        targets.append(queues.index(route.queue_id))
    brought = [0] * len(queues)
    pages, sizes = brought.copy(), brought.copy()
    for at, (_, arrivals) in zip(targets, brings, strict=True):
        brought[at] = len(arrivals)
        pages[at] = sum(map(arriving.PAGES, arrivals))
        sizes[at] = sum(map(arriving.SIZE, arrivals))
    # Of all queues.
    brought[0], pages[0], sizes[0] = sum(brought), sum(pages), sum(sizes)
    values |= {"brought": brought, "pages": pages, "sizes": sizes}
    if not brings:
        return _Kind.NOTHING
    if brought[0] == 1:
        ((route, (arrival,)),) = brings
        values["of_queue"] = route.queue_id
        values["kinds"], values["arrival"] = arriving.row_alone(guard, route, arrival, now)
        return _Kind.ONE
    values["kinds"], rows = arriving.rows_of(brings, guard, now)
    values["arrivals"] = array_of(caller.row_type, brought[0], rows)
    # They count from 1 there.
    values["targets"] = [at + 1 for at in targets]
    return _Kind.SEVERAL


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
