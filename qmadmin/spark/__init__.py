"""qmspark: moving whole queue spaces, and looking into them, on Apache Spark. PySpark is imported nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.spark.holding import held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["held", "register"]


def register(session: SparkSession) -> None:
    """Let a Spark session read and write queue spaces as the format "qspace"."""
    from qmadmin.spark.source import QueueSpaceSource

    session.dataSource.register(QueueSpaceSource)
