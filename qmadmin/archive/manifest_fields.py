"""The strict reading of the fields of a manifest, and definitions of queues and queue spaces in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NoReturn, TypeVar

from qmadmin.archive import Fault, refused
from qmcore import times
from qmcore.attributes import Kind, Plain, Written, attributes_of, defaults, made, plain
from qmcore.errors import InvalidArgumentError

R = TypeVar("R")

INT64_MAX: Final = 2**63 - 1


def document(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise refused(Fault.MANIFEST, f"the manifest is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise refused(Fault.MANIFEST, "the manifest is not a JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a field twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


class Fields:
    """The fields of one JSON object; `where` names the object in sentences."""

    def __init__(self, found: object, where: str) -> None:
        if not isinstance(found, dict):
            raise refused(Fault.MANIFEST, f"{where} is not a JSON object")
        self._found: dict[str, Any] = found
        self._asked: set[str] = set()
        self.where = where

    def wrong(self, name: str, wanted: str) -> NoReturn:
        """Refuse the value of a field that is not as required."""
        shown = repr(self._found[name])
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise refused(Fault.MANIFEST, f"{self.where}: the field {name!r} must be {wanted}, got {shown}", field=name)

    def given(self, name: str) -> Any:
        """Return the value of a field."""
        self._asked.add(name)
        if name not in self._found:
            raise refused(Fault.MANIFEST, f"{self.where} lacks the field {name!r}", field=name)
        return self._found[name]

    def text(self, name: str) -> str:
        """Return a text."""
        value = self.given(name)
        if not isinstance(value, str):
            self.wrong(name, "a text")
        return value

    def hexadecimal(self, name: str, digits: int) -> str:
        """Return a text of this number of hexadecimal digits, in lower case."""
        value = self.given(name)
        if not isinstance(value, str) or len(value) != digits or not set(value) <= set("0123456789abcdef"):
            self.wrong(name, f"{digits} hexadecimal digits")
        return value

    def word(self, name: str, words: tuple[str, ...]) -> str:
        """Return one of some words."""
        value = self.given(name)
        if value not in words:
            self.wrong(name, f"one of {', '.join(words)}")
        return str(value)

    def number(self, name: str, low: int = 0, high: int = INT64_MAX) -> int:
        """Return a whole number of a range."""
        value = self.given(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def decimal(self, name: str) -> float:
        """Return a number, with decimals or without."""
        value = self.given(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self.wrong(name, "a number")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self.given(name)
        if not isinstance(value, bool):
            self.wrong(name, "true or false")
        return value

    def moment(self, name: str) -> int:
        """Return a time as microseconds, which is given as ISO 8601 in UTC."""
        value = self.given(name)
        try:
            found = times.from_datetime(datetime.fromisoformat(value))
        except (TypeError, ValueError, InvalidArgumentError):
            self.wrong(name, "a time such as 2026-01-31T23:59:59.000000Z")
        if times.iso(found) != value:
            self.wrong(name, "a time such as 2026-01-31T23:59:59.000000Z")
        return found

    def object(self, name: str) -> dict[str, Any]:
        """Return a JSON object unchanged."""
        value = self.given(name)
        if not isinstance(value, dict):
            self.wrong(name, "a JSON object")
        return value

    def part(self, name: str, where: str, read: Callable[[Fields], R]) -> R:
        """Return what `read` makes of an object in this one."""
        return Fields(self.object(name), where).whole(read)

    def parts(self, name: str, where: str, read: Callable[[Fields], R]) -> tuple[R, ...]:
        """Return what `read` makes of each object of a list; `where` names each, counted from 1."""
        value = self.given(name)
        if not isinstance(value, list):
            self.wrong(name, "a list")
        return tuple(Fields(found, f"{where} {at}").whole(read) for at, found in enumerate(value, 1))

    def whole(self, read: Callable[[Fields], R]) -> R:
        """Return what `read` makes of the object; refuse fields that it does not read."""
        found = read(self)
        self.end()
        return found

    def end(self) -> None:
        """Refuse fields that were not read."""
        for name in self._found.keys() - self._asked:
            raise refused(Fault.MANIFEST, f"{self.where} has the unknown field {name!r}", field=name)


def told_definition(definition: object, minor: int) -> dict[str, Plain]:
    """Return the definition of a queue space or a queue as a manifest of a minor version has it."""
    known = attributes_of(type(definition))
    return {name: value for name, value in plain(definition).items() if known[name].since <= minor}


def definition_of(record: type[R], minor: int) -> Callable[[Fields], R]:
    """Return a reader of such a definition: its attributes in their plain form. Later ones have their defaults."""

    def read(fields: Fields) -> R:
        known, values = attributes_of(record), defaults(record)
        values |= {name: _value(fields, name, its.kind) for name, its in known.items() if its.since <= minor}
        fields.end()
        try:
            return made(record, values)
        except InvalidArgumentError as error:
            raise refused(Fault.MANIFEST, f"{fields.where}: {error.message}") from None

    return read


def _value(fields: Fields, name: str, kind: Kind) -> Plain:
    if isinstance(kind, Written) and kind.words:
        return fields.word(name, kind.words)
    if kind.may_be_none and fields.given(name) is None:
        return None
    if kind.plain_type is int:
        return fields.number(name, min(0, kind.least))
    if kind.plain_type is float:
        return fields.decimal(name)
    return fields.text(name) if kind.plain_type is str else fields.flag(name)
