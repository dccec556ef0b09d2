"""Commands on queues."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmadmin.console import counted
from qmadmin.console.process import let_through
from qmadmin.console.results import Column, Field, Line, Moment, Notice, Outcome, Record, Table, Value, field, hidden
from qmadmin.monitoring import forwarding
from qmadmin.shell import notices, queue_parameters
from qmadmin.shell.declare import Confirmation, Group, Needs, Option, Positional
from qmadmin.shell.kinds import Given, QueueName, Span, Taken
from qmadmin.shell.spaces import missing_error_queue
from qmcore.queue import FOREVER, Delivery, Queue, QueueDefinition, QueueUsage

if TYPE_CHECKING:
    from qmadmin.monitoring.forwarding import Told
    from qmadmin.shell.session import Session
    from qmcore.attributes import Plain

QUEUES = Group("Queues", needs=Needs.OPEN_SPACE)


@QUEUES.command(
    "qcreate",
    *queue_parameters.QUEUE_OPTIONS,
    queue_parameters.GROUPING,
    queue_parameters.SEVERAL,
    Positional("queue_name", QueueName(), "Its name: 1 to 127 bytes.", "Queue name: "),
    queue_parameters.ORDER,
    *queue_parameters.POSITIONALS,
    short="qcr",
    failure=lambda _error, given, _session: notices.CREATION_FAILED(queue=given["queue_name"]),
)
def qcreate(session: Session, *, queue_name: str, **given: Any) -> Outcome:
    """Create a queue in the open queue space.

    The capacity command is run once when the use reaches the high limit, and again only after it has fallen to the low
    limit.

        qcreate service1 fifo none 2 30 80% 0% ""
        qcreate -e +60 orders priority top 5 60 90m 10m "mailme orders"
        qcreate -m news fifo none 0 0 100% 0% ""
    """
    space = session.opened()
    definition = QueueDefinition(name=queue_name, **queue_parameters.queue_fields(given))
    space.create_queue(definition)
    return [*_warnings(session, definition), Line(f"Queue '{queue_name}' created", {"queue": queue_name})]


def _warnings(session: Session, definition: QueueDefinition) -> list[Notice]:
    return [*_without_memory(session, definition), *_refused(session, definition)]


def _refused(session: Session, definition: QueueDefinition) -> list[Notice]:
    """Return a warning for each capacity command that does not run as this user."""
    return [
        Notice.warning(
            f"the capacity command {command!r} does not run as this user, as it may be another user's: {why}",
            "Name the device or the command in [capacity] of your settings, qmadmin.toml(5); so does each user whose"
            " programs enqueue.",
        )
        for command in definition.commands
        if (why := session.device.command_refusal(session.opened().name, command))
    ]


def _without_memory(session: Session, definition: QueueDefinition) -> list[Notice]:
    """Return a warning if a queue is for non-persistent messages and its queue space has no memory for them."""
    space = session.opened()
    if definition.delivery is not Delivery.NONPERSIST or space.definition.memory:
        return []
    text = f"queue space '{space.name}' has no memory for non-persistent messages: each enqueue will fail"
    return [Notice.warning(text, "The memory is given to qspacecreate with -n.")]


@QUEUES.command(
    "qchange",
    Positional("queue_name", QueueName(), "The queue to change.", "Queue name: "),
    *queue_parameters.changing_queue(),
)
def qchange(session: Session, *, queue_name: str, **given: Any) -> Outcome:
    """Change the parameters of a queue of the open queue space.

    An option that is left out, or an empty answer, leaves that parameter unchanged. The order of a queue,
    whether it groups messages, and whether it is for several consumers, cannot be changed. Messages on the queue keep
    their expiry. An empty pair of quotes removes a capacity command.

        qchange service1 none 5 60 90% 10% "mailme service1"
    """
    space = session.opened()
    new = dataclasses.replace(space.queue(queue_name).definition, **queue_parameters.queue_fields(given))
    space.change_queue(new)
    return [*_warnings(session, new), Line(f"Queue '{queue_name}' changed", {"queue": queue_name})]


@QUEUES.command(
    "qinfo",
    Positional("queue_name", Taken(), "The queue, or queue:consumer; without it, all queues."),
    shows_only=True,
)
def qinfo(session: Session, queue_name: str | None) -> Outcome:
    """Show what one queue or all queues of the open queue space contain.

    It shows the number of messages, how many of them are ready, delayed (not available yet), held by transactions and
    parked (put aside without a time), and the pages and bytes that they take. In verbose mode it also shows the
    parameters of the queue, its counters since it was created, and the processes that forward it. A warning names an
    error queue that has not been created.

        qinfo
        qinfo orders
    """
    space = session.opened()
    usages = space.usages() if queue_name is None else [(space.queue(queue_name), space.usage(queue_name))]
    missing = missing_error_queue(session) if queue_name is None else []
    if session.detailed:
        error_queue = space.definition.error_queue
        told = forwarding.by_queue(space.forwardings())
        return [*missing, *(_queue_record(found, use, error_queue, told.get(found.name, [])) for found, use in usages)]
    if not usages:
        return [*missing, Notice.info(f"queue space '{space.name}' has no queues")]
    return [
        *missing,
        Table(
            (
                Column("queue", "Queue"),
                Column("messages", "Messages", right=True),
                Column("ready", "Ready", right=True),
                Column("delayed", "Delayed", right=True),
                Column("held", "Held", right=True),
                Column("pages", "Pages", right=True),
                Column("bytes", "Bytes", right=True),
                Column("parked", "Parked", right=True),
            ),
            [
                (found.name, use.messages, use.ready, use.delayed, use.held, use.pages, use.size, use.parked)
                for found, use in usages
            ],
        ),
    ]


def _started(enabled: bool) -> str:
    return "started" if enabled else "stopped"


_SHOWN: Final[dict[str, tuple[str, Callable[[Any], str] | None]]] = {
    "order": ("Order", None),
    "out_of_order": ("Out-of-order", None),
    "retries": ("Retries", None),
    "retry_delay": ("Retry delay", "{} seconds".format),
    "retry_growth": ("Retry growth", None),
    "retry_factor": ("Retry factor", "{:g}".format),
    "retry_maximum": ("Retry maximum", lambda seconds: f"{seconds} seconds" if seconds else "none"),
    "retry_jitter": ("Retry jitter", "{:g}".format),
    "default_delay": ("Default delay", "{} seconds".format),
    "high": ("High limit", None),
    "low": ("Low limit", None),
    "command": ("Capacity command", None),
    "delivery": ("Delivery", None),
    "memory_high": ("Memory high limit", None),
    "memory_low": ("Memory low limit", None),
    "memory_command": ("Memory command", None),
    "expiration": ("Expiration", lambda seconds: "none" if seconds is None else f"+{seconds} seconds"),
    "error_queue": ("Error queue", None),
    "keep_expired": ("Expired messages", lambda kept: "go to the error queue" if kept else "are removed"),
    "grouping": ("Groups", lambda groups: "yes" if groups else "no"),
    "retention": ("Retention", lambda seconds: "forever" if seconds == FOREVER else f"{seconds} seconds"),
    "multiple_consumers": ("Several consumers", lambda several: "yes" if several else "no"),
    "enqueue_enabled": ("Enqueuing", _started),
    "dequeue_enabled": ("Dequeuing", _started),
}
"""The attributes in the order in which they are shown: the label of each, and what is shown in place of the value."""


def _attribute(name: str, value: Plain) -> Field:
    label, shown = _SHOWN[name]
    data = None if value in ("", FOREVER) else value
    return Field(label, shown(value) if shown else data, {_key(name): data})


def _key(name: str) -> str:
    return "groups" if name == "grouping" else name


def keys_of_attributes() -> list[str]:
    """Return the keys by which programs get the attributes of a queue from qinfo, in their order."""
    return [_key(name) for name in _SHOWN]


def _figures(label: str, form: str, use: QueueUsage) -> Field:
    """Return numbers in a sentence; programs get each number that the sentence names."""
    named = re.findall(r"{(\w+)}", form)
    return Field(
        label,
        form.format_map({name: getattr(use, name) for name in named}),
        {"bytes" if name == "size" else name: getattr(use, name) for name in named},
    )


def _queue_record(found: Queue, use: QueueUsage, error_queue: str, told: Sequence[Told]) -> Record:
    return Record(
        f"Queue '{found.name}'" + " (the error queue)" * (found.name == error_queue),
        (
            hidden(queue=found.name),
            _figures("Messages", "{messages}: {ready} ready, {delayed} delayed, {parked} parked, {held} held", use),
            _figures("Non-persistent", "{nonpersistent} of them, in {memory_pages} pages of memory", use),
            _figures("Space used", "{pages} pages, {size} bytes", use),
            field("first_message", "First message", None if use.first_us is None else Moment(use.first_us)),
            field("oldest_message", "Oldest message", None if use.oldest_us is None else Moment(use.oldest_us)),
            *(_attribute(name, found.attributes[name]) for name in _SHOWN),
            _figures("Since created", "{enqueued} enqueued, {dequeued} dequeued", use),
            _figures(
                "Lost or moved", "{expired} expired, {discarded} discarded, {moved} moved to the error queue", use
            ),
            *forwarding.fields(told),
        ),
    )


def _destruction(session: Session, given: Given) -> str:
    name = given["queue_name"]
    count = session.opened().usage(name).messages
    what = f"Destroy queue '{name}'" + (f" with {counted(count, 'message')}" if count else "")
    left = _schedules_of(session, name)
    return f"{what}, and leave {_in_words(left)} without a queue" if left else what


def _schedules_of(session: Session, queue_name: str) -> list[str]:
    """Return the names of the schedules whose messages go to a queue."""
    return [schedule.name for schedule in session.opened().schedules() if schedule.queue == queue_name]


def _in_words(schedules: list[str]) -> str:
    return f"schedule{'s' * (len(schedules) > 1)} {', '.join(map(repr, schedules))}"


@QUEUES.command(
    "qdestroy",
    Option("-p", "purge", "Purge its messages, and destroy it."),
    Option(
        "-f",
        "force",
        "Destroy it even if it holds messages or other processes have the queue space open, but not while a"
        " transaction holds one of the messages.",
        excludes="-p",
    ),
    Positional("queue_name", QueueName(), "The queue to destroy.", "Queue name: "),
    short="qds",
    confirm=Confirmation(
        _destruction,
        "Queue '{queue_name}' not destroyed",
        lambda session, given: session.opened().destroy_queue(
            given["queue_name"], purge=given["purge"], force=given["force"], dry_run=True
        ),
    ),
)
def qdestroy(session: Session, queue_name: str, purge: bool, force: bool) -> Outcome:
    """Destroy a queue of the open queue space.

    Without an option it is refused while the queue holds messages or another process has the queue space open. Its
    schedules stay, with a warning: no message of them is enqueued until there is a queue of that name again.

        qdestroy orders
        qdestroy -p -y orders
    """
    session.opened().destroy_queue(queue_name, purge=purge, force=force)
    session.forget_queue_if_gone()
    destroyed = Line(f"Queue '{queue_name}' destroyed", {"queue": queue_name})
    left = _schedules_of(session, queue_name)
    if not left:
        return destroyed
    warning = Notice.warning(
        f"no message of {_in_words(left)} can be enqueued without queue '{queue_name}'",
        "Create the queue again, name another one with qschedulechange -q, or delete it with qscheduledelete.",
    )
    return [destroyed, warning]


def _sides(what: str) -> tuple[Option, Option]:
    return (
        Option("-e", "enqueuing", f"Only {what} enqueuing."),
        Option("-d", "dequeuing", f"Only {what} dequeuing.", excludes="-e"),
    )


@QUEUES.command(
    "qstart",
    *_sides("start"),
    Positional("queue_name", QueueName(), "The queue to start.", "Queue name: "),
    extension=True,
)
def qstart(session: Session, queue_name: str, enqueuing: bool, dequeuing: bool) -> Outcome:
    """Start enqueuing on a queue and dequeuing from it again.

    Processes that wait for a message of the queue go on waiting.

        qstart orders
    """
    session.opened().start_queue(queue_name, enqueue=not dequeuing, dequeue=not enqueuing)
    return _switched(session, queue_name)


@QUEUES.command(
    "qstop",
    *_sides("stop"),
    Option(
        "-w seconds",
        "wait",
        "How many seconds to wait for transactions that hold a message of the queue; without it, the command is"
        " refused while there is one.",
        Span("seconds to wait"),
        0,
    ),
    Positional("queue_name", QueueName(), "The queue to stop.", "Queue name: "),
    extension=True,
)
def qstop(session: Session, queue_name: str, enqueuing: bool, dequeuing: bool, wait: int) -> Outcome:
    """Stop enqueuing on a queue and dequeuing from it, until qstart.

    Applications are refused with QMEBADQUEUE. Messages stay where they are, and messages that a transaction has already
    enqueued are still accepted when it commits.

        qstop orders
        qstop -e -w 30 orders
    """
    with let_through():
        session.opened().stop_queue(queue_name, enqueue=not dequeuing, dequeue=not enqueuing, wait=wait)
    return _switched(session, queue_name)


def _switched(session: Session, name: str) -> Line:
    found = session.opened().queue(name)
    enqueuing, dequeuing = _started(found.enqueue_enabled), _started(found.dequeue_enabled)
    data: dict[str, Value] = {
        "queue": name,
        "enqueue_enabled": found.enqueue_enabled,
        "dequeue_enabled": found.dequeue_enabled,
    }
    return Line(f"Queue '{name}': enqueuing is {enqueuing}, dequeuing is {dequeuing}", data)
