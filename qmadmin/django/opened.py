"""The queue space of this process, opened once."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from qmadmin.app import App
from qmadmin.django.project import Configured, configured

if TYPE_CHECKING:
    from qmadmin.space import QueueSpace


@functools.lru_cache(maxsize=1)
def _app_of(found: Configured) -> App:
    """Return what keeps the queue space open, in each process after a fork too."""
    return App(found.device, space=found.space)


def space() -> QueueSpace:
    """Return the queue space of the setting QMADMIN, which is opened at first use and shared by all threads.

    In a file it is opened with the first connection of Django to the database, so that no transaction is open then.
    Raises ImproperlyConfigured for a wrong setting, BadResourceError where `migrate` has not made it yet.
    """
    return _app_of(configured()).space


def close() -> None:
    """Close the queue space; the next use opens it again. PostgreSQL drops no database that somebody is using."""
    if _app_of.cache_info().currsize:
        _app_of(configured()).close()
    _app_of.cache_clear()


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
