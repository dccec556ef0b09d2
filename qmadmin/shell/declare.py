"""How a command is declared: once, as plain data above its handler.

    @SELECTION.command(
        "qset",
        Positional("queue_name", QueueName(), "The queue that becomes the current one."),
        shows_only=True,
    )
    def qset(session: Session, queue_name: str | None) -> Outcome:
        \"\"\"Set or print the current queue.\"\"\"

The first line of the docstring is the summary, the rest the description. A handler takes the session and the declared
arguments by their names, and returns data; it asks nothing and draws nothing.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from qmadmin.console.results import Notice, Outcome
from qmadmin.options import docstring, has_no_docstrings
from qmadmin.shell.kinds import Given, Kind
from qmcore.errors import QueueError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.shell.session import Session

Handler = TypeVar("Handler", bound=Callable[..., Outcome])


class Needs(enum.Flag):
    """What a command requires before it asks for anything."""

    NOTHING = 0
    OPEN_SPACE = enum.auto()
    CURRENT_QUEUE = enum.auto()


@dataclass(frozen=True, slots=True)
class Option:
    """An option as it is shown, a dash and a letter and what its value is called; there is no prompt for it.

    Without a kind it is a flag and its value a bool. `default` is the value of another one that is not given.
    `excludes` is the flag of an option that cannot be given as well, `long` a word that may stand for its own.
    """

    shown: str
    name: str
    help: str
    kind: Kind[Any] | None = None
    default: Any = None
    excludes: str = ""
    extension: bool = False
    long: str = ""

    @property
    def flag(self) -> str:
        """The dash and the letter."""
        return self.shown[:2]

    @property
    def metavar(self) -> str:
        """What its value is called."""
        return self.shown[3:]

    @property
    def unset(self) -> Any:
        """The value of an option that is not given."""
        return False if self.kind is None else self.default

    @property
    def flags(self) -> tuple[str, ...]:
        """Its spellings."""
        return (self.flag, self.long) if self.long else (self.flag,)


@dataclass(frozen=True, slots=True)
class Positional:
    """A positional argument.

    With a `prompt` it is asked for if the line does not have it. An empty answer means `default`, a text that is read
    like an answer; `notice` then says so. Without a default an answer is required. With `clearable` an empty pair of
    quotes is not an empty answer, but means the empty value. Without a prompt the argument may be left out, and is None
    then; so may one that an option named in `unless` replaces. If `meant` returns a text, that is used for an argument
    that the line does not have, and nothing is asked. A prompt and a notice may
    name what `facts` returns, and `{default}`. One that is the `rest` of its line begins with the first word that is no
    option, and has all that follows, quotes and all. `missing` is the hint where there is no answer and no default.
    One that is `unrecorded` is left out of the record of what the command does, as the body of a message is.
    """

    name: str
    kind: Kind[Any]
    help: str
    prompt: str = ""
    default: str | Callable[[Session, Given], str] | None = None
    notice: str = ""
    metavar: str = ""
    facts: Callable[[Session, Given], Mapping[str, str]] | None = None
    clearable: bool = False
    unless: tuple[str, ...] = ()
    meant: Callable[[Session], str | None] | None = None
    rest: bool = False
    missing: str = ""
    unrecorded: bool = False

    @property
    def shown(self) -> str:
        """The name of the argument in a synopsis."""
        return self.metavar or self.name

    @property
    def what(self) -> str:
        """The name of the argument in a sentence."""
        return self.shown.replace("_", " ")

    @property
    def required(self) -> bool:
        """Whether an empty answer is refused."""
        return bool(self.prompt) and self.default is None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question before the handler runs, unless `-y` is given; with `-n` the command only reports what it would do.

    `action` returns what the command is about to do, and to how many objects, from the session and the arguments, or
    why there is nothing to do; `declined` is the warning when the answer is no, with places for arguments. `refuse`
    raises the error that the command would raise, as far as that is known before the question. `option` names the
    option of the command without which nothing is asked.
    """

    action: Callable[[Session, Given], str | Notice]
    declined: str | Notice
    refuse: Callable[[Session, Given], object] | None = None
    option: str = ""

    def is_asked(self, given: Given) -> bool:
        """Return whether the arguments make the command ask."""
        return not self.option or bool(given.get(self.option))

    CHOICES = "? (y, n [default=n]): "


