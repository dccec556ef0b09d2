"""TPQCTL, the control structure of ATMI's queue calls, its flags, and what they mean to the engine."""

from __future__ import annotations

import dataclasses
from typing import Final, TypeVar

from qmadmin.atmi.errno import Value
from qmcore import names
from qmcore.checks import buffer_of, check_int, index_of
from qmcore.errors import BadMessageIdError, InvalidArgumentError
from qmcore.message import PRIORITY_DEFAULT, EnqueueControl, Message
from qmcore.queue import Delivery
from qmcore.times import MICROS
from qmcore.values import dataclass

T = TypeVar("T")

TPNOFLAGS: Final = Value(0x00000, both="Nothing is asked for.")
TPQCORRID: Final = Value(
    0x00001,
    enqueue="`corrid` is the correlation identifier of the message.",
    dequeue="Asks for the correlation identifier in `corrid`.",
    keyword="corrid",
)
TPQFAILUREQ: Final = Value(
    0x00002,
    enqueue="`failurequeue` is the queue for a message about a failure.",
    dequeue="Asks for the name of the failure queue in `failurequeue`.",
    keyword="failure_queue",
)
TPQBEFOREMSGID: Final = Value(
    0x00004,
    enqueue="Puts the message directly before the message `msgid`; several before the same one are in the order of"
    " their arrival. The queue must allow it (otherwise QMEINVAL), and the other message must exist (otherwise"
    " QMEBADMSGID).",
    keyword="before",
)
TPQGETBYMSGIDOLD: Final = Value(0x00008, dequeue="TPQGETBYMSGID as in programs for older releases.")
TPQMSGID: Final = Value(
    0x00010, enqueue="Asks for the identifier of the message in `msgid`.", dequeue="Asks for the identifier in `msgid`."
)
TPQPRIORITY: Final = Value(
    0x00020,
    enqueue="`priority` is the priority of the message. Without the flag it is 50.",
    dequeue="Asks for the priority in `priority`; it is 50 if the sender gave none.",
    keyword="priority",
)
TPQTOP: Final = Value(
    0x00040,
    enqueue="Puts the message before all others in the queue; the last one put on top is the first to be dequeued. The"
    " queue must allow it (otherwise QMEINVAL).",
    keyword="top",
)
TPQWAIT: Final = Value(
    0x00080,
    dequeue="Waits for a message if there is none, until the timeout of the transaction or, outside a transaction, that"
    " of tpinit(), by default 30 seconds; then the call fails with TPETIME. A further wait of the same process"
    " takes an action of the queue space; if none is free, the call fails with QMESYSTEM.",
    keyword="wait",
)
TPQREPLYQ: Final = Value(
    0x00100,
    enqueue="`replyqueue` is the queue for the reply.",
    dequeue="Asks for the name of the reply queue in `replyqueue`.",
    keyword="reply_queue",
)
TPQTIME_ABS: Final = Value(
    0x00200, enqueue="The message can be dequeued from the time `deq_time` on.", keyword="available_at"
)
TPQTIME_REL: Final = Value(
    0x00400,
    enqueue="The message can be dequeued `deq_time` seconds after the enqueue, in a transaction after the commit.",
    keyword="delay",
)
TPQGETBYCORRIDOLD: Final = Value(0x00800, dequeue="TPQGETBYCORRID as in programs for older releases.")
TPQPEEK: Final = Value(
    0x01000, dequeue="Returns the message and leaves it where it is. It requires TPNOTRAN (otherwise QMEINVAL)."
)
TPQDELIVERYQOS: Final = Value(
    0x02000,
    enqueue="`delivery_qos` says whether the message is persistent. Without the flag the queue says so.",
    dequeue="Asks for the value that the sender gave in `delivery_qos`.",
    keyword="persistent",
)
TPQREPLYQOS: Final = Value(
    0x04000,
    enqueue="`reply_qos` says whether the reply is to be persistent.",
    dequeue="Asks for the value that the sender gave in `reply_qos`, which the reply should have.",
    keyword="reply_persistent",
)
TPQEXPTIME_ABS: Final = Value(
    0x08000,
    enqueue="The message is removed at the time `exp_time`, even if it could not be dequeued before.",
    keyword="expires_at",
)
TPQEXPTIME_REL: Final = Value(
    0x10000,
    enqueue="The message is removed `exp_time` seconds after the enqueue, in a transaction after the commit.",
    keyword="expires_in",
)
TPQEXPTIME_NONE: Final = Value(
    0x20000, enqueue="The message never expires, even if the queue has a default expiration time.", keyword="expires_in"
)
TPQGETBYMSGID: Final = Value(0x40008, dequeue="Dequeues the message `msgid`.", keyword="msgid")
TPQGETBYCORRID: Final = Value(
    0x80800, dequeue="Dequeues the first message with the correlation identifier `corrid`.", keyword="corrid"
)

