"""qmspark: moving and querying whole queue spaces on Apache Spark. PySpark is imported nowhere else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from qmcore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["held", "register"]

POSTGRESQL: Final = "postgresql"
"""The kind of device that several tasks can read in one snapshot."""


@contextlib.contextmanager
def held(device: str, spaces: Sequence[str] = ("*",)) -> Iterator[dict[str, str]]:
    """Hold a snapshot of a device on PostgreSQL, and return the options of the data source with which tasks read it.

        with held(url) as options:
            spark.read.format("qspace").options(**options).option("partitions", 8).load()

    `device` is named as in QMCONFIG, `spaces` are patterns of names of queue spaces. Other processes go on working, but
    messages that are deleted meanwhile take up room until the end of the block. Raises InvalidArgumentError for a
    device on SQLite, which a single task reads at one moment anyway.
    """
    from qmadmin.opening import open_device
    from qmadmin.transfer.selecting import ArchiveSelection
    from qmadmin.transfer.snapshot import SnapshotReader

    with open_device(device) as opened:
        if opened.kind != POSTGRESQL:
            raise InvalidArgumentError(
                f"device {opened.path!r} is on SQLite, where no moment can be held for tasks that begin later",
                hint="Read it with one partition, which sees one moment, or export it into an archive.",
            )
        names = ArchiveSelection(spaces=tuple(spaces)).spaces_of(opened)
        with contextlib.closing(SnapshotReader(opened, names)) as reader:
            yield {"device": device, "space": ",".join(names), "snapshot": json.dumps(dict(reader.begin({})))}


def register(session: SparkSession) -> None:
    """Make a Spark session able to read and write queue spaces as the format "qspace"."""
    from qmadmin.spark.source import QueueSpaceSource

    session.dataSource.register(QueueSpaceSource)
