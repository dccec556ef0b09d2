"""What the options of qmspark can be: each reads a text into a value, or refuses it in a sentence."""

from __future__ import annotations

import math
import re
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


class Age(_Type):
    """A span of time: seconds, or a number with `s`, `m`, `h` or `d` behind it."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        seconds = times.in_seconds(str(value))
        if re.fullmatch(r"\d{1,18}(?:\.\d{1,6})?", seconds, re.ASCII) is None:
            self.fail(
                f"{value!r} is not a span of time; give seconds, or a number with s, m, h or d behind it", param, ctx
            )
        return float(seconds)


class Bounded(click.FloatRange):
    """A number between two others; what is not a number, as a float can say it, is between none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Shift(Bounded):
    """A span of time in either direction: seconds, or a number with `s`, `m`, `h` or `d` behind it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        text = str(value)
        sign = text[:1] if text[:1] in ("-", "+") else ""
        return super().convert(sign + times.in_seconds(text.removeprefix(sign)), param, ctx)


class ConditionText(_Type):
    """A condition of the filter language."""

    name = "condition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, of which somebody else makes the condition."""
        from qmcore.condition_parser import parse

        try:
            parse(value)
        except QueueError as error:
            self.fail(f"{error.message}. {error.hint}".removesuffix(" "), param, ctx)
        return str(value)


class SpaceRenamed(_Type):
    """Two names of a queue space."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the old name and the new one."""
        old, equals, new = str(value).rpartition("=")
        if not equals:
            self.fail(f"{value!r} is not of the form OLD=NEW", param, ctx)
        try:
            return names.space_name(old), names.space_name(new)
        except QueueError as error:
            self.fail(error.message, param, ctx)


class QueueRenamed(_Type):
    """Two names of a queue, the old one perhaps with that of its queue space."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the old name and the new one."""
        old, equals, new = str(value).rpartition("=")
        if not equals or not old:
            self.fail(f"{value!r} is not of the form OLD=NEW or SPACE/OLD=NEW", param, ctx)
        try:
            return old, names.queue_name(new)
        except QueueError as error:
            self.fail(error.message, param, ctx)


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


class Memory(_Type):
    """A size of memory, as Spark has it."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the size."""
        if re.fullmatch(r"[1-9]\d{0,8}[kmgt]", str(value), re.ASCII) is None:
            self.fail(f"{value!r} is not a size of memory; give a number with k, m, g or t behind it", param, ctx)
        return str(value)


class SparkSetting(_Type):
    """A setting of Spark."""

    name = "setting"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return its name and its value."""
        name, equals, said = str(value).partition("=")
        if not equals or not name.startswith("spark."):
            self.fail(f"{value!r} is not of the form spark.NAME=VALUE", param, ctx)
        return name, said


ADDRESS: Final = re.compile(r"(?!postgres(?:ql)?(?:\+\w+)?:)[A-Za-z][A-Za-z0-9+.-]*://")
"""How an address of an archive begins, which is for the Hadoop of Spark; that of PostgreSQL is one of a device."""


_EMPTY: Final = "an empty word names nothing; give a name, or leave it out"


class Named(click.Path):
    """What a path or an address names; an empty word names nothing, and is not taken for one that was left out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word as click does a path."""
        if not value:
            self.fail(_EMPTY, param, ctx)
        return super().convert(value, param, ctx)


class Master(_Type):
    """What Spark calls its master."""

    name = "master"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        if not value:
            self.fail(_EMPTY, param, ctx)
        return str(value)


class ArchivePath(Named):
    """The directory of an archive: a path of this machine, or an address as a text."""

    name = "directory"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    @staticmethod
    def found(named: str | None) -> Path | str | None:
        """Return the archive that is named, where that can be one; None where it is a device."""
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
