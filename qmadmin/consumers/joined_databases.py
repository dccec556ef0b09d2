"""The end of a call whose handler has had databases of the application take part in the transaction of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.consumers import Failure
from qmadmin.consumers.function_handler import described
from qmcore.acts.returning import Verdict
from qmcore.errors import HeuristicError, OutcomeUnknownError, QueueError

if TYPE_CHECKING:
    from qmadmin.application_databases import Databases
    from qmadmin.consumers import Policy
    from qmadmin.transacting import Transaction
    from qmcore.message import Message


def commit_with(databases: Databases, transaction: Transaction, request: Message, policy: Policy) -> None:
    """Commit the transaction of a message together with the databases.

    Raises Failure where one of them refuses, after the message was given back as the policy says; where it is unknown
    whether it is committed, which all wait for; and where an administrator has ended a part of it otherwise. Raises
    QueueError where the queue space fails.
    """
    databases.verdict = Verdict(final=not policy.answers, retry_policy=policy.retry_policy)
    databases.verdict_msgid = request.msgid
    try:
        transaction.commit()
    except Exception as error:
        if databases.failure is None and not isinstance(error, HeuristicError):
            raise
        # What is committed is not tried again, nor what nobody knows yet.
        permanent = isinstance(error, HeuristicError | OutcomeUnknownError) or not policy.answers
        reason = error.message if isinstance(error, QueueError) else described(error)
        raise Failure(reason, permanent=permanent) from error
