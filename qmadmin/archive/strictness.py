"""Whether all values of a part are what the format says, read column by column: a sender could have given each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from qmadmin.archive.arrays import all_values, extremes, lengths, of_one_size
from qmadmin.archive.arrow import pa, pq
from qmadmin.archive.columns import COLUMNS, Column, Kind
from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.pages import chunk_of
from qmadmin.archive.part_writing import GROUP_BYTES, GROUP_ROWS
from qmcore import names
from qmcore.message import MESSAGE_ID_DIGITS, State
from qmcore.row_rules import RULES, TOGETHER, Range, Shape

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray
    from pyarrow.parquet import ParquetFile

    from qmcore.order import QueueOrder

Orders = Mapping[tuple[str, str], "QueueOrder"]
"""The orders of the queues of an archive, by the names of their queue spaces and their own."""

_MSGID: Final = RULES["origin_msgid"]
_RULES: Final[dict[str, Range | Shape]] = {
    # A place in a queue may be any bytes, and the order of the queue has to know it.
    **{one.name: RULES[one.carried] for one in COLUMNS if one.carried in RULES.keys() - {"order_key"}},
    "space": Shape(names.space_name, "the name of a queue space"),
    "queue": Shape(names.queue_name, "the name of a queue"),
    "msgid": _MSGID,
    "group_msgid": _MSGID,
}
_HEXADECIMAL: Final = b"0123456789abcdef"
_TEXTS: Final = [column.name for column in COLUMNS if column.kind in (Kind.TEXT, Kind.BYTES)]
_OF_STATE: Final = {State.DELAYED.value: ("until",), State.CONSUMED.value: ("consumed_at", "consumer")}
"""What messages in a state have a value of."""

_REMEMBERED: Final = {"size", "space", "queue", "state", *TOGETHER, "until", "consumed_at", "consumer"}


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

    def _column(self, group: int, column: Column) -> ChunkedArray:
        chunk = chunk_of(self._part, self._opened, self._dense.metadata, group, self._places[column.name])
        file = self._packed if chunk.has_dictionary else self._dense
        return file.read_row_group(group, columns=[column.name], use_threads=False).column(0)

    def _check_values(self, column: Column, values: ChunkedArray) -> None:
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
        return refused(Fault.CONTENTS, f"part {self._part!r} has {what}", part=self._part)


def _joined(facts: Callable[[Array], list[Any]], values: ChunkedArray) -> list[Any]:
    found: list[Any] = []
    for chunk in values.chunks:
        found += facts(chunk)
    return found


def _are_ordinary(chunk: Array, order: QueueOrder) -> bool:
    keys = of_one_size(chunk)
    return keys is not None and order.are_ordinary(keys, len(chunk))


def _has_identifiers_only(chunk: Array) -> bool:
    """Return whether an array has message identifiers only; False does not mean that it has others."""
    words = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
    texts = of_one_size(words)
    return (
        texts is not None and len(texts) == MESSAGE_ID_DIGITS * len(words) and not texts.translate(None, _HEXADECIMAL)
    )


def _distinct(chunk: Array) -> set[Any]:
    return set((chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk).to_pylist())
