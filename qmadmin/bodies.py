"""Bodies of messages: a value of the application becomes bytes with a type, and a value again.

A str is of type STRING, bytes and other buffers are of type CARRAY, and everything else is JSON. Instances of data
classes, of models of pydantic, of Structs of msgspec, and of classes that name a codec become values of JSON by their
`Codec`, wherever they stand in a body. Neither library is imported here: who has an instance has imported it.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable
from datetime import date, datetime, time
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, overload

from qmcore import json_body, message, names
from qmcore.checks import buffer_of
from qmcore.errors import InvalidArgumentError
from qmcore.json_body import Place, place_in_words

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from qmcore.message import Message

T = TypeVar("T")

JSON: TypeAlias = "dict[str, Any] | list[Any] | tuple[Any, ...] | int | float"
"""What is sent as JSON; a bool is an int. A tuple becomes a list."""


class Codec(Protocol):
    """Makes values of JSON of the instances of a class, and instances again.

    A class that has one names it as `__qmadmin_codec__`; it holds for its subclasses too.
    """

    def to_json(self, value: Any, /) -> object:
        """Return a value of JSON, which may contain instances of other models.

        Raises ValueError or TypeError for one that cannot be encoded.
        """

    def from_json(self, kind: Any, value: Any, /) -> object:
        """Return the instance of `kind`, the class, of which `to_json` made the value.

        Raises ValueError or TypeError for a value that is not one of it.
        """


class _HasCodec(Protocol):
    @property
    def __qmadmin_codec__(self) -> Codec: ...


class _IsDataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _IsStruct(Protocol):
    __struct_fields__: ClassVar[tuple[str, ...]]


class _IsPydantic(Protocol):
    def model_dump_json(self) -> str: ...


Model: TypeAlias = "_HasCodec | _IsDataclass | _IsPydantic | _IsStruct"
"""An instance of a data class, of a model of pydantic, of a Struct of msgspec, or of a class that names a codec."""

Body: TypeAlias = "Buffer | str | JSON | Model | None"
"""What an application may send: any buffer, such as bytes; a str is sent as UTF-8, and a value of JSON or a model as
JSON; None is a message without a body."""


def encode(body: object) -> tuple[message.Body, str]:
    """Return the bytes of a body and the type of its message.

    Raises InvalidArgumentError, which names the place in the value, for what cannot be encoded.
    """
    if isinstance(body, bytes) or body is None:
        return body, "CARRAY"
    if isinstance(body, str):
        return names.encoded(body, "body"), "STRING"
    if not isinstance(body, (dict, list, tuple, int, float)):
        data = buffer_of(body)
        if data is not None:
            return data, "CARRAY"
    return json_body.written(body, _replaced), "JSON"


@overload
def decode(message: Message, kind: type[T]) -> T: ...


@overload
def decode(message: Message, kind: Any) -> Any: ...


def decode(message: Message, kind: Any) -> Any:
    """Return the body of a message as an instance of `kind`: a type, or what an annotation may be.

    A body of type JSON, or of STRING or CARRAY if it is JSON, is read as: a data class, a model of pydantic, a Struct
    of msgspec, a class that names a codec, a TypedDict, dict, list, tuple (of anything or of certain types), int,
    float, bool, Enum, datetime, date, time, UUID, Decimal, a union, a Literal. `str` is the text, or what JSON is one;
    `bytes` is the body as it is, `Message` the message. None, as in `Order | None`, is a message without a body.
    Keys that a data class or a TypedDict does not have are ignored; of a union, a kind that has all keys goes first.

    Raises BodyError if the body is not one, which it is not at the next try either; InvalidArgumentError for another
    `kind`.
    """
    from qmadmin.body_kinds import reader_of

    return reader_of(kind)(message)


# ---- codecs ----------------------------------------------------------------------------------------------------------


def codec_of(kind: type) -> Codec | None:
    """Return the codec of the instances of a class: its own, or that of its library; None for no model."""
    own: Codec | None = getattr(kind, "__qmadmin_codec__", None)
    if own is not None:
        return own
    for module, name, codec in _OF_LIBRARIES:
        # Who has made the class has imported its library.
        base = getattr(sys.modules.get(module), name, None)
        if isinstance(base, type) and issubclass(kind, base):
            return codec
    return None


class _PydanticCodec:
    """Models of pydantic, under the aliases of their fields and without what they compute."""

    def to_json(self, value: Any, /) -> object:
        """Return what `model_dump_json` would write; NaN, which it would write as null, stays to be refused."""
        return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings="error")

    def from_json(self, kind: Any, value: Any, /) -> object:
        """Let pydantic validate it as JSON, by the rules of its models for that."""
        pydantic = sys.modules["pydantic"]
        try:
            return kind.model_validate_json(json_body.written(value, _replaced))
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise Misfit(_place_of(first["loc"]), f"is refused by pydantic: {first['msg']}") from None


class _StructCodec:
    """Structs of msgspec."""

    def to_json(self, value: Any, /) -> object:
        """Return what `msgspec.json.encode` would write; NaN, which it would write as null, stays to be refused."""
        return sys.modules["msgspec"].to_builtins(value, str_keys=True)

    def from_json(self, kind: Any, value: Any, /) -> object:
        """Let msgspec convert it."""
        msgspec = sys.modules["msgspec"]
        try:
            return msgspec.convert(value, kind, str_keys=True)
        except msgspec.ValidationError as error:
            why, _, path = str(error).partition(" - at `$")
            steps = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path)
            raise Misfit(
                _place_of([name or (int(index) if index.isdigit() else index) for name, index in steps]),
                f"is refused by msgspec: {why}",
            ) from None


_OF_LIBRARIES: Final[tuple[tuple[str, str, Codec], ...]] = (
    ("pydantic", "BaseModel", _PydanticCodec()),
    ("msgspec", "Struct", _StructCodec()),
)


class Misfit(Exception):  # noqa: N818 - it never leaves these modules
    """A value is not what was asked for: where, and why."""

    def __init__(self, place: Place, why: str) -> None:
        super().__init__(why)
        self.place = place
        self.why = why


def _place_of(steps: Iterable[str | int]) -> Place:
    """Return the place to which these keys and indices lead."""
    place: Place = None
    for step in steps:
        place = (place, step)
    return place


def _replaced(value: object, place: Place) -> object:
    """Return a value of JSON in place of one of a type that JSON does not have."""
    kind = type(value)
    codec = codec_of(kind)
    if codec is not None:
        return _by_codec(codec.to_json, value, place)
    if isinstance(value, type):
        raise InvalidArgumentError(
            f"{place_in_words(place)} is the class {value.__qualname__}, not an instance of it",
            hint=f"Make one: {value.__name__}(...).",
        )
    if dataclasses.is_dataclass(value):
        return _by_codec(_fields_of, value, place)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if is_of(kind, "uuid", "UUID") or is_of(kind, "decimal", "Decimal"):
        return str(value)
    if is_of(kind, "numpy", "generic"):
        found: object = value.item()  # type: ignore[attr-defined]
        if found is not value:
            return found
    if place is None:
        raise InvalidArgumentError(
            "the body must be bytes, another buffer, str, None, a value of JSON, a data class, or a model of pydantic"
            f" or msgspec, got {kind.__name__}",
            hint="Name a codec in its class, or encode it.",
        )
    raise InvalidArgumentError(
        f"{place_in_words(place)} is of type {kind.__name__}, which JSON does not have",
        hint="Name a codec in its class, or convert it.",
    )


def _fields_of(value: Any) -> dict[str, object]:
    """Return the fields of a data class of which it is made again: those that its constructor takes."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}


def _by_codec(to_json: Callable[[Any], object], value: object, place: Place) -> object:
    try:
        return to_json(value)
    except RecursionError:
        why = f"it is more than {json_body.NESTED_MAX} levels deep, or contains itself"
    except (TypeError, ValueError, AttributeError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
    raise InvalidArgumentError(
        f"{place_in_words(place)}, of type {type(value).__name__}, cannot be encoded: {why}",
        hint="Its class, or the codec of it, says what can be.",
    )


def is_of(kind: type, module: str, name: str) -> bool:
    """Return whether a class is one of a module, or derived from it, without importing the module."""
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(kind, base)
