"""Where messages stand on SQLite, in the statements that take it the least time.

There is one writer at a time, so that what was looked up is still so when it is changed. RETURNING takes longer than a
statement more; values that are given by name, and columns that are given nothing, take longer than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, Final

from qmcore import numbers
from qmcore.order import LAST, SEQUENCE_TOP
from qmcore.transitions import Arrival, Guard, Route, Terms
from qmstorage import bodies, rows
from qmstorage.rows import ALL, PLAIN, USUAL, Position, new_row, position_of
from qmstorage.schema import due, expiring, message, ready
from qmstorage.sql import bindparam, insert, select
from qmstorage.statements import Row, Statement, given, insert_into
from qmstorage.states import PENDING_WORK, States

MAKE_READY: Final = insert_into(ready)
_MAKE_DUE: Final = insert_into(due)
_MAKE_EXPIRING: Final = insert_into(expiring)
_OF_QUEUE = given(ready.c.queue_id, "of_queue")
_STANDS: Final = (ready.c.message_id, ready.c.order_key, ready.c.retries)


def _in_order(columns: Sequence[Any]) -> Statement:
    """Return the query for messages in their order, and where they stand. As many are read as are fetched."""
    with_message = select(*_STANDS, *columns).select_from(ready.outerjoin(message, message.c.id == ready.c.message_id))
    return with_message.where(_OF_QUEUE).order_by(ready.c.order_key)


IN_ORDER: Final = _in_order(rows.READ)
FACTS_IN_ORDER: Final = _in_order(rows.WITHOUT_BODY)


def _putting(columns: tuple[str, ...]) -> Statement:
    return insert(message).values({name: bindparam(name) for name in columns})


PUT: Final = {len(columns): _putting(columns) for columns in (PLAIN, USUAL, ALL)}
"""What stores a message, by how many columns its row has."""

_PUT_PLAIN: Final = PUT[len(PLAIN)]

_TERMS_OF: Final = attrgetter("terms")
_IN_ROW: Final = bodies.IN_ROW_MAX
_NOWHERE: Final[Mapping[Terms, bytes]] = {}


class ExclusiveStates(States):
    """Where messages stand while no transaction holds them."""

    def stand(
        self,
        guard: Guard,
        route: Route,
        sequences: Sequence[int],
        arrivals: Sequence[Arrival],
        now: int,
        before: Mapping[Terms, bytes] = _NOWHERE,
    ) -> None:
        """Store messages that come, and let them stand in their queue: ready or, until they are available, kept back.

        `before` is the order key of the message that those on such terms stand before.
        """
        if len(arrivals) > 1:
            self._stand_together(guard, route, sequences, arrivals, now, before)
            return
        (arrival,), (sequence,), queue_id = arrivals, sequences, route.queue_id
        body, size, pages, terms, given = arrival
        _, kind, priority, head, descends, times, place, _, options = terms
        available = expires = None
        if head is None or times or place or before or route.lifetime is not None:
            its = before.get(terms, b"") if before else b""
            available, expires, head, descends = position_of(route, terms, now, its)
        number = guard.space_id << numbers.SEQUENCE_BITS | (given or sequence)
        key = head + (SEQUENCE_TOP - sequence if descends else sequence).to_bytes(8) + LAST
        execute, texts, notifications = self.cursor.execute, self.texts.in_order, self.notifications
        if options or available is not None or expires is not None or size > _IN_ROW:
            if size > _IN_ROW:
                self.store.bodies.put(number, body)
            row = new_row(number, queue_id, key, now, available, expires, None, arrival)
            execute(texts[PUT[len(row)]], row)
        else:
            # As `new_row` would give it.
            row = number, queue_id, key, priority, now, pages, size, 0, 0, kind, body
            execute(texts[_PUT_PLAIN], row)
        if route.consumers:
            _stand_for(self, route.consumers, [number], [key], available if (available or 0) > now else None)
        elif available is not None and available > now:
            execute(texts[_MAKE_DUE], (queue_id, available, number, key, 0, 0))
            # Each who waits sleeps until the next is due.
            notifications.changed(queue_id)
        else:
            execute(texts[MAKE_READY], (queue_id, key, number, 0))
            notifications.came(queue_id)
        if expires is not None:
            execute(texts[_MAKE_EXPIRING], (queue_id, expires, number))

    def _stand_together(
        self,
        guard: Guard,
        route: Route,
        sequences: Sequence[int],
        arrivals: Sequence[Arrival],
        now: int,
        before: Mapping[Terms, bytes],
    ) -> None:
        done, base, group_id, at = 0, guard.space_id << numbers.SEQUENCE_BITS, None, None
        if route.grouping:
            group_id = base | (arrivals[0].sequence or sequences[0])
        for terms, run in groupby(arrivals, _TERMS_OF):
            its = list(run)
            theirs = sequences[done : done + len(its)]
            done += len(its)
            if len(its) == 1 and group_id is None:
                self.stand(guard, route, theirs, its, now, before)
                continue
            if at is None or group_id is None:
                # In a queue that groups, the first one says when they are available and where they stand.
                at = position_of(route, terms, now, before.get(terms, b"") if before else b"")
            self._stand_alike(route, base, theirs, its, at, group_id, now)

    def _stand_alike(
        self,
        route: Route,
        base: int,
        sequences: Sequence[int],
        arrivals: Sequence[Arrival],
        position: Position,
        group_id: int | None,
        now: int,
    ) -> None:
        """Store messages that come on the same terms, and let them stand."""
        queue_id, (available, expires, head, descends) = route.queue_id, position
        contents, sizes, pages, (terms, *_), given = zip(*arrivals, strict=True)
        ids = [base | number for number in (given if given[0] else sequences)]
        keys = [head + (SEQUENCE_TOP - sequence if descends else sequence).to_bytes(8) + LAST for sequence in sequences]
        asks = terms.options or available is not None or expires is not None or group_id is not None
        write, texts = self.cursor.executemany, self.texts.in_order
        if asks or max(sizes) > _IN_ROW:
            for number, arrival in zip(ids, arrivals, strict=True):
                if arrival.size > _IN_ROW:
                    self.store.bodies.put(number, arrival.body)
            times = available, expires, group_id
            rows_of = [
                new_row(number, queue_id, key, now, *times, arrival)
                for number, key, arrival in zip(ids, keys, arrivals, strict=True)
            ]
            for width, alike in groupby(sorted(rows_of, key=len), len):
                write(texts[PUT[width]], alike)
        else:
            same = repeat(terms.priority), repeat(now)
            others = repeat(0), repeat(0), repeat(terms.type)
            write(texts[_PUT_PLAIN], zip(ids, repeat(queue_id), keys, *same, pages, sizes, *others, contents))
        if route.consumers:
            _stand_for(self, route.consumers, ids, keys, available if (available or 0) > now else None)
        elif available is not None and available > now:
            write(texts[_MAKE_DUE], zip(repeat(queue_id), repeat(available), ids, keys, repeat(0), repeat(0)))
            self.notifications.changed(queue_id)
        else:
            write(texts[MAKE_READY], zip(repeat(queue_id), keys, ids, repeat(0)))
            self.notifications.came(queue_id, len(ids))
        if expires is not None:
            write(texts[_MAKE_EXPIRING], zip(repeat(queue_id), repeat(expires), ids))

    def make_ready(self, queue_id: int, its: Sequence[Row]) -> None:
        """Let messages of a queue be dequeued, of each its number, its key and its retries; who waits there is told."""
        text = self.texts.in_order[MAKE_READY]
        self.cursor.executemany(text, [(queue_id, key, number, retries) for number, key, retries in its])
        if its:
            self.notifications.came(queue_id, len(its))

    def pending_work(self, queue_id: int, messages_of: int, now_us: int) -> tuple[bool, bool]:
        """Return whether the queue has messages that became available, and ones that expired."""
        # In the order of its text: both parts ask for a queue and for the time.
        available, expired = self.run_in_order(PENDING_WORK, queue_id, now_us, messages_of, now_us).fetchone()
        return bool(available), bool(expired)


def _stand_for(
    states: ExclusiveStates, consumers: Sequence[int], ids: Sequence[int], keys: Sequence[bytes], until: int | None
) -> None:
    """Let messages of a queue for several stand for each of its consumers, kept back until a time or ready."""
    write, texts = states.cursor.executemany, states.texts.in_order
    places = list(zip(ids, keys, strict=True))
    if until is None:
        write(texts[MAKE_READY], [(each, key, number, 0) for each in consumers for number, key in places])
    else:
        write(texts[_MAKE_DUE], [(each, until, number, key, 0, 0) for each in consumers for number, key in places])
    for each in consumers:
        if until is None:
            states.notifications.came(each, len(ids))
        else:
            states.notifications.changed(each)
    states.store.shares.add(ids, len(consumers))
