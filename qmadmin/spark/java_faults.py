"""What the file systems of Hadoop raise, as errors of the operating system with a reason in one sentence."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from typing import Any, Final

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
    """Raise what Java raises as OSError; `host` is who is asked, with the port, as the user has named it."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it says no types
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise _os_error(list(_causes(error.java_exception)), host) from None
    except PySparkException as error:
        # What it knows by its class PySpark has made an exception of its own already.
        kind, _, rest = str(error).partition(": ")
        raise _os_error([(kind, rest or kind)], host) from None
    except Py4JError:
        raise OSError(errno.EIO, "the Java of Spark does not answer any more") from None


def _causes(raised: Any) -> Iterator[tuple[str, str]]:
    """Yield the classes of an exception and of what has brought it about, each with what it says."""
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
        return OSError(errno.EHOSTUNREACH, f"nobody answers at {host!r}: {reason_of(said)}")
    return OSError(errno.EIO, reason_of(said) or kind.rpartition(".")[2])


def reason_of(said: str) -> str:
    """Return the reason in what Java says: one sentence, without classes and addresses of advice."""
    first = next((line.strip() for line in said.splitlines() if line.strip()), "")
    sentence = _ADVICE.sub("", first)
    while found := _CLASS.match(sentence):
        sentence = sentence[found.end() :]
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]}..."
