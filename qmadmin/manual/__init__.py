"""The generated parts of the manual pages, in roff, made from the declarations of the programs. No program imports it.

`programs` describes options, settings, commands, the services of the forwarder and errors; here are text as roff, and
the interfaces of programs: ATMI and the Python API, columns of archives and tables, and the classes of the MIB.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from qmadmin.archive.columns import COLUMNS, ArchiveColumn, ColumnType
from qmadmin.atmi import calls, control, errno
from qmadmin.atmi.control import TPQCTL
from qmadmin.atmi.errno import Value
from qmadmin.mib import CLASSES, Code, Flags, describe
from qmcore.attributes import attributes_of

_SPECIAL = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq", "\xa0": r"\ "}
)


def escaped(text: str) -> str:
    """Return text in which every character stands for itself."""
    changed = text.translate(_SPECIAL)
    return rf"\&{changed}" if changed.startswith((".", "'")) else changed


def prose(text: str) -> str:
    """Return running text, each sentence on a line of its own, with names in backquotes in bold."""
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z`])", " ".join(text.split()))
    return "\n".join(_with_names(sentence) for sentence in sentences)


def terms(rows: Iterable[tuple[str, str]], *, indent: str = "") -> str:
    """Return a list of terms, which are roff already, with their meanings, which are text."""
    head = f".TP {indent}".rstrip()
    return "".join(f"{head}\n{term}\n{prose(text)}\n" for term, text in rows)


def bold(text: str) -> str:
    """Return literal text, in bold."""
    return rf"\fB{escaped(text)}\fR"


def italic(text: str) -> str:
    """Return a metavariable, in italics."""
    return rf"\fI{escaped(text)}\fR"


def filled(template: str, parts: Mapping[str, str]) -> str:
    r"""Return a page with its generated parts: each replaces the line `.\" @NAME@` of the template."""
    for name, text in parts.items():
        mark = f'.\\" @{name}@\n'
        if template.count(mark) != 1:
            raise ValueError(f"the template has the line {mark!r} {template.count(mark)} times")
        template = template.replace(mark, text)
    return template


def _with_names(sentence: str) -> str:
    # A line that begins with a control character would be taken for a request.
    return re.sub(r"\\\(ga(.+?)\\\(ga", r"\\fB\1\\fR", escaped(sentence))


CALLS = ("enqueue", "dequeue")


def call_flags(call: str) -> str:
    """Return the flags of a call, `enqueue` or `dequeue`."""
    return _flags(call, _values(calls, "TP"))


def control_flags(call: str) -> str:
    """Return the flags of TPQCTL that apply to a call."""
    return _flags(call, {name: value for name, value in _values(control, "TP").items() if not _is_quality(name)})


def fields(call: str) -> str:
    """Return the fields of TPQCTL that a call reads or fills."""
    used = _fields_of(call)
    return terms(
        (rf"{bold(field.name)} ({escaped(field.metadata['allowed'])})", field.metadata["help"])
        for field in dataclasses.fields(TPQCTL)
        if field.name in used
    )


def qualities() -> str:
    """Return the values of delivery_qos and reply_qos."""
    found = {name: value for name, value in _values(control, "TP").items() if _is_quality(name)}
    return terms((f"{bold(name)} ({int(value)})", value.enqueue) for name, value in found.items())


def errnos(call: str) -> str:
    """Return the values of tperrno that a call has."""
    return terms((f"{bold(name)} ({int(value)})", text) for name, value, text in _with_meaning(call, "TP"))


def diagnostics(call: str) -> str:
    """Return the diagnostics that a call has."""
    return terms((rf"{bold(name)} (\-{-int(value)})", text) for name, value, text in _with_meaning(call, "QME"))


def synopsis(function: Callable[..., Any]) -> str:
    """Return the synopsis of a method of QueueSpace, with the names and defaults of its arguments."""
    parts = list(_arguments(function))
    return f"{bold(f'space.{function.__name__}')}(" + ", ".join(parts) + ")\n"


def arguments(function: Callable[..., Any]) -> str:
    """Return the arguments of a method of QueueSpace and what they mean, from its docstring."""
    return terms(_items(function))


def raised(function: Callable[..., Any]) -> str:
    """Return which errors a method of QueueSpace raises, from its docstring."""
    return prose(inspect.cleandoc(function.__doc__ or "").partition("\n\nRaises ")[2]) + "\n"


def _flags(call: str, values: dict[str, Value]) -> str:
    return terms(
        (f"{bold(name)} ({_hex(value)})", getattr(value, call) + _in_python(call, value))
        for name, value in values.items()
        if getattr(value, call)
    )


def _values(module: Any, prefix: str) -> dict[str, Value]:
    return {
        name: value
        for name, value in vars(module).items()
        if name in module.__all__ and name.startswith(prefix) and isinstance(value, Value)
    }


def _with_meaning(call: str, prefix: str) -> Iterator[tuple[str, Value, str]]:
    seen: set[int] = set()
    for name, value in _values(errno, prefix).items():
        # A second name for the same number is for older programs.
        if (text := getattr(value, call)) and value not in seen:
            seen.add(value)
            yield name, value, text


def _is_quality(name: str) -> bool:
    return name.startswith("TPQQOS")


def _hex(value: int) -> str:
    return f"0x{value:05x}" if value > 0xFFF else f"0x{value:03x}"


def _in_python(call: str, value: Value) -> str:
    """Return a sentence with the argument that does the same; a dequeue returns the fields in the message."""
    asks = call == "dequeue" and value.enqueue and value.enqueue != value.dequeue
    return f" In Python: `{value.keyword}`." if value.keyword and not asks else ""


def _fields_of(call: str) -> set[str]:
    """Return the fields that the flags of a call name, and those that need none."""
    texts = [getattr(value, call) for value in _values(control, "TP").values()]
    named = {name for text in texts for name in re.findall(r"`(\w+)`", text)}
    always = {"flags", "urcode", "diagnostic"}
    return named | always | ({"cltid", "appkey", "type", "subtype"} if call == "dequeue" else set())


def _arguments(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the arguments after the object, with a star before those that are given by keyword."""
    by_name = False
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
            by_name = True
            yield "*"
        name = rf"\fI{escaped(parameter.name)}\fR"
        yield name if parameter.default is parameter.empty else f"{name}={escaped(repr(parameter.default))}"


