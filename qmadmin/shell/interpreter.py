"""The interpreter: it reads a command line, fills the arguments of the command, runs it, and shows its result."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qmadmin.audit import recorded_as
from qmadmin.console.formats import CsvTable, Document, Format
from qmadmin.console.process import Exit, deferring_interrupts
from qmadmin.console.render import OutputLostError
from qmadmin.console.results import Afterwards, Line, Notice, Outcome, Result, Rounds, Severity, Shown, each
from qmadmin.shell import lines, notices, redirection
from qmadmin.shell.declare import CONFIRMING, Command, Confirmation
from qmadmin.shell.kinds import YesNo
from qmadmin.shell.notices import InputEndedError, UsageError, declined, fault, refusal
from qmadmin.shell.read import Reading, check_needs
from qmcore.errors import BadQueueError, BadResourceError, QueueError

if TYPE_CHECKING:
    from qmadmin.shell.lines import Dialogue
    from qmadmin.shell.redirection import Redirection
    from qmadmin.shell.session import Session

log = logging.getLogger("qmadmin.shell")

_FILES_MOST = 16
"""The maximum depth of nested command files."""


class Interpreter:
    """Runs the commands of one dialogue in one session."""

    def __init__(self, session: Session, dialogue: Dialogue) -> None:
        self._session = session
        self._dialogue = dialogue
        self._waiting: list[Dialogue] = []
        """The dialogues that continue after the command file that one of their commands named."""
        self._document: Document | None = None
        self._csv: CsvTable | None = None
        self._in_time = False
        """Whether results arrive over time, so that no pager may wait for the last one."""
        session.draw = self._draw

    def run(self) -> Exit:
        """Run commands until `quit` or the end of the input, and return the exit status."""
        session = self._session
        while not session.finished:
            try:
                if not self._goes_on():
                    break
            except KeyboardInterrupt:
                if not self._first.patient:
                    return Exit.INTERRUPTED
                self._abandon_files()
                session.previous = ""
                self._dialogue.interrupted()
        return Exit.FAILED if session.status is Exit.OK and session.lacks else session.status

    def _goes_on(self) -> bool:
        """Run the next line; return whether another may follow."""
        line = self._dialogue.command()
        if line is None:
            if not self._waiting:
                return False
            self._dialogue = self._waiting.pop()
            return True
        failed = self._fails(line)
        self._session.screen.flush()
        if failed and self._session.modes.stop_on_error and not self._dialogue.patient:
            if not self._first.patient:
                return False
            self._abandon_files()
        self._begin_named_file()
        return True

    def _fails(self, line: str) -> bool:
        """Run a command line; return whether it was refused, which determines the exit status."""
        before, self._session.status = self._session.status, Exit.OK
        try:
            self.obey(line)
        finally:
            failed = self._session.status is not Exit.OK
            if not failed:
                self._session.status = before
        return failed

    @property
    def _first(self) -> Dialogue:
        """The first dialogue, which is not a file that a command named."""
        return self._waiting[0] if self._waiting else self._dialogue

    def _abandon_files(self) -> None:
        """Abandon the running command files."""
        self._dialogue = self._first
        self._waiting.clear()

    def _begin_named_file(self) -> None:
        """Take the next commands from the file that the last one named, and continue here after them."""
        script, self._session.named = self._session.named, None
        if script is None:
            return
        if len(self._waiting) == _FILES_MOST:
            text = f"Command files are nested more than {_FILES_MOST} deep"
            self._complain(Notice.error(text), self._dialogue.place())
            return
        self._waiting.append(self._dialogue)
        self._dialogue = script

    def obey(self, line: str) -> None:
        """Run a command line, and show its result or its error."""
        line = line.strip(lines.BLANKS)
        if not line:
            # In a script an empty line is only formatting.
            line = self._to_repeat() if self._dialogue.patient else ""
            if not line:
                return
        try:
            command, rest = self._session.catalogue.find(line)
        except UsageError as error:
            with self._documented(lines.head(line)[0]):
                self._complain(error.notice, self._dialogue.place())
            return
        if command.name == "#":
            return
        self._session.previous = line
        arguments, to = redirection.parted(command, rest)
        if to is None:
            with self._documented(command.name):
                self._do(command, arguments, line)
        else:
            self._do_elsewhere(to, command, arguments, line)

    def _do_elsewhere(self, to: Redirection, command: Command, rest: str, line: str) -> None:
        """Run a command line with redirected output, including the commands of a named file."""
        from qmadmin.shell.output import sent

        place, depth, dialogue = self._dialogue.place(), len(self._waiting), self._dialogue
        with sent(self._session, to) as told:
            with self._documented(command.name):
                self._do(command, rest, line)
            self._begin_named_file()
            while len(self._waiting) > depth and not self._session.finished and self._goes_on():
                pass
        if len(self._waiting) > depth:
            if self._session.status is Exit.OK and not self._session.finished:
                told.append(Notice.error("The command file was left before its end: its output is not read any more"))
            del self._waiting[depth:]
            self._dialogue = dialogue
        for notice in told:
            self._complain(notice, place)

    def _to_repeat(self) -> str:
        """Return the previous line; empty, with a notice, if its command does more than show something."""
        line = self._session.previous
        if not line:
            return ""
        command, rest = self._session.catalogue.find(line)
        if redirection.parted(command, rest)[1] is not None:
            self._notice(Notice.info("A line that sends its output elsewhere is not repeated"))
            return ""
        if command.shows_only:
            return line
        text = f"{command.name} is not repeated: an empty line repeats only a command that shows something"
        self._notice(Notice.info(text))
        return ""

    @contextlib.contextmanager
    def _documented(self, name: str) -> Iterator[None]:
        """Collect the results of a command in a document, or a CSV table, if that is the format."""
        self._csv = CsvTable() if self._session.modes.format is Format.CSV else None
        if self._session.modes.format is not Format.JSON:
            yield
            return
        document = self._document = Document(name, self._session.output.write)
        complete = False
        try:
            yield
            complete = True
        finally:
            self._document = None
            document.end(complete=complete)

    def _do(self, command: Command, rest: str, line: str) -> None:
        start = self._dialogue.place()
        reading = Reading(command, self._session)
        agreed: Any = None  # stays None if the following is interrupted
        with self._reporting(command, reading.given, self._dialogue.place):
            redirection.refuse_unfinished(command, rest)
            reading.take(rest)
            check_needs(command, self._session)
            reading.fill(self._dialogue, self._session)
            self._session.output.prepare()
            agreed = command.confirm is None or self._is_agreed(command.confirm, reading, start)
        if agreed is None:
            self._pass_over(reading)
        elif agreed:
            self._run(command, reading, start, line)

    def _is_agreed(self, confirm: Confirmation, reading: Reading, start: str) -> bool:
        """Return whether the command is confirmed; what it would affect is determined in any case."""
        action = confirm.action(self._session, reading.given)
        asks = confirm.is_asked(reading.given)
        agreed = reading.given["yes"] or self._session.modes.yes or not asks
        if confirm.refuse is not None and (reading.given["dry_run"] or not agreed):
            confirm.refuse(self._session, reading.given)
        if isinstance(action, Notice):
            shown: Shown = action
        elif reading.given["dry_run"]:
            shown = Line(f"Dry run, nothing is done: {action}", {"dry_run": action})
        elif reading.given["yes"] or not asks:
            return True
        elif self._session.modes.yes:
            self._dialogue.pass_over_yes_or_no()
            return True
        else:
            return self._is_confirmed(action, confirm, reading, start)
        if asks and not reading.given["yes"]:
            self._dialogue.pass_over_yes_or_no()
        self._show(shown, start)
        return False

    def _is_confirmed(self, action: str, confirm: Confirmation, reading: Reading, start: str) -> bool:
        question = action + confirm.CHOICES
        while True:
            reading.asked_to_confirm = True
            try:
                yes = YesNo().read(lines.answer(self._dialogue.ask(question, YesNo())) or "n", {})
            except UsageError as error:
                if not self._dialogue.patient:
                    hint = "Answer on the next line, or give -y."
                    raise UsageError(f"{error.notice.text} at '{question.strip()}'", hint=hint) from None
                self._dialogue.warn(reading.again(error.notice))
                continue
            if not yes:
                self._show(declined(confirm, reading.given), start)
            return yes

    def _run(self, command: Command, reading: Reading, start: str, line: str) -> None:
        hidden = {option.name for option in CONFIRMING}
        given = {name: value for name, value in reading.given.items() if name not in hidden}
        outcome: Outcome = None

        try:
            with (
                deferring_interrupts(),
                self._reporting(command, given, lambda: start),
                recorded_as(reading.recorded(line)),
            ):
                outcome = command.handler(self._session, **given)
        except KeyboardInterrupt:
            self._interrupted(command, outcome)
            raise
        # Rows may be read from the device only now.
        with self._reporting(command, given, lambda: start):
            self._show(outcome, start)

    def _show(self, outcome: Outcome, start: str) -> None:
        """Show the results of a command in their order."""
        session = self._session
        results: list[Result] = []
        for shown in (*session.take_remarks(), *each(outcome)):
            if isinstance(shown, Rounds):
                self._draw(results)
                results = []
                self._show_in_time(shown, start)
                continue
            if not isinstance(shown, (Notice, Afterwards)):
                results.append(shown)
                continue
            self._draw(results)
            results = []
            for notice in (shown,) if isinstance(shown, Notice) else shown.notices():
                if notice.severity is Severity.ERROR:
                    session.status = Exit.FAILED
                session.lacks = session.lacks or notice.lacks
                self._notice(notice, "" if notice.severity is Severity.INFO else start)
        self._draw(results)

    def _draw(self, results: Sequence[Result]) -> None:
        try:
            if results:
                self._draw_at_once(results)
        except KeyboardInterrupt:
            if not self._in_time:
                self._end_line()
            raise

    def _draw_at_once(self, results: Sequence[Result]) -> None:
        if self._document is not None:
            for result in results:
                self._document.add(result)
        elif self._csv is not None and self._session.modes.format is Format.CSV:
            for line in self._csv.lines(results):
                self._session.output.write(f"{line}\n")
        else:
            modes = self._session.modes
            self._session.output.show(results, form=modes.format, paged=modes.paginate and not self._in_time)

    def _show_in_time(self, rounds: Rounds, start: str) -> None:
        """Show each round when it arrives, in a document of its own."""
        self._in_time = True
        try:
            for number, shown in enumerate(rounds.rounds):
                if number and self._document is not None:
                    self._document.again()
                self._show(shown, start)
                self._session.output.flush()
        except KeyboardInterrupt:
            self._end_line()
            raise
        finally:
            self._in_time = False

    def _interrupted(self, command: Command, outcome: Outcome) -> None:
        """Show that the command was carried out, if it was, because its results are not shown."""
        self._end_line()
        if outcome is not None:
            self._notice(Notice.info(f"{command.name} was completed before the interrupt; its output is omitted"))

    def _end_line(self) -> None:
        """Continue below the `^C` that a terminal shows for an interrupt outside a prompt."""
        if self._session.at_terminal:
            self._session.output.prompt("\n")

    # ---- what goes wrong ----

    @contextlib.contextmanager
    def _reporting(self, command: Command, given: Mapping[str, Any], place: Callable[[], str]) -> Iterator[None]:
        """Turn errors of the block into notices, even bugs, which must not end the session."""
        try:
            yield
        except (UsageError, InputEndedError) as error:
            self._complain(error.notice, place())
        except QueueError as error:
            self._complain(
                self._refused(command, given, error),
                place(),
                logged=True,
                mistyped=isinstance(error, BadResourceError | BadQueueError),
            )
        except OutputLostError:
            raise
        except OSError as error:
            reason = f"{command.name} failed: {error.strerror or error}"
            named = "" if error.filename is None else f": '{os.fsdecode(error.filename)}'"
            self._complain(Notice.error(reason + named), place(), logged=True)
        except Exception as error:  # noqa: BLE001 - the log has it
            text = f"{command.name} failed inside qmadmin: {fault(error, command.name)}"
            self._complain(Notice.error(text), place())

    def _refused(self, command: Command, given: Mapping[str, Any], error: QueueError) -> Notice:
        notice = refusal(error, notices.for_refusal(error, self._session))
        complete = all(positional.name in given for positional in command.positionals)
        sentence = command.failure(error, given, self._session) if command.failure and complete else None
        if sentence is None:
            return notice
        return Notice(sentence.severity, f"{sentence.text}: {notice.text}", notice.hint, sentence.number)

    def _complain(self, notice: Notice, place: str, *, logged: bool = False, mistyped: bool = False) -> None:
        for remark in self._session.take_remarks():
            self._notice(remark)
        notice = notices.bounded(notice)
        self._session.status = Exit.FAILED
        if logged:
            log.error("%s", notice.text, extra={"catalogue": notice.number, "mistyped": mistyped})
        self._notice(notice, place)

    def _notice(self, notice: Notice, place: str = "") -> None:
        if self._document is not None:
            self._document.note(notice)
        self._session.output.notice(notice, place)

    def _pass_over(self, reading: Reading) -> None:
        """Drop the answers of a refused command, so that they are not taken for commands."""
        if reading.asked_to_confirm:
            # No prompts are left; but a user at a terminal was asked again, and has answered.
            where = self._dialogue.pass_over_yes_or_no()
        else:
            where = self._dialogue.pass_over(reading.unread)
        if where:
            text = f"Skipped the remaining answers to {reading.command.name}"
            self._notice(Notice.info(text), where)
