"""The keys of the services file: each is declared once, as a field of the dataclass of its kind of service.

What is checked, what a message says and what the manual lists is all taken from the declaration.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from qmcore import times

_METADATA: Final = "key"
_SHOWN_MAX: Final = 60

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What the name of an HTTP header may be."""


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What the value of a key may be: in words, and as a question. A `secret` value is never shown.

    `read` makes the value of what the file has.
    """

    allowed: str
    allows: Callable[[Any], bool]
    secret: bool = False
    read: Callable[[Any], Any] = lambda value: value


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A key of a service: its name, what its value may be, and what it means.

    `default` is what holds without it; a key that is `required` has none. `default_help` describes a default that
    says nothing by itself.
    """

    name: str
    form: Form
    help: str
    default: Any
    required: bool
    default_help: str


def key(form: Form, help: str, *, default_help: str = "", **default: Any) -> Any:  # noqa: A002 - as click names it
    """Declare a key as a field of a dataclass; `default` is what holds without the key, which else is required."""
    declared = {"form": form, "help": help, "default_help": default_help}
    return dataclasses.field(**default, repr=not form.secret, metadata={_METADATA: declared})


def keys_of(kind: type) -> dict[str, Key]:
    """Return the keys of a kind of service by name, in the order of their declaration."""
    return {
        field.name: Key(
            name=field.name,
            default=None if field.default is dataclasses.MISSING else field.default,
            required=field.default is dataclasses.MISSING,
            **field.metadata[_METADATA],
        )
        for field in dataclasses.fields(kind)
        if _METADATA in field.metadata
    }


def shown(form: Form, value: object) -> str:
    """Return a value for a message: shortened, and not at all where it may be a secret."""
    if form.secret:
        return f"a {type(value).__name__}" if not isinstance(value, dict) else "another one"
    from qmcore.redacted import redacted

    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(redacted(value) if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


# ---- forms ----


def whole_number(low: int, high: int) -> Form:
    """Return the form of a whole number in a range."""
    return Form(f"a whole number from {low} to {high}", lambda value: _is_whole(value, low, high))


def seconds(high: int) -> Form:
    """Return the form of a number of seconds, also a part of one, or of text with its unit, such as `10m`."""
    return Form(
        f"a number of seconds above 0, at most {high}, or a text such as '10m'",
        lambda value: _is_number(value) and math.isfinite(value) and 0 < value <= high,
        read=_in_seconds,
    )


def _in_seconds(value: object) -> object:
    seconds = times.in_seconds(value) if isinstance(value, str) else value
    return value if seconds == value else float(str(seconds))


def one_of(*choices: str) -> Form:
    """Return the form of one of several words."""
    return Form(f"one of {', '.join(choices)}", lambda value: value in choices)


def words(example: str) -> Form:
    """Return the form of a list of text, the first word of which is not empty."""
    return Form(
        f"a list of text such as {example}",
        lambda value: isinstance(value, list) and bool(value) and bool(value[0]) and all(map(is_text, value)),
    )


def table(example: str, is_name: Callable[[str], bool], *, is_value: Callable[[object], bool] | None = None) -> Form:
    """Return the form of a table of names and texts, which may hold a secret."""
    check = is_value or is_text
    return Form(
        f"a table of text such as {example}",
        lambda value: isinstance(value, dict) and all(is_name(name) and check(text) for name, text in value.items()),
        secret=True,
    )


def is_text(value: object) -> bool:
    """Tell whether a value is a text that a program can be given."""
    return isinstance(value, str) and "\0" not in value


def is_line(value: object) -> bool:
    """Tell whether a value is a text of one line."""
    return isinstance(value, str) and all(ord(char) >= 32 and ord(char) != 127 for char in value)


def is_token(value: object) -> bool:
    """Tell whether a value can be the name of an HTTP header."""
    return isinstance(value, str) and TOKEN.fullmatch(value) is not None


def _is_function(value: object) -> bool:
    if not isinstance(value, str):
        return False
    module, colon, path = value.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))


def _is_statuses(value: object) -> bool:
    return isinstance(value, list) and all(_is_whole(status, 300, 599) for status in value)


def _is_whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name(what: str) -> Form:
    return Form(f"the name of {what}", lambda value: is_line(value) and bool(value))


FILE: Final = _name("a file")
DIRECTORY: Final = _name("a directory")
VARIABLE: Final = _name("an environment variable")
USER: Final = _name("a user")
FUNCTION: Final = Form("of the form 'module:function'", _is_function)
STATUSES: Final = Form("a list of statuses from 300 to 599", _is_statuses)
HEADER_NAMES: Final = Form(
    'a list of names of headers such as ["content-type"]',
    lambda value: isinstance(value, list) and all(map(is_token, value)),
)
HTTP_METHOD: Final = Form("the name of an HTTP method such as POST", is_token)
URL: Final = Form(
    "an address that begins with http:// or https://, without a user or password",
    lambda value: is_line(value) and _is_url(value),
    secret=True,
)


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return usable and parts.username is None and parts.password is None and " " not in text and text.isascii()


def meant(word: object, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """Return what a misspelt word may have been, as the end of a sentence; empty where nothing is near."""
    from difflib import get_close_matches

    near = get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