TPQQOSDEFAULTPERSIST: Final = Value(1, both="As the queue says.")
TPQQOSPERSISTENT: Final = Value(2, both="Persistent: on the disk; it survives a restart.")
TPQQOSNONPERSISTENT: Final = Value(4, both="Non-persistent: in memory; it is lost when the machine restarts.")

TMQNAMELEN: Final = names.QUEUE_NAME_MAX
TMMSGIDLEN: Final = 32
TMCORRIDLEN: Final = names.CORRELATION_ID_MAX

__all__ = [
    "TMCORRIDLEN", "TMMSGIDLEN", "TMQNAMELEN", "TPNOFLAGS", "TPQBEFOREMSGID", "TPQCORRID", "TPQCTL", "TPQDELIVERYQOS",
    "TPQEXPTIME_ABS", "TPQEXPTIME_NONE", "TPQEXPTIME_REL", "TPQFAILUREQ", "TPQGETBYCORRID", "TPQGETBYCORRIDOLD",
    "TPQGETBYMSGID", "TPQGETBYMSGIDOLD", "TPQMSGID", "TPQPEEK", "TPQPRIORITY", "TPQQOSDEFAULTPERSIST",
    "TPQQOSNONPERSISTENT", "TPQQOSPERSISTENT", "TPQREPLYQ", "TPQREPLYQOS", "TPQTIME_ABS", "TPQTIME_REL", "TPQTOP",
    "TPQWAIT", "TPTRANID",
]  # fmt: skip

_TRAVELS = TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQMSGID | TPQPRIORITY | TPQDELIVERYQOS | TPQREPLYQOS
"""Attributes that an enqueue may set and a dequeue may ask for."""

_EXPIRIES = TPQEXPTIME_ABS | TPQEXPTIME_REL | TPQEXPTIME_NONE
_ONLY_ENQUEUE = TPQTOP | TPQBEFOREMSGID | TPQTIME_ABS | TPQTIME_REL | _EXPIRIES
_ONLY_DEQUEUE = TPQGETBYMSGID | TPQGETBYCORRID | TPQWAIT | TPQPEEK
_EXCLUSIVE = (TPQTIME_ABS | TPQTIME_REL, TPQTOP | TPQBEFOREMSGID, _EXPIRIES)
LONG_RANGE: Final = (-(2**63), 2**63 - 1)
"""The range of a long in C."""

_QUALITIES: Final[dict[int, Delivery]] = {
    TPQQOSDEFAULTPERSIST: Delivery.DEFAULT,
    TPQQOSPERSISTENT: Delivery.PERSIST,
    TPQQOSNONPERSISTENT: Delivery.NONPERSIST,
}
_QUALITY_NUMBERS: Final = {delivery: number for number, delivery in _QUALITIES.items()}


def _field(default: T, allowed: str, help: str) -> T:  # noqa: A002 - as the settings name it
    value: T = dataclasses.field(default=default, metadata={"allowed": allowed, "help": help})
    return value


@dataclasses.dataclass
class TPQCTL:
    """The control structure of a queue call; `flags` says which of the other fields are set.

    Times are seconds: `deq_time` and `exp_time` count from the end of the enqueue, in a transaction from its commit, or
    with the _ABS flags from 1970; a dequeue does not return them. `msgid` and `corrid` are bytes or str on input, with
    or without the NULs that fill their 32 bytes, which are not part of the value; on output they are bytes without
    them. `urcode` needs no flag. `cltid` and `appkey` are output only and identify the sender, see tpinit(); `type` and
    `subtype` are output only too, those of the message's buffer. `diagnostic` is the QME number after a call that
    failed with TPEDIAGNOSTIC, and 0 after any other.
    """

    flags: int = _field(
        TPNOFLAGS,
        "the flags below",
        "Which of the other fields are set, and what is asked for. On return, flags for which the message has"
        " nothing are off.",
    )
    deq_time: int = _field(
        0,
        "seconds; absolute: since 1970, UTC",
        "The time from which the message can be dequeued, or the seconds until then; see TPQTIME_ABS and "
        "TPQTIME_REL. It is not returned.",
    )
    priority: int = _field(
        PRIORITY_DEFAULT, "1 to 100", "The priority. In a queue that is ordered by priority, higher ones come first."
    )
    diagnostic: int = _field(
        0, "output", "The QME number after a call that failed with TPEDIAGNOSTIC, 0 after any other."
    )
    msgid: bytes | str = _field(
        b"",
        "32 bytes",
        "The identifier of the message, or of another one that a flag refers to. It is opaque: compare"
        " identifiers only for equality.",
    )
    corrid: bytes | str = _field(
        b"",
        "at most 32 bytes",
        "The correlation identifier, by which a reply finds its request. NULs at its end are padding.",
    )
    replyqueue: str = _field("", "at most 127 bytes", "The queue for the reply. It need not exist.")
    failurequeue: str = _field("", "at most 127 bytes", "The queue for a message about a failure. It need not exist.")
    cltid: str = _field("", "output", "The client that sent the message; see tpinit().")
    urcode: int = _field(
        0,
        "64 bits, signed",
        "The user return code, a number for the program that dequeues the message. It needs no flag.",
    )
    appkey: int = _field(0, "output", "The application key of the client that sent the message; see tpinit().")
    delivery_qos: int = _field(0, "TPQQOS values", "Whether the message is persistent.")
    reply_qos: int = _field(0, "TPQQOS values", "Whether the reply is to be persistent.")
    exp_time: int = _field(
        0,
        "seconds; absolute: since 1970, UTC",
        "The time at which the message is removed, or the seconds until then; see TPQEXPTIME_ABS and "
        "TPQEXPTIME_REL. It is not returned.",
    )
    type: str = _field(
        "", "output", "The type of the message's buffer, such as STRING or CARRAY, as tptypes() would return it."
    )
    subtype: str = _field("", "output", "The subtype of the message's buffer, empty for none.")


