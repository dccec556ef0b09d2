"""Starting Spark quietly, even without a network and on a machine with an unusual name.

The Java that it runs on is found and checked before, because Spark would fail without a clear reason.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qmadmin.transfer import cores
from qmcore.errors import OperatingSystemError, SystemFailureError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

NAME = "qmspark"
"""The name of the programs on a cluster."""

_CHATTY = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers that write at length to stderr what is raised anyway."""

LOCAL = "local[*]"
"""All processors of this machine."""

_LEAST_MEGABYTES = 1024
_MEGABYTES_OF_TASK = 256


def start(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a Spark session: the one that runs already, as under spark-submit, or a new one.

    `master` is that of Spark, `local[N]` for N processors of this machine; None means that of spark-submit, or else all
    processors of this machine. `settings` are further settings of Spark. Raises OperatingSystemError if PySpark or Java
    is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise OperatingSystemError(
            "qmspark needs PySpark, which is not installed", hint="Install it with: pip install pyspark pandas pyarrow."
        ) from error
    running = active()
    if running is not None:
        return running
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started Java, and said where the cluster is.
        return _quiet(SparkSession.builder.appName(NAME).getOrCreate())
    require_java()
    _started(_conf(master or LOCAL, settings or {}))
    return _quiet(SparkSession.builder.getOrCreate())


def active() -> SparkSession | None:
    """Return the running session of this process, which its owner stops; None if there is none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _conf(master: str, settings: Mapping[str, str]) -> SparkConf:
    from pyspark import SparkConf

    conf = SparkConf().setAppName(NAME).setMaster(master)
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.sql.session.timeZone", "UTC")
    if master.startswith("local"):
        _set_local_defaults()
        conf.set("spark.driver.memory", f"{megabytes_for(master)}m")
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    for name, value in settings.items():
        conf.set(name, value)
    return conf


def megabytes_for(master: str) -> int:
    """Return the default memory of Spark on this machine.

    Spark's own default is 1 GB for any number of tasks, each of which may hold a part of an archive, of 200 MB.
    """
    found = re.match(r"local\[(\d+)", master)
    tasks = int(found[1]) if found else cores()
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(_LEAST_MEGABYTES, min(_MEGABYTES_OF_TASK * tasks, here // 2))


def _started(conf: SparkConf) -> None:
    """Start Java with Spark in it. Its output is shown only if it fails."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            gateway = launch_gateway(conf, {"stderr": said})  # type: ignore[no-untyped-call]  # PySpark says no types
            SparkContext(conf=conf, gateway=gateway)
        except PySparkRuntimeError as error:
            said.seek(0)
            raise SystemFailureError(
                f"Spark does not start: {reason_in(said) or error}",
                hint="Look at the master and the memory that were asked for, at JAVA_HOME and SPARK_HOME.",
            ) from error


def reason_in(said: Iterable[str]) -> str:
    """Return the sentence in the output of Java that says why it ended; empty without output."""
    lines = [line.strip() for line in said if line.strip()]
    # Lines of a stack trace name classes, some of which are called errors.
    told = [line for line in lines if not line.startswith(("at ", "... "))]
    line = next(
        (line for line in reversed(told) if "error" in line.lower() or "exception" in line.lower()),
        (told or lines or [""])[-1],
    )
    return reason_of(line.removeprefix('Exception in thread "main" '))


def _quiet(session: SparkSession) -> SparkSession:
    from pyspark.logger import PySparkLogger

    session.sparkContext.setLogLevel("ERROR")
    for name in _CHATTY:
        PySparkLogger.getLogger(name).disabled = True
    return session


def _set_local_defaults() -> None:
    """Set what Spark would determine wrongly, or report at length, before it starts; settings of the user win."""
    for name, value in (
        # A host name with an underscore, or one that does not resolve, must not prevent the start.
        ("SPARK_LOCAL_IP", "127.0.0.1"),
        ("SPARK_LOCAL_HOSTNAME", "localhost"),
        # It would use the first python3 in the PATH, which may not have this package.
        ("PYSPARK_PYTHON", sys.executable),
        ("PYSPARK_DRIVER_PYTHON", sys.executable),
    ):
        os.environ.setdefault(name, value)
    if "SPARK_CONF_DIR" not in os.environ and "SPARK_HOME" not in os.environ:
        os.environ["SPARK_CONF_DIR"] = str(resources.files("qmadmin.spark") / "conf")


def is_remote(session: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect: its Java, and so its context, is in another process."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def parallelism(session: SparkSession) -> int:
    """Return how many tasks Spark uses by default."""
    if not is_remote(session):
        return session.sparkContext.defaultParallelism
    from pyspark.sql.functions import spark_partition_id

    # There is no context to ask; a table of numbers has as many partitions.
    return session.range(0, 10_000).select(spark_partition_id()).distinct().count()


# ---- Java ------------------------------------------------------------------------------------------------------------


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
        f"Spark gave up the job: {reason_of(reason)}", hint="What was done remains; the same command continues."
    )
