"""Text as roff."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SPECIAL = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq", "\xa0": r"\ "}
)
_BACK = {r"\e": "\\", r"\-": "-", r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\(dq": '"', r"\&": ""}


def escaped(text: str) -> str:
    """Return text of which every character stands for itself."""
    changed = text.translate(_SPECIAL)
    return rf"\&{changed}" if changed.startswith((".", "'")) else changed


def plain(line: str) -> str:
    r"""Return what a line of an example says, whether `escaped` made it or a person who uses the same escapes."""
    return re.sub(r"\\(?:e|-|&|\(..|f[BIR])", lambda found: _BACK.get(found.group(), ""), line)


def prose(text: str) -> str:
    """Return running text, each sentence on a line of its own, with names in backquotes in bold."""
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z`])", " ".join(text.split()))
    return "\n".join(_with_names(sentence) for sentence in sentences)


def terms(rows: Iterable[tuple[str, str]], *, indent: str = "") -> str:
    """Return a list of terms, which are roff already, and what they mean, which is text."""
    head = f".TP {indent}".rstrip()
    return "".join(f"{head}\n{term}\n{prose(text)}\n" for term, text in rows)


def bold(text: str) -> str:
    """Return text that is to be typed as it stands."""
    return rf"\fB{escaped(text)}\fR"


def italic(text: str) -> str:
    """Return text that stands for something else."""
    return rf"\fI{escaped(text)}\fR"


def filled(template: str, parts: Mapping[str, str]) -> str:
    r"""Return a page with its generated parts: a line `.\" @NAME@` of the template stands for the part of that name."""
    for name, text in parts.items():
        mark = f'.\\" @{name}@\n'
        if template.count(mark) != 1:
            raise ValueError(f"the template has the line {mark!r} {template.count(mark)} times")
        template = template.replace(mark, text)
    return template


def _with_names(sentence: str) -> str:
    # A line that begins with a control character would be taken for a request.
    return re.sub(r"\\\(ga(.+?)\\\(ga", r"\\fB\1\\fR", escaped(sentence))
