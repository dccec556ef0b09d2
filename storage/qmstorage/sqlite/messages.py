"""Messages on SQLite, in the statements that take it the least time, and whatever a damaged file has for texts.

Texts that are not UTF-8 cost the message that has them, not a whole listing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from qmcore import message_rows
from qmcore.message_rows import BODY_ID, ID, fault_in
from qmcore.space import Space
from qmcore.transitions import Arrival
from qmstorage import bodies, rows
from qmstorage.messages import Messages, Sound
from qmstorage.schema import message
from qmstorage.sql import bindparam, select
from qmstorage.sqlite.states import PUT
from qmstorage.statements import Row, given

_ITS_ID = given(message.c.id, "of_message")
_READ: Final = select(*rows.READ).where(_ITS_ID)
_READ_FACTS: Final = select(*rows.WITHOUT_BODY).where(_ITS_ID)
_AT_ONCE: Final = 32
"""How many messages one statement reads, where there are so many."""

_ONE_OF_THEM: Final = message.c.id.in_([bindparam(f"id_{place}", type_=message.c.id.type) for place in range(_AT_ONCE)])
_READ_MANY: Final = select(*rows.READ).where(_ONE_OF_THEM)
_READ_MANY_FACTS: Final = select(*rows.WITHOUT_BODY).where(_ONE_OF_THEM)


class ExclusiveMessages(Messages):
    """Messages, wherever they stand."""

    _is_strict = False

    def put(self, number: int, queue_id: int, arrival: Arrival) -> None:
        """Store a message that comes later, without a state yet; what depends on when that is comes with it."""
        times = arrival.terms.times
        moments = (None, None) if times is None else (times.available_us, times.expires_us)
        row = rows.new_row(number, queue_id, b"", 0, *moments, None, arrival)
        if arrival.size > bodies.IN_ROW_MAX:
            self.store.bodies.put(number, arrival.body)
        self.run_in_order(PUT[len(row)], *row)

    def found_rows(self, message_ids: Sequence[int], *, body: bool) -> dict[int, Row]:
        """Return the rows of those of these messages that have one, by their numbers."""
        execute, texts = self.cursor.execute, self.texts.in_order
        found: dict[int, Row] = {}
        for start in range(0, len(message_ids), _AT_ONCE):
            part = message_ids[start : start + _AT_ONCE]
            # As many values as the statement has places for.
            places = [*part, *[part[0]] * (_AT_ONCE - len(part))]
            rows_of = execute(texts[_READ_MANY if body else _READ_MANY_FACTS], places).fetchall()
            found.update((row[ID], row) for row in rows_of)
        return found

    def sound(self, found: Sequence[Row], *, body: bool) -> list[Sound] | tuple[int, str]:
        """Return what messages are, of which their numbers, keys and retries are given.

        Where one is damaged, return its number and what is wrong with it.
        """
        if len(found) >= _AT_ONCE:
            return super().sound(found, body=body)
        execute, text = self.cursor.execute, self.texts.in_order[_READ if body else _READ_FACTS]
        its = []
        for number, key, retries in found:
            row: Row | None = execute(text, (number,)).fetchone()
            if row is None or row[BODY_ID] is not None:
                row, fault = self.whole(row, retries, body=body)
            else:
                fault = fault_in(row, retries)
            if fault is not None:
                return number, fault
            its.append((key, retries, row))
        return its

    @contextlib.contextmanager
    def undecoded(self) -> Iterator[None]:
        """Read texts that are not UTF-8 as something that no rule allows, instead of refusing them."""
        connection = self.cursor.connection
        before, connection.text_factory = connection.text_factory, _text
        self._is_strict = True
        try:
            yield
        finally:
            connection.text_factory, self._is_strict = before, False

    def check(self, row: Sequence[Any], retries: object, space: Space, queue_name: str) -> None:
        """Refuse a row without its body of which no message can be made."""
        if self._is_strict:
            message_rows.check_strictly(row, space, queue_name)
        super().check(row, retries, space, queue_name)


def _text(raw: bytes) -> str | bytes:
    """Return a text, or the bytes of what is not one: no column of texts may have those."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
