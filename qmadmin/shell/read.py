"""Fills the arguments of a command: from the words of its line, then from answers to prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qmadmin.console.results import Notice, Severity
from qmadmin.shell import lines, notices
from qmadmin.shell.declare import Command, Needs, Option, Positional
from qmadmin.shell.kinds import CapacityCommand, Kind, Words
from qmadmin.shell.lines import Asking, Word
from qmadmin.shell.notices import InputEndedError, UsageError
from qmcore.errors import InvalidArgumentError
from qmcore.redacted import HIDDEN

if TYPE_CHECKING:
    from qmadmin.shell.session import Session


class Reading:
    """The arguments of one command while they are read.

    `given` has the values so far. `unread` is how many answers the command would still ask for, so that a script can
    skip them when the command is refused.
    """

    def __init__(self, command: Command, session: Session | None = None) -> None:
        self.command = command
        self.given: dict[str, Any] = {option.name: option.unset for option in command.options}
        self.asked_to_confirm = False
        self._torn = False
        self._cleared = False
        self._flags: set[str] = set()
        self._doubts: list[str] = []
        self._words: dict[str, str] = {}
        for positional in command.positionals:
            meant = positional.meant(session) if positional.meant and session else None
            if meant is not None:
                self._words[positional.name] = meant
        self._to_ask = [
            positional.name
            for positional in command.positionals
            if positional.prompt and positional.name not in self._words
        ]

    @property
    def unread(self) -> int:
        """The number of prompts that have not been asked, the confirmation among them.

        After a quote that is not closed the intended line is unknown; none is counted then.
        """
        if self._torn:
            return 0
        confirm = self.command.confirm
        asks = confirm is not None and confirm.is_asked(self.given)
        to_confirm = asks and not self.given["yes"] and not self.asked_to_confirm
        return len(self._to_ask) + to_confirm

    def take(self, line: str) -> None:
        """Take the options and words of a command line (what follows the command's name)."""
        if self.command.raw:
            self._words = {positional.name: line for positional in self.command.positionals}
            if line and not self._words:
                raise UsageError(f"{self.command.name} takes no arguments, got {line!r}")
            return
        try:
            found = lines.split(line)
        except UsageError:
            self._torn = True
            raise
        problem = None
        arguments: list[Word] = []
        while found:
            if not stands_for_option(self.command, found[0], len(arguments)):
                if self.command.takes_rest:
                    arguments.append(Word(line[found[0].start :]))
                    break
                arguments.append(found.pop(0))
                continue
            if found[0].text == "--":
                arguments += found[1:]
                break
            try:
                self._take_option(found)
            except (UsageError, InvalidArgumentError) as error:
                # The words after it still show which answers have to be skipped.
                problem = problem or error
        for positional, word in zip(self.command.positionals, arguments, strict=False):
            self._words[positional.name] = word.text
            if positional.name in self._to_ask:
                self._to_ask.remove(positional.name)
        self._to_ask = [
            positional.name
            for positional in self.command.positionals
            if positional.name in self._to_ask and not self._is_replaced(positional)
        ]
        if problem is not None:
            raise problem
        if len(arguments) > len(self.command.positionals):
            raise self._too_many(arguments)

    def fill(self, asking: Asking, session: Session) -> Mapping[str, Any]:
        """Read all positional arguments, asking for those that the line did not have, and return all values."""
        for positional in self.command.positionals:
            self.given[positional.name] = self._value(positional, asking, session)
        for doubt in self._doubts:
            session.remarks.append(Notice.warning(doubt))
        return self.given

    def recorded(self, line: str) -> str:
        """Return the line of the command as it is recorded."""
        for positional in self.command.positionals:
            if positional.unrecorded and positional.name in self._words:
                words = lines.split(line)
                ends = [*(f" {line[word.start :]}" for word in words[1:]), ""]
                its = [at for at, word in enumerate(words) if word.text == self._words[positional.name]]
                line = line[: words[its[-1]].start] + HIDDEN + ends[its[-1]]
        return line

    def again(self, notice: Notice) -> Notice:
        """Return why a prompt is repeated, with how to leave it."""
        return dataclasses.replace(notice, hint=f"{notice.hint} Ctrl-C leaves {self.command.name}.".lstrip())

    # ---- options ----

    def _take_option(self, found: list[Word]) -> None:
        """Take the first word as an option: a flag, several flags in one, or an option with its value."""
        text = found.pop(0).text
        long = next((option for option in self.command.options if option.long == text), None)
        if long is not None:
            self._set(long, None)
            return
        letters = text[1:]
        while letters:
            option = self._option(f"-{letters[0]}", text)
            letters = letters[1:]
            if option.kind is None:
                self._set(option, None)
                continue
            if not letters and not found:
                raise UsageError(f"Option {option.flag} needs a value: {option.metavar}", hint=self._usage)
            self._set(option, letters or found.pop(0).text)
            letters = ""

    def _option(self, flag: str, text: str) -> Option:
        for option in self.command.options:
            if option.flag == flag:
                return option
        raise self._unknown(text)

    def _unknown(self, text: str) -> UsageError:
        hint = notices.meant(notices.meant_option(self.command, text)) + self._usage
        return UsageError(f"Invalid option {text} of {self.command.name}", hint=hint)

    def _set(self, option: Option, text: str | None) -> None:
        """Take an option with its text, or None for a flag."""
        if option.flag in self._flags:
            raise UsageError(f"Option {option.flag} is given twice", hint=self._usage)
        self._flags.add(option.flag)
        for other in self.command.options:
            if other.flag in self._flags and (other.excludes == option.flag or option.excludes == other.flag):
                raise UsageError(f"Options {other.flag} and {option.flag} exclude each other", hint=self._usage)
        self.given[option.name] = True if option.kind is None or text is None else option.kind.read(text, self.given)
        if option.kind is not None and text is not None:
            self._note_doubt(option.kind, text)

    def _note_doubt(self, kind: Kind[Any], text: str) -> None:
        if doubt := kind.doubt(text):
            self._doubts.append(doubt)

    # ---- positional arguments ----

    def _too_many(self, found: Sequence[Word]) -> UsageError:
        takes = len(self.command.positionals)
        if found[takes].text.startswith("-") and not found[takes].quoted:
            return self._unknown(found[takes].text)
        if takes == 0:
            return UsageError(f"{self.command.name} takes no arguments, got {found[0].text!r}", hint=self._usage)
        return UsageError(
            f"{self.command.name} takes at most {takes} argument{'s' * (takes > 1)}, got {len(found)}",
            hint=notices.with_sign(" ".join(word.text for word in found if not word.quoted))
            + f"{self._usage}{'. Put text with blanks in quotes.' * self._ends_in_text}",
        )

    @property
    def _ends_in_text(self) -> bool:
        return isinstance(self.command.positionals[-1].kind, (CapacityCommand, Words))

    @property
    def _usage(self) -> str:
        return f"Usage: {self.command.synopsis}"

    def _value(self, positional: Positional, asking: Asking, session: Session) -> Any:
        text = self._words.get(positional.name)
        self._cleared = text == ""
        if text is None and (not positional.prompt or self._is_replaced(positional)):
            return None
        prompt = ""
        while True:
            if text is None and not prompt:
                # If the prompt itself cannot be built, asking again would be of no use.
                prompt = self._fill_in(positional.prompt, positional, session)
            asked = text is None
            try:
                if text is None:
                    text = self._asked(prompt, positional, asking, session)
                if text or not positional.prompt:
                    value = positional.kind.read(text, self.given)
                    self._note_doubt(positional.kind, text)
                    return value
                if self._cleared and positional.clearable:
                    return ""
                return self._default(positional, asking, session)
            except (UsageError, InvalidArgumentError) as error:
                # A wrong argument is corrected on the line: its author may not notice that an answer is expected.
                if not (asked and asking.patient):
                    raise
                asking.warn(self.again(_reason(error)))
                text = None

    def _is_replaced(self, positional: Positional) -> bool:
        """Return whether an option takes the place of an argument."""
        return any(option.name in positional.unless and option.flag in self._flags for option in self.command.options)

    def _warn_of_command(self, line: str, asking: Asking, session: Session) -> None:
        """Warn that a command typed as an answer was taken as the answer; it may be a valid one, such as a name."""
        if any(line in command.names for command in session.catalogue.commands if not command.raw and len(line) > 1):
            asking.warn(Notice.info(f"{line!r} is taken as the answer; Ctrl-C leaves {self.command.name}"))

    def _asked(self, prompt: str, positional: Positional, asking: Asking, session: Session) -> str:
        if positional.name in self._to_ask:
            self._to_ask.remove(positional.name)
        try:
            line = asking.ask(prompt, positional.kind)
        except InputEndedError as error:
            if positional.missing and error.leaves_defaults:
                raise _missing(positional) from None
            if positional.required or not error.leaves_defaults:
                raise
            line = ""
        if asking.patient:
            self._warn_of_command(line.strip(lines.BLANKS), asking, session)
        self._cleared = bool(line.strip(lines.BLANKS))
        return lines.answer(line)

    def _default(self, positional: Positional, asking: Asking, session: Session) -> Any:
        if positional.required:
            raise _missing(positional)
        if positional.notice:
            asking.tell(self._fill_in(positional.notice, positional, session))
        default = self._default_text(positional, session)
        return positional.kind.read(default, self.given) if default else ""

    def _default_text(self, positional: Positional, session: Session) -> str:
        default = positional.default
        return default(session, self.given) if callable(default) else default or ""

    def _fill_in(self, form: str, positional: Positional, session: Session) -> str:
        facts = positional.facts(session, self.given) if positional.facts else {}
        return form.format(default=self._default_text(positional, session), **facts)


def stands_for_option(command: Command, word: Word, arguments: int) -> bool:
    """Return whether a word after this number of arguments is an option: a value may begin with a dash, too."""
    if word.quoted or len(word.text) == 1 or not word.text.startswith("-"):
        return False
    flags = [flag for option in command.options for flag in option.flags]
    if not arguments or word.text in flags:
        return True
    return arguments >= len(command.positionals) and word.text[:2] in flags


def check_needs(command: Command, session: Session) -> None:
    """Refuse a command without an open queue space or current queue that it requires, before it asks for anything."""
    if Needs.OPEN_SPACE in command.needs:
        session.opened()
    if Needs.CURRENT_QUEUE in command.needs:
        session.chosen()


class _MissingError(UsageError):
    """A required answer was empty: a warning if it is asked for again, else an error."""


def _missing(positional: Positional) -> _MissingError:
    return _MissingError(f"Must specify {positional.what}", hint=positional.missing)


def _reason(error: UsageError | InvalidArgumentError) -> Notice:
    if isinstance(error, _MissingError):
        return dataclasses.replace(error.notice, severity=Severity.WARN)
    if isinstance(error, UsageError):
        return error.notice
    return Notice.error(error.message, error.hint, error.catalogue)
