"""Reading messages in bulk, in SQL: the rows of an export, in runs of consecutive messages."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final

from qmcore import numbers
from qmcore.bulk_rows import BODY, BYTES_MAX, COLUMNS, ROWS_MAX, SEQUENCE, SIZE, Row, Run, Tally
from qmcore.condition import Condition
from qmcore.message import PARKED_UNTIL, State
from qmcore.numbers import SEQUENCE_MAX
from qmcore.queue import Queue
from qmcore.records import Cursor, Role
from qmcore.space import Space
from qmstorage import conditions
from qmstorage.bodies import IN_ROW_MAX
from qmstorage.schema import due, held, history, message, ready
from qmstorage.sql import ColumnElement, Select, Table, bindparam, case, elements, func, literal, null, select, tuple_
from qmstorage.statements import given
from qmstorage.states import NOT_PARKED, PARKED
from qmstorage.unit_part import StorePart

_NOTHING: Final = null()
BODIES: Final = select(message.c.id, message.c.size, message.c.body_id, message.c.body)
_BODY = BODIES.where(given(message.c.id, "of_message"))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How messages in one state are read: from which table, in which order, and what that table has of them.

    `start` is a cursor before the first.
    """

    table: Table
    first: ColumnElement[Any]
    start: Cursor
    says: dict[str, ColumnElement[Any]]
    retries: ColumnElement[int]
    until: ColumnElement[int] | None = None
    only: tuple[ColumnElement[bool], ...] = ()

    def places(self, *, bounded: bool) -> Select[Any]:
        """Return the statement for the cursors after one, up to another where it is bounded, in their order."""
        second = self.table.c.message_id
        here = tuple_(self.first, second)
        found = select(self.first, second).where(
            given(self.table.c.queue_id, "of_queue"), here > self._cursor("first", "second"), *self.only
        )
        return found.where(here <= self._cursor("last", "last_second")) if bounded else found

    @property
    def order(self) -> tuple[ColumnElement[Any], ...]:
        """What the messages are ordered by."""
        # The first column orders ready messages completely, and the index does not order by both.
        return (self.first,) if self.table is ready else (self.first, self.table.c.message_id)

    def _cursor(self, first: str, second: str) -> Any:
        return tuple_(bindparam(first, type_=self.first.type), bindparam(second, type_=self.table.c.message_id.type))


def _kept_back(start: int, only: ColumnElement[bool]) -> Form:
    says: dict[str, ColumnElement[Any]] = {"retries": due.c.retries, "until": due.c.available_at}
    return Form(due, due.c.available_at, (start, 0), says, due.c.retries, due.c.available_at, (only,))


FORMS: Final = {
    State.READY: Form(ready, ready.c.order_key, (b"", 0), {"retries": ready.c.retries}, ready.c.retries),
    State.DELAYED: _kept_back(-(2**63), NOT_PARKED),
    State.PARKED: _kept_back(PARKED_UNTIL, PARKED),
    State.HELD: Form(
        held,
        held.c.trans_id,
        (0, 0),
        {"retries": held.c.retries},
        held.c.retries,
        only=(held.c.role != int(Role.ENQUEUED),),
    ),
    State.CONSUMED: Form(
        history,
        history.c.consumed_at,
        (-(2**63), 0),
        {
            # The number of tries of a consumed message is not kept.
            "retries": literal(0),
            "consumed_at": history.c.consumed_at,
            "consumer": history.c.consumer,
            "transaction": history.c.trans_id,
        },
        literal(0),
    ),
}


def _tally(form: Form) -> Any:
    return (
        select(
            func.count(),
            func.sum(message.c.pages),
            func.sum(message.c.size),
            func.min(message.c.id),
            func.max(message.c.id),
            func.min(message.c.group_id),
            func.max(message.c.group_id),
        )
        .join_from(form.table, message, elements.Named(message.c.id, form.table.c.message_id))
        .where(given(form.table.c.queue_id, "of_queue"), *form.only)
    )


_TALLIES: Final = {state: _tally(form) for state, form in FORMS.items()}


