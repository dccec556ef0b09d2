"""How the rows of an archive become those of a queue space: other numbers, other times, other pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qmcore import bulk_rows, times
from qmcore.bulk_rows import Row
from qmcore.imports import TimePolicy
from qmcore.message import HEADER_PAGES_BYTES, State
from qmcore.order import QueueOrder
from qmcore.values import dataclass

_AT: Final = {name: at for at, name in enumerate(bulk_rows.COLUMNS)}
_ENQUEUED, _AVAILABLE, _EXPIRES = _AT["enqueued_at"], _AT["available_at"], _AT["expires_at"]
_GROUP, _UNTIL, _CONSUMED = _AT["group_sequence"], _AT["until"], _AT["consumed_at"]
_TIMES = (_ENQUEUED, _AVAILABLE, _EXPIRES, _AT["expires_before"], _UNTIL, _CONSUMED)
_KEY, _PAGES, _SIZE = bulk_rows.ORDER_KEY, bulk_rows.PAGES, bulk_rows.SIZE
_HEADERS, _BODY = bulk_rows.HEADERS, bulk_rows.BODY
assert (_KEY, _PAGES + 1) == (1, _SIZE)  # noqa: S101 - `_renumbered` relies on it


@dataclass(frozen=True, slots=True)
class Renumbering:
    """What changes in the rows of a queue when they are loaded.

    `shift` is added to sequence numbers; times change by `policy`, for which the import began at `started_us` and moves
    times by `by_us`. `order` is that of the queue.
    """

    order: QueueOrder
    shift: int
    policy: TimePolicy
    by_us: int
    started_us: int
    page_size: int

    def rows(self, state: State, rows: Sequence[Row]) -> list[tuple[State, list[Row]]]:
        """Return the rows as they are to be stored, by the state in which they then are."""
        numbered = self._renumbered(rows)
        if self.policy is TimePolicy.KEEP or (self.policy is TimePolicy.SHIFT and not self.by_us):
            return [(state, numbered)]
        if self.policy is TimePolicy.SHIFT:
            return [(state, [self._shifted(row, self.by_us) for row in numbered])]
        return self._recomputed(state, numbered)

    def _renumbered(self, rows: Sequence[Row]) -> list[Row]:
        shift, page, header = self.shift, self.page_size, HEADER_PAGES_BYTES - 1 + self.page_size
        # Sizes are counted, and not believed; of headers there are seldom any.
        sizes = [0 if row[_BODY] is None else len(row[_BODY]) for row in rows]
        return [
            (
                row[0] + shift,
                key,
                *row[2:_PAGES],
                (size + header + (len(row[_HEADERS].encode()) if row[_HEADERS] else 0)) // page,
                size,
                *row[_SIZE + 1 : _GROUP],
                None if row[_GROUP] is None else row[_GROUP] + shift,
                *row[_GROUP + 1 :],
            )
            for row, key, size in zip(rows, self._keys(rows), sizes, strict=True)
        ]

    def _keys(self, rows: Sequence[Row]) -> Sequence[bytes]:
        shift, moved, plain = self.shift, self.order.moved, self.order.plain_width
        if not shift:
            return [row[_KEY] for row in rows]
        # Most keys end in one ascending number: a call for each would take longer than all else here.
        whole, read = int.to_bytes, int.from_bytes
        return [
            key[:-9] + whole(read(key[-9:-1], "big") + shift, 8, "big") + key[-1:]
            if len(key) == plain and key[0]
            else moved(key, shift)
            for key in [row[_KEY] for row in rows]
        ]

    def _recomputed(self, state: State, rows: Sequence[Row]) -> list[tuple[State, list[Row]]]:
        """Let messages be enqueued when the import began; those that are ready may be delayed again."""
        if state is State.CONSUMED:
            return [(state, list(rows))]
        as_new = [self._as_new(state, row) for row in rows]
        if state is State.DELAYED:
            return [(state, as_new)]
        late = [row for row in as_new if row[_AVAILABLE] is not None and row[_AVAILABLE] > self.started_us]
        if not late:
            return [(state, as_new)]
        numbers = {row[0] for row in late}
        waiting = [(*row[:_UNTIL], row[_AVAILABLE], *row[_UNTIL + 1 :]) for row in late]
        return [(state, [row for row in as_new if row[0] not in numbers]), (State.DELAYED, waiting)]

    def _as_new(self, state: State, row: Row) -> Row:
        until = row[_UNTIL]
        found = self._shifted(row, self.started_us - row[_ENQUEUED])
        if state is State.DELAYED and until != row[_AVAILABLE]:
            # It was a retry that delayed it, and nobody knows since when.
            return (*found[:_UNTIL], until, *found[_UNTIL + 1 :])
        return found

    def _shifted(self, row: Row, by_us: int) -> Row:
        changed = list(row)
        changed[_KEY] = self.order.later(row[_KEY], by_us)
        for at in _TIMES:
            if row[at] is not None:
                changed[at] = times.moved(row[at], by_us)
        return tuple(changed)


def sums(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Return how many messages rows are, their pages and their bytes."""
    return len(rows), sum(row[_PAGES] for row in rows), sum(row[_SIZE] for row in rows)
