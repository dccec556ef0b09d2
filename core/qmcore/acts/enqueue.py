"""The act of enqueuing, at once or when a transaction commits.

Whatever is to arrive passes `route_to`, where it is refused if its queue takes nothing; `send` has the store do the
rest, which holds the limits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Final, NamedTuple, TypeAlias

from qmcore import names, numbers
from qmcore.acts.expiry import make_room
from qmcore.acts.room import no_memory
from qmcore.acts.routes import Arriving, for_message, with_recipients
from qmcore.acts.sending import execute, no_such_message, send
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import BadQueueError, InvalidArgumentError, NoSpaceError
from qmcore.message import (
    BODY_MAX,
    PLAIN_CONTROLS,
    Body,
    EnqueueControl,
    checked_body,
    message_ids,
    pages_of,
)
from qmcore.order import OutOfOrder
from qmcore.port import Unit, Volume
from qmcore.queue import Delivery, Queue
from qmcore.records import Use
from qmcore.times import MICROS
from qmcore.transitions import NEVER, TOP, Arrival, Enqueue, Enqueued, Guard, Route, Terms, Times

Runs: TypeAlias = list[tuple[Route, list[Arrival]]]
"""Messages that follow each other in a queue, by the routes that they come by."""

_NO_TIMES: Final = Times(None, None, None, None)
_NO_USUAL: Final = (0, 0, None, None, None)
_NO_RARE: Final = (None,) * 6
"""What a message says that asks for nothing."""

_tuple: Final = tuple.__new__
"""Makes a value of a class of tuples in half the time of its constructor."""


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


def prepare(items: Iterable[tuple[str, Body, EnqueueControl]], page_size: int) -> list[Outgoing]:
    """Return messages ready to be enqueued, by their queues, bodies and control information."""
    outgoing: list[Outgoing] = []
    last, headers, size, pages = None, None, 0, 0
    for queue, body, control in items:
        content = body if body.__class__ is bytes and len(body) <= BODY_MAX else checked_body(body)
        its_size = 0 if content is None else len(content)
        # What comes together mostly has the same control information, and often the same size.
        if control is not last:
            headers = _headers(control) if control.headers or control.topic is not None else None
        if control is not last or its_size != size:
            last, size, pages = control, its_size, pages_of(its_size, headers, page_size)
        outgoing.append(_tuple(Outgoing, (queue, content, control, headers, size, pages)))
    return outgoing


def _headers(control: EnqueueControl) -> str:
    """Return the headers of a message as JSON; its topic is one of them."""
    topic = {} if control.topic is None else {names.TOPIC_HEADER: control.topic}
    return json.dumps({**(control.headers or {}), **topic}, separators=(",", ":"))


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
        return [opened.space.naming(results[0].sequences[0])]
    return _identifiers(opened, outgoing, results)


def enqueue_in(unit: Unit, opened: OpenSpace, outgoing: Sequence[Outgoing]) -> list[str]:
    """Do the same in a database transaction that is open."""
    values = commands_for(opened, opened.definitions(unit), outgoing)
    return _identifiers(opened, outgoing, [execute(unit, opened, value) for value in values])


def commands_for(opened: OpenSpace, known: Definitions, outgoing: Sequence[Outgoing]) -> list[Enqueue]:
    """Return what the store is asked to do: one value for each queue, in the order in which they are named."""
    guard = opened.guard(known)
    if len(outgoing) == 1:
        (item,) = outgoing
        route = route_to(known, item.queue)
        control = item.control
        is_usual = PLAIN_CONTROLS.get(control.type) is control
        terms = known.usual_terms.get((item.queue, control.type)) if is_usual else None
        if terms is None:
            terms = _terms_asked(known, item, route)
        if known.ruled and route.queue_id in known.ruled:
            route = for_message(known, route, _arriving(item))
        return [Enqueue(guard, route, (Arrival(item.body, item.size, item.pages, terms),))]
    routes = {name: route_to(known, name) for name in dict.fromkeys(item.queue for item in outgoing)}
    arrivals: dict[str, list[Arrival]] = {name: [] for name in routes}
    name, asked, told, terms = None, None, None, None
    for item in outgoing:
        queue, body, control, headers, size, pages = item
        if control is not asked or queue != name or headers != told:
            # To the same queue on the same terms, as most that come together: what was looked up holds.
            name, asked, told, terms = queue, control, headers, _terms_asked(known, item, routes[queue])
        arrivals[queue].append(_tuple(Arrival, (body, size, pages, terms, 0)))
    if known.ruled:
        return _by_recipients(known, guard, routes, arrivals, outgoing)
    return [Enqueue(guard, route, arrivals[name]) for name, route in routes.items()]


def _by_recipients(
    known: Definitions,
    guard: Guard,
    routes: Mapping[str, Route],
    arrivals: Mapping[str, Sequence[Arrival]],
    outgoing: Sequence[Outgoing],
) -> list[Enqueue]:
    """Return what the store is asked to do where consumers have rules: the messages of a queue in their order.

    There is a value for all that are for the same consumers and follow each other.
    """
    runs: dict[str, Runs] = {name: [] for name in routes}
    following = {name: iter(its) for name, its in arrivals.items()}
    for index, item in enumerate(outgoing):
        route = routes[item.queue]
        if route.queue_id in known.ruled:
            route = for_message(known, route, _arriving(item), index)
        add_to_runs(runs[item.queue], route, next(following[item.queue]))
    return [Enqueue(guard, route, run) for its in runs.values() for route, run in its]


def add_to_runs(runs: Runs, route: Route, arrival: Arrival) -> None:
    """Add a message to the last of several that come by the same route, or begin with it those that follow."""
    if runs and runs[-1][0] == route:
        runs[-1][1].append(arrival)
    else:
        runs.append((route, [arrival]))


def _arriving(item: Outgoing) -> Arriving:
    """Return a message as the rules of consumers see it."""
    return Arriving.sent(item.control, item.size, item.body)


class Accepted(NamedTuple):
    """A message that its queue accepts, by the definitions as they were `known`, until its transaction commits."""

    outgoing: Outgoing
    known: Definitions
    route: Route
    arrival: Arrival

    @property
    def delivery(self) -> Delivery:
        """Where it is to be kept."""
        return Delivery.NONPERSIST if self.arrival.terms.memory else Delivery.PERSIST


def accepted(known: Definitions, outgoing: Sequence[Outgoing], given: Sequence[int] = ()) -> list[Accepted]:
    """Return messages as their queues accept them, or refuse what a queue does not allow.

    `given` are the numbers of their identifiers, or none of them yet.
    """
    routes: dict[str, Route] = {}
    for item in outgoing:
        if item.queue not in routes:
            routes[item.queue] = route_to(known, item.queue)
    found: list[Accepted] = []
    for item, sequence in zip(outgoing, given or repeat(0), strict=False):
        route = routes[item.queue]
        terms = _terms_asked(known, item, route)
        if known.ruled and route.queue_id in known.ruled:
            route = for_message(known, route, _arriving(item), len(found) if len(outgoing) > 1 else None)
        found.append(Accepted(item, known, route, Arrival(item.body, item.size, item.pages, terms, sequence)))
    return found


def arrival_of(known: Definitions, item: Accepted) -> tuple[Route, Arrival]:
    """Return how a message comes that was accepted before; its queue is looked for by its name.

    A queue that was destroyed and made again meanwhile takes it as well.
    """
    if item.known is known:
        return item.route, item.arrival
    queue = known.queue(item.outgoing.queue)
    route = with_recipients(known, queue)
    if known.ruled and route.queue_id in known.ruled:
        route = for_message(known, route, _arriving(item.outgoing))
    its = item.arrival.terms
    return route, item.arrival._replace(terms=_terms(queue, route, item.outgoing, its.memory, its.place, ()))


def route_to(known: Definitions, name: str, *, even_stopped: bool = False) -> Route:
    """Return how messages come to a queue, or refuse them where it takes none.

    Whoever enqueues or imports asks here, once for each queue. `even_stopped` is for what an administrator brings.
    """
    queue = known.queues.get(name)
    if queue is None or not (queue.enqueue_enabled or even_stopped):
        raise stopped(known.queue(name), "enqueuing")
    return known.routes.get(name) or with_recipients(known, queue)


def stopped(queue: Queue, what: str) -> BadQueueError:
    """Return the diagnostic for a queue that an administrator has stopped."""
    return BadQueueError(
        f"queue {queue.name!r} is stopped for {what}", hint="Start it with qstart.", queue=queue.name, stopped=what
    )


# ---- what is sent ----------------------------------------------------------------------------------------------------


def _identifiers(opened: OpenSpace, outgoing: Sequence[Outgoing], results: Sequence[Enqueued]) -> list[str]:
    """Return the identifiers of messages in their order; results are those of one queue after the other."""
    naming = opened.space.naming
    if len(results) == 1:
        return message_ids(opened.space.incarnation, results[0].sequences)
    sequences = chain.from_iterable(result.sequences for result in results)
    counts = Counter(item.queue for item in outgoing)
    given = {queue: iter(list(islice(sequences, count))) for queue, count in counts.items()}
    return [naming(next(given[item.queue])) for item in outgoing]


def _terms_asked(known: Definitions, item: Outgoing, route: Route) -> Terms:
    """Return on what terms a message comes, or refuse those that its queue does not grant.

    Not each message is seen here: those on usual terms are alike. A rule about one message, such as its size, stands
    where its `Arrival` is made.
    """
    control = item.control
    queue, delivery = known.queues[item.queue], control.delivery
    if delivery is None or delivery is Delivery.DEFAULT:
        delivery = queue.definition.delivery
    memory = delivery is Delivery.NONPERSIST
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
    if PLAIN_CONTROLS.get(control.type) is control:
        known.usual_terms[item.queue, control.type] = terms
    return terms


def _terms(queue: Queue, route: Route, item: Outgoing, memory: bool, place: bytes, before: tuple[int, ...]) -> Terms:
    control, head = item.control, route.head
    if head is None and not queue.definition.order.goes_by_times:
        head = queue.definition.order.head(priority=control.priority, available_at=0, expires_at=None)
    lifetime = NEVER if control.never_expires else control.lifetime
    delay = control.delay
    if delay is None and control.available_us is None:
        delay = queue.definition.default_delay * MICROS or None
    times = Times(delay, control.available_us, lifetime, control.expires_us)
    asked = times if times != _NO_TIMES else None
    options: tuple[int | str | bytes | None, ...]
    options = control.urcode, control.appkey, control.corrid, control.reply_queue, item.headers
    if options == _NO_USUAL:
        options = ()
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
        others = failure, error, delivery and delivery.value, reply and reply.value, client, subtype
        options = (*(options or _NO_USUAL), *others)
    return Terms(memory, control.type, control.priority, head, route.descends, asked, place, before, options)


def _refuse_memory(known: Definitions, queue: Queue) -> None:
    """Refuse a non-persistent message that the queue, or the queue space, cannot take."""
    if not known.space.definition.memory:
        raise no_memory(known)
    if queue.definition.multiple_consumers:
        raise InvalidArgumentError(
            f"queue {queue.name!r} is for several consumers, and takes persistent messages only",
            hint="Send it as a persistent message.",
            queue=queue.name,
        )
    if queue.definition.grouping:
        raise InvalidArgumentError(
            f"queue {queue.name!r} groups messages, and non-persistent messages cannot be grouped",
            hint="Send it as a persistent message.",
            queue=queue.name,
        )


def _refuse_unless_granted(queue: Queue, wanted: OutOfOrder, what: str) -> None:
    if wanted not in queue.definition.out_of_order:
        raise InvalidArgumentError(
            f"queue {queue.name!r} does not let messages be enqueued {what}"
            f" (its out-of-ordering is {queue.definition.out_of_order})",
            hint="Enqueue in order, or allow it with qchange.",
            queue=queue.name,
        )
