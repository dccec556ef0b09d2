"""The values in a JSON body that a condition can ask for, which mean the same here and in the SQL of each store.

A body is JSON here by RFC 8259, in UTF-8: without NaN and infinity, without halves of surrogate pairs, of at most
`NESTED_MAX` levels, and of at most `READ_MAX` bytes. Of members with the same name the last counts. The character
U+0000 reads as U+FFFD: PostgreSQL has no text with it, and no condition can be written that asks for it. Numbers are
compared by what their digits say, not as floating-point numbers.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final, NoReturn

from qmcore.condition import Truth
from qmcore.errors import BodyError
from qmcore.json_body import refuse_depth

TYPE: Final = "JSON"
"""The type of the messages whose bodies are read."""

READ_MAX: Final = 1024 * 1024
"""Bytes of the largest body that a condition reads."""

NUMBER_MAX: Final = 1000
"""Characters of the longest number that is compared; its exponent has at most three digits without leading zeros."""

INCOMPARABLE: Final = object()
"""A value that is there and compares with nothing: an object, a list, a number that is too long."""

_COMPARED: Final = re.compile(r"[-.0-9]+(?:[eE][+-]?0*[0-9]{1,3})?")
_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]")
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")


class _Number(str):
    """The digits of a number."""

    __slots__ = ()


class _NoJsonError(ValueError):
    """The body is not JSON."""


class BodyValues:
    """The values in one body; it is read when the first is asked for, and then once. None has no values."""

    __slots__ = ("_body", "_document", "_is_read")

    def __init__(self, body: bytes | None) -> None:
        self._body = body
        self._document: Any = None
        self._is_read = False

    @classmethod
    def of(cls, kind: str, size: int, body: bytes | None) -> BodyValues:
        """Return the values in the body of a message by its type and its size."""
        return cls(body if kind == TYPE and size <= READ_MAX else None)

    def at(self, steps: tuple[str | int, ...]) -> Any:
        """Return the str, Decimal or `Truth` at a path; None if nothing is there, or null; else `INCOMPARABLE`."""
        if not self._is_read:
            self._document, self._is_read = _document(self._body), True
        found = self._document
        for step in steps:
            if isinstance(step, str):
                found = found.get(step) if found.__class__ is dict else None
            else:
                found = found[step] if found.__class__ is list and step < len(found) else None
        match found:
            case None:
                return None
            case _Number():
                return Decimal(found) if len(found) <= NUMBER_MAX and _COMPARED.fullmatch(found) else INCOMPARABLE
            case str():
                return found
            case bool():
                return Truth.TRUE if found else Truth.FALSE
            case _:
                return INCOMPARABLE


def _document(body: bytes | None) -> Any:
    """Return a body as lists, objects and what is in them, with numbers as they are written; None if it is no JSON."""
    if not body:
        return None
    try:
        refuse_depth(body, "")
        text = body.decode()
        if "\\u" in text:
            text = _with_sound_escapes(text)
        return _decode(text)
    except (BodyError, ValueError):
        return None


def _with_sound_escapes(text: str) -> str:
    """Return JSON without the escaped U+0000; raise `_NoJsonError` for half of a surrogate pair."""
    # Without escaped backslashes each that is left begins an escape.
    text = text.replace("\\\\", "\\u005c").replace("\\u0000", "\\ufffd")
    if _HALF.search(_PAIR.sub("", text)):
        raise _NoJsonError
    return text


def _no_constant(_name: str) -> NoReturn:
    raise _NoJsonError


_decode: Final = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_no_constant).decode
