"""How many tasks a session of Spark runs at a time, wherever it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(session: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect: its Java, and so its context, is in another process."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def parallelism(session: SparkSession) -> int:
    """Return how many tasks Spark makes where nobody says how many."""
    if not is_remote(session):
        return session.sparkContext.defaultParallelism
    from pyspark.sql.functions import spark_partition_id

    # There is no context to ask; a table of numbers has as many parts.
    return session.range(0, 10_000).select(spark_partition_id()).distinct().count()
