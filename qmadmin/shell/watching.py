"""The command watch, which shows the output of another one repeatedly."""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from qmadmin.console import formats
from qmadmin.console.process import sleep
from qmadmin.console.render import PlainScreen
from qmadmin.console.results import (
    Afterwards,
    Line,
    Moment,
    Notice,
    Outcome,
    Result,
    Rounds,
    Shown,
    Table,
    Verbatim,
    each,
)
from qmadmin.shell import lines, redirection
from qmadmin.shell.declare import Command, Needs, Option, Positional
from qmadmin.shell.kinds import Candidate, Given, Kind, Number, Seconds
from qmadmin.shell.live import WATCHING
from qmadmin.shell.notices import InputEndedError, UsageError
from qmadmin.shell.read import Reading, check_needs

if TYPE_CHECKING:
    from qmadmin.shell.session import Session

_SECONDS = 2.0


class CommandLine(Kind[str]):
    """A command line that only shows something; it may be in quotes as a whole."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the line."""
        return lines.answer(text)

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the commands that can be watched."""
        commands = session.catalogue.commands
        return [Candidate(command.name, command.summary) for command in commands if _can_be_watched(command)]


@WATCHING.command(
    "watch",
    Option(
        "-n seconds",
        "seconds",
        "The seconds between two updates, 0.1 to 3600; the default is 2.",
        Seconds("interval", 0.1, 3600.0),
        _SECONDS,
    ),
    Option(
        "-k count", "rounds", "How many updates to show. The default is no limit.", Number("number of updates", least=1)
    ),
    Positional("command", CommandLine(), "The command with its arguments.", "Command to watch: ", rest=True),
    needs=Needs.NOTHING,
    shows_only=True,
    updates_itself=True,
)
def watch(session: Session, command: str, seconds: float, rounds: int | None) -> Outcome:
    """Show the output of a command again and again.

    The command must be one that only shows something, with all of its arguments on the line.

    At a terminal the view is updated until you leave it with q or Ctrl-C; the arrow keys, Page Up and Page Down, Home
    and End scroll. Elsewhere, and in formats for programs, each output follows a line with its time, and is a
    document of its own in JSON; Ctrl-C ends it. An error of the command ends it too.

        watch qinfo
        watch -n 10 qlist -b ORDERS
        watch -n 60 -k 60 qinfo ORDERS > hour.log
    """
    watched = Watched(session, command)
    if session.is_drawn:
        from qmadmin.shell import live_screen

        live_screen.watch_command(watched, seconds, rounds)
        return None
    return Rounds(_rounds(watched, seconds, rounds))


def _rounds(watched: Watched, seconds: float, rounds: int | None) -> Iterator[list[Shown]]:
    for number in itertools.count() if rounds is None else range(rounds):
        if number:
            sleep(seconds)
        shown = watched.run()
        now = formats.cell(Moment(time.time_ns() // 1000), scripted=True)
        yield [Line(f"{now}  {watched.line}"), *shown]


class Watched:
    """A command whose arguments have been read once. UsageError if it cannot be watched."""

    def __init__(self, session: Session, line: str) -> None:
        self.line = line
        self._command, rest = session.catalogue.find(line)
        _refuse(self._command)
        arguments, to = redirection.parted(self._command, rest)
        if to is not None:
            raise UsageError("watch shows what the command itself shows", hint=f"Put {to.sign} after the quotes.")
        reading = Reading(self._command, session)
        reading.take(arguments)
        check_needs(self._command, session)
        self._given = dict(reading.fill(_NoPrompts(self._command), session))
        if session.has_device:
            session.device  # noqa: B018 - both have the same one
        self._remarks: list[Shown] = list(session.take_remarks())
        self._origin = session
        # The command may still run after the view was left and the session goes on.
        self._session = copy.copy(session)

    def run(self) -> list[Shown]:
        """Run the command; return its whole output."""
        session = self._session
        drawn: list[Result] = []
        # Progress, or output that is written at once, would be drawn over the view.
        session.draw, session.output = drawn.extend, PlainScreen(io.StringIO(), io.StringIO())
        outcome = self._command.handler(session, **self._given)
        self._origin.transactions = session.transactions
        remarks, self._remarks = self._remarks, []
        found = (*remarks, *session.take_remarks(), *drawn, *each(outcome))
        return list(itertools.chain.from_iterable(map(_read, found)))


def _can_be_watched(command: Command) -> bool:
    return command.shows_only and not command.updates_itself and not command.lasts


def _refuse(command: Command) -> None:
    if command.updates_itself:
        raise UsageError(f"{command.name} cannot be watched: it updates its output by itself")
    if not _can_be_watched(command):
        raise UsageError(f"{command.name} cannot be watched: only a command that just shows something can")


def _read(shown: Shown) -> Sequence[Shown]:
    """Return a result whose rows have been read, or the remarks so far."""
    match shown:
        case Table(_, rows):
            return [dataclasses.replace(shown, rows=list(rows))]
        case Verbatim(lines):
            return [Verbatim(list(lines))]
        case Afterwards(notices):
            return notices()
        case _:
            return [shown]


class _NoPrompts:
    """No prompts are shown: the default of a prompt is the answer."""

    patient = False

    def __init__(self, command: Command) -> None:
        self._command = command

    def ask(self, prompt: str, _kind: Kind[Any], /) -> str:
        """Return the default, or refuse a prompt without one."""
        raise _NotGivenError(prompt, self._command)

    def tell(self, text: str) -> None:
        """Do nothing."""

    def warn(self, notice: Notice) -> None:
        """Do nothing."""


class _NotGivenError(InputEndedError):
    def __init__(self, prompt: str, command: Command) -> None:
        super().__init__(prompt, leaves_defaults=True)
        text = f"{command.name} is watched with all of its arguments on the line"
        self.notice = UsageError(text, hint=f"Usage: watch {command.synopsis}").notice
