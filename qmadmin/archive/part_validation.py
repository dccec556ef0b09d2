"""The validation of all values of a part, column by column: each must be one that a sender could have given."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from qmadmin.archive import Fault, refused_part
from qmadmin.archive.columns import COLUMNS, ArchiveColumn, ColumnType
from qmadmin.archive.manifest import PartEntry
from qmadmin.archive.rows import GROUP_BYTES, GROUP_ROWS, all_values, extremes, lengths, of_one_size, pa, pq
from qmcore import names
from qmcore.message import BODY_MAX, MESSAGE_ID_DIGITS, State
from qmcore.row_rules import RULES, TOGETHER, Range, Shape

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData, ParquetFile

    from qmcore.order import QueueOrder

Orders = Mapping[tuple[str, str], "QueueOrder"]
"""The orders of the queues of an archive, by the names of their queue spaces and their own."""

_MSGID: Final = RULES["origin_msgid"]
_RULES: Final[dict[str, Range | Shape]] = {
    # A place in a queue may be any bytes that are valid in the order of the queue.
    **{one.name: RULES[one.carried] for one in COLUMNS if one.carried in RULES.keys() - {"order_key"}},
    "space": Shape(names.space_name, "the name of a queue space"),
    "queue": Shape(names.queue_name, "the name of a queue"),
    "msgid": _MSGID,
    "group_msgid": _MSGID,
}
_HEXADECIMAL: Final = b"0123456789abcdef"
_TEXTS: Final = [column.name for column in COLUMNS if column.kind in (ColumnType.TEXT, ColumnType.BYTES)]
_OF_STATE: Final = {State.DELAYED.value: ("until",), State.CONSUMED.value: ("consumed_at", "consumer")}
"""The columns that have values for messages in a state."""

_REMEMBERED: Final = {"size", "space", "queue", "state", *TOGETHER, "until", "consumed_at", "consumer"}


class Groups:
    """The row groups of a part, with at most one column in memory at a time."""

    def __init__(self, part: str, opened: BinaryIO, orders: Orders) -> None:
        self._part = part
        self._opened = opened
        self._orders = orders
        self._dense = pq.ParquetFile(opened)
        self._places = {name: at for at, name in enumerate(self._dense.schema_arrow.names)}

    @property
    def file(self) -> ParquetFile:
        """The file, read without dictionaries."""
        return self._dense

    @functools.cached_property
    def _packed(self) -> ParquetFile:
        """The file, read with dictionaries: a short one may stand for very many long texts."""
        return pq.ParquetFile(self._opened, read_dictionary=[name for name in _TEXTS if name in self._places])

    def check(self) -> Iterator[int]:
        """Refuse the first invalid value; yield the number of each valid group.

        The schema of the file has been checked.
        """
        for group in range(self._dense.num_row_groups):
            self._check_group(group)
            yield group

    def _check_group(self, group: int) -> None:
        rows = self._dense.metadata.row_group(group).num_rows
        if rows > GROUP_ROWS:
            raise self._refused(f"a row group of {rows} rows, and {GROUP_ROWS} is the most")
        kept: dict[str, list[Any]] = {name: [None] * rows for name in _REMEMBERED}
        total, keys = 0, []
        for column in COLUMNS:
            if column.name not in self._places:
                continue
            values = self._column(group, column)
            if values.null_count and column.required:
                raise self._refused(f"a message without {column.name!r}")
            self._check_values(column, values)
            if column.name in ("body", "headers"):
                sizes = _joined(lengths, values)
                total += sum(sizes)
                if column.name == "body" and sizes != kept["size"]:
                    raise self._refused("a message whose body has another size than it says")
            if column.name == "order_key":
                keys = values.chunks
            if column.name in _REMEMBERED:
                kept[column.name] = _joined(all_values, values)
        if rows > 1 and total > GROUP_BYTES:
            raise self._refused(f"a row group with bodies and headers of {total} bytes, and {GROUP_BYTES} is the most")
        self._check_rows(kept)
        self._check_places(kept["space"], kept["queue"], keys)

    def _column(self, group: int, column: ArchiveColumn) -> ChunkedArray:
        chunk = chunk_of(self._part, self._opened, self._dense.metadata, group, self._places[column.name])
        file = self._packed if chunk.has_dictionary else self._dense
        return file.read_row_group(group, columns=[column.name], use_threads=False).column(0)

    def _check_values(self, column: ArchiveColumn, values: ChunkedArray) -> None:
        rule = _RULES.get(column.name)
        if rule is None:
            return
        for chunk in values.chunks:
            if chunk.null_count == len(chunk) or (rule is _MSGID and _has_identifiers_only(chunk)):
                continue
            for value in extremes(chunk) if isinstance(rule, Range) else _distinct(chunk):
                if value is not None and not rule.holds(value):
                    raise self._refused(f"a message whose field {column.name} is not {rule.what}")

    def _check_rows(self, kept: Mapping[str, Sequence[Any]]) -> None:
        moved = [kept[name] for name in TOGETHER]
        if any(values.count(None) < len(values) for values in moved):
            for row in zip(*moved, strict=True):
                if len({value is None for value in row}) > 1:
                    raise self._refused("a message whose origin is incomplete")
        for state in _OF_STATE.keys() & set(kept["state"]):
            for name in _OF_STATE[state]:
                if any(its == state and value is None for its, value in zip(kept["state"], kept[name], strict=True)):
                    raise self._refused(f"a message that is {state} and has no {name!r}")

    def _check_places(self, spaces: Sequence[str], queues: Sequence[str], chunks: Sequence[Array]) -> None:
        if len(set(spaces)) == len(set(queues)) == 1:
            order = self._orders.get((spaces[0], queues[0]))
            if order is None or all(_are_ordinary(chunk, order) for chunk in chunks):
                return
        found: dict[tuple[str, str], list[bytes]] = {}
        keys = (key for chunk in chunks for key in all_values(chunk))
        for space, queue, key in zip(spaces, queues, keys, strict=True):
            found.setdefault((space, queue), []).append(key)
        for (space, queue), its in found.items():
            order = self._orders.get((space, queue))
            if order is not None and any(True for _ in order.invalid(its)):
                raise self._refused(f"a message at a position that the order of queue {queue!r} does not know")

    def _refused(self, what: str) -> Exception:
        return refused_part(Fault.CONTENTS, self._part, f"has {what}")


def _joined(facts: Callable[[Array], list[Any]], values: ChunkedArray) -> list[Any]:
    found: list[Any] = []
    for chunk in values.chunks:
        found += facts(chunk)
    return found


def _are_ordinary(chunk: Array, order: QueueOrder) -> bool:
    keys = of_one_size(chunk)
    return keys is not None and order.are_ordinary(keys, len(chunk))


def _has_identifiers_only(chunk: Array) -> bool:
    """Return whether an array certainly has message identifiers only."""
    words = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
    texts = of_one_size(words)
    return (
        texts is not None and len(texts) == MESSAGE_ID_DIGITS * len(words) and not texts.translate(None, _HEXADECIMAL)
    )


def _distinct(chunk: Array) -> set[Any]:
    return set((chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk).to_pylist())


CHUNK_BYTES: Final = 32 * 2**20
"""The maximum decompressed bytes of one column in one row group, twice those of a row group."""

BODY_BYTES: Final = BODY_MAX + 2**20
"""The same of bodies that are not in a dictionary: one may be as large as the largest."""

FOOTER_BYTES: Final = 16 * 2**20
"""The maximum bytes of the footer of a part."""

_MAGIC: Final = b"PAR1"
_HEADER_BYTES: Final = 2**20
_FIRST_READ: Final = 256
_DEEPEST: Final = 8
_KIND, _UNPACKED, _PACKED, _DATA, _DATA_2 = 1, 2, 3, 5, 8
_DICTIONARY_PAGE: Final = 2
_ENCODING: Final = {_DATA: 2, _DATA_2: 4}
_DELTA_BYTE_ARRAY: Final = 7


class Chunk(NamedTuple):
    """The decompressed size of the pages of one column in one row group, and whether they use a dictionary."""

    size: int
    has_dictionary: bool


def check_end(part: str, file: BinaryIO, size: int) -> None:
    """Refuse a part whose footer, which is read as a whole, is too large."""
    file.seek(max(size - 8, 0))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] == _MAGIC and FOOTER_BYTES < length < size:
        raise _too_large(part, f"the end of the file has {length} bytes", FOOTER_BYTES)


def chunk_of(part: str, file: BinaryIO, metadata: FileMetaData, group: int, column: int) -> Chunk:
    """Return the chunk of a column in a row group; refuse one that decompresses to too much."""
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
    """Reads a struct; IndexError if the bytes end too early, ValueError if they are not a struct."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Return the fields of a struct by their numbers, those of unused types without their values."""
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
    return refused_part(Fault.CONTENTS, part, f"is not of the format: {what}, and {most // 2**20} MiB is the most")


def _unreadable(part: str, why: str) -> Exception:
    return refused_part(Fault.PARQUET, part, f"is not a Parquet file that can be read: {why}")


def wrong_size(entry: PartEntry, size: int) -> Exception:
    """Return the diagnostic for a part that is longer or shorter than it was."""
    return refused_part(Fault.SIZE, entry.name, f"has {size} bytes, its manifest says {entry.size}")
