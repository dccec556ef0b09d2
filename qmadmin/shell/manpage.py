"""What the manual pages say of the shell, in roff: its commands, and the properties that a condition can ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qmadmin.console.results import Block, Example, Heading, Paragraph, Term
from qmadmin.manual.roff import escaped
from qmadmin.shell import help as help_text
from qmcore.condition import HEADER, PROPERTIES

if TYPE_CHECKING:
    from qmadmin.shell.catalogue import Catalogue
    from qmadmin.shell.declare import Command


def commands(catalogue: Catalogue) -> str:
    """Return the description of all commands, chapter by chapter."""
    lines: list[str] = []
    for group in catalogue.groups:
        lines.append(f'.SS "{escaped(group.title)}"')
        for command in group.commands:
            lines += [".HP 8", _synopsis(command), ".RS 4", *_blocks(help_text.description(command)), ".RE"]
    return "\n".join(lines) + "\n"


def properties() -> str:
    """Return the list of what a condition can ask of a message."""
    lines: list[str] = []
    for known in (*PROPERTIES, HEADER):
        lines += [".TP", rf"\fB{escaped(known.name)}\fR ({escaped(known.kind.value)})", escaped(known.meaning)]
    return "\n".join(lines) + "\n"


def _blocks(blocks: Iterable[Block]) -> list[str]:
    lines: list[str] = []
    for number, block in enumerate(blocks):
        match block:
            case Heading(text):
                lines += [".PP", rf"\fB{escaped(text)}\fR"]
            case Paragraph(text):
                # The first one follows the synopsis directly.
                lines += ([".PP"] if number else []) + [escaped(text)]
            case Term(term, text):
                lines += [".TP", _marked(term), escaped(text)]
            case Example(examples):
                lines += [".PP", ".RS 4", ".nf", *(escaped(line) for line in examples), ".fi", ".RE"]
    return lines


def _synopsis(command: Command) -> str:
    name, rest = command.name, help_text.synopsis(command)[len(command.name) :]
    return rf"\fB{escaped(name)}\fR" + _marked(rest)


def _marked(text: str) -> str:
    """Return a piece of a synopsis: what is to be typed bold, what stands for something else in italics."""
    parts = re.findall(r"-\w(?!\w)|[\w-]+|\W", text)
    return "".join(
        rf"\fB{escaped(part)}\fR"
        if re.fullmatch(r"-\w|--\w+|off|on|all|persist|nonpersist", part)
        else rf"\fI{escaped(part)}\fR"
        if re.fullmatch(r"[\w-]+", part)
        else escaped(part)
        for part in parts
    )
