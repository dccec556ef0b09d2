"""The engine on an SQLite file, durable and relaxed."""

from __future__ import annotations

import sqlite3
from typing import ClassVar

import qmadmin
from benchmarks import engine


class Measured(engine.Measured):
    """A device that is durable."""

    def __init__(self) -> None:
        self.version = f"qmadmin {qmadmin.__version__}, SQLite {sqlite3.sqlite_version}"


class Relaxed(Measured):
    """A device that is relaxed."""

    durability = "relaxed"
    commits: ClassVar = dict.fromkeys(Measured.commits, 0)
