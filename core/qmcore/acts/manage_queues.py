"""Acts on queues."""

from __future__ import annotations

import dataclasses

from qmcore.acts import in_doubt
from qmcore.acts.looking import usage
from qmcore.acts.stores import stores
from qmcore.acts.sweeping import sweep_alone
from qmcore.attributes import attributes_of, plain
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import InUseError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.port import Unit
from qmcore.queue import Queue, QueueDefinition
from qmcore.records import Owner
from qmcore.space import SpaceDefinition


def create(unit: Unit, opened: OpenSpace, definition: QueueDefinition, now: int) -> Queue:
    """Create a queue; its order cannot be changed later."""
    known = opened.definitions(unit)
    limit = known.space.definition.queues
    if definition.name in known.queues:
        raise InvalidArgumentError(
            f"queue {definition.name!r} exists already in queue space {known.space.name!r}", queue=definition.name
        )
    if definition.name in known.takers:
        raise InvalidArgumentError(
            f"{definition.name!r} is a consumer of a queue already, so that no queue can have that name",
            hint="Give the queue another name.",
            queue=definition.name,
        )
    if definition.multiple_consumers and definition.name in known.error_queues:
        raise InvalidArgumentError(
            f"queue {definition.name!r} is an error queue, which is for one consumer",
            hint="Create it for one consumer, or name another error queue.",
            queue=definition.name,
        )
    refuse_error_queue(known, definition, f"queue {definition.name!r}")
    used = len(known.queues) + unit.imports.promised_queues(known.space.id)
    if used >= limit:
        raise NoSpaceError(f"queue space {known.space.name!r}", Resource.QUEUES, used=used, limit=limit)
    new = unit.queues.add(known.space.id, definition, now)
    opened.note_use(unit, "queues", used + 1)
    memory = unit.memory(known.space.id)
    if memory is not None:
        memory.counters.add(known.space.id, new.id)
    opened.learn(unit, new)
    return new


def change(unit: Unit, opened: OpenSpace, definition: QueueDefinition) -> Queue:
    """Give a queue another definition; its order and whether it groups messages cannot be changed.

    Messages that it has keep their expiry. A capacity limit that was reached can be reached again.
    """
    old = opened.definitions(unit).queue(definition.name)
    was, wanted = plain(old.definition), plain(definition)
    for name, known in attributes_of(QueueDefinition).items():
        if known.fixed and was[name] != wanted[name]:
            raise InvalidArgumentError(
                f"the {name} of queue {old.name!r} is {was[name]} and cannot be changed to {wanted[name]}",
                hint="Destroy the queue and create it again.",
                queue=old.name,
            )
    refuse_error_queue(opened.definitions(unit), definition, f"queue {definition.name!r}")
    changed = dataclasses.replace(old, definition=definition)
    unit.queues.change(changed)
    limits = (old.definition.threshold, old.definition.memory_threshold)
    for memory, limit in enumerate((definition.threshold, definition.memory_threshold)):
        if limit != limits[memory]:
            unit.capacity_commands.rearm(old.id, memory=bool(memory))
    return changed


def refuse_error_queue(known: Definitions, definition: QueueDefinition | SpaceDefinition, whose: str) -> None:
    """Refuse a queue for several consumers as the error queue of a queue, or of the queue space."""
    named = known.queues.get(definition.error_queue)
    if named is not None and named.definition.multiple_consumers:
        raise InvalidArgumentError(
            f"queue {named.name!r} is for several consumers, and cannot be the error queue of {whose}",
            hint="Name a queue for one consumer.",
            queue=named.name,
        )


def switch(unit: Unit, opened: OpenSpace, name: str, *, enqueue: bool | None, dequeue: bool | None) -> Queue:
    """Start or stop a queue for enqueuing and for dequeuing; None leaves it as it is. Those who wait are told."""
    known = opened.definitions(unit)
    old = known.queue(name)
    changed = dataclasses.replace(
        old,
        enqueue_enabled=old.enqueue_enabled if enqueue is None else enqueue,
        dequeue_enabled=old.dequeue_enabled if dequeue is None else dequeue,
    )
    if changed != old:
        unit.queues.change(changed)
        for number in (old.id, *(each.id for each in known.subscribed.get(old.id, ()))):
            unit.waits.notify(number)
    return old


def refuse_taken(unit: Unit, queue: Queue) -> None:
    """Refuse what cannot be done while a transaction has dequeued or locked a message of the queue."""
    if any(store.holdings.taken_from(queue.id) for store in stores(unit, queue.space_id)):
        raise _held(unit, queue)


def refuse_held(unit: Unit, queue: Queue) -> None:
    """Refuse what cannot be done while a transaction holds a message of the queue, be it one that it enqueues."""
    if any(store.holdings.held_in(queue.id) for store in stores(unit, queue.space_id)):
        raise _held(unit, queue)


def destroy(unit: Unit, opened: OpenSpace, name: str, me: Owner, now: int, *, purge: bool, force: bool) -> None:
    """Destroy a queue.

    Refused while it has messages, unless `purge` or `force`; while other processes are attached to the queue space,
    unless `force`; and always while a transaction holds one of its messages.
    """
    queue = refuse_in_use(unit, opened, name, me, now, purge=purge, force=force)
    memory = unit.memory(queue.space_id)
    for consumer in [each for each in opened.definitions(unit).by_id.values() if each.parent_id == queue.id]:
        if memory is not None:
            memory.abandon(queue.space_id, consumer.id)
        unit.queues.empty(consumer.id)
        unit.queues.subscriptions.remove(consumer)
    if memory is not None:
        memory.abandon(queue.space_id, queue.id)
    unit.queues.remove(queue)


def refuse_in_use(unit: Unit, opened: OpenSpace, name: str, me: Owner, now: int, *, purge: bool, force: bool) -> Queue:
    """Return the queue of that name if it can be destroyed, or refuse."""
    known = opened.definitions(unit)
    queue = known.queue(name)
    refuse_held(unit, queue)
    consumers = [each for each in known.by_id.values() if each.parent_id == queue.id]
    for consumer in consumers:
        refuse_held(unit, consumer)
    if not force:
        others = [owner for owner in unit.owners.of_space(queue.space_id) if owner.id != me.id]
        if others:
            raise InUseError(
                f"{others[0].role} {others[0].pid} is attached to the queue space of queue {name!r}",
                hint="End it, or force it with -f.",
                queue=name,
            )
        sweep_alone(unit, queue.space_id)
        messages = usage(unit, queue, now).messages
        if messages and not purge:
            raise InUseError(
                f"queue {name!r} holds {messages} {'message' if messages == 1 else 'messages'}",
                hint="Dequeue them, or purge them with -p.",
                queue=name,
                messages=messages,
            )
    return queue


def _held(unit: Unit, queue: Queue) -> InUseError:
    prepared = in_doubt.needing(unit, queue)
    if prepared is not None:
        return InUseError(
            f"prepared transaction {prepared.xid} has messages of queue {queue.name!r}",
            hint="Wait until its coordinator has ended it; qcommittrans and qaborttrans end it for that.",
            queue=queue.name,
            xid=str(prepared.xid),
        )
    return InUseError(
        f"a transaction holds a message of queue {queue.name!r}",
        hint="Wait until the transaction has ended, or end its process.",
        queue=queue.name,
    )
