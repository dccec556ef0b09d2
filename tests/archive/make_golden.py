"""Writes the golden archive of the newest minor version, which is never written again once a release has gone out.

python tests/archive/make_golden.py, in the directory of the project. That of the first minor version, `golden-1`, was
made likewise by an earlier state of the project.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2] / part) for part in ("", "core", "storage")]
    from qmadmin.archive.columns import MINOR
    from tests.fix_archive import GROUPS_OF_MINOR_2, QUEUES_OF_MINOR_3, make

    place = Path(__file__).with_name(f"golden-1.{MINOR}")
    make(place, parts=GROUPS_OF_MINOR_2, queues=QUEUES_OF_MINOR_3, release="0.2.0")
