"""How messages come and go in few statements: each is a journey to the server and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ARRAY, BigInteger, Table, bindparam, delete, func, insert, select

from qmcore.damage import NO_RECORD, damaged
from qmcore.records import NewMessage
from qmstorage import bodies, rows
from qmstorage.arrivals import Arrivals
from qmstorage.postgres.copying import can_copy, copy_rows
from qmstorage.schema import due, expiring, message, ready
from qmstorage.statements import Row, Statement

_THESE = message.c.id == func.any(bindparam("ids", type_=ARRAY(BigInteger)))
_REMOVE = delete(message).where(_THESE).returning(*rows.READ)
_REMOVE_FACTS = delete(message).where(_THESE).returning(*rows.WITHOUT_BODY)
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


class SharedArrivals(Arrivals):
    """How messages come to stand in a queue, and are taken out of it."""

    schema: str

    def bring(self, arriving: Sequence[NewMessage], now_us: int) -> None:
        """Store messages and let them stand: ready or, until they are available, kept back."""
        given: dict[tuple[Table, bool], list[dict[str, Any]]] = {}
        for new in arriving:
            standing = new.standing
            is_due = standing.available_us is not None and standing.available_us > now_us
            which = due if is_due else ready, standing.expires_us is not None
            given.setdefault(which, []).append(self._row_of(new))
            self.news.came(new.queue_id)
        for which, several in given.items():
            if len(several) < _MANY or not can_copy(self._cursor):
                self.many(_BRING[which], several)
            else:
                self._copy(*which, several)

    def removed_rows(self, message_ids: Sequence[int], *, body: bool) -> dict[int, Row]:
        """Delete the rows of messages and return them by their numbers."""
        return self._rows(_REMOVE if body else _REMOVE_FACTS, message_ids)

    def stored_rows(self, message_ids: Sequence[int], *, body: bool) -> dict[int, Row]:
        """Return the rows of messages by their numbers."""
        return self._rows(_READ if body else _READ_FACTS, message_ids)

    def _copy(self, state: Table, expires: bool, several: Sequence[dict[str, Any]]) -> None:
        """Store messages that come to stand in the same table."""
        for table in (message, state, *([expiring] if expires else [])):
            names = [_NAMES.get(column.name, column.name) for column in table.columns]
            copy_rows(self._cursor, table, self.schema, (tuple(row[name] for name in names) for row in several))

    def _rows(self, statement: Statement, message_ids: Sequence[int]) -> dict[int, Row]:
        found = self.all(statement, ids=list(message_ids))
        if len(found) < len(message_ids):
            raise damaged(_lacking(message_ids, found)[0], NO_RECORD)
        return {row[rows.ID]: row for row in found}

    def _row_of(self, new: NewMessage) -> dict[str, Any]:
        row = rows.to_row(new)
        if new.size > bodies.IN_ROW_MAX:
            self.put_body(new.id, new.body)
            row["body_id"], row["body"] = new.id, None
        row["retries"] = 0
        return row


def _lacking(message_ids: Iterable[int], found: Iterable[Row]) -> list[int]:
    return sorted(set(message_ids) - {row[rows.ID] for row in found})
