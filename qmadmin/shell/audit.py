"""Destructive commands leave a record in the device: who was about to do what, and what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from qmadmin.console.results import Line, Notice, Outcome, Severity
from qmadmin.shell.notices import UsageError
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from qmadmin.shell.session import Session


def recorded(session: Session, line: str, action: str, work: Callable[[], Outcome]) -> Outcome:
    """Do a work of which the device keeps the record.

    The record is on the disk before the work begins; one without an outcome tells that the work did not come to its
    end. Where there is no device there is no record.
    """
    if not session.has_device:
        return work()
    device = session.device
    entry = device.audit(line, action)
    try:
        outcome = work()
    except (QueueError, UsageError) as error:
        # A command that closes the device first, and is refused then, leaves it as it was.
        with contextlib.suppress(QueueError):
            session.device.audit_outcome(entry, f"ERROR: {error}")
        raise
    # A command that puts another device in its place has its record there, or nowhere.
    if session.is_at(device):
        device.audit_outcome(entry, _told(outcome))
    return outcome


def _told(outcome: Outcome) -> str:
    """Return the sentences of an outcome."""
    shown = outcome if isinstance(outcome, list | tuple) else (outcome,)
    sentences = [each.text for each in shown if isinstance(each, Line)]
    errors = [f"ERROR: {each.text}" for each in shown if isinstance(each, Notice) and each.severity is Severity.ERROR]
    return "; ".join(errors + sentences) or "done"
