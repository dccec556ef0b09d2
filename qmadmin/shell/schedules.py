"""Commands on schedules: messages that are enqueued again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qmadmin.console.results import Column, Line, Moment, Notice, Outcome, Record, Table, field, hidden
from qmadmin.shell.declare import Confirmation, Group, Needs, Option, Positional
from qmadmin.shell.kinds import Candidate, Choice, Given, Kind, QueueName, Words
from qmadmin.shell.notices import UsageError
from qmadmin.shell.putting import FILE, MESSAGE_OPTIONS, TEXT, body_of, control_of
from qmcore import names
from qmcore.schedule import Missed, Schedule

if TYPE_CHECKING:
    from qmadmin.shell.session import Session

SCHEDULES = Group("Schedules", needs=Needs.OPEN_SPACE, extension=True)


class ScheduleName(Kind[str]):
    """The name of a schedule, which need not exist."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the name."""
        return names.schedule_name(text)

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the schedules of the open queue space."""
        if session.space is None:
            return []
        return [Candidate(found.name, found.rule) for found in session.space.schedules()]


_NAME = Positional("schedule_name", ScheduleName(), "The schedule.", "Schedule name: ")
_RULE_HELP = (
    "When: minute, hour, day of month, month and day of week as for cron, six fields with the second first, or an"
    " interval such as 'every 10m', in one pair of quotes."
)
_MISSED = Choice("treatment of missed moments", tuple(each.value for each in Missed))
_ZONE_HELP = "The time zone in which the fields are read, such as Europe/Berlin; by default UTC."
_MISSED_HELP = (
    "What is made of moments for which no message could be made within a minute: one message for all, or none; by"
    " default one."
)


@SCHEDULES.command(
    "qschedule", Positional("schedule_name", ScheduleName(), "The schedule; without it, all."), shows_only=True
)
def qschedule(session: Session, schedule_name: str | None) -> Outcome:
    """Show one schedule or all schedules of the open queue space.

    It shows the queue, the rule and its time zone, and when the next message is made and the last one was made. For one
    schedule, and in verbose mode, it also shows the message.

        qschedule
        qschedule nightly
    """
    space = session.opened()
    found = space.schedules() if schedule_name is None else [space.schedule(schedule_name)]
    if schedule_name is not None or session.detailed:
        return [_record(each) for each in found]
    if not found:
        return Notice.info(f"queue space '{space.name}' has no schedules")
    return Table(
        (
            Column("schedule", "Schedule"),
            Column("queue", "Queue"),
            Column("rule", "Rule", cut=True),
            Column("timezone", "Time zone"),
            Column("state", "State"),
            Column("next", "Next"),
            Column("last", "Last"),
        ),
        [
            (
                each.name,
                each.queue,
                each.rule,
                each.timezone,
                _state(each),
                _moment(each.next_us),
                _moment(each.last_us),
            )
            for each in found
        ],
    )


@SCHEDULES.command(
    "qschedulecreate",
    FILE,
    *MESSAGE_OPTIONS,
    Option("-Z timezone", "timezone", _ZONE_HELP, Words(), "UTC"),
    Option("-m once|skip", "missed", _MISSED_HELP, _MISSED, Missed.ONCE.value),
    Option("-P", "paused", "Create it paused."),
    Positional("schedule_name", ScheduleName(), "Its name: 1 to 127 bytes.", "Schedule name: "),
    Positional("queue_name", QueueName(), "The queue of its messages.", "Queue name: "),
    Positional("rule", Words(), _RULE_HELP, "Rule: "),
    TEXT,
)
def qschedulecreate(
    session: Session,
    *,
    schedule_name: str,
    queue_name: str,
    rule: str,
    text: str | None,
    file: str | None,
    without_body: bool,
    in_hex: bool,
    timezone: str,
    missed: str,
    paused: bool,
    **asked: Any,
) -> Outcome:
    """Create a schedule, by which a message is enqueued on a queue at each moment of a rule.

    Exactly one message is made for each moment, within a second while a process waits or works on the queue space,
    otherwise when one does next. Its headers schedule and scheduled_at name the schedule and the moment. It has the
    options of qput; times are spans from when it is made. qmadmin-queue(7) says more.

        qschedulecreate -Z Europe/Berlin night reports "0 2 * * *" all
        qschedulecreate -m skip -e 5m poll orders "every 10m" ""
    """
    if file is not None and (text is not None or without_body):
        raise UsageError("Option -f takes the place of the text and of -z")
    control = control_of(is_text=file is None and not in_hex and not without_body, **asked)
    made = session.opened().create_schedule(
        schedule_name,
        queue_name,
        rule,
        None if without_body else body_of(session, text, file, in_hex=in_hex),
        control,
        timezone=timezone,
        missed=Missed(missed),
        paused=paused,
    )
    return _told(made, "created")


@SCHEDULES.command(
    "qschedulechange",
    Option("-q queue", "queue", "The queue of its messages.", QueueName()),
    Option("-r rule", "rule", _RULE_HELP, Words()),
    Option("-Z timezone", "timezone", "The time zone in which the fields are read.", Words()),
    Option("-m once|skip", "missed", "What is made of missed moments: one message for all, or none.", _MISSED),
    FILE,
    _NAME,
)
def qschedulechange(
    session: Session, *, schedule_name: str, file: str | None, missed: str | None, **given: Any
) -> Outcome:
    """Change a schedule.

    What no option names stays. With another rule or time zone it goes on with the next moment of that; an interval
    counts from now.

        qschedulechange -r "every 5m" poll
    """
    body = None if file is None else body_of(session, None, file, in_hex=False)
    wanted = None if missed is None else Missed(missed)
    return _told(session.opened().change_schedule(schedule_name, body=body, missed=wanted, **given), "changed")


@SCHEDULES.command("qschedulepause", _NAME)
def qschedulepause(session: Session, schedule_name: str) -> Outcome:
    """Pause a schedule.

    No message is made until qscheduleresume.

        qschedulepause nightly
    """
    return _told(session.opened().pause_schedule(schedule_name), "paused")


@SCHEDULES.command("qscheduleresume", _NAME)
def qscheduleresume(session: Session, schedule_name: str) -> Outcome:
    """Let a schedule go on with its next moment.

    What was due while it was paused is not made up for. After the clock was far ahead for a while, this lets a schedule
    go on by the right time.

        qscheduleresume nightly
    """
    return _told(session.opened().resume_schedule(schedule_name), "resumed")


def _deletion(_session: Session, given: Given) -> str:
    return f"Delete schedule '{given['schedule_name']}'"


@SCHEDULES.command(
    "qscheduledelete",
    _NAME,
    confirm=Confirmation(
        _deletion,
        "Schedule '{schedule_name}' not deleted",
        lambda session, given: session.opened().schedule(given["schedule_name"]),
    ),
)
def qscheduledelete(session: Session, schedule_name: str) -> Outcome:
    """Delete a schedule.

    The messages that it has made stay.

        qscheduledelete -y nightly
    """
    session.opened().delete_schedule(schedule_name)
    return Line(f"Schedule '{schedule_name}' deleted", {"schedule": schedule_name})


def _told(found: Schedule, what: str) -> Line:
    data = {"schedule": found.name, "state": _state(found), "next": _moment(found.next_us)}
    return Line(f"Schedule '{found.name}' {what}", data)


def _state(found: Schedule) -> str:
    return "paused" if found.paused else "started"


def _moment(micros: int | None) -> Moment | None:
    return None if micros is None else Moment(micros)


def _record(found: Schedule) -> Record:
    body = found.body
    return Record(
        f"Schedule '{found.name}'",
        (
            hidden(schedule=found.name),
            field("queue", "Queue", found.queue),
            field("rule", "Rule", found.rule),
            field("timezone", "Time zone", found.timezone),
            field("missed", "Missed moments", found.missed.value),
            field("state", "State", _state(found)),
            field("next", "Next", _moment(found.next_us)),
            field("last", "Last", _moment(found.last_us)),
            field("last_msgid", "Last message", found.last_msgid),
            field("created", "Created", Moment(found.created_us)),
            field("type", "Type", found.control.type),
            field("priority", "Priority", found.control.priority),
            field("size", "Size", None if body is None else len(body)),
        ),
    )
