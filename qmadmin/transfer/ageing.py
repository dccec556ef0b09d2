"""What becomes of messages by time alone, which makes no difference between an archive and a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

from qmcore import bulk_rows
from qmcore.acts.retention import kept_from
from qmcore.bulk_rows import Row
from qmcore.message import Reason, State

_EXPIRES: Final = bulk_rows.COLUMNS.index("expires_at")
_UNTIL: Final = bulk_rows.COLUMNS.index("until")
_CONSUMED: Final = bulk_rows.COLUMNS.index("consumed_at")
_REASON: Final = bulk_rows.COLUMNS.index("origin_reason")
_MOVED: Final = bulk_rows.COLUMNS.index("moved_at")


@dataclasses.dataclass(frozen=True, slots=True)
class Aged:
    """Messages of one queue in the state that they are in at a moment; `ordered` where their order is that of then."""

    state: State
    rows: Sequence[Row]
    ordered: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Meanwhile:
    """The time from when an archive was made, to the moment of the device that is compared with it, in microseconds."""

    since_us: int
    now_us: int

    def aged(self, state: State, rows: Sequence[Row], retention: int) -> Iterator[Aged]:
        """Yield messages of the archive, or of the device where some may not have been looked after, as they are now.

        Those that were delayed until now are ready, somewhere among others. Those that have expired, or whose
        retention in seconds is over, are left out, and so is what came to an error queue because it had expired.
        """
        if state is State.CONSUMED:
            kept = kept_from(retention, self.now_us)
            yield Aged(state, [row for row in rows if kept is None or row[_CONSUMED] >= kept])
            return
        lasting = [row for row in rows if not (self._has_expired(row) or self._is_left_of_expired(row))]
        if state is State.DELAYED:
            yield Aged(State.READY, [_released(row) for row in lasting if row[_UNTIL] <= self.now_us], ordered=False)
            lasting = [row for row in lasting if row[_UNTIL] > self.now_us]
        yield Aged(state, lasting)

    def _has_expired(self, row: Row) -> bool:
        return bool(row[_EXPIRES] is not None and row[_EXPIRES] <= self.now_us)

    def _is_left_of_expired(self, row: Row) -> bool:
        return bool(row[_REASON] == Reason.EXPIRED.value and row[_MOVED] > self.since_us)


def aged(meanwhile: Meanwhile | None, state: State, rows: Sequence[Row], retention: int) -> Iterator[Aged]:
    """Yield messages as they are after some time, or as they were where that is None."""
    if meanwhile is None:
        yield Aged(state, rows)
    else:
        yield from meanwhile.aged(state, rows, retention)


def _released(row: Row) -> Row:
    return (*row[:_UNTIL], None, *row[_UNTIL + 1 :])
