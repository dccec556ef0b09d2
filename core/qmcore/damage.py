"""A message whose record is missing or cannot be read: the diagnostic for it, wherever it is found."""

from __future__ import annotations

from typing import Final

from qmcore import numbers
from qmcore.errors import QueueError, SystemFailureError

NO_RECORD: Final = "its queue has a place for it, but its record is missing"
"""What is wrong with a message of which only its place is left."""

DAMAGE_HINT: Final = (
    "Other messages are not affected: qchangequeue moves them, and qpurge -d removes the damaged ones of a queue."
    " qcheck counts those; a backup may contain them."
)


def damaged(number: object, what: str, *, msgid: str = "", queue: str = "") -> SystemFailureError:
    """Return the diagnostic for the message with this number; `msgid` and `queue` name it where they are known."""
    sequence = numbers.sequence(number) if isinstance(number, int) else number
    whose = repr(msgid) if msgid else f"with the sequence number {sequence!r}"
    where = f" of queue {queue!r}" if queue else ""
    sentence = f"the message {whose}{where} is damaged: {what}"
    return SystemFailureError(sentence, hint=DAMAGE_HINT, is_damage=True, is_recorded=what != NO_RECORD, damaged=number)


def left_out(count: int, queue: str) -> str:
    """Return the sentence about damaged messages that a listing leaves out."""
    many = "1 message" if count == 1 else f"{count} messages"
    return f"{many} of queue {queue!r} {'is' if count == 1 else 'are'} damaged and left out"


def is_damage(error: QueueError) -> bool:
    """Return whether an error is about one damaged message, so that everything else can go on."""
    return isinstance(error, SystemFailureError) and error.is_damage


def has_no_record(error: QueueError) -> bool:
    """Return whether an error is about a message of which there is no record, which may just have been consumed."""
    return isinstance(error, SystemFailureError) and not error.is_recorded
