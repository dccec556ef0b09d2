"""Whether there is room for what arrives: the limits of a queue space, each named with its use where it is reached."""

from __future__ import annotations

from typing import Final, NamedTuple

from qmcore.definitions import CHANGES, Definitions
from qmcore.errors import InvalidArgumentError, NoSpaceError, QueueError, Resource
from qmcore.port import Unit
from qmcore.records import Use
from qmcore.store import Store
from qmcore.transitions import Guard

_RECENT_SECONDS: Final = 0.1
"""How old a level may be that is relied on: what other processes have changed since is not seen."""

_AMPLE: Final = 1000
"""Messages, and pages, that have to be free besides, so that it does not matter if others have taken some meanwhile."""


class RecentLevel(NamedTuple):
    """How much a queue space held on disk, when by the monotonic clock, and after which change of definitions.

    For a moment it need not be looked at again. The commit holds the limits in any case: what is enqueued in that
    moment may be refused then instead of at once. What this process has changed itself is seen at once.
    """

    use: Use
    at: float
    behind: int

    def has_room(self, messages: int, pages: int, guard: Guard, moment: float) -> bool:
        """Return whether it can be relied on that there is room for so much more, as the definitions were then."""
        use, at, behind = self
        return (
            behind == CHANGES.last
            and 0 <= moment - at < _RECENT_SECONDS
            and use.messages + messages + _AMPLE <= guard.messages
            and use.pages + pages + _AMPLE <= guard.pages
        )


def refuse_overflow(unit: Unit, known: Definitions, store: Store, after: Use, more: Use) -> None:
    """Refuse an arrival that the queue space has no room for.

    `after` is what the store holds of the queue space with the arrival, `more` the arrival alone.
    """
    limits = known.space.definition
    messages = after.messages + _elsewhere(unit, known, store)
    if messages > limits.messages:
        raise overflow(known, Resource.MESSAGES, messages - more.messages, limits.messages, more.messages)
    if store is unit:
        if after.pages > limits.capacity:
            raise overflow(known, Resource.PAGES, after.pages - more.pages, limits.capacity, more.pages)
    elif after.pages * known.page_size > limits.memory:
        raise overflow(known, Resource.MEMORY, after.pages - more.pages, limits.memory, more.pages)


def overflow(known: Definitions, resource: Resource, used: int, limit: int, wanted: int) -> NoSpaceError:
    """Return the diagnostic for a limit of a queue space that is reached; of memory, use and wants are in pages."""
    if resource is Resource.MEMORY:
        used, wanted = used * known.page_size, wanted * known.page_size
    return NoSpaceError(f"queue space {known.space.name!r}", resource, used=used, limit=limit, wanted=wanted)


def no_memory(known: Definitions) -> QueueError:
    """Return the diagnostic for a non-persistent message that has no memory to be kept in."""
    if known.space.definition.memory:
        return InvalidArgumentError(
            f"queue space {known.space.name!r} keeps non-persistent messages in a memory of its own, which cannot"
            f" take part in a transaction of the application",
            hint="Send it as a persistent message, or outside of that transaction.",
            space=known.space.name,
        )
    return NoSpaceError(f"queue space {known.space.name!r}", Resource.MEMORY, used=0, limit=0, wanted=known.page_size)


def _elsewhere(unit: Unit, known: Definitions, store: Store) -> int:
    """Return how many messages the other store holds: their number is limited together."""
    space_id = known.space.id
    return (unit.memory_level(space_id) if store is unit else unit.counters.level(space_id)).messages
