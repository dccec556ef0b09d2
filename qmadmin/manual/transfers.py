"""What the manual page says of the commands of qmspark: the options of each, and those that several have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.manual import options_page
from qmadmin.spark import commands

if TYPE_CHECKING:
    import click

_COMMANDS = (commands.export, commands.load, commands.verify, commands.show, commands.query)


def parts() -> dict[str, str]:
    """Return the parts of the page by their names."""
    shared = _names(commands.export) & _names(commands.load) & _names(commands.verify)
    own = {command.name or "": _names(command) - shared for command in _COMMANDS}
    return {
        f"OPTIONS OF {name.upper()}": options_page.described(command, only=own[name])
        for command, name in zip(_COMMANDS, own, strict=True)
        if name != "show"
    } | {"SHARED OPTIONS": options_page.described(commands.export, only=shared)}


def _names(command: click.Command) -> set[str]:
    return {parameter.name for parameter in command.params if parameter.name}
