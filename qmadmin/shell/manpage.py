"""The generated parts of the manual pages, in roff: the commands, the diagnostics, the numbered messages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qmadmin.shell import help as help_text
from qmadmin.shell import notices
from qmadmin.shell.results import Block, Example, Heading, Paragraph, Term
from qmcore.condition import HEADER, PROPERTIES
from qmcore.errors import QueueError, Resource

if TYPE_CHECKING:
    from qmadmin.shell.catalogue import Catalogue
    from qmadmin.shell.declare import Command

_SPECIAL = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq", "\xa0": r"\ "}
)


def commands(catalogue: Catalogue) -> str:
    """Return the description of all commands, chapter by chapter."""
    lines: list[str] = []
    for group in catalogue.groups:
        lines.append(f'.SS "{_escaped(group.title)}"')
        for command in group.commands:
            lines += [".HP 8", _synopsis(command), ".RS 4", *_blocks(help_text.description(command)), ".RE"]
    return "\n".join(lines) + "\n"


def diagnostics() -> str:
    """Return the list of diagnostics with their numbers."""
    lines: list[str] = []
    for error in sorted(QueueError.by_name.values(), key=lambda found: -found.number):
        lines += [".TP", rf"\fB{error.name}\fR (\-{-error.number})", _with_names(inspect.getdoc(error) or "")]
    return "\n".join(lines) + "\n"


def resources() -> str:
    """Return the list of what QMENOSPACE can mean."""
    return "\n".join(f".IP \\(bu 3\n{_escaped(resource.value)}" for resource in Resource) + "\n"


def properties() -> str:
    """Return the list of what a condition can ask of a message."""
    lines: list[str] = []
    for known in (*PROPERTIES, HEADER):
        lines += [".TP", rf"\fB{_escaped(known.name)}\fR ({_escaped(known.kind.value)})", _escaped(known.meaning)]
    return "\n".join(lines) + "\n"


def messages() -> str:
    """Return the list of numbered messages."""
    lines: list[str] = []
    for entry in notices.CATALOGUE:
        text = re.sub(r"\{(\w+)\}", r"\\fI\1\\fR", _escaped(f"{entry.severity.value}: {entry.form}"))
        lines += [".TP 6", str(entry.number), text]
    return "\n".join(lines) + "\n"


def filled(template: str, parts: dict[str, str]) -> str:
    r"""Return a page with its generated parts: a line `.\" @NAME@` of the template stands for the part of that name."""
    for name, text in parts.items():
        mark = f'.\\" @{name}@\n'
        if template.count(mark) != 1:
            raise ValueError(f"the template has the line {mark!r} {template.count(mark)} times")
        template = template.replace(mark, text)
    return template


def _blocks(blocks: Iterable[Block]) -> list[str]:
    lines: list[str] = []
    for number, block in enumerate(blocks):
        match block:
            case Heading(text):
                lines += [".PP", rf"\fB{_escaped(text)}\fR"]
            case Paragraph(text):
                # The first one follows the synopsis directly.
                lines += ([".PP"] if number else []) + [_escaped(text)]
            case Term(term, text):
                lines += [".TP", _marked(term), _escaped(text)]
            case Example(examples):
                lines += [".PP", ".RS 4", ".nf", *(_escaped(line) for line in examples), ".fi", ".RE"]
    return lines


def _synopsis(command: Command) -> str:
    name, rest = command.name, help_text.synopsis(command)[len(command.name) :]
    return rf"\fB{_escaped(name)}\fR" + _marked(rest)


def _marked(text: str) -> str:
    """Return a piece of a synopsis: what is to be typed bold, what stands for something else in italics."""
    parts = re.findall(r"-\w(?!\w)|[\w-]+|\W", text)
    return "".join(
        rf"\fB{_escaped(part)}\fR"
        if re.fullmatch(r"-\w|off|on|all|persist|nonpersist", part)
        else rf"\fI{_escaped(part)}\fR"
        if re.fullmatch(r"[\w-]+", part)
        else _escaped(part)
        for part in parts
    )


def _with_names(text: str) -> str:
    """Return the text of a docstring, names in backquotes in italics."""
    return re.sub(r"\\\(ga(\w+)\\\(ga", r"\\fI\1\\fR", _escaped(text))


def _escaped(text: str) -> str:
    escaped = text.translate(_SPECIAL)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped
