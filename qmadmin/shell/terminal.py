"""The terminal of a user: line editing, history, completion and the line under the prompt, by prompt_toolkit."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app
from prompt_toolkit.auto_suggest import AutoSuggest, AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.filters import Condition, is_done
from prompt_toolkit.history import DummyHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from qmadmin.console import printable
from qmadmin.console.formats import Format, columns
from qmadmin.console.results import Line
from qmadmin.shell import complete
from qmadmin.shell.kinds import Candidate, Kind
from qmadmin.shell.lines import BLANKS, PROMPT, Person
from qmadmin.shell.notices import InputEndedError
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from qmadmin.shell.session import Session

T = TypeVar("T")


class BackgroundThread:
    """A thread that runs functions one after the other, each of which is waited for only a limited time.

    The thread starts with the first function, and does not keep the program from ending.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._works: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Future[Any] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the last function has not returned yet."""
        return self._last is not None and not self._last.done()

    def find(self, work: Callable[[], T], otherwise: T) -> T:
        """Return what the function returns; `otherwise` if that takes too long, or an earlier one still runs."""
        if self.is_busy:
            return otherwise
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="qmadmin-aside", daemon=True)
            self._thread.start()
        self._last = wanted = Future[T]()
        self._works.put((wanted, work))
        return wanted.result() if wait([wanted], self._seconds).done else otherwise

    def _work(self) -> None:
        while True:
            wanted, work = self._works.get()
            try:
                wanted.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                wanted.set_exception(error)


def history(name: str, lines: int) -> History:
    """Return the history in a file, of this number of lines, or one for this session only if no file can be used."""
    if not name:
        return InMemoryHistory()
    file = Path(name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return HistoryFile(file, lines)


class HistoryFile(History):
    """A history in a file: a line for each command line, in the order in which they were entered in all sessions.

    It is cut to the newest lines when it has twice as many. A session sees the lines that existed when it began, and
    those that it adds. Lines that repeat the one before are left out. Lines that cannot be written, as on a full disk,
    are kept for this session only.
    """

    def __init__(self, file: Path, lines: int) -> None:
        super().__init__()
        self._lines = lines
        self._file = file
        self._last = ""

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines of the file, the newest first."""
        text = b""
        with contextlib.suppress(OSError), _locked(self._file) as opened:
            opened.seek(0)
            text = opened.read()
            if text.count(b"\n") > 2 * self._lines:
                text = self._shorten(opened, text)
        yield from reversed([line for line in text.decode(errors="replace").split("\n") if line][-self._lines :])

    def append_string(self, string: str) -> None:
        """Add a line, unless it repeats the one before."""
        if string != self._last:
            self._last = string
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Append a line to those of all sessions, without the passwords in it."""
        with contextlib.suppress(OSError), _locked(self._file) as opened:
            opened.write(f"{redacted(string)}\n".encode(errors="replace"))

    def _shorten(self, opened: BinaryIO, text: bytes) -> bytes:
        """Keep the newest lines, in place: another session may wait for its lock on this very file."""
        kept = b"".join(text.splitlines(keepends=True)[-self._lines :])
        opened.truncate(0)
        opened.write(kept)
        opened.flush()
        return kept


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[BinaryIO]:
    """Open the file for reading and appending, while no other session has it."""
    with file.open("a+b") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield opened


Candidates = Callable[[str], tuple[int, list[Candidate]]]

_PATIENCE_SECONDS = 2.0
"""How many seconds a device may take to return the values for completion."""
_NOTHING: tuple[int, list[Candidate]] = (0, [])


class Terminal(Person):
    """Reads command lines, which are added to the history, and answers, which are not.

    A line under the prompt shows where commands will work; it is hidden while one runs.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._aside = BackgroundThread(_PATIENCE_SECONDS)
        self._output = _output()
        settings = session.settings
        remembered = history(settings.history, settings.history_lines)
        self._commands = self._prompting(remembered, AutoSuggestFromHistory() if settings.hints else None)
        self._answers = self._prompting(DummyHistory(), None)

    def _prompting(self, remembered: History, hints: AutoSuggest | None) -> PromptSession[str]:
        plain = self._session.settings.color == "never"
        made: PromptSession[str] = PromptSession(
            history=remembered,
            auto_suggest=hints,
            complete_while_typing=False,
            enable_suspend=True,
            color_depth=ColorDepth.DEPTH_1_BIT if plain else None,
            output=self._output,
            key_bindings=_keys(),
            style=_style(plain=plain),
        )
        # prompt_toolkit's own bottom line waits for the terminal to report its cursor position, which is not requested.
        line = Window(FormattedTextControl(self._bottom_line), height=1, style="class:bottom-toolbar")
        if not self._session.settings.bottom_line:
            return made
        made.layout = Layout(
            HSplit([made.layout.container, ConditionalContainer(line, ~is_done)]), focused_element=made.default_buffer
        )
        made.app.layout = made.layout
        return made

    def _bottom_line(self) -> str:
        if self._aside.is_busy:
            return " The device does not answer; there is nothing to offer."
        return bottom_line(self._session, get_app().output.get_size().columns)

    def _offering(self, candidates: Candidates) -> _Offering:
        return _Offering(lambda text: self._aside.find(lambda: candidates(text), _NOTHING))

    def command(self) -> str | None:
        """Return the next command line; None for Ctrl-D. Ctrl-C raises KeyboardInterrupt."""
        try:
            offering = self._offering(lambda text: complete.line(self._session, text))
            return self._read(self._commands, PROMPT, offering)
        except EOFError:
            return None

    def ask(self, prompt: str, kind: Kind[Any], /) -> str:
        """Return the answer to a prompt; Ctrl-D raises InputEndedError, Ctrl-C KeyboardInterrupt."""
        # prompt_toolkit cuts off the upper lines of a prompt if the terminal is too narrow for them.
        *above, last = prompt.split("\n")
        self._session.screen.show([Line(line) for line in above])
        try:
            offering = self._offering(lambda text: complete.answer(self._session, kind, text))
            return self._read(self._answers, last, offering)
        except EOFError:
            raise InputEndedError(prompt) from None

    @staticmethod
    def _read(prompting: PromptSession[str], prompt: str, offering: _Offering) -> str:
        try:
            return prompting.prompt(_literally(prompt), completer=offering)
        except SystemExit:
            # prompt_toolkit does not handle a termination signal.
            prompting.app.renderer.erase()
            raise

    def interrupted(self) -> None:
        """Discard the lines that have been typed ahead."""
        clear_typeahead(self._commands.input)


