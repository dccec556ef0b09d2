"""Bodies that are JSON (RFC 8259, in UTF-8): written from values of Python, and read again.

What other programs could not read is not written, and not read either: NaN, infinity, keys that are no text, lone
surrogates, more than 256 levels. The library does the work in one pass; the place of a fault is looked for after it.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from itertools import accumulate, chain
from typing import Any, Final, NoReturn, TypeAlias

from qmcore.errors import BodyError, InvalidArgumentError

NESTED_MAX: Final = 256
"""Levels of lists and objects in one another that a body may have."""

_RECURSION_MAX: Final = 10_000
_SHOWN_MAX: Final = 100
_LEAF: Final = (str, int, float, type(None))
_USUAL_LEAVES: Final = frozenset((*_LEAF, bool))
_OF_NESTING: Final = b'"[]{}'
_ALL_ELSE: Final = bytes(set(range(256)) - set(_OF_NESTING))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character, escaped; the other half may follow."""
_HINT: Final = "The attribute body has its bytes."

Place: TypeAlias = "tuple[Place, str | int] | None"
"""Where a value stands: the place of what it is in, and its key or index; None is the body itself."""

Replace: TypeAlias = "Callable[[object, Place], object]"
"""Returns, for a value that JSON does not have, one that it has; raises InvalidArgumentError if there is none."""


def place_in_words(place: Place, whole: str = "body") -> str:
    """Return where a value stands, such as `the body's ["lines"][3]`, shortened where it is deep."""
    steps = []
    while place is not None:
        place, step = place
        steps.append(f"[{json.dumps(step)}]")
    if not steps:
        return f"the {whole}"
    path = "".join(reversed(steps))
    return f"the {whole}'s {path if len(path) <= _SHOWN_MAX else path[: _SHOWN_MAX - 3] + '...'}"


# ---- writing ---------------------------------------------------------------------------------------------------------

_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def written(value: object, replace: Replace) -> bytes:
    """Return a value as JSON: dict, list, tuple, str, int, float, bool, None; `replace` is asked for any other.

    Raises InvalidArgumentError, which names the place, for what JSON does not have, for a value that contains itself,
    and for one of more levels than a body may have.
    """
    # Where the limit was raised, the library might go deeper than the stack of the machine before anybody looks.
    if sys.getrecursionlimit() <= _RECURSION_MAX:
        try:
            text = _encode(value)
            if not (_OF_NO_TEXT.search(text) or text.count("[") + text.count("{") > NESTED_MAX) or _is_sound(value):
                return text.encode()
        except (TypeError, ValueError, RecursionError):
            # Another type, NaN, a surrogate, a cycle, or too deep: the search says which, and where.
            pass
    return _encode(_plain(value, replace, None, {})).encode()


_OF_NO_TEXT: Final = re.compile(r'"(?:[-+.0-9e]+|true|false|null)":')
"""What the library makes of a key that is no text, without asking; a text may look the same."""


def _is_sound(value: Any) -> bool:
    """Return whether a value that the library has written has keys of text only, and not too many levels."""
    level = [value]
    for _ in range(NESTED_MAX):
        objects = [each for each in level if isinstance(each, dict)]
        # It raises TypeError for a key that is not a str.
        "".join(chain.from_iterable(objects))
        below = list(chain.from_iterable(map(dict.values, objects)))
        if len(objects) != len(level):
            below.extend(chain.from_iterable(each for each in level if isinstance(each, (list, tuple))))
        if _USUAL_LEAVES.issuperset(map(type, below)):
            return True
        level = [each for each in below if each.__class__ not in _USUAL_LEAVES]
    return False


def _plain(value: object, replace: Replace, place: Place, around: dict[int, object]) -> object:
    """Return a value with all that JSON does not have replaced; `around` is what it is in, by identity."""
    entered = []
    while not isinstance(value, _LEAF):
        _refuse_around(value, place, around)
        around[id(value)] = value
        entered.append(id(value))
        if isinstance(value, (dict, list, tuple)):
            break
        value = replace(value, place)
    # Loops, and no function for each: a call of its own for each level is what the stack has room for.
    found: object = value
    if isinstance(value, dict):
        found = made = {}
        for key, each in value.items():
            _check_key(key, place)
            made[key] = _plain(each, replace, (place, key), around)
    elif isinstance(value, (list, tuple)):
        found = each_made = []
        for index, each in enumerate(value):
            each_made.append(_plain(each, replace, (place, index), around))
    else:
        _check_leaf(value, place)
    for identity in entered:
        del around[identity]
    return found


