"""Which messages a message identifier is of.

That is told by arithmetic. Only where messages with one identifier came with several imports may it be one of several
numbers; then those are meant that stand where the identifier is used.
"""

from __future__ import annotations

from qmcore import numbers
from qmcore.acts.stores import stores
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.space import Space


def numbers_of(unit: Unit, space: Space, queue: Queue, msgid: str) -> list[int]:
    """Return the numbers of the messages of a queue that an identifier can be of, the newest first.

    Where it can be of one only, nobody looks whether that is there. Raises BadMessageIdError for what is no identifier.
    """
    found = [numbers.number(space.id, sequence) for sequence in space.sequences_of(msgid)]
    if len(found) < 2:
        return found
    there = {number for store in stores(unit, space.id) for number in store.messages.among(queue.messages_of, found)}
    return [number for number in found if number in there]
