"""The log of the programs, as Tuxedo's programs keep it: a file `ULOG.mmddyy` for each day, one line for each event.

    171204.host!qmadmin.4711.4711: QM_CAT:1216: ERROR: Queue creation failed for queue Q1: QMENOSPACE: ...

Time and date are local. ULOGPFX, or `prefix` in the section [log] of the settings, names another prefix than `./ULOG`.
With `format = "json"` there each line is a JSON object with the keys `JSON_KEYS`. Nothing is made before the first
event, and a file whose name is gone, or is another file by now, is made again for the next one. The prefix `-` is no
file, but the standard error output.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, TextIO

from qmadmin.console import printable
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from qmadmin.settings import LogSettings

CATALOGUE = "QM_CAT"
"""The name of the message catalogue whose numbers are in the lines."""

PREFIX = "ULOG"

TO_STDERR: Final = "-"
"""The prefix that has the events written to the standard error output."""

JSON_KEYS: Final = {
    "time": "when it happened, in ISO 8601, local time with the offset from UTC, to the microsecond",
    "host": "the name of the machine",
    "program": "the name of the program",
    "pid": "the number of its process",
    "thread": "the number of the thread",
    "level": "its severity: DEBUG, INFO, WARN or ERROR",
    "logger": "the part of the program, such as qmadmin.forwarder",
    "catalogue": "the number in Tuxedo's message catalogue, or null",
    "text": "what happened; the traceback of an unexpected exception follows on further lines",
}
"""The keys of an event as JSON, in their order, and what they mean. They stay; others may come."""


class UlogHandler(logging.Handler):
    """Writes the events of a program to its ULOG.

    A record may carry `catalogue`, the number of its sentence in the message catalogue, and `mistyped`, where somebody
    has named what is not there: where `named` is false, as nobody has said where the log is to be, no file is made for
    that alone. Programs that share a file do not mix their lines. A file that cannot be written is warned about once,
    on `errors`, and is nobody's failure. With `as_json` each line is a JSON object.
    """

    def __init__(
        self,
        program: str,
        prefix: str = PREFIX,
        *,
        as_json: bool = False,
        errors: TextIO | None = None,
        named: bool = True,
    ) -> None:
        super().__init__()
        self._named = named
        self._program = program
        self.prefix = prefix
        self.as_json = as_json
        self._errors = errors
        self._host = os.uname().nodename
        self._path = ""
        self._file = -1
        self._identity: tuple[int, int] | None = None
        self._warned_of = ""

    def path(self, moment: datetime) -> str:
        """Return the file of the events of a day."""
        return TO_STDERR if self.prefix == TO_STDERR else f"{self.prefix}.{moment:%m%d%y}"

    def emit(self, record: logging.LogRecord) -> None:
        """Write an event."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        path = self.path(moment)
        try:
            line = self._json(record, moment) if self.as_json else self._line(record, moment)
            if path != self._path or self._is_moved(path):
                if not self._named and getattr(record, "mistyped", False) and not os.path.exists(path):  # noqa: PTH110
                    return
                self._open(path)
            # One call, so that a line of another process never stands inside of this one.
            os.write(self._file, line.encode(errors="backslashreplace") + b"\n")
        except OSError as error:
            self._warn(path, error)
        except Exception:  # noqa: BLE001 - logging's own way with an event that cannot be formatted
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        self._shut()
        super().close()

    def _open(self, path: str) -> None:
        self._shut()
        if path == TO_STDERR:
            self._file = os.dup(_STDERR)
        else:
            # What goes wrong with a message may quote it.
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._path, self._identity = path, _identity(os.fstat(self._file))

    def _is_moved(self, path: str) -> bool:
        """Return whether somebody has taken the file away, or put another in its place, as a rotation does."""
        if path == TO_STDERR:
            return False
        try:
            return _identity(os.stat(path)) != self._identity  # noqa: PTH116 - one look for each event
        except OSError:
            return True

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._path = -1, ""

    def _warn(self, path: str, error: OSError) -> None:
        # The next event tries again: a disk does not stay full for ever.
        self._shut()
        if path == self._warned_of:
            return
        self._warned_of = path
        errors = self._errors or sys.stderr
        if errors is None:
            return
        with contextlib.suppress(OSError, ValueError):
            print(f"WARN: the log {path} cannot be written: {error.strerror}", file=errors)

    def _line(self, record: logging.LogRecord, moment: datetime) -> str:
        number = getattr(record, "catalogue", None)
        where = f"{moment:%H%M%S}.{self._host}!{self._program}.{os.getpid()}.{threading.get_native_id()}"
        catalogue = f" {CATALOGUE}:{number}:" if number else ""
        return f"{where}:{catalogue} {word_of(record)}: " + " | ".join(map(_shown, self._text(record).splitlines()))

    def _json(self, record: logging.LogRecord, moment: datetime) -> str:
        facts = (
            moment.isoformat(timespec="microseconds"),
            self._host,
            self._program,
            os.getpid(),
            threading.get_native_id(),
            word_of(record),
            record.name,
            getattr(record, "catalogue", None),
            self._text(record),
        )
        return json.dumps(dict(zip(JSON_KEYS, facts, strict=True)))

    def _text(self, record: logging.LogRecord) -> str:
        """Return the sentence, and the traceback beneath it, without passwords."""
        trace = (self.formatter or _FORMATTER).formatException(record.exc_info) if record.exc_info else ""
        return redacted(f"{record.getMessage()}\n{trace}" if trace else record.getMessage())


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _shown(line: str) -> str:
    """Return a line that drives no terminal: what senders and services say may hold anything."""
    return "\t".join(map(printable, line.split("\t")))


def word_of(record: logging.LogRecord) -> str:
    """Return the word for how grave an event is."""
    return _LEVELS.get(record.levelname, record.levelname)


_STDERR = 2
_LEVELS = {"WARNING": "WARN", "CRITICAL": "ERROR"}
_FORMATTER = logging.Formatter()


def install(
    program: str,
    environ: Mapping[str, str],
    *,
    log: LogSettings | None = None,
    form: str = "",
    level: int = logging.INFO,
    errors: TextIO | None = None,
    logger: logging.Logger | None = None,
) -> UlogHandler:
    """Send what this process logs under `qmadmin`, from `level` up, to the ULOG that the environment or `log` names.

    With another `logger` it is what is logged under that one.

    `form`, "text" or "json", wins over what `log` says about it.
    """
    form = form or (log.format if log else "text")
    prefix = environ.get("ULOGPFX") or (log.prefix if log else PREFIX)
    handler = UlogHandler(program, prefix, as_json=form == "json", errors=errors, named=prefix != PREFIX)
    handler.setLevel(level)
    logger = logger or logging.getLogger("qmadmin")
    logger.addHandler(handler)
    logger.setLevel(min(level, logger.level or level))
    return handler