def _items(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """Return the items of a docstring: lines that begin with a name in backquotes, and those that follow."""
    doc = inspect.cleandoc(function.__doc__ or "")
    block = next(part for part in doc.split("\n\n") if part.startswith("`"))
    found = re.split(r"^(?=`\w+`)", block, flags=re.MULTILINE)[1:]
    rows = []
    for item in found:
        head, _, text = " ".join(item.split()).partition(": ")
        rows.append((re.sub(r"\\\(ga(.+?)\\\(ga", r"\\fI\1\\fR", escaped(head)), text))
    return rows


_JSON: Final = {str: "string", int: "number", float: "number", bool: "boolean"}


def columns(declared: Iterable[ArchiveColumn] = COLUMNS) -> str:
    """Return columns in their order: the type and the unit of each, whether each row has it, what it means."""
    return terms(
        (_column_head(known.name, type_of(known.kind), known.unit, required=known.required), known.meaning)
        for known in declared
    )


def type_of(kind: ColumnType) -> str:
    """Return the name of the type of a column in a page."""
    return "timestamp, microseconds" if kind is ColumnType.TIME else kind.value


def attributes(record: type) -> str:
    """Return the attributes of a data class, as JSON has them."""
    return terms(
        (
            _column_head(name, _JSON[known.kind.plain_type], known.kind.unit, required=not known.kind.may_be_none),
            known.about,
        )
        for name, known in attributes_of(record).items()
    )


def _column_head(name: str, kind: str, unit: str, *, required: bool) -> str:
    told = [kind, unit, "" if required else "may be null"]
    return f"{bold(name)} ({escaped(', '.join(filter(None, told)))})"


def mib_classes() -> str:
    """Return the description of all classes: their states, and each of their attributes."""
    return "".join(_mib_class(describe(name)) for name in CLASSES)


def mib_flags() -> str:
    """Return the meanings of the flags."""
    return terms((f"{bold(str(flag.name))} ({flag.value:#x})", flag.meaning) for flag in Flags if flag)


def mib_codes() -> str:
    """Return the reasons for refusing requests."""
    return terms((bold(code.name), f"{code.value[0].upper()}{code.value[1:]}.") for code in Code)


def _mib_class(told: Mapping[str, Any]) -> str:
    states = [f"{state}: {meaning}." for state, meaning in told["states"].items()]
    doings = [(bold(state), f"{text[0].upper()}{text[1:]}.") for state, text in told["set"].items()]
    return "\n".join(
        [
            f".SS {escaped(told['class'])}",
            prose(told["about"]),
            f"The state is {'one of these' if len(states) > 1 else 'always this'}.",
            "\n".join(f".br\n{escaped(state)}" for state in states),
            ".PP",
            "A SET does this, by TA_STATE:",
            terms(doings, indent="6") + ".PP",
            "Attributes:",
            terms((_attribute_head(known), _attribute_text(known)) for known in told["attributes"]),
        ]
    )


def _attribute_head(known: Mapping[str, Any]) -> str:
    marks = "".join(f", {mark}" for mark in known["marks"])
    return f"{bold(known['name'])} ({escaped(known['type'])} {escaped(known['permissions'])}{escaped(marks)})"


def _attribute_text(known: Mapping[str, Any]) -> str:
    return f"{known['about']} Values: {known['values']}."
