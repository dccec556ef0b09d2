"""Random numbers that nobody else draws. The module `secrets` would load OpenSSL at every start."""

from __future__ import annotations

import os


def random_number() -> int:
    """Return a number of 62 bits, which fits into a column of every store with its sign."""
    return int.from_bytes(os.urandom(8)) >> 2
