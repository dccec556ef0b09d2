"""Why a store has done nothing of what it was asked to do to messages: a value, which can be packed."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Reason(enum.IntEnum):
    """Why a store has done nothing."""

    STALE = 0
    """The definitions are those of another generation."""
    MESSAGES = 1
    PAGES = 2
    MEMORY = 3
    """The limits of the queue space."""
    NO_MEMORY = 4
    """The memory of the queue space cannot take part in this."""
    NO_SUCH_MESSAGE = 5
    """The message that another was to stand before is not there."""
    DAMAGED = 6
    """A message cannot be read."""
    GIVEN_UP = 7
    """Others have rolled the transaction back."""
    TRANSACTIONS = 8
    """The limit of the queue space."""
    LOST = 9
    """The store lacks something that the transaction had taken or spilled."""
    GONE = 10
    """A message is not where it was looked at, which is found out as it is done."""
    XID = 11
    """Another transaction has the identifier."""
    LATE = 12
    """A distributed transaction is too old to be decided."""
    SET_BACK = 13
    """Decisions are gone that were there: an earlier state of the store was restored."""


class Refused(NamedTuple):
    """Nothing was done. Of a limit it says how much was in use, the limit, and what was wanted.

    Of NO_SUCH_MESSAGE and DAMAGED `used` is the number of the queue, `wanted` that of the message, and `what` says what
    is wrong with it. `command` says which of several was refused.
    """

    reason: Reason
    used: int = 0
    limit: int = 0
    wanted: int = 0
    what: str = ""
    command: int = 0


STALE = Refused(Reason.STALE)
