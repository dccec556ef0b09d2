"""Who besides this user may write the files of a volume."""

from __future__ import annotations

import stat
from pathlib import Path

from qmstorage.sqlite.translate import other_owner

_SUFFIXES = ("", "-wal", "-shm")
"""The files that a volume is read from: whoever may write one of them may change all that is in the volume."""


def others(path: str) -> str:
    """Return why others may write a volume, as the end of a sentence; empty where only this user may."""
    return next(filter(None, (_others(f"{path}{suffix}") for suffix in _SUFFIXES)), "")


def _others(file: str) -> str:
    try:
        mode = Path(file).stat().st_mode
    except FileNotFoundError:
        return ""
    if owner := other_owner(file):
        return f"{file!r} belongs to {owner}"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"its group or others may write {file!r}"
    return ""
