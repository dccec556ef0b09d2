"""The data source "qspace": queue spaces of a device as tables of Spark.

    from qmadmin.spark import register

    register(spark)
    messages = spark.read.format("qspace").option("device", "/var/qm/device").load()

There is no push-down of filters: Spark 4.1 to 4.3 keep the filters of one use of a DataFrame for the next, which then
returns too few rows. Options select what is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from qmadmin.archive.columns import COLUMNS, ArchiveColumn, ColumnType
from qmadmin.archive.rows import pa
from qmadmin.opening import open_device
from qmadmin.spark.device_tables import QUEUE_COLUMNS, SPACE_COLUMNS, queue_batch, space_batch
from qmadmin.transfer.exporting import ExportOptions, Plan
from qmadmin.transfer.import_planning import Existing
from qmadmin.transfer.selecting import ArchiveSelection, Outstanding
from qmadmin.transfer.snapshot import SnapshotReader, reading
from qmadmin.transfer.units import ExportUnit, read_unit, state_in_archive
from qmadmin.volume_makers import MEMORY
from qmcore import names
from qmcore.errors import InvalidArgumentError
from qmcore.message import STORED, State
from qmcore.order import QueueOrder
from qmcore.values import dataclass

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

Number = TypeVar("Number", int, float)
Choice = TypeVar("Choice", bound=enum.Enum)


class Table(enum.Enum):
    """The table that is read: messages not yet consumed, retained ones, queues, or queue spaces."""

    MESSAGES = "messages"
    HISTORY = "history"
    QUEUES = "queues"
    SPACES = "spaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a read.

    `tokens` are those of a snapshot that the driver holds; without them each task reads the state at its beginning, and
    `partitions` is one by default.
    """

    device: str
    table: Table = Table.MESSAGES
    selection: ArchiveSelection = dataclasses.field(default_factory=ArchiveSelection)
    payload: bool = True
    partitions: int = 1
    tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)

    NAMES: ClassVar[tuple[str, ...]] = (
        "device", "table", "space", "queue", "state", "where", "olderthan", "newerthan", "count", "payload",
        "partitions", "snapshot",
    )  # fmt: skip

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Self:
        """Read the options from Spark: texts with case-insensitive names."""
        given = named(options)
        unknown = sorted(set(given) - set(cls.NAMES) - {"path"})
        if unknown:
            raise InvalidArgumentError(
                f"the data source qspace has no option {unknown[0]!r}", hint=f"It has {', '.join(cls.NAMES)}."
            )
        device = given.get("device") or given.get("path")
        if not device:
            raise InvalidArgumentError(
                "the data source qspace needs the option 'device'", hint="It names the device as QMCONFIG does."
            )
        table = _one_of(Table, given.get("table", Table.MESSAGES.value), "table")
        states: tuple[State, ...] = (State.CONSUMED,) if table is Table.HISTORY else STORED
        if "state" in given:
            states = tuple(_one_of(State, word.strip(), "state") for word in given["state"].split(","))
        selection = ArchiveSelection(
            spaces=_patterns(given.get("space")),
            queues=_patterns(given.get("queue")),
            states=states,
            condition=given.get("where", ""),
            older=_number(given, "olderthan", float),
            newer=_number(given, "newerthan", float),
            count=_number(given, "count", int),
        )
        return cls(
            device=reachable(device),
            table=table,
            selection=selection,
            payload=_flag(given.get("payload", "true"), "payload"),
            partitions=_number(given, "partitions", int) or 1,
            tokens=json.loads(given.get("snapshot", "{}")),
        )


