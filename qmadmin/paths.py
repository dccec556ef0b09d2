"""Paths of a process: relative ones are relative to its current directory."""

from __future__ import annotations

import os

from qmcore.errors import OperatingSystemError


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the absolute path.

    Raises OperatingSystemError for a relative path if the current directory was removed.
    """
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise OperatingSystemError(
            f"{os.fspath(path)!r} is a relative path, and the current directory was removed",
            hint="Change to a directory that exists, or give the whole path.",
        ) from None
