"""Numbers of things in sentences."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 call`, `2 calls`."""
    return f"{count} {what}{'' if count == 1 else 's'}"
