"""Who does the work that a command of qmspark is asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qmadmin.spark.stopping import UnusableError
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qmadmin.transfer.workers import Workers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workforce:
    """What was asked for: so many processes of this machine, or Spark at a master with its settings.

    `needs_spark` says that it has to be Spark, without --master on all processors of this machine.
    """

    processes: int | None
    master: str | None
    partitions: int | None
    memory: str | None
    settings: tuple[tuple[str, str], ...]
    needs_spark: bool = False

    def __post_init__(self) -> None:
        of_spark = {"--partitions": self.partitions, "--memory": self.memory, "--conf": self.settings}
        given = [flag for flag, value in of_spark.items() if value]
        if self.processes is not None and self.on_spark:
            raise UnusableError("--processes is for work without Spark; --partitions says how many tasks there are")
        if given and not self.on_spark:
            raise UnusableError(f"{given[0]} is for work on Spark", "Name one with --master, such as local[4].")

    @property
    def on_spark(self) -> bool:
        """Whether Spark does the work, because it has to or was asked to, or has started this program."""
        return self.needs_spark or self.master is not None or "PYSPARK_GATEWAY_PORT" in os.environ

    @contextlib.contextmanager
    def hired(self) -> Iterator[Workers | None]:
        """Give the workers for a block; None means those that fit the work."""
        if self.on_spark:
            with self.session() as session:
                from qmadmin.spark.spark_workers import SparkWorkers

                yield SparkWorkers(session, self.partitions)
        elif self.processes is None:
            yield None
        else:
            from qmadmin.transfer.workers import Alone, Processes

            yield Alone() if self.processes == 1 else Processes(self.processes)

    @contextlib.contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Give a session of Spark for a block."""
        from qmadmin.spark.session import active, start

        # It would tell an interrupt in fifty lines.
        logging.getLogger("py4j").addHandler(logging.NullHandler())
        settings = dict(self.settings)
        if self.memory:
            settings = {"spark.driver.memory": self.memory, "spark.executor.memory": self.memory} | settings
        borrowed = active() is not None
        try:
            session = start(self.master, settings)
        except QueueError as error:
            raise UnusableError(error.message, error.hint) from error
        try:
            yield session
        finally:
            if not borrowed:
                session.stop()
