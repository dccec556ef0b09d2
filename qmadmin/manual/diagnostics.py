"""The diagnostics and the numbered messages, for qmadmin-diagnostics(7)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from qmadmin.atmi.control import TPQCTL
from qmadmin.atmi.errno import ERROR_NAMES, failure
from qmadmin.console.results import Entry
from qmadmin.forwarder import options as forwarder
from qmadmin.manual.roff import bold, escaped, prose
from qmadmin.shell.notices import CATALOGUE
from qmcore.errors import NoSpaceError, QueueError, Resource, SystemFailureError

_BLOCKED = "where another program kept the file locked"
_CIRCUMSTANCES = (("", False), ("after the timeout of the transaction", True), (_BLOCKED, False))
"""The cases in which the tperrno depends on more than the class of an error; and whether the timeout has passed."""


def diagnostics() -> str:
    """Return each diagnostic: name, number, class, meaning, causes, remedy, and the tperrno that it comes with."""
    lines: list[str] = []
    for kind in sorted(QueueError.by_name.values(), key=lambda found: -found.number):
        lines += [".TP", rf"{bold(kind.name)} (\-{-kind.number}), {bold(kind.__name__)}", meaning(kind)]
        lines += [".RS", ".TP 9", r"\fICauses\fR", prose(kind.causes), ".TP 9", r"\fIRemedy\fR", prose(kind.remedy)]
        lines += [".TP 9", r"\fItperrno\fR", f"{_errnos(kind)}.", ".RE"]
    return "\n".join(lines) + "\n"


def meaning(kind: type[QueueError]) -> str:
    """Return the meaning of a diagnostic."""
    return prose(inspect.getdoc(kind) or "")


def resources() -> str:
    """Return the list of the resources of QMENOSPACE."""
    return "".join(f".TP\n{bold(resource.value)}\n{prose(resource.remedy)}\n" for resource in Resource)


def shell_messages() -> str:
    """Return the numbered messages of the commands of the shell."""
    return _messages(CATALOGUE)


def forwarder_messages() -> str:
    """Return the numbered messages of the forwarder."""
    return _messages(forwarder.CATALOGUE)


def _messages(entries: Iterable[Entry]) -> str:
    lines: list[str] = []
    for entry in entries:
        text = re.sub(r"\{(\w+)\}", r"\\fI\1\\fR", escaped(f"{entry.severity.value}: {entry.form}"))
        lines += [".TP 6", str(entry.number), text]
    return "\n".join(lines) + "\n"


def _errnos(kind: type[QueueError]) -> str:
    """Return the tperrno of a diagnostic, taken from the calls themselves."""
    found: dict[str, str] = {}
    for when, time_is_over in _CIRCUMSTANCES:
        if when == _BLOCKED and kind is not SystemFailureError:
            # Nothing else is raised for this reason.
            continue
        sample = _sample(kind, blocked=when == _BLOCKED)
        name = ERROR_NAMES[failure(sample, TPQCTL(), time_is_over=time_is_over).tperrno]
        found.setdefault(name, f"{name} {when}".strip())
    return ", ".join(found.values())


def _sample(kind: type[QueueError], *, blocked: bool) -> QueueError:
    if kind is NoSpaceError:
        return NoSpaceError("", Resource.PAGES, used=0, limit=0)
    return kind("", blocked=blocked)
