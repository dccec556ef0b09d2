"""Conversion of the rows of a store to Arrow batches of the columns of a part, and back; and their counts.

pyarrow's own conversions load pandas if it is installed, and its computations load all of its functions: half a second
and more, which is too long for a small archive. Arrays are therefore made and read through their buffers. Archives
import pyarrow from here, so that its absence is reported in one sentence.
"""

from __future__ import annotations

import array
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from qmadmin.archive import Fault, refused, refused_part
from qmadmin.archive.columns import BY_NAME, COLUMNS, DELIVERIES, STATES, ArchiveColumn, ColumnType
from qmadmin.archive.manifest import Portion
from qmcore import bulk_rows
from qmcore.errors import InvalidArgumentError, ReleaseError
from qmcore.message import State

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, DataType, RecordBatch, Schema, Table

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ReleaseError(
        f"archives need pyarrow, which cannot be imported: {error}", hint="Install it with: pip install pyarrow."
    ) from None

__all__ = ["pa", "pq"]


TYPES: Final[dict[ColumnType, DataType]] = {
    ColumnType.TEXT: pa.string(),
    ColumnType.BYTES: pa.binary(),
    ColumnType.INT16: pa.int16(),
    ColumnType.INT32: pa.int32(),
    ColumnType.INT64: pa.int64(),
    ColumnType.TIME: pa.timestamp("us", tz="UTC"),
    ColumnType.FLAG: pa.bool_(),
    ColumnType.REAL: pa.float64(),
}
_CODES: Final = {ColumnType.INT16: "h", ColumnType.INT32: "i", ColumnType.INT64: "q", ColumnType.TIME: "q"}
_OF_BITS: Final[dict[int, Literal["h", "i", "q"]]] = {16: "h", 32: "i", 64: "q"}
_OFFSETS: Final = "i"
_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


def array_of(values: Sequence[Any], kind: ColumnType) -> Array:
    """Return an array of values, at least one; None is a missing value."""
    first = values[0]
    if first is None and values.count(None) == len(values):
        return pa.nulls(len(values), TYPES[kind])
    if kind is not ColumnType.BYTES and values[-1] == first and values.count(first) == len(values):
        return repeated(first, kind, len(values))
    try:
        return _array(values, kind, None)
    except (TypeError, AttributeError):
        # Some are missing; a check beforehand would cost more than this exception.
        return _with_gaps(values, kind)


def repeated(value: Any, kind: ColumnType, times: int) -> Array:
    """Return an array of a value repeated a number of times."""
    if kind in _CODES:
        return _of_buffers(kind, times, None, array.array(_CODES[kind], (value,)) * times)
    data = value.encode() if kind is ColumnType.TEXT else value
    return _of_buffers(kind, times, None, _steps(0, len(data), times), data * times)


