"""The management information base for other languages and for scripts: arguments in, one JSON document out."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from qmadmin.mib.declare import Flags, MibError, Value, ValueType
from qmadmin.mib.requests import CLASSES, apply, describe, stream
from qmcore.errors import QueueError, SystemFailureError
from qmcore.redacted import redacted

OK, REFUSED, UNUSABLE = 0, 1, 2
"""Exit statuses: the request was done; it was refused; the arguments are not a request."""

USAGE = "CLASS [get|set|help] [NAME=VALUE ...]"
_FLAGS = "TA_FLAGS"
_DAMAGED = "Look for damage with qcheck; qpurge -d removes what is damaged."
_LOOK = "Look for damage with qcheck; the traceback is in the log."

logger = logging.getLogger("qmadmin.mib")


class _Unusable(Exception):  # noqa: N818 - it is not an error of the program
    """The arguments are not a request."""


def run(device_path: str, words: Sequence[str], out: TextIO) -> int:
    """Carry out the request in the arguments, write one JSON document, and return the exit status.

    They are a class, `get` (which may be omitted), `set` or `help`, and attributes as NAME=VALUE; for a set also
    TA_FLAGS as names or a number. The document is an object with `class`, `operation` and `objects`, a list of objects
    by the names of their attributes; if damaged messages are left out, `warnings`, a list of sentences; and if
    something was refused, `error`: its `code`, the `attribute` at fault or null, `message` and `hint`. The document of
    `help` describes the class.
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
    digits = text[1:] if text[:1] == "-" else text
    if (
        known is not None
        and known.kind is ValueType.LONG
        and digits.isascii()
        and digits.isdigit()
        and len(digits) < 20
    ):
        return int(text)
    return text


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
    separator = "\n"
    try:
        for found in objects:
            out.write(separator + json.dumps(found, ensure_ascii=False))
            separator = ",\n"
    except Exception as refusal:  # noqa: BLE001 - the document has begun, and has to be completed
        error = refusal
    out.write("]")
    if warnings:
        out.write(f', "warnings": {json.dumps([f"{warning}. {_DAMAGED}" for warning in warnings], ensure_ascii=False)}')
    if error is not None:
        out.write(f', "error": {json.dumps(_error(error), ensure_ascii=False)}')
    out.write("}\n")
    return OK if error is None else REFUSED


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
