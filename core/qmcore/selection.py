"""Which message of a queue is wanted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from qmcore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from qmcore.condition import Condition


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """What a consumer asks for; without anything, the first message in the order of the queue.

    At most one of: a message identifier, a correlation identifier, a pattern of it (`%` any bytes, `_` one, a
    backslash before what is meant itself), a condition. Of several that fit, the first in the order is meant.
    """

    msgid: str | None = None
    corrid: bytes | None = None
    corrid_like: str | None = None
    condition: Condition | None = None

    def __post_init__(self) -> None:
        given = [name for name in self.__slots__ if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidArgumentError(f"a message is asked for by one thing, not by {' and '.join(given)}")


FIRST = Selection()


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A selection as a store understands it: the message's number instead of its identifier."""

    message_id: int | None = None
    corrid: bytes | None = None
    corrid_like: str | None = None
    condition: Condition | None = None


FIRST_CHOICE = Choice()
