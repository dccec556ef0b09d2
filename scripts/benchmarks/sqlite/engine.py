"""The engine on an SQLite file, durable and relaxed."""

from __future__ import annotations

import sqlite3
from typing import ClassVar

from benchmarks import engine


class Measured(engine.Measured):
    """A device that is durable."""

    driver = f"SQLite {sqlite3.sqlite_version}"
    modules = (*engine.MODULES, "qmstorage.sqlite.opening")


class Relaxed(Measured):
    """A device that is relaxed."""

    durability = "relaxed"
    commits: ClassVar = dict.fromkeys(Measured.commits, 0)
