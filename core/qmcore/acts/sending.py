"""How an act has a store execute what it has built from the definitions that it knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from qmcore import numbers
from qmcore.acts.room import no_memory, overflow
from qmcore.damage import damaged
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import (
    AbortedError,
    BadMessageIdError,
    InUseError,
    NoSpaceError,
    QueueError,
    Resource,
    SystemFailureError,
)
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.refusals import Reason, Refused
from qmcore.transitions import Command, Enqueue, Enqueued, Reached

Asked = TypeVar("Asked")

_LIMITS = {Reason.MESSAGES: Resource.MESSAGES, Reason.PAGES: Resource.PAGES, Reason.MEMORY: Resource.MEMORY}

_OF_TRANSACTIONS = (Reason.GIVEN_UP, Reason.LOST, Reason.TRANSACTIONS, Reason.XID, Reason.LATE, Reason.SET_BACK)

_WHY_UNDECIDED = {
    Reason.LATE: "it began more than a day ago",
    Reason.SET_BACK: "decisions that were made there are gone: an earlier state of it was restored",
}


class Part(NamedTuple):
    """One command that is built for another queue space, of what is `asked`."""

    opened: OpenSpace
    build: Callable[[OpenSpace, Definitions, Any], Sequence[Command]]
    asked: Any


def send(
    volume: Volume,
    opened: OpenSpace,
    build: Callable[[OpenSpace, Definitions, Asked], Sequence[Command]],
    asked: Asked,
    on: object = None,
    *,
    purpose: Purpose | None = Purpose.MESSAGES,
    others: Sequence[Part] = (),
) -> Sequence[Any]:
    """Have a store execute what is built of what is `asked`, all or none, and return what came of each.

    It runs in a commit of ours, or in the transaction of the application's connection `on`; without a purpose it
    changes nothing. Where the definitions are others by then it is built again: so a refusal by them is final only when
    they were looked at. With `others` one command is built here, and one for each of them.
    """
    known = opened.known or _looked_at(volume, opened, on)
    theirs = [part.opened.known or _looked_at(volume, part.opened, on) for part in others] if others else []
    while True:
        try:
            values = build(opened, known, asked)
            if others:
                values = [*values, *_of_others(others, theirs)]
        except QueueError:
            last, known, theirs = [known, *theirs], *_all_looked_at(volume, opened, others, on)
            if all(before is now for before, now in zip(last, [known, *theirs], strict=True)):
                raise
            continue
        results = volume.run(values, on=on, purpose=purpose) if values else ()
        if not isinstance(results, Refused):
            for at, result in enumerate(results):
                if result.reached:
                    its = others[at - 1].opened if others and at else opened
                    volume.after_commit(partial(_start, its, result.reached), on=on)
            return results
        if results.reason != Reason.STALE:
            its = others[results.command - 1].opened if others and results.command else opened
            raise refusal(its.known or known, results)
        known, theirs = _all_looked_at(volume, opened, others, on)


def execute(unit: Unit, opened: OpenSpace, value: Enqueue) -> Enqueued:
    """Execute what was built from the definitions as they are in a database transaction that is open."""
    result = unit.enqueue(value)
    if isinstance(result, Refused):
        raise refusal(opened.definitions(unit), result)
    start_afterwards(unit, opened, result.reached)
    return result


def start_afterwards(unit: Unit, opened: OpenSpace, reached: Sequence[Reached]) -> None:
    """Start capacity commands that were claimed once the database transaction is committed."""
    if reached:
        unit.afterwards(partial(_start, opened, reached))


def refusal(known: Definitions, refused: Refused) -> QueueError:
    """Return the diagnostic for what a store has refused."""
    reason, name = Reason(refused.reason), known.space.name
    resource = _LIMITS.get(reason)
    if resource is not None:
        limit = known.space.definition.memory if resource is Resource.MEMORY else refused.limit
        return overflow(known, resource, refused.used, limit, refused.wanted)
    if reason in (Reason.NO_SUCH_MESSAGE, Reason.DAMAGED):
        return _about_message(known, refused)
    if reason is Reason.NO_MEMORY:
        return no_memory(known)
    if reason in _OF_TRANSACTIONS:
        return _about_transaction(name, refused)
    what = "a message is not where it was" if reason is Reason.GONE else "the definitions have changed meanwhile"
    return SystemFailureError(f"queue space {name!r}: {what}")


def _about_transaction(space: str, refused: Refused) -> QueueError:
    reason = refused.reason
    if reason == Reason.XID:
        return InUseError(
            f"queue space {space!r} has a transaction with the xid {refused.what} already",
            hint="Give each branch an identifier of its own; qprinttrans lists those there are.",
            space=space,
        )
    if reason == Reason.TRANSACTIONS:
        return NoSpaceError(f"queue space {space!r}", Resource.TRANSACTIONS, used=refused.used, limit=refused.limit)
    if reason in _WHY_UNDECIDED:
        return AbortedError(
            f"the transaction over several resources, which queue space {space!r} decides, was rolled back, because"
            f" {_WHY_UNDECIDED[reason]}",
            hint="Begin it again; nothing of it remains.",
            space=space,
        )
    return given_up(space) if reason == Reason.GIVEN_UP else _lost_in_part(space)


def _about_message(known: Definitions, refused: Refused) -> QueueError:
    queue, msgid = known.by_id[refused.used].name, known.space.naming(numbers.sequence(refused.wanted))
    if refused.reason == Reason.DAMAGED:
        return damaged(refused.wanted, refused.what, msgid=msgid, queue=queue)
    return no_such_message(queue, msgid)


def given_up(space: str) -> AbortedError:
    """Return the diagnostic for a transaction that others have rolled back."""
    return AbortedError(
        f"the transaction on queue space {space!r} was rolled back by others, because its time was over, its process"
        " was taken for dead, or an administrator aborted it",
        hint="Begin it again; nothing of it remains.",
        space=space,
    )


def _lost_in_part(space: str) -> AbortedError:
    """Return the diagnostic for a transaction of which the store lacks something that it had taken or brought."""
    return AbortedError(
        f"the transaction on queue space {space!r} was rolled back, because the server has lost a part of it in a"
        " crash",
        hint="Begin it again; nothing of it remains.",
        space=space,
    )


def no_such_message(queue: str, msgid: str) -> BadMessageIdError:
    """Return the diagnostic for a message that is to stand before another, which is not there."""
    return BadMessageIdError(
        f"queue {queue!r} has no message {msgid!r} to enqueue before",
        hint="It may have been dequeued meanwhile.",
        queue=queue,
        msgid=msgid,
    )


def _of_others(others: Sequence[Part], theirs: Sequence[Definitions]) -> list[Command]:
    both = zip(others, theirs, strict=True)
    return [command for part, known in both for command in part.build(part.opened, known, part.asked)]


def _all_looked_at(
    volume: Volume, opened: OpenSpace, others: Sequence[Part], on: object
) -> tuple[Definitions, list[Definitions]]:
    """Return the definitions of a queue space as they are, and those of the others."""
    return _looked_at(volume, opened, on), [_looked_at(volume, part.opened, on) for part in others]


def _looked_at(volume: Volume, opened: OpenSpace, on: object) -> Definitions:
    """Return the definitions as they are, to us or in the application's transaction."""
    return volume.read(opened.definitions) if on is None else volume.write_on(on, opened.definitions)


def _start(opened: OpenSpace, reached: Sequence[Reached]) -> None:
    """Start capacity commands that we have claimed."""
    for each in reached:
        opened.start(opened, each)
