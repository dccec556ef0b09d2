"""Whose capacity commands run as this user.

What stands in a device proves nothing about who wrote it. So a command runs by itself only where nobody but its user
can write the device; elsewhere the user's own settings have to name the device or the command.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from qmadmin.configuration import Configuration, ConfigurationError
from qmadmin.volume_factory import VolumeMaker
from qmcore.errors import QueueError


def refusal(maker: VolumeMaker, paths: Iterable[str], command: str) -> str:
    """Return why a command is not run as this user; empty where it is run.

    `paths` are those of the device and of the volume that the command stands in.
    """
    device, *others = paths
    why = next(filter(None, map(maker.other_writers, (device, *others))), "")
    return why and _unless_named(why, device, command)


def _unless_named(why: str, device: str, command: str) -> str:
    try:
        configuration = Configuration.load(os.environ)
        named = configuration.capacity
        if command in named.commands or any(_is_device(each, device) for each in named.devices):
            return _why_not_believed(configuration.file)
    except ConfigurationError as error:
        return f"{why}, and {error}"
    return why


def _is_device(config: str, path: str) -> bool:
    from qmadmin.volume_makers import path_of

    try:
        return path_of(os.path.expanduser(config)) == path  # noqa: PTH111 - it may be a URL
    except QueueError:
        return False


def _why_not_believed(file: str) -> str:
    """Return why settings prove nothing either; empty for a file that only its user, or root, can write."""
    found = Path(file).stat()
    if found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ""
    return f"others may write the settings file {file!r} too"
