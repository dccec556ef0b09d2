#!/usr/bin/env python3
"""Compile the texts of the statements, which programs read instead of loading SQLAlchemy (storage/qmstorage/texts.py).

Building a package and installing a checkout do it. In a checkout whose statements were changed since, those are
compiled when they run, until this script is run again.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def make() -> list[Path]:
    """Write the files with the texts, and return their paths; none of PostgreSQL where psycopg is not installed."""
    sys.path[:0] = [str(ROOT / "core"), str(ROOT / "storage")]
    from qmstorage import compiling
    from qmstorage.postgres import tables
    from qmstorage.sqlite import files

    made = [compiling.write(files.DIALECT)]
    try:
        import psycopg  # noqa: F401 - the modules of PostgreSQL import it
    except ImportError:
        return made
    return [*made, compiling.write(tables.DIALECT)]


if __name__ == "__main__":
    for path in make():
        print(path.relative_to(ROOT))
