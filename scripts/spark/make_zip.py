"""Make the zip of the package that spark-submit ships to the machines of a cluster.

    python scripts/spark/make_zip.py qmadmin.zip
    spark-submit --py-files qmadmin.zip scripts/spark/qmspark.py export DEVICE ARCHIVE

The machines need what PySpark does, pyarrow, SQLAlchemy and, for PostgreSQL, psycopg. A wheel is no help there:
executors take only .zip, .egg and .jar.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "qmadmin", ROOT / "core" / "qmcore", ROOT / "storage" / "qmstorage")
"""What belongs to qmadmin."""

_MOMENT = (2020, 1, 1, 0, 0, 0)
"""The time of each file in the zip: the same source makes the same zip."""


def main(arguments: list[str]) -> int:
    """Make the zip; return the exit status."""
    if len(arguments) != 1:
        print(f"usage: {Path(sys.argv[0]).name} ZIP", file=sys.stderr)
        return 2
    with zipfile.ZipFile(arguments[0], "w", zipfile.ZIP_DEFLATED) as made:
        for package in PACKAGES:
            for path in sorted(package.rglob("*")):
                # A file of texts that is being written has another name until it is there.
                if path.suffix != ".new" and path.is_file() and "__pycache__" not in path.parts:
                    entry = zipfile.ZipInfo(str(path.relative_to(package.parent)), _MOMENT)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    made.writestr(entry, path.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
