"""The options of the data source "qspace"."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from collections.abc import Callable, Mapping
from typing import ClassVar, Self, TypeVar

from qmadmin.transfer.selecting import Selection
from qmadmin.volume_makers import MEMORY
from qmcore.errors import InvalidArgumentError
from qmcore.message import STORED, State

Number = TypeVar("Number", int, float)
Choice = TypeVar("Choice", bound=enum.Enum)


class Table(enum.Enum):
    """What is read: messages that are still to be consumed, those that are kept after it, queues, or queue spaces."""

    MESSAGES = "messages"
    HISTORY = "history"
    QUEUES = "queues"
    SPACES = "spaces"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What is read, and how.

    `tokens` are those of a snapshot that the driver holds; without them each task reads what is there when it begins,
    and `partitions` are one unless more are asked for.
    """

    device: str
    table: Table = Table.MESSAGES
    selection: Selection = dataclasses.field(default_factory=Selection)
    payload: bool = True
    partitions: int = 1
    tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)

    NAMES: ClassVar[tuple[str, ...]] = (
        "device",
        "table",
        "space",
        "queue",
        "state",
        "where",
        "olderthan",
        "newerthan",
        "count",
        "payload",
        "partitions",
        "snapshot",
    )

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Self:
        """Read the options as Spark gives them: texts, whose names may be written in small or large letters."""
        given = named(options)
        unknown = sorted(set(given) - set(cls.NAMES) - {"path"})
        if unknown:
            raise InvalidArgumentError(
                f"the data source qspace has no option {unknown[0]!r}", hint=f"It has {', '.join(cls.NAMES)}."
            )
        device = given.get("device") or given.get("path")
        if not device:
            raise InvalidArgumentError(
                "the data source qspace needs the option 'device'", hint="It is what QMCONFIG says of the device."
            )
        table = _one_of(Table, given.get("table", Table.MESSAGES.value), "table")
        states: tuple[State, ...] = (State.CONSUMED,) if table is Table.HISTORY else STORED
        if "state" in given:
            states = tuple(_one_of(State, word.strip(), "state") for word in given["state"].split(","))
        selection = Selection(
            spaces=_patterns(given.get("space")),
            queues=_patterns(given.get("queue")),
            states=states,
            condition=given.get("where", ""),
            older=_number(given, "olderthan", float),
            newer=_number(given, "newerthan", float),
            count=_number(given, "count", int),
        )
        return cls(
            device=reachable(device),
            table=table,
            selection=selection,
            payload=_flag(given.get("payload", "true"), "payload"),
            partitions=_number(given, "partitions", int) or 1,
            tokens=json.loads(given.get("snapshot", "{}")),
        )


def named(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by their names in small letters; refuse those of a table of Spark's catalog.

    Of such a table Spark keeps the options, and does not say them when it is read or written.
    """
    given = {name.lower(): text for name, text in options.items()}
    if "provider" in given:
        # Spark shows no hint of ours.
        raise InvalidArgumentError(
            "a queue space cannot be a table of Spark's catalog, which does not pass the options on when it is read;"
            " write CREATE TEMPORARY VIEW instead of CREATE TABLE"
        )
    return given


def reachable(device: str) -> str:
    """Return what QMCONFIG would say of a device, wherever a task of Spark is: a relative path is meant from here."""
    return device if "://" in device or device == MEMORY else os.path.abspath(device)


def _patterns(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ("*",)


def _number(given: Mapping[str, str], name: str, kind: Callable[[str], Number]) -> Number | None:
    if name not in given:
        return None
    try:
        return kind(given[name])
    except ValueError:
        raise InvalidArgumentError(f"the option {name!r} must be a number, got {given[name]!r}") from None


def _flag(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"the option {name!r} must be true or false, got {text!r}")
    return text.lower() == "true"


def _one_of(kind: type[Choice], text: str, name: str) -> Choice:
    try:
        return kind(text.lower())
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        raise InvalidArgumentError(f"the option {name!r} must be one of {known}, got {text!r}") from None
