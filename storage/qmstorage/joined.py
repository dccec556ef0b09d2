"""Connections of the application that calls are to join: those that no store can work on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from qmcore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from sqlalchemy import Connection


def opened(connection: object) -> Connection | None:
    """Return an open SQLAlchemy connection; None for anything else."""
    # Whoever has not loaded SQLAlchemy has no connection of it.
    sqlalchemy = sys.modules.get("sqlalchemy")
    if sqlalchemy is None or not isinstance(connection, sqlalchemy.Connection) or connection.closed:
        return None
    found: Connection = connection
    return found


def checked(connection: object) -> Connection:
    """Return an open SQLAlchemy connection; refuse anything else, and one in a two-phase transaction."""
    from sqlalchemy import Connection, TwoPhaseTransaction

    if not isinstance(connection, Connection):
        raise InvalidArgumentError(
            f"the connection must be a SQLAlchemy Connection, got {type(connection).__name__}",
            hint="For a Session, give session.connection().",
        )
    if connection.closed:
        raise InvalidArgumentError("the connection is closed", hint="Give an open one.")
    if isinstance(connection.get_transaction(), TwoPhaseTransaction):
        raise InvalidArgumentError(
            "the connection is in a two-phase transaction, which could not be prepared with messages in it",
            hint="Use a transaction of one phase on the connection, or one of the queue space, without connection=.",
        )
    return connection


def commits_by_itself() -> InvalidArgumentError:
    """Return the diagnostic for a connection in AUTOCOMMIT."""
    return InvalidArgumentError(
        "the connection commits each statement by itself (AUTOCOMMIT), so that there is no transaction to join",
        hint="Use a connection with another isolation level.",
    )
