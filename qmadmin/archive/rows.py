"""Conversion of the rows of a store to Arrow batches of the columns of a part, and back; and their counts."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from qmadmin.archive.arrays import TYPES, array_of, is_constant, lengths, numbers, pa, repeated
from qmadmin.archive.columns import BY_NAME, COLUMNS, DELIVERIES, STATES, ArchiveColumn, ColumnType
from qmadmin.archive.faults import Fault, refused, refused_part
from qmadmin.archive.manifest import Portion
from qmcore import bulk_rows
from qmcore.errors import InvalidArgumentError
from qmcore.message import State

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, RecordBatch, Schema, Table

BATCH_BYTES_MAX: Final = 2**30
"""The maximum bytes of bodies in one batch; an Arrow array of bytes cannot have more than twice as many."""

Standing: TypeAlias = tuple[str, str, State, bool]
"""Queue space, queue, state, and whether the messages are kept in memory."""

Group: TypeAlias = tuple[Standing, list[bulk_rows.Row]]
"""Rows, with their common attributes."""

COMMON: Final = ("space", "queue", "state", "delivery")
"""The columns with a common value for a run of rows."""

_PLACES: Final = {name: place for place, name in enumerate(bulk_rows.COLUMNS)}
_CARRIED: Final = {column.carried: column for column in COLUMNS if column.carried}
_STATES: Final = {state.value: state for state in STATES}
_MEMORY: Final = {delivery: memory for memory, delivery in DELIVERIES.items()}


@functools.cache
def schema() -> Schema:
    """Return the schema of a part, in the order of its columns."""
    return pa.schema([pa.field(c.name, TYPES[c.kind], nullable=not c.required) for c in COLUMNS])


def batch_of(
    space: str, queue: str, state: State, memory: bool, rows: Sequence[bulk_rows.Row], msgid: Callable[[int], str]
) -> RecordBatch:
    """Return rows, at least one, as a batch of `schema`.

    They are of one queue in one state; `memory`: they are kept in memory. `msgid` returns the identifier of a sequence
    number. Bodies of more than BATCH_BYTES_MAX bytes together are refused.
    """
    if state not in STATES:
        raise InvalidArgumentError(f"a message that is {state.value} cannot be in an archive")
    values = list(zip(*rows, strict=True))
    if sum(values[bulk_rows.SIZE]) > BATCH_BYTES_MAX:
        raise InvalidArgumentError(f"the bodies of one batch have more than {BATCH_BYTES_MAX} bytes")
    common = {"space": space, "queue": queue, "state": state.value, "delivery": DELIVERIES[memory]}
    made = []
    for column in COLUMNS:
        if column.carried:
            made.append(array_of(values[_PLACES[column.carried]], column.kind))
        elif column.name in common:
            made.append(repeated(common[column.name], column.kind, len(rows)))
        else:
            sequences = values[_PLACES["sequence" if column.name == "msgid" else "group_sequence"]]
            made.append(array_of([None if number is None else msgid(number) for number in sequences], column.kind))
    return pa.RecordBatch.from_arrays(made, schema=schema())


def rows_of(batch: RecordBatch) -> list[Group]:
    """Return the rows of a batch in their order, grouped into runs of one queue in one state.

    Columns that this release does not know are left out.
    """
    if not batch.num_rows:
        return []
    rows = list(zip(*(_values(batch, _CARRIED[name]) for name in bulk_rows.COLUMNS), strict=True))
    found: list[Group] = []
    for first, count in runs(batch):
        found.append((standing_of(batch, first), rows[first : first + count]))
    return found


def standing_of(batch: RecordBatch, row: int = 0) -> Standing:
    """Return the queue and state of the message in a row of a batch."""
    space, queue, state, delivery = (batch.column(name)[row].as_py() for name in COMMON)
    return space, queue, *_standing(state, delivery)


def runs(batch: RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield the runs of rows of one queue in one state: the first row of each, and how many they are."""
    arrays = [batch.column(name) for name in COMMON]
    if all(map(is_constant, arrays)):
        yield 0, batch.num_rows
        return
    first = 0
    for _, same in itertools.groupby(zip(*(array.to_pylist() for array in arrays), strict=True)):
        count = sum(1 for _ in same)
        yield first, count
        first += count


