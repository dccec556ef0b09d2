"""Connections of the application that calls are to join: those that no store can work on."""

from __future__ import annotations

from sqlalchemy import Connection, TwoPhaseTransaction

from qmcore.errors import InvalidArgumentError


def checked(connection: object) -> Connection:
    """Return an open SQLAlchemy connection; refuse anything else, and one in a two-phase transaction."""
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
