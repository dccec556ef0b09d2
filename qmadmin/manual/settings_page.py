"""The settings, for qmadmin.toml(5), and the environment variables that win over them, for all pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qmadmin.manual.roff import bold, escaped, terms
from qmadmin.settings import SECTIONS, Kind, Setting
from qmadmin.ulog import JSON_KEYS


def settings(section: str) -> str:
    """Return the settings of a section: what each may be, its default, what it does, and the variable that wins."""
    return terms((_head(setting), _text(setting)) for setting in SECTIONS[section].declared().values())


def environment(used: Sequence[Setting[Any]]) -> str:
    """Return the environment variables that win over settings, and what they say."""
    return terms((bold(setting.variable), _of_variable(setting)) for setting in used)


def variables() -> str:
    """Return the environment variables that win over settings, each with the setting."""
    rows = [setting for kind in SECTIONS.values() for setting in kind.declared().values() if setting.variable]
    return terms((bold(setting.variable), _wins(setting)) for setting in rows)


def log_keys() -> str:
    """Return the keys of an event in the log that is written as JSON."""
    return terms(((bold(key), f"{text}.") for key, text in JSON_KEYS.items()), indent="12")


def default(setting: Setting[Any]) -> str:
    """Return the default of a setting as it would stand in the file, or described."""
    if setting.default_help:
        return setting.default_help
    if setting.kind is Kind.FLAG:
        return "true" if setting.default else "false"
    return f'"{setting.default}"' if isinstance(setting.default, str) else str(setting.default)


def _head(setting: Setting[Any]) -> str:
    what = {Kind.CHOICE: setting.allowed, Kind.NUMBER: setting.allowed.removeprefix("a ")}
    return f"{bold(setting.key)} ({escaped(what.get(setting.kind, setting.kind.value))})"


def _text(setting: Setting[Any]) -> str:
    wins = f" The environment variable `{setting.variable}` wins." if setting.variable else ""
    return f"{setting.help} The default is {default(setting)}.{wins}"


def _of_variable(setting: Setting[Any]) -> str:
    means = f" If it is set, that is {setting.meaning}." if setting.meaning else ""
    return f"{setting.help}{means} It wins over `{setting.key}` in [{setting.section}]."


def _wins(setting: Setting[Any]) -> str:
    if setting.meaning:
        return f'If it is set and not empty, `{setting.key}` in [{setting.section}] is "{setting.meaning}".'
    return f"Wins over `{setting.key}` in [{setting.section}]."
