"""The kinds of options of qmspark: each converts a text into a value, or refuses it with a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from qmcore import names, times
from qmcore.errors import QueueError
from qmcore.redacted import redacted

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    # Earlier releases of click cannot be told what is read.
    _Type = click.ParamType


class Text(_Type):
    """A text that a function converts; the function raises ValueError, or QueueError, for an invalid text."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value."""
        try:
            return self._read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        except QueueError as error:
            self.fail(error.message, param, ctx)


def _age(text: str) -> float:
    seconds = times.in_seconds(text)
    if re.fullmatch(r"\d{1,18}(?:\.\d{1,6})?", seconds, re.ASCII) is None:
        raise ValueError(f"{text!r} is not a span of time; give seconds, or a number with s, m, h or d behind it")
    return float(seconds)


AGE: Final = Text("age", _age)
"""A span of time: seconds, or a number followed by `s`, `m`, `h` or `d`."""


class Bounded(click.FloatRange):
    """A number between two others; NaN is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Shift(Bounded):
    """A span of time in either direction: seconds, or a number followed by `s`, `m`, `h` or `d`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        text = str(value)
        sign = text[:1] if text[:1] in ("-", "+") else ""
        return super().convert(sign + times.in_seconds(text.removeprefix(sign)), param, ctx)


def _condition(text: str) -> str:
    """Check a condition; return its text, which is parsed again later."""
    from qmcore.condition_parser import parse

    try:
        parse(text)
    except QueueError as error:
        raise ValueError(f"{error.message}. {error.hint}".removesuffix(" ")) from None
    return text


CONDITION: Final = Text("condition", _condition)
"""A condition of the filter language."""


def _space_renamed(text: str) -> tuple[str, str]:
    old, equals, new = text.rpartition("=")
    if not equals:
        raise ValueError(f"{text!r} is not of the form OLD=NEW")
    return names.space_name(old), names.space_name(new)


SPACE_RENAMED: Final = Text("names", _space_renamed)
"""The old and the new name of a queue space."""


def _queue_renamed(text: str) -> tuple[str, str]:
    old, equals, new = text.rpartition("=")
    if not equals or not old:
        raise ValueError(f"{text!r} is not of the form OLD=NEW or SPACE/OLD=NEW")
    return old, names.queue_name(new)


QUEUE_RENAMED: Final = Text("names", _queue_renamed)
"""The old and the new name of a queue, the old one perhaps with that of its queue space."""


class States(_Type):
    """States of messages, with commas between."""

    name = "states"

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the states."""
        found = tuple(str(value).split(","))
        for word in found:
            if word not in self.words:
                self.fail(f"{word!r} is not a state; there are {', '.join(self.words)}", param, ctx)
        return found

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Return the states that can follow what was typed."""
        del ctx, param
        begun, comma, last = incomplete.rpartition(",")
        return [
            click.shell_completion.CompletionItem(f"{begun}{comma}{word}")
            for word in self.words
            if word.startswith(last)
        ]


def _memory(text: str) -> str:
    if re.fullmatch(r"[1-9]\d{0,8}[kmgt]", text, re.ASCII) is None:
        raise ValueError(f"{text!r} is not a size of memory; give a number with k, m, g or t behind it")
    return text


MEMORY: Final = Text("size", _memory)
"""A size of memory, in the form of Spark."""


def _spark_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise ValueError(f"{text!r} is not of the form spark.NAME=VALUE")
    return name, value


SPARK_SETTING: Final = Text("setting", _spark_setting)
"""The name and the value of a setting of Spark."""

_EMPTY: Final = "an empty word names nothing; give a name, or leave it out"


def _master(text: str) -> str:
    if not text:
        raise ValueError(_EMPTY)
    return text


MASTER: Final = Text("master", _master)
"""The master of Spark."""


class Named(click.Path):
    """A path or an address; an empty word is refused, and does not count as omitted."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word as click does a path."""
        if not value:
            self.fail(_EMPTY, param, ctx)
        return super().convert(value, param, ctx)


ADDRESS: Final = re.compile(r"(?!postgres(?:ql)?(?:\+\w+)?:)[A-Za-z][A-Za-z0-9+.-]*://")
"""The beginning of the address of an archive, which is for the Hadoop of Spark; a PostgreSQL URL is a device."""


class ArchivePath(Named):
    """The directory of an archive: a path of this machine, or an address as a text."""

    name = "directory"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    @staticmethod
    def found(named: str | None) -> Path | str | None:
        """Return the archive if the name can be one; None if it is a device."""
        if named and (ADDRESS.match(named) or Path(named).is_dir()):
            return named if ADDRESS.match(named) else Path(named)
        return None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or the address."""
        if ADDRESS.match(str(value)):
            return str(value)
        if "://" in str(value):
            self.fail(f"{redacted(str(value))!r} is not a directory for an archive", param, ctx)
        return super().convert(value, param, ctx)
