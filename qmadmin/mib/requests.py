"""Requests to the management information base: each is checked against the declarations, and then carried out."""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from qmadmin.audit import act, recorded_as
from qmadmin.mib.appq import T_APPQ
from qmadmin.mib.appqmsg import T_APPQMSG
from qmadmin.mib.appqspace import T_APPQSPACE, T_APPQTRANS
from qmadmin.mib.declare import (
    DEVICE,
    MACHINE,
    STATE,
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
    device: Where,
    class_name: str,
    keys: Values | None = None,
    *,
    warn: Callable[[str], None] = lambda _sentence: None,
) -> Iterator[dict[str, Value]]:
    """Yield what `get` returns one by one, because a queue may have millions of messages.

    The request is checked at once. A queue space that had to be opened stays open until the iterator is exhausted or
    closed. `warn` is called with a sentence for each queue whose damaged messages are left out; the log has them too.
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
    "COMCALLED", "READY", "DECIDED", "HABORT", "HCOMMIT",
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
