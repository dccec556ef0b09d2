"""Digests of messages that say the same wherever the messages are, and in whatever pieces they are read.

A digest of many messages is the sum of theirs, so that it does not matter who adds which; that they stand in the same
order is told by a sum over neighbours.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Final

from qmcore import bulk_rows
from qmcore.bulk_rows import Row

_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _BYTES)
_GROUP: Final = bulk_rows.COLUMNS.index("group_sequence")
_LOCAL: Final = ("sequence", "order_key", "pages", "group_sequence")
"""What differs between two places where a message is the same."""

_SAME: Final = operator.itemgetter(*(at for at, name in enumerate(bulk_rows.COLUMNS) if name not in (*_LOCAL, "body")))


@dataclasses.dataclass(frozen=True, slots=True)
class Digest:
    """What messages are that stand one behind the other: how many, their content, their order; "" is no message.

    `ordered` is whether the order says anything.
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
        """Return the digest of these messages with others behind them."""
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
    """Return the digest of messages whose parts are given in their order."""
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
