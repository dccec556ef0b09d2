"""What is claimed on PostgreSQL: the function `qm_claim` takes it, also what has to be looked for before.

What the function is given and what its answer says stands behind that.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from qmcore.message_rows import BODY_ID, FIELDS, ID, KEY, fault_in
from qmcore.purpose import Purpose, WrongPurposeError
from qmcore.records import Role, Use
from qmcore.refusals import STALE, Reason, Refused
from qmcore.transitions import Claim, Claimed, Empty, Holder, Source, Taken
from qmstorage import claiming
from qmstorage.claiming import Part, Read, Store
from qmstorage.messages import Sound
from qmstorage.postgres.arriving import Caller
from qmstorage.postgres.pipeline import Call
from qmstorage.postgres.tables import quoted
from qmstorage.statements import Row

if TYPE_CHECKING:
    from qmstorage.postgres.transitions import Transitions

Values: TypeAlias = dict[str, Any]


_ALWAYS: Final = {
    "volume_lock": "int8",
    "of_space": "int4",
    "known": "int8",
    "of_queue": "int4",
    "of_slot": "int4",
    "at_time": "int8",
    "most": "int8",
    "is_tidy": "bool",
}
_HELD: Final = {
    "of_transaction": "int8",
    "of_owner": "int8",
    "started": "int8",
    "ends": "int8",
    "most_transactions": "int8",
    "highest_transactions": "int8",
    "wanted": "int8",
    "is_relaxed": "bool",
}
_SPECIAL: Final = {"of_role": "int2", "outlived": "int8", "kept_for": "text", "places": "bytea[]", "of_parent": "int4"}


class _Kind(enum.Enum):
    """What is asked for: the first messages are consumed, or a transaction holds them, or something special."""

    CONSUME = "qm_claim"
    HOLD = "qm_claim_held"
    SPECIAL = "qm_claim_special"


_TYPES: Final = {_Kind.CONSUME: _ALWAYS, _Kind.HOLD: _ALWAYS | _HELD, _Kind.SPECIAL: _ALWAYS | _HELD | _SPECIAL}
_NO_HOLDER: Final[Values] = dict.fromkeys(_HELD) | {"highest_transactions": 0, "wanted": 0, "is_relaxed": False}


class Found(NamedTuple):
    """Messages that were taken: of each its number, its retries, and its row where there is one.

    The rest is as in `Claimed`; the number of the database transaction is one by which it can be asked for.
    """

    taken: list[tuple[int, int, Row | None]]
    transaction_number: int
    transactions: int
    level: Use
    sequences: Sequence[int]


def claim(unit: Transitions, command: Claim) -> Claimed | Empty | Refused:
    """Take messages out of a queue: they go for good, or a transaction holds them."""
    if not is_of_first(command):
        _check(unit.purpose, command)
        return _claim_chosen(unit, command)
    asked_for = asked(command, unit, unit.clock.now(), unit.purpose)
    return result_of(command, _take(unit, command.source, *asked_for), lambda: unit)


def result_of(
    command: Claim, found: Found | Empty | Refused, unit: Callable[[], Transitions]
) -> Claimed | Empty | Refused:
    """Return what came of a claim of the first messages, by the answer of the function.

    A unit is asked for only where there is more to do, in the same database transaction.
    """
    if not isinstance(found, Found):
        return found
    source, holder = command.source, command.holder
    its = _sound(unit, command, found, body=command.body)
    if isinstance(its, Refused):
        return its
    taken = []
    for _, retries, row in its:
        taken.append(Taken(row, retries, memory=False))
    if holder is not None:
        return Claimed(taken, holder.role == Role.LOCKED, found.sequences, found.transactions, found.level)
    if source.levels:
        unit().capacity_commands.rearm_reached(command.guard, source, on_disk=True, in_memory=False)
    return Claimed(taken)


def _check(purpose: Purpose, command: Claim) -> None:
    if purpose.again if command.holder is not None else not purpose.settles:
        raise WrongPurposeError(purpose, "claims messages")


# Each refusal is a return.
def _claim_chosen(unit: Transitions, command: Claim) -> Claimed | Empty | Refused:  # noqa: PLR0911 - see above
    """Take messages which are looked for before: not simply the first ones on disk."""
    guard, source, _, _, body, is_tidy, holder = command
    if unit.generation(guard.space_id) != guard.generation:
        return STALE
    if source.grouping:
        # Two that take of one group would each wait for what the other has; so that nothing is taken before this.
        unit.states.take_alone(source.queue_id)
    if not is_tidy and claiming.is_untidy(unit, command, unit.clock.now()):
        return Empty(source.queue_id, None, held=False, is_untidy=True)
    parts = claiming.choose(unit, command)
    if not parts:
        return claiming.nothing(unit, command)
    role = Role.DEQUEUED if holder is None else Role(holder.role)
    # Before anything that it holds is locked, as whoever ends the transaction does.
    if holder is not None and any(part.is_locked for part in parts):
        begun = claiming.begin_holding(unit, guard, holder)
        if isinstance(begun, Refused):
            return begun
    taken = _take_parts(unit, command, parts, role, begins=holder is not None and not holder.recorded, body=body)
    if isinstance(taken, Refused):
        return taken
    its, found = taken
    others: Sequence[Part] = ()
    if holder is None:
        if source.levels:
            stores = [each.store is unit for each in its]
            commands = unit.capacity_commands
            commands.rearm_reached(guard, source, on_disk=True in stores, in_memory=False in stores)
    elif source.grouping:
        others = claiming.others_of_groups(source, its)
        also = _take_parts(unit, command, others, Role.LOCKED, begins=False, body=False)
        if isinstance(also, Refused):
            return also
    locks = role is Role.LOCKED or bool(others)
    sequences = unit.counters.reserve(guard.space_id, holder.numbers) if holder is not None and holder.numbers else ()
    transactions, level = (0, None) if found is None else (found.transactions, found.level)
    return Claimed(claiming.taken_of(unit, its), locks, sequences, transactions, level)


def _take_parts(
    unit: Transitions, command: Claim, parts: Sequence[Part], role: Role, *, begins: bool, body: bool
) -> tuple[list[Read], Found | None] | Refused:
    """Take messages that are locked, or that the transaction has locked already; also return the first answer."""
    holder, source = command.holder, command.source
    its, first = list[Read](), None
    for store, rows, is_locked in parts:
        if is_locked:
            sound = store.messages.sound(rows, body=body)
            if isinstance(sound, tuple):
                return Refused(Reason.DAMAGED, source.queue_id, wanted=sound[0], what=sound[1])
            assert holder is not None  # noqa: S101 - it has locked them
            for number, _, _ in rows:
                store.holdings.dequeue_locked(holder.transaction_id, source.queue_id, number)
        else:
            found = _take_keys(unit, command, store, rows, role, begins=begins and first is None, body=body)
            if isinstance(found, Refused):
                return found
            if found is None:
                # Others of a group, which nobody has locked before, and which are gone.
                continue
            first = first or found[0]
            sound = found[1]
        its.append(Read(store, sound, is_locked))
    return its, first


def _take_keys(
    unit: Transitions,
    command: Claim,
    store: Store,
    rows: Sequence[Row],
    role: Role,
    *,
    begins: bool,
    body: bool,
) -> tuple[Found, list[Sound]] | Refused | None:
    """Take those of some messages that are there, and return what they are; None where there is none."""
    keys = [row[1] for row in rows]
    asked_for = _asked_for(unit, command, keys, role, memory=store is not unit, begins=begins, body=body)
    found = _take(unit, command.source, *asked_for)
    if isinstance(found, Empty | Refused):
        return found if isinstance(found, Refused) else None
    its = _sound(lambda: store, command, found, body=body)
    return its if isinstance(its, Refused) else (found, its)


def _take(unit: Transitions, source: Source, call: Call, values: Values) -> Found | Empty | Refused:
    """Call the function that takes messages."""
    found = read(source.queue_id, unit.ask(call, values))
    if isinstance(found, Found):
        unit.heard.append(str(found.transaction_number))
    return found


def _sound(store: Callable[[], Store], command: Claim, found: Found, *, body: bool) -> list[Sound] | Refused:
    """Return what messages are that were taken, in their order, or refuse the first that is damaged.

    Bodies that are kept apart are read, and go with the messages.
    """
    its: list[Sound] = []
    apart: Store | None = None
    for number, retries, stored in found.taken:
        if stored is None or stored[BODY_ID] is not None:
            apart = apart or store()
            row, fault = apart.messages.whole(stored, retries, body=body)
        else:
            row, fault = stored, fault_in(stored, retries)
        if fault is not None:
            return Refused(Reason.DAMAGED, command.source.queue_id, wanted=number, what=fault)
        its.append((row[KEY], retries, row))
    if apart is not None and command.holder is None and not (command.source.retains and not apart.in_memory):
        if command.source.parent_id:
            # Others may have the message, and its body.
            there = apart.messages.found_rows([row[ID] for _, _, row in its], body=False)
            its_last = [each for each in its if each[2][ID] not in there]
            apart.messages.remove_bodies(its_last)
        else:
            apart.messages.remove_bodies(its)
    return its


# ---- what is asked and answered --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _call(schema: str, kind: _Kind, body: bool, *, memory: bool) -> Call:
    """Return the call of the function of a schema, or of its twin for the memory, with or without the bodies."""
    name = "qm_claim_memory" if memory else "qm_claim"
    columns = ", ".join(f"(c.its).{field}" for field in (FIELDS if body else FIELDS[:-1]))
    values = ", ".join(f"{each} => %({each})s::{its}" for each, its in _TYPES[kind].items())
    text = f"SELECT {columns}, c.answer FROM {quoted(schema)}.{name}({values}) AS c"  # noqa: S608 - words of ours
    return Call(f"{kind.value}{'' if body else '_facts'}{'_memory' if memory else ''}", text, _TYPES[kind])


def is_of_first(command: Claim) -> bool:
    """Return whether the function finds by itself what a claim is of: the first messages of a queue on disk."""
    guard, source, choices, _, _, _, holder = command
    return not (choices or guard.memory_pages or source.grouping or (holder is not None and holder.locks))


def is_one_call(command: Claim) -> bool:
    """Return whether the call is all of a claim, but for bodies that are kept apart."""
    return not command.source.levels and is_of_first(command)


def asked(command: Claim, caller: Caller, now: int, purpose: Purpose) -> tuple[Call, Values]:
    """Return the call for the first messages of a queue on disk."""
    _check(purpose, command)
    _, source, _, _, body, _, holder = command
    values = _values(command, caller, now)
    kind = _Kind.CONSUME
    if holder is not None:
        kind = _Kind.HOLD
        values |= _of_holder(holder, purpose, begins=not holder.recorded)
    if source.retains or source.parent_id or (holder is not None and holder.role != Role.DEQUEUED):
        kind = _Kind.SPECIAL
        values = _NO_HOLDER | values | _special(command, now, Role.DEQUEUED if holder is None else holder.role)
    return _call(caller.schema, kind, body, memory=False), values


def _asked_for(
    unit: Transitions, command: Claim, keys: Sequence[bytes], role: int, *, memory: bool, begins: bool, body: bool
) -> tuple[Call, Values]:
    """Return the call for messages of these order keys, which the session has locked, but for the others of groups.

    The transaction that is to hold them in this role begins with that, or goes on.
    """
    now = unit.clock.now()
    values = _NO_HOLDER | _values(command, unit, now) | _special(command, now, role)
    values |= {"places": list(keys), "is_tidy": True}
    if command.holder is not None:
        values |= _of_holder(command.holder, unit.purpose, begins=begins) | {"wanted": 0}
    if memory:
        values["kept_for"] = None
    return _call(unit.schema, _Kind.SPECIAL, body, memory=memory), values


def read(queue_id: int, found: Sequence[Row]) -> Found | Empty | Refused:
    """Return what the function has answered for a queue."""
    answer = found[0][-1] or next(row[-1] for row in found if row[-1] is not None)
    done = answer[0]
    if done >= 0:
        return Refused(Reason(done), *answer[1:])
    if done == _NOTHING:
        _, is_untidy, next_due, is_held = answer
        return Empty(queue_id, next_due, bool(is_held), bool(is_untidy))
    _, transaction_number, transactions, messages, pages, size, count, *rest = answer
    if count == 1:
        (row,), (number, retries, *given) = found, rest
        taken = [(number, retries, row[:-1] if row[ID] is not None else None)]
    else:
        rows = {row[ID]: row[:-1] for row in found}
        given = rest[2 * count :]
        taken = [(each, retries, rows.get(each)) for each, retries in zip(rest[:count], rest[count:], strict=False)]
    return Found(taken, transaction_number, transactions, Use(messages, pages, size), given)


_NOTHING: Final = -1


def _values(command: Claim, caller: Caller, now: int) -> Values:
    guard, source, _, limit, _, is_tidy, _ = command
    return {
        "volume_lock": caller.lock_key,
        "of_space": guard.space_id,
        "known": guard.generation,
        "of_queue": source.queue_id,
        "of_slot": caller.slot,
        "at_time": now,
        "most": limit,
        "is_tidy": is_tidy,
    }


def _of_holder(holder: Holder, purpose: Purpose, *, begins: bool) -> Values:
    return {
        "of_transaction": holder.transaction_id,
        "of_owner": holder.owner_id,
        "started": holder.started_us,
        "ends": holder.deadline_us,
        "most_transactions": holder.transactions if begins else None,
        "highest_transactions": holder.highest,
        "wanted": holder.numbers,
        "is_relaxed": not purpose.durable,
    }


def _special(command: Claim, now: int, role: int) -> Values:
    source, retention = command.source, command.source.retention_us
    keeps = source.retains and command.holder is None
    return {
        "of_role": int(role),
        "outlived": now - retention if source.retains and retention is not None else None,
        "kept_for": command.guard.consumer if keeps else None,
        "places": None,
        "of_parent": source.parent_id or None,
    }
