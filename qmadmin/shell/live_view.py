"""What the live views of queues and of a command show in a window of some size: lines of text with styles by name."""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from qmadmin import console
from qmadmin.console import formats, printable
from qmadmin.console.formats import Span, columns, shortened
from qmadmin.console.render import sentence
from qmadmin.console.results import Afterwards, Line, Notice, Rounds, Shown
from qmadmin.monitoring.flow import Flow, QueueFlow, Trend
from qmcore import times
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.space import SpaceDefinition, SpaceUsage

T = TypeVar("T")

BAR, STRONG, FAINT, PLAIN = "bar", "strong", "faint", ""
"""Styles: for a whole line, for important values, for explanations, and for everything else."""
_GAP = "  "
_NAME_LEAST, _NAME_ENOUGH, _NAME_MOST = 12, 20, 40
_COURSE_LEAST, _COURSE_MOST = 10, 60


@enum.unique
class Sort(enum.Enum):
    """The sort orders of the queues, in the order in which the key s selects them."""

    DEPTH = "depth"
    IN = "in"
    OUT = "out"
    AGE = "age"
    MOVED = "moved"
    NAME = "name"

    @property
    def next(self) -> Sort:
        """The next one."""
        every = list(Sort)
        return every[(every.index(self) + 1) % len(every)]


@dataclasses.dataclass(slots=True)
class Scrolled:
    """A window over items, between a title and a line that explains the keys; `scrolled` items are above it."""

    title: str
    seconds: float
    scrolled: int = 0
    page: int = 1
    """How many items fitted into the window when it was drawn last."""

    def scroll(self, by: int) -> None:
        """Scroll down by this many items, or up, within the items that there are."""
        self.scrolled = max(0, self.scrolled + by)

    def _seen(self, items: Sequence[T], room: int) -> list[T]:
        """Return the items in the window."""
        self.page = max(1, room)
        self.scrolled = max(0, min(self.scrolled, len(items) - self.page))
        return list(items[self.scrolled : self.scrolled + self.page])

    def _title(self, width: int, clock: str) -> list[Span]:
        right = f"every {self.seconds:g}s  {clock} "
        room = width - len(right) - 2
        return [(padded(f" {shortened(printable(self.title), room)}", width - len(right)) + right, BAR)]

    def _keys(self, width: int, count: int, *texts: str) -> list[Span]:
        """Return the last line: what the keys do, in the first of the texts that fits, and which items are seen."""
        last = min(self.scrolled + self.page, count)
        place = f"{self.scrolled + 1 if count else 0}-{last} of {count} "
        left = next((text for text in (*texts, " q leave") if columns(text) + 2 + len(place) <= width), "")
        return [(padded(left, width - len(place)) + place if left else padded(place, width), BAR)]


