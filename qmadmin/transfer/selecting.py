"""The selection of an export or import: its criteria, and the messages that meet them."""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import heapq
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from qmadmin.archive.manifest import Content
from qmadmin.archive.rows import Standing
from qmcore import bulk_rows, volume_record
from qmcore.bulk_rows import Row
from qmcore.checks import keep_int
from qmcore.condition import BodyPath, Condition, Header, Subject
from qmcore.condition_truth import compiled
from qmcore.errors import BadQueueError, BadResourceError, InvalidArgumentError
from qmcore.imports import Source
from qmcore.json_values import BodyValues
from qmcore.message import State, pages_of
from qmcore.records import Use
from qmcore.space import NUMBER_MAX
from qmcore.times import MICROS
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmcore.volume_record import MissingVolume


class Outstanding(enum.Enum):
    """What happens to messages that open transactions have dequeued or locked when the snapshot is made."""

    REFUSE = "refuse"
    """Nothing is exported while a transaction has any."""
    LEAVE_OUT = "leave-out"
    """They are not exported, as if the transactions had committed."""
    ROLLED_BACK = "as-rolled-back"
    """They are exported in their places, as if the transactions had rolled back. Refused while a prepared transaction,
    whose commit is promised, has any: if it commits they are there and in the archive, too."""
    IN_DOUBT_TOO = "in-doubt-too"
    """The same, also those of prepared transactions."""


