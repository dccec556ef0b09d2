"""How an act has a store execute what it has built from the definitions that it knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from qmcore import numbers
from qmcore.acts.room import no_memory, overflow
from qmcore.damage import damaged
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import (
    AbortedError,
    BadMessageIdError,
    NoSpaceError,
    QueueError,
    Resource,
    SystemFailureError,
)
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.records import CommandClaim
from qmcore.transitions import Command, Enqueue, Enqueued, Reached, Reason, Refused

Asked = TypeVar("Asked")

_LIMITS = {Reason.MESSAGES: Resource.MESSAGES, Reason.PAGES: Resource.PAGES, Reason.MEMORY: Resource.MEMORY}


def send(
    volume: Volume,
    opened: OpenSpace,
    build: Callable[[OpenSpace, Definitions, Asked], Sequence[Command]],
    asked: Asked,
    on: object = None,
    *,
    purpose: Purpose = Purpose.MESSAGES,
) -> Sequence[Any]:
    """Have a store execute what is built of what is `asked`, all or none, and return what came of each.

    It runs in a commit of ours, or in the transaction of the application's connection `on`. Where the definitions are
    others by then it is built again: so a refusal by them is final only when they were looked at.
    """
    known = opened.known or _looked_at(volume, opened, on)
    while True:
        try:
            values = build(opened, known, asked)
        except QueueError:
            last, known = known, _looked_at(volume, opened, on)
            if known is last:
                raise
            continue
        results = volume.run(values, on=on, purpose=purpose)
        if not isinstance(results, Refused):
            for result in results:
                if result.reached:
                    starts = partial(_start, opened, result.reached)
                    volume.after_commit(starts, on=on)
            return results
        if results.reason != Reason.STALE:
            raise refusal(known, results)
        known = _looked_at(volume, opened, on)


def execute(unit: Unit, opened: OpenSpace, value: Enqueue) -> Enqueued:
    """Execute what was built from the definitions as they are in a database transaction that is open."""
    result = unit.enqueue(value)
    if isinstance(result, Refused):
        raise refusal(opened.definitions(unit), result)
    if result.reached:
        unit.afterwards(partial(_start, opened, result.reached))
    return result


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
    if reason is Reason.TRANSACTIONS:
        return NoSpaceError(f"queue space {name!r}", Resource.TRANSACTIONS, used=refused.used, limit=refused.limit)
    if reason is Reason.GIVEN_UP:
        return given_up(name)
    return SystemFailureError(f"the definitions of queue space {name!r} have changed meanwhile")


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


def no_such_message(queue: str, msgid: str) -> BadMessageIdError:
    """Return the diagnostic for a message that is to stand before another, which is not there."""
    return BadMessageIdError(
        f"queue {queue!r} has no message {msgid!r} to enqueue before",
        hint="It may have been dequeued meanwhile.",
        queue=queue,
        msgid=msgid,
    )


def _looked_at(volume: Volume, opened: OpenSpace, on: object) -> Definitions:
    """Return the definitions as they are, to us or in the application's transaction."""
    return volume.read(opened.definitions) if on is None else volume.write_on(on, opened.definitions)


def _start(opened: OpenSpace, reached: Sequence[Reached]) -> None:
    """Start capacity commands that we have claimed."""
    for queue_id, memory, value in reached:
        opened.start(opened, CommandClaim(queue_id=queue_id, memory=bool(memory), value=value))