def named(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by their names in lower case; refuse those of a table of Spark's catalog.

    Spark does not pass on the options of such a table when it is read or written.
    """
    given = {name.lower(): text for name, text in options.items()}
    if "provider" in given:
        # Spark does not show hints of an exception.
        raise InvalidArgumentError(
            "a queue space cannot be a table of Spark's catalog, which does not pass the options on when it is read;"
            " write CREATE TEMPORARY VIEW instead of CREATE TABLE"
        )
    return given


def reachable(device: str) -> str:
    """Return the value of QMCONFIG for a device on any machine: a relative path is resolved here."""
    return device if "://" in device or device == MEMORY else os.path.abspath(device)


def _patterns(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ("*",)


def _number(given: Mapping[str, str], name: str, kind: Callable[[str], Number]) -> Number | None:
    if name not in given:
        return None
    try:
        return kind(given[name])
    except ValueError:
        raise InvalidArgumentError(f"the option {name!r} must be a number, got {given[name]!r}") from None


def _flag(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"the option {name!r} must be true or false, got {text!r}")
    return text.lower() == "true"


def _one_of(kind: type[Choice], text: str, name: str) -> Choice:
    try:
        return kind(text.lower())
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        raise InvalidArgumentError(f"the option {name!r} must be one of {known}, got {text!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write.

    `staging` is a directory for the files of the tasks before they are stored; on a cluster all machines share it.
    `existing` says what happens if the queue exists: it is refused, replaced, or appended to. Otherwise one is created
    with `order`.
    """

    device: str
    space: str
    queue: str
    staging: str
    existing: Existing
    order: QueueOrder

    NAMES: ClassVar[tuple[str, ...]] = ("device", "space", "queue", "staging", "existing", "order")

    @classmethod
    def read(cls, options: Mapping[str, str], *, overwrite: bool) -> Self:
        """Read the options from Spark: texts with case-insensitive names."""
        given = named(options)
        for name in sorted(set(given) - set(cls.NAMES) - {"path"}):
            raise InvalidArgumentError(
                f"writing to the data source qspace has no option {name!r}", hint=f"It has {', '.join(cls.NAMES)}."
            )
        for name in ("device", "space", "queue"):
            if not given.get(name):
                raise InvalidArgumentError(f"writing to the data source qspace needs the option {name!r}")
        existing = Existing.REPLACE if overwrite else Existing.APPEND
        if "existing" in given:
            existing = _existing(given["existing"], overwrite=overwrite)
        return cls(
            device=reachable(given["device"]),
            space=names.space_name(given["space"]),
            queue=names.queue_name(given["queue"]),
            staging=os.path.abspath(given.get("staging") or tempfile.gettempdir()),
            existing=existing,
            order=QueueOrder.parse(given.get("order", "fifo")),
        )


def _existing(text: str, *, overwrite: bool) -> Existing:
    if overwrite or text.lower() not in (Existing.REFUSE.value, Existing.APPEND.value):
        raise InvalidArgumentError(
            f"the option 'existing' must be refuse or append, got {text!r}",
            hint="The mode overwrite replaces the queue, and has no such option.",
        )
    return Existing(text.lower())


# ---- the tables ------------------------------------------------------------------------------------------------------

_SPARK_TYPES: Final = {
    ColumnType.TEXT: "string",
    ColumnType.BYTES: "binary",
    ColumnType.INT16: "short",
    ColumnType.INT32: "int",
    ColumnType.INT64: "long",
    ColumnType.TIME: "timestamp",
    ColumnType.FLAG: "boolean",
    ColumnType.REAL: "double",
}

_SMALL: Final = {Table.QUEUES: (QUEUE_COLUMNS, queue_batch), Table.SPACES: (SPACE_COLUMNS, space_batch)}
"""Tables that a single task reads: their columns, and the functions that make their rows."""


class QueueSpaceSource(DataSource):
    """Messages, consumed messages, queues, or queue spaces of a device. The options are those of `SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "qspace"

    def schema(self) -> str:
        """Return the columns of the table."""
        return declared(columns_of(SourceOptions.read(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is our own
        """Return a reader."""
        return QueueSpaceReader(SourceOptions.read(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of messages to a queue; its options are those of `WriteOptions`."""
        from qmadmin.spark.writing import QueueWriter

        return QueueWriter(WriteOptions.read(self.options, overwrite=overwrite), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - both are Spark's
        """Return a reader that refuses: there are no streams. If this method raised, Spark would hide the reason."""
        return _NoStreamReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """Refuse: there are no streams."""
        raise _no_stream("have foreachBatch write each batch")


class _NoStreamReader(DataSourceStreamReader):
    """Refuses a stream when it begins."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise _no_stream("read it with spark.read")

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - the names are Spark's


def _no_stream(instead: str) -> InvalidArgumentError:
    # Spark does not show hints of an exception.
    return InvalidArgumentError(f"the data source qspace has no streams; {instead}")


def columns_of(asked: SourceOptions) -> tuple[ArchiveColumn, ...]:
    """Return the columns of the requested table."""
    if asked.table in _SMALL:
        return _SMALL[asked.table][0]
    return tuple(column for column in COLUMNS if asked.payload or column.name != "body")


def declared(columns: Iterable[ArchiveColumn]) -> str:
    """Return the declaration of columns for Spark."""
    return ", ".join(
        f"`{column.name}` {_SPARK_TYPES[column.kind]}{' NOT NULL' if column.required else ''}" for column in columns
    )


@dataclasses.dataclass(frozen=True)
class _Part(InputPartition):
    """The part of one task: a unit of the plan, and the tokens of the common snapshot."""

    unit: ExportUnit | None
    names: tuple[str, ...]
    tokens: Mapping[str, str]


class QueueSpaceReader(DataSourceReader):
    """Reads the table of the options: planned in one process, read in others."""

    def __init__(self, asked: SourceOptions) -> None:
        self._asked = asked

    def partitions(self) -> list[InputPartition]:
        """Plan the read, and divide it among tasks."""
        asked = self._asked
        with open_device(asked.device) as device:
            names = tuple(asked.selection.spaces_of(device))
            if asked.table in _SMALL:
                return [_Part(None, names, {})]
            tokens = asked.tokens
            with contextlib.closing(SnapshotReader(device, names)) as own:
                own.begin(tokens)
                exporting = ExportOptions(selection=asked.selection, outstanding=Outstanding.IN_DOUBT_TOO)
                plan = Plan.made(own, names, exporting, device.clock.now(), asked.partitions)
                asked.selection.refuse_unmatched(plan.queues, f"device {device.path!r}")
                units = list(plan.units(exporting, asked.partitions))
        if asked.partitions == 1 or not units:
            # One task reads all of it in one snapshot. An empty table needs a task too, because Spark requires one.
            all_of_it = tuple(run for unit in units for run in unit.runs)
            units = [dataclasses.replace(units[0], runs=all_of_it) if units else ExportUnit(name="", runs=())]
        return [_Part(unit, names, tokens) for unit in units]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a part."""
        assert isinstance(partition, _Part)  # noqa: S101 - `partitions` has made it
        wanted = [column.name for column in columns_of(self._asked)]
        if partition.unit is None:
            yield _SMALL[self._asked.table][1](self._asked.device, self._asked.selection)
            return
        with reading(self._asked.device, partition.names, partition.tokens) as reader:
            if not partition.tokens:
                reader.begin({})
            for state, batch in read_unit(reader, partition.unit, body=self._asked.payload):
                yield _as_stands(batch, state).select(wanted)


def _as_stands(batch: RecordBatch, state: State) -> RecordBatch:
    """Return a batch in which messages are held or parked; an archive has them as ready and as delayed."""
    if state_in_archive(state) is state:
        return batch
    at = batch.schema.get_field_index("state")
    return batch.set_column(at, batch.schema.field(at), pa.array([state.value] * batch.num_rows))
