"""A call of a command of qmspark: its options in the form of the jobs of `qmadmin.transfer`, and its output.

The output is the progress, the result, and errors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from qmadmin import ulog
from qmadmin.configuration import Configuration, ConfigurationError
from qmadmin.console.formats import Format, write_document
from qmadmin.console.process import Exit
from qmadmin.console.render import format_for, is_drawn, screen_for
from qmadmin.console.results import Afterwards, Notice, Result, Rounds, Severity, Shown, remedy
from qmcore.errors import (
    Alternative,
    BadQueueError,
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    NotOpenError,
    OperatingSystemError,
    QueueError,
    ReleaseError,
)
from qmcore.values import dataclass

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

    from qmadmin.archive.file_systems import Place
    from qmadmin.transfer import Executor
    from qmadmin.transfer.selecting import ArchiveSelection
    from qmcore.imports import Times


class Outcome(Protocol):
    """The outcome of a command."""

    def shown(self, form: Format) -> list[Shown]:
        """Return the outcome in a format."""


class Report:
    """Shows the outcome of a command. `form` is the name of a format; `quiet`: only errors and warnings."""

    def __init__(self, command: str, *, form: str | None, quiet: bool, configuration: Configuration) -> None:
        self._command = command
        self._quiet = quiet
        settings = configuration.qmadmin
        self._color = settings.color
        self._form = format_for(sys.stdout, form or settings.format)
        self._screen = screen_for(sys.stdout, sys.stderr, os.environ, settings)

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Callable[[str, int, int], None]]:
        """Show the progress of the block, which gets a function that takes it, step by step."""
        if self._quiet or not is_drawn(sys.stderr, os.environ):
            yield lambda _step, _done, _total: None
            return
        from rich.console import Console

        from qmadmin.console.styled import Meter

        with Meter(Console(file=sys.stderr, no_color=self._color == "never"), what) as reached:
            yield reached

    def note(self, notice: Notice) -> None:
        """Show a remark before the work begins."""
        if not self._quiet:
            self._screen.notice(notice)

    def show(self, told: Outcome) -> bool:
        """Show the outcome; return whether nothing in it is an error."""
        shown = told.shown(self._form)
        notices = [each for each in shown if isinstance(each, Notice)]
        self._write([each for each in shown if not isinstance(each, Notice | Rounds | Afterwards)], notices)
        for notice in notices:
            if not (self._quiet and notice.severity is Severity.INFO):
                self._screen.notice(notice)
        return not any(notice.severity is Severity.ERROR for notice in notices)

    def fail(self, sentence: str, hint: str) -> None:
        """Show why the command has failed."""
        notice = Notice.error(sentence, hint)
        if self._form is Format.JSON:
            self._write([], [notice])
        self._screen.notice(notice)

    def _write(self, results: Sequence[Result], notices: Sequence[Notice]) -> None:
        if self._quiet:
            return
        if self._form is Format.JSON:
            write_document(self._command, self._screen.write, results, notices)
        else:
            self._screen.show(results, form=self._form)
        self._screen.flush()


# ---- the call --------------------------------------------------------------------------------------------------------


logger = logging.getLogger("qmadmin.spark")

_IN_THE_WAY = (
    BadQueueError,
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    NotOpenError,
    ReleaseError,
)
"""The errors that refuse a command before it changes anything, because its request cannot be met."""

_CHANGING = ("Exporting", "Importing", "Removing")
"""The steps of jobs that change something; others only read."""

_OPTIONS = {
    Alternative.EXISTING: "The options are --existing, --rename-queue and --rename.",
    Alternative.AGAIN: "The option is --again.",
    Alternative.ABANDON: "--abandon gives it up, and --abandon-all imports of all archives.",
    Alternative.RESUME: "--resume begins again in this one.",
    Alternative.KEY: "The option is --key.",
    Alternative.LEAVE_OUT: "The option is --leave-out-missing.",
}
"""The options that lift refusals of the engine."""

_AFTER = {
    "export": "An archive that was not complete was removed; --resume continues --remove or --move.",
    "import": "The same command resumes it; --abandon gives up an import that is not published yet.",
}
"""The state after an interrupt."""


class UnusableError(Exception):
    """Nothing was begun: an argument is wrong, or something is missing. `hint` says what to do."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class BrokenOffError(InvalidArgumentError):
    """A query failed after it had begun."""


