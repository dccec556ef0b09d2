"""A schedule: a message that is enqueued again and again, and when. What its rule means is known above the engine."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

from qmcore import names, times
from qmcore.errors import InvalidArgumentError
from qmcore.message import PLAIN_CONTROL, EnqueueControl
from qmcore.values import dataclass

BODY_MAX: Final = 1024 * 1024
"""Bytes of the body of a schedule's message, at most."""

NAME_HEADER: Final = "schedule"
MOMENT_HEADER: Final = "scheduled_at"
"""The headers of each message of a schedule: its name, and the due moment in ISO 8601, in UTC."""

_FIXED_TIMES = ("available_us", "expires_us", "before")


class Missed(enum.Enum):
    """What is made of due moments for which no message could be made in time."""

    ONCE = "once"
    """One message stands for all of them."""
    SKIP = "skip"
    """None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule of a queue space. Times ending in `_us` are microseconds since 1970, UTC.

    `rule` and `timezone` say when a message comes to `queue`, `body` and `control` what message. An interval counts
    from `counted_from_us`. `next_us` is the next due moment; None where it is paused or there is none. `last_us` is the
    due moment of the last message that was made, and `last_msgid` the identifier of that message.
    """

    name: str
    queue: str
    rule: str
    timezone: str = "UTC"
    missed: Missed = Missed.ONCE
    paused: bool = False
    body: bytes | None = dataclasses.field(default=None, repr=False)
    control: EnqueueControl = PLAIN_CONTROL
    counted_from_us: int = 0
    next_us: int | None = None
    created_us: int = 0
    last_us: int | None = None
    last_msgid: str | None = None

    def __post_init__(self) -> None:
        names.schedule_name(self.name)
        names.queue_name(self.queue)
        names.rule(self.rule)
        names.rule(self.timezone, "time zone")
        if self.body is not None and len(self.body) > BODY_MAX:
            raise InvalidArgumentError(
                f"the body for schedule {self.name!r} has {len(self.body)} bytes, the limit is {BODY_MAX}",
                hint="Let the message name where the content is.",
            )
        self._check_control()

    def _check_control(self) -> None:
        if any(getattr(self.control, field) is not None for field in _FIXED_TIMES):
            raise InvalidArgumentError(
                f"each message of schedule {self.name!r} needs times of its own, and no place before another message",
                hint="Give a delay, or an expiry in seconds.",
            )
        for header in (NAME_HEADER, MOMENT_HEADER):
            if header in (self.control.headers or {}):
                raise InvalidArgumentError(
                    f"header {header!r} is set by schedule {self.name!r} itself", hint="Name the header differently."
                )

    @property
    def next_at(self) -> datetime | None:
        """The next due moment (UTC); None where it is paused or there is none."""
        return None if self.next_us is None else times.to_datetime(self.next_us)

    @property
    def last_at(self) -> datetime | None:
        """The due moment of the last message that was made (UTC)."""
        return None if self.last_us is None else times.to_datetime(self.last_us)

    @property
    def created_at(self) -> datetime:
        """When it was created (UTC)."""
        return times.to_datetime(self.created_us)

    def control_at(self, due_us: int) -> EnqueueControl:
        """Return the control information of the message for a due moment."""
        own = {NAME_HEADER: self.name, MOMENT_HEADER: times.to_datetime(due_us).isoformat()}
        headers: Mapping[str, str] = {**(self.control.headers or {}), **own}
        return dataclasses.replace(self.control, headers=headers)


Following: TypeAlias = Callable[[Schedule, int], int | None]
"""Returns the first due moment of a schedule after a time, both in microseconds; None where there is none.

Raises InvalidArgumentError for a rule or a time zone that it cannot read.
"""