Failure = Callable[[QueueError, Given, "Session"], Notice | None]
"""Returns the sentence of the catalogue that precedes the cause when a handler is refused, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of the shell.

    `raw`: its one argument is the rest of the line, including quotes. `shows_only`: it only shows something, so that an
    empty line may repeat it. `updates_itself`: it shows that again and again by itself. `lasts`: its effect on the
    session holds for later commands.
    """

    name: str
    handler: Callable[..., Outcome]
    options: tuple[Option, ...]
    positionals: tuple[Positional, ...]
    short: tuple[str, ...] = ()
    needs: Needs = Needs.NOTHING
    confirm: Confirmation | None = None
    failure: Failure | None = None
    raw: bool = False
    shows_only: bool = False
    updates_itself: bool = False
    lasts: bool = False
    extension: bool = False

    @property
    def takes_rest(self) -> bool:
        """Whether its argument is the rest of the line after the options."""
        return any(positional.rest for positional in self.positionals)

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the abbreviations."""
        return (self.name, *self.short)

    @property
    def summary(self) -> str:
        """What the command does, in one line."""
        return self._text[0].rstrip(".")

    @property
    def description(self) -> str:
        """The rest of its docstring."""
        return "\n".join(self._text[1:]).strip("\n")

    @property
    def synopsis(self) -> str:
        """The syntax of the command, in the notation of man pages."""
        if self.raw:
            return self.name + "".join(positional.shown for positional in self.positionals)
        return " ".join([self.name, *self._option_parts(), *self._positional_parts()])

    @property
    def _text(self) -> list[str]:
        return docstring(self.handler).splitlines() or [""]

    def _option_parts(self) -> list[str]:
        shown = {option.flag: option.shown if option.kind else "|".join(option.flags) for option in self.options}
        excluded = {option.excludes for option in self.options}
        return [
            f"[{{{shown[option.excludes]} | {shown[option.flag]}}}]" if option.excludes else f"[{shown[option.flag]}]"
            for option in self.options
            if option.flag not in excluded
        ]

    def _positional_parts(self) -> list[str]:
        if not self.positionals:
            return []
        shown = [positional.shown for positional in self.positionals]
        return [" [".join(["", *shown]).lstrip() + "]" * len(shown)]


class Group:
    """A topic: its title, its name for help, and its commands in the order of their declaration.

    `common` are fields of `Command` that all of its commands have unless they say otherwise.
    """

    def __init__(self, title: str, topic: str = "", **common: Any) -> None:
        self.title = title
        self._common = common
        self.topic = topic or title.lower()
        self._commands: list[Command] = []

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands of the topic."""
        return tuple(self._commands)

    def command(
        self,
        name: str,
        *arguments: Option | Positional,
        short: str = "",
        confirm: Confirmation | None = None,
        **declared: Any,
    ) -> Callable[[Handler], Handler]:
        """Declare the function beneath as the handler of the command `name`; `short` lists its abbreviations.

        Further keywords are fields of `Command`.
        """
        options = [argument for argument in arguments if isinstance(argument, Option)]
        if confirm is not None:
            options += CONFIRMING

        def declare(handler: Handler) -> Handler:
            command = Command(
                name=name,
                handler=handler,
                options=tuple(options),
                positionals=tuple(argument for argument in arguments if isinstance(argument, Positional)),
                short=tuple(short.split()),
                confirm=confirm,
                **(self._common | declared),
            )
            _check(command)
            self._commands.append(command)
            return handler

        return declare


YES = Option("-y", "yes", "Do not ask for confirmation.")
DRY_RUN = Option("-n", "dry_run", "Only report what would be done, and to what.", extension=True)
CONFIRMING = (YES, DRY_RUN)
"""The options of each command that asks for confirmation; its handler does not see them."""


def _check(command: Command) -> None:
    """Refuse a declaration that does not fit its handler, or that cannot be read."""
    declared = [positional.name for positional in command.positionals]
    declared += [option.name for option in command.options if option not in CONFIRMING]
    parameters = list(inspect.signature(command.handler).parameters.values())[1:]
    taken = [found.name for found in parameters if found.kind is not found.VAR_KEYWORD]
    # A handler may pass on arguments that it does not use itself as **keywords.
    rest = set(declared) - set(taken) if len(taken) < len(parameters) else set()
    if sorted(declared) != sorted([*taken, *rest]):
        raise TypeError(f"{command.name}: declared {sorted(declared)}, function takes {sorted(taken)}")
    if not has_no_docstrings() and not command.summary:
        raise TypeError(f"{command.name}: the handler has no docstring")
    flags = [option.flag for option in command.options]
    if len(set(flags)) < len(flags):
        raise TypeError(f"{command.name}: an option is declared twice in {flags}")
    asked = [bool(positional.prompt) for positional in command.positionals]
    if asked != sorted(asked, reverse=True):
        raise TypeError(f"{command.name}: an argument without a prompt stands before one with a prompt")
    if command.takes_rest and len(command.positionals) > 1:
        raise TypeError(f"{command.name}: beside the rest of the line there can be no other argument")
