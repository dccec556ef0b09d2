"""The message identifiers that a queue space knows: its own, and those of others that it has adopted.

A message that was imported keeps the identifier that it had. Its sequence number is a new one, from a range that the
import has reserved, and the two differ by a shift that the import has recorded, so that each is found from the other by
arithmetic.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from qmcore.bulk_rows import Adopted
from qmcore.message import message_id, parts_of
from qmcore.numbers import SEQUENCE_MAX


class Identifiers:
    """The identifiers of one queue space, from its incarnation and what it has adopted.

    The ranges of sequence numbers that were adopted do not overlap here. Those of the identifiers may: of a queue space
    that was exported twice, and of this one itself when it gets its own messages back.
    """

    __slots__ = ("_from", "_incarnation", "_pieces", "_ranges")

    def __init__(self, incarnation: str, adopted: Sequence[Adopted]) -> None:
        self._incarnation: Final = incarnation
        self._pieces: Final = sorted(adopted, key=_own_first)
        self._from: Final = [_own_first(piece) for piece in self._pieces]
        foreign = sorted(adopted, key=lambda piece: (piece.incarnation, piece.first))
        self._ranges: Final = {
            name: _Ranges(list(pieces)) for name, pieces in itertools.groupby(foreign, key=lambda it: it.incarnation)
        }

    def msgid(self, sequence: int) -> str:
        """Return the identifier that message `sequence` of the queue space shows."""
        piece = self._piece_of(sequence)
        if piece is None:
            return message_id(self._incarnation, sequence)
        return message_id(piece.incarnation, (sequence - piece.shift) & SEQUENCE_MAX)

    def sequences_of(self, msgid: object) -> tuple[int, ...]:
        """Return the sequence numbers here that an identifier can be of, the newest first; none for an unknown one.

        Raises BadMessageIdError for what is not an identifier.
        """
        incarnation, number = parts_of(msgid)
        ranges = self._ranges.get(incarnation)
        found = [number + piece.shift for piece in ranges.with_number(number)] if ranges else []
        if incarnation == self._incarnation and number <= SEQUENCE_MAX and self._piece_of(number) is None:
            found.append(number)
        return tuple(sorted(found, reverse=True)) if len(found) > 1 else tuple(found)

    def pieces(self, first: int, last: int) -> Iterator[Adopted]:
        """Yield in ascending order the identifiers of the sequence numbers `first` to `last` of the queue space.

        Each number is in one piece. The shift is that from the identifier to the number here; our own have none.
        """
        at = first
        for piece in self._pieces:
            low, high = max(_own_first(piece), first), min(piece.last + piece.shift, last)
            if low > high:
                continue
            if at < low:
                yield Adopted(self._incarnation, at, low - 1, 0)
            yield Adopted(piece.incarnation, low - piece.shift, high - piece.shift, piece.shift)
            at = high + 1
        if at <= last:
            yield Adopted(self._incarnation, at, last, 0)

    def _piece_of(self, sequence: int) -> Adopted | None:
        """Return the adopted piece that contains a sequence number of the queue space."""
        at = bisect_right(self._from, sequence) - 1
        if at < 0:
            return None
        piece = self._pieces[at]
        return piece if sequence <= piece.last + piece.shift else None


class _Ranges:
    """Ranges of the identifiers of one foreign queue space, which may overlap."""

    __slots__ = ("_firsts", "_pieces", "_reach")

    def __init__(self, pieces: list[Adopted]) -> None:
        """`pieces` ascend by their first number."""
        self._pieces: Final = pieces
        self._firsts: Final = [piece.first for piece in pieces]
        # How far the pieces up to each reach, so that a search backwards ends where none can contain the number.
        self._reach: Final = list(itertools.accumulate((piece.last for piece in pieces), max))

    def with_number(self, number: int) -> Iterator[Adopted]:
        """Yield the pieces that contain a number."""
        at = bisect_right(self._firsts, number) - 1
        while at >= 0 and self._reach[at] >= number:
            if self._pieces[at].last >= number:
                yield self._pieces[at]
            at -= 1


def _own_first(piece: Adopted) -> int:
    return piece.first + piece.shift
