"""The act of enqueuing, at once or when a transaction commits.

Whatever is to arrive passes `route_to`, where it is refused if its queue takes nothing; `send` has the store do the
rest, which holds the limits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from qmcore import numbers
from qmcore.acts.making_room import make_room
from qmcore.acts.room import no_memory, refuse_overflow
from qmcore.acts.sending import execute, no_such_message, send
from qmcore.acts.stores import delivery_of, store_for, stores
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import BadQueueError, InvalidArgumentError, NoSpaceError
from qmcore.message import PLAIN_CONTROL, TEXT_CONTROL, Body, EnqueueControl, checked_body, message_id, pages_of
from qmcore.order import Criterion, OutOfOrder, head_before, head_on_top
from qmcore.port import Unit, Volume
from qmcore.queue import Delivery, Queue
from qmcore.records import Use
from qmcore.times import MICROS
from qmcore.transitions import TOP, Arrival, Enqueue, Enqueued, Level, Route, Terms, Times

_SAME_HEAD: Final = frozenset((Criterion.FIFO, Criterion.LIFO))
"""What an order goes by in which the keys of all messages begin in the same way."""

_NO_TIMES: Final = Times(None, None, None, None)
_NO_USUAL: Final = (0, 0, None, None, None)
_NO_RARE: Final = (None,) * 6
"""What a message says that asks for nothing."""


class Outgoing(NamedTuple):
    """A message that is to be enqueued: checked, and its pages counted."""

    queue: str
    body: Body
    control: EnqueueControl
    headers: str | None
    size: int
    pages: int

    @property
    def use(self) -> Use:
        """What it takes of the queue space."""
        return Use(1, self.pages, self.size)


def prepare(queue: str, body: Body, control: EnqueueControl, page_size: int) -> Outgoing:
    """Return a message ready to be enqueued."""
    content = checked_body(body)
    size = 0 if content is None else len(content)
    headers = json.dumps(dict(control.headers), separators=(",", ":")) if control.headers else None
    return Outgoing(queue, content, control, headers, size, pages_of(size, headers, page_size))


def enqueue(volume: Volume, opened: OpenSpace, outgoing: Sequence[Outgoing], on: object = None) -> list[str]:
    """Put messages on their queues, all or none, and return their identifiers in the same order.

    They take their places in that order; in a queue that groups messages they stay together. Where there is no room,
    what has expired makes some. `on` is a connection of the application, in whose transaction it is done.
    """
    try:
        results = send(volume, opened, commands_for, outgoing, on)
    except NoSpaceError:
        if make_room(volume, opened, volume.clock.now(), on) == 0:
            raise
        results = send(volume, opened, commands_for, outgoing, on)
    if len(outgoing) == 1:
        return [message_id(opened.space.incarnation, results[0].sequences[0])]
    return _identifiers(opened, outgoing, results)


def enqueue_in(unit: Unit, opened: OpenSpace, outgoing: Sequence[Outgoing]) -> None:
    """Do the same in a database transaction that is open."""
    for value in commands_for(opened, opened.definitions(unit), outgoing):
        execute(unit, opened, value)


def commands_for(opened: OpenSpace, known: Definitions, outgoing: Sequence[Outgoing]) -> list[Enqueue]:
    """Return what the store is asked to do: one value for each queue, in the order in which they are named."""
    guard = opened.guard(known)
    if len(outgoing) == 1:
        (item,) = outgoing
        route = route_to(known, item.queue)
        control = item.control
        is_usual = control is PLAIN_CONTROL or control is TEXT_CONTROL
        terms = known.usual_terms.get((item.queue, control.type)) if is_usual else None
        if terms is None:
            terms = _terms_asked(known, item, route)
        return [Enqueue(guard, route, (Arrival(item.body, item.size, item.pages, terms),))]
    routes = {name: route_to(known, name) for name in dict.fromkeys(item.queue for item in outgoing)}
    arrivals: dict[str, list[Arrival]] = {name: [] for name in routes}
    last, terms = None, None
    for item in outgoing:
        its = item.queue, item.headers
        if terms is None or last is None or item.control is not last.control or its != (last.queue, last.headers):
            # To the same queue on the same terms, as most that come together: what was looked up holds.
            last, terms = item, _terms_asked(known, item, routes[item.queue])
        arrivals[item.queue].append(Arrival(item.body, item.size, item.pages, terms))
    return [Enqueue(guard, route, arrivals[name]) for name, route in routes.items()]


class Accepted(NamedTuple):
    """A message that its queue accepts, by the definitions as they were `known`, until its transaction commits.

    `place` is where it is to stand: empty for its order, `TOP`, or the order key of the message that it stands before.
    """

    outgoing: Outgoing
    known: Definitions
    route: Route
    arrival: Arrival
    place: bytes
    delivery: Delivery


def accepted(
    unit: Unit | None, known: Definitions, outgoing: Sequence[Outgoing], given: Sequence[int]
) -> list[Accepted]:
    """Return messages as their queues accept them, or refuse what one of the queues does not allow.

    `given` are the numbers of their identifiers. Without a unit nobody looks for messages that others stand before.
    """
    routes: dict[str, Route] = {}
    found = []
    for item, sequence in zip(outgoing, given, strict=False):
        route = routes.get(item.queue) or route_to(known, item.queue)
        routes[item.queue] = route
        terms, place = _terms_asked(known, item, route), TOP if item.control.top else b""
        if terms.before:
            place = _place_before(unit, known, item, terms)
            head, descends = head_before(place)
            terms = terms._replace(head=head, descends=descends, before=())
        delivery = Delivery.NONPERSIST if terms.memory else Delivery.PERSIST
        arrival = Arrival(item.body, item.size, item.pages, terms, sequence)
        found.append(Accepted(item, known, route, arrival, place, delivery))
    return found


def arrival_of(known: Definitions, item: Accepted) -> tuple[Route, Arrival]:
    """Return how a message comes that was accepted before; its queue is looked for by its name.

    A queue that was destroyed and made again meanwhile takes it as well.
    """
    if item.known is known:
        return item.route, item.arrival
    queue = known.queue(item.outgoing.queue)
    route = route_of(known, queue)
    terms = _terms(queue, route, item.outgoing, item.arrival.terms.memory, item.place, ())
    return route, item.arrival._replace(terms=terms)


def route_to(known: Definitions, name: str, *, even_stopped: bool = False) -> Route:
    """Return how messages come to a queue, or refuse them where it takes none.

    Whoever enqueues or imports asks here, once for each queue. `even_stopped` is for what an administrator brings.
    """
    queue = known.queues.get(name)
    if queue is None or not (queue.enqueue_enabled or even_stopped):
        raise stopped(known.queue(name), "enqueuing")
    return known.routes.get(name) or route_of(known, queue)


def route_of(known: Definitions, queue: Queue) -> Route:
    """Return how messages come to a queue, be it started or not."""
    found = known.routes.get(queue.name)
    if found is None:
        order, groups = queue.definition.order, queue.definition.grouping
        is_same = _SAME_HEAD.issuperset(order.criteria)
        head = order.head(priority=0, available_at=0, expires_at=None) if is_same else None
        levels = tuple(_levels(known, queue))
        found = known.routes[queue.name] = Route(queue.id, head, order.values, order.descends, groups, levels)
    return found


def stopped(queue: Queue, what: str) -> BadQueueError:
    """Return the diagnostic for a queue that an administrator has stopped."""
    return BadQueueError(
        f"queue {queue.name!r} is stopped for {what}", hint="Start it with qstart.", queue=queue.name, stopped=what
    )


def check_room(unit: Unit, known: Definitions, new: Accepted, more: Use) -> None:
    """Refuse now what could not be enqueued when the transaction commits.

    `more` is what the whole transaction will add, itself included: messages to both stores, the rest to the store of
    this message; less than nothing where it takes more away.
    """
    store = store_for(unit, known, new.delivery)
    after = store.level(known.space.id).plus(more)
    refuse_overflow(unit, known, store, after, new.outgoing.use)


# ---- what is sent ----------------------------------------------------------------------------------------------------


def _identifiers(opened: OpenSpace, outgoing: Sequence[Outgoing], results: Sequence[Enqueued]) -> list[str]:
    """Return the identifiers of messages in their order; there is a result for each of their queues."""
    incarnation = opened.space.incarnation
    if len(results) == 1:
        return [message_id(incarnation, sequence) for sequence in results[0].sequences]
    given = {
        queue: iter(result.sequences)
        for queue, result in zip(dict.fromkeys(item.queue for item in outgoing), results, strict=True)
    }
    return [message_id(incarnation, next(given[item.queue])) for item in outgoing]


def _terms_asked(known: Definitions, item: Outgoing, route: Route) -> Terms:
    """Return on what terms a message comes, or refuse those that its queue does not grant."""
    control = item.control
    queue = known.queues[item.queue]
    memory = delivery_of(queue, control) is Delivery.NONPERSIST
    if memory:
        _refuse_memory(known, queue)
    before: tuple[int, ...] = ()
    if control.top:
        _refuse_unless_granted(queue, OutOfOrder.TOP, "on top")
    elif control.before is not None:
        _refuse_unless_granted(queue, OutOfOrder.MSGID, "before another message")
        before = tuple(numbers.number(known.space.id, each) for each in known.space.sequences_of(control.before))
        if not before:
            raise no_such_message(queue.name, control.before)
    terms = _terms(queue, route, item, memory, TOP if control.top else b"", before)
    if control is PLAIN_CONTROL or control is TEXT_CONTROL:
        known.usual_terms[item.queue, control.type] = terms
    return terms


def _terms(queue: Queue, route: Route, item: Outgoing, memory: bool, place: bytes, before: tuple[int, ...]) -> Terms:
    control, head, descends = item.control, route.head, route.descends
    if place:
        head, descends = head_on_top() if place == TOP else head_before(place)
    elif head is None and not queue.definition.order.goes_by_times:
        head = queue.definition.order.head(priority=control.priority, available_at=0, expires_at=None)
    times = Times(
        control.delay, control.available_us, lifetime_of(control, queue.definition.expiration), control.expires_us
    )
    has_times = times != _NO_TIMES
    options = _options(control, item.headers)
    return Terms(memory, control.type, control.priority, head, descends, times if has_times else None, before, options)


def lifetime_of(control: EnqueueControl, default: int | None) -> int | None:
    """Return how many microseconds after its arrival a message expires; None where it has a time, or never does.

    `default` is the expiration of its queue in seconds.
    """
    if control.lifetime is not None:
        return control.lifetime
    if control.expires_us is not None or control.never_expires or default is None:
        return None
    return default * MICROS


def _options(control: EnqueueControl, headers: str | None) -> tuple[int | str | bytes | None, ...]:
    usual = control.urcode, control.appkey, control.corrid, control.reply_queue, headers
    rare = (
        control.failure_queue,
        control.error_queue,
        control.delivery,
        control.reply_delivery,
        control.client_id or None,
        control.subtype or None,
    )
    if rare != _NO_RARE:
        failure, error, delivery, reply, client, subtype = rare
        return (*usual, failure, error, delivery and delivery.value, reply and reply.value, client, subtype)
    return () if usual == _NO_USUAL else usual


def _levels(known: Definitions, queue: Queue) -> list[Level]:
    """Return the high limits of a queue that have capacity commands."""
    return [
        Level(memory, threshold.high.unit.value, threshold.high.value, capacity)
        for memory, threshold, capacity in known.thresholds_of(queue)
        if threshold.command
    ]


def _refuse_memory(known: Definitions, queue: Queue) -> None:
    """Refuse a non-persistent message that the queue, or the queue space, cannot take."""
    if not known.space.definition.memory:
        raise no_memory(known)
    if queue.definition.grouping:
        raise InvalidArgumentError(
            f"queue {queue.name!r} groups messages, and non-persistent messages cannot be grouped",
            hint="Send it as a persistent message.",
            queue=queue.name,
        )


def _place_before(unit: Unit | None, known: Definitions, item: Outgoing, terms: Terms) -> bytes:
    """Return the order key of the message that another is to stand before."""
    queue = known.queue(item.queue)
    if unit is not None:
        for number in terms.before:
            for store in stores(unit, known.space.id):
                key = store.key_of(queue.id, number)
                if key is not None:
                    return key
    raise no_such_message(queue.name, item.control.before or "")


def _refuse_unless_granted(queue: Queue, wanted: OutOfOrder, what: str) -> None:
    if wanted not in queue.definition.out_of_order:
        raise InvalidArgumentError(
            f"queue {queue.name!r} does not let messages be enqueued {what}"
            f" (its out-of-ordering is {queue.definition.out_of_order})",
            hint="Enqueue in order, or allow it with qchange.",
            queue=queue.name,
        )
