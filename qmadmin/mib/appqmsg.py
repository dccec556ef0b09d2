"""T_APPQMSG: messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from qmadmin.mib.declare import (
    NEVER,
    QUEUE,
    Attribute,
    Mark,
    MibClass,
    Request,
    Subject,
    Value,
    ValueType,
    common,
    identifier,
    instant,
    instant_or_never,
    moment,
    moment_or_never,
    number,
    opened,
    word,
    written_identifier,
    written_moment,
)
from qmcore.condition import BY_NAME, Condition, IsNull, Operator, Or, all_of, available, compared
from qmcore.damage import left_out
from qmcore.errors import BadMessageIdError
from qmcore.message import PRIORITY_RANGE, MessageInfo, checked_id
from qmcore.message_attributes import ATTRIBUTES, ValueKind
from qmcore.order import Criterion
from qmcore.queue import Delivery, Queue
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.space import QueueSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSubject(Subject):
    """A message, and the queue that it is in."""

    queue: Queue
    info: MessageInfo

    def is_ordered_by(self, criterion: Criterion) -> bool:
        """Return whether this is one of the criteria of the queue."""
        return criterion in self.queue.definition.order.criteria


_DAMAGED = "Look for damage with qcheck; qpurge -d removes what is damaged."


def _select(request: Request) -> Iterator[MessageSubject]:
    condition, delivery = _condition(request.keys), request.keys.get("delivery")
    with opened(request) as space:
        named = request.keys.get("queue")
        for queue in [space.queue(named)] if named is not None else _taken_from(space):
            lacking: list[int] = []
            for info in space.messages(queue.name, condition=condition, left_out=lacking.append):
                if delivery in (None, info.delivery):
                    yield MessageSubject(device=request.device, space=space.name, queue=queue, info=info)
            if lacking:
                request.warn(f"{left_out(sum(lacking), queue.name)}. {_DAMAGED}")


def _taken_from(space: QueueSpace) -> list[Queue]:
    """Return the queues for one consumer, and the consumers of the others."""
    alone = [queue for queue in space.queues() if not queue.definition.multiple_consumers]
    return alone + [space.queue(f"{each.queue}:{each.name}") for each in space.subscriptions()]


def _condition(keys: Mapping[str, Any]) -> Condition | None:
    """Return the condition of the keys for the engine."""
    parts: list[Condition] = []
    for field, operator, given in (
        ("msgid", Operator.EQUAL, "msgid"),
        ("corrid", Operator.EQUAL, "corrid"),
        ("priority", Operator.AT_LEAST, "low_priority"),
        ("priority", Operator.AT_MOST, "high_priority"),
    ):
        if given in keys:
            parts.append(compared(field, operator, keys[given]))
    parts += [available(operator, keys[given]) for given, operator in _AVAILABLE.items() if given in keys]
    parts += _expiring(keys.get("expires_from"), keys.get("expires_to"))
    return all_of(parts)


_AVAILABLE = {"available_from": Operator.AT_LEAST, "available_to": Operator.AT_MOST}


def _expiring(start: int | None, end: int | str | None) -> list[Condition]:
    """Return the condition of a window of expiry, which is open without an end."""
    window: list[Condition] = []
    if start is not None:
        window.append(compared("expires_at", Operator.AT_LEAST, start))
    if isinstance(end, int):
        window.append(compared("expires_at", Operator.AT_MOST, end))
    if end == NEVER:
        # Messages that expire from the start on, and those that never do.
        return [Or((*window, IsNull(BY_NAME["expires_at"])))] if window else []
    return window


# ---- what a SET does ------------------------------------------------------------------------------------------------


def _change(request: Request) -> MessageSubject:
    """Change one message. It is moved last: that gives it another identifier."""
    name, changes = request.keys["queue"], request.changes
    with opened(request) as space:
        condition = _the_message(space, request)
        if "target" in changes:
            space.queue(changes["target"])
        if "priority" in changes:
            space.change_priority(name, changes["priority"], condition=condition)
        if "available" in changes:
            space.change_availability(name, changes["available"], condition=condition)
        if "expires" in changes:
            space.change_expiry(name, changes["expires"], condition=condition)
        if "target" in changes:
            space.move(name, changes["target"], condition=condition)
            name = changes["target"]
            condition = compared("origin_msgid", Operator.EQUAL, request.keys["msgid"])
        # A message that expires at once is gone by now.
        for info in space.messages(name, condition=condition):
            return MessageSubject(device=request.device, space=space.name, queue=space.queue(name), info=info)
        raise _no_message(request)


def _delete(request: Request) -> None:
    with opened(request) as space:
        if not space.purge(request.keys["queue"], condition=_the_message(space, request)):
            raise _no_message(request)


def _the_message(space: QueueSpace, request: Request) -> Condition:
    """Return the condition that selects the message of a request, which must exist and not be held."""
    queue, msgid = request.keys["queue"], request.keys["msgid"]
    space.refuse_held(queue, msgid)
    condition = compared("msgid", Operator.EQUAL, msgid)
    if not space.count(queue, condition=condition):
        raise _no_message(request)
    return condition


def _no_message(request: Request) -> BadMessageIdError:
    queue = request.keys["queue"]
    return BadMessageIdError(f"queue {queue!r} has no message {request.keys['msgid']}", queue=queue)


# ---- attributes -----------------------------------------------------------------------------------------------------


_WRITTEN: Final[dict[ValueKind, Callable[[Any], Value]]] = {
    ValueKind.TEXT: lambda text: text or "",
    ValueKind.MSGID: lambda msgid: msgid or "",
    ValueKind.BYTES: written_identifier,
    ValueKind.TIME: written_moment,
    ValueKind.WHOLE: int,
}


def _of(
    name: str,
    attribute: str,
    values: str = "",
    write: Callable[[MessageSubject, Any], Value] | None = None,
    **more: Any,
) -> Attribute[MessageSubject]:
    """Return an attribute of a message; `write` formats its value, unless it is written as others of its kind."""
    known = ATTRIBUTES[attribute]

    def get(subject: MessageSubject) -> Value:
        value = known.get(subject.info)
        return write(subject, value) if write else _WRITTEN[known.kind](value)

    more = {"about": known.about} | more
    kind = ValueType.LONG if known.kind is ValueKind.WHOLE else ValueType.STRING
    return Attribute(name=name, kind=kind, values=values or _VALUES[known.kind], get=get, **more)


def _filter(name: str, field: str, which: str, default: int | None = None, more: str = "") -> Attribute[MessageSubject]:
    """Return a key that selects messages by a time, or by a priority that has a default."""
    is_time = default is None
    return Attribute(
        name=name,
        kind=ValueType.STRING if is_time else ValueType.LONG,
        permissions="k--k--k--",
        values=f"{_TIME}{more}" if is_time else f"1 to 100; default {default}",
        about=f"Select messages {which}.",
        marks=Mark.KEY,
        field=field,
        read=(instant_or_never if more else instant) if is_time else _PRIORITY,
    )


_PRIORITY = number("priority", *PRIORITY_RANGE)
_TIME = "YY[MM[DD[hh[mm[ss]]]]]"
_VALUES: Final = {
    ValueKind.TEXT: "a text, or nothing",
    ValueKind.MSGID: "32 hexadecimal digits, or nothing",
    ValueKind.TIME: "YYMMDDhhmmss, or nothing",
    ValueKind.WHOLE: "0 or more",
}
_ASKED = "PERSIST, NONPERSIST, DEFAULT"


def _upper(_subject: MessageSubject, text: str | None) -> str:
    return (text or "").upper()


def _asked(subject: MessageSubject, text: str | None) -> str:
    """Return what a sender asked for; DEFAULT if it left the choice to the queue."""
    return _upper(subject, text or "default")


_DELIVERIES = {delivery.value.upper(): delivery for delivery in (Delivery.PERSIST, Delivery.NONPERSIST)}

T_APPQMSG: MibClass[MessageSubject] = MibClass(
    name="T_APPQMSG",
    noun="message",
    about="Messages of a queue, or of all queues of a queue space.",
    states={"VAL": "the message is stored"},
    meanings={"INV": "delete the message"},
    select=_select,
    actions={"": _change, "INV": _delete},
    destructive={"", "INV"},
    attributes=(
        _of(
            "TA_APPQMSGID",
            "msgid",
            "32 hexadecimal digits",
            marks=Mark.KEY | Mark.SET_KEY,
            field="msgid",
            read=checked_id,
        ),
        _of(
            QUEUE,
            "queue",
            "1 to 127 bytes",
            about="The queue. Without it, GET returns the messages of all queues.",
            marks=Mark.KEY | Mark.SET_KEY,
            field="queue",
        ),
        *common("GET VAL; SET INV", marks=Mark.KEY | Mark.NEEDED | Mark.SET_KEY),
        Attribute(
            name="TA_NEWAPPQNAME",
            permissions="-w--w----",
            values="an existing queue",
            about="The queue to move the message to, where it has another identifier.",
            field="target",
        ),
        _of(
            "TA_PRIORITY",
            "priority",
            "1 to 100; GET gives -1 where the queue is not ordered by priority",
            lambda subject, priority: priority if subject.is_ordered_by(Criterion.PRIORITY) else -1,
            permissions="rw-rw-r--",
            field="priority",
            read=_PRIORITY,
        ),
        _of(
            "TA_TIME",
            "available_at",
            f"+seconds, {_TIME}; GET gives nothing where the queue is not ordered by time, or none was set",
            lambda subject, micros: written_moment(micros) if subject.is_ordered_by(Criterion.TIME) else "",
            about="When the message becomes available, in local time.",
            permissions="rw-rw-r--",
            field="available",
            read=moment,
        ),
        _of(
            "TA_EXPIRETIME",
            "expires_at",
            f"+seconds, {_TIME}, NONE; GET gives nothing where it never expires",
            about="When the message expires, in local time.",
            permissions="rw-rw-r--",
            field="expires",
            read=moment_or_never,
        ),
        _of(
            "TA_CORRID",
            "corrid",
            "0 to 32 bytes; blanks and what cannot be printed as \\20, a backslash and two hexadecimal digits",
            about="The correlation identifier.",
            marks=Mark.KEY,
            field="corrid",
            read=identifier,
        ),
        _of(
            "TA_PERSISTENCE",
            "delivery",
            "PERSIST, NONPERSIST",
            lambda _subject, delivery: delivery.upper(),
            about="Where the message is kept.",
            marks=Mark.KEY,
            field="delivery",
            read=lambda text: _DELIVERIES[word(*_DELIVERIES)(text)],
        ),
        _of("TA_PERSISTENCEASKED", "delivery_asked", _ASKED, _asked, about="Where the sender wanted the message kept."),
        _of("TA_REPLYPERSISTENCE", "reply_delivery", _ASKED, _asked, about="Where a reply is to be kept."),
        _filter("TA_LOWPRIORITY", "low_priority", "of this priority and above", 1),
        _filter("TA_HIGHPRIORITY", "high_priority", "of this priority and below", 100),
        _filter(
            "TA_MSGSTARTTIME",
            "available_from",
            "that become available at this time or later; a message without such a time counts as available from its"
            " enqueue",
        ),
        _filter("TA_MSGENDTIME", "available_to", "that become available at this time or before"),
        _filter("TA_MSGEXPIRESTARTTIME", "expires_from", "that expire at this time or later"),
        _filter(
            "TA_MSGEXPIREENDTIME",
            "expires_to",
            "that expire at this time or before; with NONE, also those that never expire",
            more=f", {NEVER}",
        ),
        _of("TA_CURRETRIES", "retries"),
        _of("TA_MSGSIZE", "size"),
        _of("TA_MSGSTATE", "state", "READY, DELAYED, PARKED, HELD", _upper),
        _of("TA_ENQUEUETIME", "enqueued_at", about="When the message was enqueued, in local time."),
        _of("TA_REPLYQNAME", "reply_queue"),
        _of("TA_FAILUREQNAME", "failure_queue"),
        _of("TA_ERRORQNAME", "error_queue"),
        _of("TA_URCODE", "urcode"),
        _of("TA_APPKEY", "appkey"),
        _of("TA_CLTID", "client_id"),
        _of("TA_MSGTYPE", "type"),
        _of("TA_MSGSUBTYPE", "subtype"),
        _of(
            "TA_HEADERS", "headers", write=lambda _subject, headers: json.dumps(dict(headers or {}), ensure_ascii=False)
        ),
        _of("TA_GROUPMSGID", "group_msgid"),
        _of("TA_ORIGINQNAME", "origin_queue"),
        _of("TA_ORIGINMSGID", "origin_msgid"),
        _of("TA_FIRSTMSGID", "first_msgid"),
        _of("TA_ORIGINREASON", "origin_reason", "RETRIES, EXPIRED, ADMIN, FORWARD, or nothing", _upper),
        _of("TA_ORIGINERROR", "origin_error"),
        _of("TA_MOVETIME", "moved_at", about="When the message was moved, in local time."),
    ),
)
