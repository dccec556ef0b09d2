"""T_APPQ: queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from qmadmin.mib.declare import (
    NEVER,
    QUEUE,
    Attribute,
    Flags,
    Mark,
    MibClass,
    Request,
    Subject,
    Value,
    ValueType,
    blaming,
    common,
    count,
    decimal,
    opened,
    span,
    undone,
    word,
    written_order,
)
from qmcore import limits
from qmcore.attributes import Plain, made, plain
from qmcore.backoff import FACTOR_MAX
from qmcore.errors import InUseError, in_other_words
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.queue import ATTRIBUTES, FIGURES, Queue, QueueDefinition, QueueUsage
from qmcore.times import MICROS
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.space import QueueSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSubject(Subject):
    """A queue, and its usage."""

    queue: Queue
    usage: QueueUsage

    @property
    def attributes(self) -> dict[str, Plain]:
        """Its attributes in their plain form."""
        return self.queue.attributes


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
        created = space.create_queue(definition)
        _switch(space, created.name, request.changes)
        return _look(request.device, space, space.queue(created.name))


def _change(request: Request) -> QueueSubject:
    """Start and stop it first, which can be undone."""
    with opened(request) as space:
        present = space.queue(request.keys["queue"])
        definition = _defined(present.definition, request.changes)

        def restore() -> None:
            switches = _SWITCHES & request.changes.keys()
            _switch(space, present.name, {name: present.attributes[name] for name in switches})

        with undone(restore):
            _switch(space, present.name, request.changes)
            return _look(request.device, space, space.change_queue(definition))


def _destroy(request: Request) -> None:
    with opened(request) as space:
        name = request.keys["queue"]
        try:
            space.destroy_queue(name, purge=Flags.QMIB_FORCEPURGE in request.flags)
        except InUseError as error:
            forced = error.messages > 0
            hint = f"Dequeue them, or force it with the flag {Flags.QMIB_FORCEPURGE.name}." if forced else ""
            raise in_other_words(error, hint=hint) from error


_SWITCHES: Final = {"enqueue_enabled", "dequeue_enabled"}


def _switch(space: QueueSpace, name: str, wanted: Mapping[str, Any]) -> None:
    # Stopping it may be refused; starting it never is.
    for switch, change in ((False, space.stop_queue), (True, space.start_queue)):
        sides = {side: wanted.get(f"{side}_enabled") is switch for side in ("enqueue", "dequeue")}
        if any(sides.values()):
            change(name, **sides)


def _defined(present: QueueDefinition, changes: Mapping[str, Any]) -> QueueDefinition:
    values = {**plain(present), **changes}
    for prefix, attribute, units in _LIMITS:
        high, low = f"{prefix}high", f"{prefix}low"
        with blaming(f"{attribute}HW"):
            upper = limits.parse_high(values[high], units if high in changes else limits.PERSISTENT_UNITS)
        if low not in changes and str(values[low])[:-1] == "0":
            # It is nothing in any unit.
            values[low] = f"0{upper.unit.value}"
        with blaming(f"{attribute}LW"):
            limits.parse_low(values[low], upper)
    return made(QueueDefinition, values)


_LIMITS: Final = (("", "TA_CMD", limits.PERSISTENT_UNITS), ("memory_", "TA_CMDNONPERSIST", limits.MEMORY_UNITS))


# ---- attributes -----------------------------------------------------------------------------------------------------


def _of(
    name: str,
    field: str,
    values: str,
    read: Callable[[Any], Any] | None = None,
    write: Callable[[Any], Value] | None = None,
) -> Attribute[QueueSubject]:
    """Return an attribute of a queue; `read` and `write` are between what is written and its plain form."""
    known = ATTRIBUTES[field]
    return Attribute(
        name=name,
        kind=ValueType.LONG if known.kind.plain_type is int and write is None else ValueType.STRING,
        permissions="rw-r--r--",
        values=values,
        about=known.about,
        get=lambda subject: (write or (lambda value: value))(subject.attributes[field]),
        field=field,
        read=read or known.kind.kept,
    )


def _switched(name: str, field: str, on: str, off: str, more: str = "") -> Attribute[QueueSubject]:
    return _of(
        name, field, f"{on}, {off}{more}", lambda text: word(on, off)(text) == on, lambda set_: on if set_ else off
    )


def _capacity(name: str, prefix: str, units: str) -> tuple[Attribute[QueueSubject], ...]:
    command = f"{prefix}command"
    return (
        _of(name, command, "0 to 127 bytes; default none"),
        Attribute(
            name=f"{name}REFUSED",
            values="a text, or nothing",
            about="Why that command is not run as this user, see qmadmin.toml(5); empty if it is.",
            get=lambda subject: _refusal(subject, str(subject.attributes[command])),
        ),
        _of(f"{name}HW", f"{prefix}high", f"1 or more, with {units}; default 100%"),
        _of(f"{name}LW", f"{prefix}low", "less than the high limit, in its unit, which may be omitted; default 0"),
    )


def _refusal(subject: QueueSubject, command: str) -> str:
    return subject.device.command_refusal(subject.space, command) if command else ""


def _age(name: str, about: str, since: str) -> Attribute[QueueSubject]:
    def age(subject: QueueSubject) -> int:
        micros: int | None = getattr(subject.usage, since)
        return -1 if micros is None else max(0, subject.device.clock.now() - micros) // MICROS

    return count(name, about, age, "seconds, or -1 for none")


_FIGURES: Final = {
    "TA_CURREADY": "ready",
    "TA_CURDELAYED": "delayed",
    "TA_CURPARKED": "parked",
    "TA_CURHELD": "held",
    "TA_CURBYTES": "size",
    "TA_NUMENQUEUED": "enqueued",
    "TA_NUMDEQUEUED": "dequeued",
    "TA_NUMEXPIRED": "expired",
    "TA_NUMDISCARDED": "discarded",
    "TA_NUMMOVED": "moved",
}

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
            permissions="ru-r--r--",
            values="1 to 127 bytes",
            about="The queue.",
            marks=Mark.KEY | Mark.SET_KEY | Mark.REQUIRED,
            get=lambda subject: subject.queue.name,
            field="queue",
        ),
        *common("GET VAL; SET NEW, INV", marks=Mark.KEY | Mark.NEEDED | Mark.SET_KEY | Mark.REQUIRED),
        _of(
            "TA_APPQORDER",
            "order",
            "a comma list of PRIO, TIME, EXPIR, and FIFO or LIFO last; default FIFO",
            lambda text: str(QueueOrder.parse(text)),
            written_order,
        ),
        _of(
            "TA_DEFEXPIRATIONTIME",
            "expiration",
            "+seconds, NONE; default NONE",
            span,
            lambda seconds: NEVER if seconds is None else f"+{seconds}",
        ),
        _of(
            "TA_DEFDELIVERYPOLICY",
            "delivery",
            "PERSIST, NONPERSIST; default PERSIST",
            lambda text: word("PERSIST", "NONPERSIST")(text).lower(),
            str.upper,
        ),
        *_capacity("TA_CMD", "", "b, B, m or %"),
        *_capacity("TA_CMDNONPERSIST", "memory_", "b, B or %"),
        _of("TA_MAXRETRIES", "retries", "0 or more; default 0"),
        _of(
            "TA_OUTOFORDER",
            "out_of_order",
            "NONE, TOP, MSGID, or TOP,MSGID; default NONE",
            lambda text: str(OutOfOrder.parse(text)),
            str.upper,
        ),
        _of("TA_RETRYDELAY", "retry_delay", "0 or more seconds; default 0"),
        _of(
            "TA_RETRYGROWTH",
            "retry_growth",
            "NONE, LINEAR, EXPONENTIAL; default NONE",
            lambda text: word("NONE", "LINEAR", "EXPONENTIAL")(text).lower(),
            str.upper,
        ),
        _of(
            "TA_RETRYFACTOR",
            "retry_factor",
            "1 to 100; default 2",
            decimal("retry factor", 1, FACTOR_MAX),
            "{:g}".format,
        ),
        _of("TA_RETRYMAXDELAY", "retry_maximum", "seconds, or 0 for no limit; default 0"),
        _of("TA_RETRYJITTER", "retry_jitter", "0 to 1; default 0", decimal("retry jitter", 0, 1), "{:g}".format),
        _of("TA_DEFDELAY", "default_delay", "0 or more seconds; default 0"),
        _of("TA_ERRORQNAME", "error_queue", "0 to 127 bytes; default none"),
        _switched("TA_KEEPEXPIRED", "keep_expired", "Y", "N", "; default N"),
        _switched("TA_GROUPING", "grouping", "Y", "N", "; default N"),
        _of("TA_RETENTION", "retention", "0 or more seconds, or -1 for ever; default 0"),
        _switched("TA_MULTICONSUMER", "multiple_consumers", "Y", "N", "; default N"),
        _switched("TA_ENQUEUING", "enqueue_enabled", "STARTED", "STOPPED", "; default STARTED"),
        _switched(
            "TA_DEQUEUING",
            "dequeue_enabled",
            "STARTED",
            "STOPPED",
            ", which is refused while a transaction holds a message of the queue; default STARTED",
        ),
        count("TA_CURBLOCKS", "Pages on disk in use.", lambda subject: subject.usage.pages),
        count(
            "TA_CURMSG", "Persistent messages.", lambda subject: subject.usage.messages - subject.usage.nonpersistent
        ),
        count(
            "TA_CURNONPERSISTBYTES",
            "Bytes of memory in use.",
            lambda subject: subject.usage.memory_pages * subject.device.info.page_size,
        ),
        count("TA_CURNONPERSISTMSG", "Non-persistent messages.", lambda subject: subject.usage.nonpersistent),
        *(count(name, FIGURES[of].about, attrgetter(f"usage.{of}")) for name, of in _FIGURES.items()),
        _age("TA_FIRSTMSGAGE", "How long ago the first message in order was enqueued.", "first_us"),
        _age(
            "TA_OLDESTMSGAGE",
            "How long ago the oldest ready message was enqueued, if the order does not depend on times.",
            "oldest_us",
        ),
    ),
)