def _with_gaps(values: Sequence[Any], kind: ColumnType) -> Array:
    valid = bytes(value is not None for value in values)
    bits = int(valid[::-1].translate(_DIGITS), 2).to_bytes(-(-len(values) // 8), "little")
    nothing: Any = 0 if kind in _CODES else "" if kind is ColumnType.TEXT else b""
    return _array([nothing if value is None else value for value in values], kind, bits)


def _array(values: Sequence[Any], kind: ColumnType, bits: bytes | None) -> Array:
    if kind in _CODES:
        return _of_buffers(kind, len(values), bits, array.array(_CODES[kind], values))
    if kind is ColumnType.TEXT:
        text = "".join(values)
        if text.isascii():
            return _of_buffers(kind, len(values), bits, _offsets(values), text.encode())
        values = [value.encode() for value in values]
    return _of_buffers(kind, len(values), bits, _offsets(values), b"".join(values))


def _offsets(values: Iterable[Any]) -> array.array[int]:
    return array.array(_OFFSETS, itertools.accumulate(map(len, values), initial=0))


def _of_buffers(kind: ColumnType, length: int, bits: bytes | None, *data: Any) -> Array:
    buffers = [None if part is None else pa.py_buffer(part) for part in (bits, *data)]
    return pa.Array.from_buffers(TYPES[kind], length, buffers)


def lengths(found: Array) -> list[int]:
    """Return the bytes of each text or byte string of an array; 0 for a missing one."""
    if found.null_count == len(found):
        return [0] * len(found)
    if pa.types.is_dictionary(found.type):
        of_words = lengths(found.dictionary)
        return [0 if at is None else of_words[at] for at in _places(found)]
    bounds = _bounds(found).tolist()
    return list(map(operator.sub, bounds[1:], bounds))


def numbers(found: Array) -> memoryview | list[int]:
    """Return the whole numbers (or times) of an array that are not missing."""
    if found.null_count == len(found):
        return []
    if found.null_count:
        return [number for number in _whole(found).to_pylist() if number is not None]
    code = _OF_BITS[found.type.bit_width]
    return memoryview(found.buffers()[1]).cast(code)[found.offset : found.offset + len(found)]


def _whole(found: Array) -> Array:
    """Return an array of whole numbers; times become numbers."""
    return found.view(pa.int64()) if pa.types.is_timestamp(found.type) else found


def extremes(found: Array) -> list[int]:
    """Return the least and the greatest whole number of an array; one if all are the same, none if all are missing."""
    values = numbers(found)
    if isinstance(values, memoryview):
        # Most columns have one value for all messages, which a comparison of their bytes shows at once.
        if values.tobytes() == values[:1].tobytes() * len(values):
            return [values[0]]
        values = values.tolist()
    return [min(values), max(values)] if values else []


def all_values(found: Array) -> list[Any]:
    """Return all values, times as microseconds; each text of a dictionary is in memory only once."""
    if found.null_count == len(found):
        return [None] * len(found)
    if pa.types.is_dictionary(found.type):
        words = found.dictionary.to_pylist()
        return [None if at is None else words[at] for at in _places(found)]
    if _has_bounds(found) and is_constant(found):
        return [found[0].as_py()] * len(found)
    if _has_bounds(found):
        values: list[Any] = found.to_pylist()
        return values
    return _whole(found).to_pylist() if found.null_count else list(numbers(found))


def _places(found: Array) -> list[int | None]:
    """Return the index in its dictionary of each value of an array."""
    return found.indices.to_pylist() if found.null_count else list(numbers(found.indices))


def _has_bounds(found: Array) -> bool:
    return bool(pa.types.is_string(found.type) or pa.types.is_binary(found.type))


def of_one_size(found: Array) -> bytes | None:
    """Return all texts or byte strings of an array concatenated; None if they differ in size, or some are missing."""
    if found.null_count or not len(found) or not _has_bounds(found):
        return None
    bounds = _bounds(found)
    first, size = bounds[0], bounds[1] - bounds[0]
    if bounds.tobytes() != _steps(first, size, len(found)).tobytes():
        return None
    return memoryview(found.buffers()[2] or b"")[first : bounds[-1]].tobytes()


def is_constant(found: Array) -> bool:
    """Return whether all texts of an array, at least one, are present and the same."""
    data = of_one_size(found)
    # As bytes, which are compared at once.
    return data is not None and data[: len(data) // len(found)] * len(found) == data


def _steps(first: int, size: int, times: int) -> array.array[int]:
    """Return the offsets of texts of the same size, and that of the end."""
    if not size:
        return array.array(_OFFSETS, (first,)) * (times + 1)
    return array.array(_OFFSETS, range(first, first + size * times + 1, size))


def _bounds(found: Array) -> memoryview:
    return memoryview(found.buffers()[1]).cast(_OFFSETS)[found.offset : found.offset + len(found) + 1]


# ---- rows ------------------------------------------------------------------------------------------------------------


GROUP_ROWS: Final = 16_384
GROUP_BYTES: Final = 16 * 2**20
"""The maximum rows of a row group, and the maximum bytes of bodies and headers, unless it has one row."""
BATCH_BYTES_MAX: Final = 2**30
"""The maximum bytes of bodies in one batch; an Arrow column of bytes cannot have more than twice as many."""

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
    for _, same in itertools.groupby(zip(*(column.to_pylist() for column in arrays), strict=True)):
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
    found = batch.column(at)
    if found.null_count == len(found):
        return [None] * len(found)
    if column.kind is ColumnType.TIME:
        found = found.view(pa.int64())
    values: list[Any] = found.to_pylist()
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
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count and BY_NAME[name].required:
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
