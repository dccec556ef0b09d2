"""Descriptions of programs: options and arguments, settings and variables, commands, services, diagnostics."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from qmadmin import options
from qmadmin.atmi.control import TPQCTL
from qmadmin.atmi.errno import ERROR_NAMES, failure
from qmadmin.console.results import Block, Entry, Example, Heading, Paragraph, Term
from qmadmin.consumers.handler_options import handler_keys
from qmadmin.consumers.handling import Key, keys_of
from qmadmin.forwarder import command_service, http_service
from qmadmin.forwarder import options as forwarder
from qmadmin.forwarder.descriptions import KINDS, Description
from qmadmin.manual import bold, escaped, italic, prose, terms
from qmadmin.monitoring.forwarding import KEYS
from qmadmin.settings import SECTIONS, Setting, SettingKind
from qmadmin.shell import session_commands as help_text
from qmadmin.shell.notices import CATALOGUE
from qmadmin.spark import program as of_qmspark
from qmadmin.ulog import JSON_KEYS
from qmcore.condition import LISTED
from qmcore.errors import NoSpaceError, QueueError, Resource, SystemFailureError

if TYPE_CHECKING:
    from qmadmin.monitoring.metrics import Family
    from qmadmin.shell.catalogue import Catalogue
    from qmadmin.shell.declare import Command


def described(program: click.Command, only: Container[str] | None = None) -> str:
    """Return the arguments and options of a program, in the order of their declaration; `only` those of these names."""
    rows: list[tuple[str, str]] = []
    declared = [
        parameter for parameter in program.get_params(click.Context(program)) if only is None or parameter.name in only
    ]
    for parameter in declared:
        if isinstance(parameter, options.Argument):
            rows += [
                (italic(name.lower()), _with_default(text, parameter.settings.get(name)))
                for name, text in parameter.meanings.items()
            ]
    for parameter in declared:
        if isinstance(parameter, click.Option):
            rows.append((_term(parameter), _meaning(parameter)))
    return terms(rows)


def _term(option: click.Option) -> str:
    names = ", ".join(bold(name) for name in (*option.opts, *option.secondary_opts))
    if option.is_flag or option.metavar is None:
        return names
    return f"{names} {_value(option.metavar)}"


def _value(metavar: str) -> str:
    """Return the metavariable of a value: words in capitals in italics."""
    parts = re.findall(r"[A-Z]+|[^A-Z]+", metavar)
    return "".join(italic(part.lower()) if part.isupper() else escaped(part) for part in parts)


def _meaning(option: click.Option) -> str:
    if not isinstance(option, options.Option):
        return option.help or ""
    return _with_default(f"{option.summary} {option.more}".strip(), option.setting)


def _with_default(text: str, setting: Setting[Any] | None) -> str:
    """Return the description of an option, with its default."""
    if setting is None:
        return text
    variable = f"the value of `{setting.variable}`, else " if setting.variable else ""
    default = setting.default_help or str(setting.default)
    return f"{text} Default: {variable}`{setting.key}` in [{setting.section}] of `qmadmin.toml`(5), else {default}."


def settings(section: str) -> str:
    """Return the settings of a section: allowed values, default, meaning, and the variable that overrides each."""
    return terms((_setting_head(setting), _setting_text(setting)) for setting in SECTIONS[section].declared().values())


def environment(used: Sequence[Setting[Any]]) -> str:
    """Return the environment variables that override settings, and their meanings."""
    return terms((bold(setting.variable), _of_variable(setting)) for setting in used)


def variables() -> str:
    """Return the environment variables that override settings, each with the setting."""
    rows = [setting for kind in SECTIONS.values() for setting in kind.declared().values() if setting.variable]
    return terms((bold(setting.variable), _wins(setting)) for setting in rows)


def log_keys() -> str:
    """Return the keys of an event in the log that is written as JSON."""
    return terms(((bold(key), f"{text}.") for key, text in JSON_KEYS.items()), indent="12")


def default(declared: Setting[Any] | Key) -> str:
    """Return the default of a setting, or of a key of a service, as in the file, or its description."""
    return declared.default_help or json.dumps(declared.default, ensure_ascii=False)


def _setting_head(setting: Setting[Any]) -> str:
    what = {SettingKind.CHOICE: setting.allowed, SettingKind.NUMBER: setting.allowed.removeprefix("a ")}
    return f"{bold(setting.key)} ({escaped(what.get(setting.kind, setting.kind.value))})"


def _setting_text(setting: Setting[Any]) -> str:
    wins = f" The environment variable `{setting.variable}` overrides it." if setting.variable else ""
    return f"{setting.help} The default is {default(setting)}.{wins}"


def _of_variable(setting: Setting[Any]) -> str:
    means = f" If it is set, that is {setting.meaning}." if setting.meaning else ""
    return f"{setting.help}{means} It overrides `{setting.key}` in [{setting.section}]."


def _wins(setting: Setting[Any]) -> str:
    if setting.meaning:
        return f'If it is set and not empty, `{setting.key}` in [{setting.section}] is "{setting.meaning}".'
    return f"Overrides `{setting.key}` in [{setting.section}]."


_COMMANDS = (of_qmspark.export, of_qmspark.load, of_qmspark.verify, of_qmspark.show, of_qmspark.query)


def options_of_qmspark() -> dict[str, str]:
    """Return the parts of the page by their names."""
    shared = (
        _parameter_names(of_qmspark.export) & _parameter_names(of_qmspark.load) & _parameter_names(of_qmspark.verify)
    )
    own = {command.name or "": _parameter_names(command) - shared for command in _COMMANDS}
    return {
        f"OPTIONS OF {name.upper()}": described(command, only=own[name])
        for command, name in zip(_COMMANDS, own, strict=True)
        if name != "show"
    } | {"SHARED OPTIONS": described(of_qmspark.export, only=shared)}


def _parameter_names(command: click.Command) -> set[str]:
    return {parameter.name for parameter in command.params if parameter.name}


def commands(catalogue: Catalogue) -> str:
    """Return the description of all commands, by topic."""
    lines: list[str] = []
    for group in catalogue.groups:
        lines.append(f'.SS "{escaped(group.title)}"')
        for command in group.commands:
            lines += [".HP 8", _synopsis(command), ".RS 4", *_blocks(help_text.description(command)), ".RE"]
    return "\n".join(lines) + "\n"


def properties() -> str:
    """Return the list of the properties of messages in conditions."""
    lines: list[str] = []
    for known in LISTED:
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
    """Return a piece of a synopsis: literal text in bold, metavariables in italics."""
    parts = re.findall(r"-\w(?!\w)|[\w-]+|\W", text)
    return "".join(
        rf"\fB{escaped(part)}\fR"
        if re.fullmatch(r"-\w|--\w+|off|on|all|persist|nonpersist", part)
        else rf"\fI{escaped(part)}\fR"
        if re.fullmatch(r"[\w-]+", part)
        else escaped(part)
        for part in parts
    )


# ---- services and their statistics -----------------------------------------------------------------------------------


def parts() -> dict[str, str]:
    """Return the generated parts of the page."""
    return {
        "KEYS OF ALL SERVICES": _listed(keys_of(Description)),
        **{f"KEYS OF {teller.upper()}": _listed(_own(kind)) for teller, kind in KINDS.items()},
        "VARIABLES OF COMMANDS": _defined(command_service.FACTS),
        "OUTCOME": _defined(command_service.OUTCOMES),
        "HTTP HEADERS": _defined(http_service.HEADERS),
        "HTTP ANSWERS": _defined(http_service.ANSWERS),
    }


def handlers() -> str:
    """Return the options of handlers of an application."""
    return _listed(handler_keys())


def _own(kind: type[Description]) -> dict[str, Key]:
    common = keys_of(Description)
    return {name: key for name, key in keys_of(kind).items() if name not in common}


def _listed(keys: Mapping[str, Key]) -> str:
    return terms((_head(key), _text(key)) for key in keys.values())


def _head(key: Key) -> str:
    return f"{bold(key.name)} ({escaped(key.form.allowed.removeprefix('a ').removeprefix('an '))})"


def _text(key: Key) -> str:
    return key.help if key.required else f"{key.help} The default is {default(key)}."


def _defined(meanings: Mapping[str, str]) -> str:
    return terms(((bold(name), meaning) for name, meaning in meanings.items()), indent="18")


def forwarders() -> str:
    """Return the data for programs about a process that forwards a queue."""
    return terms(((bold(key), f"{text}.") for key, text in KEYS.items()), indent="18")


def metrics(families: Iterable[Family]) -> str:
    """Return metrics for Prometheus, by their names."""
    return terms((f"{bold(family.shown)} ({family.kind})", family.about) for family in families)


# ---- diagnostics and the numbered messages ---------------------------------------------------------------------------


_BLOCKED = "where another program kept the file locked"
_CIRCUMSTANCES = (("", False), ("after the timeout of the transaction", True), (_BLOCKED, False))
"""The cases in which the tperrno depends on more than the class of an error; and whether the timeout has passed."""


def diagnostics() -> str:
    """Return each diagnostic: name, number, class, meaning, causes, remedy, and the tperrno that it comes with."""
    lines: list[str] = []
    for kind in sorted(QueueError.by_name.values(), key=lambda found: -found.number):
        lines += [".TP", rf"{bold(kind.name)} (\-{-kind.number}), {bold(kind.__name__)}", meaning(kind)]
        lines += [".RS", ".TP 9", r"\fICauses\fR", prose(kind.causes), ".TP 9", r"\fIRemedy\fR", prose(kind.remedy)]
        lines += [".TP 9", r"\fItperrno\fR", f"{_errnos(kind)}.", ".RE"]
    return "\n".join(lines) + "\n"


def meaning(kind: type[QueueError]) -> str:
    """Return the meaning of a diagnostic."""
    return prose(inspect.getdoc(kind) or "")


def resources() -> str:
    """Return the list of the resources of QMENOSPACE."""
    return "".join(f".TP\n{bold(resource.value)}\n{prose(resource.remedy)}\n" for resource in Resource)


def shell_messages() -> str:
    """Return the numbered messages of the commands of the shell."""
    return _messages(CATALOGUE)


def forwarder_messages() -> str:
    """Return the numbered messages of the forwarder."""
    return _messages(forwarder.CATALOGUE)


def _messages(entries: Iterable[Entry]) -> str:
    lines: list[str] = []
    for entry in entries:
        text = re.sub(r"\{(\w+)\}", r"\\fI\1\\fR", escaped(f"{entry.severity.value}: {entry.form}"))
        lines += [".TP 6", str(entry.number), text]
    return "\n".join(lines) + "\n"


def _errnos(kind: type[QueueError]) -> str:
    """Return the tperrno of a diagnostic, taken from the calls themselves."""
    found: dict[str, str] = {}
    for when, time_is_over in _CIRCUMSTANCES:
        if when == _BLOCKED and kind is not SystemFailureError:
            # Nothing else is raised for this reason.
            continue
        sample = _sample(kind, blocked=when == _BLOCKED)
        name = ERROR_NAMES[failure(sample, TPQCTL(), time_is_over=time_is_over).tperrno]
        found.setdefault(name, f"{name} {when}".strip())
    return ", ".join(found.values())


def _sample(kind: type[QueueError], *, blocked: bool) -> QueueError:
    if kind is NoSpaceError:
        return NoSpaceError("", Resource.PAGES, used=0, limit=0)
    return kind("", blocked=blocked)