def listen() -> None:
    """Handle a termination signal like any error, so that unfinished work is cleaned up."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    # A second signal ends the program at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(Exit.TERMINATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorChoice:
    """The requested executor: a number of processes of this machine, or Spark at a master with its settings.

    `needs_spark`: it has to be Spark, without --master on all processors of this machine.
    """

    processes: int | None = None
    master: str | None = None
    partitions: int | None = None
    memory: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    needs_spark: bool = False

    def __post_init__(self) -> None:
        of_spark = {"--partitions": self.partitions, "--memory": self.memory, "--conf": self.settings}
        given = [flag for flag, value in of_spark.items() if value]
        if self.processes is not None and self.on_spark:
            raise UnusableError("--processes is for work without Spark; --partitions says how many tasks there are")
        if given and not self.on_spark:
            raise UnusableError(f"{given[0]} is for work on Spark", "Name one with --master, such as local[4].")

    @property
    def on_spark(self) -> bool:
        """Whether Spark does the work: because it is required or requested, or because it has started this program."""
        return self.needs_spark or self.master is not None or "PYSPARK_GATEWAY_PORT" in os.environ

    @contextlib.contextmanager
    def executor(self) -> Iterator[Executor | None]:
        """Choose the executor for a block; None means one that fits the work."""
        if self.on_spark:
            with self.session() as session:
                from qmadmin.spark.spark_executor import SparkExecutor

                yield SparkExecutor(session, self.partitions)
        elif self.processes is None:
            yield None
        else:
            from qmadmin.transfer import Local, Processes

            yield Local() if self.processes == 1 else Processes(self.processes)

    @contextlib.contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Start a session of Spark for the block, or use the running one."""
        from qmadmin.spark.session import active, start

        # It would log an interrupt in fifty lines.
        logging.getLogger("py4j").addHandler(logging.NullHandler())
        settings = dict(self.settings)
        if self.memory:
            settings = {"spark.driver.memory": self.memory, "spark.executor.memory": self.memory} | settings
        borrowed = active() is not None
        try:
            session = start(self.master, settings)
        except QueueError as error:
            raise UnusableError(error.message, error.hint) from error
        try:
            yield session
        finally:
            if not borrowed:
                session.stop()


