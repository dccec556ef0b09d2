"""Enqueuing, as applications do it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from qmadmin import tracing
from qmadmin.attachment import SpaceHandle
from qmadmin.bodies import Body, encode
from qmadmin.transacting import current, joined_here
from qmcore import message, names, times
from qmcore.acts import enqueue as enqueuing
from qmcore.acts import enqueue_in_transaction
from qmcore.acts.enqueue import Outgoing
from qmcore.checks import flag_of
from qmcore.errors import InvalidArgumentError, ProtocolError
from qmcore.message import PLAIN_CONTROLS, PRIORITY_DEFAULT, EnqueueControl
from qmcore.queue import Delivery

if TYPE_CHECKING:
    from qmadmin.connections import ApplicationConnection

_NO_TIMES: Final = (None, None, None, None)
_NO_QUEUES: Final = (None, None, None)
_NO_OTHERS: Final = (PRIORITY_DEFAULT, None, 0, None, None, None, None, "", False, None, None)
"""What `enqueue` is given where its caller asks for nothing."""


class Enqueuing(SpaceHandle):
    """Putting messages on queues."""

    def enqueue(
        self,
        queue: str,
        body: Body,
        *,
        priority: int = PRIORITY_DEFAULT,
        corrid: bytes | str | None = None,
        delay: float | timedelta | None = None,
        available_at: datetime | None = None,
        expires_in: float | timedelta | None = None,
        expires_at: datetime | None = None,
        reply_queue: str | None = None,
        failure_queue: str | None = None,
        error_queue: str | None = None,
        urcode: int = 0,
        persistent: bool | None = None,
        reply_persistent: bool | None = None,
        headers: Mapping[str, str] | None = None,
        type: str | None = None,  # noqa: A002 - it is what the field is called everywhere else
        subtype: str = "",
        top: bool = False,
        before: str | None = None,
        topic: str | None = None,
        transactional: bool = True,
        connection: ApplicationConnection | None = None,
    ) -> str:
        """Put a message on a queue and return its identifier, 32 characters.

        When the call returns outside a transaction, a persistent message is on the disk. In a transaction it is
        enqueued when the transaction commits; the commit is refused if the queue or the room is gone by then.

        `body`: bytes or another buffer; a str, which is stored as UTF-8; a dict, list, tuple, int, float or bool, or an
        instance of a data class, a model of pydantic or a Struct of msgspec, which are stored as JSON. None means a
        message without a body, which is not the same as an empty one. At most 64 MiB.
        `priority`: 1 to 100; in a queue that is ordered by priority, higher ones come first.
        `corrid`: the correlation identifier, at most 32 bytes, which connects a reply with its request; a str is
        encoded as UTF-8.
        `delay` (seconds or timedelta) or `available_at` (aware datetime): when the message becomes available; it
        cannot be dequeued before.
        `expires_in` (seconds, timedelta, or math.inf for never) or `expires_at` (aware datetime): when the message
        expires. Without either, the default expiration of the queue applies. Seconds count from the end of the enqueue,
        in a transaction from its commit.
        `reply_queue`, `failure_queue`: the queues for the answer of the process that handles the message.
        `error_queue`: the queue to which the message goes when its retries are used up, in place of the error queue of
        its queue or queue space.
        `urcode`: the user return code, 64 bits.
        `persistent`: whether the message is persistent; None means as the queue says. With False it is kept in memory
        only, and lost when the machine restarts.
        `reply_persistent`: the same for the reply.
        `headers`: names and values, both str. If the caller is in an OpenTelemetry span, the message gets the
        headers `traceparent` and `tracestate`, unless one of them is given.
        `type`, `subtype`: at most 127 bytes each; the default type is STRING for a str, CARRAY for bytes, and JSON for
        what is stored as JSON.
        `top`: True puts the message before all others, if the queue allows it; the last one put on top is the first.
        `before`: the identifier of the message before which this one is put, if the queue allows it; several before the
        same one are in the order of their arrival.
        `topic`: what the message is about, such as order.eu.created, at most 255 bytes. It is the header `topic`, and
        conditions ask for it.
        `transactional`: False keeps the message out of an open transaction (TPNOTRAN).
        `connection`: a connection of the application to the file or the database of the queue space; the message is
        enqueued when the transaction on it commits. It is a Connection or Session of SQLAlchemy, a connection of
        psycopg 3 or sqlite3, or `django.db.connection`; in a call that is awaited an AsyncConnection or AsyncSession of
        SQLAlchemy, or an AsyncConnection of psycopg 3. qmadmin-queue(7) says what is refused.

        Raises BadQueueError if the queue does not exist or is stopped, NoSpaceError (its `resource` says what ran out),
        InvalidArgumentError, BadMessageIdError if the message in `before` is gone, OperatingSystemError for a full
        disk, and AbortedError if the transaction's time is over.
        """
        data, kind = (body, "CARRAY") if isinstance(body, bytes) else encode(body)
        if corrid is not None:
            # First: arrays of numpy cannot be compared.
            corrid = names.correlation_id(corrid)
        times_asked = (delay, available_at, expires_in, expires_at)
        queues = (reply_queue, failure_queue, error_queue)
        others = (priority, corrid, urcode, persistent, reply_persistent, headers, type, subtype, top, before, topic)
        if times_asked == _NO_TIMES and queues == _NO_QUEUES and others == _NO_OTHERS:
            control = PLAIN_CONTROLS[kind]
        else:
            control = EnqueueControl(
                priority=priority,
                corrid=corrid,
                delay=None if delay is None else times.span(delay, "delay"),
                available_us=None if available_at is None else times.from_datetime(available_at),
                lifetime=None if expires_in in (None, math.inf) else times.span(expires_in, "expiry"),
                expires_us=None if expires_at is None else times.from_datetime(expires_at),
                never_expires=expires_in == math.inf,
                reply_queue=reply_queue,
                failure_queue=failure_queue,
                error_queue=error_queue,
                urcode=urcode,
                delivery=None if persistent is None else _delivery(persistent, "persistent"),
                reply_delivery=None if reply_persistent is None else _delivery(reply_persistent, "reply_persistent"),
                headers=None if headers is None else _checked_headers(headers),
                type=kind if type is None else type,
                subtype=subtype,
                top=top,
                before=before,
                topic=topic,
            )
        return self.put_many([(queue, data, control)], transactional=transactional, connection=connection)[0]

    def enqueue_many(
        self,
        queue: str,
        bodies: Iterable[Body],
        control: EnqueueControl | None = None,
        *,
        transactional: bool = True,
        connection: ApplicationConnection | None = None,
    ) -> list[str]:
        """Put messages on a queue, all or none, and return their identifiers in the same order.

        They take their places in that order. `control` applies to all of them; a body that is a str is of type STRING
        unless `control` is given, and one that is stored as JSON is of type JSON unless `control` says another type
        than CARRAY. Raises as `enqueue` does; nothing is enqueued then.
        """
        usual = PLAIN_CONTROLS["CARRAY"] if control is None else control
        items = [
            (queue, body, usual) if isinstance(body, bytes) else (queue, *with_kind(body, control)) for body in bodies
        ]
        return self.put_many(items, transactional=transactional, connection=connection)

    def put(
        self,
        queue: str,
        body: message.Body,
        control: EnqueueControl,
        *,
        transactional: bool = True,
        connection: ApplicationConnection | None = None,
    ) -> str:
        """Put a message on a queue, as `enqueue` does, with its control information as one value."""
        return self.put_many([(queue, body, control)], transactional=transactional, connection=connection)[0]

    def put_many(
        self,
        items: Iterable[tuple[str, message.Body, EnqueueControl]],
        *,
        transactional: bool = True,
        connection: ApplicationConnection | None = None,
    ) -> list[str]:
        """Put messages on queues of the queue space, each with its control information, all or none.

        Returns their identifiers in the same order.
        """
        attachment, page_size = self._ready(connection), self._device.info.page_size
        outgoing = enqueuing.prepare(tracing.traced(items) if tracing.is_in_use() else items, page_size)
        transaction = current(self._device, self.name) if transactional and joined_here() else None
        if not outgoing:
            return []
        if connection is not None:
            refuse_both(transaction)
        elif transaction is not None and transaction.databases is not None:
            connection = transaction.connection(attachment)
            transaction = None if connection is not None else transaction
        if transaction is None:
            return enqueuing.enqueue(attachment.volume, attachment.opened, outgoing, connection)
        branch = transaction.branch(attachment)
        try:
            for at, item in enumerate(outgoing):
                if isinstance(item.body, memoryview):
                    outgoing[at] = _kept(item)
            return enqueue_in_transaction.enqueue(attachment.volume, branch, outgoing)
        except BaseException as error:
            transaction.note(error)
            attachment.renew(error)
            raise


def refuse_both(transaction: object) -> None:
    """Refuse a call that would belong to two transactions."""
    if transaction is not None:
        raise ProtocolError(
            "a call belongs to the transaction of the queue space or to that of the connection, not to both",
            hint="Use one of them, or transactional=False.",
        )


def _kept(outgoing: Outgoing) -> Outgoing:
    """Return a message that may be kept after the call: what it is a view of may change then."""
    is_spilled = outgoing.size > enqueue_in_transaction.SPILL_BYTES
    return outgoing if is_spilled else outgoing._replace(body=bytes(outgoing.body or b""))


def with_kind(body: Body, control: EnqueueControl | None) -> tuple[message.Body, EnqueueControl]:
    """Return a body as bytes, and the control information for it, which says its type unless it is given."""
    data, kind = encode(body)
    if control is None:
        return data, PLAIN_CONTROLS[kind]
    # CARRAY is what it says where the caller said nothing of the type.
    return data, dataclasses.replace(control, type=kind) if (kind, control.type) == ("JSON", "CARRAY") else control


def _delivery(persistent: bool, what: str) -> Delivery:
    flag = flag_of(persistent)
    if flag is None:
        raise InvalidArgumentError(f"{what} must be True, False or None, got {persistent!r}")
    return Delivery.PERSIST if flag else Delivery.NONPERSIST


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(headers, Mapping):
        raise InvalidArgumentError(f"the headers must be a mapping of names to values, got {headers!r}")
    return headers
