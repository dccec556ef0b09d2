"""The queue spaces that are worked on, each on a volume of its own, and the bodies of their messages."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

import qmadmin

SPACE = "SOAK"
WORK = "work"
REPLIES = "replies"
ERRORS = "errors"
AWAY = "AWAY"
"""A queue space of another device, in a file, and its queue."""

QUEUES = {SPACE: (WORK, REPLIES, ERRORS), AWAY: (AWAY, ERRORS)}
"""The queues of the queue spaces."""

RETRIES = 2

_PAGES = 400_000
_MESSAGES = 20_000
"""Producers that are too fast are refused beyond this many, which is one more thing to get right."""


def create(url: str, name: str) -> None:
    """Create a device, its queue space and the queues of that."""
    with qmadmin.create_device(url, _PAGES) as device:
        device.create_space(
            qmadmin.SpaceDefinition(
                name=name,
                ipc_key=40000,
                pages=_PAGES - 1000,
                queues=len(QUEUES[name]),
                transactions=200,
                processes=200,
                messages=_MESSAGES,
                error_queue=ERRORS,
            )
        )
        with device.open_space(name) as space:
            for queue in QUEUES[name]:
                space.create_queue(qmadmin.QueueDefinition(name=queue, retries=RETRIES if queue == WORK else 1_000_000))


@contextlib.contextmanager
def opened(url: str, name: str = SPACE) -> Iterator[qmadmin.QueueSpace]:
    """Give a queue space."""
    with qmadmin.open_device(url) as device, device.open_space(name) as space:
        yield space


def body(name: str, size: int) -> bytes:
    """Return a body that tells the name of its message and whether it is whole."""
    filling = (name.encode() + b"\n") * (size // (len(name) + 1) + 1)
    return b"%08x %s" % (zlib.crc32(filling), filling)


def name_of(message: qmadmin.Message) -> str:
    """Return the name of a message; ValueError where its body is not what was enqueued."""
    checksum, _, filling = bytes(message.body or b"").partition(b" ")
    if int(checksum, 16) != zlib.crc32(filling):
        raise ValueError(f"the body of message {message.msgid} is damaged")
    return filling.partition(b"\n")[0].decode()
