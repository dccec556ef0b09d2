"""Slots: which rows of the counters of a volume belong to a session, or to a transaction of an application."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qmcore.errors import SystemFailureError
from qmstorage.postgres import keys
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    import psycopg

MOST: Final = 1024
"""Sessions of all processes that can be at work on a volume."""

_FEW: Final = 64
"""How many are tried first; more are rarely taken."""

FOR_SESSION: Final = "pg_try_advisory_lock"
FOR_TRANSACTION: Final = "pg_try_advisory_xact_lock"


class Slot(NamedTuple):
    """A slot, and what is to be known of the transaction that takes it."""

    number: int
    isolation: str
    synchronous_commit: str
    row_type: int
    """The number that the database gives the type of rows of messages."""


def free_slot(connection: psycopg.Connection[Any] | psycopg.Cursor[Any], schema: str, lock: str) -> Slot:
    """Take a slot that nobody has, for as long as the lock lasts.

    Raises SystemFailureError where all are taken.
    """
    asked = (
        "SELECT number, pg_catalog.current_setting('transaction_isolation'),"  # noqa: S608 - words of ours
        " pg_catalog.current_setting('synchronous_commit'),"
        f" pg_catalog.to_regtype('{quoted(schema)}.message')::oid::bigint"
        " FROM pg_catalog.unnest(%s::bigint[]) WITH ORDINALITY AS slot (key, number)"
        f" WHERE pg_catalog.{lock}(key) LIMIT 1"
    )
    for count in (_FEW, MOST):
        row = connection.execute(asked, [list(_keys(schema, count))]).fetchone()
        if row is not None:
            return Slot(int(row[0]), str(row[1]), str(row[2]), int(row[3] or 0))
    raise SystemFailureError(
        f"the device has {MOST} sessions at work, which is all that it can have",
        hint="Use fewer processes, or fewer threads in each.",
    )


@functools.lru_cache(maxsize=64)
def _keys(schema: str, count: int) -> tuple[int, ...]:
    return tuple(keys.key(schema, keys.Kind.SLOT, number) for number in range(1, count + 1))
