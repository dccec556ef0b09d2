"""Writing a DataFrame to a queue.

    df.write.format("qspace").mode("append").options(device=device, space="QSPACE", queue="orders").save()

Tasks check the messages, and write them into files of their own. When all have ended, an archive is made of the files
of those that won, and is imported: nobody sees a message before all are there, and nothing is stored when one of them
is wrong. Messages stand in the order of the partitions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from qmadmin.archive.arrow import pq
from qmadmin.archive.manifest import NO_INCARNATION, ArchivedQueue, ArchivedSpace, Manifest, PartEntry, Source, counted
from qmadmin.archive.rows import batch_of
from qmadmin.archive.writing import ArchiveWriter
from qmadmin.opening import open_device
from qmadmin.spark.incoming import Arriving, batches_of, checked, refuse_unfit, staged_schema, type_of
from qmadmin.spark.write_options import WriteOptions
from qmadmin.transfer import importing
from qmadmin.transfer.export_planning import PART_MESSAGES
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.workers import Alone
from qmadmin.version import __version__
from qmcore.errors import OperatingSystemError, QueueError, SystemFailureError
from qmcore.message import message_id
from qmcore.queue import Delivery, QueueDefinition

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from qmadmin.device import Device

_ARCHIVE: Final = "archive"


@dataclasses.dataclass
class Staged(WriterCommitMessage):
    """What a task has written: the number of its partition, its file, and how many messages that has."""

    partition: int
    path: str
    messages: int


class QueueWriter(DataSourceArrowWriter):
    """Writes messages to a queue."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        refuse_unfit(schema)
        self._options = options
        self._kind = type_of(schema)
        self._directory = Path(options.staging, f"qmspark-{secrets.token_hex(8)}")
        # Tasks make none: an attempt that is late would leave it behind.
        with _telling(self._directory):
            self._directory.mkdir(mode=0o700)

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """Check the messages of a partition and write them into a file of this attempt."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark calls this in a task
        path = self._directory / f"{context.partitionId():08d}-{context.taskAttemptId()}.parquet"
        count = 0
        with _telling(self._directory), path.open("wb") as file:
            with pq.ParquetWriter(file, staged_schema(), compression="zstd") as writer:
                for batch in iterator:
                    writer.write_batch(checked(batch))
                    count += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        return Staged(context.partitionId(), str(path), count)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Store what the tasks have written."""
        staged = sorted((each for each in messages if isinstance(each, Staged)), key=lambda each: each.partition)
        directory = self._directory
        with _telling(directory):
            archive = self._archive(directory / _ARCHIVE, [each.path for each in staged if each.messages])
        asked = ImportOptions(existing=self._options.existing, start=True)
        try:
            importing.load_archive(directory / _ARCHIVE, self._options.device, asked, workers=Alone())
        except QueueError as error:
            self._give_up(directory, archive, error)
        shutil.rmtree(directory, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have written."""
        del messages
        shutil.rmtree(self._directory, ignore_errors=True)

    def _give_up(self, directory: Path, archive: str, error: QueueError) -> NoReturn:
        """Leave nothing behind of an import that failed; what was published by then has to be gone on with."""
        options = self._options
        if options.space in importing.merging(options.device, archive):
            kept = directory.rename(f"{directory}-kept")
            raise SystemFailureError(
                f"all messages were stored, but not all of them are in queue {options.queue!r} yet: {error.message}",
                hint=f"Go on with: qmspark import --start --existing append {kept / _ARCHIVE} DEVICE",
            ) from error
        importing.abandon(options.device, options.space, archive)
        raise error

    def _archive(self, directory: Path, paths: list[str]) -> str:
        """Make an archive of what the tasks have written, and return its identifier."""
        with open_device(self._options.device) as device:
            queue = self._queue(device)
            now = device.clock.now()
            space = device.space(self._options.space).definition
            whence = Source(device.path, device.info.id, device.kind, device.info.page_size, now)
        writer = ArchiveWriter.create(directory)
        arriving = Arriving(queue.definition, self._kind, whence.page_size, now)
        entries = tuple(self._parts(writer, arriving, paths, memory=queue.definition.delivery is Delivery.NONPERSIST))
        found = counted(entries).get((space.name, queue.definition.name), ())
        manifest = Manifest(
            archive=secrets.token_hex(16),
            created_us=now,
            release=__version__,
            source=whence,
            selection={},
            spaces=(
                ArchivedSpace(
                    definition=space,
                    incarnation=NO_INCARNATION,
                    first=min(arriving.last, 1),
                    last=arriving.last,
                    adopted=(),
                    queues=(dataclasses.replace(queue, counts=found),),
                ),
            ),
            parts=entries,
        )
        writer.finish(manifest)
        return manifest.archive

    def _queue(self, device: Device) -> ArchivedQueue:
        """Return the queue as it is, or as it is to be made."""
        name = self._options.queue
        for queue in device.queues(self._options.space):
            if queue.name == name:
                return ArchivedQueue(queue.definition, queue.enqueue_enabled, queue.dequeue_enabled, ())
        return ArchivedQueue(QueueDefinition(name=name, order=self._options.order), True, True, ())

    def _parts(
        self, writer: ArchiveWriter, arriving: Arriving, paths: list[str], *, memory: bool
    ) -> Iterator[PartEntry]:
        batches = batches_of(paths)
        number = 0
        batch = next(batches, None)
        while batch is not None:
            with writer.part(f"part-{number:05d}.parquet") as part:
                written = 0
                while batch is not None and written < PART_MESSAGES:
                    for state, rows in arriving.rows(batch).items():
                        part.write(batch_of(self._options.space, self._options.queue, state, memory, rows, _nobody))
                    written += batch.num_rows
                    batch = next(batches, None)
                yield part.close()
            number += 1


def _nobody(sequence: int) -> str:
    """Return an identifier that is valid nowhere; a message gets its own where it is imported."""
    return message_id(NO_INCARNATION, sequence)


@contextlib.contextmanager
def _telling(directory: Path) -> Iterator[None]:
    """What goes wrong in the directory is told as its fault."""
    try:
        yield
    except OSError as error:
        raise OperatingSystemError(
            f"the directory {str(directory)!r} cannot be used for what is to be written: {error.strerror or error}",
            hint="The option 'staging' names one; on a cluster it is one that all machines share.",
        ) from None
