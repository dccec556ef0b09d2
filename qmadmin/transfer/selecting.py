"""What of a device, or of an archive, is to be carried."""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qmadmin.archive.manifest import Content
from qmcore.checks import keep_int
from qmcore.errors import BadQueueError, BadResourceError, InvalidArgumentError
from qmcore.message import State
from qmcore.space import NUMBER_MAX
from qmcore.times import MICROS

if TYPE_CHECKING:
    from qmcore.condition import Condition


class Outstanding(enum.Enum):
    """What becomes of messages that open transactions have dequeued or locked when the snapshot is made."""

    REFUSE = "refuse"
    """Nothing is exported while a transaction has any."""
    LEAVE_OUT = "leave-out"
    """They are not carried, as if the transactions had committed."""
    ROLLED_BACK = "as-rolled-back"
    """They are carried in their places, as if the transactions had rolled back."""


DEFAULT_STATES = (State.READY, State.DELAYED, State.HELD, State.CONSUMED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is to be carried. `spaces` and `queues` are patterns as of file names; several are alternatives.

    `states` are those of the messages. `condition` is one of the filter language. `older` and `newer` are seconds:
    only messages that were enqueued at least, or at most, so long before the snapshot. `count` is how many of each
    queue at most, in the order in which they would be dequeued.
    """

    spaces: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    states: tuple[State, ...] = DEFAULT_STATES
    condition: str = ""
    older: float | None = None
    newer: float | None = None
    count: int | None = None
    content: Content = Content.ALL

    def __post_init__(self) -> None:
        if self.count is not None:
            keep_int(self, "count", "number of messages of each queue", 1, NUMBER_MAX)
        for seconds, what in ((self.older, "least"), (self.newer, "largest")):
            if seconds is not None and seconds < 0:
                raise InvalidArgumentError(f"the {what} age of messages must be 0 seconds or more, got {seconds:g}")
        if not self.states:
            raise InvalidArgumentError("no state of messages is selected", hint="Name one, or omit the option.")

    def has_space(self, name: str) -> bool:
        """Tell whether a queue space is selected."""
        return _matches(name, self.spaces)

    def has_queue(self, name: str) -> bool:
        """Tell whether a queue of a selected queue space is selected."""
        return _matches(name, self.queues)

    def chosen_spaces(self, names: Iterable[str], whose: str) -> list[str]:
        """Return those queue spaces that are selected; refuse where a pattern selects none."""
        known = sorted(names)
        for pattern in self.spaces:
            if pattern != "*" and not any(fnmatch.fnmatchcase(name, pattern) for name in known):
                raise BadResourceError(
                    f"{whose} has no queue space {pattern!r}", hint=f"It has {_listed(known)}.", space=pattern
                )
        return [name for name in known if self.has_space(name)]

    def refuse_unmatched(self, names: Iterable[str], whose: str) -> None:
        """Refuse where a pattern selects none of these queues."""
        known = sorted(set(names))
        for pattern in self.queues:
            if pattern != "*" and not any(fnmatch.fnmatchcase(name, pattern) for name in known):
                raise BadQueueError(
                    f"no selected queue space of {whose} has a queue {pattern!r}",
                    hint=f"There is {_listed(known)}." if known else "",
                    queue=pattern,
                )

    def whole_condition(self, now_us: int) -> Condition | None:
        """Return the condition that says all that is asked of a message but its queue and its state."""
        from qmcore.condition import Operator, all_of, compared
        from qmcore.condition_parser import parse

        parts: list[Condition] = [parse(self.condition)] if self.condition else []
        if self.older is not None:
            parts.append(compared("enqueued_at", Operator.AT_MOST, now_us - round(self.older * MICROS)))
        if self.newer is not None:
            parts.append(compared("enqueued_at", Operator.AT_LEAST, now_us - round(self.newer * MICROS)))
        return all_of(parts)

    @property
    def carried_states(self) -> tuple[State, ...]:
        """The states of messages that are carried; none where only definitions are."""
        return () if self.content is Content.DEFINITIONS else self.states

    @property
    def picks(self) -> bool:
        """Whether it takes a look at each message to tell whether it is selected."""
        return bool(self.condition) or (self.older, self.newer, self.count) != (None, None, None)

    def said(self) -> dict[str, Any]:
        """Return what is asked for, as the manifest of an archive tells it; only what differs from everything."""
        everything = Selection()
        asked: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != getattr(everything, field.name):
                asked[field.name] = _plain(value)
        return asked


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "none"


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
