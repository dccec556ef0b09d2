"""Whether there is room for what arrives: the limits of a queue space, each named with its use where it is reached."""

from __future__ import annotations

from qmcore.definitions import Definitions
from qmcore.errors import NoSpaceError, Resource
from qmcore.port import Unit
from qmcore.records import Use
from qmcore.store import Store


def refuse_overflow(unit: Unit, known: Definitions, store: Store, after: Use, more: Use) -> None:
    """Refuse an arrival that the queue space has no room for.

    `after` is what the store holds of the queue space with the arrival, `more` the arrival alone.
    """
    limits = known.space.definition
    messages = after.messages + _elsewhere(unit, known, store)
    if messages > limits.messages:
        raise NoSpaceError(
            _name_of(known),
            Resource.MESSAGES,
            used=messages - more.messages,
            limit=limits.messages,
            wanted=more.messages,
        )
    if store is unit:
        if after.pages > limits.capacity:
            raise NoSpaceError(
                _name_of(known), Resource.PAGES, used=after.pages - more.pages, limit=limits.capacity, wanted=more.pages
            )
    elif after.pages * known.page_size > limits.memory:
        raise NoSpaceError(
            _name_of(known),
            Resource.MEMORY,
            used=(after.pages - more.pages) * known.page_size,
            limit=limits.memory,
            wanted=more.pages * known.page_size,
        )


def _name_of(known: Definitions) -> str:
    return f"queue space {known.space.name!r}"


def _elsewhere(unit: Unit, known: Definitions, store: Store) -> int:
    """Return how many messages the other store holds: their number is limited together."""
    space_id = known.space.id
    return (unit.memory_level(space_id) if store is unit else unit.level(space_id)).messages
