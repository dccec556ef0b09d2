"""Devices that have moved: where one is now that branches and decisions know by its earlier place."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from qmadmin.capacity import why_untrusted
from qmadmin.configuration import Configuration, ConfigurationError
from qmadmin.settings import ARROW
from qmadmin.volume_makers import path_of
from qmcore.errors import QueueError

logger = logging.getLogger("qmadmin.transacting")


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
    steps, been = [path], {_called(path)}
    while (following := known.get(_called(steps[-1]))) is not None:
        there = os.path.expanduser(following.strip())  # noqa: PTH111 - it may be a URL
        called = _called(there)
        if called == _called(path):
            # They have changed places, each with the next: none has moved more than once.
            return steps[1] if len(steps) > 1 else path
        if called in been:
            break
        been.add(called)
        steps.append(there)
    return steps[-1]


def _called(config: str) -> str:
    """Return what a device is called, which is named as in QMCONFIG."""
    try:
        return path_of(os.path.expanduser(config.strip()))  # noqa: PTH111 - it may be a URL
    except QueueError:
        return config
