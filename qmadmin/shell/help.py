"""Help: the declaration of commands as prose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qmadmin.console.results import Block, Example, Heading, Labels, Paragraph, Prose, Term
from qmadmin.shell.declare import Command, Group, Needs, Option, Positional

if TYPE_CHECKING:
    from qmadmin.shell.catalogue import Catalogue

NO_BREAK = "\N{NO-BREAK SPACE}"
EXTENSION = "An extension: Tuxedo's qmadmin does not have it."


LIST = "commands"
ALL = "all"


def topics(catalogue: Catalogue) -> Prose:
    """Return the names of all commands by topic, and how to learn more."""
    names = [(group.topic, " ".join(command.name for command in group.commands)) for group in catalogue.groups]
    return Prose(
        (
            Labels(tuple(names)),
            Paragraph(
                f"help TOPIC lists the commands of a topic with their arguments, help {LIST} those of all topics;"
                f" help COMMAND describes a command, help {ALL} every one. A command asks for missing arguments; Ctrl-C"
                " leaves it. Tab completes. > FILE, >> FILE or | SHELLCOMMAND at the end of a line takes the output."
                " quit leaves the program."
            ),
        )
    )


def overview(groups: Iterable[Group]) -> Prose:
    """Return the synopsis and the summary of the commands of some topics."""
    blocks: list[Block] = []
    for group in groups:
        blocks.append(Heading(group.title))
        blocks += [Term(synopsis(command), _with_names(command)) for command in group.commands]
    blocks.append(Paragraph("help COMMAND describes a command."))
    return Prose(tuple(blocks))


def about(command: Command) -> Prose:
    """Return everything about a command."""
    return Prose((Heading(synopsis(command)), *description(command)))


def synopsis(command: Command) -> str:
    """Return the synopsis of a command; an option and its value are not to be parted at the end of a line."""
    return re.sub(r"(-\w) (?=\w)", rf"\1{NO_BREAK}", command.synopsis)


def everything(catalogue: Catalogue) -> Prose:
    """Return everything about all commands."""
    return Prose(tuple(block for command in catalogue.commands for block in about(command).blocks))


def description(command: Command) -> list[Block]:
    """Return what there is to say about a command under its synopsis; help and the man page share it."""
    blocks: list[Block] = [Paragraph(f"{command.summary}.")]
    if command.short:
        word = "Abbreviation" if len(command.short) == 1 else "Abbreviations"
        blocks.append(Paragraph(f"{word}: {', '.join(command.short)}"))
    blocks += prose(command.description)
    blocks += [_option(option) for option in command.options]
    blocks += [_positional(positional) for positional in command.positionals if positional.help]
    remarks = _remarks(command)
    if remarks:
        blocks.append(Paragraph(" ".join(remarks)))
    return blocks


def prose(text: str) -> list[Block]:
    """Return the paragraphs of a docstring; indented ones are examples."""
    blocks: list[Block] = []
    for part in text.split("\n\n"):
        lines = part.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            blocks.append(Example(tuple(line[4:] for line in lines)))
        elif lines:
            blocks.append(Paragraph(" ".join(lines)))
    return blocks


def _with_names(command: Command) -> str:
    return f"{command.summary} ({', '.join(command.short)})" if command.short else command.summary


def _option(option: Option) -> Term:
    shown = f"{option.flag} {option.metavar}" if option.kind else ", ".join(option.flags)
    return Term(shown, f"{option.help} {EXTENSION}" if option.extension else option.help)


def _positional(positional: Positional) -> Term:
    text = positional.help
    if isinstance(positional.default, str) and positional.default:
        text += f" The default is {positional.default}."
    return Term(positional.shown.strip(), text)


def _remarks(command: Command) -> list[str]:
    remarks = []
    if Needs.CURRENT_QUEUE in command.needs:
        remarks.append("It needs an open queue space and a current queue (qset).")
    elif Needs.OPEN_SPACE in command.needs:
        remarks.append("It needs an open queue space.")
    if command.confirm is not None:
        remarks.append("It asks for confirmation.")
    if command.extension:
        remarks.append(EXTENSION)
    return remarks
