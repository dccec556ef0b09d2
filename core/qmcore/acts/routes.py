"""How messages come to a queue and go from it, as a store is told: once for each generation of the definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from qmcore.condition import BodyPath, Header, Subject
from qmcore.definitions import Definitions
from qmcore.errors import NoRecipientsError
from qmcore.json_values import READ_MAX, TYPE, BodyValues
from qmcore.message import Body, EnqueueControl, MessageInfo
from qmcore.message_attributes import ATTRIBUTES
from qmcore.names import TOPIC_HEADER
from qmcore.order import Criterion
from qmcore.queue import FOREVER, Queue
from qmcore.records import TransactionRecord, Use
from qmcore.times import MICROS
from qmcore.transitions import Commit, Guard, Level, MoveOrigin, Route, Source

_NO_HEADERS: Final[Mapping[str, str]] = {}
_SAME_HEAD: Final = frozenset((Criterion.FIFO, Criterion.LIFO))
"""What an order goes by in which the keys of all messages begin in the same way."""


def route_of(known: Definitions, queue: Queue) -> Route:
    """Return how messages come to a queue, be it started or not; or to one consumer of a queue for several."""
    found = known.routes.get(queue.definition.name)
    if found is None:
        order, groups = queue.definition.order, queue.definition.grouping
        is_same = _SAME_HEAD.issuperset(order.criteria)
        head = order.head(priority=0, available_at=0, expires_at=None) if is_same else None
        expiration, levels = queue.definition.expiration, tuple(_levels(known, queue))
        lifetime = None if expiration is None else expiration * MICROS
        subscribed = (queue,) if queue.parent_id else known.subscribed.get(queue.id, ())
        consumers = tuple(each.id for each in subscribed)
        its = queue.messages_of, head, order.values, order.descends, groups, lifetime, levels, consumers
        found = Route(*its)
        # Where nobody would get a message, whoever lets one arrive has to see that each time.
        if consumers or not queue.definition.multiple_consumers:
            known.routes[queue.definition.name] = found
    return found


def with_recipients(known: Definitions, queue: Queue) -> Route:
    """Return how messages come to a queue, or refuse them where nobody would get one."""
    route = route_of(known, queue)
    if queue.definition.multiple_consumers and not route.consumers:
        raise NoRecipientsError(
            f"queue {queue.name!r} has no subscription, so that nobody would get the message",
            hint="Subscribe a consumer first: qsubscribe, or QueueSpace.subscribe.",
            queue=queue.name,
        )
    return route


def for_message(known: Definitions, route: Route, message: Arriving, index: int | None = None) -> Route:
    """Return how one message comes to a queue of `known.ruled`: to those that want it; refuse what nobody wants.

    `index` is where it is among those that come together, if there are several.
    """
    consumers = known.index_of(route.queue_id).wanted_by(message.fact, message.headers)
    if not consumers:
        raise nobody_wants(known.by_id[route.queue_id], index)
    return route._replace(consumers=consumers)


def nobody_wants(queue: Queue, index: int | None) -> NoRecipientsError:
    """Return the diagnostic for a message that is for no subscription of its queue."""
    which: dict[str, Any] = {} if index is None else {"index": index}
    return NoRecipientsError(
        f"no subscription of queue {queue.name!r} is for the message{'' if index is None else f' with index {index}'}",
        hint="Look at their rules and topics with qsublist, or subscribe a consumer to all messages: qsubscribe.",
        queue=queue.name,
        **which,
    )


class Arriving:
    """What rules can ask of a message that takes its place: its values, by name, its headers and its body.

    It was not tried there yet, and has no value of what a store gives it with its place.
    """

    __slots__ = ("_body", "_value", "headers")

    def __init__(self, value: Callable[[str], Any], headers: Mapping[str, str], body: BodyValues) -> None:
        self.headers = headers
        self._value = value
        self._body = body

    @classmethod
    def sent(cls, control: EnqueueControl, size: int, body: Body) -> Arriving:
        """Return one that is enqueued, as its sender asks, with a body of a size."""

        def value(name: str) -> Any:
            if name == "size":
                return size
            # What a sender cannot give, a new message does not have; nor what is empty.
            return 0 if name == "retries" else None if (its := getattr(control, name, None)) == "" else its

        headers = control.headers or _NO_HEADERS
        if control.topic is not None:
            headers = {**headers, TOPIC_HEADER: control.topic}
        is_read = body is not None and size <= READ_MAX and control.type == TYPE
        return cls(value, headers, BodyValues(bytes(body) if is_read and body is not None else None))

    @classmethod
    def stored(cls, message: MessageInfo, body: bytes | None, origin: MoveOrigin | None = None) -> Arriving:
        """Return one that is stored; its body, where that is read, and where it comes from, if it is moved."""
        values = {name: known.get(message) for name, known in ATTRIBUTES.items() if known.asked} | {"retries": 0}
        if origin is not None:
            values |= {
                "origin_queue": origin.queue,
                "origin_msgid": origin.msgid,
                "origin_reason": origin.reason,
                "origin_error": origin.error or None,
                "first_msgid": message.first_msgid,
            }
        return cls(values.get, message.headers, BodyValues.of(message.type, message.size, body))

    def fact(self, subject: Subject) -> Any:
        """Return the value of a property, a header or a path in the body; None where it has none."""
        if isinstance(subject, Header):
            return self.headers.get(subject.name)
        return self._body.at(subject.steps) if isinstance(subject, BodyPath) else self._value(subject.name)


def source_of(known: Definitions, queue: Queue) -> Source:
    """Return how messages are taken out of a queue, be it started or not."""
    found = known.sources.get(queue.definition.name)
    if found is None:
        retention = queue.definition.retention
        kept = None if retention == FOREVER else retention * MICROS
        low = tuple(_low_levels(known, queue))
        found = Source(queue.id, queue.definition.grouping, bool(retention), kept, low, queue.parent_id)
        known.sources[queue.definition.name] = found
    return found


def _levels(known: Definitions, queue: Queue) -> list[Level]:
    """Return the high limits of a queue that have capacity commands."""
    return [
        Level(memory, threshold.high.unit.value, threshold.high.value, capacity)
        for memory, threshold, capacity in known.thresholds_of(queue)
        if threshold.command
    ]


def _low_levels(known: Definitions, queue: Queue) -> list[Level]:
    """Return the low limits of a queue that have capacity commands."""
    return [
        Level(memory, threshold.low.unit.value, threshold.low.value, capacity)
        for memory, threshold, capacity in known.thresholds_of(queue)
        if threshold.command
    ]


def commit_by_record(
    known: Definitions, guard: Guard, record: TransactionRecord, taken_from: Iterable[int], brings_to: Iterable[int]
) -> Commit:
    """Return the commit of a transaction of which only the record is known, and where all stands that it has."""
    by_id = known.by_id
    sources = [source_of(known, by_id[queue_id]) for queue_id in taken_from if queue_id in by_id]
    queues = [by_id[queue_id] for queue_id in brings_to if queue_id in by_id]
    # What it brings to a queue for several comes to its consumers by the route of that.
    stored = [route_of(known, queue) for queue in queues if not queue.parent_id]
    return Commit(guard, record.id, record.owner_id, True, sources, Use(0, 0, 0), True, stored, 0, ())
