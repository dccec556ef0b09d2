"""The answers to the client of a message: the reply, or a message about the failure of its call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from qmadmin.consumers import Failure, Policy, Reply, current
from qmadmin.consumers.current import is_temporary
from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction
from qmcore.errors import BadQueueError, InvalidArgumentError, NoSpaceError, QueueError, ReleaseError
from qmcore.message import EnqueueControl, Message

if TYPE_CHECKING:
    from typing_extensions import Buffer

Answer: TypeAlias = "tuple[str, bytes, EnqueueControl]"
"""A message for a client: its queue, its body, and its control information."""

Dropped: TypeAlias = "Callable[[Message, str, str], None]"
"""Notes that the answer to a message - its reply, or its failure - is dropped, because that queue does not exist."""

_REFUSALS: Final = (BadQueueError, InvalidArgumentError, NoSpaceError, ReleaseError)


def answer_to(request: Message, reply: Reply) -> Answer | None:
    """Return what is queued as the reply to a request; None if the request asks for none.

    Raises Failure if the reply is not a valid message.
    """
    if request.reply_queue is None:
        return None
    try:
        return (request.reply_queue, *_message(request, reply))
    except InvalidArgumentError as error:
        raise _unfit(error) from error


def put_answer(space: QueueSpace, request: Message, answer: Answer | None, dropped: Dropped) -> None:
    """Enqueue the reply to a request, if there is one, in the open transaction.

    It is dropped if its queue does not exist. Raises Failure if the queue can never accept the reply, and QueueError if
    there is no room for it, or its queue is stopped.
    """
    if answer is None:
        return
    try:
        space.put(*answer)
    except _REFUSALS as error:
        if is_temporary(error):
            raise
        if not isinstance(error, BadQueueError):
            raise _unfit(error) from error
        dropped(request, "reply", answer[0])


def enqueue_failure(
    transaction: Transaction, request: Message, failure: Failure, policy: Policy, dropped: Dropped
) -> None:
    """End the transaction of a failed call that has a body for the client: delete the request and answer the client.

    The request goes to the error queue if it has used up its tries. Raises Failure if the answer is not a valid
    message, and QueueError if it cannot be queued at present; the transaction is open then.
    """
    reason = str(failure)
    terms: Any = {"permanent": failure.permanent, "retry_policy": policy.retry_policy}
    if request.failure_queue is None:
        transaction.answer_failure(request.msgid, reason, **terms)
        return
    try:
        told = (request.failure_queue, *_message(request, failure.reply))
        transaction.answer_failure(request.msgid, reason, [told], **terms)
    except _REFUSALS as error:
        if is_temporary(error):
            raise
        if not isinstance(error, BadQueueError):
            raise Failure(f"{reason}; its answer cannot be queued: {error.message}") from error
        dropped(request, "failure", request.failure_queue)
        transaction.answer_failure(request.msgid, reason, **terms)


def has_answer(failure: Failure) -> bool:
    """Return whether a failure has a body for the client."""
    return len(_content(failure.reply)[0]) > 0


def _message(request: Message, reply: Reply) -> tuple[bytes, EnqueueControl]:
    """Return the message for the client of a request."""
    body, kind = _content(reply)
    control = EnqueueControl(
        priority=request.priority,
        corrid=_corrid(request),
        urcode=reply.urcode,
        appkey=request.appkey,
        client_id=request.client_id,
        delivery=request.reply_delivery,
        headers=current.answer_headers(request, reply.headers),
        type=kind,
    )
    return body, control


def _content(reply: Reply) -> tuple[bytes, str]:
    """Return the body and its type; a reply without a body has zero length."""
    if isinstance(reply.body, str):
        return reply.body.encode(), reply.type or "STRING"
    # Whoever called the handler has encoded what it returned.
    return bytes(cast("Buffer", reply.body or b"")), reply.type or "CARRAY"


def _unfit(error: QueueError) -> Failure:
    return Failure(f"its reply cannot be queued: {error.message}")


def _corrid(request: Message) -> bytes:
    """Return the correlation identifier of the reply: that of the request, or the request's first identifier."""
    if request.corrid is not None:
        return request.corrid
    return request.first_msgid.encode()
