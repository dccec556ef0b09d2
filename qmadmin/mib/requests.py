"""Requests to the management information base: each is checked against the declarations, and then carried out.

For other languages and for scripts they are arguments, and the answer is one JSON document.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from qmadmin.audit import act, recorded_as
from qmadmin.mib.appq import T_APPQ
from qmadmin.mib.appqmsg import T_APPQMSG
from qmadmin.mib.appqspace import T_APPQSPACE
from qmadmin.mib.appqtrans import T_APPQTRANS
from qmadmin.mib.declare import (
    DEVICE,
    MACHINE,
    STATE,
    VOLUME_STATE,
    Attribute,
    Code,
    Flags,
    Mark,
    MibClass,
    MibError,
    Request,
    Value,
    Values,
    ValueType,
    blaming,
)
from qmadmin.opening import open_to_administer
from qmadmin.volume_makers import path_of
from qmcore.checks import index_of
from qmcore.errors import QueueError, SystemFailureError
from qmcore.redacted import redacted
from qmcore.volume_record import PRESENT

if TYPE_CHECKING:
    from qmadmin.device import Device

Where: TypeAlias = "Device | str | os.PathLike[str]"
"""An open device, or the path of one that is opened for the request."""

CLASSES: dict[str, MibClass[Any]] = {known.name: known for known in (T_APPQSPACE, T_APPQ, T_APPQMSG, T_APPQTRANS)}

_TYPES = {ValueType.STRING: str, ValueType.LONG: int}
_NEW = "NEW"


def get(device: Where, class_name: str, keys: Values | None = None) -> list[dict[str, Value]]:
    """Return the attributes of all objects of a class that the keys select, a dict for each.

    `keys` are attributes that are keys of the class. Raises MibError if one is not, or if one is missing, and the
    errors of the engine.
    """
    return list(stream(device, class_name, keys))


def stream(
    device: Where, class_name: str, keys: Values | None = None, *, warn: Callable[[str], None] = lambda _sentence: None
) -> Iterator[dict[str, Value]]:
    """Yield what `get` returns one by one, because a queue may have millions of messages.

    The request is checked at once. A queue space that had to be opened stays open until the iterator is exhausted or
    closed. `warn` is called with what the answer lacks, and what to do: once for each queue whose damaged messages are
    left out, and for each missing volume on which selected queue spaces are.
    """
    of = _class(class_name)
    given = _checked(of, keys or {})
    for name in given:
        if Mark.KEY not in _known(of, name).marks:
            raise MibError(Code.TAEINVAL, name, f"{name} is not a key of {of.name}, and selects nothing")
    _require(of, given, Mark.NEEDED)
    return _selected(device, of, given, warn)


def apply(device: Where, class_name: str, values: Values, flags: Flags | int = Flags.NONE) -> dict[str, Value]:
    """Create, change or delete one object, and return its attributes afterwards; an empty dict if it is gone.

    TA_STATE says what to do, by its first three letters or in full; without it attributes are changed. An attribute
    that is not given stays as it is, or gets its default. The device records each request that destroys an object,
    removes memory, or changes a message. Raises MibError if the request is wrong, and the errors of the engine.
    """
    of = _class(class_name)
    given = dict(_checked(of, values))
    state = _state(of, given.pop(STATE, ""))
    _require(of, given, Mark.SET_KEY)
    if state == _NEW:
        _require(of, given, Mark.REQUIRED)
    keys, changes = _read_set(of, given, state)
    with _opened(device, given) as found:
        request = Request(device=found, keys=keys, changes=changes, flags=_flags(flags))
        with _recorded(of, request, state, values):
            subject = of.actions[state](request)
        return {} if subject is None else of.values(subject)


# ---- checks ---------------------------------------------------------------------------------------------------------


def _class(name: str) -> MibClass[Any]:
    found = CLASSES.get(name)
    if found is None:
        raise MibError(
            Code.TAEINVAL, "TA_CLASS", f"there is no class {name!r}", hint=f"Known are {', '.join(CLASSES)}."
        )
    return found


def _known(of: MibClass[Any], name: str) -> Attribute[Any]:
    found = of.attribute(name)
    if found is None:
        near = difflib.get_close_matches(str(name), [known.name for known in of.attributes], 1, 0.75)
        hint = f"Perhaps {near[0]} is meant." if near else ""
        raise MibError(Code.TAEINVAL, str(name), f"{of.name} has no attribute {name!r}", hint=hint)
    return found


def _checked(of: MibClass[Any], given: Values) -> Values:
    """Return the given attributes if the class has them, and their types are right."""
    return {name: _typed(_known(of, name), value) for name, value in given.items()}


def _typed(known: Attribute[Any], value: Value) -> Value:
    """Return a value of the type of its attribute; a number may be one of numpy."""
    if known.name == MACHINE:
        raise MibError(
            Code.TAESUPPORT, MACHINE, f"{MACHINE} must be left out: no application with machines is configured here"
        )
    found = value if isinstance(value, (str, bool)) else index_of(value)
    if found is None or type(found) is not _TYPES[known.kind]:
        raise MibError(Code.TAEINVAL, known.name, f"{known.name} is a {known.kind.value}, got {value!r}")
    return found


def _require(of: MibClass[Any], given: Values, mark: Mark) -> None:
    for known in of.marked(mark):
        if known.name not in given:
            raise MibError(Code.TAEREQUIRED, known.name, f"{of.name} needs {known.name}: {known.about}")


def _state(of: MibClass[Any], text: Value) -> str:
    """Return the three letters of a state; empty is a change of attributes."""
    state = _short(str(text))
    if state is None or state not in of.actions:
        allowed = ", ".join(state for state in of.actions if state)
        what = (
            f"{STATE} of {of.name} cannot be set to {text!r}" if text else f"{of.name} has nothing that can be changed"
        )
        raise MibError(Code.TAEINVAL, STATE, what, hint=f"It takes {allowed}.")
    return state


_STATES = (
    "NEW", "INVALID", "OPEN", "CLEANING", "VALID", "INACTIVE", "INITIALIZING", "ACTIVE", "ABORTONLY", "ABORTED",
    "COMCALLED", "READY", "DECIDED", "HABORT", "HCOMMIT", "UNAVAILABLE",
)  # fmt: skip


def _short(text: str) -> str | None:
    """Return the three letters of a state that may be written in full; None if it is neither."""
    upper = text.upper()
    if len(upper) <= 3:
        return upper
    return upper[:3] if upper in _STATES else None


def _read_set(of: MibClass[Any], given: Values, state: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys and the changes of a SET by their fields."""
    keys, changes = {}, {}
    for name, value in given.items():
        known = _known(of, name)
        if name == DEVICE:
            continue
        if Mark.SET_KEY in known.marks:
            keys[known.field] = _read(known, value)
        elif not known.writable:
            raise MibError(Code.TAEPERM, name, f"{name} of {of.name} cannot be set")
        elif state not in ("", _NEW):
            raise MibError(Code.TAEINVAL, name, f"{name} cannot be set together with {STATE}={state}")
        else:
            changes[known.field] = _read(known, value)
    return keys, changes


