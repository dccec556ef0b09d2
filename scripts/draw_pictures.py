#!/usr/bin/env python3
"""Draw the pictures of the README: the screens of a terminal in which the programs really run.

draw_pictures.py [DIRECTORY]    write shell.svg and qtop.svg, into scripts/pictures where no directory is named

It needs pexpect and pyte, which scripts/test installs.
"""

from __future__ import annotations

import contextlib
import html
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pyte

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 96
_WIDTH, _HEIGHT, _EDGE = 8.4, 18, 14
_COLORS = {
    "default": "#d8dee9", "black": "#3b4252", "red": "#e0707a", "green": "#a3be8c", "brown": "#ebcb8b",
    "blue": "#81a1c1", "magenta": "#b48ead", "cyan": "#88c0d0", "white": "#e5e9f0",
}  # fmt: skip
_GROUND = "#242933"

LAY_OUT = """\
crdl QUE 0 2000
qspacecreate SHOP 54320 500 10 20 20 1000 ERRORS n 16
qopen SHOP
qcreate ERRORS fifo none 0 0 100% 0% ""
qcreate ORDERS priority,fifo none 2 0 80% 0% ""
qcreate ANSWERS fifo none 2 0 80% 0% ""
"""


class Screen:
    """A program in a terminal, until its picture has been taken."""

    def __init__(self, directory: Path, arguments: list[str], lines: int) -> None:
        self._screen = pyte.Screen(COLUMNS, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "qmadmin.program", *arguments],
            cwd=str(directory),
            env=_environment(directory),
            dimensions=(lines, COLUMNS),
            timeout=30,
        )

    def type(self, *lines: str) -> None:
        """Type lines, each when the one before has been answered."""
        for line in lines:
            self.until(lambda: self._is_asked)
            self._child.send(f"{line}\r")
            self.until_changed()

    def until_changed(self) -> None:
        """Read until something else is shown."""
        shown = self.text
        self.until(lambda: self.text != shown)

    def until(self, condition: Callable[[], bool]) -> None:
        """Read what the program writes until the condition holds."""
        while not condition():
            self._stream.feed(self._child.read_nonblocking(65536, 30))

    @property
    def text(self) -> str:
        """What the screen shows, without the bottom line."""
        return "\n".join(line.rstrip() for line in self._screen.display[:-1]).rstrip()

    @property
    def _is_asked(self) -> bool:
        line = self._screen.display[self._screen.cursor.y]
        return self._screen.cursor.x > 1 and line[: self._screen.cursor.x].endswith(("> ", ": "))

    def picture(self) -> str:
        """Return what the screen shows as SVG."""
        last = max(
            row for row, cells in self._screen.buffer.items() if any(cell.data.strip() for cell in cells.values())
        )
        rows = [self._row(row) for row in range(last + 1)]
        width, height = COLUMNS * _WIDTH + 2 * _EDGE, len(rows) * _HEIGHT + 2 * _EDGE
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-size="14"'
            " font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">\n"
            f'<rect width="100%" height="100%" rx="8" fill="{_GROUND}"/>\n'
            + "\n".join(filter(None, rows))
            + "\n</svg>\n"
        )

    def _row(self, row: int) -> str:
        cells = [self._screen.buffer[row][column] for column in range(COLUMNS)]
        parts = []
        for look, run in itertools.groupby(enumerate(cells), lambda found: found[1]._replace(data="")):
            found = list(run)
            text = "".join(cell.data for _, cell in found)
            if text.strip() or look.reverse:
                parts.append(_span(found[0][0], row, text, look))
        return "".join(parts)

    def close(self) -> None:
        """End the program."""
        self._child.close(force=True)


def _span(column: int, row: int, text: str, look: Any) -> str:
    """Return a piece of a line in one colour."""
    x, y = _EDGE + column * _WIDTH, _EDGE + row * _HEIGHT
    color, ground = _color(look.fg), _GROUND
    drawn = ""
    if look.reverse:
        color, ground = ground, color
        drawn = f'<rect x="{x:.1f}" y="{y}" width="{len(text) * _WIDTH:.1f}" height="{_HEIGHT}" fill="{ground}"/>'
    kept = text.rstrip()
    if not kept:
        return drawn
    bold = ' font-weight="bold"' * bool(look.bold)
    return (
        f'{drawn}<text x="{x:.1f}" y="{y + 13}" fill="{color}"{bold} textLength="{len(kept) * _WIDTH:.1f}"'
        f' xml:space="preserve">{html.escape(kept, quote=False)}</text>'
    )


def _color(name: str) -> str:
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    return _COLORS.get(name.removeprefix("bright"), _COLORS["default"])


def _environment(directory: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "VIRTUAL_ENV")}
    return kept | {
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("", "core", "storage")),
        "TERM": "xterm-256color",
        "TZ": "UTC",
        "ULOGPFX": "-",
    }


@contextlib.contextmanager
def screen(directory: Path, *arguments: str, lines: int) -> Iterator[Screen]:
    """Start the program in a terminal."""
    shown = Screen(directory, list(arguments), lines)
    try:
        yield shown
    finally:
        shown.close()


def shell(directory: Path) -> str:
    """Return the picture of a session: a queue space is made by answering, and a message put and seen."""
    with screen(directory, "QUE", lines=50) as shown:
        shown.type(
            "crdl QUE 0 2000", "qspacecreate", "SHOP", "54320", "500", "10", "20", "20", "1000", "ERRORS", "n", "16"
        )
        shown.type("qopen SHOP", 'qcreate ERRORS fifo none 0 0 100% 0% ""', 'qcreate ORDERS fifo none 2 30 80% 0% ""')
        shown.type('qput -p 70 -i "order 17" ORDERS "two chairs"', "qinfo", "qpeek ORDERS")
        shown.until(lambda: "\ntwo chairs\n>" in shown.text)
        return shown.picture()


def qtop(directory: Path) -> str:
    """Return the picture of qtop over queues that are in use."""
    import qmadmin

    commands = directory / "shop.qm"
    commands.write_text(LAY_OUT, encoding="utf-8")
    pexpect.run(
        f"{sys.executable} -m qmadmin.program QUE -f {commands}", cwd=str(directory), env=_environment(directory)
    )
    with (
        qmadmin.open_device(directory / "QUE") as device,
        device.open_space("SHOP") as space,
        screen(directory, "QUE", "-s", "SHOP", lines=16) as shown,
    ):
        shown.type("qtop -d 1")
        shown.until(lambda: "ORDERS" in shown.text)
        _trade(space, shown)
        return shown.picture()


def _trade(space: Any, shown: Screen) -> None:
    """Bring orders, and answer some, until the screen has shown rates; one order fails for good."""
    space.enqueue("ERRORS", b"a vase")
    for _ in range(4):
        for number in range(60):
            space.enqueue("ORDERS", b"two chairs", priority=number % 100 + 1)
        for _ in range(40):
            with space.transaction():
                space.dequeue("ORDERS")
                space.enqueue("ANSWERS", b"sent")
        for _ in range(30):
            space.dequeue("ANSWERS")
        shown.until_changed()


PICTURES = {"shell": shell, "qtop": qtop}


def main() -> int:
    """Draw all pictures."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "scripts" / "pictures"
    for name, draw in PICTURES.items():
        with tempfile.TemporaryDirectory() as directory:
            (target / f"{name}.svg").write_text(draw(Path(directory)), encoding="utf-8")
        print(f"{target / name}.svg written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
