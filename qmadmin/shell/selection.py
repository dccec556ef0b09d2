"""Commands that select messages: the current queue and the criteria."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.console.results import Line, Outcome
from qmadmin.shell.criteria import Criteria, Range
from qmadmin.shell.declare import Group, Needs, Option, Positional
from qmadmin.shell.kinds import Choice, QueueName
from qmadmin.shell.message_kinds import ConditionText, CorrelationId, MessageId, PriorityRange, TimeRange
from qmadmin.shell.notices import UsageError
from qmadmin.shell.parameters import DELIVERY
from qmcore.queue import Delivery

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmcore.condition import Condition

SELECTION = Group("Selection of messages", "selection")
WHERE = Option(
    "-w",
    "condition",
    "Messages for which a condition over their properties is true, such as \"priority > 50 AND header.region = 'eu'\";"
    " qmadmin-queue(7) has its grammar.",
    ConditionText(),
    "condition",
    extension=True,
)


@SELECTION.command(
    "qset",
    Positional(
        "queue_name", QueueName(), "The queue that becomes the current one; without it, the current queue is shown."
    ),
    needs=Needs.OPEN_SPACE,
    looks=True,
    lasts=True,
)
def qset(session: Session, queue_name: str | None) -> Outcome:
    """Set or print the current queue.

    The current queue is the one whose messages are listed, changed, moved and deleted. It is forgotten when a queue
    space is opened or closed.

        qset orders
    """
    if queue_name is not None:
        session.queue = session.opened().queue(queue_name).name
    return Line(f"Current queue is '{session.chosen()}'", {"queue": session.chosen()})


@SELECTION.command(
    "qscan",
    Option(
        "-t",
        "available",
        "Messages that become available at a time, or between two times with a dash between, both included:"
        " YY[MM[DD[hh[mm[ss]]]]] or ISO 8601 in local time, or +seconds or 10m, 2h, 1d from now. A message without"
        " such a time became available when it was enqueued.",
        TimeRange(),
        "deq_time1[-deq_time2]",
    ),
    Option(
        "-p",
        "priority",
        "Messages with this priority, or between two priorities.",
        PriorityRange(),
        "priority1[-priority2]",
    ),
    Option("-m", "msgid", "The message with this identifier.", MessageId(), "msgid"),
    Option(
        "-i",
        "corrid",
        "Messages with this correlation identifier. Unprintable characters, blanks and backslashes are"
        " written as a backslash and two hexadecimal digits, as in hello\\20world.",
        CorrelationId(),
        "corrid",
    ),
    Option("-d", "delivery", "Messages on disk (persist) or in memory (nonpersist).", DELIVERY, "persist|nonpersist"),
    Option(
        "-e", "expires", "Messages that expire at a time, or between two times.", TimeRange(), "exptime1[-exptime2]"
    ),
    WHERE,
    Positional("nothing", Choice("argument", ("none",)), "Remove all criteria.", metavar="none"),
    needs=Needs.OPEN_SPACE,
    looks=True,
    lasts=True,
)
def qscan(
    session: Session,
    *,
    available: Range | None,
    priority: Range | None,
    msgid: str | None,
    corrid: bytes | None,
    delivery: str | None,
    expires: Range | None,
    condition: Condition | None,
    nothing: str | None,
) -> Outcome:
    r"""Set or print the criteria that select messages of the current queue.

    Messages that meet all criteria are selected; without criteria, all messages are. New criteria replace all earlier
    ones. They are forgotten when a queue space is opened or closed, and stay when the current queue is changed.

        qscan -p 50-100 -t 2601-2602
        qscan -i hello\20world
        qscan none
    """
    wanted = Criteria(available, priority, msgid, corrid, Delivery(delivery) if delivery else None, expires, condition)
    if wanted and nothing:
        raise UsageError("The argument none cannot be given with criteria")
    if wanted or nothing:
        session.criteria = wanted
    if not session.criteria:
        return Line("No criteria are set: all messages are selected", {"criteria": None})
    return Line(f"Criteria are {session.criteria}", {"criteria": str(session.criteria)})
