"""How large the pages of a part are when they are unpacked, told before anybody unpacks one.

A file of a hundred kilobytes may unpack to gigabytes, and what it says of that at its end need not be so. What is
unpacked is what the header of each page says: it is a struct of Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from qmadmin.archive.faults import Fault, refused
from qmcore.message import BODY_MAX

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData

CHUNK_BYTES: Final = 32 * 2**20
"""Bytes that the values of one column in one row group unpack to at most, twice those that a row group may have."""

BODY_BYTES: Final = BODY_MAX + 2**20
"""The same of bodies that are not in a dictionary: one may be as large as the largest."""

FOOTER_BYTES: Final = 16 * 2**20
"""Bytes that the end of a part has at most, which says where everything is."""

_MAGIC: Final = b"PAR1"
_HEADER_BYTES: Final = 2**20
_FIRST_READ: Final = 256
_DEEPEST: Final = 8
_KIND, _UNPACKED, _PACKED, _DATA, _DATA_2 = 1, 2, 3, 5, 8
_DICTIONARY_PAGE: Final = 2
_ENCODING: Final = {_DATA: 2, _DATA_2: 4}
_DELTA_BYTE_ARRAY: Final = 7


class Chunk(NamedTuple):
    """What the pages of one column in one row group unpack to, and whether they refer to a dictionary of values."""

    size: int
    has_dictionary: bool


def check_end(part: str, file: BinaryIO, size: int) -> None:
    """Refuse a part whose end, which is read as a whole, is too large."""
    file.seek(max(size - 8, 0))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] == _MAGIC and FOOTER_BYTES < length < size:
        raise _too_large(part, f"the end of the file has {length} bytes", FOOTER_BYTES)


def chunk_of(part: str, file: BinaryIO, metadata: FileMetaData, group: int, column: int) -> Chunk:
    """Return what a column has in a row group; refuse one that unpacks to too much."""
    found = metadata.row_group(group).column(column)
    total, has_dictionary = 0, False
    for header in _headers(part, file, found):
        total += header.get(_UNPACKED, 0)
        has_dictionary = has_dictionary or header.get(_KIND) == _DICTIONARY_PAGE
        most = BODY_BYTES if found.path_in_schema == "body" and not has_dictionary else CHUNK_BYTES
        if total > most or found.total_compressed_size > most:
            raise _too_large(part, f"the column {found.path_in_schema!r} of row group {group} unpacks to more", most)
        for place, at in _ENCODING.items():
            if header.get(place, {}).get(at) == _DELTA_BYTE_ARRAY:
                raise _unreadable(part, "its texts are each written as the end of the one before")
    return Chunk(total, has_dictionary)


def _headers(part: str, file: BinaryIO, chunk: ColumnChunkMetaData) -> Iterator[dict[int, Any]]:
    """Yield the headers of the pages, by the numbers of their fields."""
    at, first = chunk.data_page_offset, chunk.dictionary_page_offset
    if first is not None and 0 < first < at:
        at = first
    end = at + chunk.total_compressed_size
    while at < end:
        header, length = _header(part, file, at)
        packed, unpacked = header.get(_PACKED, -1), header.get(_UNPACKED, -1)
        if packed < 0 or unpacked < 0:
            raise _unreadable(part, "a page does not say how large it is")
        yield header
        at += length + packed


def _header(part: str, file: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """Return the header that begins somewhere, and its length."""
    most = _FIRST_READ
    while True:
        file.seek(at)
        data = file.read(most)
        reader = _Reader(data)
        try:
            return reader.struct(0), reader.at
        except IndexError:
            if len(data) < most or most >= _HEADER_BYTES:
                raise _unreadable(part, "the header of a page is cut off") from None
            most *= 8
        except ValueError as error:
            raise _unreadable(part, str(error)) from None


class _Reader:
    """Reads a struct; IndexError where the bytes come to their end, ValueError where they are none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Return the fields of a struct by their numbers, those of kinds that nobody asks for without their values."""
        if depth > _DEEPEST:
            raise ValueError("the header of a page is nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._number()
            found[number] = self._value(head & 0x0F, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._number()
            case 7:
                return self._skip(8)
            case 8:
                return self._skip(self._varint())
            case 12:
                return self.struct(depth + 1)
            case _:
                # No page of Parquet has a list, a set or a map.
                raise ValueError("the header of a page is not one of Parquet")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError("a number in the header of a page has no end")

    def _number(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _skip(self, count: int) -> None:
        if self.at + count > len(self._data):
            raise IndexError
        self.at += count


def _too_large(part: str, what: str, most: int) -> Exception:
    return refused(
        Fault.CONTENTS, f"part {part!r} is not of the format: {what}, and {most // 2**20} MiB is the most", part=part
    )


def _unreadable(part: str, why: str) -> Exception:
    return refused(Fault.PARQUET, f"part {part!r} is not a Parquet file that can be read: {why}", part=part)
