"""How a transaction leaves to the store what it enqueues and its process does not keep.

The messages stand there as the transaction's own: nobody sees them, the room that they take is kept for them, and
they go when the transaction ends without a commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from qmcore import numbers
from qmcore.acts.enqueue import Accepted
from qmcore.acts.stores import store_for
from qmcore.definitions import OpenSpace
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import NewMessage, Spilled, Standing


def spill(unit: Unit, opened: OpenSpace, transaction_id: int, items: Sequence[Accepted]) -> None:
    """Store messages that the transaction enqueues when it commits."""
    known = opened.definitions(unit)
    for item in items:
        store, outgoing = store_for(unit, known, item.delivery), item.outgoing
        store.charge(known.space.id, messages=1, pages=outgoing.pages, size=outgoing.size)
        queue = known.queue(outgoing.queue)
        store.spill(
            transaction_id,
            _as_new(opened, queue, item),
            item.place,
            delay=outgoing.control.delay,
            lifetime=_lifetime(item),
        )


def _as_new(opened: OpenSpace, queue: Queue, item: Accepted) -> NewMessage:
    outgoing = item.outgoing
    return NewMessage(
        id=numbers.number(opened.space.id, item.sequence or 0),
        queue_id=queue.id,
        # What depends on the moment of the commit comes with it.
        standing=Standing(b"", 0, outgoing.control.available_us, outgoing.control.expires_us),
        pages=outgoing.pages,
        size=outgoing.size,
        headers=outgoing.headers,
        control=outgoing.control,
        body=outgoing.body,
    )


def _lifetime(item: Accepted) -> int | None:
    """Return how long the message lives from the commit on; None where it has a time of expiry, or none."""
    control = item.outgoing.control
    if control.lifetime is not None:
        return control.lifetime
    return None if control.expires_us is not None or control.never_expires else Spilled.DEFAULT
