"""Devices that have moved: where one is now that branches and decisions know by its earlier place."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Final

from qmadmin.capacity import why_untrusted
from qmadmin.configuration import Configuration, ConfigurationError
from qmadmin.settings import ARROW
from qmadmin.volume_makers import path_of
from qmcore.errors import QueueError

logger = logging.getLogger("qmadmin.transacting")

_STEPS: Final = 10
"""How often a device may have moved."""


def now_at(path: str) -> str:
    """Return the value of QMCONFIG for the device that was at a path, by the section [recovery] of the settings.

    It is the path itself where they say nothing of it. Settings that have a fault, or that others than this user may
    write, count for nothing; the log says so.
    """
    try:
        configuration = Configuration.load(os.environ)
    except ConfigurationError as error:
        logger.warning("where devices have moved to is not known: %s", error)
        return path
    if not configuration.recovery.moved:
        return path
    if why := why_untrusted(configuration.file):
        logger.warning("where devices have moved to is not believed: %s", why)
        return path
    return _followed(path, [pair.partition(ARROW)[::2] for pair in configuration.recovery.moved])


def _followed(path: str, moves: Iterable[tuple[str, str]]) -> str:
    known = {_called(old): new for old, new in moves}
    found = path
    for _ in range(_STEPS):
        following = known.get(_called(found))
        if following is None:
            break
        found = os.path.expanduser(following.strip())  # noqa: PTH111 - it may be a URL
    return found


def _called(config: str) -> str:
    """Return what a device is called, which is named as in QMCONFIG."""
    try:
        return path_of(os.path.expanduser(config.strip()))  # noqa: PTH111 - it may be a URL
    except QueueError:
        return config
