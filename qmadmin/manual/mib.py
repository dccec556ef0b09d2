"""The classes of the management information base, for qmadmin-mib(5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qmadmin.manual.roff import bold, escaped, prose, terms
from qmadmin.mib import CLASSES, Code, Flags, describe


def classes() -> str:
    """Return the description of all classes: their states, and each of their attributes."""
    return "".join(_class(describe(name)) for name in CLASSES)


def flags() -> str:
    """Return what the flags let happen."""
    return terms((f"{bold(str(flag.name))} ({flag.value:#x})", flag.meaning) for flag in Flags if flag)


def codes() -> str:
    """Return why requests are refused."""
    return terms((bold(code.name), f"{code.value[0].upper()}{code.value[1:]}.") for code in Code)


def _class(told: Mapping[str, Any]) -> str:
    states = [f"{state}: {meaning}." for state, meaning in told["states"].items()]
    doings = [(bold(state), f"{text[0].upper()}{text[1:]}.") for state, text in told["set"].items()]
    return "\n".join(
        [
            f".SS {escaped(told['class'])}",
            prose(told["about"]),
            f"The state is {'one of these' if len(states) > 1 else 'always this'}.",
            "\n".join(f".br\n{escaped(state)}" for state in states),
            ".PP",
            "A SET does this, by TA_STATE:",
            terms(doings, indent="6") + ".PP",
            "Attributes:",
            terms((_head(known), _text(known)) for known in told["attributes"]),
        ]
    )


def _head(known: Mapping[str, Any]) -> str:
    marks = "".join(f", {mark}" for mark in known["marks"])
    return f"{bold(known['name'])} ({escaped(known['type'])} {escaped(known['permissions'])}{escaped(marks)})"


def _text(known: Mapping[str, Any]) -> str:
    return f"{known['about']} Values: {known['values']}."
