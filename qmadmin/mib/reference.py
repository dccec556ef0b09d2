"""What the classes of the management information base are, told from their declarations."""

from __future__ import annotations

from typing import Any

from qmadmin.mib.declare import Attribute, Mark, MibClass
from qmadmin.mib.requests import CLASSES

_MARKS = {Mark.KEY: "key", Mark.NEEDED: "needed", Mark.SET_KEY: "set key", Mark.REQUIRED: "required"}


def describe(class_name: str) -> dict[str, Any]:
    """Return the states and the attributes of a class, in dicts, lists and strings. Raises KeyError for no class."""
    of: MibClass[Any] = CLASSES[class_name]
    return {
        "class": of.name,
        "about": of.about,
        "states": dict(of.states),
        "set": dict(of.meanings),
        "attributes": [_described(known) for known in of.attributes],
    }


def _described(known: Attribute[Any]) -> dict[str, Any]:
    return {
        "name": known.name,
        "type": known.kind.value,
        "permissions": known.permissions,
        "marks": [word for mark, word in _MARKS.items() if mark in known.marks],
        "values": known.values,
        "about": known.about,
    }
