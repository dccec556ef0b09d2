"""The settings of the programs, each declared once: its name, its allowed values, and its meaning."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar, overload

SECONDS_MAX: Final = 2**31 - 1
ARROW: Final = " -> "
"""Stands between the earlier place of a device and its present one."""

Value = str | int | bool | tuple[str, ...]
T = TypeVar("T", bound=Value)


class SettingKind(enum.Enum):
    """The kind of a setting; its value is its name in the manual."""

    TEXT = "text"
    PATH = "path"
    """`~` at its beginning is the home directory."""
    STATE_PATH = "path, or empty"
    """A relative one is in the state directory of qmadmin; empty means none."""
    CHOICE = "one of"
    FLAG = "true or false"
    NUMBER = "whole number"
    SECONDS = "seconds"
    """A whole number, or a text with its unit, such as `10m`."""
    TEXTS = "list of texts"
    MOVES = "list of texts with an arrow"
    """Each has what was before an arrow, and what is now behind it."""


def shown(value: object) -> str:
    """Return a value of a file for a sentence, shortened."""
    from qmcore.redacted import redacted

    if isinstance(value, str):
        # Before it is cut, while all of it can be seen.
        value = redacted(value)
    try:
        text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    except ValueError:
        return "a number that is too long to be shown"
    return text if len(text) <= 60 else text[:57] + "..."


def meant(word: str, known: Iterable[str], form: str = "{!r}") -> str:
    """Return what a misspelt word may have been, as the end of a sentence; empty if no word is similar."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {form.format(near[0])}?" if near else ""


def fault_of_toml(error: Exception) -> str:
    """Return why a text is not TOML."""
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error).partition("\n")[0]


def seconds(value: object) -> object:
    """Return the whole seconds of a text with a unit, such as `10m`; anything else as it is."""
    if not isinstance(value, str):
        return value
    from qmcore.times import in_seconds

    found = in_seconds(value)
    return int(found) if found != value and found.isdigit() else value


_USUAL_KINDS: Final = {str: SettingKind.TEXT, bool: SettingKind.FLAG, int: SettingKind.NUMBER, tuple: SettingKind.TEXTS}


class Setting(Generic[T]):
    """A setting, declared as an attribute of its section, where it gives the value.

    Its kind is that of its default, unless it has choices or says otherwise.
    `variable` is the environment variable that overrides it, `older_variable` its older spelling, which has less
    precedence; `meaning` is the value that it gives, if not its own.
    `default_help` describes a default that does not explain itself.
    """

    # No dataclasses here and below: creating them would take a large part of the start time of a program.
    def __init__(
        self,
        default: T,
        help: str,  # noqa: A002 - as click names it
        *,
        kind: SettingKind | None = None,
        choices: tuple[str, ...] = (),
        low: int = 0,
        high: int = 0,
        variable: str = "",
        older_variable: str = "",
        meaning: str = "",
        default_help: str = "",
    ) -> None:
        self.kind = kind or (SettingKind.CHOICE if choices else _USUAL_KINDS[type(default)])
        self.default = default
        self.help = help
        self.choices = choices
        self.low = low
        self.high = high
        self.variable = variable
        self.older_variable = older_variable
        self.meaning = meaning
        self.default_help = default_help
        self.section = ""
        self.key = ""

    def __set_name__(self, section: type[Section], key: str) -> None:
        self.section, self.key = section.name, key

    @overload
    def __get__(self, section: None, kind: type[Section]) -> Self: ...

    @overload
    def __get__(self, section: Section, kind: type[Section]) -> T: ...

    def __get__(self, section: Section | None, kind: type[Section]) -> Self | T:
        if section is None:
            return self
        value: T = section.values[self.key]
        return value

    def __set__(self, section: Section, value: object) -> NoReturn:
        raise AttributeError(f"the setting {self.key} is given by the file and the environment")

    @property
    def allowed(self) -> str:
        """Its allowed values, for a message."""
        match self.kind:
            case SettingKind.CHOICE:
                return f"one of {', '.join(self.choices)}"
            case SettingKind.NUMBER:
                return f"a whole number from {self.low} to {self.high}"
            case SettingKind.SECONDS:
                return f"a whole number of seconds from {self.low} to {self.high}, or a text such as '10m'"
            case SettingKind.FLAG:
                return "true or false"
            case SettingKind.TEXTS | SettingKind.MOVES:
                example = '"one", "two"' if self.kind is SettingKind.TEXTS else f'"old{ARROW}new"'
                return f"a list of texts in quotes, such as [{example}], without control characters"
            case _:
                return "a text in quotes, without control characters"

    def allows(self, value: object) -> bool:
        """Return whether the file may give it this value."""
        match self.kind:
            case SettingKind.FLAG:
                return isinstance(value, bool)
            case SettingKind.SECONDS | SettingKind.NUMBER:
                value = seconds(value) if self.kind is SettingKind.SECONDS else value
                return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
            case SettingKind.CHOICE:
                return value in self.choices
            case SettingKind.TEXTS:
                return isinstance(value, (list, tuple)) and all(map(_is_text, value))
            case SettingKind.MOVES:
                return isinstance(value, (list, tuple)) and all(map(_is_move, value))
            case _:
                return _is_text(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any(ord(char) < 32 or ord(char) == 127 for char in value)


def _is_move(value: object) -> bool:
    return _is_text(value) and isinstance(value, str) and all(part.strip() for part in value.partition(ARROW))


class Section:
    """A section of the settings; `values` are its settings by name."""

    name: ClassVar[str]

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)

    @classmethod
    def declared(cls) -> dict[str, Setting[Any]]:
        """Return its settings by name, in the order of their declaration."""
        return {key: found for key, found in vars(cls).items() if isinstance(found, Setting)}


