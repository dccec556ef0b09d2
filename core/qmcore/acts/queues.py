"""Acts on queues."""

from __future__ import annotations

from qmcore.definitions import OpenSpace
from qmcore.errors import InUseError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.port import Owner, Unit
from qmcore.queue import Queue, QueueDefinition


def create(unit: Unit, opened: OpenSpace, definition: QueueDefinition, now: int) -> Queue:
    """Create a queue; its order cannot be changed later."""
    known = opened.definitions(unit)
    limit = known.space.definition.queues
    if definition.name in known.queues:
        raise InvalidArgumentError(
            f"queue {definition.name!r} exists already in queue space {known.space.name!r}", queue=definition.name
        )
    if len(known.queues) >= limit:
        raise NoSpaceError(f"queue space {known.space.name!r}", Resource.QUEUES, used=len(known.queues), limit=limit)
    return unit.add_queue(known.space.id, definition, now)


def destroy(unit: Unit, opened: OpenSpace, name: str, me: Owner, now: int, *, purge: bool, force: bool) -> None:
    """Destroy a queue.

    Refused while it has messages, unless `purge` or `force`; while other processes are attached to the queue space,
    unless `force`; and always while a transaction holds one of its messages.
    """
    queue = opened.definitions(unit).queue(name)
    if unit.held_in(queue.id):
        raise InUseError(
            f"a transaction holds a message of queue {name!r}",
            hint="Wait until the transaction has ended, or end its process.",
            queue=name,
        )
    if not force:
        others = [owner for owner in unit.owners(queue.space_id) if owner.id != me.id]
        if others:
            raise InUseError(
                f"{others[0].role} {others[0].pid} is attached to the queue space of queue {name!r}",
                hint="End it, or force it with -f.",
                queue=name,
            )
        messages = unit.usage(queue, now).messages
        if messages and not purge:
            raise InUseError(
                f"queue {name!r} holds {messages} {'message' if messages == 1 else 'messages'}",
                hint="Dequeue them, or give them up with -p.",
                queue=name,
            )
    unit.remove_queue(queue)
