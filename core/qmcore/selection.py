"""The selection of a message of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmcore.errors import InvalidArgumentError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.condition import Condition
    from qmcore.space import Space


@dataclass(frozen=True, slots=True)
class Selection:
    """What a consumer asks for; by default, the first message in the order of the queue.

    At most one of: a message identifier, a correlation identifier, a pattern of it (`%` any bytes, `_` one, a backslash
    escapes), a condition. If several match, the first in the order is selected.
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


@dataclass(frozen=True, slots=True)
class Choice:
    """A selection for a store: with the message's number instead of its identifier.

    A pattern or a condition comes with the queue space by which it reads identifiers.
    """

    message_id: int | None = None
    corrid: bytes | None = None
    corrid_like: str | None = None
    condition: Condition | None = None
    space: Space | None = None


FIRST_CHOICE = Choice()