DEFAULT_STATES = (State.READY, State.DELAYED, State.PARKED, State.HELD, State.CONSUMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSelection:
    """A selection. `spaces` and `queues` are patterns as for file names; several are alternatives.

    `states` are those of the messages. `condition` is one of the filter language. `older` and `newer` are seconds:
    only messages that were enqueued at least, or at most, this long before the snapshot. `count` is the maximum number
    of messages of each queue, in the order in which they would be dequeued.
    """

    spaces: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    states: tuple[State, ...] = DEFAULT_STATES
    condition: str = ""
    older: float | None = None
    newer: float | None = None
    count: int | None = None
    content: Content = Content.ALL

    def __post_init__(self) -> None:
        if self.count is not None:
            keep_int(self, "count", "number of messages of each queue", 1, NUMBER_MAX)
        for seconds, what in ((self.older, "least"), (self.newer, "largest")):
            if seconds is not None and seconds < 0:
                raise InvalidArgumentError(f"the {what} age of messages must be 0 seconds or more, got {seconds:g}")
        if not self.states:
            raise InvalidArgumentError("no state of messages is selected", hint="Name one, or omit the option.")

    def has_space(self, name: str) -> bool:
        """Return whether a queue space is selected."""
        return _matches(name, self.spaces)

    def has_queue(self, name: str) -> bool:
        """Return whether a queue of a selected queue space is selected."""
        return _matches(name, self.queues)

    def chosen_spaces(self, names: Iterable[str], whose: str) -> list[str]:
        """Return the selected queue spaces; refuse a pattern that selects none."""
        known = sorted(names)
        for pattern in self.spaces:
            if pattern != "*" and not any(fnmatch.fnmatchcase(name, pattern) for name in known):
                raise BadResourceError(
                    f"{whose} has no queue space {pattern!r}", hint=f"It has {_listed(known)}.", space=pattern
                )
        return [name for name in known if self.has_space(name)]

    def spaces_of(self, device: Device) -> list[str]:
        """Return the selected queue spaces of a device, without those on missing volumes.

        Raises BadResourceError if a pattern selects none, or if all that is selected is missing.
        """
        missing = {name for volume in device.missing_volumes() for name in volume.spaces}
        there = {space.name for space in device.spaces()} - missing
        chosen = self.chosen_spaces(there | missing, f"device {device.path!r}")
        if missing.issuperset(chosen):
            volume_record.refuse_missing(self.missing_of(device), "all that is selected is missing:", can_be=False)
        return [name for name in chosen if name in there]

    def missing_of(self, device: Device) -> list[MissingVolume]:
        """Return the missing volumes of a device on which selected queue spaces are, with only those."""
        found = [
            dataclasses.replace(volume, spaces=tuple(filter(self.has_space, volume.spaces)))
            for volume in device.missing_volumes()
        ]
        return [volume for volume in found if volume.spaces]

    def refuse_unmatched(self, names: Iterable[str], whose: str) -> None:
        """Refuse a pattern that selects none of these queues."""
        known = sorted(set(names))
        for pattern in self.queues:
            if pattern != "*" and not any(fnmatch.fnmatchcase(name, pattern) for name in known):
                raise BadQueueError(
                    f"no selected queue space of {whose} has a queue {pattern!r}",
                    hint=f"There is {_listed(known)}." if known else "",
                    queue=pattern,
                )

    def whole_condition(self, now_us: int) -> Condition | None:
        """Return a condition with all criteria except the queue and the state."""
        from qmcore.condition import Operator, all_of, compared
        from qmcore.condition_parser import parse

        parts: list[Condition] = [parse(self.condition)] if self.condition else []
        if self.older is not None:
            parts.append(compared("enqueued_at", Operator.AT_MOST, now_us - round(self.older * MICROS)))
        if self.newer is not None:
            parts.append(compared("enqueued_at", Operator.AT_LEAST, now_us - round(self.newer * MICROS)))
        return all_of(parts)

    @property
    def carried_states(self) -> tuple[State, ...]:
        """The selected states of messages; none if only definitions are selected."""
        return () if self.content is Content.DEFINITIONS else self.states

    @property
    def picks(self) -> bool:
        """Whether each message has to be read to decide whether it is selected."""
        return bool(self.condition) or (self.older, self.newer, self.count) != (None, None, None)

    def said(self) -> dict[str, Any]:
        """Return the selection in the form of a manifest, with only the criteria that are set."""
        everything = ArchiveSelection()
        asked: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != getattr(everything, field.name):
                asked[field.name] = _plain(value)
        return asked


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "none"


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


Rank: TypeAlias = tuple[Any, ...]
"""The rank of a message, by which the messages of a queue are counted: ready ones first, in their order."""

MsgId: TypeAlias = Callable[[int], str]

_AT: Final = {name: at for at, name in enumerate(bulk_rows.COLUMNS)}
_ORDER: Final = {State.READY: 0, State.DELAYED: 1, State.CONSUMED: 2}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter of messages in these states that meet the condition, and in each queue up to its last one.

    `last` are the ranks of those; a queue without one has no limit.
    """

    states: tuple[State, ...]
    condition: Condition | None = None
    last: Mapping[Source, Rank] = dataclasses.field(default_factory=dict)

    def rows(self, standing: Standing, rows: list[Row], msgid: MsgId) -> list[Row]:
        """Return the selected rows of a queue in one state."""
        space, queue, state, _ = standing
        if state not in self.states:
            return []
        if self.condition is not None:
            test = compiled(self.condition)
            rows = [row for row in rows if test(_facts(row, state, msgid))]
        last = self.last.get((space, queue))
        return rows if last is None else [row for row in rows if rank_of(state, row) <= last]


@dataclass(frozen=True, slots=True)
class SelectedMessages:
    """The selected messages of a queue in one state: their use, and their first ranks, as many as requested."""

    standing: Standing
    use: Use
    ranks: tuple[Rank, ...] = ()


def rank_of(state: State, row: Row) -> Rank:
    """Return the rank of a message."""
    match state:
        case State.DELAYED:
            return _ORDER[state], row[_AT["until"]], row[_AT["sequence"]]
        case State.CONSUMED:
            return _ORDER[state], row[_AT["consumed_at"]], row[_AT["sequence"]]
        case _:
            return _ORDER[State.READY], row[_AT["order_key"]]


def tally(standing: Standing, rows: Sequence[Row], page_size: int, count: int | None) -> SelectedMessages:
    """Return the use of rows on a device with pages of that size, and their first `count` ranks."""
    use = Use(
        len(rows),
        sum(pages_of(row[bulk_rows.SIZE], row[bulk_rows.HEADERS], page_size) for row in rows),
        sum(row[bulk_rows.SIZE] for row in rows),
    )
    ranks = () if count is None else tuple(heapq.nsmallest(count, (rank_of(standing[2], row) for row in rows)))
    return SelectedMessages(standing, use, ranks)


def last_ranks(tallies: Iterable[SelectedMessages], count: int) -> dict[Source, Rank]:
    """Return the rank of the `count`-th message of each queue that has more."""
    found: dict[Source, list[Rank]] = {}
    totals: dict[Source, int] = {}
    for each in tallies:
        source = each.standing[0], each.standing[1]
        found[source] = heapq.nsmallest(count, [*found.get(source, ()), *each.ranks])
        totals[source] = totals.get(source, 0) + each.use.messages
    return {source: ranks[-1] for source, ranks in found.items() if totals[source] > count}


def _facts(row: Row, state: State, msgid: MsgId) -> Callable[[Subject], Any]:
    body = BodyValues.of(row[_AT["type"]], row[bulk_rows.SIZE], row[bulk_rows.BODY])

    def fact(subject: Subject) -> Any:
        if isinstance(subject, BodyPath):
            return body.at(subject.steps)
        if isinstance(subject, Header):
            headers = row[bulk_rows.HEADERS]
            return json.loads(headers).get(subject.name) if headers else None
        if subject.name == "msgid":
            return msgid(row[bulk_rows.SEQUENCE])
        if subject.name == "available_at" and state is State.DELAYED:
            return row[_AT["until"]]
        return row[_AT[subject.name]]

    return fact
