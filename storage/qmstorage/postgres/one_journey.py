"""Statements without values that are sent to the server together, on a connection of an application.

A cursor of the driver sends BEGIN by itself, and waits for its answer, also in a pipeline.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import DiagnosticField, Escaping, ExecStatus

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult


def beginning(driver: psycopg.Connection[Any]) -> str:
    """Return the statement that begins a transaction, as the driver does it for its connection."""
    words = ["BEGIN"]
    if driver.isolation_level is not None:
        words.append(f"ISOLATION LEVEL {psycopg.IsolationLevel(driver.isolation_level).name.replace('_', ' ')}")
    if driver.read_only is not None:
        words.append("READ ONLY" if driver.read_only else "READ WRITE")
    if driver.deferrable is not None:
        words.append("DEFERRABLE" if driver.deferrable else "NOT DEFERRABLE")
    return " ".join(words)


def send(driver: psycopg.Connection[Any], *statements: str) -> list[PGresult]:
    """Send statements, in ASCII, and return what came of each; raise the error of the one that ends them."""
    with driver.lock:
        results = driver.wait(_journey(driver.pgconn, "; ".join(statements).encode("ascii")))
    failed = next((result for result in results if result.status == ExecStatus.FATAL_ERROR), None)
    if failed is not None and failed.error_field(DiagnosticField.SQLSTATE) is not None:
        raise error_from_result(failed, driver.info.encoding)
    if failed is not None or len(results) < len(statements):
        # The server has said nothing, so that nobody knows what it has done.
        raise psycopg.OperationalError("the server did not answer all that was sent")
    return results


@functools.cache
def with_names(statement: str) -> str:
    """Return a statement whose values stand in it as `:name` as the driver has it."""
    return re.sub(r":(\w+)", r"%(\1)s", statement)


def with_values(driver: psycopg.Connection[Any], statement: str, values: Mapping[str, object]) -> str:
    """Return a statement with its values in it, texts in ASCII: only so several are sent together."""
    quoted = Escaping(driver.pgconn).escape_literal
    texts = {name: bytes(quoted(str(value).encode("ascii"))).decode("ascii") for name, value in values.items()}
    return with_names(statement) % texts


def _journey(connection: PGconn, text: bytes) -> Generator[Any, Any, list[PGresult]]:
    """Do what the driver waits for."""
    connection.send_query(text)
    results: list[PGresult] = yield from generators.execute(connection)
    return results
