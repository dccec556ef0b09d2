"""The schedules of a queue space, as administrators and applications manage them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from qmadmin.attachment import SpaceHandle
from qmadmin.audit import destructive, tell
from qmadmin.enqueuing import with_kind
from qmcore.acts import manage_schedules
from qmcore.errors import InvalidArgumentError
from qmcore.schedule import Missed, Schedule

if TYPE_CHECKING:
    from typing import Literal

    from qmadmin.bodies import Body
    from qmcore.message import EnqueueControl


_SCHEDULE: Final = "schedule {handle.name}/{name}"
"""The object of an act on a schedule. All are recorded, as what is changed goes on when whoever did it has left."""


class ManagingSchedules(SpaceHandle):
    """Schedules: messages that are enqueued again and again."""

    @destructive(_SCHEDULE)
    def create_schedule(
        self,
        name: str,
        queue: str,
        rule: str,
        body: Body = None,
        control: EnqueueControl | None = None,
        *,
        timezone: str = "UTC",
        missed: Missed | Literal["once", "skip"] = Missed.ONCE,
        paused: bool = False,
    ) -> Schedule:
        """Create a schedule, by which a message is enqueued on `queue` at each moment of `rule`.

        `rule` is the five fields of cron, six with the second first, such as "30 6 * * MON-FRI"; or an interval of 1
        second or more, such as "every 10m", which counts from now. `timezone` is the IANA's name of the zone in which
        the fields are read. A time of day comes once a day: right behind an hour that summer time leaves out, and in
        the first of two hours of the same name.
        `body`, up to 1 MiB, and `control` are those of the message, as for `enqueue_many`. It also gets the headers
        `schedule` (the name) and `scheduled_at` (the due moment, ISO 8601 in UTC).
        `missed`: what is done about moments for which no message could be made within a minute: one message for all of
        them, or none.
        `paused`: it makes no message until it is resumed.

        Exactly one message is made for each moment, within about a second, by whichever process works or waits on the
        queue space; where nobody is attached, by the next one that is. While its queue is stopped or gone, there is no
        room, or nobody would get it, it is put off.

        Raises InvalidArgumentError if the name is taken, if there is no such rule or time zone, or if the rule never
        comes, BadQueueError if the queue does not exist.
        """
        data, control = with_kind(body, control)
        wanted = Schedule(
            name=name,
            queue=queue,
            rule=rule,
            timezone=timezone,
            missed=_missed(missed),
            paused=paused,
            body=None if data is None else bytes(data),
            control=control,
        )
        made = self._write(manage_schedules.create, wanted, self._now)
        tell(f"created{' paused' * paused}: {rule} for queue {queue}")
        return made

    @destructive(_SCHEDULE)
    def change_schedule(
        self,
        name: str,
        *,
        queue: str | None = None,
        rule: str | None = None,
        body: Body = None,
        control: EnqueueControl | None = None,
        timezone: str | None = None,
        missed: Missed | Literal["once", "skip"] | None = None,
    ) -> Schedule:
        """Change what is given of a schedule. With another rule or time zone it goes on with the next moment of that.

        An interval that is given counts from now. Without `control` that stays as it is, but for the type, which is
        that of a new body. Raises BadResourceError if there is no such schedule, and as `create_schedule` does.
        """
        fields: dict[str, Any] = {"queue": queue, "rule": rule, "timezone": timezone, "control": control}
        kind = None
        if body is not None:
            data, told = with_kind(body, control)
            fields["body"] = bytes(data or b"")
            if control is None:
                kind = told.type
            else:
                fields["control"] = told
        if missed is not None:
            fields["missed"] = _missed(missed)
        given = {field: value for field, value in fields.items() if value is not None}
        changed = self._write(manage_schedules.change, name, self._now, given, kind)
        tell(f"changed: {changed.rule} for queue {changed.queue}")
        return changed

    @destructive(_SCHEDULE)
    def pause_schedule(self, name: str) -> Schedule:
        """Let a schedule make no message until it is resumed. Raises BadResourceError if there is none."""
        paused = self._write(manage_schedules.pause, name)
        tell("paused")
        return paused

    @destructive(_SCHEDULE)
    def resume_schedule(self, name: str) -> Schedule:
        """Let a schedule go on with its next moment; those meanwhile are not made up for.

        One that is not paused does so, too, as after the clock was far ahead for a while. Raises BadResourceError if
        there is none.
        """
        resumed = self._write(manage_schedules.resume, name, self._now)
        tell("resumed")
        return resumed

    @destructive(_SCHEDULE)
    def delete_schedule(self, name: str) -> None:
        """Delete a schedule; its messages stay. Raises BadResourceError if there is none."""
        self._write(manage_schedules.delete, name)

    def schedule(self, name: str) -> Schedule:
        """Return a schedule, or raise BadResourceError."""
        return self._read(manage_schedules.find, name)

    def schedules(self) -> list[Schedule]:
        """Return the schedules by name."""
        return self._read(manage_schedules.listed)


def _missed(given: Missed | str) -> Missed:
    try:
        return Missed(given)
    except ValueError:
        words = " or ".join(repr(each.value) for each in Missed)
        raise InvalidArgumentError(f"missed must be {words}, got {given!r}") from None
