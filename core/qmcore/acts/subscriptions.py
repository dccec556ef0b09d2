"""Acts on the consumers of queues for several: they subscribe, to all messages or some, change that, and unsubscribe.

What is enqueued after a consumer has subscribed is for it, too; what was stored before is not. The same holds for a
change of what it wants. From the moment in which it unsubscribes nothing more comes for it, and it takes nothing more.
What stood there for it goes a step at a time, by whoever looks after the queue space: a transaction that holds a
message of it may still end in either way.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Final

from qmcore.acts.disposing import dispose
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import InUseError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Queue
from qmcore.selection import FIRST_CHOICE
from qmcore.transitions import Removal, Remove

MOST: Final = 1024
"""Consumers that may subscribe to a queue at one time."""


def subscribe(
    unit: Unit,
    opened: OpenSpace,
    queue_name: str,
    name: str,
    now: int,
    rule: str = "",
    topics: tuple[str, ...] = (),
) -> Queue:
    """Let a consumer subscribe to a queue for several, and return it; one that has done so already is as it was.

    Raises InUseError for one that has subscribed on other terms.
    """
    known = opened.definitions(unit)
    queue = _for_several(known.queue(queue_name))
    full_name = f"{queue.name}:{name}"
    subscribed = known.subscribed.get(queue.id, ())
    found = next((each for each in subscribed if each.name == full_name), None)
    if found is not None:
        if (found.rule, found.topics) != (rule, topics):
            raise InUseError(
                f"{name!r} has subscribed to queue {queue.name!r} for {_wanted(found)}, and not for"
                f" {_wanted(dataclasses.replace(found, rule=rule, topics=topics))}",
                hint="Change it with qsubchange, or QueueSpace.change_subscription.",
                queue=queue.name,
                subscription=name,
            )
        return found
    if full_name in known.queues or full_name in known.takers:
        raise InvalidArgumentError(
            f"{full_name!r} would be the consumer {name!r} of queue {queue.name!r}, and is"
            f" {'a queue' if full_name in known.queues else 'a consumer of another queue'} already",
            hint="Give the subscription another name.",
            queue=queue.name,
        )
    if len(subscribed) >= MOST:
        raise NoSpaceError(f"queue {queue.name!r}", Resource.SUBSCRIPTIONS, used=len(subscribed), limit=MOST)
    added = queue.consumer(unit.queues.subscriptions.add(queue, full_name, now, rule, topics))
    memory = unit.memory(queue.space_id)
    if memory is not None:
        memory.counters.add(queue.space_id, added.id)
    return added


def change(
    unit: Unit, opened: OpenSpace, queue_name: str, name: str, rule: str | None, topics: tuple[str, ...] | None
) -> Queue:
    """Change what messages of its queue are for a consumer from now on, and return it; what it has stays.

    None leaves a rule, or topics, as they are.
    """
    _, found = _subscribed(opened.definitions(unit), queue_name, name)
    changed = dataclasses.replace(
        found, rule=found.rule if rule is None else rule, topics=found.topics if topics is None else topics
    )
    if changed != found:
        unit.queues.subscriptions.change(found, changed.rule, changed.topics)
    return changed


def unsubscribe(unit: Unit, opened: OpenSpace, queue_name: str, name: str) -> None:
    """End a subscription: nothing more comes for that consumer, and it takes nothing more."""
    _, found = _subscribed(opened.definitions(unit), queue_name, name)
    unit.queues.subscriptions.end(found)
    # Who waits there learns that there is nothing to wait for.
    unit.waits.notify(found.id)


def part_with_those_going(volume: Volume, opened: OpenSpace, limit: int, *, one_step: bool) -> None:
    """Part with what stands for consumers that have unsubscribed, `limit` messages in one database transaction."""
    known = opened.known
    if known is None or len(known.by_id) == len(known.queues):
        # As whoever has just looked for what is due knows: there are no consumers.
        return
    for consumer in [each for each in known.by_id.values() if each.going]:
        while volume.write(partial(_part, opened=opened, consumer=consumer, limit=limit), Purpose.MESSAGES):
            if one_step:
                return
        if volume.read(partial(_is_over, opened=opened, consumer=consumer)):
            volume.write(partial(_remove_empty, opened=opened, consumer=consumer), Purpose.SUBSCRIBING)


def _part(unit: Unit, opened: OpenSpace, consumer: Queue, limit: int) -> int:
    """Part with at most `limit` messages that stand for a consumer, ready and kept back; return how many it was."""
    if consumer.id not in opened.definitions(unit).by_id:
        return 0
    found = unit.states.standing(consumer.id, consumer.messages_of, FIRST_CHOICE, limit)
    dispose(unit, opened, consumer, unit, [Remove(each, Removal.DISCARDED) for each in found])
    return len(found)


def _is_over(unit: Unit, opened: OpenSpace, consumer: Queue) -> bool:
    """Return whether a consumer that has unsubscribed is still there, with nothing, and nothing more can come."""
    return consumer.id in opened.definitions(unit).by_id and unit.queues.subscriptions.is_over(consumer)


def _remove_empty(unit: Unit, opened: OpenSpace, consumer: Queue) -> None:
    """Remove a consumer for which nothing stands any more, unless a transaction has something of it, or brings it."""
    if _is_over(unit, opened, consumer):
        memory = unit.memory(consumer.space_id)
        if memory is not None:
            memory.abandon(consumer.space_id, consumer.id)
        unit.queues.subscriptions.remove(consumer)


def _subscribed(known: Definitions, queue_name: str, name: str) -> tuple[Queue, Queue]:
    """Return a queue for several, and the consumer of that name which has subscribed to it."""
    queue = _for_several(known.queue(queue_name))
    full_name = f"{queue.name}:{name}"
    found = next((each for each in known.subscribed.get(queue.id, ()) if each.name == full_name), None)
    if found is None:
        raise known.no_such_subscription(queue, name)
    return queue, found


def _wanted(consumer: Queue) -> str:
    """Return what messages are for a consumer, in words."""
    asked = [f"the rule {consumer.rule!r}"] if consumer.rule else []
    asked += [f"topics {', '.join(map(repr, consumer.topics))}"] if consumer.topics else []
    return " and ".join(asked) or "all messages"


def _for_several(queue: Queue) -> Queue:
    if not queue.definition.multiple_consumers:
        raise InvalidArgumentError(
            f"queue {queue.name!r} is for one consumer, and nobody subscribes to it",
            hint="Create a queue for several: qcreate -m, or multiple_consumers=True.",
            queue=queue.name,
        )
    return queue
