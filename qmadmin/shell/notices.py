"""Texts about errors: sentences of Tuxedo's catalogue, refusals of the program and its shell, and suggestions.

The engine raises the sentences about thresholds (`qmcore.limits`) with their numbers; they are listed here for the
manual page.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from qmadmin.console.results import Entry, Notice, Severity
from qmcore.errors import BadQueueError, BadResourceError, InvalidArgumentError, QueueError

if TYPE_CHECKING:
    from pathlib import Path

    from qmadmin.shell.declare import Command, Confirmation
    from qmadmin.shell.session import Session


def _error(number: int, form: str) -> Entry:
    return Entry(number, Severity.ERROR, form)


INVALID_OPTION = _error(1100, "Invalid option - {option}")
QMCONFIG_NOT_SET = _error(1101, "QMCONFIG not set")
INVALID_ARGUMENT = _error(1102, "Invalid argument {argument}")
NO_STATUS = _error(1104, "Failed to get status of {device}")
NOT_THE_OWNER = _error(1105, "Effective user id, {user}, must match the owner of QMCONFIG, {owner}")
NO_WHITE_SPACE = _error(1107, "Must have white space following quoted string")
DELAY_NOT_NUMERIC = _error(1201, "Retry delay must be numeric")
HIGH_TYPE = _error(1205, "Invalid high threshold type")
HIGH_NOT_NUMERIC = _error(1206, "High threshold must be numeric")
HIGH_NUMBER = _error(1207, "Invalid high threshold number")
LOW_TYPE = _error(1208, "Invalid low threshold type")
LOW_NOT_NUMERIC = _error(1209, "Low threshold must be numeric")
TYPES_DIFFER = _error(1210, "High and low threshold types do not match")
LOW_NOT_LESS = _error(1212, "Low threshold must be less than high threshold")
COMMAND_TOO_LONG = _error(1215, "Threshhold command length must be less than {length} characters")
CREATION_FAILED = _error(1216, "Queue creation failed for queue {queue}")
NO_TABLE = _error(1350, "{operation} - failed to open table {space}.{extent} on config {config}")
PRIORITY_NOT_CHANGED = Entry(1221, Severity.WARN, "Priority not changed")
NO_MESSAGES_MATCHED = Entry(1401, Severity.INFO, "Queue list - no messages matched on queue {queue}")
NO_MESSAGES_TO_CHANGE = Entry(1407, Severity.INFO, "{operation} - no messages matched on queue {queue}")
SAME_QUEUE = Entry(1409, Severity.WARN, "Queue change - new queue name {queue} matches old queue name")
NO_MESSAGES_TO_MOVE = Entry(1410, Severity.INFO, "{operation} - no messages matched on queue {queue}")
PROCESSES_ATTACHED = _error(1422, "ipcrm - processes attached to queue space {space}")
SPACE_NAME_TOO_LONG = _error(1508, "Queue space name length must be less than {length} characters")
ERROR_QUEUE_TOO_LONG = _error(1518, "Error queue name length must be less than {length} characters")


CATALOGUE = tuple(entry for entry in globals().copy().values() if isinstance(entry, Entry))
"""All of them by number."""


_LONGEST = 1000
"""How many characters of a notice are shown: the refused text may have megabytes."""


def bounded(notice: Notice) -> Notice:
    """Return a notice without the middle of its text if that is very long."""
    if len(notice.text) <= _LONGEST:
        return notice
    half = _LONGEST // 2
    return dataclasses.replace(notice, text=f"{notice.text[:half]} ... {notice.text[-half:]}")


class UsageError(Exception):
    """The shell cannot accept a line. The error is shown to the author of the line, and does not leave the shell."""

    def __init__(self, text: str, *, hint: str = "", number: int | None = None) -> None:
        super().__init__(text)
        self.notice = Notice.error(text, hint, number)

    @classmethod
    def of(cls, notice: Notice, cause: str = "", *, hint: str = "") -> UsageError:
        """Return one with a sentence of the catalogue and, after a colon, its cause."""
        return cls(f"{notice.text}: {cause}" if cause else notice.text, hint=hint, number=notice.number)


class InputEndedError(Exception):
    """The input ended at a prompt; with `leaves_defaults` that means an empty answer, if the prompt allows one."""

    def __init__(self, prompt: str, *, leaves_defaults: bool = False) -> None:
        super().__init__(prompt)
        self.leaves_defaults = leaves_defaults
        self.notice = Notice.error(
            f"Input ended at the prompt '{' '.join(prompt.split())}'",
            "Give the value on the line of the command, or the answer on a line of its own.",
        )


_COMPARED_MOST = 200
"""The maximum length of a name that is compared; no name is longer, and comparing megabytes takes seconds."""
_MOST = 2000
"""How many names are compared, which takes a few milliseconds."""


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
"""Commands of other programs, and what they are called here."""


def elsewhere(name: str) -> str:
    """Return the beginning of a hint for a command of other programs; empty if it is unknown."""
    return _ELSEWHERE.get(name.lower(), "")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the most similar known name; empty if none is similar, or it is the same name."""
    import difflib

    if len(name) > _COMPARED_MOST:
        return ""
    folded = {other.lower(): other for other in itertools.islice(known, _MOST)}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.7)
    found = folded[near[0]] if near else ""
    return "" if found == name else found


