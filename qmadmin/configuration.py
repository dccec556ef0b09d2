"""The settings of the programs: those of a file `qmadmin.toml`, beneath those of the environment.

    [qmadmin]
    format = "json"

    [log]
    prefix = "~/log/ULOG"

Each setting is declared once, as a field of its section. A program follows the first of these that says anything: its
options and arguments, the environment, the file, the default. The file is the one that QMADMIN_TOML names, else
`$XDG_CONFIG_HOME/qmadmin/qmadmin.toml`, else `~/.config/qmadmin/qmadmin.toml`; there need not be one.

    configuration = Configuration.load(os.environ)
    configuration.log.format
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar, overload

VARIABLE: Final = "QMADMIN_TOML"
"""The environment variable that names the file."""

SECONDS_MAX: Final = 2**31 - 1

Value = str | int | bool
T = TypeVar("T", bound=Value)


class ConfigurationError(Exception):
    """The settings cannot be used; the text is one sentence without a full stop.

    `file` is the file; `section`, `key` and `value` are what it says there, as far as the fault has these.
    """

    def __init__(self, sentence: str, *, file: str, section: str = "", key: str = "", value: object = None) -> None:
        super().__init__(sentence)
        self.file = file
        self.section = section
        self.key = key
        self.value = value


class Kind(enum.Enum):
    """What a setting is; its value is how the manual calls it."""

    TEXT = "text"
    PATH = "path"
    """`~` at its beginning is the home directory."""
    STATE_PATH = "path, or empty"
    """A relative one is beneath the directory for the state of qmadmin; empty is none."""
    CHOICE = "one of"
    FLAG = "true or false"
    NUMBER = "whole number"


class Setting(Generic[T]):
    """A setting, declared as an attribute of its section, where it gives the value.

    `variable` is the environment variable that wins over it; `meaning` is the value that it gives, if not its own.
    `default_help` describes a default that says nothing by itself.
    """

    # No dataclass, nor the sections below: what makes those would take a large part of the time that a program starts.
    def __init__(
        self,
        kind: Kind,
        default: T,
        help: str,  # noqa: A002 - as click names it
        *,
        choices: tuple[str, ...] = (),
        low: int = 0,
        high: int = 0,
        variable: str = "",
        meaning: str = "",
        default_help: str = "",
    ) -> None:
        self.kind = kind
        self.default = default
        self.help = help
        self.choices = choices
        self.low = low
        self.high = high
        self.variable = variable
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
        """What its value may be, for a message."""
        match self.kind:
            case Kind.CHOICE:
                return f"one of {', '.join(self.choices)}"
            case Kind.NUMBER:
                return f"a whole number from {self.low} to {self.high}"
            case Kind.FLAG:
                return "true or false"
            case _:
                return "a text in quotes, without control characters"

    def allows(self, value: object) -> bool:
        """Tell whether the file may give it this value."""
        match self.kind:
            case Kind.FLAG:
                return isinstance(value, bool)
            case Kind.NUMBER:
                return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
            case Kind.CHOICE:
                return value in self.choices
            case _:
                return isinstance(value, str) and not any(ord(char) < 32 or ord(char) == 127 for char in value)


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
        Kind.PATH, "", "The device, where no argument names one.", variable="QMCONFIG", default_help="none"
    )
    format = Setting(
        Kind.CHOICE,
        "auto",
        "How results are written: as a table, in plain lines that a script can take apart, as JSON or as CSV. `auto` is"
        " a table at a terminal, and plain otherwise.",
        choices=("auto", "table", "plain", "json", "csv"),
    )
    paginate = Setting(
        Kind.FLAG, True, "Whether output that is longer than the screen goes through a pager, at a terminal."
    )
    verbose = Setting(Kind.FLAG, False, "Whether commands show more at first.")
    echo = Setting(Kind.FLAG, False, "Whether a script repeats its lines at first.")
    pager = Setting(
        Kind.TEXT,
        "",
        "The shell command that long output goes through; `cat` is none.",
        variable="PAGER",
        default_help="`less -FRX`, or `more` where there is no less",
    )
    history = Setting(
        Kind.STATE_PATH,
        "history",
        "The file of the command lines that were typed. A relative path is beneath the directory qmadmin of"
        " `XDG_STATE_HOME`, which is `~/.local/state` where that is not set. Empty, none is kept.",
    )
    history_lines = Setting(Kind.NUMBER, 10_000, "How many command lines the history keeps.", low=1, high=1_000_000)
    bottom_line = Setting(
        Kind.FLAG, True, "Whether a line at the bottom of the terminal shows the device, the queue space and the modes."
    )
    hints = Setting(Kind.FLAG, True, "Whether earlier command lines are suggested while one is typed.")
    color = Setting(
        Kind.CHOICE,
        "auto",
        "Whether there are colours, at a terminal that has them.",
        choices=("auto", "never"),
        variable="NO_COLOR",
        meaning="never",
    )


class LogSettings(Section):
    """The section [log]: the log of all programs."""

    name = "log"

    prefix = Setting(
        Kind.PATH,
        "ULOG",
        "How the names of the log files begin; the day follows behind a dot. `-` is the standard error output instead.",
        variable="ULOGPFX",
    )
    format = Setting(
        Kind.CHOICE, "text", "Whether an event is a line of text or a JSON object.", choices=("text", "json")
    )


class ForwarderSettings(Section):
    """The section [tmqforward]: the forwarder."""

    name = "tmqforward"

    services = Setting(Kind.PATH, "services.toml", "The file that describes the services.", variable="QM_SERVICES")
    trantime = Setting(
        Kind.NUMBER,
        60,
        "How many seconds the transaction around a call may take; 0 is no limit.",
        high=SECONDS_MAX,
    )
    idletime = Setting(
        Kind.NUMBER,
        30,
        "The most seconds to sleep while the queues have no messages; 0 is no sleep.",
        high=SECONDS_MAX,
    )
    grace = Setting(
        Kind.NUMBER,
        30,
        "How many seconds calls that run are waited for at a stop; then they are ended, and their messages given back.",
        high=SECONDS_MAX,
    )
    workers = Setting(
        Kind.NUMBER,
        1,
        "How many calls of a service run at a time, where the services file does not say.",
        low=1,
        high=1000,
    )
    total_workers = Setting(Kind.NUMBER, 0, "How many calls run at a time in all; 0 is no limit.", high=10_000)
    order = Setting(
        Kind.CHOICE,
        "auto",
        "What becomes of the messages behind one whose service failed, where the services file does not say: they wait"
        " (strict), they go first (skip), or several go at a time anyway (parallel). `auto` is `parallel` with several"
        " workers, and `skip` with one.",
        choices=("auto", "strict", "skip", "parallel"),
    )
    batch = Setting(
        Kind.NUMBER,
        1,
        "How many messages a worker takes, and commits, at a time, where the services file does not say.",
        low=1,
        high=1000,
    )
    metrics = Setting(
        Kind.TEXT,
        "",
        "Where figures for Prometheus are served over HTTP: a port of this machine's loopback address, or `host:port`;"
        " empty is nowhere.",
        default_help="none",
    )


SECTIONS: Final[dict[str, type[Section]]] = {
    kind.name: kind for kind in (ShellSettings, LogSettings, ForwarderSettings)
}


class Configuration:
    """All settings by section. `file` is the file that was read, empty if there was none."""

    def __init__(self, file: str, content: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.file = file
        self.qmadmin = ShellSettings(_values(ShellSettings, content, environ))
        self.log = LogSettings(_values(LogSettings, content, environ))
        self.tmqforward = ForwarderSettings(_values(ForwarderSettings, content, environ))

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Configuration:
        """Return the settings of the file and of the environment; ConfigurationError for a file that has a fault.

        An absent file has none, unless QMADMIN_TOML names it.
        """
        file, content = _content(environ)
        _check(file, content)
        return cls(file, content, environ)


def _content(environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the name of the file, and what is in it."""
    named = environ.get(VARIABLE)
    file = named or _usual_file(environ)
    try:
        raw = _read(file) if file else None
    except OSError as error:
        raise ConfigurationError(f"settings file {file!r} cannot be read: {error.strerror}", file=file) from None
    if raw is None:
        if named:
            raise ConfigurationError(f"there is no settings file {named!r}, which {VARIABLE} names", file=named)
        return "", {}
    # Most have no file, and should not pay for what reads one.
    import tomllib

    try:
        return file, tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"settings file {file!r} is not TOML: {_first_line(error)}", file=file) from None


