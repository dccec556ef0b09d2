"""The data source "qspace": queue spaces of a device as tables of Spark.

    from qmadmin.spark import register

    register(spark)
    messages = spark.read.format("qspace").option("device", "/var/qm/device").load()

There is no push-down of filters: Spark 4.1 to 4.3 keep those of one use of a DataFrame for the next, and return too few
rows then. What is to be left out is said in the options.
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

from qmadmin.archive.arrays import pa
from qmadmin.archive.columns import COLUMNS, Column, Kind
from qmadmin.opening import open_device
from qmadmin.spark.device_tables import QUEUE_COLUMNS, SPACE_COLUMNS, queue_batch, space_batch
from qmadmin.transfer.exporting import ExportOptions, Plan
from qmadmin.transfer.import_planning import Existing
from qmadmin.transfer.selecting import Outstanding, Selection
from qmadmin.transfer.snapshot import SnapshotReader, reading
from qmadmin.transfer.units import ExportUnit, read_unit
from qmadmin.volume_makers import MEMORY
from qmcore import names
from qmcore.errors import InvalidArgumentError
from qmcore.message import STORED, State
from qmcore.order import QueueOrder

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

Number = TypeVar("Number", int, float)
Choice = TypeVar("Choice", bound=enum.Enum)


class Table(enum.Enum):
    """What is read: messages that are still to be consumed, those that are kept after it, queues, or queue spaces."""

    MESSAGES = "messages"
    HISTORY = "history"
    QUEUES = "queues"
    SPACES = "spaces"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What is read, and how.

    `tokens` are those of a snapshot that the driver holds; without them each task reads what is there when it begins,
    and `partitions` are one unless more are asked for.
    """

    device: str
    table: Table = Table.MESSAGES
    selection: Selection = dataclasses.field(default_factory=Selection)
    payload: bool = True
    partitions: int = 1
    tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)

    NAMES: ClassVar[tuple[str, ...]] = (
        "device",
        "table",
        "space",
        "queue",
        "state",
        "where",
        "olderthan",
        "newerthan",
        "count",
        "payload",
        "partitions",
        "snapshot",
    )

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Self:
        """Read the options as Spark gives them: texts, whose names may be written in small or large letters."""
        given = named(options)
        unknown = sorted(set(given) - set(cls.NAMES) - {"path"})
        if unknown:
            raise InvalidArgumentError(
                f"the data source qspace has no option {unknown[0]!r}", hint=f"It has {', '.join(cls.NAMES)}."
            )
        device = given.get("device") or given.get("path")
        if not device:
            raise InvalidArgumentError(
                "the data source qspace needs the option 'device'", hint="It is what QMCONFIG says of the device."
            )
        table = _one_of(Table, given.get("table", Table.MESSAGES.value), "table")
        states: tuple[State, ...] = (State.CONSUMED,) if table is Table.HISTORY else STORED
        if "state" in given:
            states = tuple(_one_of(State, word.strip(), "state") for word in given["state"].split(","))
        selection = Selection(
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
    """Return options by their names in small letters; refuse those of a table of Spark's catalog.

    Of such a table Spark keeps the options, and does not say them when it is read or written.
    """
    given = {name.lower(): text for name, text in options.items()}
    if "provider" in given:
        # Spark shows no hint of ours.
        raise InvalidArgumentError(
            "a queue space cannot be a table of Spark's catalog, which does not pass the options on when it is read;"
            " write CREATE TEMPORARY VIEW instead of CREATE TABLE"
        )
    return given


def reachable(device: str) -> str:
    """Return what QMCONFIG would say of a device, wherever a task of Spark is: a relative path is meant from here."""
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where messages go, and what becomes of those that are there.

    `staging` is a directory for what the tasks have written before it is stored; on a cluster all machines share it.
    `existing` says what becomes of the queue where it is there: refused, replaced, or appended to. Where it is not, one
    is made with `order`.
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
        """Read the options as Spark gives them: texts, whose names may be written in small or large letters."""
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
    Kind.TEXT: "string",
    Kind.BYTES: "binary",
    Kind.INT16: "short",
    Kind.INT32: "int",
    Kind.INT64: "long",
    Kind.TIME: "timestamp",
    Kind.FLAG: "boolean",
}

