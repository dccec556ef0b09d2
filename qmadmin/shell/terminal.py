"""A person at a terminal: line editing, history and completion by prompt_toolkit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.history import DummyHistory, FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from qmadmin.shell import complete
from qmadmin.shell.kinds import Candidate, Kind
from qmadmin.shell.lines import PROMPT
from qmadmin.shell.notices import InputEndedError
from qmadmin.shell.results import Line

if TYPE_CHECKING:
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from qmadmin.shell.results import Notice
    from qmadmin.shell.session import Session

Candidates = Callable[[str], tuple[int, list[Candidate]]]


class Terminal:
    """Reads command lines, which are remembered, and answers, which are not."""

    patient = True

    def __init__(self, session: Session) -> None:
        self._session = session
        depth = ColorDepth.DEPTH_1_BIT if session.environ.get("NO_COLOR") else None
        output = _output()
        self._commands: PromptSession[str] = PromptSession(
            history=history(session.environ),
            completer=_Offering(lambda text: complete.line(session, text)),
            complete_while_typing=False,
            enable_suspend=True,
            color_depth=depth,
            output=output,
            key_bindings=_keys(),
        )
        self._answers: PromptSession[str] = PromptSession(
            history=DummyHistory(),
            complete_while_typing=False,
            enable_suspend=True,
            color_depth=depth,
            output=output,
            key_bindings=_keys(),
        )

    def command(self) -> str | None:
        """Return the next command line; None for Ctrl-D. Ctrl-C raises KeyboardInterrupt."""
        try:
            return self._commands.prompt(_literally(PROMPT))
        except EOFError:
            return None

    def ask(self, prompt: str, kind: Kind[Any], /) -> str:
        """Return the answer to a prompt; Ctrl-D raises InputEndedError, Ctrl-C KeyboardInterrupt."""
        # prompt_toolkit cuts off the upper lines of a prompt where the terminal is too narrow for them.
        *above, last = prompt.split("\n")
        self._session.screen.show([Line(line) for line in above])
        try:
            return self._answers.prompt(
                _literally(last), completer=_Offering(lambda text: complete.answer(self._session, kind, text))
            )
        except EOFError:
            raise InputEndedError(prompt) from None

    def interrupted(self) -> None:
        """Forget the lines that have been typed ahead."""
        clear_typeahead(self._commands.input)

    def tell(self, text: str) -> None:
        """Show a line among the prompts."""
        self._session.screen.prompt(text + "\n")

    def warn(self, notice: Notice) -> None:
        """Show why a question comes again."""
        self._session.screen.notice(notice)

    def place(self) -> str:
        """Return nothing: the person has just typed it."""
        return ""

    def pass_over(self, _count: int, /) -> str:
        """Drop nothing: a person who is not asked does not answer."""
        return ""

    def pass_over_yes_or_no(self) -> None:
        """Drop nothing."""


class _Offering(Completer):
    """Offers candidates to prompt_toolkit."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        replaced, found = self._candidates(document.text_before_cursor)
        for candidate in found:
            yield Completion(candidate.text, -replaced, display_meta=candidate.about)


def _output() -> Output:
    """Return a terminal that is not asked where its cursor is: those who drive programs by expect(1) do not answer."""
    output = create_output()
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


def _literally(prompt: str) -> StyleAndTextTuples:
    """Return a prompt whose last blank is written too: without a style the cursor would only be moved over it."""
    return [("bg:ansidefault", prompt)]


def _keys() -> KeyBindings:
    """Return what keys mean here and elsewhere not."""
    bindings = KeyBindings()

    @bindings.add("tab")
    def complete_now(event: KeyPressEvent) -> None:
        # In prompt_toolkit's own way an Enter that follows quickly takes the line as it was before.
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.complete_next()
            return
        document = buffer.document
        found = list(buffer.completer.get_completions(document, CompleteEvent(completion_requested=True)))
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif found:
            buffer.insert_text(get_common_complete_suffix(document, found))
            buffer.start_completion()

    @bindings.add(Keys.BracketedPaste)
    def take_what_is_pasted(event: KeyPressEvent) -> None:
        # Several lines are several commands and answers, as if they had been typed.
        line, end, rest = event.data.replace("\r\n", "\n").replace("\r", "\n").partition("\n")
        event.current_buffer.insert_text(line)
        if end:
            enter = KeyPress(Keys.ControlM, "\r")
            event.key_processor.feed_multiple([enter, KeyPress(Keys.BracketedPaste, rest)], first=True)

    return bindings


def history_file(environ: Mapping[str, str]) -> Path | None:
    """Return where command lines are remembered; None where the environment names no place for it."""
    state, home = environ.get("XDG_STATE_HOME") or "", environ.get("HOME")
    # The XDG specification has relative paths ignored.
    if not state.startswith("/"):
        if not home:
            return None
        state = f"{home}/.local/state"
    return Path(state) / "qmadmin" / "history"


def history(environ: Mapping[str, str]) -> History:
    """Return the history of this person, or one for this session only where no file can be had."""
    file = history_file(environ)
    if file is None:
        return InMemoryHistory()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return _Remembered(str(file))


class _Remembered(FileHistory):
    """A history in a file, without lines that repeat the one before, and without failure when the disk is full."""

    _last = ""

    def append_string(self, string: str) -> None:
        if string == self._last:
            return
        self._last = string
        super().append_string(string)

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)