def _usual_file(environ: Mapping[str, str]) -> str:
    directory = _directory(environ, "XDG_CONFIG_HOME", ".config")
    return f"{directory}/qmadmin/qmadmin.toml" if directory else ""


def _directory(environ: Mapping[str, str], variable: str, beneath_home: str) -> str:
    """Return a directory of the XDG specification, which has relative paths ignored; empty where there is none."""
    named, home = environ.get(variable) or "", environ.get("HOME")
    if named.startswith("/"):
        return named.rstrip("/") or "/"
    return f"{home.rstrip('/')}/{beneath_home}" if home else ""


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - pathlib would cost more than the rest
            return opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _first_line(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return str(error).partition("\n")[0]


def _check(file: str, content: Mapping[str, Any]) -> None:
    for section, table in content.items():
        if section not in SECTIONS:
            raise _unknown_section(file, section, table)
        if not isinstance(table, dict):
            raise ConfigurationError(
                f"settings file {file!r}: {section} must be a section [{section}], got {_shown(table)}",
                file=file,
                section=section,
                value=table,
            )
        known = SECTIONS[section].declared()
        for key, value in table.items():
            if key not in known:
                raise _unknown_key(file, section, key, value, known)
            if not known[key].allows(value):
                raise _not_allowed(file, known[key], value)


def _unknown_section(file: str, section: str, value: object) -> ConfigurationError:
    homes = [f"[{name}]" for name in _homes(section)]
    if homes and not isinstance(value, dict):
        sentence = f"has {_name(section)} = {_shown(value)} outside of a section; it belongs to {' or '.join(homes)}"
    else:
        known = ", ".join(f"[{name}]" for name in SECTIONS)
        sentence = f"has the unknown section [{_name(section)}]; there are {known}{_meant(section, SECTIONS, '[{}]')}"
    return ConfigurationError(f"settings file {file!r} {sentence}", file=file, section=section, value=value)


def _unknown_key(
    file: str, section: str, key: str, value: object, known: Mapping[str, Setting[Any]]
) -> ConfigurationError:
    if elsewhere := _homes(key):
        meant = f"; it belongs to [{elsewhere[0]}]"
    else:
        meant = f"; there are {', '.join(known)}{_meant(key, known, '{}')}"
    return ConfigurationError(
        f"settings file {file!r}: [{section}] has the unknown setting {_name(key)} = {_shown(value)}{meant}",
        file=file,
        section=section,
        key=key,
        value=value,
    )


def _homes(key: str) -> list[str]:
    """Return the sections that have a setting of that name."""
    return [name for name, kind in SECTIONS.items() if key in kind.declared()]


def _not_allowed(file: str, setting: Setting[Any], value: object) -> ConfigurationError:
    meant = _meant(value, setting.choices, "{!r}") if isinstance(value, str) else ""
    return ConfigurationError(
        f"settings file {file!r}: {setting.key} in [{setting.section}] must be {setting.allowed}, got"
        f" {_shown(value)}{meant}",
        file=file,
        section=setting.section,
        key=setting.key,
        value=value,
    )


def _meant(word: str, known: Mapping[str, object] | tuple[str, ...], form: str) -> str:
    import difflib

    near = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f"; did you mean {form.format(near[0])}?" if near else ""


def _name(key: str) -> str:
    """Return a name of the file, which may be anything, as it can stand in a sentence."""
    return key if key.isprintable() and 0 < len(key) <= 60 else _shown(key)


def _shown(value: object) -> str:
    from qmcore.redacted import redacted

    if isinstance(value, str):
        # Before it is cut, while all of it can be seen.
        value = redacted(value)
    try:
        text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    except ValueError:
        return "a number that is too long to be shown"
    return text if len(text) <= 60 else text[:57] + "..."


def _values(section: type[Section], content: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Value]:
    """Return the settings of a section: what the environment says, else the file, else the default."""
    table = content.get(section.name, {})
    values: dict[str, Value] = {}
    for key, setting in section.declared().items():
        given = environ.get(setting.variable) if setting.variable else None
        if given:
            values[key] = setting.meaning or given
        else:
            values[key] = _resolved(setting.kind, table.get(key, setting.default), environ)
    return values


def _resolved(kind: Kind, value: Value, environ: Mapping[str, str]) -> Value:
    """Return a path as it is to be used, and anything else as it is."""
    if kind not in (Kind.PATH, Kind.STATE_PATH) or not isinstance(value, str) or not value:
        return value
    if value == "~" or value.startswith("~/"):
        return environ.get("HOME", "~") + value[1:]
    if kind is Kind.STATE_PATH and not value.startswith("/"):
        state = _directory(environ, "XDG_STATE_HOME", ".local/state")
        return f"{state}/qmadmin/{value}" if state else ""
    return value