def _read(known: Attribute[Any], value: Value) -> Any:
    with blaming(known.name):
        return known.read(value)


def _flags(given: Flags | int) -> Flags:
    known = [flag for flag in Flags if flag]
    number = None if isinstance(given, bool) else index_of(given)
    if number is None:
        raise MibError(Code.TAEINVAL, "TA_FLAGS", f"TA_FLAGS is a long, got {given!r}")
    if number & ~sum(known):
        names = ", ".join(str(flag.name) for flag in known)
        raise MibError(Code.TAEINVAL, "TA_FLAGS", f"TA_FLAGS {number:#x} has more than {names}")
    return Flags(number)


# ---- the record of destructive requests ------------------------------------------------------------------------------


@contextlib.contextmanager
def _recorded(of: MibClass[Any], request: Request, state: str, values: Values) -> Iterator[None]:
    """Record a destructive request as one act; acts within any other request are recorded with its line."""
    with recorded_as(_line(of, request, values)):
        if state not in of.destructive:
            yield
            return
        with act(request.device, f"{of.noun} {_address(request)}", "mib.set"):
            yield


def _line(of: MibClass[Any], request: Request, values: Values) -> str:
    """Return the request as a command line of --mib."""
    words = [f"{name}={value}" for name, value in values.items()]
    if request.flags:
        words.append(f"TA_FLAGS={'|'.join(str(flag.name) for flag in Flags if flag & request.flags)}")
    return shlex.join(["--mib", of.name, "set", *words])