class Call:
    """One call of the command `name`, with the values of its options by the names of their parameters.

    `archive` is its path or address. `needs_spark`: only Spark can carry out the command.
    """

    def __init__(
        self, name: str, given: Mapping[str, Any], archive: Path | str | None = None, *, needs_spark: bool = False
    ) -> None:
        try:
            self._configuration = Configuration.load(os.environ)
        except ConfigurationError as error:
            raise UnusableError(str(error), "qmadmin.toml(5) describes the settings.") from None
        ulog.install("qmspark", os.environ, log=self._configuration.log, level=logging.WARNING, errors=sys.stderr)
        self._name = name
        self._given = given
        self.report = Report(
            f"qmspark {name}", form=given["form"], quiet=given["quiet"], configuration=self._configuration
        )
        known = {field.name for field in dataclasses.fields(ExecutorChoice)} & given.keys()
        chosen: dict[str, Any] = {name: given[name] for name in known}
        self._executor = ExecutorChoice(**chosen, needs_spark=needs_spark or isinstance(archive, str))
        self.dry_run: bool = given.get("dry_run", False)
        self.status = Exit.OK
        self._looks = False
        self._changes = False

    def device(self, named: str | None) -> str:
        """Return the value of QMCONFIG for the device; UnusableError if none is named."""
        device = named or self._configuration.qmadmin.device
        if not device:
            raise UnusableError("no device is named", "Name it, or set QMCONFIG.")
        return device

    @contextlib.contextmanager
    def place(self, archive: Path | str) -> Iterator[Place]:
        """Return the place of an archive for the block; Spark is started for an address."""
        from qmadmin.archive.file_systems import Directory

        if isinstance(archive, Path):
            yield Directory(archive)
            return
        with contextlib.ExitStack() as stack:
            with self.report.progress("Starting Spark"):
                from qmadmin.spark.hadoop import hadoop_place

                session = stack.enter_context(self._executor.session())
                place = stack.enter_context(hadoop_place(session, archive))
            yield place

    def selection(self) -> ArchiveSelection:
        """Return the selection."""
        from qmadmin.archive.manifest import Content
        from qmadmin.transfer.selecting import DEFAULT_STATES, ArchiveSelection
        from qmcore.message import State

        self.refuse_together("--definitions-only", "definitions", "--messages-only", "messages")
        given = self._given
        content = Content.ALL
        if given["definitions"] or given["messages"]:
            content = Content.DEFINITIONS if given["definitions"] else Content.MESSAGES
        states = tuple(State(word) for words in given["states"] for word in words)
        return ArchiveSelection(
            spaces=given["spaces"] or ("*",),
            queues=given["queues"] or ("*",),
            states=tuple(dict.fromkeys(states)) or DEFAULT_STATES,
            condition=given.get("condition") or "",
            older=given.get("older"),
            newer=given.get("newer"),
            count=given.get("count"),
            content=content,
        )

    def key(self) -> bytes | None:
        """Return the key that a file holds, if one was given."""
        from qmadmin.archive.manifest_file import key_of

        return None if self._given["key"] is None else key_of(Path(self._given["key"]))

    def new_names(self, flag: str, name: str) -> dict[str, str]:
        """Return the new names that an option gives, by the old ones; UnusableError if one gets two."""
        found: dict[str, str] = {}
        for old, new in self._given[name]:
            if found.setdefault(old, new) != new:
                raise UnusableError(f"{flag} gives {old!r} two names, {found[old]!r} and {new!r}", "Give it one.")
        return found

    def times(self, snapshot_us: int) -> Times:
        """Return what happens to the times of messages of an archive that was made at a time."""
        from qmcore.imports import TimePolicy, Times
        from qmcore.times import MICROS

        policy, by = TimePolicy(self._given["times"]), self._given["shift_by"]
        if policy is not TimePolicy.SHIFT:
            return Times(policy)
        return Times(policy, since_us=snapshot_us) if by is None else Times(policy, by_us=round(by * MICROS))

    def refuse_together(self, one: str, name: str, other: str, other_name: str) -> None:
        """Refuse two options that exclude each other."""
        if self._given[name] and self._given[other_name]:
            raise UnusableError(f"{one} and {other} exclude each other")

    @contextlib.contextmanager
    def working(self) -> Iterator[tuple[Executor | None, Callable[[str, int, int], None]]]:
        """Choose the executor for the block, and show the progress of its work."""
        with self.report.progress("Starting") as progress, self._executor.executor() as workers:

            def reached(step: str, done: int, total: int) -> None:
                self._looks = True
                self._changes = self._changes or step in _CHANGING
                progress(step, done, total)

            yield workers, reached

    def changes(self) -> None:
        """Note that the command changes something from now on."""
        self._changes = True

    @contextlib.contextmanager
    def asking(self) -> Iterator[SparkSession]:
        """Start a session of Spark for the block, which logs nothing."""
        with self.report.progress("Starting Spark"), self._executor.session() as session:
            session.sparkContext.setLogLevel("OFF")
            self._looks = True
            yield session

    def show(self, told: Outcome) -> None:
        """Show the result; an error in it determines the exit status."""
        if not self.report.show(told):
            self.status = Exit.FAILED

    @contextlib.contextmanager
    def refusals(self) -> Iterator[None]:
        """Show refusals of the engine in the block, which determine the exit status."""
        try:
            yield
        except QueueError as error:
            self.status = Exit.UNUSABLE if self._is_unusable(error) else Exit.FAILED
            if self.status is Exit.FAILED:
                logger.error("%s: %s", error.name, error.message)  # noqa: TRY400 - the sentence says what is at fault
            self.report.fail(f"{error.name}: {error.message}", remedy(error, _OPTIONS))
        except (KeyboardInterrupt, SystemExit) as error:
            # A move adds notes about the state of the queues.
            notes = " ".join(getattr(error, "__notes__", ()))
            if isinstance(error, KeyboardInterrupt):
                self.report.fail(f"qmspark {self._name} was interrupted", notes or _AFTER.get(self._name, ""))
            elif notes:
                self.report.fail(f"qmspark {self._name} was stopped by a signal", notes)
            raise

    def _is_unusable(self, error: QueueError) -> bool:
        """Return whether nothing was begun because of a wrong request; damage does not count."""
        if isinstance(error, _IN_THE_WAY):
            return not (self._changes or isinstance(error, BrokenOffError))
        # A file that may not be read, or a server that does not answer.
        return isinstance(error, OperatingSystemError) and not (self._looks or self._changes)


def look_at(device: str) -> None:
    """Refuse a device that cannot be opened, before anything that takes long begins."""
    from qmadmin.opening import open_device

    with open_device(device):
        pass
