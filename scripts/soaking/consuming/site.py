"""What the application works on: a queue space with accounts, between which its handlers move amounts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import qmadmin

SPACE: Final = "SOAK"
DEVICE: Final = "SOAK_DEVICE"
"""The environment variable that names the device."""

DONE: Final = "done"
ERRORS: Final = "errors"

HANDLERS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"workers": 3},
    "batches": {"batch": 5},
    "strict": {"order": "strict", "retry_delay": 0},
    "coroutines": {"workers": 4, "batch": 3},
    "outside": {"transactional": False, "workers": 2},
    "gives_up": {"gives_up": True},
}
"""The queues, and the options of the handler of each."""

CALL_SECONDS: Final = 0.5
"""How long a call may take."""

EXIT_STATUS: Final = 3
"""That of a process that a handler ends."""

RETRIES: Final = 3

_PAGES = 400_000


def create(url: str) -> None:
    """Create the device, the queue space and the queues."""
    with qmadmin.create_device(url, _PAGES) as device:
        device.create_space(SPACE, transactions=1000, processes=200, messages=1_000_000)
        with device.open_space(SPACE) as space:
            for number, name in enumerate(HANDLERS):
                # With and without a time in which a message that failed is kept back.
                space.create_queue(name, retries=RETRIES, retry_delay=number % 2)
            space.create_queue(DONE)


@contextlib.contextmanager
def opened(url: str) -> Iterator[qmadmin.QueueSpace]:
    """Give the queue space."""
    with qmadmin.open_device(url) as device, device.open_space(SPACE) as space:
        yield space
