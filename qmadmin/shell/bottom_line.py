"""The line under the prompt: where commands will work, and what is not as it is at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.console.escapes import printable
from qmadmin.console.formats import Format
from qmadmin.console.layout import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmadmin.shell.session import Session

_GAP = "  "
_CUT = "\N{HORIZONTAL ELLIPSIS}"
_LEAST = 5
"""Columns below which a part tells nothing any more."""


def bottom_line(session: Session, width: int) -> str:
    """Return device, queue space, current queue, criteria and modes in at most `width` columns.

    Where they do not fit, first their labels go, then the folder of the device, then the ends of the longest.
    """
    parts = _parts(session)
    texts = [text or f"no {label.lower()}" for label, text in parts]
    room = width - 2
    labelled = [f"{label}: {text or 'none'}" for label, text in parts]
    short = [texts[0].rpartition("/")[2] or texts[0], *texts[1:]]
    for found in (labelled, texts, short):
        if _width(found) <= room:
            return f" {_GAP.join(found)}"
    return f" {_GAP.join(_cut(short, room))}"


def _parts(session: Session) -> list[tuple[str, str]]:
    """Return what there is to tell, with its labels; nothing is read from the device for it."""
    device = session.path + " (read-only)" * session.readonly
    parts = [("Device", device), ("Queue space", session.space.name if session.space else "")]
    if session.space is not None:
        parts.append(("Queue", session.queue or ""))
    criteria = str(getattr(session, "criteria", "") or "")
    if criteria:
        parts.append(("Criteria", criteria))
    modes = _modes(session)
    if modes:
        parts.append(("Modes", ", ".join(modes)))
    return [(label, printable(text)) for label, text in parts]


def _modes(session: Session) -> list[str]:
    modes = session.modes
    named = {
        "echo": modes.echo,
        "verbose": modes.verbose,
        "no paging": session.can_page and not modes.paginate,
        "yes to all": modes.yes,
        "stop on error": modes.stop_on_error,
        modes.format.value: modes.format is not Format.TABLE,
    }
    return [name for name, on in named.items() if on]


def _width(texts: Sequence[str]) -> int:
    return sum(map(columns, texts)) + len(_GAP) * (len(texts) - 1)


def _cut(texts: Sequence[str], room: int) -> list[str]:
    """Shorten the longest text again and again; where that is not enough, leave texts out from the left."""
    cut = list(texts)
    while _width(cut) > room:
        longest = max(cut, key=columns)
        if columns(longest) > _LEAST:
            cut[cut.index(longest)] = longest.removesuffix(_CUT)[:-1] + _CUT
        elif len(cut) > 1:
            del cut[0]
        else:
            return [""]
    return cut
