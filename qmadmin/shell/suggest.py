"""What is said of errors: what may have been meant by names written nearly so, and where the log has a fault."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any

from qmadmin.console.results import Notice, Severity
from qmcore.errors import BadQueueError, BadResourceError, QueueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qmadmin.shell.declare import Command, Confirmation
    from qmadmin.shell.session import Session

_LONGEST = 200
"""How long a name may be that is compared; no name is as long, and to compare one of megabytes takes seconds."""
_MOST = 2000
"""How many names are compared: a few milliseconds."""


_LISTS = "lidl lists the device list, qspacelist queue spaces, qinfo queues, qlist messages. "
_ELSEWHERE = {
    **dict.fromkeys(("ls", "dir", "list", "show", "\\d", "\\l", ".tables"), _LISTS),
    **dict.fromkeys(("clear", "cls", "reset"), "Ctrl-L clears the screen, !clear too. "),
    **dict.fromkeys(("cd", "use", "connect", "open"), "qopen opens a queue space, qset sets the current queue. "),
    **dict.fromkeys(
        ("bye", "logout", "close", ":q", ":q!", ".quit", "exit()", "quit()", "exit;", "quit;"), "quit does. "
    ),
    **dict.fromkeys(("man", "\\?", "\\h", ".help", "--help", "-h", "/?"), "help does. "),
}
"""What a word of other programs that leaves, lists or helps is called here."""


def elsewhere(name: str) -> str:
    """Return the beginning of a hint for a command that other programs have; empty for one that is not known."""
    return _ELSEWHERE.get(name.lower(), "")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is written most alike; empty if none is, or it is the very name."""
    import difflib

    if len(name) > _LONGEST:
        return ""
    folded = {other.lower(): other for other in itertools.islice(known, _MOST)}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.7)
    found = folded[near[0]] if near else ""
    return "" if found == name else found


def meant(name: str) -> str:
    """Return the beginning of a hint that names what may have been meant; empty for nothing."""
    return f"Did you mean {name}? " if name else ""


def option(command: Command, text: str) -> str:
    """Return the option that may have been meant by one that the command does not have: another case, or its word."""
    word = text.lstrip("-").replace("-", "_")
    by_word = {option.name: option.flag for option in command.options}
    by_letter = {option.flag[1:].lower(): option.flag for option in command.options}
    if len(word) == 1:
        return by_letter.get(word.lower(), "")
    return by_word.get(nearest(word, by_word) or word, "")


def with_sign(name: str) -> str:
    """Return the beginning of a hint for a name in which there is a sign that sends output elsewhere."""
    return "To send output elsewhere, put a blank before the sign, as in: Q > FILE. " if {*">|"} & {*name} else ""


def for_refusal(error: QueueError, session: Session) -> str:
    """Return the beginning of a hint on what may have been meant, where there is no queue or space of that name."""
    if isinstance(error, BadQueueError | BadResourceError):
        name = str(error.facts.get("queue") or error.facts.get("space") or "")
        return with_sign(name) or meant(_known(error, name, session))
    return ""


def _known(error: QueueError, name: str, session: Session) -> str:
    """Return the queue or queue space whose name is most alike."""
    try:
        if isinstance(error, BadQueueError) and session.space is not None:
            return nearest(name, (queue.name for queue in session.space.queues()))
        if isinstance(error, BadResourceError) and error.facts.get("space") and session.has_device:
            return nearest(name, (space.name for space in session.device.spaces()))
    except QueueError:
        # Whatever is wrong with the device is told already.
        pass
    return ""


log = logging.getLogger("qmadmin.shell")


def fault(error: Exception, where: str) -> str:
    """Log a bug with its traceback, and return what a person is told of it: its kind, and where the log has it."""
    import secrets

    reference = secrets.token_hex(4)
    log.error("fault %s in %s", reference, where, exc_info=error)
    return f"{type(error).__name__}; the log has it as fault {reference}"


def declined(confirm: Confirmation, given: Mapping[str, Any]) -> Notice:
    """Return the warning that a confirmation was answered with no."""
    if isinstance(confirm.declined, Notice):
        return confirm.declined
    return Notice(Severity.WARN, confirm.declined.format(**given))


def refusal(error: QueueError, suggestion: str) -> Notice:
    """Return what an engine's error says; a sentence of the catalogue needs no name in front."""
    number = error.facts.get("catalogue")
    text = error.message if number else f"{error.name}: {error.message}"
    return Notice(Severity.ERROR, text, (suggestion + error.hint).strip(), number)
