"""How messages come to stand in a queue, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.records import NewMessage, Place
from qmstorage.holding import Holdings
from qmstorage.states import States


class Arrivals(States, Holdings):
    """How messages come to stand in a queue."""

    def bring(self, arriving: Sequence[NewMessage], now_us: int) -> None:
        """Store messages and let them stand: ready or, until they are available, kept back."""
        for new in arriving:
            standing = new.standing
            place = Place(new.id, new.queue_id, standing.order_key, 0)
            self.put(new)
            if standing.available_us is not None and standing.available_us > now_us:
                self.make_due(place, standing.available_us)
            else:
                self.make_ready(place)
            if standing.expires_us is not None:
                self.make_expiring(new.queue_id, new.id, standing.expires_us)
