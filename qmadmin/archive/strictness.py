"""Whether all values of a part are what the format says, read column by column: a sender could have given each."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from qmadmin.archive.arrays import lengths
from qmadmin.archive.arrow import pa, pq
from qmadmin.archive.columns import COLUMNS, Column, Kind
from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.pages import chunk_of
from qmadmin.archive.part_writing import GROUP_BYTES, GROUP_ROWS
from qmcore import names
from qmcore.message import State
from qmcore.row_rules import RULES, TOGETHER, Range, Shape

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray
    from pyarrow.parquet import ParquetFile

    from qmcore.order import QueueOrder

Orders = Mapping[tuple[str, str], "QueueOrder"]
"""The orders of the queues of an archive, by the names of their queue spaces and their own."""

_MSGID: Final = RULES["origin_msgid"]
_RULES: Final[dict[str, Range | Shape]] = {
    **{column.name: RULES[column.carried] for column in COLUMNS if column.carried in RULES},
    "space": Shape(names.space_name, "the name of a queue space"),
    "queue": Shape(names.queue_name, "the name of a queue"),
    "msgid": _MSGID,
    "group_msgid": _MSGID,
}
_TEXTS: Final = [column.name for column in COLUMNS if column.kind in (Kind.TEXT, Kind.BYTES)]
_OF_STATE: Final = {State.DELAYED.value: ("until",), State.CONSUMED.value: ("consumed_at", "consumer")}
"""What messages in a state have a value of."""

_REMEMBERED: Final = {"size", "order_key", "space", "queue", "state", *TOGETHER, "until", "consumed_at", "consumer"}


class Groups:
    """The row groups of a part, of which no more than one column is in memory at a time."""

    def __init__(self, part: str, opened: BinaryIO, orders: Orders) -> None:
        self._part = part
        self._opened = opened
        self._orders = orders
        self._dense = pq.ParquetFile(opened)
        self._places = {name: at for at, name in enumerate(self._dense.schema_arrow.names)}

    @property
    def file(self) -> ParquetFile:
        """The file, as it is read without dictionaries."""
        return self._dense

    @functools.cached_property
    def _packed(self) -> ParquetFile:
        """The file, as it is read with dictionaries: a short one may stand for very many long texts."""
        return pq.ParquetFile(self._opened, read_dictionary=[name for name in _TEXTS if name in self._places])

    def check(self) -> Iterator[int]:
        """Refuse the first value that is not as it should be; yield the number of each group that is sound.

        The schema of the file is known to be right.
        """
        for group in range(self._dense.num_row_groups):
            self._check_group(group)
            yield group

    def _check_group(self, group: int) -> None:
        rows = self._dense.metadata.row_group(group).num_rows
        if rows > GROUP_ROWS:
            raise self._refused(f"a row group of {rows} rows, and {GROUP_ROWS} is the most")
        kept: dict[str, list[Any]] = {name: [None] * rows for name in _REMEMBERED}
        sizes = [0] * rows
        for column in COLUMNS:
            if column.name not in self._places:
                continue
            values = self._column(group, column)
            if values.null_count and column.required:
                raise self._refused(f"a message without {column.name!r}")
            self._check_values(column, values)
            if column.name in ("body", "headers"):
                sizes = [one + other for one, other in zip(sizes, _lengths(values), strict=True)]
            if column.name == "body" and _lengths(values) != kept["size"]:
                raise self._refused("a message whose body has another size than it says")
            if column.name in _REMEMBERED:
                kept[column.name] = _values(values)
        if rows > 1 and sum(sizes) > GROUP_BYTES:
            raise self._refused(
                f"a row group with bodies and headers of {sum(sizes)} bytes, and {GROUP_BYTES} is the most"
            )
        self._check_rows(kept)

    def _column(self, group: int, column: Column) -> ChunkedArray:
        chunk = chunk_of(self._part, self._opened, self._dense.metadata, group, self._places[column.name])
        file = self._packed if chunk.has_dictionary else self._dense
        return file.read_row_group(group, columns=[column.name], use_threads=False).column(0)

    def _check_values(self, column: Column, values: ChunkedArray) -> None:
        rule = _RULES.get(column.name)
        if rule is None:
            return
        for value in _extremes(values) if isinstance(rule, Range) else _distinct(values):
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
        for space, queue, keys in _by_queue(kept):
            order = self._orders.get((space, queue))
            if order is not None and any(True for _ in order.strangers(keys)):
                raise self._refused(f"a message at a position that the order of queue {queue!r} does not know")

    def _refused(self, what: str) -> Exception:
        return refused(Fault.CONTENTS, f"part {self._part!r} has {what}", part=self._part)


def _by_queue(kept: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str, Sequence[bytes]]]:
    """Yield the queues of a row group, and the order keys that are in each."""
    if len(set(kept["space"])) == len(set(kept["queue"])) == 1:
        yield kept["space"][0], kept["queue"][0], kept["order_key"]
        return
    found: dict[tuple[str, str], list[bytes]] = {}
    for space, queue, key in zip(kept["space"], kept["queue"], kept["order_key"], strict=True):
        found.setdefault((space, queue), []).append(key)
    for (space, queue), keys in found.items():
        yield space, queue, keys


def _whole(array: Array) -> Array:
    """Return an array of numbers, of which times are a kind."""
    return array.view(pa.int64()) if pa.types.is_timestamp(array.type) else array


def _values(values: ChunkedArray) -> list[Any]:
    """Return all values, each text of a dictionary once in memory."""
    found: list[Any] = []
    for chunk in values.chunks:
        if pa.types.is_dictionary(chunk.type):
            words = chunk.dictionary.to_pylist()
            found += [None if at is None else words[at] for at in chunk.indices.to_pylist()]
        else:
            found += _whole(chunk).to_pylist()
    return found


def _distinct(values: ChunkedArray) -> set[Any]:
    found: set[Any] = set()
    for chunk in values.chunks:
        found.update((chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk).to_pylist())
    return found


def _extremes(values: ChunkedArray) -> Iterator[int]:
    numbers = [
        number for number in itertools.chain(*(_whole(c).to_pylist() for c in values.chunks)) if number is not None
    ]
    if numbers:
        yield min(numbers)
        yield max(numbers)


def _lengths(values: ChunkedArray) -> list[int]:
    """Return the bytes of each value; 0 where there is none."""
    found: list[int] = []
    for chunk in values.chunks:
        if pa.types.is_dictionary(chunk.type):
            of_words = lengths(chunk.dictionary) if len(chunk.dictionary) else []
            found += [0 if at is None else of_words[at] for at in chunk.indices.to_pylist()]
        else:
            found += lengths(chunk)
    return found
