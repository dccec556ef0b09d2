"""Writing a DataFrame to a queue.

    df.write.format("qspace").mode("append").options(device=device, space="QSPACE", queue="orders").save()

Tasks check the messages, and write them into files of their own. When all have ended, the files of the successful
attempts become an archive, which is imported: no message is visible before all are stored, and if one of them is wrong,
nothing is stored. Messages are in the order of the partitions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from qmadmin.archive.columns import BY_NAME, ColumnType
from qmadmin.archive.file_systems import despite_late_files
from qmadmin.archive.manifest import (
    NO_INCARNATION,
    ArchivedQueue,
    ArchivedSpace,
    ArchiveSource,
    Manifest,
    PartEntry,
    counted,
)
from qmadmin.archive.rows import TYPES, batch_of, pa, pq
from qmadmin.archive.writing import ArchiveWriter
from qmadmin.opening import open_device
from qmadmin.spark.source import WriteOptions
from qmadmin.transfer import Local, importing
from qmadmin.transfer.exporting import PART_MESSAGES
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.version import __version__
from qmcore import bulk_rows, names
from qmcore.bulk_rows import Row
from qmcore.errors import InvalidArgumentError, OperatingSystemError, QueueError, SystemFailureError
from qmcore.message import PRIORITY_DEFAULT, EnqueueControl, State, checked_body, message_id, pages_of
from qmcore.queue import Delivery, QueueDefinition

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch, Schema
    from pyspark.sql.types import StructType

    from qmadmin.device import Device

_ARCHIVE: Final = "archive"


@dataclasses.dataclass
class Staged(WriterCommitMessage):
    """The output of a task: the number of its partition, its file, and the number of messages in it."""

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
        # Tasks create no directory: a late attempt would leave it behind.
        with _naming_the_directory(self._directory):
            self._directory.mkdir(mode=0o700)

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """Check the messages of a partition and write them into a file of this attempt."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark calls this in a task
        path = self._directory / f"{context.partitionId():08d}-{context.taskAttemptId()}.parquet"
        count = 0
        with _naming_the_directory(self._directory), path.open("wb") as file:
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
        with _naming_the_directory(directory):
            archive = self._archive(directory / _ARCHIVE, [each.path for each in staged if each.messages])
        asked = ImportOptions(existing=self._options.existing, start=True)
        try:
            importing.load_archive(directory / _ARCHIVE, self._options.device, asked, executor=Local())
        except QueueError as error:
            self._give_up(directory, archive, error)
        _remove(directory)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have written."""
        del messages
        _remove(self._directory)

    def _give_up(self, directory: Path, archive: str, error: QueueError) -> NoReturn:
        """Abandon an import that failed; if it was published, it has to be continued."""
        options = self._options
        if options.space in importing.merging(options.device, archive):
            kept = directory.rename(f"{directory}-kept")
            raise SystemFailureError(
                f"all messages were stored, but not all of them are in queue {options.queue!r} yet: {error.message}",
                hint=f"Continue with: qmspark import --start --existing append {kept / _ARCHIVE} DEVICE",
            ) from error
        importing.abandon(options.device, options.space, archive)
        raise error

    def _archive(self, directory: Path, paths: list[str]) -> str:
        """Make an archive of the files of the tasks, and return its identifier."""
        with open_device(self._options.device) as device:
            queue = self._queue(device)
            now = device.clock.now()
            space = device.space(self._options.space).definition
            whence = ArchiveSource(device.path, device.info.id, device.kind, device.info.page_size, now)
        writer = ArchiveWriter.create(directory)
        arriving = Arriving(queue.definition, self._kind, whence.page_size, now)
        entries = tuple(self._parts(writer, arriving, paths, memory=queue.definition.delivery is Delivery.NONPERSIST))
        found = counted(entries).get((space.name, queue.name), ())
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
        """Return the definition of the queue, or of the one to create."""
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
                        part.write(
                            batch_of(self._options.space, self._options.queue, state, memory, rows, _unassigned_id)
                        )
                    written += batch.num_rows
                    batch = next(batches, None)
                yield part.close()
            number += 1


def _unassigned_id(sequence: int) -> str:
    """Return an identifier that is valid nowhere; a message gets its own when it is imported."""
    return message_id(NO_INCARNATION, sequence)


def _remove(directory: Path) -> None:
    """Remove the directory; an error that prevents this changes nothing about what is stored."""
    with contextlib.suppress(OSError):
        despite_late_files(functools.partial(shutil.rmtree, directory))


@contextlib.contextmanager
def _naming_the_directory(directory: Path) -> Iterator[None]:
    """Raise errors in the directory with a sentence about it."""
    try:
        yield
    except OSError as error:
        raise OperatingSystemError(
            f"the directory {str(directory)!r} cannot be used for what is to be written: {error.strerror or error}",
            hint="The option 'staging' names one; on a cluster it is one that all machines share.",
        ) from None


TEXT_TYPE, BYTES_TYPE = "STRING", "CARRAY"
"""The type of the buffer without a column for it, by the type of `body`."""


def _checked_headers(text: str) -> object:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise InvalidArgumentError(f"the headers {names.shown(text)} are not a JSON object whose values are texts")
    return EnqueueControl(headers=values)


_CHECKS: Final[Mapping[str, Callable[[Any], object]]] = {
    "body": checked_body,
    "priority": lambda value: EnqueueControl(priority=value),
    "available_at": lambda value: EnqueueControl(available_us=value),
    "expires_at": lambda value: EnqueueControl(expires_us=value),
    "urcode": lambda value: EnqueueControl(urcode=value),
    "appkey": lambda value: EnqueueControl(appkey=value),
    "corrid": names.correlation_id,
    "reply_queue": lambda value: EnqueueControl(reply_queue=value),
    "failure_queue": lambda value: EnqueueControl(failure_queue=value),
    "error_queue": lambda value: EnqueueControl(error_queue=value),
    "reply_delivery": lambda value: EnqueueControl(reply_delivery=Delivery(value)),
    "client_id": lambda value: EnqueueControl(client_id=value),
    "type": lambda value: EnqueueControl(type=value),
    "subtype": lambda value: EnqueueControl(subtype=value),
    "headers": _checked_headers,
}
"""The columns that messages are made of, and the checks that refuse a value that no sender could give."""

_SPARK_TYPES: Final = {
    ColumnType.TEXT: ("string",),
    ColumnType.BYTES: ("binary", "string"),
    ColumnType.INT16: ("byte", "short", "integer", "long"),
    ColumnType.INT64: ("byte", "short", "integer", "long"),
    ColumnType.TIME: ("timestamp",),
}
"""The allowed types of a column in a DataFrame, by its type in an archive; one of only nulls may be `void`."""


def refuse_unfit(schema: StructType) -> None:
    """Refuse columns that messages cannot be made of."""
    found = {field.name.lower(): field.dataType.typeName() for field in schema}
    if len(found) < len(schema):
        raise InvalidArgumentError(
            "the DataFrame has two columns whose names are equal or differ only in case", hint="Drop one, or rename it."
        )
    if "body" not in found:
        raise InvalidArgumentError(
            "the DataFrame has no column 'body'", hint=f"It has {', '.join(map(repr, found)) or 'none'}."
        )
    for name, kind in found.items():
        if name not in BY_NAME:
            raise InvalidArgumentError(
                f"the DataFrame has a column {name!r}, which is not an attribute of a message",
                hint=f"Drop it, or rename it to one of {', '.join(_CHECKS)}.",
            )
        if name in _CHECKS and kind not in (*_SPARK_TYPES[BY_NAME[name].kind], "void"):
            wanted = " or ".join(_SPARK_TYPES[BY_NAME[name].kind])
            raise InvalidArgumentError(f"the column {name!r} has the type {kind}, and must have {wanted}")


def type_of(schema: StructType) -> str:
    """Return the type of the buffer of messages without one."""
    kinds = {field.name.lower(): field.dataType.typeName() for field in schema}
    return TEXT_TYPE if kinds["body"] == "string" else BYTES_TYPE


@functools.cache
def staged_schema() -> Schema:
    """Return the schema of the file of a task."""
    return pa.schema([pa.field(name, TYPES[_staged_kind(name)]) for name in _CHECKS])


def _staged_kind(name: str) -> ColumnType:
    """Return the type of a column before its values are checked, which may be out of range."""
    kind = BY_NAME[name].kind
    return ColumnType.INT64 if kind is ColumnType.INT16 else kind


def checked(batch: RecordBatch) -> RecordBatch:
    """Return the columns of `staged_schema` from a batch of a DataFrame; refuse the first invalid value.

    The refusal names the column and the value.
    """
    schema = staged_schema()
    given = {name.lower(): array for name, array in zip(batch.schema.names, batch.columns, strict=True)}
    arrays = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    for field, array in zip(schema, arrays, strict=True):
        _check(field.name, array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check(name: str, array: Array) -> None:
    if array.null_count == len(array):
        return
    check = _CHECKS[name]
    if name == "body":
        # Many are large, and all are different.
        for value in array:
            check(None if not value.is_valid else memoryview(value.as_buffer()))
        return
    for value in dict.fromkeys(_plain(array)):
        try:
            if value is not None:
                check(value)
        except (InvalidArgumentError, ValueError) as error:
            reason = error.message if isinstance(error, InvalidArgumentError) else "there is no such value"
            raise InvalidArgumentError(f"the column {name!r} has the value {value!r}: {reason}") from None


def _plain(array: Array) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    values: list[Any] = array.to_pylist()
    return values


class Arriving:
    """Messages that arrive in a queue at a time: their rows, numbered from 1 in the given order.

    `kind` is the type of the buffer if they have none, `page_size` that of the device.
    """

    def __init__(self, definition: QueueDefinition, kind: str, page_size: int, now: int) -> None:
        self._definition = definition
        self._kind = kind
        self._page_size = page_size
        self._now = now
        self.last = 0

    def rows(self, batch: RecordBatch) -> dict[State, list[Row]]:
        """Return the rows of a batch, by their states."""
        found: dict[State, list[Row]] = {}
        columns = [_plain(batch.column(name)) for name in _CHECKS]
        for values in zip(*columns, strict=True):
            self.last += 1
            state, row = self._row(dict(zip(_CHECKS, values, strict=True)))
            found.setdefault(state, []).append(row)
        return found

    def _row(self, values: dict[str, Any]) -> tuple[State, Row]:
        available, expires = values["available_at"], values["expires_at"]
        if expires is None:
            expires = EnqueueControl().expires_at(self._now, self._definition.expiration)
        priority = PRIORITY_DEFAULT if values["priority"] is None else values["priority"]
        is_delayed = available is not None and available > self._now
        body = values["body"]
        size = 0 if body is None else len(body)
        made = {
            **values,
            "sequence": self.last,
            "order_key": self._definition.order.key(
                priority=priority,
                available_at=self._now if available is None else available,
                expires_at=expires,
                sequence=self.last,
            ),
            "priority": priority,
            "enqueued_at": self._now,
            "expires_at": expires,
            "pages": pages_of(size, values["headers"], self._page_size),
            "size": size,
            "retries": 0,
            "urcode": values["urcode"] or 0,
            "appkey": values["appkey"] or 0,
            "type": values["type"] or self._kind,
            "until": available if is_delayed else None,
        }
        return State.DELAYED if is_delayed else State.READY, tuple(map(made.get, bulk_rows.COLUMNS))


def batches_of(paths: Sequence[str]) -> Iterator[RecordBatch]:
    """Yield the staged batches, in the order of the files."""
    from qmadmin.archive.rows import pq

    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(bulk_rows.ROWS_MAX, use_threads=False)
