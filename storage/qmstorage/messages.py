"""Messages themselves in SQL: put, read, removed, moved."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from qmcore import message_rows, numbers, records
from qmcore.damage import NO_RECORD, damaged
from qmcore.errors import SystemFailureError
from qmcore.message import Message, MessageInfo, State
from qmcore.queue import Delivery
from qmcore.records import Routing
from qmcore.row_rules import RULES
from qmcore.space import Space
from qmcore.transitions import Arrival, MoveOrigin
from qmstorage import bodies, rows
from qmstorage.schema import history, message, ready, share, spent
from qmstorage.sql import bindparam, exists, func, select, tuple_, update
from qmstorage.statements import Row, Statement, given, insert_into
from qmstorage.unit_part import StorePart

logger = logging.getLogger("qmadmin.storage")

Sound: TypeAlias = tuple[bytes, int, Row]
"""A message that can be read: its order key, its retries and its row."""

_PUT = insert_into(message)
_ITS_ID = given(message.c.id, "of_message")
_READ = select(*rows.READ).where(_ITS_ID)
_READ_FACTS = select(*rows.WITHOUT_BODY).where(_ITS_ID)
_DISCARD = rows.FORGET.returning(message.c.pages, message.c.size, message.c.body_id)
_PEEK = select(ready.c.message_id, ready.c.retries).where(
    given(ready.c.queue_id, "of_queue"), given(ready.c.order_key, "of_key")
)
_ENDED = select(func.count()).where(spent.c.message_id == share.c.message_id).scalar_subquery()
_KEY_OF = select(message.c.order_key).where(
    _ITS_ID,
    given(message.c.queue_id, "of_queue"),
    ~exists().where(history.c.message_id == message.c.id),
    # Nobody has a place of it any more.
    ~exists().where(share.c.message_id == message.c.id, share.c.places <= _ENDED),
)
_KEY_IN_MEMORY = select(message.c.order_key).where(_ITS_ID, given(message.c.queue_id, "of_queue"))
_AT_ONCE = 8
_PLACES = [f"number_{at}" for at in range(_AT_ONCE)]
_AMONG = select(message.c.id).where(
    # Not in_(), whose parameters are only known when a statement runs.
    message.c.id.op("IN", is_comparison=True)(tuple_(*(bindparam(name, type_=message.c.id.type) for name in _PLACES))),
    given(message.c.queue_id, "of_queue"),
)
_GROUP_OF = select(message.c.group_id).where(_ITS_ID)
_ROUTING_NAMES = ("priority", "error_queue", "expires_before", "origin_reason")
_ROUTING = select(*(message.c[name] for name in _ROUTING_NAMES)).where(_ITS_ID)
_SETTLE = (
    update(message)
    .where(_ITS_ID)
    .values(
        order_key=bindparam("new_key"),
        enqueued_at=bindparam("enqueued"),
        available_at=bindparam("available"),
        expires_at=bindparam("expires"),
        group_id=bindparam("new_group"),
    )
)
_MOVE = (
    update(message)
    .where(_ITS_ID)
    .values(
        id=bindparam("new_id"),
        queue_id=bindparam("to_queue"),
        order_key=bindparam("new_key"),
        available_at=None,
        expires_at=None,
        expires_before=bindparam("before"),
        group_id=None,
        # What release 0.1.0 has moved knows the last of its identifiers only.
        first_msgid=func.coalesce(message.c.first_msgid, message.c.origin_msgid, bindparam("from_msgid")),
        origin_queue=bindparam("from_queue"),
        origin_msgid=bindparam("from_msgid"),
        origin_reason=bindparam("reason"),
        origin_error=bindparam("error"),
        moved_at=bindparam("at"),
    )
)
_NOTE_ERROR = update(message).where(_ITS_ID).values(origin_error=bindparam("error"))
_CHARGED = select(message.c.id, message.c.pages, message.c.size, message.c.expires_at).where(
    given(message.c.id, "of_message")
)
_AMEND = (
    update(message)
    .where(given(message.c.id, "of_message"))
    .values(
        order_key=bindparam("new_key"),
        priority=bindparam("new_priority"),
        available_at=bindparam("available"),
        expires_at=bindparam("expires"),
    )
)


class Messages(StorePart):
    """Messages, wherever they stand."""

    def put(self, number: int, queue_id: int, arrival: Arrival) -> None:
        """Store a message that comes later, without a state yet; what depends on when that is comes with it."""
        times = arrival.terms.times
        moments = (None, None) if times is None else (times.available_us, times.expires_us)
        row = rows.full_row(number, queue_id, b"", 0, *moments, None, arrival)
        if arrival.size > bodies.IN_ROW_MAX:
            self.store.bodies.put(number, arrival.body)
        self.cursor.execute(self.texts[_PUT][0], row)

    def settle(self, message_id: int, standing: records.Standing) -> None:
        """Give a spilled message the order key and the times that the commit gives it, without a state yet."""
        self.run(
            _SETTLE,
            of_message=message_id,
            new_key=standing.order_key,
            enqueued=standing.enqueued_us,
            available=standing.available_us,
            expires=standing.expires_us,
            new_group=standing.group_id,
        )

    def key_of(self, queue_id: int, message_id: int) -> bytes | None:
        """Return the order key of a message that is still to be consumed from the queue."""
        # Non-persistent messages have no history.
        statement = _KEY_OF if self.store.delivery is Delivery.PERSIST else _KEY_IN_MEMORY
        row = self.one(statement, of_message=message_id, of_queue=queue_id)
        # One that is to be enqueued by a commit has no place yet.
        if row is None or not row[0]:
            return None
        if not isinstance(row[0], bytes):
            raise damaged(message_id, f"its field order_key is not {RULES['order_key'].what}")
        return row[0]

    def among(self, queue_id: int, message_ids: Sequence[int]) -> list[int]:
        """Return which of these messages are stored and belong to the queue, in whatever state."""
        found: list[int] = []
        for start in range(0, len(message_ids), _AT_ONCE):
            part = list(message_ids[start : start + _AT_ONCE])
            part += part[:1] * (_AT_ONCE - len(part))
            found += (row[0] for row in self.all(_AMONG, of_queue=queue_id, **dict(zip(_PLACES, part, strict=True))))
        return found

    def peek(self, space: Space, queue_name: str, queue_id: int, order_key: bytes) -> Message | None:
        """Return the ready message with that order key, which stays where it is."""
        row = self.one(_PEEK, of_queue=queue_id, of_key=order_key)
        if row is None:
            return None
        return self.stored(space, queue_name, row[0], State.READY, row[1])

    def stored(self, space: Space, queue_name: str, message_id: int, state: State, retries: int = 0) -> Message:
        """Return a message with its body, wherever it stands."""
        return self._message(self._row(_READ, message_id), True, space, queue_name, retries, state)

    def found_rows(self, message_ids: Sequence[int], *, body: bool) -> dict[int, Row]:
        """Return the rows of those of these messages that have one, by their numbers."""
        statement = _READ if body else _READ_FACTS
        return {row[message_rows.ID]: row for each in message_ids for row in self.all(statement, of_message=each)}

    def sound(self, found: Sequence[Row], *, body: bool) -> list[Sound] | tuple[int, str]:
        """Return what messages are, of which their numbers, keys and retries are given.

        Where one is damaged, return its number and what is wrong with it.
        """
        rows_of = self.found_rows([row[0] for row in found], body=body)
        its = []
        for number, key, retries in found:
            row, fault = self.whole(rows_of.get(number), retries, body=body)
            if fault is not None:
                return number, fault
            its.append((key, retries, row))
        return its

    def whole(self, row: Row | None, retries: object, *, body: bool) -> tuple[Row, str | None]:
        """Return a row with its body, where that is wanted and kept apart, and what is wrong with the message."""
        if row is None:
            return (), NO_RECORD
        if body and row[message_rows.BODY_ID] is not None:
            # How much is to be read is known only where the record is sound.
            fault = message_rows.fault_in(row[: message_rows.BODY_ID], retries)
            if fault is not None:
                return row, fault
            content = self.store.bodies.read(row[message_rows.BODY_ID], row[message_rows.SIZE])
            row = *row[: message_rows.BODY], content
        return row, message_rows.fault_in(row, retries)

    def remove_bodies(self, its: Sequence[Sound]) -> None:
        """Delete the bodies of messages that are kept apart."""
        for _, _, row in its:
            if row[message_rows.BODY_ID] is not None:
                self.store.bodies.discard(row[message_rows.BODY_ID])

    def info(
        self,
        row: Sequence[Any],
        space: Space,
        queue_name: str,
        *,
        number: int,
        retries: int,
        state: State,
        until: int | None,
    ) -> MessageInfo | None:
        """Return a message that is listed, by its row without its body; None, and a line in the log, if damaged.

        The row has nothing in it where there is no record.
        """
        try:
            if row[message_rows.ID] is None:
                raise damaged(number, NO_RECORD, msgid=space.msgid(numbers.sequence(number)), queue=queue_name)
            self.check(row, retries, space, queue_name)
        except SystemFailureError as error:
            logger.warning("%s; it is left out of a listing", error)
            return None
        info = message_rows.message_of(MessageInfo, row, space, queue_name, self.store.delivery, retries, state)
        if until is not None:
            info.available_us = until
        return info

    def undecoded(self) -> AbstractContextManager[None]:
        """Read texts that cannot be decoded as something that no rule allows, where a store would refuse them."""
        return contextlib.nullcontext()

    def check(self, row: Sequence[Any], retries: object, space: Space, queue_name: str) -> None:
        """Refuse a row without its body of which no message can be made."""
        message_rows.check(row, retries, space, queue_name)

    def group_of(self, message_id: int) -> int | None:
        """Return the group that a message belongs to; None where it has none, or is gone by now."""
        found = self.one(_GROUP_OF, of_message=message_id)
        return None if found is None else found[0]

    def routing(self, message_id: int) -> Routing:
        """Return what decides where a message goes; SystemFailureError if it is not stored, or that is damaged."""
        found = self._row(_ROUTING, message_id)
        for name, value in zip(_ROUTING_NAMES, found, strict=True):
            if not (value is None or RULES[name].holds(value)):
                raise damaged(message_id, f"its field {name} is not {RULES[name].what}")
        return Routing(*found)

    def discard(self, message_id: int) -> tuple[int, int]:
        """Delete a message, and return its pages and its size."""
        pages, size, body_id = self._row(_DISCARD, message_id)
        if body_id is not None:
            self.store.bodies.discard(body_id)
        return pages, size

    def discard_all(self, message_ids: Sequence[int]) -> int:
        """Delete messages, and return the pages of those that have a record."""
        found = [row for number in message_ids for row in self.all(_DISCARD, of_message=number)]
        for _, _, body_id in found:
            if body_id is not None:
                self.store.bodies.discard(body_id)
        return sum(pages for pages, _, _ in found)

    def amend(
        self, message_id: int, order_key: bytes, priority: int, available_us: int | None, expires_us: int | None
    ) -> None:
        """Give a message that stays stored another order key, priority and times."""
        self.run(
            _AMEND,
            of_message=message_id,
            new_key=order_key,
            new_priority=priority,
            available=available_us,
            expires=expires_us,
        )

    def note_error(self, message_id: int, error: str) -> None:
        """Keep the last error of a message that stays stored, or why it was parked, with it."""
        self.run(_NOTE_ERROR, of_message=message_id, error=error or None)

    def charged(self, message_ids: Sequence[int]) -> list[Row]:
        """Return the number, the pages, the size and the expiry of those of these messages that have a record."""
        return [row for number in message_ids for row in self.all(_CHARGED, of_message=number)]

    def move(self, message_id: int, to: tuple[int, int, bytes], origin: MoveOrigin, now_us: int) -> None:
        """Give a message another number, queue and order key; it is available, and does not expire.

        It remembers the expiry that it had before, and the first of its identifiers.
        """
        new_id, queue_id, order_key = to
        self.run(
            _MOVE,
            of_message=message_id,
            new_id=new_id,
            to_queue=queue_id,
            new_key=order_key,
            from_queue=origin.queue,
            from_msgid=origin.msgid,
            reason=origin.reason,
            error=origin.error or None,
            at=now_us,
            before=origin.expires_before_us,
        )

    def _row(self, statement: Statement, message_id: int) -> Row:
        found = self.all(statement, of_message=message_id)
        if not found:
            raise damaged(message_id, NO_RECORD)
        return found[0]

    def _message(
        self, row: Row, body: bool, space: Space, queue_name: str, retries: int, state: State = State.HELD
    ) -> Message:
        row, fault = self.whole(row if body else row[: message_rows.BODY], retries, body=body)
        if fault is not None:
            raise message_rows.unreadable(row, fault, space, queue_name)
        return message_rows.message_of(Message, row, space, queue_name, self.store.delivery, retries, state)
