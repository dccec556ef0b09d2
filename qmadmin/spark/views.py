"""The views of a Spark session for queries in SQL: those of a device or of an archive.

`messages` are those not yet consumed, `history` the retained ones, then `queues` and `spaces`. Their columns do not
depend on the source.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.archive.columns import COLUMNS, ArchiveColumn
from qmadmin.archive.file_systems import Directory, Files
from qmadmin.archive.reading import Archive, open_archive
from qmadmin.opening import open_device
from qmadmin.spark import POSTGRESQL, held
from qmadmin.spark.device_tables import QUEUE_COLUMNS, SPACE_COLUMNS, queue_row, space_row
from qmadmin.spark.hadoop import HadoopPlace, hadoop_place
from qmadmin.spark.kinds import ADDRESS
from qmadmin.spark.session import parallelism
from qmadmin.spark.source import Table, declared
from qmcore.attributes import plain
from qmcore.message import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from qmadmin.archive.manifest import ArchivedQueue, ArchivedSpace, Manifest


def place_at(named: str, key: bytes | None = None) -> Archive | str:
    """Return the archive in a directory of this machine, which `key` signs; other names are devices or addresses."""
    return open_archive(Path(named), key) if Path(named).is_dir() else named


@contextlib.contextmanager
def shown(
    session: SparkSession, place: Archive | str, *, payload: bool = True, partitions: int | None = None
) -> Iterator[None]:
    """Make views of an archive, or of a device as QMCONFIG would name it, for the block.

    An archive that is not signed can be named by its address, such as hdfs://host/archive.

    Without `payload` the column `body` is left out. A device on PostgreSQL is read by this number of tasks, all in the
    same snapshot; None means one for each processor. A device on SQLite is read by a single task.
    """
    if isinstance(place, str) and ADDRESS.match(place):
        with hadoop_place(session, place) as directory:
            show_archive(session, open_archive(directory), payload=payload)
            yield
    elif isinstance(place, str):
        with _held(place, partitions or parallelism(session)) as options:
            show_device(session, {**options, "payload": str(payload).lower()})
            yield
    else:
        show_archive(session, place, payload=payload)
        yield


@contextlib.contextmanager
def _held(config: str, partitions: int) -> Iterator[dict[str, str]]:
    with open_device(config) as device:
        holds = device.kind == POSTGRESQL
    if not holds:
        yield {"device": config}
        return
    with held(config) as options:
        yield {**options, "partitions": str(partitions)}


def show_device(session: SparkSession, options: Mapping[str, str]) -> None:
    """Make views of a device; `options` are those of the data source."""
    for table in Table:
        reader = session.read.format("qspace").options(**options).option("table", table.value)
        reader.load().createOrReplaceTempView(table.value)


def show_archive(session: SparkSession, archive: Archive, *, payload: bool = True) -> None:
    """Make views of an archive, whose parts Spark reads itself; without `payload` the column `body` is left out."""
    stored = _parts(session, archive)
    if not payload:
        stored = stored.drop("body")
    consumed = stored["state"] == State.CONSUMED.value
    stored.where(~consumed).createOrReplaceTempView(Table.MESSAGES.value)
    stored.where(consumed).createOrReplaceTempView(Table.HISTORY.value)
    _made(session, QUEUE_COLUMNS, list(_queues(archive.manifest))).createOrReplaceTempView(Table.QUEUES.value)
    _made(session, SPACE_COLUMNS, list(_spaces(archive.manifest))).createOrReplaceTempView(Table.SPACES.value)


def _parts(session: SparkSession, archive: Archive) -> DataFrame:
    # They are named one by one, because Spark could take other files in the directory for parts.
    paths = [_exactly(_address(archive.files, entry.name)) for entry in archive.manifest.parts]
    if not paths:
        return _made(session, COLUMNS, [])
    return session.read.parquet(*paths)


def _address(files: Files, name: str) -> str:
    if isinstance(files, Directory):
        return f"file:{(files.path / name).resolve()}"
    if isinstance(files, HadoopPlace):
        return files.address_of(name)
    raise TypeError(f"Spark cannot read from {files!r}")


def _exactly(path: str) -> str:
    """Return a path whose characters Spark does not take for a pattern."""
    return re.sub(r"([\\*?\[\]{},])", r"\\\1", path)


def _made(session: SparkSession, columns: Sequence[ArchiveColumn], rows: list[tuple[Any, ...]]) -> DataFrame:
    return session.createDataFrame(rows, declared(columns).replace(" NOT NULL", ""))


def _queues(manifest: Manifest) -> Iterator[tuple[Any, ...]]:
    for space in manifest.spaces:
        for queue in space.queues:
            switches = {"enqueue_enabled": queue.enqueue_enabled, "dequeue_enabled": queue.dequeue_enabled}
            known = queue_row(space.name, plain(queue.definition) | switches) | _contents(queue)
            # An archive does not contain counters.
            yield tuple(known.get(column.name) for column in QUEUE_COLUMNS)


def _contents(queue: ArchivedQueue) -> dict[str, int]:
    """Return the use of a queue, without messages that transactions held, which an archive does not have."""
    counts = [count for count in queue.counts if count.state is not State.CONSUMED]
    ready, delayed = (
        sum(count.messages for count in counts if count.state is state) for state in (State.READY, State.DELAYED)
    )
    pages, size = sum(count.pages for count in counts), sum(count.size for count in counts)
    in_memory = [count for count in counts if count.memory]
    return {
        "messages": ready + delayed,
        "ready": ready,
        "delayed": delayed,
        "held": 0,
        "pages": pages,
        "bytes": size,
        "nonpersistent": sum(count.messages for count in in_memory),
        "memory_pages": sum(count.pages for count in in_memory),
    }


def _spaces(manifest: Manifest) -> Iterator[tuple[Any, ...]]:
    for space in manifest.spaces:
        known = space_row(plain(space.definition)) | _used(space)
        yield tuple(known.get(column.name) for column in SPACE_COLUMNS)


def _used(space: ArchivedSpace) -> dict[str, int]:
    counts = [count for queue in space.queues for count in queue.counts]
    messages = sum(count.messages for count in counts if count.state is not State.CONSUMED)
    pages = sum(count.pages for count in counts if not count.memory)
    return {"queues": len(space.queues), "messages": messages, "pages_used": pages}
