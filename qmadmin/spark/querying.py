"""Queries of queue spaces in SQL: the result is a table that a screen draws, an error is one sentence."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from qmadmin.console.results import Column, Moment, Notice, Severity, Shown, Table, Value
from qmadmin.spark.call import BrokenOffError
from qmcore.errors import InvalidArgumentError
from qmcore.times import from_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qmadmin.console.formats import Format

LIMIT: Final = 1_000
"""The default maximum number of rows of a result."""

_LONGEST: Final = 400
_CODE: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5};?\s*")
_OURS: Final = re.compile(r"^\s*qmcore\.errors\.\w+: (.+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
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
        return [self.table, Notice(Severity.INFO, f"there are more than {self.rows} rows", "--limit says how many.")]


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