def _standing(state: str, delivery: str) -> tuple[State, bool]:
    if state not in _STATES or delivery not in _MEMORY:
        raise refused(Fault.CONTENTS, f"a message of the archive has the unknown state {state!r} or {delivery!r}")
    return _STATES[state], _MEMORY[delivery]


def _values(batch: RecordBatch, column: ArchiveColumn) -> list[Any]:
    at = batch.schema.get_field_index(column.name)
    # A column that a later minor version added is not in the parts of an earlier one.
    if at < 0 and column.since:
        return [None] * batch.num_rows
    array = batch.column(at)
    if array.null_count == len(array):
        return [None] * len(array)
    if column.kind is ColumnType.TIME:
        array = array.view(pa.int64())
    values: list[Any] = array.to_pylist()
    return values


COUNTED: Final = ("space", "queue", "state", "delivery", "sequence", "group_sequence", "pages", "size")
"""The columns that `count` reads."""

Portions: TypeAlias = dict[tuple[str, str, State, bool], Portion]
"""The content of a part, by the common attributes of messages."""


def count(batch: RecordBatch, name: str, portions: Portions) -> None:
    """Add a batch to the counts of each queue in a part."""
    for first, many in runs(batch):
        run = batch.slice(first, many)
        space, queue, state, delivery = (run.column(column)[0].as_py() for column in COMMON)
        if state not in _STATES or delivery not in _MEMORY:
            raise refused_part(
                Fault.CONTENTS, name, f"has a message of the state {state!r} and the delivery {delivery!r}"
            )
        sequences = [*numbers(run.column("sequence")), *numbers(run.column("group_sequence"))]
        new = Portion(
            *(space, queue, _STATES[state], _MEMORY[delivery]),
            messages=many,
            pages=sum(numbers(run.column("pages"))),
            size=sum(numbers(run.column("size"))),
            first=min(sequences),
            last=max(sequences),
        )
        key = (new.space, new.queue, new.state, new.memory)
        portions[key] = _together(portions[key], new) if key in portions else new


def in_order(portions: Portions) -> tuple[Portion, ...]:
    """Return portions in the order of queue spaces, queues and states."""
    return tuple(portions[key] for key in sorted(portions, key=_place))


def check_nulls(part: str, batch: RecordBatch) -> None:
    """Refuse messages without a value that each message has."""
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count and BY_NAME[name].required:
            raise refused_part(Fault.CONTENTS, part, f"has a message without {name!r}")


def sizes_of(rows: RecordBatch | Table) -> list[int]:
    """Return the bytes of body and headers of each row."""
    return list(map(operator.add, _lengths(rows, "body"), _lengths(rows, "headers")))


def _lengths(rows: RecordBatch | Table, name: str) -> Iterator[int]:
    return itertools.chain.from_iterable(map(lengths, _chunks(rows.column(name))))


def _chunks(column: Array | ChunkedArray) -> list[Array]:
    chunks: list[Array] = getattr(column, "chunks", None) or [column]
    return chunks


def slices(sizes: Sequence[int], most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield runs of rows of these sizes, as first row and number: within both limits, but at least one row."""
    first = total = 0
    for at, size in enumerate(sizes):
        if at > first and (at - first >= most_rows or total + size > most_bytes):
            yield first, at - first
            first, total = at, 0
        total += size
    if len(sizes) > first:
        yield first, len(sizes) - first


def _together(one: Portion, other: Portion) -> Portion:
    return Portion(
        *(one.space, one.queue, one.state, one.memory),
        messages=one.messages + other.messages,
        pages=one.pages + other.pages,
        size=one.size + other.size,
        first=min(one.first, other.first),
        last=max(one.last, other.last),
    )


def _place(key: tuple[str, str, State, bool]) -> tuple[str, str, int, bool]:
    space, queue, state, memory = key
    return space, queue, STATES.index(state), memory
