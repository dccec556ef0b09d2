"""The attributes of queues and queue spaces: each is declared once, at its field, and every face derives from there.

A face is what shows attributes or takes them: the columns of a table, an archive, the management information base, a
command, a table of Spark, the manual. It knows an attribute by its name, and its value in a plain form: a text, a
number, a flag, or None. Besides, it declares only what is its own, such as the words of a prompt.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from qmcore import limits, names
from qmcore.checks import check_int, check_number, flag_of, seconds_of
from qmcore.errors import InvalidArgumentError
from qmcore.limits import Threshold
from qmcore.values import dataclass

Plain: TypeAlias = str | int | float | bool | None
"""A value in the form that columns and JSON have."""

R = TypeVar("R")


class Kind:
    """The kind of an attribute. `what` names it in a sentence, with `{}` in place of its object.

    Plain values are of `plain_type`; numbers are from `least` to `most` and in `unit`; None is allowed if
    `may_be_none`.
    """

    plain_type: type[str | int | float | bool] = str
    least: int = 0
    most: int = 0
    may_be_none = False

    def __init__(self, what: str, unit: str = "") -> None:
        self.what = what
        self.unit = unit

    def called(self, of: str = "") -> str:
        """Return its name in a sentence, with the object where that is given."""
        return self.what.format(f" of {of}" if of else "")

    def kept(self, value: Any, of: str = "") -> Any:
        """Return a value as it is stored; InvalidArgumentError for one that is not allowed."""
        del of
        return value

    def plain(self, value: Any) -> Any:
        """Return the plain form of a value."""
        return value

    def read(self, plain: Any) -> Any:
        """Return the value of a plain form."""
        return plain

    def attributes(self, of: Attribute) -> tuple[Attribute, ...]:
        """Return the attributes that a field of this kind has."""
        return (of,)

    def told(self, name: str, value: Any) -> Iterable[tuple[str, Plain]]:
        """Return the attributes of a field as pairs of a name and a plain value."""
        return ((name, self.plain(value)),)

    def made(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the value of a field that has these plain values by name."""
        return self.read(values[name])


class Text(Kind):
    """A text that passes a check, or an empty one where it is `optional`."""

    def __init__(self, what: str, check: Callable[[str, str], str], *, optional: bool = False) -> None:
        super().__init__(what)
        self._check = check
        self._optional = optional

    def kept(self, value: Any, of: str = "") -> str:
        """Return the text."""
        return "" if self._optional and value == "" else self._check(value, self.called(of))


class Whole(Kind):
    """A whole number in a range."""

    plain_type = int

    def __init__(self, what: str, least: int, most: int, unit: str = "") -> None:
        super().__init__(what, unit)
        self.least = least
        self.most = most

    def kept(self, value: Any, of: str = "") -> int | None:
        """Return the number."""
        return check_int(value, self.called(of), self.least, self.most)


class Seconds(Whole):
    """A number of seconds from 0 on, which may be given as a timedelta, or `endless`: None, or a number below."""

    def __init__(self, what: str, most: int, endless: int | None = 0) -> None:
        super().__init__(what, endless or 0, most, "seconds, -1 for ever" if endless else "seconds")
        self.may_be_none = endless is None

    def kept(self, value: Any, of: str = "") -> int | None:
        """Return the seconds."""
        if value is None and self.may_be_none:
            return None
        return self.least if self.least and value == self.least else seconds_of(value, self.called(of), self.most)


class Decimal(Kind):
    """A number in a range, with decimals."""

    plain_type = float

    def __init__(self, what: str, least: int, most: int) -> None:
        super().__init__(what)
        self.least = least
        self.most = most

    def kept(self, value: Any, of: str = "") -> float:
        """Return the number."""
        return check_number(value, self.called(of), self.least, self.most)


class Flag(Kind):
    """A bool."""

    plain_type = bool

    def kept(self, value: Any, of: str = "") -> bool:
        """Return the bool."""
        found = flag_of(value)
        if found is None:
            raise InvalidArgumentError(f"the {self.called(of)} must be a bool, got {value!r}")
        return found

    def read(self, plain: Any) -> bool:
        """Return the bool, which is a number where SQLite has stored it."""
        return bool(plain)


class Written(Kind):
    """A value of a type of ours: `write` converts it to a text, `parse` reads that. `words` are all texts, if few."""

    def __init__(
        self,
        what: str,
        of: type,
        parse: Callable[[str], Any],
        write: Callable[[Any], str] = str,
        words: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what)
        self.words = words
        self._type, self._parse, self._write = of, parse, write

    def kept(self, value: Any, of: str = "") -> Any:
        """Return the value, checked to be of the type."""
        if isinstance(value, str) and self._type is not str:
            value = self._read(value, of)
        if not isinstance(value, self._type):
            raise InvalidArgumentError(f"the {self.called(of)} must be a {self._type.__name__}, got {value!r}")
        return value

    def _read(self, text: str, of: str) -> Any:
        try:
            return self._parse(text)
        except ValueError:
            known = filter(None, (", ".join(self.words[:-1]), *self.words[-1:]))
            wanted = " or ".join(known) or f"a {self._type.__name__}"
            raise InvalidArgumentError(f"the {self.called(of)} must be {wanted}, got {text!r}") from None

    def plain(self, value: Any) -> str:
        """Return its text."""
        return self._write(value)

    def read(self, plain: Any) -> Any:
        """Return the value of a text."""
        return self._parse(plain)


