"""The Java that Spark runs on: found and checked before Spark is started, which would fail without a clear reason."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from qmcore.errors import OperatingSystemError, SystemFailureError

OLDEST = 17
"""The first version of Java that the supported releases of Spark run on."""

_HINT = (
    f"Install Java {OLDEST} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless), or have JAVA_HOME name"
    " the directory of one. qexport and qimport need none."
)
_SECONDS = 30


def require_java() -> str:
    """Return the path of the Java that Spark will use; OperatingSystemError if there is none, or an old one."""
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


_LONGEST: Final = 300
_DEEPEST: Final = 8

_NOBODY: Final = (
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.SocketTimeoutException",
    "org.apache.hadoop.net.ConnectTimeoutException",
)
_KNOWN: Final = {
    "java.io.FileNotFoundException": (errno.ENOENT, "No such file or directory"),
    "org.apache.hadoop.fs.ParentNotDirectoryException": (errno.ENOTDIR, "Not a directory"),
    "org.apache.hadoop.fs.FileAlreadyExistsException": (errno.EEXIST, "File exists"),
}
_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_ADVICE: Final = re.compile(r"[;.]? *For more details see:.*")
_MISSING: Final = re.compile(r"Class (\S+) not found")


@contextlib.contextmanager
def as_os_errors(host: str = "") -> Iterator[None]:
    """Raise exceptions of Java as OSError; `host` is the host with the port, as the user has named it."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it says no types
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise _os_error(list(_causes(error.java_exception)), host) from None
    except PySparkException as error:
        # PySpark has converted the classes that it knows already.
        kind, _, rest = str(error).partition(": ")
        raise _os_error([(kind, rest or kind)], host) from None
    except Py4JError:
        raise OSError(errno.EIO, "the Java of Spark no longer answers") from None


def _causes(raised: Any) -> Iterator[tuple[str, str]]:
    """Yield the classes of an exception and of its causes, each with its message."""
    depth = 0
    while raised is not None and depth < _DEEPEST:
        yield str(raised.getClass().getName()), str(raised.getMessage() or "")
        raised, depth = raised.getCause(), depth + 1


def _os_error(causes: list[tuple[str, str]], host: str) -> OSError:
    for kind, said in causes:
        if kind in _KNOWN:
            return OSError(*_KNOWN[kind])
        if kind.endswith(("AccessControlException", "AccessDeniedException")):
            return OSError(errno.EACCES, f"Permission denied: {reason_of(said).removeprefix('Permission denied: ')}")
        if kind.endswith("UnknownHostException"):
            return OSError(errno.EHOSTUNREACH, f"there is no host {reason_of(said)!r}")
        if missing := _MISSING.search(said):
            return OSError(errno.ENOSYS, f"Spark has no {missing[1]}; --conf spark.jars.packages brings it")
    kind, said = causes[-1]
    if any(kind in _NOBODY for kind, _ in causes):
        return OSError(errno.EHOSTUNREACH, f"no server answers at {host!r}: {reason_of(said)}")
    return OSError(errno.EIO, reason_of(said) or kind.rpartition(".")[2])


def reason_of(said: str) -> str:
    """Return the reason in a message of Java: one sentence, without classes and links."""
    first = next((line.strip() for line in said.splitlines() if line.strip()), "")
    sentence = _ADVICE.sub("", first)
    while found := _CLASS.match(sentence):
        sentence = sentence[found.end() :]
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]}..."


def explained(error: Exception) -> SystemFailureError:
    """Return the diagnostic for a job that Spark gave up."""
    lines = [line.strip() for line in str(error).splitlines()]
    reason = next((line for line in reversed(lines) if "Error: " in line or "Exception: " in line), lines[0])
    # The last failure, without earlier attempts and without the names of classes before it.
    reason = reason.rpartition("most recent failure: ")[2].removeprefix(": ").removeprefix("Caused by: ")
    return SystemFailureError(
        f"Spark gave up the job: {reason_of(reason)}",
        hint="What was done remains; the same command continues.",
    )
