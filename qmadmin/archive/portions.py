"""What a part has of each queue, and in which runs its rows are written and read."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from qmadmin.archive.arrays import lengths, numbers
from qmadmin.archive.columns import BY_NAME, DELIVERIES, STATES
from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.manifest import Portion
from qmadmin.archive.rows import COMMON, runs
from qmcore.message import State

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, RecordBatch, Table

COUNTED: Final = ("space", "queue", "state", "delivery", "sequence", "group_sequence", "pages", "size")
"""The columns that `count` needs."""

_STATES: Final = {state.value: state for state in STATES}
_MEMORY: Final = {delivery: memory for memory, delivery in DELIVERIES.items()}

Portions: TypeAlias = dict[tuple[str, str, State, bool], Portion]
"""What a part has, by what messages have in common."""


def count(batch: RecordBatch, name: str, portions: Portions) -> None:
    """Add to what a part has of each queue."""
    for first, many in runs(batch):
        run = batch.slice(first, many)
        space, queue, state, delivery = (run.column(column)[0].as_py() for column in COMMON)
        if state not in _STATES or delivery not in _MEMORY:
            raise refused(
                Fault.CONTENTS,
                f"part {name!r} has a message of the state {state!r} and the delivery {delivery!r}",
                part=name,
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
    """Refuse messages without what each message has."""
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count and BY_NAME[name].required:
            raise refused(Fault.CONTENTS, f"part {part!r} has a message without {name!r}", part=part)


def sizes_of(rows: RecordBatch | Table) -> list[int]:
    """Return the bytes of body and headers of each row."""
    return list(map(operator.add, _lengths(rows, "body"), _lengths(rows, "headers")))


def _lengths(rows: RecordBatch | Table, name: str) -> Iterator[int]:
    return itertools.chain.from_iterable(map(lengths, _chunks(rows.column(name))))


def _chunks(column: Array | ChunkedArray) -> list[Array]:
    chunks: list[Array] = getattr(column, "chunks", None) or [column]
    return chunks


def slices(sizes: Sequence[int], most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield runs of rows of such sizes, as first row and how many: bounded by both limits, but one row at least."""
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