def _address(request: Request) -> str:
    keys = dict(request.keys)
    first = [keys.pop(key) for key in ("space", "queue") if key in keys]
    return "/".join(map(str, (*first, *keys.values())))


# ---- the device -----------------------------------------------------------------------------------------------------


def _selected(
    where: Where, of: MibClass[Any], given: Values, warn: Callable[[str], None]
) -> Iterator[dict[str, Value]]:
    keys = {}
    for name, value in given.items():
        known = _known(of, name)
        if known.field:
            keys[known.field] = _state_key(of, value) if name == STATE else _read(known, value)
    return _streamed(where, of, given, keys, warn)


def _state_key(of: MibClass[Any], value: Value) -> str:
    state = _short(str(value))
    if state is None or state not in of.states:
        raise MibError(
            Code.TAEINVAL, STATE, f"{STATE} of {of.name} is never {value!r}", hint=f"It is {', '.join(of.states)}."
        )
    return state


def _streamed(
    where: Where, of: MibClass[Any], given: Values, keys: dict[str, Any], warn: Callable[[str], None]
) -> Iterator[dict[str, Value]]:
    with _opened(where, given) as device:
        for subject in of.select(Request(device=device, keys=keys, changes={}, warn=warn)):
            yield of.values(subject)


@contextlib.contextmanager
def _opened(where: Where, given: Values) -> Iterator[Device]:
    """Yield the device of a request; one that is given by its path is open for the request only."""
    if isinstance(where, (str, os.PathLike)):
        _refuse_other(path_of(where), given)
        with open_to_administer(where) as device:
            yield device
        return
    _refuse_other(where.path, given)
    yield where


def _refuse_other(path: str, given: Values) -> None:
    named = given.get(DEVICE)
    if named is not None and path_of(str(named)) != path:
        raise MibError(Code.TAEINVAL, DEVICE, f"{DEVICE} is {path_of(str(named))!r}, but the request goes to {path!r}")


_MARKS = {Mark.KEY: "key", Mark.NEEDED: "needed", Mark.SET_KEY: "set key", Mark.REQUIRED: "required"}


def describe(class_name: str) -> dict[str, Any]:
    """Return the states and the attributes of a class, in dicts, lists and strings. Raises KeyError for no class."""
    of: MibClass[Any] = CLASSES[class_name]
    return {
        "class": of.name,
        "about": of.about,
        "states": dict(of.states),
        "set": dict(of.meanings),
        "attributes": [_described(known) for known in of.attributes],
    }


def _described(known: Attribute[Any]) -> dict[str, Any]:
    return {
        "name": known.name,
        "type": known.kind.value,
        "permissions": known.permissions,
        "marks": [word for mark, word in _MARKS.items() if mark in known.marks],
        "values": known.values,
        "about": known.about,
    }


# ---- requests of scripts ---------------------------------------------------------------------------------------------


OK, REFUSED, UNUSABLE = 0, 1, 2
"""Exit statuses: the request was done; it was refused, or a volume is missing; the arguments are not a request."""

USAGE = "CLASS [get|set|help] [NAME=VALUE ...]"
_FLAGS = "TA_FLAGS"
_LONG = re.compile(r"-?[0-9]{1,19}")
_LOOK = "Look for damage with qcheck; the traceback is in the log."

logger = logging.getLogger("qmadmin.mib")


class _Unusable(Exception):  # noqa: N818 - it is not an error of the program
    """The arguments are not a request."""


def run(device_path: str, words: Sequence[str], out: TextIO) -> int:
    """Carry out the request in the arguments, write one JSON document, and return the exit status.

    They are a class, `get` (which may be omitted), `set` or `help`, and attributes as NAME=VALUE; for a set also
    TA_FLAGS as names or a number. The document is an object with `class`, `operation` and `objects`, a list of objects
    by the names of their attributes; if damaged messages are left out or a volume is missing, `warnings`, a list of
    sentences; and if something was refused, `error`: its `code`, the `attribute` at fault or null, `message` and
    `hint`. The document of `help` describes the class.
    """
    try:
        name, operation, given, flags = _parsed(words)
    except _Unusable as error:
        _write(out, {"error": _told("USAGE", None, str(error), f"Write {USAGE}.")})
        return UNUSABLE
    if operation == "help":
        _write(out, describe(name))
        return OK
    objects: Iterable[Mapping[str, Value]]
    head = {"class": name, "operation": operation}
    warnings: list[str] = []
    try:
        if operation == "get":
            objects = stream(device_path, name, given, warn=warnings.append)
        else:
            objects = _set(device_path, name, given, flags)
    except Exception as error:  # noqa: BLE001 - a script gets a document, the log the traceback
        _write(out, head | {"objects": [], "error": _error(error)})
        return REFUSED
    return _write_objects(out, head, objects, warnings)


