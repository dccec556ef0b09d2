"""What the parameters of queues and of queue spaces have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmadmin.shell.declare import Option
from qmadmin.shell.kinds import (
    Given,
    Number,
)
from qmcore import space
from qmcore.attributes import Attribute, plain

if TYPE_CHECKING:
    from qmadmin.shell.session import Session


UNCHANGED: Final = object()
"""The value of an option that is not given to a command that changes attributes."""

_NAMES = {
    "qorder": "order",
    "delay": "retry_delay",
    "cmd": "command",
    "ipckey": "ipc_key",
    "trans": "transactions",
    "procs": "processes",
    "errorq": "error_queue",
}
"""The names of attributes whose parameters have other names."""


def number(attribute: str, of: Mapping[str, Attribute] = space.ATTRIBUTES) -> Number:
    """Return the kind of a parameter that is a number, as its attribute is declared."""
    kind = of[attribute].kind
    return Number(kind.called(), kind.least, kind.most)


def unchanged(options: Sequence[Option]) -> list[Option]:
    """Return options of a command that creates something for the one that changes it."""
    return [dataclasses.replace(option, default=UNCHANGED) for option in options]


def present(definition: Callable[[Session, Given], object], parameter: str) -> Callable[[Session, Given], str]:
    """Return the default of a parameter that may stay as it is."""
    return lambda session, given: str(plain(definition(session, given))[_NAMES.get(parameter, parameter)])


def fields_given(given: Given) -> dict[str, Any]:
    """Return the fields of a definition that parameters give, without what is unchanged."""
    return {_NAMES.get(name, name): value for name, value in given_of(**given).items()}


def given_of(**changes: Any) -> dict[str, Any]:
    """Return the changes without unchanged values."""
    return {name: value for name, value in changes.items() if value is not UNCHANGED}
