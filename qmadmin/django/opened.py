"""The queue space of this process, opened once."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from qmadmin.app import App
from qmadmin.django.project import Configured, configured

if TYPE_CHECKING:
    from qmadmin.space import QueueSpace


_apps: Final[dict[Configured, App]] = {}
"""What keeps the queue space of a setting open, in each process after a fork too; tests may change the setting."""


def space() -> QueueSpace:
    """Return the queue space of the setting QMADMIN, which is opened at first use and shared by all threads.

    In a file it is opened with the first connection of Django to the database, so that no transaction is open then.
    Raises ImproperlyConfigured for a wrong setting, BadResourceError where `migrate` has not made it yet.
    """
    found = configured()
    # Of several threads that come first, all get the one that is kept.
    app = _apps.get(found) or _apps.setdefault(found, App(found.device, space=found.space))
    return app.space


def close() -> None:
    """Close the queue space; the next use opens it again. PostgreSQL drops no database that somebody is using."""
    while _apps:
        _, app = _apps.popitem()
        app.close()


def create() -> None:
    """Create the device, the queue space and the queues of the setting where they do not exist, and open them."""
    from qmadmin.opening import open_device

    found = configured()
    with contextlib.closing(open_device(found.device, create=True)) as device:
        device.create_space(found.space, exist_ok=True)
        with device.open_space(found.space) as opened:
            for queue in found.queues:
                opened.create_queue(queue, exist_ok=True)
    space()
