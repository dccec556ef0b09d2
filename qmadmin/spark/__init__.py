"""qmspark: moving and querying whole queue spaces on Apache Spark. PySpark is imported nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.spark.device_snapshot import held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["held", "register"]


def register(session: SparkSession) -> None:
    """Make a Spark session able to read and write queue spaces as the format "qspace"."""
    from qmadmin.spark.source import QueueSpaceSource

    session.dataSource.register(QueueSpaceSource)
