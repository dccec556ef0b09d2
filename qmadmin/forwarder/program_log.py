"""Logging of the forwarder, its worker processes and its services: to the log, and at a terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple, TextIO

from qmadmin import ulog
from qmadmin.console import printable
from qmadmin.consumers import Wording
from qmadmin.settings import LogSettings
from qmcore.redacted import redacted

PROGRAM: Final = "tmqforward"

WORDING: Final = Wording("the forwarder", "service", PROGRAM, logging.getLogger("qmadmin.forwarder"))
"""What the forwarder and its services are called in log messages."""


class LogTerms(NamedTuple):
    """What a process logs, and where; `level` is a number of `logging`."""

    prefix: str
    as_json: bool
    level: int
    at_terminal: bool


class AtTerminal(logging.Handler):
    """Shows events at the terminal, a line for each, without tracebacks, which are in the log."""

    def __init__(self, stream: TextIO, level: int) -> None:
        super().__init__(level)
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        """Show an event."""
        try:
            moment = datetime.fromtimestamp(record.created).astimezone()
            text = " | ".join(record.getMessage().splitlines())
            line = f"{moment:%H:%M:%S} {ulog.word_of(record)}: {printable(text)}"
            with contextlib.suppress(OSError):
                print(redacted(line), file=self._stream, flush=True)
        except Exception:  # noqa: BLE001 - logging's own way with an event that cannot be formatted
            self.handleError(record)


def begin(
    environ: Mapping[str, str], log: LogSettings, *, form: str, level: str, errors: TextIO, at_terminal: bool
) -> ulog.UlogHandler:
    """Log events from a level up, including those of services; at a terminal show them there too."""
    root = logging.getLogger()
    _silence_pool()
    handler = ulog.install(PROGRAM, environ, log=log, form=form, level=_number(level), errors=errors, logger=root)
    if at_terminal and handler.prefix != ulog.TO_STDERR:
        root.addHandler(AtTerminal(errors, _number(level)))
    return handler


def terms_of_this_process() -> LogTerms | None:
    """Return what this process logs; None if logging has not begun."""
    handlers = logging.getLogger().handlers
    for handler in handlers:
        if isinstance(handler, ulog.UlogHandler):
            prefix = handler.prefix if handler.prefix == ulog.TO_STDERR else os.path.abspath(handler.prefix)
            at_terminal = any(isinstance(other, AtTerminal) for other in handlers)
            return LogTerms(prefix, handler.as_json, handler.level, at_terminal)
    return None


def go_on(terms: LogTerms) -> None:
    """Log in a worker process as the forwarder does."""
    root = logging.getLogger()
    _silence_pool()
    root.setLevel(terms.level)
    root.addHandler(ulog.UlogHandler(PROGRAM, terms.prefix, as_json=terms.as_json))
    if terms.at_terminal:
        root.addHandler(AtTerminal(sys.stderr, terms.level))


def _silence_pool() -> None:
    """Log no requests of the pool that HTTP services use: their targets may contain secrets."""
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
