"""All commands, in the order of help, man page and tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmadmin.shell import (
    content,
    devices,
    lines,
    listing,
    live,
    maintenance,
    messages,
    notices,
    putting,
    queues,
    resources,
    schedules,
    session_commands,
    spaces,
    subscriptions,
    transactions,
    transfer,
    watching,
)
from qmadmin.shell.declare import Group
from qmadmin.shell.notices import UsageError

if TYPE_CHECKING:
    from qmadmin.shell.declare import Command

# Each module declares its commands in the group of its topic, its own or an earlier one's, when it is imported.
MODULES = (
    devices, spaces, queues, subscriptions, listing, messages, putting, content, live, watching, resources,
    transactions, schedules, maintenance, transfer, session_commands,
)  # fmt: skip
GROUPS = tuple(
    dict.fromkeys(found for module in MODULES for found in vars(module).values() if isinstance(found, Group))
)


class Catalogue:
    """The commands of some topics by name and abbreviation."""

    def __init__(self, groups: Sequence[Group] = GROUPS) -> None:
        self.groups = tuple(groups)
        self.commands = tuple(command for group in groups for command in group.commands)
        self._by_name: dict[str, Command] = {}
        for command in self.commands:
            for name in command.names:
                if name in self._by_name:
                    raise TypeError(f"{name} is a name of both {self._by_name[name].name} and {command.name}")
                self._by_name[name] = command
        # A longer sign is tried first, so that `!!` is not `!` with the argument `!`.
        self._signs = sorted((c for c in self.commands if c.raw), key=lambda command: -len(command.name))

    def find(self, line: str) -> tuple[Command, str]:
        """Return the command that a line begins with, and the rest of the line."""
        for command in self._signs:
            if line.startswith(command.name):
                return command, line[len(command.name) :].strip(lines.BLANKS)
        name, rest = lines.head(line)
        begun = re.split("[>|]", name, maxsplit=1)[0]
        if begun in self._by_name and name not in self._by_name:
            # No name contains such a sign: it redirects the output.
            name, rest = begun, line.lstrip(lines.BLANKS)[len(begun) :].rstrip(lines.BLANKS)
        return self.named(name), rest

    def named(self, name: str) -> Command:
        """Return the command of that name or abbreviation; UsageError with the nearest one if there is none."""
        command = self._by_name.get(name)
        if command is None:
            hint = notices.elsewhere(name) or notices.meant(notices.nearest(name, self._by_name))
            raise UsageError(f"No such command: {name}", hint=f"{hint}help lists the commands.")
        return command

    def has(self, name: str) -> bool:
        """Return whether a command has that name or abbreviation."""
        return name in self._by_name

    def title(self, command: Command) -> str:
        """Return the title of the topic of a command."""
        return next(group.title for group in self.groups if command in group.commands)
