"""Arrow arrays of Python values, and operations on them through their buffers.

pyarrow's own conversions load pandas if it is installed, and its computations load all of its functions: half a second
and more, which is too long for a small archive. Archives import pyarrow from here, so that its
absence is reported in one sentence.
"""

from __future__ import annotations

import array
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from qmadmin.archive.columns import ColumnType
from qmcore.errors import ReleaseError

if TYPE_CHECKING:
    from pyarrow import Array, DataType

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ReleaseError(
        f"archives need pyarrow, which cannot be imported: {error}",
        hint="Install it with: pip install pyarrow.",
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
    if found.null_count:
        return False
    bounds = _bounds(found)
    first, size = bounds[0], bounds[1] - bounds[0]
    # As bytes, which are compared at once.
    if bounds.tobytes() != _steps(first, size, len(found)).tobytes():
        return False
    data = memoryview(found.buffers()[2] or b"")
    return bytes(data[first : first + size]) * len(found) == data[first : bounds[-1]].tobytes()


def _steps(first: int, size: int, times: int) -> array.array[int]:
    """Return the offsets of texts of the same size, and that of the end."""
    if not size:
        return array.array(_OFFSETS, (first,)) * (times + 1)
    return array.array(_OFFSETS, range(first, first + size * times + 1, size))


def _bounds(found: Array) -> memoryview:
    return memoryview(found.buffers()[1]).cast(_OFFSETS)[found.offset : found.offset + len(found) + 1]
