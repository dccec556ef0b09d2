"""The live view on a terminal: drawn by prompt_toolkit on a screen of its own, read by a thread of its own."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import get_app
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from qmadmin.shell import figures, live
from qmadmin.shell.live_view import BAR, FAINT, STRONG, View

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from qmadmin.shell.session import Session

_STYLES = Style.from_dict({BAR: "reverse", STRONG: "bold", FAINT: ""})
"""Without colours: what is bold or reversed can be read on every background."""
_PATIENCE_SECONDS = 0.5
"""How long a look that is under way is waited for when the view is left."""


def watch(session: Session, queue_name: str | None, seconds: float, rounds: int | None) -> None:
    """Show the queues, renewed every so many seconds, until the person leaves or the rounds are over.

    A refusal of the device ends it and is raised.
    """
    view = View(f"{session.opened().name} on {session.path}", seconds)
    if not _shows(figures.BARS):
        view.bars = figures.PLAIN_BARS
    application = _application(view)
    reader = _Reader(session, queue_name, view, application, rounds)
    try:
        application.run(pre_run=reader.start)
    except SystemExit:
        # A termination signal goes past prompt_toolkit.
        application.renderer.erase()
        raise
    finally:
        reader.stop()


class _Reader(threading.Thread):
    """Looks at the queues at regular times, and lets the application draw what it has found."""

    def __init__(
        self, session: Session, queue_name: str | None, view: View, application: Application[None], rounds: int | None
    ) -> None:
        super().__init__(name="qmadmin-qtop", daemon=True)
        self._session = session
        self._queue_name = queue_name
        self._view = view
        self._application = application
        self._rounds = rounds
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Take no further look."""
        self._stopped.set()
        if self.is_alive():
            self.join(_PATIENCE_SECONDS)

    def run(self) -> None:
        """Look until it is stopped, or enough was seen, or the device refuses."""
        error: Exception | None = None
        taken = 0
        try:
            while not self._stopped.is_set() and taken != self._rounds:
                self._look()
                taken += 1
                self._stopped.wait(self._view.seconds)
        except Exception as caught:  # noqa: BLE001 - it is raised where somebody can be told
            error = caught
        if not self._stopped.is_set():
            self._leave(error)

    def _look(self) -> None:
        session, view = self._session, self._view
        space = session.opened()
        found = live.look(session, self._queue_name)
        definition, usage = space.definition, session.device.space_usage(space.name)
        view.flow.add(found)
        view.definition, view.usage = definition, usage
        self._application.invalidate()

    def _leave(self, error: Exception | None) -> None:
        loop = self._application.loop
        if loop is None:
            return

        loop.call_soon_threadsafe(_leave, self._application, error)


def _leave(application: Application[None], error: Exception | None = None) -> None:
    """End the view, unless it is ending already."""
    if application.is_done:
        return
    if error is None:
        application.exit()
    else:
        application.exit(exception=error)


def _application(view: View) -> Application[None]:
    def drawn() -> StyleAndTextTuples:
        size = get_app().output.get_size()
        found: StyleAndTextTuples = []
        for number, spans in enumerate(view.lines(size.columns, size.rows)):
            if number:
                found.append(("", "\n"))
            found += [(f"class:{style}" if style else "", text) for text, style in spans]
        return found

    window = Window(FormattedTextControl(drawn, focusable=True, show_cursor=False), wrap_lines=False)
    return Application(
        layout=Layout(window),
        key_bindings=_keys(view),
        style=_STYLES,
        include_default_pygments_style=False,
        color_depth=ColorDepth.DEPTH_1_BIT,
        full_screen=True,
    )


def _keys(view: View) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("q")
    @bindings.add("Q")
    @bindings.add("c-c")
    @bindings.add("c-d")
    @bindings.add("<sigint>")
    def leave(event: KeyPressEvent) -> None:
        _leave(event.app)

    @bindings.add("c-z")
    def suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @bindings.add("c-l")
    def redraw(event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    @bindings.add("s")
    def sort(_event: KeyPressEvent) -> None:
        view.sort = view.sort.next
        view.scrolled = 0

    @bindings.add("r")
    def reverse(_event: KeyPressEvent) -> None:
        view.backwards = not view.backwards
        view.scrolled = 0

    for key, step in (("up", -1), ("down", 1), ("k", -1), ("j", 1)):
        bindings.add(key)(lambda _event, step=step: view.scroll(step))
    bindings.add("pageup")(lambda _event: view.scroll(-view.page))
    bindings.add("pagedown")(lambda _event: view.scroll(view.page))
    bindings.add("home")(lambda _event: view.scroll(-view.scrolled))
    bindings.add("end")(lambda _event: view.scroll(sys.maxsize))
    return bindings


def _shows(text: str) -> bool:
    """Tell whether the terminal takes the characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeError:
        return False
    return True