def _refuse_around(value: object, place: Place, around: Mapping[int, object]) -> None:
    """Refuse a value that is part of itself, and one that is too deep; what is replaced is no level of its own."""
    if id(value) in around:
        raise InvalidArgumentError(
            f"{place_in_words(place)} is a value that contains it, and JSON has no references",
            hint="Send an identifier in its place.",
        )
    levels = 0
    if len(around) >= NESTED_MAX:
        levels = sum(isinstance(each, (dict, list, tuple)) for each in around.values())
    if levels >= NESTED_MAX or len(around) >= 2 * NESTED_MAX:
        raise InvalidArgumentError(
            f"{place_in_words(place)} is more than {NESTED_MAX} levels deep, which is the limit of a body",
            hint="Send it flatter, or as a text of your own.",
        )


def _check_leaf(value: object, place: Place) -> None:
    if isinstance(value, str):
        _check_text(value, place)
    elif isinstance(value, int):
        try:
            int.__repr__(value)
        except ValueError:
            raise InvalidArgumentError(
                f"{place_in_words(place)} is {_too_long()}",
                hint="Send it as a text, for example of hexadecimal digits.",
            ) from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgumentError(
            f"{place_in_words(place)} is {json.dumps(value)}, which JSON does not have",
            hint="Leave it out, or send None or a text in its place.",
        )


def _too_long() -> str:
    return f"a whole number of more than {sys.get_int_max_str_digits()} digits"


def _check_text(text: str, place: Place) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{place_in_words(place)} has no UTF-8 form: {error.reason} at {error.start}",
            hint="Decode what it was made of in another way, or send bytes.",
        ) from None


def _check_key(key: object, place: Place) -> None:
    if not isinstance(key, str):
        raise InvalidArgumentError(
            f"{place_in_words(place)} has the key {key!r:.60}, and a key of JSON is a text",
            hint="Make it a str, and what it was again where it is read.",
        )
    _check_text(key, (place, key))


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(body: bytes | None, msgid: str) -> Any:
    """Return the value of a body that is JSON; BodyError, which names the message, for one that is not."""
    if body is None:
        raise BodyError(f"message {msgid} has no body", msgid=msgid)
    refuse_depth(body, msgid)
    try:
        text = body.decode()
        value = _decode(text)
        if _HALF.search(text):
            _plain(value, _as_it_is, None, {})
    except json.JSONDecodeError as error:
        raise _no_json(msgid, f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise _no_json(msgid, f"it is not UTF-8 at byte {error.start}") from None
    except InvalidArgumentError as error:
        raise _no_json(msgid, error.message) from None
    except ValueError:
        raise _no_json(msgid, f"it has {_too_long()}") from None
    return value


def _no_json(msgid: str, why: str) -> BodyError:
    return BodyError(f"the body of message {msgid} is not JSON: {why}", msgid=msgid, hint=_HINT)


def refuse_depth(body: bytes, msgid: str) -> None:
    """Refuse a body of more levels than one may have before the library, which calls itself for each, reads it."""
    if body.count(b"[") + body.count(b"{") <= NESTED_MAX:
        return
    if b"\\" in body:
        body = re.sub(rb"\\.", b"", body, flags=re.DOTALL)
    outside = b"".join(body.translate(None, _ALL_ELSE).split(b'"')[::2])
    if max(accumulate(step - 1 for step in outside.translate(_STEPS)), default=0) > NESTED_MAX:
        raise BodyError(
            f"the body of message {msgid} is more than {NESTED_MAX} levels deep, which is the limit",
            msgid=msgid,
            hint=_HINT,
        )


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidArgumentError(f"it has the number {text:.60}, which is out of range")
    return number


def _no_constant(name: str) -> NoReturn:
    raise InvalidArgumentError(f"it has {name}")


def _as_it_is(value: object, _place: Place) -> object:
    return value


_decode: Final = json.JSONDecoder(parse_float=_float, parse_constant=_no_constant).decode
