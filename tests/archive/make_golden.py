"""Writes the golden archive of version 1, which is never written again once a release has gone out.

python tests/archive/make_golden.py, in the directory of the project
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2] / part) for part in ("", "core", "storage")]
    from tests.fix_archive import make

    make(Path(__file__).with_name("golden-1"))
