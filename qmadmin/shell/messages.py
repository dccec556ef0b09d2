"""Commands on the selected messages of the current queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from qmadmin.audit import act
from qmadmin.console import counted
from qmadmin.console.results import Entry, Line, Notice, Outcome, Value
from qmadmin.shell import notices
from qmadmin.shell.declare import Confirmation, Needs, Option, Positional
from qmadmin.shell.kinds import Given, Number, QueueName, Taken
from qmadmin.shell.listing import MESSAGES, WHERE, MessageId, When, WhenOrNone
from qmadmin.shell.notices import UsageError
from qmadmin.shell.session import Criteria, Session
from qmcore import times
from qmcore.acts.manage_messages import CHANGEABLE
from qmcore.message import PRIORITY_RANGE, State

if TYPE_CHECKING:
    from qmcore.condition import Condition
    from qmcore.queue import Delivery

_SELECTED = Needs.OPEN_SPACE | Needs.CURRENT_QUEUE


def number(count: int) -> str:
    """Return a number of messages in words."""
    return counted(count, "message")


def _about(what: Callable[[Given], str], none: Entry, operation: str) -> Callable[[Session, Given], str | Notice]:
    """Return the action of a confirmation: how many messages the command affects, put into `what`."""

    def action(session: Session, given: Given) -> str | Notice:
        name = session.chosen()
        count = session.opened().count(name, **_asked(session))
        if not count:
            _refuse_held(session, name, session.criteria.msgid)
            return none(operation=operation, queue=name)
        return what(given).format(f"{number(count)} of queue '{name}'")

    return action


def _refuse_held(session: Session, name: str, msgid: str | None) -> None:
    """Refuse a change of one message that a transaction holds: it is in use, which is not the same as no match."""
    if msgid is not None:
        session.opened().refuse_held(name, msgid)


def _asked(session: Session) -> dict[str, Any]:
    return {"condition": session.criteria.whole, "delivery": session.criteria.delivery}


def _change(session: Session, change: Callable[..., int], *new: object, **more: Any) -> tuple[int, int]:
    """Change the selected messages of the current queue, and show the progress; return how many were, and were not."""
    name, asked = session.chosen(), _asked(session)
    total = session.opened().count(name, **asked)
    with session.progress(f"Changing queue '{name}'", total, dots=False) as reached:
        count = change(name, *new, **asked, progress=reached, **more)
    return count, max(total - count, 0)


def _changed(session: Session, what: str, changed: tuple[int, int]) -> Line:
    count, _ = changed
    return Line(f"{what} of {number(count)} changed", {"queue": session.chosen(), "messages": count})


@MESSAGES.command(
    "qchangeprio",
    Positional(
        "newpriority", Number("priority", *PRIORITY_RANGE), "The new priority, 1 to 100.", "New priority (1-100): "
    ),
    short="qcp",
    needs=_SELECTED,
    confirm=Confirmation(
        _about(
            lambda given: f"Change priority of {{}} to {given['newpriority']}",
            notices.NO_MESSAGES_TO_CHANGE,
            "Change priority",
        ),
        notices.PRIORITY_NOT_CHANGED(),
    ),
)
def qchangeprio(session: Session, newpriority: int) -> Outcome:
    """Change the priority of the selected messages of the current queue.

    Messages that a transaction holds are not changed. Check with qlist first: without criteria all messages of the
    queue are changed.

        qchangeprio 99
        qchangeprio -y 1
    """
    return _changed(session, "Priority", _change(session, session.opened().change_priority, newpriority))


@MESSAGES.command(
    "qchangetime",
    Positional(
        "newtime",
        When(),
        "When they become available: +seconds or a span such as 10m, 2h, 1d from now, where +0 means at once, or"
        " YY[MM[DD[hh[mm[ss]]]]] or ISO 8601 in local time.",
        "New time (+seconds or YY[MM[DD[hh[mm[ss]]]]]): ",
    ),
    short="qct",
    needs=_SELECTED,
    confirm=Confirmation(
        _about(lambda given: f"Make {{}} available {_when(given)}", notices.NO_MESSAGES_TO_CHANGE, "Change exec time"),
        "Time not changed",
    ),
)
def qchangetime(session: Session, newtime: datetime | timedelta) -> Outcome:
    """Change the time at which the selected messages of the current queue become available.

    Messages that a transaction holds are not changed.

        qchangetime +0
        qchangetime -y 270101
    """
    return _changed(session, "Time", _change(session, session.opened().change_availability, newtime))


@MESSAGES.command(
    "qchangeexptime",
    Positional(
        "newtime",
        WhenOrNone(),
        "When they expire: +seconds or a span such as 10m, 2h, 1d from now, where +0 means at once,"
        " YY[MM[DD[hh[mm[ss]]]]] or ISO 8601 in local time, or none.",
        "New expiration time (+seconds, YY[MM[DD[hh[mm[ss]]]]] or none): ",
    ),
    short="qcet",
    needs=_SELECTED,
    confirm=Confirmation(
        _about(
            lambda given: f"Let {{}} expire {_when(given)}", notices.NO_MESSAGES_TO_CHANGE, "Change expiration time"
        ),
        "Expiration time not changed",
    ),
)
def qchangeexptime(session: Session, newtime: datetime | timedelta | None) -> Outcome:
    """Change the time at which the selected messages of the current queue expire.

    Messages that a transaction holds are not changed.

        qchangeexptime +3600
        qchangeexptime -y none
    """
    return _changed(session, "Expiration time", _change(session, session.opened().change_expiry, newtime))


def _when(given: Given) -> str:
    when = given["newtime"]
    if when is None:
        return "never"
    if isinstance(when, timedelta):
        return f"{when // timedelta(seconds=1)} seconds from now" if when else "now"
    return f"at {times.show(times.from_datetime(when)).rpartition(' ')[0]}"


def _move(session: Session, given: Given) -> str | Notice:
    target = given["newqueue"]
    if target == session.chosen():
        return notices.SAME_QUEUE(queue=target)
    session.opened().queue(target)
    return _about(lambda _given: f"Move {{}} to queue '{target}'", notices.NO_MESSAGES_TO_MOVE, "Change queue")(
        session, given
    )


@MESSAGES.command(
    "qchangequeue",
    Positional("newqueue", QueueName(), "The queue to move them to, in the same queue space.", "New queue name: "),
    short="qcq",
    needs=_SELECTED,
    confirm=Confirmation(_move, "Queue not changed"),
)
def qchangequeue(session: Session, newqueue: str) -> Outcome:
    """Move the selected messages of the current queue to another queue of the queue space.

    They get new identifiers, and keep a record of the queue that they came from and of their first identifier. Their
    retries begin again; everything else that their senders asked for stays. In an error queue they do not expire; when
    they leave it they have their expiry again, or none if it has passed. Messages that a transaction holds, or that
    nobody would get in a queue for several, are not moved.

        qchangequeue -n errq
        qchangequeue -y errq
    """
    outlived: list[int] = []
    count, left = _change(session, session.opened().move, newqueue, outlived=outlived.append)
    told = _without_expiration(outlived)
    if left and session.opened().queue(newqueue).definition.multiple_consumers:
        text = f"{number(left)} of queue '{session.chosen()}' would reach nobody in queue '{newqueue}'"
        told.append(Notice.warning(text, "Look at the rules and topics of its subscriptions with qsublist."))
    data: dict[str, Value] = {"queue": newqueue, "messages": count, "left": left}
    return [*told, Line(f"{number(count)} moved to queue '{newqueue}'", data)]


def _without_expiration(outlived: list[int]) -> list[Notice]:
    """Return how many of the moved messages had expired, if any."""
    count = sum(outlived)
    if not count:
        return []
    has = "has" if count == 1 else "have"
    return [Notice.warning(f"{number(count)} {has} no expiration any more: the earlier one has passed")]


@MESSAGES.command(
    "qdeletemsg",
    short="qdltm",
    needs=_SELECTED,
    confirm=Confirmation(
        _about(lambda _given: "Delete {}", notices.NO_MESSAGES_TO_MOVE, "Delete messages"), "Messages not deleted"
    ),
)
def qdeletemsg(session: Session) -> Outcome:
    """Delete the selected messages of the current queue.

    Check with qlist first: without criteria all messages of the queue are deleted. Messages that a transaction holds
    are not deleted.

        qdeletemsg -n
        qdeletemsg -y
    """
    name = session.chosen()
    count = _purge(session, name, **_asked(session))
    return Line(f"{number(count)} deleted", {"queue": name, "messages": count})


def _purge(session: Session, name: str, condition: Condition | None, delivery: Delivery | None = None) -> int:
    space = session.opened()
    # The number that meets a condition would have to be counted first.
    everything = space.usage(name).messages if condition is None and delivery is None else None
    with session.progress(f"Purging queue '{name}'", everything, dots=False) as reached:
        return space.purge(name, condition=condition, delivery=delivery, progress=reached)


# ---- of a queue that is named ----

WHICH = (Option("-m msgid", "msgid", "The message with this identifier.", MessageId(), excludes="-w"), WHERE)
"""The options that select messages of a named queue."""


def _of_queue(what: str, states: Sequence[State] = CHANGEABLE) -> Callable[[Session, Given], str | Notice]:
    """Return the action of a confirmation for a named queue: how many of its messages the command affects."""

    def action(session: Session, given: Given) -> str | Notice:
        name = given["queue_name"]
        condition = Criteria(msgid=given["msgid"], condition=given["condition"]).whole
        count = session.opened().count(name, condition=condition, states=states)
        retained = _retained(session, name) if given.get("retained") else 0
        if not count and not retained:
            _refuse_held(session, name, given["msgid"])
            return Notice.info(f"No messages matched on queue {name}")
        more = f" and {retained} retained" if retained else ""
        return what.format(f"{number(count)}{more} of queue '{name}'")

    return action


def _to_purge(session: Session, given: Given) -> str | Notice:
    if not given["damaged"]:
        return _of_queue("Purge {}")(session, given)
    if given["msgid"] or given["condition"] or given["retained"]:
        raise UsageError("Option -d applies to all damaged messages of the queue", hint="Give it alone.")
    session.opened().queue(given["queue_name"])
    return f"Remove the damaged messages of queue '{given['queue_name']}'"


def _retained(session: Session, name: str) -> int:
    damaged: list[int] = []
    whole = sum(1 for _ in session.opened().history(name, left_out=damaged.append))
    return whole + sum(damaged)


@MESSAGES.command(
    "qpurge",
    *WHICH,
    Option("-r", "retained", "Delete the retained messages too, which were consumed already."),
    Option("-d", "damaged", "Only messages whose record is missing or cannot be read."),
    Positional("queue_name", Taken(), "The queue, or queue:consumer.", "Queue name: "),
    confirm=Confirmation(_to_purge, "Queue '{queue_name}' not purged"),
    extension=True,
)
def qpurge(
    session: Session, queue_name: str, msgid: str | None, condition: Condition | None, retained: bool, damaged: bool
) -> Outcome:
    """Delete messages of a queue, which need not be the current one.

    Messages that a transaction holds are not deleted. With -d only messages are deleted whose record is missing or
    cannot be read, for example after a disk failure; nobody else can use the volume meanwhile, and the counts of the
    queue are corrected.

        qpurge -y -w "enqueued_at < '2026-01-01T00:00:00Z'" orders
        qpurge -y -d orders
    """
    space = session.opened()
    if damaged:
        found = space.purge_damaged(queue_name)
        return Line(f"{number(found)} removed from queue '{queue_name}'", {"queue": queue_name, "messages": found})
    chosen = Criteria(msgid=msgid, condition=condition).whole
    if not retained:
        count = _purge(session, queue_name, chosen)
        return Line(f"{number(count)} purged from queue '{queue_name}'", {"queue": queue_name, "messages": count})
    with act(session.device, f"queue {space.name}/{queue_name}, with retained messages", "qpurge"):
        count = _purge(session, queue_name, chosen)
        kept = space.purge_history(queue_name)
    data: dict[str, Value] = {"queue": queue_name, "messages": count}
    return Line(f"{number(count)} and {kept} retained purged from queue '{queue_name}'", data | {"retained": kept})


@MESSAGES.command(
    "qunpark",
    *WHICH,
    Positional("queue_name", Taken(), "The queue, or queue:consumer.", "Queue name: "),
    confirm=Confirmation(_of_queue("Make {} available", (State.PARKED,)), "Messages stay parked"),
    extension=True,
)
def qunpark(session: Session, queue_name: str, msgid: str | None, condition: Condition | None) -> Outcome:
    """Make parked messages of a queue available, which a service has put aside; qpeek shows why.

    They are dequeued in the places where they stood. In a queue that groups messages the parked ones of their groups
    come with them. Other messages stay as they are. qchangetime gives parked messages a time.

        qunpark -y orders
        qunpark -m 8f3b0c6d2a1e4f570000000000000007 orders
    """
    space = session.opened()
    chosen = Criteria(msgid=msgid, condition=condition).whole
    found = space.count(queue_name, condition=chosen, states=(State.PARKED,))
    with session.progress(f"Unparking messages of queue '{queue_name}'", found, dots=False) as reached:
        count = space.unpark(queue_name, condition=chosen, progress=reached)
    return Line(f"{number(count)} unparked", {"queue": queue_name, "messages": count})


def _error_queue(session: Session, _given: Given) -> str:
    space = session.opened()
    if not space.definition.error_queue:
        raise UsageError(f"Queue space '{space.name}' has no error queue", hint="Name the queue.")
    return space.definition.error_queue


@MESSAGES.command(
    "qrequeue",
    *WHICH,
    Positional(
        "queue_name",
        QueueName(),
        "The queue that they are on now; by default the error queue of the queue space.",
        "Queue name [default={default}]: ",
        default=_error_queue,
    ),
    confirm=Confirmation(_of_queue("Move {} back to the queues they came from"), "Messages not moved"),
    extension=True,
)
def qrequeue(session: Session, queue_name: str, msgid: str | None, condition: Condition | None) -> Outcome:
    """Move messages back to the queues that they came from, such as from the error queue once the cause is fixed.

    Their retries begin again, and they have their expiry again, or none if it has passed. Messages that were never
    moved, whose queue no longer exists or has nobody who would get them, or that a transaction holds stay where they
    are.

        qrequeue -y -w "origin_reason = 'retries'" errq
    """
    space = session.opened()
    chosen = Criteria(msgid=msgid, condition=condition).whole
    found = space.count(queue_name, condition=chosen)
    outlived: list[int] = []
    with session.progress(f"Moving messages of queue '{queue_name}' back", found, dots=False) as reached:
        count = space.requeue(queue_name, condition=chosen, progress=reached, outlived=outlived.append)
    moved = Line(f"{number(count)} moved back", {"queue": queue_name, "messages": count, "left": found - count})
    told = _without_expiration(outlived)
    if count < found:
        why = "came from no queue that still exists, or would reach nobody there"
        text = f"{number(found - count)} of queue '{queue_name}' {why}"
        told.append(Notice.warning(text, "Move them with qchangequeue, or look at the subscriptions with qsublist."))
    return [*told, moved]
