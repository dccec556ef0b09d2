"""TPQCTL, the control structure of ATMI's queue calls, its flags, and what they mean to the engine."""

from __future__ import annotations

import dataclasses
from typing import Final

from qmcore import names
from qmcore.checks import whole
from qmcore.errors import BadMessageIdError, InvalidArgumentError
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

__all__ = [
    "TMCORRIDLEN",
    "TMMSGIDLEN",
    "TMQNAMELEN",
    "TPNOFLAGS",
    "TPQBEFOREMSGID",
    "TPQCORRID",
    "TPQCTL",
    "TPQDELIVERYQOS",
    "TPQEXPTIME_ABS",
    "TPQEXPTIME_NONE",
    "TPQEXPTIME_REL",
    "TPQFAILUREQ",
    "TPQGETBYCORRID",
    "TPQGETBYCORRIDOLD",
    "TPQGETBYMSGID",
    "TPQGETBYMSGIDOLD",
    "TPQMSGID",
    "TPQPEEK",
    "TPQPRIORITY",
    "TPQQOSDEFAULTPERSIST",
    "TPQQOSNONPERSISTENT",
    "TPQQOSPERSISTENT",
    "TPQREPLYQ",
    "TPQREPLYQOS",
    "TPQTIME_ABS",
    "TPQTIME_REL",
    "TPQTOP",
    "TPQWAIT",
]

_TRAVELS = TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQMSGID | TPQPRIORITY | TPQDELIVERYQOS | TPQREPLYQOS
"""What an enqueue may set and a dequeue may ask for."""

_EXPIRIES = TPQEXPTIME_ABS | TPQEXPTIME_REL | TPQEXPTIME_NONE
_ONLY_ENQUEUE = TPQTOP | TPQBEFOREMSGID | TPQTIME_ABS | TPQTIME_REL | _EXPIRIES
_ONLY_DEQUEUE = TPQGETBYMSGID | TPQGETBYCORRID | TPQWAIT | TPQPEEK
_EXCLUSIVE = (TPQTIME_ABS | TPQTIME_REL, TPQTOP | TPQBEFOREMSGID, _EXPIRIES)
LONG_RANGE: Final = (-(2**63), 2**63 - 1)
"""What the long of C holds."""

_QUALITIES: Final = {
    TPQQOSDEFAULTPERSIST: Delivery.DEFAULT,
    TPQQOSPERSISTENT: Delivery.PERSIST,
    TPQQOSNONPERSISTENT: Delivery.NONPERSIST,
}
_QUALITY_NUMBERS: Final = {delivery: number for number, delivery in _QUALITIES.items()}


