"""What a work is for: the one word that says what its store promises for it."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Promise(NamedTuple):
    """What a store promises for a work, beside that all of it is done or nothing."""

    durable: bool = False
    """When the call returns, the commit is on the disk."""
    alone: bool = False
    """Nobody else writes meanwhile: what it has read is still so when it acts on it."""
    patient: bool = False
    """Where there is one writer at a time, others go first who wait for it, though not for ever."""
    again: bool = False
    """It may be done twice: where nobody can tell whether it was committed, it is done again."""


class Purpose(enum.Enum):
    """What a work is for.

    Works that are not alone may be done at the same time, and what they have read may be outdated when they act. That
    is right for messages, each of which belongs to whoever has taken it out of its state.
    """

    MESSAGES = Promise(durable=True)
    """Messages arrive, go, or are moved, and a transaction commits."""
    HOLDING = Promise()
    """A process gets what it loses when it dies: messages that a transaction holds, numbers, its attachment."""
    TIDY = Promise(again=True)
    """What anybody who comes next would do as well: release, expire, roll back, take a wait back."""
    BULK = Promise(patient=True, again=True)
    """A batch of messages is loaded that nobody sees yet, one of many."""
    STAGE = Promise(durable=True, alone=True, patient=True, again=True)
    """An import goes on to its next stage, or on within it."""
    FOLLOWING = Promise(alone=True, again=True)
    """Memory does what the disk says."""
    ADMINISTRATION = Promise(durable=True, alone=True)
    """An administrator changes definitions, devices, or what others have left; it looks, and then acts."""

    def __init__(self, durable: bool, alone: bool, patient: bool, again: bool) -> None:
        self.durable = durable
        self.alone = alone
        self.patient = patient
        self.again = again
