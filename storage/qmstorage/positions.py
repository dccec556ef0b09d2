"""Where a message that comes stands in the order of its queue, and since and until when: what its terms say now."""

from __future__ import annotations

from typing import NamedTuple

from qmcore.order import head_before, head_of, head_on_top
from qmcore.transitions import NEVER, TOP, Route, Terms, Times

_NONE = Times(None, None, None, None)


class Position(NamedTuple):
    """The times of a message, and what its order key is made of but for its sequence number.

    `head` is the part before that; the number is inverted where the last of several messages comes first: `descends`.
    """

    available_us: int | None
    expires_us: int | None
    head: bytes
    descends: bool


def position_of(route: Route, terms: Terms, now: int, before: bytes = b"") -> Position:
    """Return the position of a message that comes now; `before` is the key of the message that it stands before."""
    delay, available, lifetime, expires = terms.times or _NONE
    if delay is not None:
        available = now + delay
    if lifetime is None and expires is None:
        lifetime = route.lifetime
    if lifetime is not None and lifetime != NEVER:
        expires = now + lifetime
    place = before or terms.place
    if place:
        return Position(available, expires, *(head_on_top() if place == TOP else head_before(place)))
    head = terms.head
    if head is None:
        moment = now if available is None else available
        head = head_of(route.criteria, priority=terms.priority, available_at=moment, expires_at=expires)
    return Position(available, expires, head, terms.descends)
