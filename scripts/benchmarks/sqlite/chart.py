"""The ratios of a run as a picture: a block of bars for each row, a bar for each subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from benchmarks import machine
from benchmarks.sqlite.rows import OURS, RAW

_COLOURS = {OURS: "#c2410c", "huey": "#4f6d9a", "persist-queue": "#6f9a8d", "litequeue": "#9a8f5f"}
_OTHER = "#888888"
_LEFT, _WIDE, _RIGHT = 420, 460, 60
_BAR, _GAP, _TOP = 14, 10, 74
_FONT = 'font-family="sans-serif" font-size="11"'
_STEP = 0.5
"""The ratio between two lines."""


def chart(result: Mapping[str, Any]) -> str:
    """Return an SVG of all rows that have ratios; what is not synced has pale bars."""
    blocks = list(_blocks(result["results"]))
    most = max([1.0, *(row["ratio"] for _, rows in blocks for row in rows)])
    scale = _WIDE / most
    bars: list[str] = []
    height = _TOP
    for title, rows in blocks:
        bars += _block(title, rows, height, scale)
        height += len(rows) * _BAR + _GAP
    width = _LEFT + _WIDE + _RIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 10}" {_FONT}>',
            f'<rect width="{width}" height="{height + 10}" fill="#ffffff"/>',
            _text(
                10, 20, "Messages a second, as a ratio to the plain module sqlite3 in the same run", 'font-size="14"'
            ),
            _text(10, 36, f"{machine.sentence(result['machine'])}; {result['when'][:10]}", 'fill="#666666"'),
            *_legend(blocks),
            *_grid(most, scale, height),
            *bars,
            "</svg>",
            "",
        ]
    )


def _blocks(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Return the rows that have ratios, and what stands in them beside the bar itself."""
    compared = [row for row in results if row["ratio"] is not None and row["subject"] != RAW]
    for title in dict.fromkeys(row["title"] for row in compared):
        yield title, [row for row in compared if row["title"] == title]


def _block(title: str, rows: Sequence[Mapping[str, Any]], top: float, scale: float) -> Iterator[str]:
    yield _text(_LEFT - 8, top + _BAR * (len(rows) + 1) / 2 - 2, title, 'text-anchor="end"')
    for number, row in enumerate(rows):
        y = top + number * _BAR
        pale = ' fill-opacity="0.45"' if row["durability"].startswith("-") else ""
        length = row["ratio"] * scale
        size = f'width="{length:.1f}" height="{_BAR - 2}"'
        told = escape(f"{row['subject']}: {row['ratio']:.2f}, {row['durability']}")
        yield f'<rect x="{_LEFT}" y="{y}" {size} fill="{_colour(row["subject"])}"{pale}><title>{told}</title></rect>'
        yield _text(_LEFT + length + 4, y + _BAR - 4, f"{row['ratio']:.2f}", 'font-size="10"')


def _legend(blocks: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> Iterator[str]:
    x = 10
    for subject in dict.fromkeys(row["subject"] for _, rows in blocks for row in rows):
        yield f'<rect x="{x}" y="46" width="10" height="10" fill="{_colour(subject)}"/>'
        yield _text(x + 14, 55, subject)
        x += 34 + 7 * len(subject)
    yield _text(x, 55, "pale: not synced", 'fill="#666666"')


def _grid(most: float, scale: float, height: float) -> Iterator[str]:
    for step in range(int(most / _STEP) + 1):
        ratio = step * _STEP
        x = _LEFT + ratio * scale
        colour = "#333333" if ratio == 1 else "#dddddd"
        yield f'<line x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{height}" stroke="{colour}"/>'
        yield _text(x, _TOP - 8, f"{ratio:g}", 'text-anchor="middle" fill="#666666"')


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'


def _colour(subject: str) -> str:
    return _COLOURS.get(subject, _OTHER)
