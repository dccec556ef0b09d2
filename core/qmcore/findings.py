"""What a doctor reports of a device: findings, and the faults of a store that some of them are about."""

from __future__ import annotations

import enum
import functools

from qmcore.values import dataclass


@functools.total_ordering
class Severity(enum.Enum):
    """How bad a finding is."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    def __lt__(self, other: Severity) -> bool:
        ranks = list(Severity)
        return ranks.index(self) < ranks.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was checked and what was found.

    `check` is a stable word for the kind of finding, such as "error-queue-missing"; `target` is the object, such as
    "queue QS/q1"; `sentence` says what was found, and `advice` what to do about it, if anything.
    """

    severity: Severity
    check: str
    target: str
    sentence: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """An inconsistency of a store: how many rows it concerns, and what is wrong with them."""

    sentence: str
    count: int = 1
