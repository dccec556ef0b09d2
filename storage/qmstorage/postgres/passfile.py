"""The password file: libpq itself writes to the standard error output where it ignores it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NONE: Final = "/dev/null/none"
"""A file that cannot exist: libpq does not complain about a missing one."""


def refused(parameters: Mapping[str, str]) -> str:
    """Return why libpq ignores the password file, as a sentence without its end; empty where it does not."""
    path = parameters.get("passfile") or os.environ.get("PGPASSFILE") or str(Path("~/.pgpass").expanduser())
    try:
        mode = Path(path).stat().st_mode
    except (OSError, RuntimeError, ValueError):
        return ""
    if not stat.S_ISREG(mode):
        return f"password file {path!r} is ignored: it is not a file"
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"password file {path!r} is ignored: its group or others may use it; give it mode 0600"
    return ""
