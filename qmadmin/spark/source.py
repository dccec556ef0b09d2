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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from qmadmin.archive.arrow import pa
from qmadmin.archive.columns import COLUMNS, Column, Kind
from qmadmin.opening import open_device
from qmadmin.spark.queue_table import QUEUE_COLUMNS, queue_batch
from qmadmin.spark.source_options import SourceOptions, Table
from qmadmin.spark.space_table import SPACE_COLUMNS, space_batch
from qmadmin.spark.write_options import WriteOptions
from qmadmin.transfer.export_planning import ExportOptions, Plan
from qmadmin.transfer.selecting import Outstanding
from qmadmin.transfer.snapshot import Reader, reading
from qmadmin.transfer.units import ExportUnit, read_unit
from qmcore.errors import InvalidArgumentError
from qmcore.message import State

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

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

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
        """Refuse."""
        raise _no_stream("read it with spark.read")

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
        """Refuse."""
        raise _no_stream("read it with spark.read")

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Refuse."""
        del start, end
        raise _no_stream("read it with spark.read")

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Refuse."""
        del partition
        raise _no_stream("read it with spark.read")


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
            with contextlib.closing(Reader(device, names)) as own:
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
