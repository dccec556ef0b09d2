"""Arrow arrays of Python values, and what is asked about them, by way of their buffers.

pyarrow's own ways from values to arrays load pandas where it is installed, and those that compute load all of its
functions: half a second and more, which is too long for a small archive.
"""

from __future__ import annotations

import array
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.arrow import pa
from qmadmin.archive.columns import Kind

if TYPE_CHECKING:
    from pyarrow import Array, DataType

TYPES: Final[dict[Kind, DataType]] = {
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
}
_CODES: Final = {Kind.INT16: "h", Kind.INT32: "i", Kind.INT64: "q", Kind.TIME: "q"}
_OFFSETS: Final = "i"
_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


def array_of(values: Sequence[Any], kind: Kind) -> Array:
    """Return an array of values, one at least; None is a value that is not there."""
    first = values[0]
    if first is None and values.count(None) == len(values):
        return pa.nulls(len(values), TYPES[kind])
    if kind is not Kind.BYTES and values[-1] == first and values.count(first) == len(values):
        return repeated(first, kind, len(values))
    try:
        return _array(values, kind, None)
    except (TypeError, AttributeError):
        # Some are not there, which is looked at only now because it costs more than it takes to find out here.
        return _with_gaps(values, kind)


def repeated(value: Any, kind: Kind, times: int) -> Array:
    """Return an array of the same value so many times."""
    if kind in _CODES:
        return _of_buffers(kind, times, None, array.array(_CODES[kind], (value,)) * times)
    data = value.encode() if kind is Kind.TEXT else value
    return _of_buffers(kind, times, None, _steps(0, len(data), times), data * times)


def _with_gaps(values: Sequence[Any], kind: Kind) -> Array:
    valid = bytes(value is not None for value in values)
    bits = int(valid[::-1].translate(_DIGITS), 2).to_bytes(-(-len(values) // 8), "little")
    nothing: Any = 0 if kind in _CODES else "" if kind is Kind.TEXT else b""
    return _array([nothing if value is None else value for value in values], kind, bits)


def _array(values: Sequence[Any], kind: Kind, bits: bytes | None) -> Array:
    if kind in _CODES:
        return _of_buffers(kind, len(values), bits, array.array(_CODES[kind], values))
    if kind is Kind.TEXT:
        text = "".join(values)
        if text.isascii():
            return _of_buffers(kind, len(values), bits, _offsets(values), text.encode())
        values = [value.encode() for value in values]
    return _of_buffers(kind, len(values), bits, _offsets(values), b"".join(values))


def _offsets(values: Iterable[Any]) -> array.array[int]:
    return array.array(_OFFSETS, itertools.accumulate(map(len, values), initial=0))


def _of_buffers(kind: Kind, length: int, bits: bytes | None, *data: Any) -> Array:
    buffers = [None if part is None else pa.py_buffer(part) for part in (bits, *data)]
    return pa.Array.from_buffers(TYPES[kind], length, buffers)


def lengths(found: Array) -> list[int]:
    """Return the bytes that each text or byte string of an array has; 0 where there is none."""
    return [end - begin for begin, end in itertools.pairwise(_bounds(found))]


def numbers(found: Array) -> memoryview | list[int]:
    """Return those of the numbers of an array of 64 bits that are there."""
    if found.null_count:
        return [number for number in found.to_pylist() if number is not None]
    return memoryview(found.buffers()[1]).cast("q")[found.offset : found.offset + len(found)]


def is_constant(found: Array) -> bool:
    """Tell whether all texts of an array, one at least, are there and the same."""
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
