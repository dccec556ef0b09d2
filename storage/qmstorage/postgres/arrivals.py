"""How messages come and go in few statements: each is a journey to the server and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ARRAY, BigInteger, Table, bindparam, delete, func, insert, select

from qmcore import message_rows, numbers
from qmcore.order import ordinary_key
from qmcore.transitions import Arrival, Guard, Route, Terms
from qmstorage import bodies, rows
from qmstorage.holding import Holdings
from qmstorage.messages import Sound
from qmstorage.positions import Position, position_of
from qmstorage.postgres.copying import can_copy, copy_rows
from qmstorage.schema import due, expiring, message, ready
from qmstorage.statements import Row, Statement
from qmstorage.states import States

_THESE = message.c.id == func.any(bindparam("ids", type_=ARRAY(BigInteger)))
_DELETE = delete(message).where(_THESE)
_READ = select(*rows.READ).where(_THESE)
_READ_FACTS = select(*rows.WITHOUT_BODY).where(_THESE)


def _given(table: Table, **other: str) -> dict[str, Any]:
    """Return the values of a row, each by the name of its column of `message`, or of another."""
    return {column.name: bindparam(other.get(column.name, column.name), type_=column.type) for column in table.columns}


def _bringing(state: Table, *, expires: bool) -> Statement:
    statement = insert(state).values(_given(state, message_id="id"))
    statement = statement.add_cte(insert(message).values(_given(message)).cte("stored"))
    if expires:
        statement = statement.add_cte(insert(expiring).values(_given(expiring, message_id="id")).cte("noted"))
    return statement


_BRING: Final = {
    (state, expires): _bringing(state, expires=expires) for state in (ready, due) for expires in (False, True)
}
_NAMES: Final = {"message_id": "id"}
"""What stands in another table, by its name in that of messages."""

_MANY: Final = 16
"""From so many messages on it takes less to copy their rows, table by table, than to insert them one by one."""


class SharedArrivals(States, Holdings):
    """How messages come to stand in a queue, and are taken out of it."""

    schema: str

    def stand(
        self,
        guard: Guard,
        route: Route,
        sequences: Sequence[int],
        arrivals: Sequence[Arrival],
        now: int,
        before: Mapping[Terms, bytes],
    ) -> None:
        """Store messages that come, and let them stand in their queue: ready or, until they are available, kept back.

        `before` is the order key of the message that those on such terms stand before.
        """
        given: dict[tuple[Table, bool], list[dict[str, Any]]] = {}
        position: Position | None = None
        last: Terms | None = None
        group_id: int | None = None
        for sequence, arrival in zip(sequences, arrivals, strict=True):
            terms, number = arrival.terms, numbers.number(guard.space_id, arrival.sequence or sequence)
            if position is None or (terms is not last and group_id is None):
                # In a queue that groups, the first one says when they are available and where they stand.
                position, last = position_of(route, terms, now, before.get(terms, b"")), terms
                group_id = number if route.grouping and len(arrivals) > 1 else None
            available, expires, head, descends = position
            is_due = available is not None and available > now
            key = ordinary_key(head, sequence, descends=descends)
            row = rows.full_row(number, route.queue_id, key, now, available, expires, group_id, arrival)
            if arrival.size > bodies.IN_ROW_MAX:
                self.put_body(number, arrival.body)
            row["retries"] = 0
            given.setdefault((due if is_due else ready, expires is not None), []).append(row)
        self.notifications.came(route.queue_id)
        for which, several in given.items():
            if len(several) < _MANY or not can_copy(self._cursor):
                self.many(_BRING[which], several)
            else:
                self._copy(*which, several)

    def found_rows(self, message_ids: Sequence[int], *, body: bool) -> dict[int, Row]:
        """Return the rows of those of these messages that have one, by their numbers."""
        return self._rows(_READ if body else _READ_FACTS, message_ids)

    def remove_rows(self, its: Sequence[Sound]) -> None:
        """Delete the rows of messages, and the bodies that are kept apart."""
        self.run(_DELETE, ids=[row[message_rows.ID] for _, _, row in its])
        self.remove_bodies(its)

    def _copy(self, state: Table, expires: bool, several: Sequence[dict[str, Any]]) -> None:
        """Store messages that come to stand in the same table."""
        for table in (message, state, *([expiring] if expires else [])):
            names = [_NAMES.get(column.name, column.name) for column in table.columns]
            copy_rows(self._cursor, table, self.schema, (tuple(row[name] for name in names) for row in several))

    def _rows(self, statement: Statement, message_ids: Sequence[int]) -> dict[int, Row]:
        return {row[message_rows.ID]: row for row in self.all(statement, ids=list(message_ids))}
