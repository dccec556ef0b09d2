"""The sentences of Tuxedo's message catalogue that concern the shell, and the refusals that never leave the shell.

Those about thresholds are raised by the engine (`qmcore.limits`), which knows the numbers; they stand here for the
manual page.
"""

from __future__ import annotations

import dataclasses

from qmadmin.console.results import Entry, Notice, Severity


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
"""How many characters of a notice are shown: what was refused may have megabytes."""


def bounded(notice: Notice) -> Notice:
    """Return a notice whose text has its middle left out where it is very long."""
    if len(notice.text) <= _LONGEST:
        return notice
    half = _LONGEST // 2
    return dataclasses.replace(notice, text=f"{notice.text[:half]} ... {notice.text[-half:]}")


class UsageError(Exception):
    """The shell cannot take a line as it stands. It is shown to the person who wrote the line, and goes no further."""

    def __init__(self, text: str, *, hint: str = "", number: int | None = None) -> None:
        super().__init__(text)
        self.notice = Notice(Severity.ERROR, text, hint, number)

    @classmethod
    def of(cls, notice: Notice, cause: str = "", *, hint: str = "") -> UsageError:
        """Make one of a sentence of the catalogue and, behind a colon, its cause."""
        return cls(f"{notice.text}: {cause}" if cause else notice.text, hint=hint, number=notice.number)


class InputEndedError(Exception):
    """The input ended where an answer was due; with `leaves_defaults` an empty one is meant, where there may be one."""

    def __init__(self, prompt: str, *, leaves_defaults: bool = False) -> None:
        super().__init__(prompt)
        self.leaves_defaults = leaves_defaults
        self.notice = Notice(
            Severity.ERROR,
            f"Input ended at the prompt '{' '.join(prompt.split())}'",
            "Give the value on the line of the command, or the answer on a line of its own.",
        )