def meant(name: str) -> str:
    """Return the beginning of a hint with a name that may have been meant; empty for no name."""
    return f"Did you mean {name}? " if name else ""


def meant_option(command: Command, text: str) -> str:
    """Return the option that may have been meant by one that the command does not have: another case, or its word."""
    word = text.lstrip("-").replace("-", "_")
    by_word = {meant_option.name: meant_option.flag for meant_option in command.options}
    by_letter = {meant_option.flag[1:].lower(): meant_option.flag for meant_option in command.options}
    if len(word) == 1:
        return by_letter.get(word.lower(), "")
    return by_word.get(nearest(word, by_word) or word, "")


def with_sign(name: str) -> str:
    """Return the beginning of a hint for a name that contains a sign of redirection."""
    return "To send output elsewhere, put a blank before the sign, as in: Q > FILE. " if {*">|"} & {*name} else ""


def for_refusal(error: QueueError, session: Session) -> str:
    """Return the beginning of a hint on what may have been meant, if no queue or queue space has that name."""
    if isinstance(error, BadQueueError | BadResourceError):
        name = error.queue if isinstance(error, BadQueueError) else error.space
        return with_sign(name) or meant(_known(error, name, session))
    return ""


def _known(error: QueueError, name: str, session: Session) -> str:
    """Return the queue or queue space with the most similar name."""
    try:
        if isinstance(error, BadQueueError) and session.space is not None:
            return nearest(name, (queue.name for queue in session.space.queues()))
        if isinstance(error, BadResourceError) and error.space and session.has_device:
            return nearest(name, session.device.places())
    except QueueError:
        # Whatever is wrong with the device has been reported already.
        pass
    return ""


log = logging.getLogger("qmadmin.shell")


def fault(error: Exception, where: str) -> str:
    """Log a bug with its traceback, and return what the user sees: its kind, and where it is in the log."""
    import secrets

    reference = secrets.token_hex(4)
    log.error("fault %s in %s", reference, where, exc_info=error)
    return f"{type(error).__name__}; the log has it as fault {reference}"


def declined(confirm: Confirmation, given: Mapping[str, Any]) -> Notice:
    """Return the warning that a confirmation was answered with no."""
    if isinstance(confirm.declined, Notice):
        return confirm.declined
    return Notice.warning(confirm.declined.format(**given))


def refusal(error: QueueError, suggestion: str) -> Notice:
    """Return the notice for an error of the engine; a sentence of the catalogue needs no name before it."""
    number = error.catalogue if isinstance(error, InvalidArgumentError) else None
    text = error.message if number else f"{error.name}: {error.message}"
    return Notice.error(text, (suggestion + error.hint).strip(), number)


# ---- refusals before the first command -------------------------------------------------------------------------------


OPTIONS = "[-f FILE | -c COMMAND ...] [OPTION ...]"
USAGE = f"Usage: qmadmin {OPTIONS} [DEVICE]"
NO_DEVICE = (
    "Name the device, as in: qmadmin QUE\n"
    "It is a file, which need not exist yet, or a URL of PostgreSQL.\n"
    "The environment variable QMCONFIG may name it too."
)


class StartError(Exception):
    """The program cannot start. `more` says what to do."""

    def __init__(self, notice: Notice, more: str = USAGE) -> None:
        super().__init__(notice.text)
        self.notice = notice
        self.more = more


def check_status(device: str, path: Path | None) -> None:
    """Refuse a path that cannot be a device, or a device of another user that cannot be read.

    It may be a file, a slice of a disk, or an unused name in an existing directory. Only its status is read: a process
    that has a device open must not open and close its file. `path` is its file; None means a database.
    """
    if path is None:
        _check_url(device)
        return
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.parent.is_dir():
            return
        raise StartError(
            NO_STATUS(device=device), f"The directory '{path.parent}' does not exist; create it first."
        ) from None
    except OSError as error:
        raise StartError(NO_STATUS(device=device), f"{error.strerror}.") from None
    if stat.S_ISDIR(found.st_mode):
        raise StartError(NO_STATUS(device=device), "It is a directory; name a file in it.")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise StartError(NO_STATUS(device=device), "It is neither a file nor a slice of a disk.")
    if found.st_uid != os.geteuid() and not (found.st_size and os.access(path, os.R_OK)):
        raise StartError(
            NOT_THE_OWNER(user=os.geteuid(), owner=found.st_uid), f"Run qmadmin as the owner of '{device}'."
        )


def _check_url(device: str) -> None:
    """Refuse a URL that is malformed, or of an unsupported kind; no server is contacted yet."""
    from qmadmin.volume_makers import path_of

    try:
        path_of(device)
    except QueueError as error:
        raise StartError(UsageError(error.message).notice, error.hint) from None


def refuse_together(given: Mapping[str, bool]) -> None:
    """Refuse two options that both give the source of the commands."""
    first, second, *_ = [*(flag for flag, is_given in given.items() if is_given), "", ""]
    if second:
        raise StartError(UsageError(f"Options {first} and {second} exclude each other").notice)


def refuse_without(upgrade: bool, given: Mapping[str, bool]) -> None:
    """Refuse options of an upgrade without --upgrade."""
    for flag, is_given in given.items():
        if is_given and not upgrade:
            raise StartError(UsageError(f"Option {flag} belongs to --upgrade, which is missing").notice)
