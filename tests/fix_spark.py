"""Spark for the tests: one session for each test process, on processors of this machine.

Where there is no Java, tests are skipped, and fail where the environment says CI.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qmcore.errors import OperatingSystemError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOUNTED = {"spark.hadoop.fs.viewfs.mounttable.all.link./of": "file:///"}
"""A file system of Hadoop that is not that of this machine, and has its files nevertheless."""


QUICK_TO_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of a Java that lives too short to be worth making it fast, or verifying the classes of Spark each time."""


def pytest_configure() -> None:
    """Have Java start quickly, by variables of which it says nothing: for the session, and for programs."""
    for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
        os.environ.setdefault(name, QUICK_TO_START)


def address_of(directory: Path, scheme: str = "viewfs") -> str:
    """Return the address that a directory has for the session."""
    return f"file://{directory}" if scheme == "file" else f"viewfs://all/of{directory}"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two processors, where a task that fails is tried three more times."""
    from qmadmin.spark.session import start

    _require_java()
    session = start("local[2,4]", {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "768m", **_MOUNTED})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def java() -> None:
    """Java, for programs that start Spark themselves."""
    _require_java()


def _require_java() -> None:
    from qmadmin.spark.session import require_java

    try:
        require_java()
    except OperatingSystemError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
