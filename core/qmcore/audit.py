"""The record of destructive acts: who did what, where, when, and the outcome."""

from __future__ import annotations

from datetime import datetime

from qmcore import times
from qmcore.names import storable
from qmcore.redacted import redacted
from qmcore.values import dataclass

KEPT = 10_000
"""How many entries a device keeps; the oldest are removed first."""

TEXT_MAX = 4_000
"""Characters of a command, an object or an outcome that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A destructive act. `id` grows with each entry; 0 is one that was not recorded.

    `command` is the line as it was given, or the call of a program; `target` is what it is about, such as "queue
    QS/q1". `outcome` is None until it is known: an act that stays without one was interrupted, or is still going on.
    """

    id: int
    at_us: int
    user: str
    uid: int
    host: str
    pid: int
    command: str
    target: str
    outcome: str | None = None

    @property
    def at(self) -> datetime:
        """When it began (UTC)."""
        return times.to_datetime(self.at_us)


def kept_text(text: str) -> str:
    """Return a text as it can be stored: without passwords, with what no store can keep escaped, not too long."""
    text = storable(redacted(text))
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."
