"""Spark for the tests: one session for each test process, on processors of this machine.

Where there is no Java, tests are skipped, and fail where the environment says CI.

To load some ten thousand classes is much of what a start of Spark takes. Where many tests start one, the first of them
has the classes written to an archive, from which each later start of the run has them ready; a Java that cannot use it
starts without it, and says nothing. It can be used only where all of the class path are files, so that Spark reads its
settings of the log from where they are named, and not from a directory of the class path. `as_users_start_it` is the
environment without all that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qmcore.errors import OperatingSystemError
from tests.fix_postgres import room_of_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOUNTED = {"spark.hadoop.fs.viewfs.mounttable.all.link./of": "file:///"}
"""A file system of Hadoop that is not that of this machine, and has its files nevertheless."""


QUICK_TO_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of a Java that lives too short to be worth making it fast, or verifying the classes of Spark each time."""


_WORTH_IT = 6
"""How many starts of Java take as long as it takes to write the archive."""

_PATIENCE = 240
"""Seconds after which whatever writes the archive is taken for hung."""

_LOG = resources.files("qmadmin.spark") / "conf" / "log4j2.properties"
_NOWHERE = "/nonexistent"
"""A directory that adds nothing to the class path."""

_OPTIONS = ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")
_PLACES = ("SPARK_CONF_DIR", "SPARK_HOME")


def pytest_configure(config: pytest.Config) -> None:
    """Have Java start quickly, by variables of which it says nothing: for the session, and for programs."""
    for name in _OPTIONS:
        os.environ.setdefault(name, QUICK_TO_START)


def address_of(directory: Path, scheme: str = "viewfs") -> str:
    """Return the address that a directory has for the session."""
    return f"file://{directory}" if scheme == "file" else f"viewfs://all/of{directory}"


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """A session on two processors, where a task that fails is tried three more times."""
    from qmadmin.spark.session import start

    session = start("local[2,4]", {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "768m", **_MOUNTED})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def java(request: pytest.FixtureRequest) -> Iterator[None]:
    """Java, for programs that start Spark themselves."""
    _require_java()
    with pytest.MonkeyPatch.context() as patch:
        if _starts(request.session) >= _WORTH_IT and not any(name in os.environ for name in _PLACES):
            for name, value in _with_archive(f"-XX:SharedArchiveFile={classes_of_run(request.config)}").items():
                patch.setenv(name, value)
        yield


def _starts(session: pytest.Session) -> int:
    """Return how many tests start a Java of their own, at least."""
    names = [getattr(item, "fixturenames", ()) for item in session.items]
    return sum("java" in used and "spark" not in used for used in names)


@pytest.fixture
def as_users_start_it(java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which Java starts as it does for users, but for being quick."""
    for name in _OPTIONS:
        monkeypatch.setenv(name, QUICK_TO_START)
    for name in ("SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"):
        monkeypatch.delenv(name, raising=False)


def classes_of_run(config: pytest.Config) -> Path:
    """Return the archive of classes of this run, which the first of its test processes has made."""
    room = room_of_run(config)
    archive = room / "classes"
    with (room / "making classes").open("w") as making:
        fcntl.lockf(making, fcntl.LOCK_EX)
        if not archive.exists():
            _make_archive(archive)
    return archive


_EVERYTHING = """
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
table = session.createDataFrame([(number, str(number), b"x") for number in range(20)], "a long, b string, c binary")
table.createOrReplaceTempView("t")
session.sql("SELECT b, count(*) AS n FROM t WHERE a > 3 GROUP BY b ORDER BY n").toArrow()
session.sparkContext.parallelize(range(4), 2).map(str).collect()
session.stop()
"""
"""A program that does a bit of everything that is done on Spark."""


def _make_archive(archive: Path) -> None:
    """Have a Java write the classes that it has loaded; where it does not, starts are as slow as before."""
    import pyspark

    unfinished = archive.with_name("unfinished")
    program = archive.with_name("everything.py")
    program.write_text(_EVERYTHING)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    theirs = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    command = [submit, "--master", "local[2]", "--driver-memory", "768m", *options, program]
    theirs |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LAUNCHER_OPTS": QUICK_TO_START}
    environment = os.environ | _with_archive(f"-XX:ArchiveClassesAtExit={unfinished}") | theirs
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_PATIENCE, check=False)
        if done.returncode == 0 and unfinished.exists():
            unfinished.rename(archive)


def _with_archive(option: str) -> dict[str, str]:
    """Return the environment of a Spark whose Java reads or writes an archive, by this option."""
    options = f"{QUICK_TO_START} -Xlog:disable {option}"
    return {
        "SPARK_LAUNCHER_OPTS": options,
        "SPARK_SUBMIT_OPTS": f"{options} -Dlog4j2.configurationFile={_LOG}",
        "SPARK_CONF_DIR": _NOWHERE,
    }


def _require_java() -> None:
    from qmadmin.spark.session import require_java

    try:
        require_java()
    except OperatingSystemError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