@dataclass(frozen=True, slots=True)
class TPTRANID:
    """The identifier of a suspended transaction, as tpsuspend() returns it.

    Another process gets it pickled, as `str(tranid)`, or as `bytes(tranid)`; tpresume() takes each of them. They are of
    36 bytes, and 33 more for each queue space that the transaction has used.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    def __bytes__(self) -> bytes:
        return self.text.encode()


def enqueue_control(ctl: TPQCTL, kind: str, *, client: str, appkey: int, priority: int | None = None) -> EnqueueControl:
    """Return what the flags ask of an enqueue by this client; conflicting or unsupported flags are refused.

    Fields without their flag are ignored. `kind` is the type, with a subtype after a colon if any; `priority` is that
    of a message whose flags set none.
    """
    ctl.flags = flags = _checked(ctl.flags, _TRAVELS | _ONLY_ENQUEUE, "tpenqueue")
    for group in _EXCLUSIVE:
        if (flags & group).bit_count() > 1:
            raise InvalidArgumentError(f"{_named(flags & group)} exclude each other")
    type_name, _, subtype = kind.partition(":")
    available = _micros(ctl.deq_time, "deq_time") if flags & (TPQTIME_ABS | TPQTIME_REL) else 0
    expires = _micros(ctl.exp_time, "exp_time") if flags & (TPQEXPTIME_ABS | TPQEXPTIME_REL) else 0
    return EnqueueControl(
        priority=ctl.priority if flags & TPQPRIORITY else priority or PRIORITY_DEFAULT,
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
        type=type_name,
        subtype=subtype,
        top=bool(flags & TPQTOP),
        before=_text_of(ctl.msgid) if flags & TPQBEFOREMSGID else None,
    )


@dataclass(frozen=True, slots=True)
class DequeueControl:
    """What the flags ask of a dequeue: at most one identifier, whether to wait, and whether only to peek."""

    msgid: str | None
    corrid: bytes | None
    waits: bool
    peeks: bool


def dequeue_control(ctl: TPQCTL) -> DequeueControl:
    """Return what the flags ask of a dequeue; those that apply to an enqueue only are turned off."""
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
    """Set the fields that the flags ask for and the message has; turn off the flags of the others.

    It always has a priority: 50 if its sender gave none.
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
    ctl.type, ctl.subtype = message.type, message.subtype
    ctl.diagnostic = 0


def _checked(given: object, allowed: int, call: str) -> int:
    """Return the flags, given as any type of whole number."""
    flags = given if isinstance(given, int) else index_of(given)
    if flags is None or isinstance(flags, bool):
        raise InvalidArgumentError(f"the control flags must be a whole number, got {given!r}")
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
    found = buffer_of(msgid)
    if found is None:
        raise BadMessageIdError(f"a message identifier must be bytes or str, got {msgid!r}")
    return bytes(found).rstrip(b"\0 ").decode("ascii", "replace")


def _micros(seconds: object, what: str) -> int:
    return check_int(seconds, what, *LONG_RANGE) * MICROS


def _delivery(quality: object, what: str) -> Delivery:
    number = check_int(quality, what, *LONG_RANGE)
    if number not in _QUALITIES:
        known = "TPQQOSDEFAULTPERSIST, TPQQOSPERSISTENT or TPQQOSNONPERSISTENT"
        raise InvalidArgumentError(f"the {what} must be one of {known}, got {quality}")
    return _QUALITIES[number]
