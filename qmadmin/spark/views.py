"""The views of a Spark session for queries in SQL, those of a device or of an archive, and the queries.

`messages` are those not yet consumed, `history` the retained ones, then `queues` and `spaces`. Their columns do not
depend on the source. The result of a query is a table that a screen draws, an error is one sentence.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.columns import COLUMNS, ArchiveColumn
from qmadmin.archive.file_systems import Directory, Files
from qmadmin.archive.reading import Archive, open_archive
from qmadmin.console.results import Column, Moment, Notice, Shown, Table, Value
from qmadmin.opening import open_device
from qmadmin.spark import POSTGRESQL, held, source
from qmadmin.spark.call import BrokenOffError
from qmadmin.spark.device_tables import QUEUE_COLUMNS, SPACE_COLUMNS, queue_row, space_row
from qmadmin.spark.hadoop import HadoopPlace, hadoop_place
from qmadmin.spark.kinds import ADDRESS
from qmadmin.spark.session import parallelism
from qmcore.attributes import plain
from qmcore.errors import InvalidArgumentError
from qmcore.message import State
from qmcore.times import from_datetime
from qmcore.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from qmadmin.archive.manifest import ArchivedQueue, ArchivedSpace, Manifest
    from qmadmin.console.formats import Format


def place_at(named: str) -> Archive | str:
    """Return the archive in a directory of this machine; other names are devices or addresses."""
    return open_archive(Path(named)) if Path(named).is_dir() else named


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
    for table in source.Table:
        reader = session.read.format("qspace").options(**options).option("table", table.value)
        reader.load().createOrReplaceTempView(table.value)


def show_archive(session: SparkSession, archive: Archive, *, payload: bool = True) -> None:
    """Make views of an archive, whose parts Spark reads itself; without `payload` the column `body` is left out."""
    stored = _parts(session, archive)
    if not payload:
        stored = stored.drop("body")
    consumed = stored["state"] == State.CONSUMED.value
    stored.where(~consumed).createOrReplaceTempView(source.Table.MESSAGES.value)
    stored.where(consumed).createOrReplaceTempView(source.Table.HISTORY.value)
    _made(session, QUEUE_COLUMNS, list(_queues(archive.manifest))).createOrReplaceTempView(source.Table.QUEUES.value)
    _made(session, SPACE_COLUMNS, list(_spaces(archive.manifest))).createOrReplaceTempView(source.Table.SPACES.value)


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
    return session.createDataFrame(rows, source.declared(columns).replace(" NOT NULL", ""))


def _queues(manifest: Manifest) -> Iterator[tuple[Any, ...]]:
    for space in manifest.spaces:
        for queue in space.queues:
            switches = {"enqueue_enabled": queue.enqueue_enabled, "dequeue_enabled": queue.dequeue_enabled}
            known = queue_row(space.name, plain(queue.definition) | switches) | _contents(queue)
            # An archive does not contain counters.
            yield tuple(known.get(column.name) for column in QUEUE_COLUMNS)


def _contents(queue: ArchivedQueue) -> dict[str, int]:
    """Return the use of a queue. An archive has no messages that transactions held, and parked ones are delayed."""
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
        "parked": 0,
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


# ---- queries ---------------------------------------------------------------------------------------------------------


LIMIT: Final = 1_000
"""The default maximum number of rows of a result."""

_LONGEST: Final = 400
_CODE: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5};?\s*")
_OURS: Final = re.compile(r"^\s*qmcore\.errors\.\w+: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query; `more`: there are further rows."""

    table: Table
    rows: int
    more: bool

    def shown(self, form: Format) -> list[Shown]:
        """Return the result, which is the same in all formats."""
        del form
        if not self.more:
            return [self.table]
        return [self.table, Notice.info(f"there are more than {self.rows} rows", "--limit says how many.")]


def ask(session: SparkSession, sql: str, limit: int = LIMIT) -> Answer:
    """Return the result of a query, at most `limit` rows of it.

    Raises InvalidArgumentError, with Spark's reason, for a text that is not SQL, is not a query but changes something,
    or names something that does not exist, and BrokenOffError for a query that fails after it has begun.
    """
    with _reasons():
        _refuse_changes(session, sql)
        asked = session.sql(sql)
    with _reasons(BrokenOffError):
        found = asked.limit(limit + 1).toArrow()
    shown = found.slice(0, limit)
    columns = [Column(field.name, field.name, right=_is_number(field.type)) for field in shown.schema]
    values = [[value_of(each) for each in column.to_pylist()] for column in shown.columns]
    rows = list(zip(*values, strict=True)) if columns else []
    return Answer(Table(tuple(columns), rows), shown.num_rows, found.num_rows > limit)


def _is_number(kind: Any) -> bool:
    from qmadmin.archive.rows import pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def value_of(value: Any) -> Value:
    """Return a value of Spark as one that a screen draws; values of other types become text."""
    found: Value = str(value)
    match value:
        case bool():
            found = "true" if value else "false"
        case None | str() | float() | int():
            found = value
        case bytes():
            found = _text_of(value)
        case datetime() if value.tzinfo is not None:
            found = Moment(from_datetime(value))
        case list() | dict() | tuple():
            found = json.dumps(value, default=lambda each: str(value_of(each)), ensure_ascii=False)
    return found


def _text_of(data: bytes) -> str:
    """Return bytes as text, or as base64 if they are not text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _refuse_changes(session: SparkSession, sql: str) -> None:
    """Refuse a statement that is not a query: only a query is valid in parentheses."""
    parser = session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - there is no other way to Spark's parser
    parser.parsePlan(sql)
    try:
        parser.parsePlan("SELECT * FROM (\n" + sql.rstrip().rstrip(";") + "\n)")  # noqa: S608 - it is only parsed
    except Exception:  # noqa: BLE001 - any error means that it cannot be run
        raise InvalidArgumentError(
            "this is not a query: it would change something", hint="Ask with SELECT, or VALUES, TABLE, WITH, DESCRIBE."
        ) from None


@contextlib.contextmanager
def _reasons(kind: type[InvalidArgumentError] = InvalidArgumentError) -> Iterator[None]:
    """Raise errors of Spark as one sentence."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise kind(
            f"Spark refuses the query: {reason_of(str(error))}",
            hint="There are the views messages, history, queues and spaces; qmspark(1) has their columns.",
        ) from None


def reason_of(said: str) -> str:
    """Return the reason in a message of Spark: one sentence, without codes and places in Spark."""
    ours = _OURS.findall(said)
    if ours:
        return str(ours[-1])
    first = next((line for line in said.splitlines() if line.strip()), "it gives no reason")
    sentence = _STATE.sub(" ", _CODE.sub("", first)).strip().rstrip(";")
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]}..."
