"""What the client of a message is told: the reply to it, or that its call failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from qmadmin.consumers import call_spans
from qmadmin.consumers.current import is_temporary
from qmadmin.consumers.handler import Failure, Reply
from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction
from qmcore.errors import BadQueueError, InvalidArgumentError, NoSpaceError, QueueError, ReleaseError
from qmcore.message import EnqueueControl, Message

Answer: TypeAlias = "tuple[str, bytes, EnqueueControl]"
"""A message for a client: its queue, its body, and its control information."""

Dropped: TypeAlias = "Callable[[Message, str, str], None]"
"""Notes that what a message asked for - its reply, or its failure - is dropped, because that queue does not exist."""

_REFUSALS: Final = (BadQueueError, InvalidArgumentError, NoSpaceError, ReleaseError)


def answer_to(request: Message, reply: Reply) -> Answer | None:
    """Return what is queued as the reply to a request; None where that asks for none.

    Raises Failure where the reply is not a message.
    """
    if request.reply_queue is None:
        return None
    try:
        return (request.reply_queue, *_message(request, reply))
    except InvalidArgumentError as error:
        raise _unfit(error) from error


def put_answer(space: QueueSpace, request: Message, answer: Answer | None, dropped: Dropped) -> None:
    """Enqueue the reply to a request, where there is one, in the transaction that is open.

    It is dropped where its queue does not exist. Raises Failure where the reply does not fit there, and QueueError
    where there is no room for it, or its queue is stopped.
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


def tell_failure(transaction: Transaction, request: Message, failure: Failure, dropped: Dropped) -> None:
    """End the transaction of a call that failed and has something to say: the request goes, and its client is told.

    The request goes to the error queue where it is out of tries. Raises Failure where what the handler says is not a
    message, and QueueError where it cannot be queued at present; the transaction is open then.
    """
    reason, permanent = str(failure), failure.permanent
    if request.failure_queue is None:
        transaction.answer_failure(request.msgid, reason, permanent=permanent)
        return
    try:
        told = (request.failure_queue, *_message(request, failure.reply))
        transaction.answer_failure(request.msgid, reason, [told], permanent=permanent)
    except _REFUSALS as error:
        if is_temporary(error):
            raise
        if not isinstance(error, BadQueueError):
            raise Failure(f"{reason}; its answer cannot be queued: {error.message}") from error
        dropped(request, "failure", request.failure_queue)
        transaction.answer_failure(request.msgid, reason, permanent=permanent)


def says_something(failure: Failure) -> bool:
    """Return whether a failure has a body for the client."""
    return len(_content(failure.reply)[0]) > 0


def _message(request: Message, reply: Reply) -> tuple[bytes, EnqueueControl]:
    """Return what is queued for the client of a request."""
    body, kind = _content(reply)
    control = EnqueueControl(
        priority=request.priority,
        corrid=_corrid(request),
        urcode=reply.urcode,
        appkey=request.appkey,
        client_id=request.client_id,
        delivery=request.reply_delivery,
        headers=call_spans.answered(request, reply.headers),
        type=kind,
    )
    return body, control


def _content(reply: Reply) -> tuple[bytes, str]:
    """Return the body and its type; a reply without a body has zero length."""
    if isinstance(reply.body, str):
        return reply.body.encode(), reply.type or "STRING"
    return bytes(reply.body or b""), reply.type or "CARRAY"


def _unfit(error: QueueError) -> Failure:
    return Failure(f"its reply cannot be queued: {error.message}")


def _corrid(request: Message) -> bytes:
    """Return how the client knows the reply: by its correlation identifier, or by what its enqueue returned."""
    if request.corrid is not None:
        return request.corrid
    return request.first_msgid.encode()
