"""The order of a queue, and the key that gives each message its place.

A key is a byte string; the message with the smallest key is dequeued first:

    0x80, the order fields big-endian (a descending one inverted), the sequence number, 0x80

A message put on top gets 0x00, its inverted sequence number and 0x80, so the last one on top comes first. A message put
before M gets M's key without its last byte, then 0x40, its own sequence number and 0x80: several come directly before M
in order of arrival, and the rule can be applied to its own results.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Final

from qmcore import times
from qmcore.errors import InvalidArgumentError
from qmcore.values import dataclass


class Criterion(enum.Enum):
    """A criterion by which messages of a queue are ordered."""

    PRIORITY = "priority"
    TIME = "time"
    EXPIRATION = "expiration"
    FIFO = "fifo"
    LIFO = "lifo"

    # An Enum's own is a function in Python, and each key is looked at by how wide its fields are.
    __hash__ = object.__hash__


_ALIASES = {"prio": "priority", "expir": "expiration"}
_ORDINARY: Final = b"\x80"
_TOP: Final = b"\x00"
_BEFORE: Final = b"\x40"
LAST: Final = b"\x80"
"""What every key ends with."""
FIRST_ORDINARY: Final = _ORDINARY
"""A lower bound of ordinary keys, after all others."""
BEHIND_ALL: Final = b"\x81"
"""An upper bound of all keys."""
LEVEL_BYTES: Final = 2
"""How many bytes say which keys an order by age, within each priority or overall, ranks with a key: see `level`.

