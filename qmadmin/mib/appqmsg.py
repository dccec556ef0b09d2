"""T_APPQMSG: messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from qmadmin.mib.common import QUEUE, STATE, addresses, opened
from qmadmin.mib.declare import Attribute, Kind, Mark, MibClass, Request
from qmadmin.mib.values import (
    NEVER,
    identifier,
    instant,
    instant_or_never,
    moment,
    moment_or_never,
    number,
    word,
    written_identifier,
    written_moment,
)
from qmcore.condition import BY_NAME, And, Comparison, Condition, IsNull, Operator, Or, Value, available
from qmcore.damage import left_out
from qmcore.errors import BadMessageIdError
from qmcore.message import PRIORITY_RANGE, MessageInfo, checked_id
from qmcore.order import Criterion
from qmcore.queue import Delivery, Queue

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.space import QueueSpace


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MessageSubject:
    """A message, and the queue that it is in."""

    device: Device
    space: str
    queue: Queue
    info: MessageInfo

    def ordered_by(self, criterion: Criterion) -> bool:
        """Tell whether this is one of the criteria of the queue."""
        return criterion in self.queue.definition.order.criteria


def _select(request: Request) -> Iterator[MessageSubject]:
    condition, delivery = _condition(request.keys), request.keys.get("delivery")
    with opened(request) as space:
        named = request.keys.get("queue")
        for queue in [space.queue(named)] if named is not None else space.queues():
            lacking: list[int] = []
            for info in space.messages(queue.name, condition=condition, left_out=lacking.append):
                if delivery in (None, info.delivery):
                    yield MessageSubject(device=request.device, space=space.name, queue=queue, info=info)
            if lacking:
                request.warn(left_out(sum(lacking), queue.name))


def _condition(keys: Mapping[str, Any]) -> Condition | None:
    """Return what the engine has to ask of messages that the keys select."""
    parts: list[Condition] = []
    for field, operator, given in (
        ("msgid", Operator.EQUAL, "msgid"),
        ("corrid", Operator.EQUAL, "corrid"),
        ("priority", Operator.AT_LEAST, "low_priority"),
        ("priority", Operator.AT_MOST, "high_priority"),
    ):
        if given in keys:
            parts.append(_compared(field, operator, keys[given]))
    parts += [available(operator, keys[given]) for given, operator in _AVAILABLE.items() if given in keys]
    parts += _expiring(keys.get("expires_from"), keys.get("expires_to"))
    return parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else None


_AVAILABLE = {"available_from": Operator.AT_LEAST, "available_to": Operator.AT_MOST}


def _expiring(start: int | None, end: int | str | None) -> list[Condition]:
    """Without an end, or with one that never comes, the window is open."""
    window: list[Condition] = []
    if start is not None:
        window.append(_compared("expires_at", Operator.AT_LEAST, start))
    if isinstance(end, int):
        window.append(_compared("expires_at", Operator.AT_MOST, end))
    if end == NEVER:
        # All that expires from the start on, and what never does.
        return [Or((*window, IsNull(BY_NAME["expires_at"])))] if window else []
    return window


def _compared(field: str, operator: Operator, value: Value) -> Comparison:
    return Comparison(BY_NAME[field], operator, value)


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
            condition = _compared("origin_msgid", Operator.EQUAL, request.keys["msgid"])
        # One that is to expire at once is gone by now.
        for info in space.messages(name, condition=condition):
            return MessageSubject(device=request.device, space=space.name, queue=space.queue(name), info=info)
        raise _no_message(request)


def _delete(request: Request) -> None:
    with opened(request) as space:
        if not space.purge(request.keys["queue"], condition=_the_message(space, request)):
            raise _no_message(request)


def _the_message(space: QueueSpace, request: Request) -> Condition:
    """Return the condition that selects the message of a request, which has to be there and held by nobody."""
    queue, msgid = request.keys["queue"], request.keys["msgid"]
    space.refuse_held(queue, msgid)
    condition = _compared("msgid", Operator.EQUAL, msgid)
    if not space.count(queue, condition=condition):
        raise _no_message(request)
    return condition


def _no_message(request: Request) -> BadMessageIdError:
    queue = request.keys["queue"]
    return BadMessageIdError(f"queue {queue!r} has no message {request.keys['msgid']}", queue=queue)


# ---- attributes -----------------------------------------------------------------------------------------------------


def _filter(name: str, field: str, kind: Kind, values: str, about: str, read: Any) -> Attribute[MessageSubject]:
    return Attribute(
        name=name,
        kind=kind,
        permissions="k--k--k--",
        values=values,
        about=about,
        marks=Mark.KEY,
        field=field,
        read=read,
    )


_TIME = "YY[MM[DD[hh[mm[ss]]]]]"
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
        Attribute(
            name="TA_APPQMSGID",
            kind=Kind.STRING,
            permissions="r--r--r--",
            values="32 hexadecimal digits",
            about="The identifier of the message.",
            marks=Mark.KEY | Mark.SET_KEY,
            get=lambda subject: subject.info.msgid,
            field="msgid",
            read=checked_id,
        ),
        Attribute(
            name=QUEUE,
            kind=Kind.STRING,
            permissions="r--r--r--",
            values="1 to 127 bytes",
            about="The queue. Without it, GET returns the messages of all queues.",
            marks=Mark.KEY | Mark.SET_KEY,
            get=lambda subject: subject.queue.name,
            field="queue",
        ),
        *addresses(
            lambda subject: subject.space,
            lambda subject: subject.device,
            marks=Mark.KEY | Mark.NEEDED | Mark.SET_KEY,
        ),
        Attribute(
            name=STATE,
            kind=Kind.STRING,
            permissions="rw-r--r--",
            values="GET VAL; SET INV",
            about="The state.",
            get=lambda _subject: "VAL",
        ),
        Attribute(
            name="TA_NEWAPPQNAME",
            kind=Kind.STRING,
            permissions="-w--w----",
            values="an existing queue",
            about="The queue to move the message to, where it has another identifier.",
            field="target",
        ),
        Attribute(
            name="TA_PRIORITY",
            kind=Kind.LONG,
            permissions="rw-rw-r--",
            values="1 to 100; GET gives -1 where the queue is not ordered by priority",
            about="The priority.",
            get=lambda subject: subject.info.priority if subject.ordered_by(Criterion.PRIORITY) else -1,
            field="priority",
            read=number("priority", *PRIORITY_RANGE),
        ),
        Attribute(
            name="TA_TIME",
            kind=Kind.STRING,
            permissions="rw-rw-r--",
            values=f"+seconds, {_TIME}; GET gives nothing where the queue is not ordered by time, or none was set",
            about="When the message becomes available, in local time.",
            get=lambda subject: written_moment(subject.info.available_us) if subject.ordered_by(Criterion.TIME) else "",
            field="available",
            read=moment,
        ),
        Attribute(
            name="TA_EXPIRETIME",
            kind=Kind.STRING,
            permissions="rw-rw-r--",
            values=f"+seconds, {_TIME}, NONE; GET gives nothing where it never expires",
            about="When the message expires, in local time.",
            get=lambda subject: written_moment(subject.info.expires_us),
            field="expires",
            read=moment_or_never,
        ),
        Attribute(
            name="TA_CORRID",
            kind=Kind.STRING,
            permissions="r--r--r--",
            values="0 to 32 bytes; blanks and what cannot be printed as \\20, a backslash and two hexadecimal digits",
            about="The correlation identifier.",
            marks=Mark.KEY,
            get=lambda subject: written_identifier(subject.info.corrid),
            field="corrid",
            read=identifier,
        ),
        Attribute(
            name="TA_PERSISTENCE",
            kind=Kind.STRING,
            permissions="r--r--r--",
            values="PERSIST, NONPERSIST",
            about="Where the message is kept.",
            marks=Mark.KEY,
            get=lambda subject: subject.info.delivery.value.upper(),
            field="delivery",
            read=lambda text: _DELIVERIES[word(*_DELIVERIES)(text)],
        ),
        Attribute(
            name="TA_REPLYPERSISTENCE",
            kind=Kind.STRING,
            permissions="r--r--r--",
            values="PERSIST, NONPERSIST, DEFAULT",
            about="Where a reply is to be kept.",
            get=lambda subject: (subject.info.reply_delivery or Delivery.DEFAULT).value.upper(),
        ),
        _filter(
            "TA_LOWPRIORITY",
            "low_priority",
            Kind.LONG,
            "1 to 100; default 1",
            "Select messages of this priority and above.",
            number("priority", *PRIORITY_RANGE),
        ),
        _filter(
            "TA_HIGHPRIORITY",
            "high_priority",
            Kind.LONG,
            "1 to 100; default 100",
            "Select messages of this priority and below.",
            number("priority", *PRIORITY_RANGE),
        ),
        _filter(
            "TA_MSGSTARTTIME",
            "available_from",
            Kind.STRING,
            _TIME,
            "Select messages that become available at this time or later; a message without such a time counts as"
            " available from its enqueue.",
            instant,
        ),
        _filter(
            "TA_MSGENDTIME",
            "available_to",
            Kind.STRING,
            _TIME,
            "Select messages that become available at this time or before.",
            instant,
        ),
        _filter(
            "TA_MSGEXPIRESTARTTIME",
            "expires_from",
            Kind.STRING,
            _TIME,
            "Select messages that expire at this time or later.",
            instant,
        ),
        _filter(
            "TA_MSGEXPIREENDTIME",
            "expires_to",
            Kind.STRING,
            f"{_TIME}, NONE",
            "Select messages that expire at this time or before; with NONE, also those that never expire.",
            instant_or_never,
        ),
        Attribute(
            name="TA_CURRETRIES",
            kind=Kind.LONG,
            permissions="r--r--r--",
            values="0 or more",
            about="How often the message was rolled back.",
            get=lambda subject: subject.info.retries,
        ),
        Attribute(
            name="TA_MSGSIZE",
            kind=Kind.LONG,
            permissions="r--r--r--",
            values="0 or more",
            about="The length of its body in bytes.",
            get=lambda subject: subject.info.size,
        ),
    ),
)
