"""The act of enqueuing, at once or when a transaction commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from qmcore import numbers
from qmcore.acts import thresholds
from qmcore.acts.expiry import expire
from qmcore.acts.identifying import numbers_of
from qmcore.acts.room import refuse_overflow
from qmcore.acts.stores import delivery_of, store_for, stores
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import BadMessageIdError, BadQueueError, InvalidArgumentError
from qmcore.message import PLAIN_CONTROL, Body, EnqueueControl, checked_body, message_id, pages_of
from qmcore.order import OutOfOrder, key_before, key_on_top
from qmcore.port import Unit
from qmcore.queue import Delivery, Queue
from qmcore.records import NewMessage, Place, Spilled, Standing, Use
from qmcore.store import Store

_SPILLED_AT_A_TIME = 500
_EXPIRED_AT_A_TIME = 1000


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


def enqueue(unit: Unit, opened: OpenSpace, outgoing: Sequence[Outgoing], now: int) -> list[str]:
    """Put messages on their queues, all or none, and return their identifiers in the same order.

    They take their places in that order. In a queue that groups messages they stay together.
    """
    known = opened.definitions(unit)
    waiting = all_accepted(unit, known, outgoing)
    first = waiting[0]
    if len(waiting) > 1 and any(
        item.queue_id != first.queue_id or item.delivery is not first.delivery for item in waiting
    ):
        return _enqueue_apart(unit, opened, waiting, now)
    store = store_for(unit, known, first.delivery)
    arrived = arrive(unit, opened, known.by_id[first.queue_id], store, waiting, now)
    return [message_id(known.space.incarnation, sequence) for sequence in arrived]


def _enqueue_apart(unit: Unit, opened: OpenSpace, waiting: Sequence[Accepted], now: int) -> list[str]:
    """Put messages on different queues, or in different stores, and keep the order that they have together."""
    known = opened.definitions(unit)
    sequences = unit.reserve(known.space.id, len(waiting))
    numbered = [item._replace(sequence=sequence) for sequence, item in zip(sequences, waiting, strict=True)]
    orders = {sequence: sequence for sequence in sequences}
    for (queue_id, delivery), part in _parts(waiting).items():
        store = store_for(unit, known, delivery)
        arrive(unit, opened, known.by_id[queue_id], store, [numbered[at] for at in part], now, orders=orders)
    return [message_id(known.space.incarnation, sequence) for sequence in orders]


class Accepted(NamedTuple):
    """A message that its queue accepts.

    `place` is empty, Spilled.TOP, or the order key of the message that it stands before. `sequence` is the number of
    its identifier, where it was given before.
    """

    outgoing: Outgoing
    queue_id: int
    delivery: Delivery
    place: bytes
    sequence: int | None = None


def accepted(unit: Unit, known: Definitions, outgoing: Outgoing, sequence: int | None = None) -> Accepted:
    """Return the message as its queue accepts it, or refuse what the queue does not allow.

    `sequence` is the number of its identifier, where it has one already.
    """
    queue = known.queue(outgoing.queue)
    if not queue.enqueue_enabled:
        raise stopped(queue, "enqueuing")
    delivery = delivery_of(queue, outgoing.control)
    store_for(unit, known, delivery)
    if queue.definition.grouping and delivery is Delivery.NONPERSIST:
        raise InvalidArgumentError(
            f"queue {queue.name!r} groups messages, and non-persistent messages cannot be grouped",
            hint="Send it as a persistent message.",
            queue=queue.name,
        )
    return Accepted(outgoing, queue.id, delivery, _place_asked_for(unit, known, queue, outgoing.control), sequence)


def all_accepted(unit: Unit, known: Definitions, outgoing: Sequence[Outgoing]) -> list[Accepted]:
    """Return messages as their queues accept them, or refuse what one of the queues does not allow."""
    waiting: list[Accepted] = []
    for item in outgoing:
        last = waiting[-1] if waiting else None
        if last and (item.queue, item.control) == (last.outgoing.queue, last.outgoing.control):
            # To the same queue on the same terms, as most that come together: what was looked up holds.
            waiting.append(Accepted(item, last.queue_id, last.delivery, last.place))
        else:
            waiting.append(accepted(unit, known, item))
    return waiting


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


def arrive(
    unit: Unit,
    opened: OpenSpace,
    queue: Queue,
    store: Store,
    items: Sequence[Accepted],
    now: int,
    spilled_by: int | None = None,
    orders: Mapping[int, int] | None = None,
    *,
    committed: bool = False,
) -> list[int]:
    """Let messages arrive in a queue and return the sequence numbers of the identifiers of `items`.

    Where a transaction is named, what it has spilled for the queue arrives too, before the others. `orders` gives by
    the sequence numbers of identifiers those that the order goes by, where messages of several stores mix. What is
    `committed` already has its room, and is not refused.
    """
    known = opened.definitions(unit)
    more = _use_of(items)
    if spilled_by is not None:
        more = more.plus(_uncharge(known, queue, store, spilled_by))
    sequences = _count_in(unit, known, queue, store, more, committed=committed)
    group = _Group() if queue.definition.grouping and more.messages > 1 else None

    def stands(number: int, sequence: int, terms: _Terms) -> Standing:
        order = sequence if orders is None else orders[numbers.sequence(number)]
        if group is None:
            return _standing(queue, terms, order, now, None)
        return _standing(queue, group.terms(number, terms), order, now, group.id)

    counts = False
    if spilled_by is not None:
        its_own = sequences[: len(sequences) - len(items)]
        counts = _arrive_spilled(store, queue, spilled_by, its_own, stands, now)
    arriving: list[NewMessage] = []
    asked, terms = None, None
    for sequence, item in zip(sequences[len(sequences) - len(items) :], items, strict=True):
        number = numbers.number(known.space.id, sequence if item.sequence is None else item.sequence)
        if terms is None or asked != (item.outgoing.control, item.place):
            asked, terms = (item.outgoing.control, item.place), _terms(item, queue, now)
        arriving.append(_new_message(number, queue, item.outgoing, stands(number, sequence, terms)))
    store.bring(arriving, now)
    if thresholds.is_watched(queue) and (counts or not all(_has_expired(new.standing, now) for new in arriving)):
        if thresholds.is_reached(unit, opened, queue, store):
            _expire(unit, opened, queue, now)
        thresholds.note_arrival(unit, opened, queue, store, now)
    return [numbers.sequence(new.id) for new in arriving]


def _arrive_spilled(
    store: Store,
    queue: Queue,
    transaction_id: int,
    sequences: Sequence[int],
    stands: Callable[[int, int, _Terms], Standing],
    now: int,
) -> bool:
    """Let what a transaction has spilled stand in its queue; tell whether some of it has not expired by now."""
    counts = False
    for sequence, spilled in zip(sequences, _spilled(store, queue, transaction_id), strict=True):
        standing = stands(spilled.message_id, sequence, _terms_of_spilled(spilled, queue, now))
        store.settle(spilled.message_id, standing)
        _stand(store, Place(spilled.message_id, queue.id, standing.order_key, 0), standing, now)
        counts = counts or not _has_expired(standing, now)
    store.forget_spilled(transaction_id, queue.id)
    return counts


def _has_expired(standing: Standing, now: int) -> bool:
    return standing.expires_us is not None and standing.expires_us <= now


def _expire(unit: Unit, opened: OpenSpace, queue: Queue, now: int) -> None:
    """Remove what has expired, so that it does not count for a capacity limit."""
    for each in stores(unit, queue.space_id):
        while expire(unit, opened, each, queue, now, _EXPIRED_AT_A_TIME) == _EXPIRED_AT_A_TIME:
            pass


def _uncharge(known: Definitions, queue: Queue, store: Store, transaction_id: int) -> Use:
    """Give back the room that was kept for what a transaction has spilled, and return how much it is."""
    kept = store.spilled_use(transaction_id, queue.id)
    store.charge(known.space.id, messages=-kept.messages, pages=-kept.pages, size=-kept.size)
    return kept


def spilled_sequences(store: Store, queue: Queue, transaction_id: int) -> list[int]:
    """Return the sequence numbers of the identifiers of what a transaction has spilled for a queue."""
    return [numbers.sequence(spilled.message_id) for spilled in _spilled(store, queue, transaction_id)]


def _spilled(store: Store, queue: Queue, transaction_id: int) -> Iterator[Spilled]:
    step = store.spilled(transaction_id, queue.id, -1, _SPILLED_AT_A_TIME)
    while step:
        yield from step
        step = store.spilled(transaction_id, queue.id, step[-1].message_id, _SPILLED_AT_A_TIME)


class _Terms(NamedTuple):
    """On what terms a message arrives: what its place in the order depends on, and its times."""

    priority: int
    available_us: int | None
    expires_us: int | None
    place: bytes


class _Group:
    """The messages of one arrival that stay together: the first says when they are available and where they stand."""

    def __init__(self) -> None:
        self.id: int | None = None
        self._terms: _Terms | None = None

    def terms(self, number: int, own: _Terms) -> _Terms:
        """Return the terms of a message of the group."""
        if self._terms is None:
            self.id, self._terms = number, own
        return self._terms


def _terms(item: Accepted, queue: Queue, now: int) -> _Terms:
    control = item.outgoing.control
    expires = control.expires_at(now, queue.definition.expiration)
    return _Terms(control.priority, control.available_at(now), expires, item.place)


def _terms_of_spilled(item: Spilled, queue: Queue, now: int) -> _Terms:
    available = item.available_us if item.delay is None else now + item.delay
    return _Terms(item.priority, available, _expiry_of_spilled(item, queue, now), item.place)


def _expiry_of_spilled(item: Spilled, queue: Queue, now: int) -> int | None:
    if item.lifetime == Spilled.DEFAULT:
        return PLAIN_CONTROL.expires_at(now, queue.definition.expiration)
    return item.expires_us if item.lifetime is None else now + item.lifetime


def _count_in(
    unit: Unit, known: Definitions, queue: Queue, store: Store, more: Use, *, committed: bool
) -> Sequence[int]:
    """Count an arrival, refuse it where there is no room, and return its sequence numbers."""
    space_id, count = known.space.id, more.messages
    arrival = store.arrive(space_id, queue.id, count=count, pages=more.pages, size=more.size)
    if not committed:
        refuse_overflow(unit, known, store, arrival.space, more)
    # Numbers are given by the store on disk alone: one that was used is not used again, whatever becomes of memory.
    return arrival.sequences if store is unit else unit.reserve(space_id, count)


def _standing(queue: Queue, terms: _Terms, sequence: int, now: int, group_id: int | None) -> Standing:
    if terms.place == Spilled.TOP:
        key = key_on_top(sequence)
    elif terms.place:
        key = key_before(terms.place, sequence)
    else:
        key = queue.definition.order.key(
            priority=terms.priority,
            available_at=now if terms.available_us is None else terms.available_us,
            expires_at=terms.expires_us,
            sequence=sequence,
        )
    return Standing(key, now, terms.available_us, terms.expires_us, group_id)


def _new_message(number: int, queue: Queue, outgoing: Outgoing, standing: Standing) -> NewMessage:
    _, body, control, headers, size, pages = outgoing
    return NewMessage(number, queue.id, standing, pages, size, headers, control, body)


def _stand(store: Store, place: Place, standing: Standing, now: int) -> None:
    if standing.available_us is not None and standing.available_us > now:
        store.make_due(place, standing.available_us)
    else:
        store.make_ready(place)
    if standing.expires_us is not None:
        store.make_expiring(place.queue_id, place.message_id, standing.expires_us)


def _place_asked_for(unit: Unit, known: Definitions, queue: Queue, control: EnqueueControl) -> bytes:
    """Return the place that the sender asks for, if the queue grants such."""
    if control.top:
        _refuse_unless_granted(queue, OutOfOrder.TOP, "on top")
        return Spilled.TOP
    if control.before is None:
        return b""
    _refuse_unless_granted(queue, OutOfOrder.MSGID, "before another message")
    for number in numbers_of(unit, known.space, queue, control.before):
        for store in stores(unit, known.space.id):
            key = store.key_of(queue.id, number)
            if key is not None:
                return key
    raise BadMessageIdError(
        f"queue {queue.name!r} has no message {control.before!r} to enqueue before",
        hint="It may have been dequeued meanwhile.",
        queue=queue.name,
        msgid=control.before,
    )


def _refuse_unless_granted(queue: Queue, wanted: OutOfOrder, what: str) -> None:
    if wanted not in queue.definition.out_of_order:
        raise InvalidArgumentError(
            f"queue {queue.name!r} does not let messages be enqueued {what}"
            f" (its out-of-ordering is {queue.definition.out_of_order})",
            hint="Enqueue in order, or allow it with qchange.",
            queue=queue.name,
        )


def _parts(items: Sequence[Accepted]) -> dict[tuple[int, Delivery], list[int]]:
    """Return which of the messages go to the same queue and store, each in their order."""
    parts: dict[tuple[int, Delivery], list[int]] = {}
    for at, item in enumerate(items):
        parts.setdefault((item.queue_id, item.delivery), []).append(at)
    return parts


def _use_of(items: Sequence[Accepted]) -> Use:
    pages = size = 0
    for item in items:
        pages += item.outgoing.pages
        size += item.outgoing.size
    return Use(len(items), pages, size)
