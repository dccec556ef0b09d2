"""The number of a message in its volume: its queue space's number and 48 bits of sequence number."""

from __future__ import annotations

SEQUENCE_BITS = 48
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1


def number(space_id: int, sequence: int) -> int:
    """Return the number in the volume of message `sequence` of a queue space."""
    return space_id << SEQUENCE_BITS | sequence


def sequence(number: int) -> int:
    """Return the sequence number in a message's number."""
    return number & SEQUENCE_MAX