@dataclasses.dataclass
class TPQCTL:
    """The control structure of a queue call; `flags` says which of the other fields are set.

    Times are seconds: `deq_time` and `exp_time` count from the end of the enqueue, in a transaction from its commit,
    or with the _ABS flags from 1970; a dequeue does not return them. `msgid` and `corrid` are bytes or str on input,
    with or without the NULs that fill their 32 bytes, which are not part of the value; on output they are bytes
    without them. `urcode` needs no flag. `cltid` and `appkey` are output only: who sent the message, see tpinit().
    `diagnostic` is the QME number after a call that failed with TPEDIAGNOSTIC, and 0 after any other.
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


def enqueue_control(ctl: TPQCTL, kind: str, *, client: str, appkey: int) -> EnqueueControl:
    """Return what the flags ask of an enqueue by this client; what contradicts, or cannot be honoured, is refused.

    Fields without their flag are not looked at.
    """
    flags = _checked(ctl.flags, _TRAVELS | _ONLY_ENQUEUE, "tpenqueue")
    for group in _EXCLUSIVE:
        if (flags & group).bit_count() > 1:
            raise InvalidArgumentError(f"{_named(flags & group)} exclude each other")
    available = _micros(ctl.deq_time, "deq_time") if flags & (TPQTIME_ABS | TPQTIME_REL) else 0
    expires = _micros(ctl.exp_time, "exp_time") if flags & (TPQEXPTIME_ABS | TPQEXPTIME_REL) else 0
    return EnqueueControl(
        priority=ctl.priority if flags & TPQPRIORITY else PRIORITY_DEFAULT,
        corrid=names.correlation_id(ctl.corrid) if flags & TPQCORRID else None,
        delay=available if flags & TPQTIME_REL else None,
        available_us=available if flags & TPQTIME_ABS else None,
        lifetime=expires if flags & TPQEXPTIME_REL else None,
        expires_us=expires if flags & TPQEXPTIME_ABS else None,
        never_expires=bool(flags & TPQEXPTIME_NONE),
        reply_queue=names.queue_name(ctl.replyqueue, "reply queue name") if flags & TPQREPLYQ else None,
        failure_queue=names.queue_name(ctl.failurequeue, "failure queue name") if flags & TPQFAILUREQ else None,
        urcode=ctl.urcode,
        appkey=appkey,
        client_id=client,
        delivery=_delivery(ctl.delivery_qos, "delivery_qos") if flags & TPQDELIVERYQOS else None,
        reply_delivery=_delivery(ctl.reply_qos, "reply_qos") if flags & TPQREPLYQOS else None,
        type=kind,
        top=bool(flags & TPQTOP),
        before=_text_of(ctl.msgid) if flags & TPQBEFOREMSGID else None,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DequeueControl:
    """What the flags ask of a dequeue: at most one identifier, whether to wait, and whether only to look."""

    msgid: str | None
    corrid: bytes | None
    waits: bool
    peeks: bool


def dequeue_control(ctl: TPQCTL) -> DequeueControl:
    """Return what the flags ask of a dequeue; those that are for an enqueue only are turned off."""
    flags = _checked(ctl.flags, _TRAVELS | _ONLY_ENQUEUE | _ONLY_DEQUEUE, "tpdequeue")
    ctl.flags = flags = flags & ~_ONLY_ENQUEUE
    by_msgid, by_corrid = flags & TPQGETBYMSGID, flags & TPQGETBYCORRID
    if by_msgid and by_corrid:
        raise InvalidArgumentError("TPQGETBYMSGID and TPQGETBYCORRID exclude each other")
    return DequeueControl(
        msgid=_text_of(ctl.msgid) if by_msgid else None,
        corrid=names.correlation_id(ctl.corrid) if by_corrid else None,
        waits=bool(flags & TPQWAIT),
        peeks=bool(flags & TPQPEEK),
    )


def fill(ctl: TPQCTL, message: Message) -> None:
    """Put into the structure what its flags ask for and the message has; turn the flags off for what it has not.

    A priority it always has: 50 where its sender gave none.
    """
    found = {
        TPQPRIORITY: ("priority", message.priority),
        TPQMSGID: ("msgid", message.msgid.encode()),
        TPQCORRID: ("corrid", message.corrid),
        TPQREPLYQ: ("replyqueue", message.reply_queue),
        TPQFAILUREQ: ("failurequeue", message.failure_queue),
        TPQDELIVERYQOS: ("delivery_qos", message.delivery_asked and _QUALITY_NUMBERS[message.delivery_asked]),
        TPQREPLYQOS: ("reply_qos", message.reply_delivery and _QUALITY_NUMBERS[message.reply_delivery]),
    }
    for flag, (field, value) in found.items():
        if ctl.flags & flag:
            if value is None:
                ctl.flags &= ~flag
            else:
                setattr(ctl, field, value)
    ctl.urcode, ctl.appkey, ctl.cltid = message.urcode, message.appkey, message.client_id
    ctl.diagnostic = 0


def _checked(flags: object, allowed: int, call: str) -> int:
    if not isinstance(flags, int) or isinstance(flags, bool):
        raise InvalidArgumentError(f"the control flags must be a whole number, got {flags!r}")
    if flags & ~allowed:
        raise InvalidArgumentError(f"{call} has no control flags {_named(flags & ~allowed)}")
    for new, old in ((TPQGETBYMSGID, TPQGETBYMSGIDOLD), (TPQGETBYCORRID, TPQGETBYCORRIDOLD)):
        if flags & new and not flags & old:
            raise InvalidArgumentError(f"the control flag {flags & new:#x} is only a part of {new:#x}")
    return flags


def _named(flags: int) -> str:
    """Return the names of the flags that are set, and the number of what has no name."""
    found = [name for name, flag in _NAMED.items() if flags & flag == flag]
    for name in found:
        flags &= ~_NAMED[name]
    return " and ".join([*found, hex(flags)] if flags else found)


_NAMED: Final = {
    name: value
    for name, value in sorted(globals().items())
    if name.startswith("TPQ") and isinstance(value, int) and not name.startswith("TPQQOS") and not name.endswith("OLD")
}


def _text_of(msgid: object) -> str:
    """Return a message identifier as text, without the padding of its field."""
    if isinstance(msgid, str):
        return msgid.rstrip("\0 ")
    if isinstance(msgid, (bytes, bytearray, memoryview)):
        return bytes(msgid).rstrip(b"\0 ").decode("ascii", "replace")
    raise BadMessageIdError(f"a message identifier must be bytes or str, got {msgid!r}")


def _micros(seconds: object, what: str) -> int:
    whole(seconds, what, *LONG_RANGE)
    assert isinstance(seconds, int)  # noqa: S101 - checked above
    return seconds * MICROS


def _delivery(quality: object, what: str) -> Delivery:
    whole(quality, what, *LONG_RANGE)
    if quality not in _QUALITIES:
        known = "TPQQOSDEFAULTPERSIST, TPQQOSPERSISTENT or TPQQOSNONPERSISTENT"
        raise InvalidArgumentError(f"the {what} must be one of {known}, got {quality}")
    return _QUALITIES[quality]
