"""A move as tests make it, in whichever process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qmadmin.transfer import Local
from qmadmin.transfer.exporting import ExportOptions
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.moving import Moved, move


def moved(source: str, there: str, directory: Path, **how: Any) -> Moved:
    """Move everything, by this process alone; what arrives can be dequeued."""
    exporting = ExportOptions(**how)
    return move(source, there, directory, exporting=exporting, importing=ImportOptions(start=True), executor=Local())
