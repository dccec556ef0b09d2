"""Schedules in SQL."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from qmcore.errors import InvalidArgumentError
from qmcore.message import EnqueueControl
from qmcore.purpose import alone, once
from qmcore.queue import Delivery
from qmcore.schedule import Missed, Schedule
from qmstorage.schema import schedule
from qmstorage.spaces import damaged
from qmstorage.sql import bindparam, delete, select, update
from qmstorage.statements import Row, given, insert_into
from qmstorage.unit_part import UnitPart

_OF_SPACE = given(schedule.c.space_id, "of_space")
_ITS = (_OF_SPACE, given(schedule.c.name, "of_name"))
_KEY = ("space_id", "name")
_FIND = select(schedule).where(*_ITS)
_ALL = select(schedule).where(_OF_SPACE).order_by(schedule.c.name)
_QUEUES = select(schedule.c.name, schedule.c.queue).where(_OF_SPACE).order_by(schedule.c.name)
_DUE = (
    select(schedule.c.name)
    .where(_OF_SPACE, schedule.c.next_at <= bindparam("now"))
    .order_by(schedule.c.next_at, schedule.c.name)
)
_ADD = insert_into(schedule)
_CHANGE = (
    update(schedule)
    .where(*_ITS)
    .values({column.name: bindparam(f"new_{column.name}") for column in schedule.columns if column.name not in _KEY})
)
_ADVANCE = (
    update(schedule)
    .where(*_ITS, given(schedule.c.next_at, "moment"))
    .values(next_at=bindparam("new_next_at"))
    .returning(schedule.c.name)
)
_NOTE_MADE = (
    update(schedule).where(*_ITS).values(last_at=bindparam("new_last_at"), last_msgid=bindparam("new_last_msgid"))
)
_REMOVE = delete(schedule).where(*_ITS)

_DEFAULTS: Final = EnqueueControl()


class Schedules(UnitPart):
    """Schedules, and how far each has come."""

    def find(self, space_id: int, name: str) -> Schedule | None:
        """Return the schedule of that name."""
        row = self.one(_FIND, of_space=space_id, of_name=name)
        return None if row is None else _schedule(row)

    def of_space(self, space_id: int) -> list[Schedule]:
        """Return the schedules of a queue space by name."""
        return [_schedule(row) for row in self.all(_ALL, of_space=space_id)]

    def queues(self, space_id: int) -> list[tuple[str, str]]:
        """Return the names of the schedules, in their order, each with the queue of its messages, which may be gone."""
        return [(name, queue) for name, queue in self.all(_QUEUES, of_space=space_id)]

    def due(self, space_id: int, now_us: int) -> list[str]:
        """Return the names of the schedules whose next moment is not after a time, the longest due first."""
        return [name for (name,) in self.all(_DUE, of_space=space_id, now=now_us)]

    @alone
    def add(self, space_id: int, new: Schedule) -> None:
        """Record a schedule."""
        self.run(_ADD, space_id=space_id, name=new.name, **_values(new))

    @alone
    def change(self, space_id: int, changed: Schedule) -> None:
        """Record what is new about the schedule of that name."""
        values = {f"new_{name}": value for name, value in _values(changed).items()}
        self.run(_CHANGE, of_space=space_id, of_name=changed.name, **values)

    @once
    def advance(self, space_id: int, name: str, moment_us: int, next_us: int | None) -> bool:
        """Advance a schedule from a due moment to the next one; False where it is not there, as others have done so."""
        its = {"of_space": space_id, "of_name": name}
        return self.one(_ADVANCE, **its, moment=moment_us, new_next_at=next_us) is not None

    @once
    def note_made(self, space_id: int, name: str, moment_us: int, msgid: str) -> None:
        """Record for which moment the last message was made, and its identifier."""
        self.run(_NOTE_MADE, of_space=space_id, of_name=name, new_last_at=moment_us, new_last_msgid=msgid)

    @alone
    def remove(self, space_id: int, name: str) -> None:
        """Remove a schedule."""
        self.run(_REMOVE, of_space=space_id, of_name=name)


def _values(of: Schedule) -> dict[str, Any]:
    """Return the column values of a schedule but for its key."""
    return {
        "queue": of.queue,
        "rule": of.rule,
        "timezone": of.timezone,
        "missed": of.missed.value,
        "paused": of.paused,
        "counted_from": of.counted_from_us,
        "next_at": of.next_us,
        "body": of.body,
        "options": _written(of.control),
        "created_at": of.created_us,
        "last_at": of.last_us,
        "last_msgid": of.last_msgid,
    }


def _schedule(row: Row) -> Schedule:
    values = dict(zip(schedule.columns.keys(), row, strict=True))
    try:
        return Schedule(
            name=values["name"],
            queue=values["queue"],
            rule=values["rule"],
            timezone=values["timezone"],
            missed=Missed(values["missed"]),
            paused=bool(values["paused"]),
            counted_from_us=values["counted_from"],
            next_us=values["next_at"],
            body=None if values["body"] is None else bytes(values["body"]),
            control=_read(values["options"]),
            created_us=values["created_at"],
            last_us=values["last_at"],
            last_msgid=values["last_msgid"],
        )
    except (InvalidArgumentError, TypeError, ValueError) as error:
        raise damaged(f"definition of schedule {values['name']!r} is damaged: {error}") from error


def _written(control: EnqueueControl) -> str:
    """Return what a sender asks for, as far as it asks for anything."""
    asked: dict[str, Any] = {}
    for field in dataclasses.fields(EnqueueControl):
        value = getattr(control, field.name)
        if value != getattr(_DEFAULTS, field.name):
            asked[field.name] = _plain(value)
    return json.dumps(asked, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    return value.value if isinstance(value, Delivery) else value


def _read(text: str) -> EnqueueControl:
    asked = json.loads(text)
    if "corrid" in asked:
        asked["corrid"] = bytes.fromhex(asked["corrid"])
    for field in ("delivery", "reply_delivery"):
        if field in asked:
            asked[field] = Delivery(asked[field])
    return EnqueueControl(**asked)
