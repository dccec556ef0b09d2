"""Digests of messages that do not depend on where the messages are, nor on the pieces in which they are read.

The digest of many messages is the sum of their digests, so that any worker may add any of them; a sum over pairs of
neighbours shows whether their order is the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

from qmcore import bulk_rows
from qmcore.acts.retention import kept_from
from qmcore.bulk_rows import Row
from qmcore.message import Reason, State

_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _BYTES)
_GROUP: Final = bulk_rows.COLUMNS.index("group_sequence")
_LOCAL: Final = ("sequence", "order_key", "pages", "group_sequence")
"""Attributes that may differ between two copies of the same message."""

_SAME: Final = operator.itemgetter(*(at for at, name in enumerate(bulk_rows.COLUMNS) if name not in (*_LOCAL, "body")))


@dataclasses.dataclass(frozen=True, slots=True)
class Digest:
    """A digest of consecutive messages: how many, their content, their order; "" means no message.

    `ordered` is whether the order is significant.
    """

    messages: int = 0
    content: int = 0
    order: int = 0
    first: str = ""
    last: str = ""
    ordered: bool = True

    @classmethod
    def of(cls, rows: Sequence[Row], msgid: Callable[[int], str], *, ordered: bool = True) -> Digest:
        """Return the digest of rows in their order; `msgid` gives the identifier of a sequence number."""
        names = [msgid(row[bulk_rows.SEQUENCE]) for row in rows]
        content = sum(_of_message(name, row, msgid) for name, row in zip(names, rows, strict=True)) % _MODULUS
        order = sum(_of_pair(one, other) for one, other in itertools.pairwise(names)) % _MODULUS
        return cls(len(rows), content, order, names[0] if names else "", names[-1] if names else "", ordered)

    def before(self, other: Digest) -> Digest:
        """Return the digest of these messages followed by others."""
        if not self.messages or not other.messages:
            return self if self.messages else other
        return Digest(
            self.messages + other.messages,
            (self.content + other.content) % _MODULUS,
            (self.order + other.order + _of_pair(self.last, other.first)) % _MODULUS,
            self.first,
            other.last,
            self.ordered and other.ordered,
        )

    @property
    def text(self) -> str:
        """The content as digits, for people to compare."""
        return f"{self.content:0{2 * _BYTES}x}"


def joined(digests: Iterable[Digest]) -> Digest:
    """Return the digest of messages from those of their parts, in order."""
    return reduce(Digest.before, digests, Digest())


def _of_message(name: str, row: Row, msgid: Callable[[int], str]) -> int:
    group = row[_GROUP]
    values = (name, None if group is None else msgid(group), row[bulk_rows.BODY] is None, *_SAME(row))
    body = row[bulk_rows.BODY]
    return _hashed(repr(values).encode(), b"" if body is None else body)


def _of_pair(one: str, other: str) -> int:
    return _hashed(f"{one} {other}".encode())


def _hashed(data: bytes, more: bytes = b"") -> int:
    digest = hashlib.blake2b(data, digest_size=_BYTES)
    digest.update(more)
    return int.from_bytes(digest.digest())


_EXPIRES: Final = bulk_rows.COLUMNS.index("expires_at")
_UNTIL: Final = bulk_rows.COLUMNS.index("until")
_CONSUMED: Final = bulk_rows.COLUMNS.index("consumed_at")
_REASON: Final = bulk_rows.COLUMNS.index("origin_reason")
_MOVED: Final = bulk_rows.COLUMNS.index("moved_at")


@dataclasses.dataclass(frozen=True, slots=True)
class Aged:
    """Messages of one queue in their state at a moment; `ordered` if their order is the one of that moment."""

    state: State
    rows: Sequence[Row]
    ordered: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Meanwhile:
    """The time between an archive and the snapshot of the device that is compared with it, in microseconds."""

    since_us: int
    now_us: int

    def aged(self, state: State, rows: Sequence[Row], retention: int) -> Iterator[Aged]:
        """Yield messages of the archive, or of the device before its housekeeping, as they should be now.

        Those that were delayed until now are ready, among the others. Those that have expired, or whose retention in
        seconds is over, are left out, and so are those that came to an error queue because they had expired.
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
    """Yield messages as they are after some time, or unchanged if that is None."""
    if meanwhile is None:
        yield Aged(state, rows)
    else:
        yield from meanwhile.aged(state, rows, retention)


def _released(row: Row) -> Row:
    return (*row[:_UNTIL], None, *row[_UNTIL + 1 :])
