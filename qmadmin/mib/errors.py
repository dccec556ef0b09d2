"""What a request to the management information base can be refused with."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator

from qmcore.errors import InvalidArgumentError


class Code(enum.Enum):
    """Why a request was refused (TA_ERROR)."""

    TAEINVAL = "a class, an attribute or a value is invalid"
    TAEREQUIRED = "an attribute is missing"
    TAEPERM = "an attribute cannot be set"
    TAESUPPORT = "this release, or the object, does not support it"


class MibError(Exception):
    """A request was refused: `code` says why (TA_ERROR), `attribute` which one is at fault (TA_BADFLD).

    `message` is a sentence, `hint` says what to do about it. Errors of the engine keep their own classes.
    """

    def __init__(self, code: Code, attribute: str, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.attribute = attribute
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.code, self.attribute, self.message, self.hint)


def _restored(code: Code, attribute: str, message: str, hint: str) -> MibError:
    return MibError(code, attribute, message, hint=hint)


@contextlib.contextmanager
def blaming(attribute: str) -> Iterator[None]:
    """Name the attribute whose value is refused while the block runs."""
    try:
        yield
    except InvalidArgumentError as error:
        raise MibError(Code.TAEINVAL, attribute, f"{attribute}: {error.message}", hint=error.hint) from error
