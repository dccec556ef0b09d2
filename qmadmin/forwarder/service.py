"""What a service is to the forwarder: it is called with a request, and returns a reply or fails."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from qmcore.message import Message

REASON_MAX = 1000
"""Characters of a reason that are kept with a message."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """What a service answers.

    `body` is what is queued for the client: bytes, a str as UTF-8, or None for a reply of zero length. `urcode` is
    the user return code, 64 bits, that the client finds with it.
    """

    body: bytes | bytearray | memoryview | str | None = None
    urcode: int = 0


class ServiceError(Exception):
    """A call of a service failed. The text says why in at most 1000 characters, and is kept with the message."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason if len(reason) <= REASON_MAX else reason[: REASON_MAX - 3] + "...")


class Service(Protocol):
    """Something that works on requests."""

    def call(self, request: Message, seconds: float) -> Reply:
        """Work on a request for at most `seconds` (infinity: without limit), or raise ServiceError.

        StopNow and KeyboardInterrupt may be raised in it at any time, and go on to the caller.
        """