Where there are no priorities they say no more than that it is an ordinary one: no sequence number is so large that it
needs its first byte.
"""
_NUMBER: Final = 8
SEQUENCE_TOP: Final = 2**64 - 1
"""What a sequence number is inverted with."""
_NO_EXPIRY = b"\xff" * 8
_TIME_BIAS = 2**63


_FIFO = (Criterion.FIFO,)


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """Criteria, most significant first; `fifo` or `lifo` comes last, and `fifo` is implied where neither is given."""

    criteria: tuple[Criterion, ...] = _FIFO

    @classmethod
    def parse(cls, text: str) -> QueueOrder:
        """Read a comma list of `priority`, `time`, `expiration`, `fifo` and `lifo`; empty means `fifo`."""
        words = [word.strip().lower() for word in text.split(",")] if text.strip() else ["fifo"]
        criteria = [_criterion(word, text) for word in words]
        if len(set(criteria)) < len(criteria):
            raise InvalidArgumentError(f"the queue order {text!r} names a criterion twice")
        if Criterion.FIFO in criteria and Criterion.LIFO in criteria:
            raise InvalidArgumentError(f"the queue order {text!r} has both fifo and lifo", hint="Keep one of them.")
        if any(criterion in (Criterion.FIFO, Criterion.LIFO) for criterion in criteria[:-1]):
            raise InvalidArgumentError(f"in the queue order {text!r} fifo or lifo must be last")
        return cls(tuple(criteria))

    def __str__(self) -> str:
        return ",".join(criterion.value for criterion in self.criteria)

    def key(self, *, priority: int, available_at: int, expires_at: int | None, sequence: int) -> bytes:
        """Return the ordinary key of a message; times in microseconds, `expires_at` None comes after all others."""
        if self.criteria == _FIFO:
            return _ORDINARY + sequence.to_bytes(8) + LAST
        head = self.head(priority=priority, available_at=available_at, expires_at=expires_at)
        return ordinary_key(head, sequence, descends=self.descends)

    def head(self, *, priority: int, available_at: int, expires_at: int | None) -> bytes:
        """Return the part of an ordinary key before the sequence number, which may not be known yet."""
        return head_of(self.values, priority=priority, available_at=available_at, expires_at=expires_at)

    @property
    def values(self) -> tuple[str, ...]:
        """The criteria as plain data."""
        return tuple(criterion.value for criterion in self.criteria)

    @property
    def goes_by_times(self) -> bool:
        """Whether the place of a message depends on when it becomes available or expires."""
        return Criterion.TIME in self.criteria or Criterion.EXPIRATION in self.criteria

    @property
    def descends(self) -> bool:
        """Whether the sequence number in an ordinary key is inverted, so that the last one comes first."""
        return Criterion.LIFO in self.criteria

    @property
    def goes_by_age(self) -> bool:
        """Whether messages are in the order of their arrival, or its reverse, within each priority or overall."""
        return not self.goes_by_times

    def level(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the range of the keys of all messages that are ordered by age with one of an ordinary key."""
        start = key[: len(_ORDINARY) + (Criterion.PRIORITY in self.criteria)]
        return start, (int.from_bytes(start) + 1).to_bytes(len(start))

    def not_before(self, key: bytes) -> bytes:
        """Return the key of the message that the one with this key was put before, or the key itself."""
        fields = sum(_WIDTHS.get(criterion, 0) for criterion in self.criteria)
        return key[: len(_ORDINARY) + fields + _NUMBER] + LAST

    def sequence_in(self, key: bytes) -> int:
        """Return the sequence number that a key of this order was made with."""
        ordinal = int.from_bytes(key[-9:-1])
        ordinary = len(_ORDINARY) + sum(_WIDTHS.get(criterion, 0) for criterion in self.criteria) + 9
        inverted = len(key) == len(_TOP) + 9 if key.startswith(_TOP) else self.descends and len(key) == ordinary
        # A key before another one is longer, and always ascends.
        return SEQUENCE_TOP - ordinal if inverted else ordinal

    def moved(self, key: bytes, by: int) -> bytes:
        """Return a key of this order with `by`, which may be negative, added to every sequence number in it.

        So a message keeps its place among those whose keys are moved by the same. Raises InvalidArgumentError where a
        number would become negative.
        """
        on_top = key.startswith(_TOP)
        start = len(_TOP) if on_top else len(_ORDINARY) + sum(_WIDTHS.get(criterion, 0) for criterion in self.criteria)
        descends = on_top or self.descends
        try:
            moved = key[:start] + _added(key[start : start + _NUMBER], -by if descends else by)
            for number in range(start + _NUMBER + len(_BEFORE), len(key) - 1, len(_BEFORE) + _NUMBER):
                moved += _BEFORE + _added(key[number : number + _NUMBER], by)
        except OverflowError:
            raise InvalidArgumentError(f"an order key cannot be moved by {by}: a number in it is too small") from None
        return moved + LAST

    @property
    def plain_width(self) -> int | None:
        """The length in bytes of a key that ends in one ascending sequence number; None where it descends.

        One on top may be as long: it begins with a zero.
        """
        if self.descends:
            return None
        return len(_ORDINARY) + sum(_WIDTHS.get(criterion, 0) for criterion in self.criteria) + _NUMBER + len(LAST)

    def later(self, key: bytes, by_us: int) -> bytes:
        """Return a key of this order with all times in it moved by microseconds, as `times.moved` does."""
        if key.startswith(_TOP):
            return key
        at, later = len(_ORDINARY), key
        for criterion in self.criteria:
            width = _WIDTHS.get(criterion, 0)
            field = key[at : at + width]
            if width == _NUMBER and not (criterion is Criterion.EXPIRATION and field == _NO_EXPIRY):
                later = later[:at] + _moved(field, by_us) + later[at + width :]
            at += width
        return later

    def are_ordinary(self, keys: bytes, count: int) -> bool:
        """Return whether concatenated byte strings of one length are ordinary keys."""
        width = self._width
        return (
            len(keys) == width * count
            and keys[::width] == _ORDINARY * count
            and keys[width - 1 :: width] == LAST * count
        )

    def invalid(self, keys: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the byte strings that cannot be keys of this order."""
        width = self._width
        first, last = _ORDINARY[0], LAST[0]
        for key in keys:
            # Most are ordinary ones.
            if not (len(key) == width and key[0] == first and key[-1] == last) and not self.is_key(key):
                yield key

    @property
    def _width(self) -> int:
        """The length in bytes of an ordinary key."""
        return len(_ORDINARY) + sum(_WIDTHS.get(criterion, 0) for criterion in self.criteria) + _NUMBER + len(LAST)

    def is_key(self, key: bytes) -> bool:
        """Return whether a byte string can be a key of this order."""
        fields = 0 if key.startswith(_TOP) else sum(_WIDTHS.get(criterion, 0) for criterion in self.criteria)
        if key[:1] not in (_TOP, _ORDINARY) or key[-1:] != LAST:
            return False
        # After the first sequence number come those of messages that were put before that one.
        rest = key[1 + fields + 8 : -1]
        return len(key) >= 1 + fields + 9 and len(rest) % 9 == 0 and set(rest[::9]) <= set(_BEFORE)


def _added(number: bytes, by: int) -> bytes:
    return (int.from_bytes(number) + by).to_bytes(_NUMBER)


def _moved(field: bytes, by_us: int) -> bytes:
    return (times.moved(int.from_bytes(field) - _TIME_BIAS, by_us) + _TIME_BIAS).to_bytes(_NUMBER)


_WIDTHS = {Criterion.PRIORITY: 1, Criterion.TIME: 8, Criterion.EXPIRATION: 8}


def head_of(criteria: Sequence[str], *, priority: int, available_at: int, expires_at: int | None) -> bytes:
    """Return what `QueueOrder.head` does, of an order by the values of its criteria."""
    fields = _ORDINARY
    for criterion in criteria:
        if criterion == "priority":
            fields += (255 - priority).to_bytes(1)
        elif criterion == "time":
            fields += (available_at + _TIME_BIAS).to_bytes(8)
        elif criterion == "expiration":
            fields += _NO_EXPIRY if expires_at is None else (expires_at + _TIME_BIAS).to_bytes(8)
    return fields


def ordinary_key(head: bytes, sequence: int, *, descends: bool) -> bytes:
    """Return the ordinary key that begins with `head`; `descends` as in the order of the queue."""
    return head + (SEQUENCE_TOP - sequence if descends else sequence).to_bytes(8) + LAST


def rank(key: object) -> bytes:
    """Return what a key is sorted by; what a damaged file has in the place of one comes first, as in the file."""
    return key if isinstance(key, bytes) else b""


def head_on_top() -> tuple[bytes, bool]:
    """Return the arguments of `ordinary_key` for a key before every other one; a later sequence number comes first."""
    return _TOP, True


def key_on_top(sequence: int) -> bytes:
    """Return a key before every other one of the queue; a later sequence number comes first."""
    head, descends = head_on_top()
    return ordinary_key(head, sequence, descends=descends)


def head_before(successor: bytes) -> tuple[bytes, bool]:
    """Return the arguments of `ordinary_key` for a key before another; the earlier sequence number comes first."""
    return successor[:-1] + _BEFORE, False


def key_before(successor: bytes, sequence: int) -> bytes:
    """Return a key directly before `successor`; among several, the earlier sequence number comes first."""
    head, descends = head_before(successor)
    return ordinary_key(head, sequence, descends=descends)


class OutOfOrder(enum.Flag):
    """The exceptions to the order that an enqueue may ask for."""

    NONE = 0
    TOP = 1
    MSGID = 2

    @classmethod
    def parse(cls, text: str) -> OutOfOrder:
        """Read `none`, or a comma list of `top` and `msgid`; empty means `none`."""
        granted = cls.NONE
        words = [word.strip().lower() for word in text.split(",")] if text.strip() else ["none"]
        for word in words:
            if word not in ("none", "top", "msgid") or (word == "none" and len(words) > 1):
                raise InvalidArgumentError(
                    f"the out-of-ordering {text!r} is not none, top, msgid or top,msgid",
                )
            granted |= cls[word.upper()]
        return granted

    def __str__(self) -> str:
        return ",".join(flag.name.lower() for flag in OutOfOrder if flag in self and flag.name) or "none"


def _criterion(word: str, text: str) -> Criterion:
    try:
        return Criterion(_ALIASES.get(word, word))
    except ValueError:
        raise InvalidArgumentError(
            f"the queue order {text!r} has the unknown criterion {word!r}",
            hint="The criteria are priority, time, expiration, fifo and lifo.",
        ) from None