class Limits(Written):
    """A threshold, which is three attributes: two limits and a command, whose names have a prefix."""

    def __init__(self, what: str, prefix: str = "") -> None:
        super().__init__(what, Threshold, _no_threshold)
        self._names = tuple(f"{prefix}{part}" for part in ("high", "low", "command"))

    def kept(self, value: Any, of: str = "") -> Threshold:
        """Return the threshold."""
        threshold: Threshold = super().kept(value, of)
        names.command(threshold.command)
        return threshold

    def attributes(self, of: Attribute) -> tuple[Attribute, ...]:
        """Return the three; the field says what is measured."""
        parts = zip(self._names, _PARTS, strict=True)
        return tuple(Attribute(name, kind, about.format(of.about), since=of.since) for name, (kind, about) in parts)

    def told(self, name: str, value: Any) -> Iterable[tuple[str, Plain]]:
        """Return the three as pairs."""
        del name
        return zip(self._names, (str(value.high), str(value.low), value.command), strict=True)

    def made(self, name: str, values: Mapping[str, Any]) -> Threshold:
        """Return the threshold that the three make."""
        del name
        high, low, command = (values[part] for part in self._names)
        upper = limits.parse_high(high)
        return Threshold(upper, limits.parse_low(low, upper), command)


def _no_threshold(text: str) -> Threshold:
    raise ValueError(text)


_COMMAND = Text("threshold command", lambda text, _what: names.command(text))
_PARTS = (
    (Kind("high threshold"), "The high limit: the use by {} at which the capacity command is run."),
    (Kind("low threshold"), "The low limit: the use to which it must fall before the command is run again."),
    (_COMMAND, "The command that is run when {} reach the high limit."),
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute by its name: its kind, its meaning, and whether it is `fixed`, never changed later.

    `since` is the minor version of archives that first had it: one of an earlier version means its default.
    """

    name: str
    kind: Kind
    about: str
    fixed: bool = False
    since: int = 0

    def said(self, more: str) -> str:
        """Return its meaning, with what a face adds in the same sentence."""
        return self.about.removesuffix(".") + more


def declared(kind: Kind, about: str, *, fixed: bool = False, since: int = 0) -> dict[str, Attribute]:
    """Return the metadata that makes a field of a data class an attribute."""
    return {"attribute": Attribute("", kind, about, fixed, since)}


def attribute(default: Any, kind: Kind, about: str, *, fixed: bool = False, since: int = 0) -> Any:
    """Return a field of a data class that is an attribute with a default."""
    return dataclasses.field(default=default, metadata=declared(kind, about, fixed=fixed, since=since))


def _fields_of(record: Any) -> tuple[Attribute, ...]:
    found = [(field.name, field.metadata.get("attribute")) for field in dataclasses.fields(record)]
    return tuple(dataclasses.replace(known, name=name) for name, known in found if known)


fields_of: Final[Callable[[Any], tuple[Attribute, ...]]] = functools.cache(_fields_of)
"""The fields of a data class that are attributes."""


def attributes_of(record: Any) -> dict[str, Attribute]:
    """Return the attributes of the fields of a data class by name, as every face knows them."""
    return {each.name: each for field in fields_of(record) for each in field.kind.attributes(field)}


def keep(record: Any, of: str) -> None:
    """Check the attributes of a frozen data class, and set each as it is stored; `of` names the object."""
    for field in fields_of(type(record)):
        value = getattr(record, field.name)
        kept = field.kind.kept(value, of)
        if kept is not value:
            object.__setattr__(record, field.name, kept)


def plain(record: Any) -> dict[str, Plain]:
    """Return the attributes of a data class in their plain form, by name."""
    return dict(
        pair for field in fields_of(type(record)) for pair in field.kind.told(field.name, getattr(record, field.name))
    )


def defaults(record: Any) -> dict[str, Plain]:
    """Return the defaults of those attributes of a data class that have one, in their plain form, by name."""
    known = {field.name: field.default for field in dataclasses.fields(record)}
    with_default = [field for field in fields_of(record) if known[field.name] is not dataclasses.MISSING]
    return dict(pair for field in with_default for pair in field.kind.told(field.name, known[field.name]))


def given(record: Callable[..., R], values: Mapping[str, Any], of: str, present: R | None = None) -> R:
    """Return a data class with attributes as keywords give them: by its fields, or in parts; `of` names the object.

    What is not given is as in `present`, or has its default. InvalidArgumentError for a name that is no attribute.
    """
    fields, known = fields_of(record), attributes_of(record)
    for name in values:
        if name not in known and all(name != field.name for field in fields):
            # Loaded for a refusal only.
            import difflib

            close = difflib.get_close_matches(name, known, 1)
            raise InvalidArgumentError(
                f"{of} has no attribute {name!r}",
                hint=f"Is it {close[0]!r}?" if close else f"Its attributes are {', '.join(known)}.",
            )
    usual = defaults(record) if present is None else plain(present)
    arguments = {field.name: getattr(present, field.name) for field in fields} if present is not None else {}
    for field in fields:
        parts = [part.name for part in field.kind.attributes(field) if part.name in values and part.name != field.name]
        if field.name in values:
            arguments[field.name] = values[field.name]
        elif parts:
            arguments[field.name] = field.kind.made(field.name, {**usual, **values})
    return record(**arguments)


def made(record: Callable[..., R], values: Mapping[str, Any]) -> R:
    """Return a data class with attributes of these plain values; other names are ignored."""
    return record(**{field.name: field.kind.made(field.name, values) for field in fields_of(record)})
