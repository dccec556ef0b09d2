"""The token of a suspended transaction: whoever has it can take the transaction over."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from qmcore.errors import InvalidArgumentError

_SECRET_BYTES: Final = 16
_PART: Final = "([0-9a-f]{16})([0-9a-f]{16})"
_TEXT: Final = re.compile(f"tx1-([0-9a-f]{{{2 * _SECRET_BYTES}}})((?:-[0-9a-f]{{32}})*)")
_SHOWN: Final = 100
"""Characters of a wrong text that are shown."""


class Token(NamedTuple):
    """What a suspended transaction is taken over by; `str` gives its text, which `Token.of` reads.

    `secret` is random, and another one each time that it is suspended. A part is the incarnation of a queue space, and
    the number of the transaction there.
    """

    secret: str
    parts: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return "".join((f"tx1-{self.secret}", *(f"-{incarnation}{number:016x}" for incarnation, number in self.parts)))

    @classmethod
    def new(cls, parts: Sequence[tuple[str, int]]) -> Token:
        """Return a token for a transaction that is suspended now."""
        return cls(os.urandom(_SECRET_BYTES).hex(), tuple(parts))

    @classmethod
    def of(cls, text: Any) -> Token:
        """Return the token with a text, or raise InvalidArgumentError."""
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            shown = text[:_SHOWN] if isinstance(text, str) else text
            raise InvalidArgumentError(
                f"{shown!r} is not the token of a suspended transaction",
                hint="It is the text that suspend returned, unchanged.",
            )
        secret, parts = found.groups()
        return cls(secret, tuple((name, int(number, 16)) for name, number in re.findall(_PART, parts)))
