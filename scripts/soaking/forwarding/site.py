"""What the forwarders work on: a queue space, and the services that there are."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import qmadmin

SPACE: Final = "SOAK"
ERRORS: Final = "ERRORS"
FAILURES: Final = "FAILURES"
"""Where the clients are told of failures."""


STEP: Final = "STEP"
"""The queue of the service that hands its requests on to another one."""

SERVICES: Final = {
    "PYTHON": 'python = "service:answer"\nworkers = 2',
    "BATCH": 'python = "service:answer"\nbatch = 5',
    "ASYNC": 'python = "service:answer_later"\nworkers = 4\nbatch = 3',
    "PROCESS": 'python = "service:answer"\nrun = "process"\nworkers = 2',
    "COMMAND": 'command = ["./service.sh"]\norder = "strict"',
    "HTTP": 'url = "{url}"\nworkers = 2',
    STEP: 'python = "service:step"\nbatch = 2',
}
"""The queues of requests, and what the services file says of the service of each."""

CALL_SECONDS: Final = 2
"""How long a call may take."""

RETRIES: Final = 3

_PAGES = 400_000
_FILES = ("service.py", "service.sh")


def reply_queue(client: str) -> str:
    """Return the queue on which a client gets its replies."""
    return f"REPLIES.{client}"


def create(url: str, clients: Sequence[str]) -> None:
    """Create the device, the queue space and the queues for the services and for these clients."""
    replies = [reply_queue(client) for client in clients]
    with qmadmin.create_device(url, _PAGES) as device:
        device.create_space(
            qmadmin.SpaceDefinition(
                name=SPACE,
                ipc_key=40001,
                pages=_PAGES - 1000,
                queues=len(SERVICES) + len(replies) + 2,
                transactions=1000,
                processes=200,
                messages=1_000_000,
                error_queue=ERRORS,
            )
        )
        with device.open_space(SPACE) as space:
            for number, name in enumerate(SERVICES):
                # With and without a time in which a message that failed is kept back.
                space.create_queue(qmadmin.QueueDefinition(name=name, retries=RETRIES, retry_delay=number % 2))
            for name in (*replies, FAILURES, ERRORS):
                space.create_queue(qmadmin.QueueDefinition(name=name, retries=1_000_000))


def lay_out_services(directory: Path) -> None:
    """Copy the services to where the forwarders look for them."""
    for name in _FILES:
        shutil.copy(Path(__file__).parent / name, directory / name)


def services_text(url: str) -> str:
    """Return the services file; `url` is where the service by HTTP is."""
    return "\n".join(f"[services.{name}]\n{text.format(url=url)}\n" for name, text in SERVICES.items())


@contextlib.contextmanager
def opened(url: str) -> Iterator[qmadmin.QueueSpace]:
    """Give the queue space."""
    with qmadmin.open_device(url) as device, device.open_space(SPACE) as space:
        yield space


def name_of(message: qmadmin.MessageInfo) -> str:
    """Return the name of a request, or of the request that a reply answers."""
    return (message.corrid or b"").decode()
