"""T_APPQ: queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from qmadmin.mib.common import QUEUE, STATE, addresses, opened
from qmadmin.mib.declare import Attribute, Flags, Kind, Mark, MibClass, Request
from qmadmin.mib.errors import blaming
from qmadmin.mib.values import NEVER, number, span, word, written_order
from qmcore import limits
from qmcore.errors import InUseError
from qmcore.limits import CapacityLimit, Threshold
from qmcore.limits import Unit as LimitUnit
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.queue import DELAY_MAX, RETRIES_MAX, Delivery, Queue, QueueDefinition, QueueUsage
from qmcore.times import MICROS

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.space import QueueSpace


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueSubject:
    """A queue, and what it holds."""

    device: Device
    space: str
    queue: Queue
    usage: QueueUsage

    @property
    def definition(self) -> QueueDefinition:
        """What is defined about it."""
        return self.queue.definition


def _look(device: Device, space: QueueSpace, queue: Queue) -> QueueSubject:
    return QueueSubject(device=device, space=space.name, queue=queue, usage=space.usage(queue.name))


def _select(request: Request) -> Iterator[QueueSubject]:
    wanted = request.keys.get("queue")
    with opened(request) as space:
        if wanted is not None:
            yield from (_look(request.device, space, queue) for queue in space.queues() if queue.name == wanted)
            return
        # At one moment: each of them may be destroyed at any time.
        for queue, usage in space.usages():
            yield QueueSubject(device=request.device, space=space.name, queue=queue, usage=usage)


# ---- what a SET does ------------------------------------------------------------------------------------------------


def _create(request: Request) -> QueueSubject:
    definition = _defined(QueueDefinition(name=request.keys["queue"]), request.changes)
    with opened(request) as space:
        return _look(request.device, space, space.create_queue(definition))


def _change(request: Request) -> QueueSubject:
    with opened(request) as space:
        present = space.queue(request.keys["queue"]).definition
        return _look(request.device, space, space.change_queue(_defined(present, request.changes)))


def _destroy(request: Request) -> None:
    with opened(request) as space:
        name = request.keys["queue"]
        try:
            space.destroy_queue(name, purge=Flags.QMIB_FORCEPURGE in request.flags)
        except InUseError as error:
            forced = "messages" in error.facts
            hint = f"Dequeue them, or force it with the flag {Flags.QMIB_FORCEPURGE.name}." if forced else ""
            raise InUseError(error.message, hint=hint, **error.facts) from error


def _defined(present: QueueDefinition, changes: Mapping[str, Any]) -> QueueDefinition:
    fields = dict(changes)
    fields["threshold"] = _threshold(fields, "", "TA_CMD", present.threshold, limits.PERSISTENT_UNITS)
    fields["memory_threshold"] = _threshold(
        fields, "memory_", "TA_CMDNONPERSIST", present.memory_threshold, limits.MEMORY_UNITS
    )
    return dataclasses.replace(present, **fields)


def _threshold(
    fields: dict[str, Any], prefix: str, attribute: str, present: Threshold, units: frozenset[LimitUnit]
) -> Threshold:
    """Take the parts of a threshold out of the fields; a part that is not among them stays as it is."""
    high, low, command = (fields.pop(f"{prefix}{part}", None) for part in ("high", "low", "command"))
    with blaming(f"{attribute}HW"):
        upper = present.high if high is None else limits.parse_high(high, units)
    with blaming(f"{attribute}LW"):
        if low is not None or present.low.value:
            lower = limits.parse_low(str(present.low) if low is None else low, upper)
        else:
            lower = CapacityLimit(0, upper.unit)
    return Threshold(upper, lower, present.command if command is None else command)


# ---- attributes -----------------------------------------------------------------------------------------------------


def _text(
    name: str,
    field: str,
    values: str,
    about: str,
    get: Callable[[QueueDefinition], str],
    read: Callable[[str], Any] = str,
) -> Attribute[QueueSubject]:
    return Attribute(
        name=name,
        kind=Kind.STRING,
        permissions="rw-r--r--",
        values=values,
        about=about,
        get=lambda subject: get(subject.definition),
        field=field,
        read=read,
    )


def _capacity(name: str, prefix: str, units: str, what: str) -> tuple[Attribute[QueueSubject], ...]:
    def threshold(definition: QueueDefinition) -> Threshold:
        return definition.memory_threshold if prefix else definition.threshold

    return (
        _text(
            name,
            f"{prefix}command",
            "0 to 127 bytes; default none",
            f"The command that runs when {what} reach the high limit.",
            lambda definition: threshold(definition).command,
        ),
        Attribute(
            name=f"{name}REFUSED",
            kind=Kind.STRING,
            permissions="r--r--r--",
            values="a text, or nothing",
            about="Why that command is not run as this user, see qmadmin.toml(5); empty if it is.",
            get=lambda subject: _refusal(subject, threshold(subject.definition).command),
        ),
        _text(
            f"{name}HW",
            f"{prefix}high",
            f"1 or more, with {units}; default 100%",
            "The high limit.",
            lambda definition: str(threshold(definition).high),
        ),
        _text(
            f"{name}LW",
            f"{prefix}low",
            "less than the high limit, in its unit, which may be left off; default 0",
            "The low limit: the command runs again only after the use has fallen to it.",
            lambda definition: str(threshold(definition).low),
        ),
    )


def _refusal(subject: QueueSubject, command: str) -> str:
    return subject.device.command_refusal(subject.space, command) if command else ""


def _count(name: str, about: str, get: Callable[[QueueSubject], int]) -> Attribute[QueueSubject]:
    return Attribute(name=name, kind=Kind.LONG, permissions="r--r--r--", values="0 or more", about=about, get=get)


def _age(name: str, about: str, since: Callable[[QueueUsage], int | None]) -> Attribute[QueueSubject]:
    def age(subject: QueueSubject) -> int:
        micros = since(subject.usage)
        return -1 if micros is None else max(0, subject.device.clock.now() - micros) // MICROS

    return Attribute(
        name=name, kind=Kind.LONG, permissions="r--r--r--", values="seconds, or -1 for none", about=about, get=age
    )


T_APPQ: MibClass[QueueSubject] = MibClass(
    name="T_APPQ",
    noun="queue",
    about="Queues of a queue space.",
    states={"VAL": "the queue exists"},
    meanings={
        "NEW": "create the queue",
        "INV": "destroy it; refused while another process is attached to the queue space, and while it holds messages,"
        " unless QMIB_FORCEPURGE",
    },
    select=_select,
    actions={"": _change, "NEW": _create, "INV": _destroy},
    destructive={"INV"},
    attributes=(
        Attribute(
            name=QUEUE,
            kind=Kind.STRING,
            permissions="ru-r--r--",
            values="1 to 127 bytes",
            about="The queue.",
            marks=Mark.KEY | Mark.SET_KEY | Mark.REQUIRED,
            get=lambda subject: subject.queue.name,
            field="queue",
        ),
        *addresses(
            lambda subject: subject.space,
            lambda subject: subject.device,
            marks=Mark.KEY | Mark.NEEDED | Mark.SET_KEY | Mark.REQUIRED,
        ),
        Attribute(
            name=STATE,
            kind=Kind.STRING,
            permissions="rw-r--r--",
            values="GET VAL; SET NEW, INV",
            about="The state.",
            get=lambda _subject: "VAL",
        ),
        _text(
            "TA_APPQORDER",
            "order",
            "a comma list of PRIO, TIME, EXPIR, and FIFO or LIFO last; default FIFO",
            "The order, which cannot be changed later.",
            lambda definition: written_order(definition.order),
            QueueOrder.parse,
        ),
        _text(
            "TA_DEFEXPIRATIONTIME",
            "expiration",
            "+seconds, NONE; default NONE",
            "When messages expire whose senders do not say.",
            lambda definition: NEVER if definition.expiration is None else f"+{definition.expiration}",
            span,
        ),
        _text(
            "TA_DEFDELIVERYPOLICY",
            "delivery",
            "PERSIST, NONPERSIST; default PERSIST",
            "Where messages are kept whose senders do not say.",
            lambda definition: definition.delivery.value.upper(),
            lambda text: Delivery(word("PERSIST", "NONPERSIST")(text).lower()),
        ),
        *_capacity("TA_CMD", "", "b, B, m or %", "persistent messages"),
        *_capacity("TA_CMDNONPERSIST", "memory_", "b, B or %", "non-persistent messages"),
        Attribute(
            name="TA_MAXRETRIES",
            kind=Kind.LONG,
            permissions="rw-r--r--",
            values="0 or more; default 0",
            about="How often a message may be rolled back and still return.",
            get=lambda subject: subject.definition.retries,
            field="retries",
            read=number("number of retries", 0, RETRIES_MAX),
        ),
        _text(
            "TA_OUTOFORDER",
            "out_of_order",
            "NONE, TOP, MSGID, or TOP,MSGID; default NONE",
            "Which exceptions to the order an enqueue may ask for.",
            lambda definition: str(definition.out_of_order).upper(),
            OutOfOrder.parse,
        ),
        Attribute(
            name="TA_RETRYDELAY",
            kind=Kind.LONG,
            permissions="rw-r--r--",
            values="0 or more seconds; default 0",
            about="How long a message is unavailable after a rollback.",
            get=lambda subject: subject.definition.retry_delay,
            field="retry_delay",
            read=number("retry delay in seconds", 0, DELAY_MAX),
        ),
        _count("TA_CURBLOCKS", "Pages on disk in use.", lambda subject: subject.usage.pages),
        _count(
            "TA_CURMSG", "Persistent messages.", lambda subject: subject.usage.messages - subject.usage.nonpersistent
        ),
        _count(
            "TA_CURNONPERSISTBYTES",
            "Bytes of memory in use.",
            lambda subject: subject.usage.memory_pages * subject.device.info.page_size,
        ),
        _count("TA_CURNONPERSISTMSG", "Non-persistent messages.", lambda subject: subject.usage.nonpersistent),
        _age(
            "TA_FIRSTMSGAGE",
            "How long ago the first message in order was enqueued.",
            lambda usage: usage.first_us,
        ),
        _age(
            "TA_OLDESTMSGAGE",
            "How long ago the oldest ready message was enqueued, if the order does not go by times.",
            lambda usage: usage.oldest_us,
        ),
    ),
)
