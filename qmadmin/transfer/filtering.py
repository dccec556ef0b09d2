"""Which messages of an archive are meant, where not all of a queue are: by a condition, their age, and how many."""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from qmadmin.archive.rows import Standing
from qmcore import bulk_rows
from qmcore.bulk_rows import Row
from qmcore.condition import Condition, Header, Subject
from qmcore.condition_truth import truth
from qmcore.imports import Source
from qmcore.message import State, pages_of
from qmcore.records import Use

Rank: TypeAlias = tuple[Any, ...]
"""Where a message stands in the order in which those of its queue are counted: ready ones first, in their order."""

MsgId: TypeAlias = Callable[[int], str]

_AT: Final = {name: at for at, name in enumerate(bulk_rows.COLUMNS)}
_ORDER: Final = {State.READY: 0, State.DELAYED: 1, State.CONSUMED: 2}


@dataclasses.dataclass(frozen=True, slots=True)
class RowFilter:
    """Only messages in these states that fulfil the condition, and in each queue none behind its last one.

    `last` are the ranks of those; a queue that has none there has no limit.
    """

    states: tuple[State, ...]
    condition: Condition | None = None
    last: Mapping[Source, Rank] = dataclasses.field(default_factory=dict)

    def rows(self, standing: Standing, rows: list[Row], msgid: MsgId) -> list[Row]:
        """Return those rows of a queue in one state that are meant."""
        space, queue, state, _ = standing
        if state not in self.states:
            return []
        if self.condition is not None:
            rows = [row for row in rows if truth(self.condition, _facts(row, state, msgid)) is True]
        last = self.last.get((space, queue))
        return rows if last is None else [row for row in rows if rank_of(state, row) <= last]


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """What of a queue in one state is meant: its use here, and the first ranks, as many as are asked for."""

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


def tally(standing: Standing, rows: Sequence[Row], page_size: int, count: int | None) -> Tally:
    """Return what rows are together on a device with pages of that size, and the first `count` ranks of them."""
    use = Use(
        len(rows),
        sum(pages_of(row[bulk_rows.SIZE], row[bulk_rows.HEADERS], page_size) for row in rows),
        sum(row[bulk_rows.SIZE] for row in rows),
    )
    ranks = () if count is None else tuple(heapq.nsmallest(count, (rank_of(standing[2], row) for row in rows)))
    return Tally(standing, use, ranks)


def last_ranks(tallies: Iterable[Tally], count: int) -> dict[Source, Rank]:
    """Return the rank of the `count`-th message of each queue that has more than so many."""
    found: dict[Source, list[Rank]] = {}
    totals: dict[Source, int] = {}
    for each in tallies:
        source = each.standing[0], each.standing[1]
        found[source] = heapq.nsmallest(count, [*found.get(source, ()), *each.ranks])
        totals[source] = totals.get(source, 0) + each.use.messages
    return {source: ranks[-1] for source, ranks in found.items() if totals[source] > count}


def _facts(row: Row, state: State, msgid: MsgId) -> Callable[[Subject], Any]:
    def fact(subject: Subject) -> Any:
        if isinstance(subject, Header):
            headers = row[bulk_rows.HEADERS]
            return json.loads(headers).get(subject.name) if headers else None
        if subject.name == "msgid":
            return msgid(row[bulk_rows.SEQUENCE])
        if subject.name == "available_at" and state is State.DELAYED:
            return row[_AT["until"]]
        return row[_AT[subject.name]]

    return fact
