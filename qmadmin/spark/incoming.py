"""The columns of a DataFrame that is written to a queue: which there can be, what is in them, what messages they make.

Their names are those of an archive, in small or large letters. `body` is needed. What a message gets by being stored,
such as its identifier, may be there too, so that what was read can be written; it is left aside.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.arrays import TYPES
from qmadmin.archive.arrow import pa
from qmadmin.archive.columns import BY_NAME, Kind
from qmcore import bulk_rows, names
from qmcore.bulk_rows import Row
from qmcore.errors import InvalidArgumentError
from qmcore.message import PRIORITY_DEFAULT, EnqueueControl, State, checked_body, pages_of
from qmcore.queue import Delivery, QueueDefinition

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch, Schema
    from pyspark.sql.types import StructType

TEXT_TYPE, BYTES_TYPE = "STRING", "CARRAY"
"""The type of the buffer where no column says one, by what `body` is."""


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
"""The columns of which messages are made, and what refuses a value that no sender could give."""

_SPARK_TYPES: Final = {
    Kind.TEXT: ("string",),
    Kind.BYTES: ("binary", "string"),
    Kind.INT16: ("byte", "short", "integer", "long"),
    Kind.INT64: ("byte", "short", "integer", "long"),
    Kind.TIME: ("timestamp",),
}
"""What a column may be in a DataFrame, by what it is in an archive; one of nothing but nulls may be `void`."""


def refuse_unfit(schema: StructType) -> None:
    """Refuse columns that messages cannot be made of."""
    found = {field.name.lower(): field.dataType.typeName() for field in schema}
    if len(found) < len(schema):
        raise InvalidArgumentError(
            "the DataFrame has two columns whose names differ in case alone, or not at all",
            hint="Drop one, or rename it.",
        )
    if "body" not in found:
        raise InvalidArgumentError(
            "the DataFrame has no column 'body'", hint=f"It has {', '.join(map(repr, found)) or 'none'}."
        )
    for name, kind in found.items():
        if name not in BY_NAME:
            raise InvalidArgumentError(
                f"the DataFrame has a column {name!r}, which is nothing of a message",
                hint=f"Drop it, or rename it to one of {', '.join(_CHECKS)}.",
            )
        if name in _CHECKS and kind not in (*_SPARK_TYPES[BY_NAME[name].kind], "void"):
            wanted = " or ".join(_SPARK_TYPES[BY_NAME[name].kind])
            raise InvalidArgumentError(f"the column {name!r} has the type {kind}, and must have {wanted}")


def type_of(schema: StructType) -> str:
    """Return the type of the buffer of messages that say none."""
    kinds = {field.name.lower(): field.dataType.typeName() for field in schema}
    return TEXT_TYPE if kinds["body"] == "string" else BYTES_TYPE


@functools.cache
def staged_schema() -> Schema:
    """Return the schema of what a task has written."""
    return pa.schema([pa.field(name, TYPES[_staged_kind(name)]) for name in _CHECKS])


def _staged_kind(name: str) -> Kind:
    """Return the type of a column until its values are checked, which may be larger than they can be."""
    kind = BY_NAME[name].kind
    return Kind.INT64 if kind is Kind.INT16 else kind


def checked(batch: RecordBatch) -> RecordBatch:
    """Return what is needed of a batch of a DataFrame as `staged_schema` has it; refuse the first value that is wrong.

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
    """Messages that arrive in a queue at a time: their rows, numbered on from 1 in the order in which they are given.

    `kind` is the type of the buffer where they say none, `page_size` that of the device.
    """

    def __init__(self, definition: QueueDefinition, kind: str, page_size: int, now: int) -> None:
        self._definition = definition
        self._kind = kind
        self._page_size = page_size
        self._now = now
        self.last = 0

    def rows(self, batch: RecordBatch) -> dict[State, list[Row]]:
        """Return the rows of a batch, by the states that they are in."""
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
    """Yield what tasks have staged, in the order of the files."""
    from qmadmin.archive.arrow import pq

    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(bulk_rows.ROWS_MAX, use_threads=False)