_SMALL: Final = {Table.QUEUES: (QUEUE_COLUMNS, queue_batch), Table.SPACES: (SPACE_COLUMNS, space_batch)}
"""Tables of which one task reads all: their columns, and what makes their rows."""


class QueueSpaceSource(DataSource):
    """Messages, consumed messages, queues, or queue spaces of a device. The options are those of `SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "qspace"

    def schema(self) -> str:
        """Return the columns of what is read."""
        return declared(columns_of(SourceOptions.read(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is our own
        """Return what reads."""
        return QueueSpaceReader(SourceOptions.read(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes messages to a queue; its options are those of `WriteOptions`."""
        from qmadmin.spark.writing import QueueWriter

        return QueueWriter(WriteOptions.read(self.options, overwrite=overwrite), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - both are Spark's
        """Return what refuses: there are no streams yet. Spark itself fails, in words of its own, where this does."""
        return _NoStreamReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """Refuse: there are no streams yet."""
        raise _no_stream("have foreachBatch write each batch")


class _NoStreamReader(DataSourceStreamReader):
    """Refuses a stream as soon as it is to begin."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise _no_stream("read it with spark.read")

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - the names are Spark's


def _no_stream(instead: str) -> InvalidArgumentError:
    # Spark shows no hint of ours.
    return InvalidArgumentError(f"the data source qspace has no streams; {instead}")


def columns_of(asked: SourceOptions) -> tuple[Column, ...]:
    """Return the columns of what is asked for."""
    if asked.table in _SMALL:
        return _SMALL[asked.table][0]
    return tuple(column for column in COLUMNS if asked.payload or column.name != "body")


def declared(columns: Iterable[Column]) -> str:
    """Return columns as Spark declares them."""
    return ", ".join(
        f"`{column.name}` {_SPARK_TYPES[column.kind]}{' NOT NULL' if column.required else ''}" for column in columns
    )


@dataclasses.dataclass(frozen=True)
class _Part(InputPartition):
    """What one task reads: a unit of the plan, and what makes its snapshot that of the others."""

    unit: ExportUnit | None
    names: tuple[str, ...]
    tokens: Mapping[str, str]


class QueueSpaceReader(DataSourceReader):
    """Reads what the options ask for: planned in one process, read in others."""

    def __init__(self, asked: SourceOptions) -> None:
        self._asked = asked

    def partitions(self) -> list[InputPartition]:
        """Look at the device, and share the work out."""
        asked = self._asked
        with open_device(asked.device) as device:
            whose = f"device {device.path!r}"
            names = tuple(asked.selection.chosen_spaces([space.name for space in device.spaces()], whose))
            if asked.table in _SMALL:
                return [_Part(None, names, {})]
            tokens = asked.tokens
            with contextlib.closing(SnapshotReader(device, names)) as own:
                own.begin(tokens)
                exporting = ExportOptions(selection=asked.selection, outstanding=Outstanding.ROLLED_BACK)
                plan = Plan.made(own, names, exporting, device.clock.now(), asked.partitions)
                asked.selection.refuse_unmatched(plan.queues, whose)
                units = list(plan.units(exporting, asked.partitions))
        if asked.partitions == 1 or not units:
            # One task reads all of it in one snapshot. Nothing is read by one too, for Spark asks for no less.
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
    """Return a batch in which what transactions hold says so; an archive has it as ready."""
    if state is not State.HELD:
        return batch
    at = batch.schema.get_field_index("state")
    return batch.set_column(at, batch.schema.field(at), pa.array([state.value] * batch.num_rows))
