r"""The examples of a manual page, which its source marks.

A comment before an example says what it is:

    .\" example: sh              a shell script
    .\" example: session         a shell session: commands behind `$ `, and what they print
    .\" example: dialogue        a session of qmadmin at a terminal; what is typed is in bold
    .\" example: python          a Python program
    .\" example: file NAME       the content of a file
    .\" example: output          what the example before it prints

The example stands between `.EX` and `.EE`. Lines `.\" setup: TEXT` are a shell script that a reader does not see. All
of them are meant to be run from top to bottom, in one directory. In what is printed `...` stands for anything.
"""

import re
from collections.abc import Iterator

from qmcore.values import dataclass

_BACK = {r"\e": "\\", r"\-": "-", r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\(dq": '"', r"\&": ""}
KINDS = ("setup", "sh", "session", "dialogue", "python", "file", "output")

_MARK = re.compile(r'\.\\" (setup|example): ?(.*)')


def plain(line: str) -> str:
    r"""Return the text of a line of an example, with the escapes of `escaped` removed."""
    return re.sub(r"\\(?:e|-|&|\(..|f[BIR])", lambda found: _BACK.get(found.group(), ""), line)


@dataclass(frozen=True, slots=True)
class PageExample:
    """An example: its kind, the name of the file if it is one, its text, and the line of the page that it begins at.

    `typed` is its text in bold.
    """

    kind: str
    name: str
    text: str
    line: int
    typed: tuple[str, ...] = ()


def examples(page: str) -> list[PageExample]:
    """Return the examples of a page in their order; ValueError if a mark precedes no example, or is unknown."""
    return list(_examples(page.splitlines()))


def unmarked(page: str) -> list[int]:
    """Return the lines of examples without a mark."""
    lines = page.splitlines()
    return [number for number, line in enumerate(lines, 1) if line == ".EX" and not _MARK.match(lines[number - 2])]


def _examples(lines: list[str]) -> Iterator[PageExample]:
    number = 0
    while number < len(lines):
        mark = _MARK.match(lines[number])
        if mark is None:
            number += 1
            continue
        begin = number + 1
        if mark[1] == "setup":
            while number < len(lines) and (more := _MARK.match(lines[number])) and more[1] == "setup":
                number += 1
            text = "".join(f"{line.partition('setup: ')[2]}\n" for line in lines[begin - 1 : number])
            yield PageExample("setup", "", text, begin)
            continue
        kind, _, name = mark[2].partition(" ")
        if kind not in KINDS or lines[begin] != ".EX":
            raise ValueError(f"line {begin}: {lines[number]!r} is not a kind of example, or has none behind it")
        number = lines.index(".EE", begin)
        shown = lines[begin + 1 : number]
        typed = tuple(plain(text) for line in shown for text in re.findall(r"\\fB(.*?)\\fR", line))
        yield PageExample(kind, name, "".join(f"{plain(line)}\n" for line in shown), begin + 1, typed)
