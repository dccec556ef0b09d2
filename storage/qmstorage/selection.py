"""Finding the ready message that is asked for: statements that give order keys, the first in the order first."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

from qmcore.condition import BY_NAME, Condition, Like
from qmcore.selection import Choice
from qmcore.space import Space
from qmstorage import conditions
from qmstorage.dialect import says
from qmstorage.schema import message, ready
from qmstorage.sql import Select, and_, bindparam, elements, select
from qmstorage.statements import Statement, given

_TAKEN = (ready.c.message_id, ready.c.order_key, ready.c.retries)
_IN_QUEUE = given(ready.c.queue_id, "of_queue")
STANDS = and_(elements.Named(ready.c.queue_id, message.c.queue_id), ready.c.order_key == message.c.order_key)
"""The row of `ready` is that of the message."""

_BEYOND = bindparam("beyond", type_=message.c.queue_id.type)
STANDS_FOR_CONSUMER = and_(
    elements.Named(ready.c.queue_id, message.c.queue_id + _BEYOND), ready.c.order_key == message.c.order_key
)
"""The row of `ready` is that of the message in the place of a consumer, or in the queue itself.

The number of the consumer is so much `beyond` that of the queue. It is not given by itself: a planner could begin with
all that stands there.
"""

_FIRST = select(ready.c.order_key).where(_IN_QUEUE).order_by(ready.c.order_key)
_READY_MESSAGES = (
    select(ready.c.order_key)
    .join_from(message, ready, STANDS_FOR_CONSUMER)
    .where(given(message.c.queue_id, "of_messages"))
)
_BY_ID = _READY_MESSAGES.where(given(message.c.id, "of_message"))
_BY_CORRID = _READY_MESSAGES.where(given(message.c.corrid, "corrid")).order_by(message.c.order_key)


THIS = elements.Row(ready.c.order_key, ready)
"""Which row of `ready` it is, within a queue."""


def finding(choice: Choice, queue_id: int, messages_of: int) -> tuple[Statement, dict[str, Any], bool]:
    """Return the statement that gives the first key, its values, and whether it is a constant of this module."""
    statements, values, constant = _statements(choice, queue_id, messages_of)
    return statements[0], values, constant


def choosing(choice: Choice, queue_id: int, messages_of: int, *, locks: bool) -> tuple[Statement, dict[str, Any], bool]:
    """Return the statement that gives the number, the key and the retries of the first `most` messages.

    Where several write at the same time it `locks` them, so that nobody else takes them before the end.
    """
    statements, values, constant = _statements(choice, queue_id, messages_of)
    return statements[2 if locks else 1], values, constant


def condition_of(choice: Choice) -> Condition | None:
    """Return the condition that a choice by pattern or by condition is."""
    if choice.corrid_like is not None:
        return Like(BY_NAME["corrid"], choice.corrid_like)
    return choice.condition


_Three: TypeAlias = tuple[Statement, Statement, Statement]


def _three(keys: Select[tuple[bytes]]) -> _Three:
    several = keys.with_only_columns(*_TAKEN).limit(bindparam("most"))
    # Where several write at the same time, what somebody else is about to take is passed over.
    return keys.limit(1), several, several.with_for_update(skip_locked=True, of=ready)


_FIRST_THREE = _three(_FIRST)
_BY_ID_THREE = _three(_BY_ID)
_BY_CORRID_THREE = _three(_BY_CORRID)


def _statements(choice: Choice, queue_id: int, messages_of: int) -> tuple[_Three, dict[str, Any], bool]:
    where = {"of_messages": messages_of, "beyond": queue_id - messages_of}
    if choice.message_id is not None:
        return _BY_ID_THREE, {"of_message": choice.message_id, **where}, True
    if choice.corrid is not None:
        return _BY_CORRID_THREE, {"corrid": choice.corrid, **where}, True
    if choice.corrid_like is not None:
        return _by_pattern(choice.corrid_like, _named(choice.space)), where, False
    if choice.condition is not None:
        return _by_condition(choice.condition, _named(choice.space)), {"of_queue": queue_id}, False
    return _FIRST_THREE, {"of_queue": queue_id}, True


def _named(space: Space | None) -> Space:
    assert space is not None  # noqa: S101 - a pattern or a condition comes with its queue space
    return space


@functools.lru_cache(maxsize=64)
def _by_pattern(pattern: str, space: Space) -> _Three:
    low, high = conditions.prefix_range(pattern)
    range_ = message.c.corrid >= low if high is None else (message.c.corrid >= low) & (message.c.corrid < high)
    matches = conditions.where(Like(BY_NAME["corrid"], pattern), retries=ready.c.retries, space=space)
    return _three(_READY_MESSAGES.where(range_, matches).order_by(message.c.order_key))


@functools.lru_cache(maxsize=64)
def _by_condition(condition: Condition, space: Space) -> _Three:
    fulfilled = conditions.where(condition, retries=ready.c.retries, space=space)
    return _three(_FIRST.where(says(ready.c.message_id, fulfilled)))
