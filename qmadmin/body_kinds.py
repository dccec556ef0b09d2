"""How a body is read as what an annotation asks for: a model, a container of models, a value of JSON.

A reader is made once of an annotation, which it refuses if no body can be read so, and is then called with messages.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, Union

from qmadmin.bodies import Codec, Misfit, codec_of, is_of
from qmcore.errors import BodyError, InvalidArgumentError
from qmcore.json_body import Place, place_in_words
from qmcore.message import Message, MessageInfo

Reader: TypeAlias = "Callable[[Any, Place], Any]"
"""Returns what a value of JSON at a place stands for; raises Misfit."""

_TYPES: Final = ("JSON", "STRING", "CARRAY")
"""The types of messages whose bodies may be JSON: the others say that they are something else."""

_SHOWN_MAX: Final = 60
_USE: Final = "Use a data class, a model of pydantic or msgspec, a class that names a codec, or a type of JSON."


def reader_of(kind: Any, *, exactly: bool = False) -> Callable[[Message], Any]:
    """Return a function that reads the body of a message as `kind`, as `qmadmin.decode` does.

    With `exactly` a data class or TypedDict refuses keys that it does not have, which otherwise are ignored: whoever
    sends may know fields already that whoever reads does not. Raises InvalidArgumentError if no body can be read so.
    """
    kind = _bare(kind)
    if kind in _OF_MESSAGES:
        return _OF_MESSAGES[kind]
    if _is_union(kind):
        return _first_of([reader_of(each, exactly=how) for how in _ways(kind) for each in typing.get_args(kind)], kind)
    reader = _Readers(exactly=exactly).of(kind)
    return lambda message: _read(message, reader)


def _present(message: Message) -> bytes:
    if message.body is None:
        raise BodyError(f"message {message.msgid} has no body", msgid=message.msgid)
    return message.body


def _read(message: Message, reader: Reader) -> Any:
    if message.type not in _TYPES:
        raise BodyError(
            f"the body of message {message.msgid} is of type {message.type!r}, not JSON",
            msgid=message.msgid,
            hint="The attribute body has its bytes.",
        )
    try:
        return reader(message.json(), None)
    except Misfit as misfit:
        raise BodyError(
            f"message {message.msgid}: {place_in_words(misfit.place)} {misfit.why}", msgid=message.msgid
        ) from None


def _text(message: Message) -> str:
    if message.type == "JSON":
        return str(_read(message, _exactly(str)))
    try:
        return _present(message).decode()
    except UnicodeDecodeError as error:
        raise BodyError(
            f"the body of message {message.msgid} is not UTF-8 at byte {error.start}",
            msgid=message.msgid,
            hint="The attribute body has its bytes.",
        ) from None


def _shown_body(message: Message) -> str:
    return _shown(None if message.body is None else message.body[: 4 * _SHOWN_MAX].decode(errors="replace"))


def _natural(message: Message) -> Any:
    if message.body is None:
        return None
    if message.type == "JSON":
        return message.json()
    return _text(message) if message.type == "STRING" else message.body


def _nothing(message: Message) -> None:
    if message.body is not None:
        _read(message, _exactly(type(None)))


def _first_of(readers: Sequence[Callable[[Message], Any]], kind: Any) -> Callable[[Message], Any]:
    def read(message: Message) -> Any:
        refusals = []
        for reader in readers:
            try:
                return reader(message)
            except BodyError as error:
                refusals.append(error)
        raise _telling(refusals, kind) or BodyError(
            f"message {message.msgid}: the body must be {_name(kind)}, got {_shown_body(message)}", msgid=message.msgid
        )

    return read


_OF_MESSAGES: Final[Mapping[Any, Callable[[Message], Any]]] = {
    **dict.fromkeys((Message, MessageInfo), lambda message: message),
    **dict.fromkeys((Any, object), _natural),
    **dict.fromkeys((None, type(None)), _nothing),
    str: _text,
    bytes: _present,
}
"""The readers of what is not read as JSON, or not only."""


# ---- values of JSON --------------------------------------------------------------------------------------------------


class _Readers:
    """The readers of an annotation and of all that it contains."""

    def __init__(self, *, exactly: bool = False) -> None:
        self._of_models: dict[Any, Reader] = {}
        self._exactly = exactly
        self._exact: _Readers | None = self if exactly else None

    def of(self, kind: Any) -> Reader:
        """Return the reader of values that stand for `kind`."""
        kind = _bare(kind)
        origin = typing.get_origin(kind) or kind
        if kind is Any or kind is object:
            return lambda value, _place: value
        if kind is None or kind is type(None):
            return _exactly(type(None))
        if _is_union(kind):
            ways = [True] if self._exactly else _ways(kind)
            return _any_of([self._by(way).of(each) for way in ways for each in typing.get_args(kind)], kind)
        if origin is typing.Literal:
            return _literal(typing.get_args(kind))
        if isinstance(origin, type):
            codec = codec_of(origin)
            reader = _by_codec(codec, kind) if codec is not None else self._of_type(kind, origin)
            if reader is not None:
                return reader
        raise InvalidArgumentError(
            f"a body cannot be read as {_name(kind)}",
            hint=_USE,
        )

    def _by(self, exactly: bool) -> _Readers:
        if not exactly:
            return self
        if self._exact is None:
            self._exact = _Readers(exactly=True)
        return self._exact

    def _of_type(self, kind: Any, origin: type) -> Reader | None:
        reader, made = _SCALARS.get(origin), typing.cast("Callable[[Any], Any]", origin)
        if origin in (list, Sequence, tuple, dict, Mapping):
            reader = self._of_container(origin, typing.get_args(kind))
        elif issubclass(origin, Enum):
            reader = _converted(origin, origin, ValueError)
        elif is_of(origin, "uuid", "UUID"):
            reader = _converted(origin, origin, ValueError, of=str)
        elif is_of(origin, "decimal", "Decimal"):
            # Of the digits of a number, which are those that were written as long as it has no more than a float has.
            reader = _converted(lambda value: made(str(value)), origin, ArithmeticError, of=(str, int, float))
        elif dataclasses.is_dataclass(origin) or typing.is_typeddict(origin):
            reader = self._of_fields(origin)
        return reader

    def _of_container(self, origin: type, of: tuple[Any, ...]) -> Reader:
        if origin in (dict, Mapping):
            return _object(*(self.of(each) for each in of or (str, Any)))
        if origin is tuple and of[-1:] != (...,):
            return _row([self.of(each) for each in of]) if of else _array(self.of(Any), tuple)
        return _array(self.of(of[0] if of else Any), tuple if origin is tuple else list)

    def _of_fields(self, kind: type) -> Reader:
        if kind not in self._of_models:
            # A model may contain itself.
            self._of_models[kind] = functools.partial(self._later, kind)
            try:
                hints = typing.get_type_hints(kind)
            except NameError as error:
                raise InvalidArgumentError(
                    f"the fields of {_name(kind)} cannot be read: {error}",
                    hint="Define what they name where the class is defined.",
                ) from None
            self._of_models[kind] = self._model(kind, hints)
        return self._of_models[kind]

    def _later(self, kind: type, value: Any, place: Place) -> Any:
        return self._of_models[kind](value, place)

    def _model(self, kind: type, hints: Mapping[str, Any]) -> Reader:
        if typing.is_typeddict(kind):
            readers = {name: self.of(hint) for name, hint in hints.items()}
            return _model(kind, readers, _required_of(kind), self._exactly)
        fields = [field for field in dataclasses.fields(kind) if field.init]
        readers = {field.name: self.of(hints[field.name]) for field in fields}
        absent = dataclasses.MISSING
        required = [field.name for field in fields if field.default is absent and field.default_factory is absent]
        return _model(kind, readers, required, self._exactly)


def _required_of(kind: type) -> list[str]:
    """Return the keys that a TypedDict has to have; where annotations are texts, it does not know all itself."""
    required = set(getattr(kind, "__required_keys__", ()))
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if typing.get_origin(hint) is typing.NotRequired:
            required.discard(name)
        elif typing.get_origin(hint) is typing.Required:
            required.add(name)
    return sorted(required)


def _model(kind: Callable[..., Any], readers: Mapping[str, Reader], required: Sequence[str], exactly: bool) -> Reader:
    def read(value: Any, place: Place) -> Any:
        if not isinstance(value, dict):
            _must_be(kind, value, place)
        for name in required:
            if name not in value:
                raise Misfit(place, f"lacks {json.dumps(name)}, which {_name(kind)} has")
        found = {}
        for name, each in value.items():
            reader = readers.get(name)
            if reader is not None:
                found[name] = reader(each, (place, name))
            elif exactly:
                raise Misfit(place, f"has {json.dumps(name)}, which {_name(kind)} does not have")
        try:
            return kind(**found)
        except (TypeError, ValueError) as error:
            raise _unmade(kind, place, error) from None

    return read


def _by_codec(codec: Codec, kind: Any) -> Reader:
    def read(value: Any, place: Place) -> Any:
        try:
            return codec.from_json(kind, value)
        except Misfit as misfit:
            raise Misfit(_within(place, misfit.place), misfit.why) from None
        except (TypeError, ValueError) as error:
            raise _unmade(kind, place, error) from None

    return read


def _unmade(kind: Any, place: Place, error: Exception) -> Misfit:
    return Misfit(place, f"makes no {_name(kind)}: {' '.join(str(error).split())}")


def _exactly(kind: type) -> Reader:
    """Return the reader of values of a type of JSON; a bool is no int."""

    def read(value: Any, place: Place) -> Any:
        if type(value) is not kind:
            _must_be(kind, value, place)
        return value

    return read


def _float(value: Any, place: Place) -> float:
    """Return a number; other languages write 1.0 as 1."""
    if type(value) not in (int, float):
        _must_be(float, value, place)
    try:
        return float(value)
    except OverflowError:
        _must_be(float, value, place)


def _converted(
    make: Callable[[Any], Any], kind: type, refusal: type[Exception], *, of: type | tuple[type, ...] = object
) -> Reader:
    """Return the reader of a type whose values are written as others, as a time is as a text."""

    def read(value: Any, place: Place) -> Any:
        if not isinstance(value, of) or (of is not object and isinstance(value, bool)):
            _must_be(kind, value, place)
        try:
            return make(value)
        except (refusal, TypeError):
            _must_be(kind, value, place)

    return read


_SCALARS: Final[Mapping[type, Reader]] = {
    **{kind: _exactly(kind) for kind in (str, int, bool)},
    float: _float,
    **{kind: _converted(kind.fromisoformat, kind, ValueError, of=str) for kind in (datetime, date, time)},
}


def _array(reader: Reader, made: Callable[[list[Any]], Any]) -> Reader:
    def read(value: Any, place: Place) -> Any:
        if not isinstance(value, list):
            _must_be(list, value, place)
        return made([reader(each, (place, index)) for index, each in enumerate(value)])

    return read


def _row(readers: Sequence[Reader]) -> Reader:
    def read(value: Any, place: Place) -> Any:
        if not isinstance(value, list) or len(value) != len(readers):
            raise Misfit(place, f"must be a list of {len(readers)}, got {_shown(value)}")
        return tuple(
            reader(each, (place, index)) for index, (reader, each) in enumerate(zip(readers, value, strict=True))
        )

    return read


def _object(key_reader: Reader, reader: Reader) -> Reader:
    def read(value: Any, place: Place) -> Any:
        if not isinstance(value, dict):
            _must_be(dict, value, place)
        return {key_reader(key, (place, key)): reader(each, (place, key)) for key, each in value.items()}

    return read


def _literal(allowed: Sequence[Any]) -> Reader:
    def read(value: Any, place: Place) -> Any:
        for each in allowed:
            if type(each) is type(value) and each == value:
                return value
        raise Misfit(place, f"must be one of {', '.join(map(repr, allowed))}, got {_shown(value)}")

    return read


def _any_of(readers: Sequence[Reader], kind: Any) -> Reader:
    def read(value: Any, place: Place) -> Any:
        refusals = []
        for reader in readers:
            try:
                return reader(value, place)
            except Misfit as misfit:
                refusals.append(misfit)
        raise _telling(refusals, kind) or Misfit(place, f"must be {_name(kind)}, got {_shown(value)}")

    return read


# ---- annotations -----------------------------------------------------------------------------------------------------


def _bare(kind: Any) -> Any:
    """Return an annotation without what says nothing of the type: Annotated, a NewType, an alias."""
    while True:
        if typing.get_origin(kind) is typing.Annotated:
            kind = typing.get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        elif isinstance(kind, Hashable):
            return kind
        else:
            raise InvalidArgumentError(f"a body cannot be read as {kind!r}, which is no type", hint=_USE)


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType)


def _ways(union: Any) -> Sequence[bool]:
    """Return whether the kinds of a union are tried exactly, or ignoring keys; of several, one goes first that has all.

    A key may tell which one it is.
    """
    return (True, False) if sum(each is not type(None) for each in typing.get_args(union)) > 1 else (False,)


R = TypeVar("R", bound=Exception)


def _telling(refusals: Sequence[R], kind: Any) -> R | None:
    """Return what is wrong by the one kind of a union that is not None; None where there are several."""
    kinds = typing.get_args(kind)
    of = [each for each in zip(kinds, refusals[-len(kinds) :], strict=True) if each[0] is not type(None)]
    return of[0][1] if len(of) == 1 else None


def _within(outer: Place, inner: Place) -> Place:
    """Return a place in a value, which stands at a place itself, as a place in the body."""
    return outer if inner is None else (_within(outer, inner[0]), inner[1])


def _must_be(kind: Any, value: Any, place: Place) -> NoReturn:
    raise Misfit(place, f"must be {_name(kind)}, got {_shown(value)}") from None


def _name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:
        # A number of very many digits.
        text = type(value).__name__
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
