"""Numbers of what stands in a volume.

That of a message is its queue space's number and 48 bits of sequence number; those of owners, transactions and changes
are random.
"""

from __future__ import annotations

import os

SEQUENCE_BITS = 48
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1


def number(space_id: int, sequence: int) -> int:
    """Return the number in the volume of message `sequence` of a queue space."""
    return space_id << SEQUENCE_BITS | sequence


def sequence(number: int) -> int:
    """Return the sequence number in a message's number."""
    return number & SEQUENCE_MAX


def random_number() -> int:
    """Return a number of 62 bits that nobody else draws, which fits into a column of every store with its sign."""
    # The module `secrets` would load OpenSSL at every start.
    return int.from_bytes(os.urandom(8)) >> 2
