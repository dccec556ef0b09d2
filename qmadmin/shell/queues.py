"""Commands on queues, and on the selection of messages."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from qmadmin.shell import notices
from qmadmin.shell.declare import Confirmation, Group, Needs, Option, Positional
from qmadmin.shell.kinds import (
    CapacityCommand,
    Choice,
    Exceptions,
    Expiration,
    Given,
    HighLimit,
    LowLimit,
    MemoryThreshold,
    Number,
    Order,
    QueueName,
    Retention,
)
from qmadmin.shell.results import Column, Field, Line, Moment, Notice, Outcome, Record, Severity, Table, Value, field
from qmadmin.shell.spaces import missing_error_queue
from qmcore import queue
from qmcore.limits import CapacityLimit, Threshold
from qmcore.queue import KEPT, Delivery, Queue, QueueDefinition, QueueUsage

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmcore.errors import QueueError
    from qmcore.message import MessageInfo
    from qmcore.order import OutOfOrder, QueueOrder

QUEUES = Group("Queues")
DELIVERY = Choice("delivery policy", tuple(delivery.value for delivery in KEPT))


def _creation_failed(error: QueueError, given: Given, session: Session) -> Notice:  # noqa: ARG001 - the form is fixed
    return notices.CREATION_FAILED(queue=given["queue_name"])


@QUEUES.command(
    "qcreate",
    Option(
        "-d",
        "delivery",
        "Where messages that do not say it themselves are kept: on disk (persist, the default), or in memory that is"
        " lost on restart (nonpersist).",
        DELIVERY,
        "persist|nonpersist",
        "persist",
    ),
    Option(
        "-n",
        "memory_threshold",
        "The capacity limits and the command for non-persistent messages: like high, low and cmd, in bytes (b), blocks"
        " (B) or percent (%), with commas between.",
        MemoryThreshold(),
        "nhigh,nlow,ncmd",
    ),
    Option(
        "-e",
        "expiration",
        "When messages that do not say it themselves expire: so many seconds after they were enqueued (+seconds), or"
        " never (none, the default).",
        Expiration(),
        "default_relative_expiration_time",
    ),
    Option(
        "-E",
        "error_queue",
        "The error queue of its messages, instead of that of the queue space.",
        QueueName(),
        "errorq",
        "",
        extension=True,
    ),
    Option(
        "-x",
        "keep_expired",
        "Messages that expire go to the error queue instead of being removed.",
        default=False,
        extension=True,
    ),
    Option(
        "-g",
        "grouping",
        "The messages of one transaction stay together: one consumer at a time gets them. It cannot be changed later.",
        default=False,
        extension=True,
    ),
    Option(
        "-R",
        "retention",
        "How many seconds messages are kept for the record after they were consumed, or forever.",
        Retention(),
        "seconds|forever",
        0,
        extension=True,
    ),
    Positional("queue_name", QueueName(), "Its name: 1 to 127 bytes.", "Queue name: "),
    Positional(
        "qorder",
        Order(),
        "What messages are dequeued by, most significant first, with commas between: priority, time, expiration, and"
        " at the end fifo or lifo. It cannot be changed later.",
        "Queue order (priority, time, fifo, lifo): ",
        default="fifo",
        notice="Default queue order is {default}",
    ),
    Positional(
        "out_of_order",
        Exceptions(),
        "Which exceptions from the order an enqueue may ask for: none, or top (before all others), msgid (before a"
        " certain message), or both with a comma between.",
        "Out-of-ordering enqueueing (top, msgid, [default=none]): ",
        default="none",
        notice="Default out-of-ordering enqueueing is {default}",
        metavar="out-of-order",
    ),
    Positional(
        "retries",
        Number("number of retries", most=queue.RETRIES_MAX),
        "How often a message may be dequeued and rolled back and still return. Then it goes to the error queue.",
        "Retries [default=0]: ",
        default="0",
        notice="Default number of retries is {default}",
    ),
    Positional(
        "delay",
        Number("retry delay", most=queue.DELAY_MAX, not_numeric=notices.DELAY_NOT_NUMERIC),
        "How many seconds a message that was rolled back is not available.",
        "Retry delay in seconds [default=0]: ",
        default="0",
        notice="Default retry delay is {default} seconds",
    ),
    Positional(
        "high",
        HighLimit(),
        "The use of the queue at which the capacity command is run: a number of bytes (b), blocks (B), messages (m), or"
        " percent of the queue space (%).",
        "High limit for queue capacity warning (b for bytes used, B for blocks used,\n"
        "% for percent used, m for messages [default=100%]): ",
        default="100%",
        notice="Default high limit for queue capacity warning is {default}",
    ),
    Positional(
        "low",
        LowLimit(),
        "The use that must be reached before the command is run again, in the unit of the high limit.",
        "Reset (low) limit for queue capacity warning [default={default}]: ",
        default=lambda given: f"0{given['high'].unit.value}",
        notice="Default low limit for queue capacity warning is {default}",
    ),
    Positional(
        "cmd",
        CapacityCommand(),
        "The shell command that is run at the high limit: at most 127 bytes.",
        "Queue capacity command: ",
        default="",
        notice="No default queue capacity command",
    ),
    short="qcr",
    needs=Needs.OPEN_SPACE,
    failure=_creation_failed,
)
def qcreate(
    session: Session,
    *,
    queue_name: str,
    qorder: QueueOrder,
    out_of_order: OutOfOrder,
    retries: int,
    delay: int,
    high: CapacityLimit,
    low: CapacityLimit,
    cmd: str,
    delivery: str,
    memory_threshold: Threshold | None,
    expiration: int | None,
    error_queue: str,
    keep_expired: bool,
    grouping: bool,
    retention: int,
) -> Outcome:
    """Create a queue in the open queue space.

    The capacity command is for the high limit, once, and again only after the use has been down at the low limit.

        qcreate service1 fifo none 2 30 80% 0% ""
        qcreate -e +60 orders priority top 5 60 90m 10m "mailme orders"
    """
    space = session.opened()
    definition = QueueDefinition(
        name=queue_name,
        order=qorder,
        out_of_order=out_of_order,
        retries=retries,
        retry_delay=delay,
        threshold=Threshold(high, low, cmd),
        memory_threshold=memory_threshold or Threshold.none(),
        delivery=Delivery(delivery),
        expiration=expiration,
        error_queue=error_queue,
        keep_expired=keep_expired,
        grouping=grouping,
        retention=retention,
    )
    space.create_queue(definition)
    created = Line(f"Queue '{queue_name}' created")
    if definition.delivery is Delivery.NONPERSIST and space.definition.memory == 0:
        text = f"queue space '{space.name}' has no memory for non-persistent messages: each enqueue will fail"
        return [Notice(Severity.WARN, text, "The memory is given to qspacecreate with -n."), created]
    return created


@QUEUES.command(
    "qinfo",
    Positional("queue_name", QueueName(), "The queue; all where it is left out."),
    needs=Needs.OPEN_SPACE,
)
def qinfo(session: Session, queue_name: str | None) -> Outcome:
    """Show what one queue or all queues of the open queue space hold.

    The number of messages, how many of them are ready, delayed (not available yet) and held by transactions, and the
    pages of the device and bytes that they take. In verbose mode also the parameters of the queue, and what went
    through it since it was created. A queue that is named as error queue but not created is warned about.
    """
    space = session.opened()
    queues = space.queues() if queue_name is None else [space.queue(queue_name)]
    missing = missing_error_queue(session) if queue_name is None else []
    if session.detailed:
        error_queue = space.definition.error_queue
        return [*missing, *(_queue_record(found, space.usage(found.name), error_queue) for found in queues)]
    if not queues:
        return [*missing, Notice(Severity.INFO, f"queue space '{space.name}' has no queues")]
    usages = [(found.name, space.usage(found.name)) for found in queues]
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
            ),
            [(name, use.messages, use.ready, use.delayed, use.held, use.pages, use.size) for name, use in usages],
        ),
    ]


def _queue_record(found: Queue, use: QueueUsage, error_queue: str) -> Record:
    d = found.definition
    return Record(
        f"Queue '{found.name}'" + " (the error queue)" * (found.name == error_queue),
        (
            Field("", None, {"queue": found.name}),
            Field(
                "Messages",
                f"{use.messages}: {use.ready} ready, {use.delayed} delayed, {use.held} held",
                {"messages": use.messages, "ready": use.ready, "delayed": use.delayed, "held": use.held},
            ),
            Field(
                "Non-persistent",
                f"{use.nonpersistent} of them, in {use.memory_pages} pages of memory",
                {"nonpersistent": use.nonpersistent, "memory_pages": use.memory_pages},
            ),
            Field("Space used", f"{use.pages} pages, {use.size} bytes", {"pages": use.pages, "bytes": use.size}),
            field("first_message", "First message", None if use.first_us is None else Moment(use.first_us)),
            field("order", "Order", str(d.order)),
            field("out_of_order", "Out-of-order", str(d.out_of_order)),
            field("retries", "Retries", d.retries),
            Field("Retry delay", f"{d.retry_delay} seconds", {"retry_delay": d.retry_delay}),
            field("high", "High limit", str(d.threshold.high)),
            field("low", "Low limit", str(d.threshold.low)),
            field("command", "Capacity command", d.threshold.command or None),
            field("delivery", "Delivery", d.delivery.value),
            field("memory_high", "Memory high limit", str(d.memory_threshold.high)),
            field("memory_low", "Memory low limit", str(d.memory_threshold.low)),
            field("memory_command", "Memory command", d.memory_threshold.command or None),
            Field(
                "Expiration",
                "none" if d.expiration is None else f"+{d.expiration} seconds",
                {"expiration": d.expiration},
            ),
            field("error_queue", "Error queue", d.error_queue or None),
            Field(
                "Expired messages",
                "go to the error queue" if d.keep_expired else "are removed",
                {"keep_expired": d.keep_expired},
            ),
            Field("Groups", "yes" if d.grouping else "no", {"groups": d.grouping}),
            Field(
                "Retention",
                "forever" if d.retention == queue.FOREVER else f"{d.retention} seconds",
                {"retention": None if d.retention == queue.FOREVER else d.retention},
            ),
            Field("Enqueuing", _started(found.enqueue_enabled), {"enqueue_enabled": found.enqueue_enabled}),
            Field("Dequeuing", _started(found.dequeue_enabled), {"dequeue_enabled": found.dequeue_enabled}),
            Field(
                "Since created",
                f"{use.enqueued} enqueued, {use.dequeued} dequeued",
                {"enqueued": use.enqueued, "dequeued": use.dequeued},
            ),
            Field(
                "Lost or moved",
                f"{use.expired} expired, {use.discarded} discarded, {use.moved} moved to the error queue",
                {"expired": use.expired, "discarded": use.discarded, "moved": use.moved},
            ),
        ),
    )


def _started(enabled: bool) -> str:
    return "started" if enabled else "stopped"


@QUEUES.command(
    "qset",
    Positional("queue_name", QueueName(), "The queue that becomes the current one."),
    needs=Needs.OPEN_SPACE,
)
def qset(session: Session, queue_name: str | None) -> Outcome:
    """Set or print the current queue.

    The current queue is the one whose messages qlist lists. It is forgotten when a queue space is opened or closed.
    """
    if queue_name is not None:
        session.queue = session.opened().queue(queue_name).name
    return Line(f"Current queue is '{session.chosen()}'")


@QUEUES.command("qlist", short="ql", needs=Needs.OPEN_SPACE | Needs.CURRENT_QUEUE)
def qlist(session: Session) -> Outcome:
    """List the messages of the current queue, in the order in which they will be dequeued.

    The message identifier, priority, retries so far, size in bytes, delivery, reply delivery where one is set, whether
    the message is ready, delayed or held by a transaction, and when it becomes available and expires, where that is
    set. In verbose mode also the correlation identifier and the time of the enqueue.
    """
    name = session.chosen()
    messages = session.opened().messages(name)
    first = next(messages, None)
    if first is None:
        return notices.NO_MESSAGES_MATCHED(queue=name)
    columns = [
        Column("msgid", "Message id"),
        Column("priority", "Prio", right=True),
        Column("retries", "Retries", right=True),
        Column("bytes", "Bytes", right=True),
        Column("delivery", "Delivery"),
        Column("reply_delivery", "Reply"),
        Column("state", "State"),
        Column("available", "Available"),
        Column("expires", "Expires"),
    ]
    verbose = session.detailed
    if verbose:
        columns += [Column("corrid", "Correlation id"), Column("enqueued", "Enqueued")]
    rows = (_message_row(message, verbose=verbose) for message in itertools.chain([first], messages))
    return Table(tuple(columns), rows)


def _message_row(message: MessageInfo, *, verbose: bool) -> list[Value]:
    row: list[Value] = [
        message.msgid,
        message.priority,
        message.retries,
        message.size,
        message.delivery.value,
        message.reply_delivery.value if message.reply_delivery else None,
        message.state.value,
        None if message.available_us is None else Moment(message.available_us),
        None if message.expires_us is None else Moment(message.expires_us),
    ]
    if verbose:
        row += [None if message.corrid is None else escaped(message.corrid), Moment(message.enqueued_us)]
    return row


def escaped(identifier: bytes) -> str:
    r"""Return an identifier as qmadmin(1) writes it: what cannot be printed, blanks and backslashes as `\xx`."""
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x5C else f"\\{byte:02x}" for byte in identifier)


def _destruction(session: Session, given: Given) -> str:
    name = given["queue_name"]
    count = session.opened().usage(name).messages
    if count == 0:
        return f"Destroy queue '{name}'"
    return f"Destroy queue '{name}' with {count} message{'' if count == 1 else 's'}"


@QUEUES.command(
    "qdestroy",
    Option("-p", "purge", "Also if it holds messages; they are purged.", default=False),
    Option(
        "-f",
        "force",
        "Also if it holds messages, and other processes have the queue space open. A message that a transaction holds"
        " prevents it even so.",
        default=False,
        excludes="-p",
    ),
    Positional("queue_name", QueueName(), "The queue to destroy.", "Queue name: "),
    short="qds",
    needs=Needs.OPEN_SPACE,
    confirm=Confirmation(_destruction, "Queue '{queue_name}' not destroyed"),
)
def qdestroy(session: Session, queue_name: str, purge: bool, force: bool) -> Outcome:
    """Destroy a queue of the open queue space.

    Without an option it is refused while the queue holds messages or another process has the queue space open.
    """
    session.opened().destroy_queue(queue_name, purge=purge, force=force)
    if session.queue == queue_name:
        session.queue = None
    return Line(f"Queue '{queue_name}' destroyed")
