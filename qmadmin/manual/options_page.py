"""The options and arguments of a program, for its page."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

import click

from qmadmin import options
from qmadmin.manual.roff import bold, escaped, italic, terms
from qmadmin.settings import Setting


def described(program: click.Command, only: Container[str] | None = None) -> str:
    """Return the arguments and options of a program, in the order of their declaration; `only` those of these names."""
    rows: list[tuple[str, str]] = []
    declared = [
        parameter for parameter in program.get_params(click.Context(program)) if only is None or parameter.name in only
    ]
    for parameter in declared:
        if isinstance(parameter, options.Argument):
            rows += [
                (italic(name.lower()), _with_default(text, parameter.settings.get(name)))
                for name, text in parameter.meanings.items()
            ]
    for parameter in declared:
        if isinstance(parameter, click.Option):
            rows.append((_term(parameter), _meaning(parameter)))
    return terms(rows)


def _term(option: click.Option) -> str:
    names = ", ".join(bold(name) for name in (*option.opts, *option.secondary_opts))
    if option.is_flag or option.metavar is None:
        return names
    return f"{names} {_value(option.metavar)}"


def _value(metavar: str) -> str:
    """Return what stands for a value: words in capitals in italics."""
    parts = re.findall(r"[A-Z]+|[^A-Z]+", metavar)
    return "".join(italic(part.lower()) if part.isupper() else escaped(part) for part in parts)


def _meaning(option: click.Option) -> str:
    if not isinstance(option, options.Option):
        return option.help or ""
    return _with_default(f"{option.summary} {option.more}".strip(), option.setting)


def _with_default(text: str, setting: Setting[Any] | None) -> str:
    """Return what is said of an option, and what holds without it."""
    if setting is None:
        return text
    variable = f"the value of `{setting.variable}`, else " if setting.variable else ""
    default = setting.default_help or str(setting.default)
    return f"{text} Default: {variable}`{setting.key}` in [{setting.section}] of `qmadmin.toml`(5), else {default}."