class BulkRead(StorePart):
    """Messages in bulk."""

    body_max = IN_ROW_MAX
    """Bytes of the largest body that comes with its row; others are read once their sizes are known."""

    def tally(self, queue_id: int, state: State) -> Tally:
        """Return how many messages of the queue are in a state, counted one by one."""
        if state is State.CONSUMED and self.store.in_memory:
            return Tally()
        ((messages, pages, size, *named),) = self.all(_TALLIES[state], of_queue=queue_id)
        if not messages:
            return Tally()
        sequences = [numbers.sequence(number) for number in named if number is not None]
        return Tally(messages, int(pages), int(size), min(sequences), max(sequences))

    def boundaries(
        self,
        space: Space,
        in_queue: Queue,
        state: State,
        every: int,
        condition: Condition | None = None,
        *,
        most: int | None = None,
    ) -> list[tuple[Cursor, int]]:
        """Return the cursor of each `every`-th message, and of the last, with how many messages end with it."""
        if state is State.CONSUMED and self.store.in_memory:
            return []
        form, found = FORMS[state], []
        step, rest = _steps(form, condition, space)
        values: dict[str, Any] = {"of_queue": in_queue.id, "first": form.start[0], "second": form.start[1]}
        left = SEQUENCE_MAX if most is None else most
        while left and (place := self.built(step, **values, beyond=min(every, left) - 1)):
            ((values["first"], values["second"]),) = place
            found.append(((values["first"], values["second"]), min(every, left)))
            left -= found[-1][1]
        if not left:
            return found
        ((count,),) = self.built(rest, **values)
        if count:
            (last,) = self.built(step, **values, beyond=count - 1)
            found.append(((last[0], last[1]), count))
        return found

    def places(
        self, space: Space, in_queue: Queue, state: State, condition: Condition | None = None
    ) -> Generator[Cursor]:
        """Yield the cursor of each message, in their order."""
        if state is State.CONSUMED and self.store.in_memory:
            return
        form = FORMS[state]
        text, constants = self.texts.of(_places(form, condition, space))
        values = {"of_queue": in_queue.id, "first": form.start[0], "second": form.start[1]}
        with contextlib.closing(self.rows_of(text, constants | values)) as found:
            yield from found

    def rows(
        self, space: Space, in_queue: Queue, run: Run, condition: Condition | None = None, *, body: bool = True
    ) -> Iterator[list[Row]]:
        """Yield the messages of a run, in batches of at most ROWS_MAX messages and BYTES_MAX bytes, or of one."""
        if run.state is State.CONSUMED and self.store.in_memory:
            return
        form = FORMS[run.state]
        first, second = run.after or form.start
        values: dict[str, Any] = {"of_queue": in_queue.id, "first": first, "second": second}
        if run.until is not None:
            values |= {"last": run.until[0], "last_second": run.until[1]}
        most = self.body_max if body else 0
        statement = reading(form, condition, space, body_max=most, bounded=run.until is not None)
        text, constants = self.texts.of(statement)
        with contextlib.closing(self.rows_of(text, constants | values)) as found:
            yield from self._batches(found, space) if body else _of_facts(found)

    def rows_of(self, text: str, values: dict[str, Any]) -> Generator[Row]:
        """Yield the rows of a statement while others are run."""
        # The unit's own cursor is needed meanwhile, for bodies that are stored separately.
        with contextlib.closing(self.cursor.connection.cursor()) as cursor:
            yield from cursor.execute(text, values)

    def bodies_of(self, message_ids: Sequence[int]) -> Iterator[tuple[int, int, int | None, bytes | None]]:
        """Yield of each message its number, its size, and its body or the number of the separate one."""
        for message_id in message_ids:
            yield from self.all(_BODY, of_message=message_id)

    def _batches(self, found: Iterable[Row], space: Space) -> Iterator[list[Row]]:
        batch: list[Row] = []
        lacking: list[int] = []
        size = 0
        for row in found:
            # In a damaged file it may be anything, of which whoever gets the batch tells.
            its = row[SIZE] if row[SIZE].__class__ is int else 0
            size += its
            if len(batch) == ROWS_MAX or (size > BYTES_MAX and batch):
                yield self.made_whole(batch, lacking, space)
                batch, size, lacking = [], its, []
            if row[BODY] is None and its:
                lacking.append(len(batch))
            batch.append(row)
        if batch:
            yield self.made_whole(batch, lacking, space)

    def made_whole(self, batch: list[Row], lacking: Sequence[int], space: Space) -> list[Row]:
        """Return a batch with the bodies that its rows at these places lack."""
        at = {numbers.number(space.id, batch[place][SEQUENCE]): place for place in lacking}
        for number, size, body_id, content in self.bodies_of(list(at)) if at else ():
            row = batch[at[number]]
            body = content if body_id is None else self.store.bodies.whole(body_id, size)
            batch[at[number]] = (*row[:BODY], body, *row[BODY + 1 :])
        return batch


def _of_facts(found: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in found:
        batch.append(row)
        if len(batch) == ROWS_MAX:
            yield batch
            batch = []
    if batch:
        yield batch


@functools.lru_cache(maxsize=128)
def _steps(form: Form, condition: Condition | None, space: Space) -> tuple[Select[Any], Select[Any]]:
    """Return the statement for the cursor that is so many after another, and the one that counts what is after it."""
    places = _chosen(form, condition, space, bounded=False)
    step = _places(form, condition, space).limit(1).offset(bindparam("beyond"))
    return step, places.with_only_columns(func.count(), maintain_column_froms=True)


@functools.lru_cache(maxsize=128)
def _places(form: Form, condition: Condition | None, space: Space) -> Select[Any]:
    """Return the statement for the cursors after another, in their order."""
    return _chosen(form, condition, space, bounded=False).order_by(*form.order)


@functools.lru_cache(maxsize=256)
def reading(form: Form, condition: Condition | None, space: Space, *, body_max: int, bounded: bool) -> Select[Any]:
    """Return the statement for the rows of a run, with the bodies that are not larger than so many bytes."""
    says = {
        "sequence": message.c.id.bitwise_and(numbers.SEQUENCE_MAX),
        "group_sequence": message.c.group_id.bitwise_and(numbers.SEQUENCE_MAX),
        "body": _body(body_max),
        **form.says,
    }
    wanted = [says[name] if name in says else message.c.get(name, _NOTHING) for name in COLUMNS]
    places = _chosen(form, condition, space, bounded=bounded, joined=True)
    return places.with_only_columns(*wanted).order_by(*form.order)


def _body(most: int) -> ColumnElement[Any]:
    if most >= IN_ROW_MAX:
        return message.c.body
    return case((message.c.size <= most, message.c.body)) if most else _NOTHING


def _chosen(
    form: Form, condition: Condition | None, space: Space, *, bounded: bool, joined: bool = False
) -> Select[Any]:
    places = form.places(bounded=bounded)
    if condition is None and not joined:
        return places
    chosen = places.join_from(form.table, message, elements.Named(message.c.id, form.table.c.message_id))
    if condition is None:
        return chosen
    return chosen.where(conditions.where(condition, retries=form.retries, space=space, available_at=form.until))
