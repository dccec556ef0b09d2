"""What is said of errors, and of what was declined."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from qmadmin.console.results import Notice, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qmadmin.shell.declare import Confirmation
    from qmcore.errors import QueueError

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
