"""Which messages of the current queue are selected."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qmadmin.console.escapes import escaped
from qmadmin.shell import words

if TYPE_CHECKING:
    from qmcore.condition import Condition
    from qmcore.message import MessageInfo
    from qmcore.queue import Delivery


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """The values from `low` to `high`, both among them, and how they were written."""

    low: int
    high: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Criteria:
    """What selected messages have in common; None asks for nothing. Times are microseconds since 1970, UTC."""

    available: Range | None = None
    priority: Range | None = None
    msgid: str | None = None
    corrid: bytes | None = None
    delivery: Delivery | None = None
    expires: Range | None = None
    condition: Condition | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) is not None for field in dataclasses.fields(self))

    def __str__(self) -> str:
        return " ".join(f"{flag} {words.quote(text)}" for flag, text in self.options())

    def options(self) -> Iterator[tuple[str, str]]:
        """Yield the options of qscan that set these criteria."""
        for flag, asked in (("-t", self.available), ("-p", self.priority)):
            if asked is not None:
                yield flag, asked.text
        if self.msgid is not None:
            yield "-m", self.msgid
        if self.corrid is not None:
            yield "-i", escaped(self.corrid)
        if self.delivery is not None:
            yield "-d", self.delivery.value
        if self.expires is not None:
            yield "-e", self.expires.text
        if self.condition is not None:
            yield "-w", str(self.condition)

    @property
    def whole(self) -> Condition | None:
        """The condition that says all of this but the delivery."""
        from qmcore.condition import BY_NAME, Between, Operator, all_of, available, compared

        parts: list[Condition] = []
        if self.available is not None:
            parts.append(available(Operator.AT_LEAST, self.available.low))
            parts.append(available(Operator.AT_MOST, self.available.high))
        for name, asked in (("priority", self.priority), ("expires_at", self.expires)):
            if asked is not None:
                parts.append(Between(BY_NAME[name], asked.low, asked.high))
        if self.msgid is not None:
            parts.append(compared("msgid", Operator.EQUAL, self.msgid))
        if self.corrid is not None:
            parts.append(compared("corrid", Operator.EQUAL, self.corrid))
        if self.condition is not None:
            parts.append(self.condition)
        return all_of(parts)

    def has_delivery_of(self, message: MessageInfo) -> bool:
        """Return whether a message has the delivery that is asked for."""
        return self.delivery in (None, message.delivery)