@dataclasses.dataclass(slots=True)
class View(Scrolled):
    """The view of qtop: the queues, and how they are shown."""

    flow: Flow = dataclasses.field(default_factory=Flow)
    definition: SpaceDefinition | None = None
    usage: SpaceUsage | None = None
    sort: Sort = Sort.DEPTH
    backwards: bool = False
    bars: str = console.BARS

    def lines(self, width: int, height: int) -> list[list[Span]]:
        """Return the lines for a window: what there is as a whole, the queues, and at the bottom what the keys do."""
        queues = self._sorted()
        last = self.flow.last
        head = [self._title(width, times.show(last.time_us).split()[1] if last else "reading")]
        if height >= 12:
            head += [*self._totals(width), []]
        chosen = _fitting(width, queues)
        seen = self._seen(queues, height - len(head) - 2)
        shown = [*head, [(padded(_titles(chosen, self), width), STRONG)]]
        shown += [self._row(queue, chosen, width) for queue in seen]
        if not queues and last is not None:
            shown.append([("There are no queues.", FAINT)])
        shown = shown[: height - 1]
        shown += [[] for _ in range(height - 1 - len(shown))]
        order = f"{self.sort.value}{', reversed' if self.backwards else ''}"
        long = f" q leave  s sort ({order})  r reverse  \N{UPWARDS ARROW}\N{DOWNWARDS ARROW} scroll"
        return [*shown, self._keys(width, len(queues), long, f" q leave  s {order}")]

    # ---- above and beneath the queues ----

    def _totals(self, width: int) -> list[list[Span]]:
        """Return how much of the limits of the queue space is in use, on as many lines as it takes."""
        use, limits = self.usage, self.definition
        if use is None or limits is None:
            return [[]]
        parts = [
            ("Messages", console.share(use.messages, limits.messages)),
            ("Pages", console.share(use.pages, limits.capacity)),
            ("Trans", console.share(use.transactions, limits.transactions)),
            ("Procs", console.share(use.processes, limits.processes)),
            ("Queues", console.share(use.queues, limits.queues)),
        ]
        if limits.memory:
            parts.append(("Memory", console.share(use.memory, limits.memory)))
        flows = self.flow.queues()
        rates = [(flow.in_rate, flow.out_rate) for flow in flows]
        parts += [
            ("In/s", console.rate(_sum(into for into, _ in rates))),
            ("Out/s", console.rate(_sum(out for _, out in rates))),
        ]
        return _filled(parts, width)

    # ---- the queues ----

    def _sorted(self) -> list[QueueFlow]:
        keys: dict[Sort, Callable[[QueueFlow], float]] = {
            Sort.DEPTH: lambda queue: queue.usage.messages,
            Sort.IN: lambda queue: queue.in_rate or 0,
            Sort.OUT: lambda queue: queue.out_rate or 0,
            Sort.AGE: lambda queue: -1 if queue.age is None else queue.age,
            Sort.MOVED: lambda queue: queue.usage.moved,
            Sort.NAME: lambda _queue: 0,
        }
        # The largest is first, and what is alike stands by name.
        found = sorted(self.flow.queues(), key=keys[self.sort], reverse=self.sort is not Sort.NAME)
        return found[::-1] if self.backwards else found

    def _row(self, queue: QueueFlow, chosen: Sequence[_Column], width: int) -> list[Span]:
        spans: list[Span] = []
        for number, column in enumerate(chosen):
            text = column.text(queue, self)
            style = STRONG if column is _DRAIN and queue.trend is Trend.GROWING else PLAIN
            gap = _GAP if number else ""
            spans.append((gap + _placed(text, column), style))
        left = width - sum(columns(text) for text, _ in spans)
        return [*spans, (" " * max(0, left), PLAIN)]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the view; `sort` is what the queues are sorted by by its values."""

    title: str
    width: int
    text: Callable[[QueueFlow, View], str]
    left: bool = False
    sort: Sort | None = None


_DEPTH = _Column("Depth", 6, lambda queue, _: console.count(queue.usage.messages), sort=Sort.DEPTH)
_IN = _Column("In/s", 5, lambda queue, _: console.rate(queue.in_rate), sort=Sort.IN)
_OUT = _Column("Out/s", 5, lambda queue, _: console.rate(queue.out_rate), sort=Sort.OUT)
_AGE = _Column("Age", 6, lambda queue, _: console.span(queue.age), sort=Sort.AGE)
_AGE_OF_FIRST = _Column("Age", 9, lambda queue, _: "1st " * queue.of_first + console.span(queue.age), sort=Sort.AGE)
_DRAIN = _Column("Drain", 7, lambda queue, _: _drain(queue))
_HELD = _Column("Held", 5, lambda queue, _: console.count(queue.usage.held))
_DELAYED = _Column("Delayed", 7, lambda queue, _: console.count(queue.usage.delayed))
_READY = _Column("Ready", 6, lambda queue, _: console.count(queue.usage.ready))
_MOVED = _Column("Moved", 6, lambda queue, _: console.count(queue.usage.moved), sort=Sort.MOVED)
_LOST = _Column("Lost", 6, lambda queue, _: console.count(queue.lost))
_ORDER = (_DEPTH, _READY, _DELAYED, _HELD, _IN, _OUT, _AGE, _AGE_OF_FIRST, _DRAIN, _MOVED, _LOST)
_WANTED = (_DEPTH, _IN, _OUT, _AGE, _DRAIN, _HELD, None, _DELAYED, _MOVED, _READY, _LOST)
"""The columns by their importance if the window is too narrow for all; None is the graph of the depth."""


def _fitting(width: int, queues: Sequence[QueueFlow]) -> list[_Column]:
    """Return the columns that fit into a window; the names, then the graph of the depth, take the remaining width."""
    longest = max((columns(printable(queue.name)) for queue in queues), default=0)
    name = min(max(longest, _NAME_LEAST), _NAME_ENOUGH)
    left = width - name
    chosen: list[_Column | None] = []
    age = _AGE_OF_FIRST if any(queue.of_first for queue in queues) else _AGE
    for column in (age if column is _AGE else column for column in _WANTED):
        wanted = len(_GAP) + (column.width if column else _COURSE_LEAST)
        if wanted > left:
            break
        left -= wanted
        chosen.append(column)
    more = min(max(longest, name), _NAME_MOST) - name
    name += min(more, left)
    left -= min(more, left)
    found = [_Column("Queue", name, lambda queue, _: printable(queue.name), left=True, sort=Sort.NAME)]
    found += [column for column in _ORDER if column in chosen]
    if None in chosen:
        room = min(_COURSE_LEAST + left, _COURSE_MOST)
        found.append(
            _Column("Course", room, lambda queue, view: console.sparkline(queue.depths, room, view.bars), left=True)
        )
    return found


def _titles(chosen: Sequence[_Column], view: View) -> str:
    return _GAP.join(
        _placed(("*" if view.sort is column.sort else "") + column.title, column, shorten=False) for column in chosen
    )


def _drain(queue: QueueFlow) -> str:
    if queue.stopped and queue.usage.messages:
        return "stopped"
    if queue.trend is Trend.GROWING:
        return "growing"
    return console.span(queue.drain)


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _filled(parts: Sequence[tuple[str, str]], width: int) -> list[list[Span]]:
    """Return labelled values on lines of a window, one after the other."""
    found: list[list[Span]] = [[]]
    used = 0
    for label, text in parts:
        wanted = len(label) + 1 + len(text) + len(_GAP)
        if wanted > width:
            continue
        if found[-1] and used + wanted > width:
            found.append([])
            used = 0
        found[-1] += [(f" {label} ", FAINT), (text + " ", STRONG)]
        used += wanted
    return found


def _placed(text: str, column: _Column, *, shorten: bool = True) -> str:
    text = shortened(text, column.width) if shorten or column.left else text
    pad = " " * (column.width - columns(text))
    return text + pad if column.left else pad + text


def padded(text: str, width: int) -> str:
    """Return a text padded with blanks to a width."""
    return text + " " * (width - columns(text))


@dataclasses.dataclass(slots=True)
class WatchedView(Scrolled):
    """The view of watch: the last output of a command, line by line."""

    shown: Sequence[Shown] | None = None
    clock: str = "reading"

    def show(self, shown: Sequence[Shown]) -> None:
        """Replace the previous output of the command by the present one."""
        self.shown = shown
        self.clock = times.show(time.time_ns() // 1000).split()[1]

    def lines(self, width: int, height: int) -> list[list[Span]]:
        """Return the lines for a window: the command, what it shows, and at the bottom what the keys do."""
        body = list(self._body(width))
        seen = self._seen(body, height - 2)
        seen += [[] for _ in range(self.page - len(seen))]
        keys = " q leave  \N{UPWARDS ARROW}\N{DOWNWARDS ARROW} scroll"
        return [self._title(width, self.clock), *seen, self._keys(width, len(body), keys)]

    def _body(self, width: int) -> Iterator[list[Span]]:
        for shown in self.shown or ():
            if isinstance(shown, Notice):
                yield from formats.lines(Line(sentence(shown)), width)
            elif not isinstance(shown, Rounds | Afterwards):
                yield from formats.lines(shown, width)
        if self.shown is not None and not self.shown:
            yield [("Nothing is shown.", PLAIN)]
