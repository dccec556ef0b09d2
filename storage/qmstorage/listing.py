"""Listing the messages of a queue, in SQL, a part at a time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from qmcore import json_values, message_rows
from qmcore.condition import Condition
from qmcore.damage import NO_RECORD, damaged
from qmcore.message import PARKED_UNTIL, MessageInfo, State
from qmcore.queue import Queue
from qmcore.records import Cursor, Part, Role
from qmcore.records import Listing as Listed
from qmcore.space import Space
from qmstorage import conditions, rows
from qmstorage.schema import due, held, message, ready
from qmstorage.sql import ColumnElement, Select, Table, bindparam, elements, literal, null, or_, select, tuple_
from qmstorage.statements import given
from qmstorage.states import NOT_PARKED, PARKED
from qmstorage.unit_part import StorePart


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """How messages in one state are listed.

    A statement, one that also returns messages without a record, one for their cursors alone, the columns of their
    retries and of when they become available, and a cursor before the first.
    """

    statement: Select[Any]
    whole: Select[Any]
    cursors: Select[Any]
    retries: ColumnElement[int]
    until: ColumnElement[int] | None
    start: Cursor


def _form(
    state: Table,
    until: ColumnElement[Any],
    first: ColumnElement[Any],
    second: ColumnElement[Any],
    start: Cursor,
    *only: ColumnElement[bool],
) -> _Form:
    after = tuple_(first, second) > tuple_(bindparam("first", type_=first.type), bindparam("second", type_=second.type))
    cursors = (
        select(first, second)
        .where(given(state.c.queue_id, "of_queue"), after, *only)
        # The first column orders ready messages completely, and the index does not order by both.
        .order_by(first, *(() if state is ready else (second,)))
        .limit(bindparam("most"))
    )
    wanted = cursors.with_only_columns(state.c.retries, until, first, second, *rows.FACTS)
    statement, whole = (
        wanted.join_from(state, message, elements.Named(message.c.id, state.c.message_id), isouter=outer)
        for outer in (False, True)
    )
    return _Form(statement, whole, cursors, state.c.retries, until if state is due else None, start)


_FORMS = {
    State.READY: _form(ready, null(), ready.c.order_key, ready.c.message_id, (b"", 0)),
    State.DELAYED: _form(due, due.c.available_at, due.c.available_at, due.c.message_id, (-(2**63), 0), NOT_PARKED),
    State.PARKED: _form(due, due.c.available_at, due.c.available_at, due.c.message_id, (PARKED_UNTIL, 0), PARKED),
    State.HELD: _form(held, null(), held.c.trans_id, held.c.message_id, (0, 0), held.c.role != int(Role.ENQUEUED)),
}
_PARKED_OF_GROUP = (
    select(due.c.message_id)
    .join_from(message, due, elements.Named(due.c.message_id, message.c.id))
    .where(given(message.c.queue_id, "of_queue"), given(message.c.group_id, "of_group"), PARKED)
)


class Listing(StorePart):
    """The messages of a queue, a part at a time."""

    def messages(
        self,
        space: Space,
        in_queue: Queue,
        state: State,
        after: Cursor | None,
        limit: int,
        condition: Condition | None = None,
    ) -> Listed:
        """Return at most `limit` messages of the queue in one state, those after the cursor, each with its cursor."""
        form = _FORMS[state]
        first, second = after or form.start
        values = {"of_queue": in_queue.id, "first": first, "second": second, "most": limit}
        listed: Listed = Part()
        while True:
            if condition is None:
                found = self.all(form.whole, **values)
            else:
                found = self.built(_chosen(form, condition, space), **values)
            listed += [
                ((at, then), info)
                for retries, until, at, then, *row in found
                if (
                    info := self.store.messages.info(
                        row, space, in_queue.name, number=then, retries=retries, state=state, until=until
                    )
                )
            ]
            listed.left_out += len(found) - len(listed)
            if listed or not found:
                return listed
            # None of them can be read; an empty part would be the end.
            values["first"], values["second"] = found[-1][2:4]

    def cursors(
        self,
        space: Space,
        in_queue: Queue,
        state: State,
        after: Cursor | None,
        limit: int,
        condition: Condition | None = None,
    ) -> list[Cursor]:
        """Return the cursors of what `messages` returns; the second part of each is the number of the message."""
        form = _FORMS[state]
        first, second = after or form.start
        values = {"of_queue": in_queue.id, "first": first, "second": second, "most": limit}
        if condition is None:
            return [(at, then) for at, then in self.all(form.cursors, **values)]
        return [(at, then) for at, then in self.built(_cursors(form, condition, space), **values)]

    def with_parked_of_groups(self, queue_id: int, message_ids: Sequence[int]) -> list[int]:
        """Return these messages, and after each the parked ones of its group."""
        found: dict[int, None] = {}
        groups: set[int] = set()
        for number in message_ids:
            found[number] = None
            group = self.store.messages.group_of(number)
            if group is not None and group not in groups:
                groups.add(group)
                found |= dict.fromkeys(
                    number for (number,) in self.all(_PARKED_OF_GROUP, of_queue=queue_id, of_group=group)
                )
        return list(found)

    def described(self, space: Space, queue_name: str, message_id: int) -> tuple[MessageInfo, bytes | None]:
        """Return what can be asked of a message, wherever it stands: all about it, and its body if that is read."""
        rows_of = self.store.messages.found_rows([message_id], body=False)
        if message_id not in rows_of:
            raise damaged(message_id, NO_RECORD)
        row = rows_of[message_id]
        self.store.messages.check(row, 0, space, queue_name)
        info = message_rows.message_of(MessageInfo, row, space, queue_name, self.store.delivery, 0, State.HELD)
        if info.type != json_values.TYPE or info.size > json_values.READ_MAX:
            return info, None
        return info, self.store.messages.stored(space, queue_name, message_id, State.HELD).body


@functools.lru_cache(maxsize=64)
def _chosen(form: _Form, condition: Condition, space: Space) -> Select[Any]:
    """Return the statement for messages that a condition selects, and those without a record, which it cannot test."""
    if conditions.is_of_few(condition):
        return _restricted(form, condition, space)
    return form.whole.where(or_(_holds(form, condition, space), message.c.id.is_(None)))


def _holds(form: _Form, condition: Condition, space: Space) -> ColumnElement[bool]:
    return conditions.where(condition, retries=form.retries, space=space, available_at=form.until)


@functools.lru_cache(maxsize=64)
def _restricted(form: _Form, condition: Condition, space: Space) -> Select[Any]:
    statement = form.statement.where(_holds(form, condition, space))
    named = conditions.named(condition, space)
    if not named or form is not _FORMS[State.READY]:
        return statement
    # The message itself has its position, so that no other has to be read.
    places = [
        select(message.c.order_key).where(message.c.id == literal(number)).correlate(None).scalar_subquery()
        for number in named
    ]
    if len(places) == 1:
        return statement.where(ready.c.order_key == places[0])
    return statement.where(ready.c.order_key.op("IN", is_comparison=True)(tuple_(*places)))


@functools.lru_cache(maxsize=64)
def _cursors(form: _Form, condition: Condition, space: Space) -> Select[Any]:
    return _restricted(form, condition, space).with_only_columns(*form.cursors.selected_columns)
