"""The settings of the programs: those of the file `qmadmin.toml`, which the environment overrides.

    [qmadmin]
    format = "json"

    [log]
    prefix = "~/log/ULOG"

Each setting is declared once, as a field of its section (`qmadmin.settings`). A program uses the first of these that
gives a value: its options and arguments, the environment, the file, the default. The file is the one that QMADMIN_TOML
names, else `$XDG_CONFIG_HOME/qmadmin/qmadmin.toml`, else `~/.config/qmadmin/qmadmin.toml`; there need not be one.

    configuration = Configuration.load(os.environ)
    configuration.log.format
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from qmadmin.settings import (
    SECTIONS,
    CapacitySettings,
    ForwarderSettings,
    LogSettings,
    RecoverySettings,
    Section,
    Setting,
    SettingKind,
    ShellSettings,
    Value,
    fault_of_toml,
    meant,
    seconds,
    shown,
)

VARIABLE: Final = "QMADMIN_TOML"
"""The environment variable that names the file."""


class ConfigurationError(Exception):
    """The settings cannot be used; the text is one sentence without a full stop.

    `file` is the file; `section`, `key` and `value` are those at fault, if any.
    """

    def __init__(self, sentence: str, *, file: str, section: str = "", key: str = "", value: object = None) -> None:
        super().__init__(sentence)
        self.file = file
        self.section = section
        self.key = key
        self.value = value


class Configuration:
    """All settings by section. `file` is the file that was read, empty if there was none."""

    def __init__(self, file: str, content: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.file = file
        self.qmadmin = ShellSettings(_values(ShellSettings, content, environ))
        self.log = LogSettings(_values(LogSettings, content, environ))
        self.tmqforward = ForwarderSettings(_values(ForwarderSettings, content, environ))
        self.capacity = CapacitySettings(_values(CapacitySettings, content, environ))
        self.recovery = RecoverySettings(_values(RecoverySettings, content, environ))

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Configuration:
        """Return the settings of the file and of the environment; ConfigurationError for a file that has a fault.

        An absent file has none, unless QMADMIN_TOML names it.
        """
        file, content = _content(environ)
        _check(file, content)
        return cls(file, content, environ)


def _content(environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the name of the file, and its content."""
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
    # Most users have no file, and should not pay for importing its parser.
    import tomllib

    try:
        return file, tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"settings file {file!r} is not TOML: {fault_of_toml(error)}", file=file) from None


def _usual_file(environ: Mapping[str, str]) -> str:
    directory = _directory(environ, "XDG_CONFIG_HOME", ".config")
    return f"{directory}/qmadmin/qmadmin.toml" if directory else ""


def _directory(environ: Mapping[str, str], variable: str, beneath_home: str) -> str:
    """Return a directory of the XDG specification, which ignores relative paths; empty if there is none."""
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


def _check(file: str, content: Mapping[str, Any]) -> None:
    for section, table in content.items():
        if section not in SECTIONS:
            raise _unknown_section(file, section, table)
        if not isinstance(table, dict):
            raise ConfigurationError(
                f"settings file {file!r}: {section} must be a section [{section}], got {shown(table)}",
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
        sentence = f"has {_name(section)} = {shown(value)} outside of a section; it belongs to {' or '.join(homes)}"
    else:
        known = ", ".join(f"[{name}]" for name in SECTIONS)
        sentence = (
            f"has the unknown section [{_name(section)}]; there are {known}{meant(section.lower(), SECTIONS, '[{}]')}"
        )
    return ConfigurationError(f"settings file {file!r} {sentence}", file=file, section=section, value=value)


def _unknown_key(
    file: str, section: str, key: str, value: object, known: Mapping[str, Setting[Any]]
) -> ConfigurationError:
    if elsewhere := _homes(key):
        advice = f"; it belongs to [{elsewhere[0]}]"
    else:
        advice = f"; there are {', '.join(known)}{meant(key.lower(), known, '{}')}"
    return ConfigurationError(
        f"settings file {file!r}: [{section}] has the unknown setting {_name(key)} = {shown(value)}{advice}",
        file=file,
        section=section,
        key=key,
        value=value,
    )


def _homes(key: str) -> list[str]:
    """Return the sections that have a setting of that name."""
    return [name for name, kind in SECTIONS.items() if key in kind.declared()]


def _not_allowed(file: str, setting: Setting[Any], value: object) -> ConfigurationError:
    advice = meant(value.lower(), setting.choices) if isinstance(value, str) else ""
    return ConfigurationError(
        f"settings file {file!r}: {setting.key} in [{setting.section}] must be {setting.allowed}, got"
        f" {shown(value)}{advice}",
        file=file,
        section=setting.section,
        key=setting.key,
        value=value,
    )


def _name(key: str) -> str:
    """Return a name in the file, which may be anything, in a form for a sentence."""
    return key if key.isprintable() and 0 < len(key) <= 60 else shown(key)


def _values(section: type[Section], content: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Value]:
    """Return the settings of a section: from the environment, else the file, else the defaults."""
    table = content.get(section.name, {})
    values: dict[str, Value] = {}
    for key, setting in section.declared().items():
        given = environ.get(setting.variable) or environ.get(setting.older_variable)
        if given:
            values[key] = setting.meaning or given
        else:
            values[key] = _resolved(setting.kind, table.get(key, setting.default), environ)
    return values


def _resolved(kind: SettingKind, value: Value, environ: Mapping[str, str]) -> Value:
    """Return a value ready for use: paths and seconds resolved, a list as a tuple, anything else unchanged."""
    if kind is SettingKind.SECONDS:
        return cast("Value", seconds(value))
    if kind in (SettingKind.TEXTS, SettingKind.MOVES) and isinstance(value, (list, tuple)):
        return tuple(value)
    if kind not in (SettingKind.PATH, SettingKind.STATE_PATH) or not isinstance(value, str) or not value:
        return value
    if value == "~" or value.startswith("~/"):
        return environ.get("HOME", "~") + value[1:]
    if kind is SettingKind.STATE_PATH and not value.startswith("/"):
        state = _directory(environ, "XDG_STATE_HOME", ".local/state")
        return f"{state}/qmadmin/{value}" if state else ""
    return value
