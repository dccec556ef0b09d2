"""What a live view of a command shows in a window of some size: lines of text with styles by name."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmadmin.console import layout
from qmadmin.console.escapes import printable
from qmadmin.console.render import sentence
from qmadmin.console.results import Afterwards, Line, Notice, Rounds
from qmadmin.shell.live_view import BAR, PLAIN, cut, padded
from qmcore import times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qmadmin.console.layout import Span
    from qmadmin.console.results import Shown


@dataclasses.dataclass(slots=True)
class WatchedView:
    """What a command showed last. `scrolled` is the number of its lines above the window."""

    title: str
    seconds: float
    shown: Sequence[Shown] | None = None
    clock: str = "reading"
    scrolled: int = 0
    page: int = 1
    """How many lines the window had room for when it was drawn last."""

    def show(self, shown: Sequence[Shown]) -> None:
        """Put what a command shows now in the place of what it showed before."""
        self.shown = shown
        self.clock = times.show(time.time_ns() // 1000).split()[1]

    def lines(self, width: int, height: int) -> list[list[Span]]:
        """Return the lines for a window: the command, what it shows, and at the bottom what the keys do."""
        body = list(self._body(width))
        self.page = max(1, height - 2)
        self.scrolled = max(0, min(self.scrolled, len(body) - self.page))
        seen = body[self.scrolled : self.scrolled + self.page]
        seen += [[] for _ in range(self.page - len(seen))]
        return [self._title(width), *seen, self._keys(width, len(body))]

    def scroll(self, by: int) -> None:
        """Move the window down by so many lines, or up; it stays within what there is."""
        self.scrolled = max(0, self.scrolled + by)

    def _title(self, width: int) -> list[Span]:
        right = f"every {self.seconds:g}s  {self.clock} "
        room = width - len(right) - 2
        return [(padded(f" {cut(printable(self.title), room)}", width - len(right)) + right, BAR)]

    def _body(self, width: int) -> Iterator[list[Span]]:
        for shown in self.shown or ():
            if isinstance(shown, Notice):
                yield from layout.lines(Line(sentence(shown)), width)
            elif not isinstance(shown, Rounds | Afterwards):
                yield from layout.lines(shown, width)
        if self.shown is not None and not self.shown:
            yield [("Nothing is shown.", PLAIN)]

    def _keys(self, width: int, count: int) -> list[Span]:
        last = min(self.scrolled + self.page, count)
        place = f"{self.scrolled + 1 if count else 0}-{last} of {count} "
        long = " q leave  \N{UPWARDS ARROW}\N{DOWNWARDS ARROW} scroll"
        left = next((text for text in (long, " q leave", "") if layout.columns(text) + 2 + len(place) <= width), "")
        return [(padded(left, width - len(place)) + place, BAR)]
