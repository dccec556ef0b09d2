"""What becomes of messages, which are taken out of their states for that: the values by which a store is told."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore import numbers
from qmcore.acts.routes import Arriving, for_message, route_of, source_of, with_recipients
from qmcore.acts.sending import refusal, start_afterwards
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import InvalidArgumentError
from qmcore.message import PARKED_UNTIL, Reason
from qmcore.names import storable
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Changeable, Holding, Routing
from qmcore.refusals import Refused
from qmcore.store import Store
from qmcore.transitions import Change, Dispose, Disposition, Move, MoveOrigin, NewTerms, PutBack


def dispose(
    unit: Unit,
    opened: OpenSpace,
    queue: Queue,
    store: Store,
    dispositions: Sequence[Disposition],
    transaction_id: int | None = None,
) -> None:
    """Dispose of messages of a queue that were looked at just now; a transaction holds them, or none."""
    if not dispositions:
        return
    known = opened.definitions(unit)
    its = opened.guard(known), source_of(known, queue), store is not unit, dispositions, transaction_id
    result = unit.dispose(Dispose(*its))
    if isinstance(result, Refused):
        raise refusal(known, result)
    start_afterwards(unit, opened, result.reached)


def back(holding: Holding, retries: int | None = None, until_us: int | None = None) -> PutBack:
    """Return that a message stands where it stood, so often tried by now, and until when it is kept back."""
    return PutBack(holding, holding.place.retries if retries is None else retries, until_us, holding.expires_us)


def to_error_queue(
    known: Definitions,
    queue: Queue,
    target: Queue,
    holding: Holding,
    routing: Routing,
    *,
    reason: Reason,
    now: int,
    error: str = "",
) -> Move:
    """Return that a message goes to an error queue. It can be consumed there at once.

    There it does not expire; it remembers when it would have.
    """
    before = routing.expires_before_us if holding.expires_us is None else holding.expires_us
    origin = MoveOrigin(queue.name, name_of(known, holding), reason.value, storable(error), before)
    return Move(holding, None, NewTerms(route_of(known, target), routing.priority, now, None, None), origin)


def to_queue(
    known: Definitions, queue: Queue, target: Queue, store: Store, found: Changeable, now: int
) -> tuple[Move, bool]:
    """Return that a message goes to another queue for an administrator: it keeps its terms, its tries begin again.

    In an error queue it does not expire; from there it has its expiry back. The second value is whether that was over
    by now: then it has none any more. A parked message stays parked, for the same reason.
    """
    before, has_outlived = found.expires_before_us if found.expires_us is None else found.expires_us, False
    if known.is_error_queue(target):
        expires = None
    else:
        has_outlived = found.expires_us is None and before is not None and before <= now
        expires, before = None if has_outlived else before, None
    error = found.last_error if found.until_us == PARKED_UNTIL else ""
    origin = MoveOrigin(queue.name, name_of(known, found.holding), Reason.ADMIN.value, error, before)
    route = with_recipients(known, target)
    if target.id in known.ruled:
        message, body = store.listing.described(known.space, queue.name, found.holding.place.message_id)
        route = for_message(known, route, Arriving.stored(message, body, origin))
    terms = NewTerms(route, found.priority, found.moment_us, found.available_us, expires)
    return Move(found.holding, found.until_us, terms, origin), has_outlived


def by_its_terms(known: Definitions, queue: Queue, found: Changeable) -> Change:
    """Return that a message stands where its terms, which may be new ones, put it among its equals."""
    if queue.parent_id:
        raise InvalidArgumentError(
            f"{queue.name!r} is one of several consumers, which have priority and times of a message in common",
            hint="Dequeue the message and enqueue it anew.",
            queue=queue.name,
        )
    place, order = found.holding.place, queue.definition.order
    # A damaged file may have no key there: the message has its place by the number that it was stored with.
    is_key = isinstance(place.order_key, bytes)
    sequence = order.sequence_in(place.order_key) if is_key else numbers.sequence(place.message_id)
    its = found.priority, found.moment_us, found.available_us, found.expires_us
    return Change(found.holding, found.until_us, NewTerms(route_of(known, queue), *its), sequence)


def name_of(known: Definitions, holding: Holding) -> str:
    """Return the identifier of a message."""
    return known.space.msgid(numbers.sequence(holding.place.message_id))
