"""A session of SQLAlchemy whose transaction others commit, and its database beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from qmcore.errors import InvalidArgumentError, SystemFailureError
from qmstorage import joined

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session


class ParticipatingSession:
    """A session that takes part in the transaction that it has open, or begins at its first use."""

    def __init__(self, given: object) -> None:
        """Take a session, or a scoped_session, which stands for that of the thread.

        Raises InvalidArgumentError for anything else.
        """
        session: Any = given
        if joined.is_a(given, "sqlalchemy.orm", "scoped_session"):
            session = session()
        if not joined.is_a(session, "sqlalchemy.orm", "Session"):
            raise InvalidArgumentError(
                f"what decides is a Session of SQLAlchemy, got {joined.shown(type(given))}",
                hint="Give the session that the rows are added to.",
            )
        self.session: Session = session
        self.was_open: bool = session.in_transaction()
        """Whether it had a transaction before."""
        self._connection: Connection | None = None
        self._sent: list[object] = []

    def listen(self) -> None:
        """Notice from now on when the commit of its transaction is sent."""
        from sqlalchemy import event

        self._connection = joined.of_session(self.session)
        # No function of Python: an interrupt in it would have SQLAlchemy give the connection to others as it is.
        event.listen(self._connection, "commit", self._sent.append)

    @property
    def is_sent(self) -> bool:
        """Whether the commit was sent, be it done or not."""
        return bool(self._sent)

    def roll_back(self) -> None:
        """Roll the transaction back that was listened to, where it is open: the session would go on in it."""
        connection = self._connection
        if connection is not None and not connection.closed and connection.in_transaction():
            self.session.rollback()

    @contextlib.contextmanager
    def beside(self, *, is_open: bool) -> Iterator[Connection]:
        """Give another connection of its engine; the session may have a transaction open, or has none."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            connection = self.session.get_bind().engine.connect()
        except SQLAlchemyError as error:
            reason = str(error).partition("\n")[0]
            raise SystemFailureError(
                f"the engine of the session gives no connection: {reason}",
                hint="Look whether the server can be reached, and how many connections its pool gives.",
                unreachable=True,
            ) from error
        with connection:
            driver = connection.connection.driver_connection
            if is_open and driver is joined.of_session(self.session).connection.driver_connection:
                raise InvalidArgumentError(
                    "the engine of the session has one connection only, and recovery needs another one",
                    hint="Make the engine with a pool of several, which sqlalchemy.create_engine does by itself.",
                )
            yield connection