class _Offering(Completer):
    """Offers candidates to prompt_toolkit."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        replaced, found = self._candidates(document.text_before_cursor)
        for candidate in found:
            yield Completion(candidate.text, -replaced, display_meta=candidate.about)


def _already_there(value: str, behind: str) -> int:
    """Return how many characters after the cursor are the end of the value that was inserted before it."""
    for length in range(min(len(value), len(behind)), 0, -1):
        if value.endswith(behind[:length]) and behind[length : length + 1] in ("", *BLANKS):
            return length
    return 0


def _output() -> Output:
    """Return a terminal that is not asked for its cursor position: programs such as expect(1) do not answer."""
    output = create_output()
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


def _literally(prompt: str) -> StyleAndTextTuples:
    """Return a prompt whose last blank is written too: without a style only the cursor would be moved over it."""
    return [("bg:ansidefault", prompt)]


def _style(*, plain: bool) -> Style:
    """Return colours that are legible on light and on dark backgrounds; without colours hints are underlined."""
    return Style.from_dict(
        {"bottom-toolbar": "reverse", "auto-suggestion": "underline" if plain else "fg:#808080"}  # a middle grey
    )


@Condition
def _hint_is_shown() -> bool:
    buffer = get_app().current_buffer
    return bool(buffer.suggestion and buffer.suggestion.text and buffer.document.is_cursor_at_the_end)


def _keys() -> KeyBindings:
    """Return the key bindings that differ from prompt_toolkit's own."""
    bindings = KeyBindings()

    @bindings.add("end", filter=_hint_is_shown)
    def take_the_hint(event: KeyPressEvent) -> None:
        # The right arrow and Ctrl-E do so by themselves.
        buffer = event.current_buffer
        if buffer.suggestion is not None:
            buffer.insert_text(buffer.suggestion.text)

    @bindings.add("tab")
    def complete_now(event: KeyPressEvent) -> None:
        # By default an Enter that follows quickly would take the line as it was before.
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.complete_next()
            return
        document = buffer.document
        found = list(buffer.completer.get_completions(document, CompleteEvent(completion_requested=True)))
        if len(found) == 1:
            buffer.apply_completion(found[0])
            buffer.delete(_already_there(found[0].text, buffer.document.text_after_cursor))
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


_GAP = "  "
_CUT = "\N{HORIZONTAL ELLIPSIS}"
_LEAST = 5
"""The number of columns below which a part is meaningless."""


def bottom_line(session: Session, width: int) -> str:
    """Return device, queue space, current queue, criteria and modes in at most `width` columns.

    If they do not fit, first their labels are omitted, then the folder of the device, then the ends of the longest.
    """
    parts = _parts(session)
    texts = [text or f"no {label.lower()}" for label, text in parts]
    room = width - 2
    labelled = [f"{label}: {text or 'none'}" for label, text in parts]
    short = [texts[0].rpartition("/")[2] or texts[0], *texts[1:]]
    for found in (labelled, texts, short):
        if _width(found) <= room:
            return f" {_GAP.join(found)}"
    return f" {_GAP.join(_cut(short, room))}"


def _parts(session: Session) -> list[tuple[str, str]]:
    """Return the parts with their labels; nothing is read from the device for them."""
    device = session.path + " (read-only)" * session.readonly
    parts = [("Device", device), ("Queue space", session.space.name if session.space else "")]
    if session.space is not None:
        parts.append(("Queue", session.queue or ""))
    criteria = str(getattr(session, "criteria", "") or "")
    if criteria:
        parts.append(("Criteria", criteria))
    modes = _modes(session)
    if modes:
        parts.append(("Modes", ", ".join(modes)))
    return [(label, printable(text)) for label, text in parts]


def _modes(session: Session) -> list[str]:
    modes = session.modes
    named = {
        "echo": modes.echo,
        "verbose": modes.verbose,
        "no paging": session.can_page and not modes.paginate,
        "yes to all": modes.yes,
        "stop on error": modes.stop_on_error,
        modes.format.value: modes.format is not Format.TABLE,
    }
    return [name for name, on in named.items() if on]


def _width(texts: Sequence[str]) -> int:
    return sum(map(columns, texts)) + len(_GAP) * (len(texts) - 1)


def _cut(texts: Sequence[str], room: int) -> list[str]:
    """Shorten the longest text repeatedly; if that is not enough, leave texts out from the left."""
    cut = list(texts)
    while _width(cut) > room:
        longest = max(cut, key=columns)
        if columns(longest) > _LEAST:
            cut[cut.index(longest)] = longest.removesuffix(_CUT)[:-1] + _CUT
        elif len(cut) > 1:
            del cut[0]
        else:
            return [""]
    return cut