class ShellSettings(Section):
    """The section [qmadmin]: the shell, and the device of all programs."""

    name = "qmadmin"

    device = Setting(
        "", "The device, unless an argument names one.", kind=SettingKind.PATH, variable="QMCONFIG", default_help="none"
    )
    space = Setting(
        "",
        "The queue space that the shell opens at its start.",
        variable="QMSPACE",
        older_variable="QM_SPACE",
        default_help="none",
    )
    format = Setting(
        "auto",
        "How results are written: as a table, in plain lines that a script can parse, as JSON or as CSV. `auto` is"
        " a table at a terminal, and plain otherwise.",
        choices=("auto", "table", "plain", "json", "csv"),
    )
    paginate = Setting(True, "Whether output that is longer than the screen goes through a pager at a terminal.")
    verbose = Setting(False, "Whether verbose mode is on at the start.")
    echo = Setting(False, "Whether echo, which prints the lines of a script, is on at the start.")
    pager = Setting(
        "",
        "The shell command that shows long output; `cat` means no pager.",
        variable="PAGER",
        default_help="`less -FRX`, or `more` if less is not installed",
    )
    history = Setting(
        "history",
        "The file that keeps the command lines that were typed. A relative path is relative to the directory qmadmin in"
        " `XDG_STATE_HOME`, which is `~/.local/state` unless it is set. With an empty path no history is kept.",
        kind=SettingKind.STATE_PATH,
    )
    history_lines = Setting(10_000, "How many command lines the history keeps.", low=1, high=1_000_000)
    bottom_line = Setting(
        True, "Whether a line at the bottom of the terminal shows the device, the queue space and the modes."
    )
    hints = Setting(True, "Whether earlier command lines are suggested while one is typed.")
    color = Setting(
        "auto",
        "Whether output is coloured, at a terminal that can show colours.",
        choices=("auto", "never"),
        variable="NO_COLOR",
        meaning="never",
    )


class LogSettings(Section):
    """The section [log]: the log of all programs."""

    name = "log"

    prefix = Setting(
        "ULOG",
        "The beginning of the names of log files; a dot and the day follow. `-` means the standard error output.",
        kind=SettingKind.PATH,
        variable="ULOGPFX",
    )
    format = Setting("text", "Whether an event is a line of text or a JSON object.", choices=("text", "json"))


class ForwarderSettings(Section):
    """The section [tmqforward]: the forwarder."""

    name = "tmqforward"

    services = Setting(
        "services.toml", "The file that describes the services.", kind=SettingKind.PATH, variable="QM_SERVICES"
    )
    trantime = Setting(
        60,
        "How many seconds the transaction around a call may take; 0 means no limit.",
        kind=SettingKind.SECONDS,
        high=SECONDS_MAX,
    )
    idletime = Setting(
        30,
        "How many seconds to sleep at most while the queues have no messages; 0 means not to sleep.",
        kind=SettingKind.SECONDS,
        high=SECONDS_MAX,
    )
    grace = Setting(
        30,
        "How many seconds a stop waits for running calls; then they are ended, and their messages are given back.",
        kind=SettingKind.SECONDS,
        high=SECONDS_MAX,
    )
    workers = Setting(
        1, "How many calls of a service run at a time, unless the services file says otherwise.", low=1, high=1000
    )
    total_workers = Setting(0, "How many calls of all services run at a time; 0 means no limit.", high=10_000)
    order = Setting(
        "auto",
        "What happens to the messages behind one whose service failed, unless the services file says otherwise: they"
        " wait (strict), they go first (skip), or as many calls run at a time as there are workers (parallel). `auto`"
        " is `parallel` with several workers, and `skip` with one.",
        choices=("auto", "strict", "skip", "parallel"),
    )
    batch = Setting(
        1,
        "How many messages a worker takes and commits together, unless the services file says otherwise.",
        low=1,
        high=1000,
    )
    metrics = Setting(
        "",
        "Where metrics for Prometheus are served over HTTP: a port of this machine's loopback address, or `host:port`;"
        " if it is empty, nowhere.",
        default_help="none",
    )
    log_level = Setting(
        "info",
        "The lowest level that the forwarder and its services log and show at a terminal; `debug` logs each call.",
        choices=("debug", "info", "warning", "error"),
    )


class CapacitySettings(Section):
    """The section [capacity]: which capacity commands may run on devices that others than this user can write."""

    name = "capacity"

    devices = Setting[tuple[str, ...]](
        (),
        "The devices, named as in QMCONFIG, whose capacity commands run for this user, whoever set them.",
        default_help="none",
    )
    commands = Setting[tuple[str, ...]](
        (),
        "The capacity commands, written as qinfo shows them, that run for this user on any device.",
        default_help="none",
    )


class RecoverySettings(Section):
    """The section [recovery]: what helps to end transactions over several volumes that were left in doubt."""

    name = "recovery"

    moved = Setting[tuple[str, ...]](
        (),
        "The devices that have moved since a transaction began, each as `old -> new`, both named as in QMCONFIG.",
        kind=SettingKind.MOVES,
        default_help="none",
    )


SECTIONS: Final[dict[str, type[Section]]] = {
    kind.name: kind for kind in (ShellSettings, LogSettings, ForwarderSettings, CapacitySettings, RecoverySettings)
}
