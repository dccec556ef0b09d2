"""Databases of an application that take part in the transaction of a message, because the handler of it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.consumers import Unavailable, current
from qmcore.errors import QueueError, may_pass

if TYPE_CHECKING:
    from qmadmin.connections import DatabaseConnection
    from qmadmin.space import QueueSpace
    from qmadmin.transacting import Transaction


def join(connection: DatabaseConnection) -> None:
    """Make a database of the application part of the transaction in which the request was dequeued; for handlers.

    The connection is one that `qmadmin.transaction` takes, which has no transaction open. What is done on it from now
    on is committed together with the request, its reply and all that the handler enqueues, or nothing of it. If the
    call fails it is rolled back; if the database refuses the commit, the call has failed, and the request is tried
    again as ever. The handler commits and rolls back nothing. Who decides, what a database needs for that, and what
    follows by itself after a failure is as in `qmadmin.transaction`. Where the database is that of the queue space,
    both are one database transaction; in a file nobody else can write from this call to the end of the handler. To join
    twice with one connection is to join once; another one to the same database is refused.

    Raises Unavailable where the database cannot be reached, or stays locked by others; the handler lets it out, so that
    the message goes back, which does not count as a try, and its queue is paused. What is lost later is a failure of
    the call, since the message may be the cause. Raises InvalidArgumentError and ProtocolError as `qmadmin.transaction`
    and its block do; the transaction goes on without the database then. ProtocolError, too, if no handler is being
    called, in a coroutine or another thread, in a worker process, in a batch, and in a handler that is not
    transactional.
    """
    transaction, space = current.transaction()
    try:
        _take(connection, transaction, space)
    except QueueError as error:
        if may_pass(error):
            raise Unavailable(f"a database that takes part cannot be used now: {error.message}") from error
        raise


def _take(connection: DatabaseConnection, transaction: Transaction, space: QueueSpace) -> None:
    # Whoever only enqueues needs none of this.
    from qmadmin.attachment import attachment_of
    from qmadmin.distributed import databases_of, refuse_memory
    from qmadmin.opening import database_of

    database = database_of(connection)
    refuse_memory([space.device])
    if transaction.databases is None:
        transaction.databases = databases_of(transaction, space)
    databases, attachment = transaction.databases, attachment_of(space)
    # Before the connection is touched: it refuses a process that was forked.
    branch = transaction.branch(attachment)
    if databases.includes(database):
        return
    databases.take(database)
    try:
        databases.open([attachment])
        databases.enlist_earlier_work(attachment, branch)
    except BaseException:
        databases.drop(database)
        if databases.is_empty:
            transaction.databases = None
        raise
