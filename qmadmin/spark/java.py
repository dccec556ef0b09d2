"""The Java that Spark runs on: found and judged before Spark is started, which would only fail without a reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from qmcore.errors import OperatingSystemError

OLDEST = 17
"""The first version of Java that the supported releases of Spark run on."""

_HINT = (
    f"Install Java {OLDEST} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless), or have JAVA_HOME name"
    " the directory of one. qexport and qimport need none."
)
_SECONDS = 30


def require_java() -> str:
    """Return the path of the Java that Spark will use; OperatingSystemError where there is none, or an old one."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if path is None or not os.access(path, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java in the PATH"
        raise OperatingSystemError(f"Spark needs Java, and {where}", hint=_HINT)
    version = _version(path)
    if version < OLDEST:
        raise OperatingSystemError(f"Spark needs Java {OLDEST} or newer, and {path} is Java {version}", hint=_HINT)
    return path


def _version(path: str) -> int:
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise OperatingSystemError(f"Spark needs Java, and {path} does not run: {error}", hint=_HINT) from error
    # Up to 8 it was called 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0
