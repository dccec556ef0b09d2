"""TPQCTL, the control structure of ATMI's queue calls, its flags, and what they mean to the engine."""

from __future__ import annotations

import dataclasses
from typing import Final

from qmcore import names
from qmcore.errors import InvalidArgumentError
from qmcore.message import PRIORITY_DEFAULT, EnqueueControl, Message
from qmcore.queue import Delivery
from qmcore.times import MICROS

TPNOFLAGS: Final = 0x00000
TPQCORRID: Final = 0x00001
TPQFAILUREQ: Final = 0x00002
TPQBEFOREMSGID: Final = 0x00004
TPQGETBYMSGIDOLD: Final = 0x00008
TPQMSGID: Final = 0x00010
TPQPRIORITY: Final = 0x00020
TPQTOP: Final = 0x00040
TPQWAIT: Final = 0x00080
TPQREPLYQ: Final = 0x00100
TPQTIME_ABS: Final = 0x00200
TPQTIME_REL: Final = 0x00400
TPQGETBYCORRIDOLD: Final = 0x00800
TPQPEEK: Final = 0x01000
TPQDELIVERYQOS: Final = 0x02000
TPQREPLYQOS: Final = 0x04000
TPQEXPTIME_ABS: Final = 0x08000
TPQEXPTIME_REL: Final = 0x10000
TPQEXPTIME_NONE: Final = 0x20000
TPQGETBYMSGID: Final = 0x40008
TPQGETBYCORRID: Final = 0x80800

TPQQOSDEFAULTPERSIST: Final = 1
TPQQOSPERSISTENT: Final = 2
TPQQOSNONPERSISTENT: Final = 4

TMQNAMELEN: Final = names.QUEUE_NAME_MAX
TMMSGIDLEN: Final = 32
TMCORRIDLEN: Final = names.CORRELATION_ID_MAX

_ONLY_ENQUEUE = TPQTOP | TPQBEFOREMSGID | TPQTIME_ABS | TPQTIME_REL | TPQEXPTIME_ABS | TPQEXPTIME_REL | TPQEXPTIME_NONE
_ALL_FLAGS = 0xFFFFF


@dataclasses.dataclass
class TPQCTL:
    """The control structure of a queue call; `flags` says which of the other fields are set.

    Times are seconds: `deq_time` and `exp_time` count from now or, with the _ABS flags, from 1970. `msgid` and
    `corrid` are bytes, without padding when they come back. `diagnostic` holds the QME number after a failed call.
    """

    flags: int = TPNOFLAGS
    deq_time: int = 0
    priority: int = PRIORITY_DEFAULT
    diagnostic: int = 0
    msgid: bytes | str = b""
    corrid: bytes | str = b""
    replyqueue: str = ""
    failurequeue: str = ""
    cltid: str = ""
    urcode: int = 0
    appkey: int = 0
    delivery_qos: int = 0
    reply_qos: int = 0
    exp_time: int = 0


def enqueue_control(ctl: TPQCTL, kind: str) -> EnqueueControl:
    """Return what the flags ask of an enqueue; contradictions are refused, and so is what cannot be honoured."""
    flags = ctl.flags
    check_flags(flags)
    for one, other in ((TPQTIME_ABS, TPQTIME_REL), (TPQTOP, TPQBEFOREMSGID)):
        if flags & one and flags & other:
            raise InvalidArgumentError(f"the flags {one:#x} and {other:#x} exclude each other")
    if sum(bool(flags & flag) for flag in (TPQEXPTIME_ABS, TPQEXPTIME_REL, TPQEXPTIME_NONE)) > 1:
        raise InvalidArgumentError("the flags TPQEXPTIME_ABS, TPQEXPTIME_REL and TPQEXPTIME_NONE exclude each other")
    return EnqueueControl(
        priority=ctl.priority if flags & TPQPRIORITY else PRIORITY_DEFAULT,
        corrid=names.correlation_id(ctl.corrid) if flags & TPQCORRID else None,
        delay=ctl.deq_time * MICROS if flags & TPQTIME_REL else None,
        available_us=ctl.deq_time * MICROS if flags & TPQTIME_ABS else None,
        lifetime=ctl.exp_time * MICROS if flags & TPQEXPTIME_REL else None,
        expires_us=ctl.exp_time * MICROS if flags & TPQEXPTIME_ABS else None,
        never_expires=bool(flags & TPQEXPTIME_NONE),
        reply_queue=ctl.replyqueue if flags & TPQREPLYQ else None,
        failure_queue=ctl.failurequeue if flags & TPQFAILUREQ else None,
        urcode=ctl.urcode,
        appkey=ctl.appkey,
        client_id=ctl.cltid,
        delivery=_delivery(ctl.delivery_qos) if flags & TPQDELIVERYQOS else None,
        reply_delivery=_delivery(ctl.reply_qos) if flags & TPQREPLYQOS else None,
        type=kind,
        top=bool(flags & TPQTOP),
        before=text_of(ctl.msgid) if flags & TPQBEFOREMSGID else None,
    )


def fill(ctl: TPQCTL, message: Message) -> None:
    """Put into the structure what its flags ask for and the message has; turn the other flags off."""
    found = {
        TPQPRIORITY: ("priority", message.priority),
        TPQMSGID: ("msgid", message.msgid.encode()),
        TPQCORRID: ("corrid", message.corrid),
        TPQREPLYQ: ("replyqueue", message.reply_queue),
        TPQFAILUREQ: ("failurequeue", message.failure_queue),
        TPQDELIVERYQOS: ("delivery_qos", _qos(message.delivery)),
        TPQREPLYQOS: ("reply_qos", message.reply_delivery and _qos(message.reply_delivery)),
    }
    ctl.flags &= ~_ONLY_ENQUEUE
    for flag, (field, value) in found.items():
        if ctl.flags & flag:
            if value is None:
                ctl.flags &= ~flag
            else:
                setattr(ctl, field, value)
    ctl.urcode, ctl.appkey, ctl.cltid = message.urcode, message.appkey, message.client_id
    ctl.diagnostic = 0


def text_of(msgid: bytes | str) -> str:
    """Return a message identifier as text, without the padding of its field."""
    return msgid if isinstance(msgid, str) else msgid.rstrip(b"\0 ").decode("ascii", "replace")


def check_flags(flags: int) -> None:
    """Refuse flags that do not exist."""
    if flags & ~_ALL_FLAGS:
        raise InvalidArgumentError(f"the control flags {flags & ~_ALL_FLAGS:#x} are unknown")


def _delivery(qos: int) -> Delivery | None:
    known = {
        TPQQOSDEFAULTPERSIST: None,
        TPQQOSPERSISTENT: Delivery.PERSIST,
        TPQQOSNONPERSISTENT: Delivery.NONPERSIST,
    }
    if qos not in known:
        raise InvalidArgumentError(f"the quality of service {qos} is not one of {', '.join(map(str, known))}")
    return known[qos]


def _qos(delivery: Delivery) -> int:
    return TPQQOSPERSISTENT if delivery is Delivery.PERSIST else TPQQOSNONPERSISTENT