def _parsed(words: Sequence[str]) -> tuple[str, str, dict[str, Value], Flags]:
    name = words[0] if words else ""
    if name not in CLASSES:
        raise _Unusable(f"{name!r} is none of {', '.join(CLASSES)}")
    rest = list(words[1:])
    operation = rest.pop(0).lower() if rest and "=" not in rest[0] else "get"
    if operation not in ("get", "set", "help"):
        raise _Unusable(f"{operation!r} is none of get, set, help")
    given: dict[str, Value] = {}
    flags = Flags.NONE
    for word in rest:
        attribute, separator, text = word.partition("=")
        if not separator or not attribute:
            raise _Unusable(f"{word!r} is not of the form NAME=VALUE")
        if attribute in given:
            raise _Unusable(f"{attribute} is given twice")
        if attribute == _FLAGS:
            flags |= _flag(text)
        else:
            given[attribute] = _value(name, attribute, text)
    return name, operation, given, flags


def _flag(text: str) -> Flags:
    flags = Flags.NONE
    for part in text.split("|"):
        try:
            flags |= Flags[part.strip()] if not part.strip()[:1].isdigit() else Flags(int(part, 0))
        except (KeyError, ValueError):
            raise _Unusable(f"{part!r} is not a flag") from None
    return flags


def _value(name: str, attribute: str, text: str) -> Value:
    """Return a value in the type of its attribute; a text that is not a number is refused later."""
    known = CLASSES[name].attribute(attribute)
    is_number = known is not None and known.kind is ValueType.LONG and _LONG.fullmatch(text)
    return int(text) if is_number else text


def _set(device_path: str, name: str, given: dict[str, Value], flags: Flags) -> list[dict[str, Value]]:
    changed = apply(device_path, name, given, flags)
    return [changed] if changed else []


def _write_objects(
    out: TextIO, head: Mapping[str, Any], objects: Iterable[Mapping[str, Value]], warnings: Sequence[str]
) -> int:
    """Write objects as they arrive; an error closes the document nevertheless."""
    opening = json.dumps(head, ensure_ascii=False)[:-1]
    out.write(f'{opening}, "objects": [')
    error: Exception | None = None
    separator, status = "\n", OK
    try:
        for found in objects:
            if str(found.get(VOLUME_STATE, PRESENT)).lower() != PRESENT:
                status = REFUSED
            out.write(separator + json.dumps(found, ensure_ascii=False))
            separator = ",\n"
    except Exception as refusal:  # noqa: BLE001 - the document has begun, and has to be completed
        error = refusal
    out.write("]")
    if warnings:
        out.write(f', "warnings": {json.dumps(warnings, ensure_ascii=False)}')
    if error is not None:
        out.write(f', "error": {json.dumps(_error(error), ensure_ascii=False)}')
    out.write("}\n")
    return status if error is None else REFUSED


def _error(error: Exception) -> dict[str, Any]:
    if isinstance(error, MibError):
        return _told(error.code.name, error.attribute, error.message, error.hint)
    if isinstance(error, QueueError):
        return _told(error.name, None, error.message, error.hint)
    if isinstance(error, OSError) and error.filename is None:
        # The reader of the document is gone.
        raise error
    logger.error("the request failed inside qmadmin", exc_info=error)
    return _told(SystemFailureError.name, None, f"failed inside qmadmin: {type(error).__name__}", _LOOK)


def _told(code: str, attribute: str | None, message: str, hint: str) -> dict[str, Any]:
    return {"code": code, "attribute": attribute, "message": redacted(message), "hint": redacted(hint)}


def _write(out: TextIO, document: Mapping[str, Any]) -> None:
    out.write(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
