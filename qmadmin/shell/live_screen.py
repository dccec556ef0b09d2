"""Live views on a terminal: drawn by prompt_toolkit on a screen of its own, read by a thread of its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import get_app
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from qmadmin import console
from qmadmin.console import formats
from qmadmin.shell import live
from qmadmin.shell.live_view import BAR, FAINT, STRONG, View, WatchedView

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from qmadmin.shell.session import Session
    from qmadmin.shell.watching import Watched

_STYLES = Style.from_dict(
    {BAR: "reverse", STRONG: "bold", FAINT: "", formats.HEAD: "bold", formats.TERM: "bold", formats.LABEL: ""}
)
"""Without colours: bold and reversed text can be read on every background."""
_PATIENCE_SECONDS = 0.5
"""How many seconds to wait for a running sample when the view is left."""

Drawn: TypeAlias = View | WatchedView


def watch(
    session: Session, queue_name: str | None, seconds: float, rounds: int | None, missing: Sequence[str] = ()
) -> None:
    """Show the queues, updated at intervals, until the user leaves or the rounds are over.

    The title names the queue spaces that are missing.

    An error of the device ends it and is raised.
    """
    lacking = f"; missing: {', '.join(missing)}" if missing else ""
    view = View(f"{session.opened().name} on {session.path}{lacking}", seconds)
    if not _can_show(console.BARS):
        view.bars = console.PLAIN_BARS

    def update() -> None:
        space = session.opened()
        found = live.sample_of(session, queue_name)
        definition, usage = space.definition, session.device.space_usage(space.name)
        view.flow.add(found)
        view.definition, view.usage = definition, usage

    keys = _keys(view)
    _add_sorting(keys, view)
    _run(view, keys, update, rounds)


def watch_command(watched: Watched, seconds: float, rounds: int | None) -> None:
    """Show the output of a command in the same way."""
    view = WatchedView(watched.line, seconds)

    def update() -> None:
        view.show(watched.run())

    _run(view, _keys(view), update, rounds)


def _run(view: Drawn, keys: KeyBindings, update: Callable[[], None], rounds: int | None) -> None:
    application = _application(view, keys)
    reader = _Reader(update, view, application, rounds)
    try:
        application.run(pre_run=reader.start)
    except SystemExit:
        # prompt_toolkit does not handle a termination signal.
        application.renderer.erase()
        raise
    finally:
        reader.stop()


class _Reader(threading.Thread):
    """Takes samples at regular times, and makes the application draw them."""

    def __init__(
        self, update: Callable[[], None], view: Drawn, application: Application[None], rounds: int | None
    ) -> None:
        super().__init__(name="qmadmin-live", daemon=True)
        self._update = update
        self._view = view
        self._application = application
        self._rounds = rounds
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Take no further sample."""
        self._stopped.set()
        if self.is_alive():
            self.join(_PATIENCE_SECONDS)

    def run(self) -> None:
        """Take samples until it is stopped, the rounds are over, or the device refuses."""
        error: Exception | None = None
        taken = 0
        try:
            while not self._stopped.is_set() and taken != self._rounds:
                self._update()
                self._application.invalidate()
                taken += 1
                self._stopped.wait(self._view.seconds)
        except Exception as caught:  # noqa: BLE001 - it is raised in the main thread
            error = caught
        if not self._stopped.is_set():
            self._leave(error)

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


def _application(view: Drawn, keys: KeyBindings) -> Application[None]:
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
        key_bindings=keys,
        style=_STYLES,
        include_default_pygments_style=False,
        color_depth=ColorDepth.DEPTH_1_BIT,
        full_screen=True,
    )


def _keys(view: Drawn) -> KeyBindings:
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

    for key, step in (("up", -1), ("down", 1), ("k", -1), ("j", 1)):
        bindings.add(key)(lambda _event, step=step: view.scroll(step))
    bindings.add("pageup")(lambda _event: view.scroll(-view.page))
    bindings.add("pagedown")(lambda _event: view.scroll(view.page))
    bindings.add("home")(lambda _event: view.scroll(-view.scrolled))
    bindings.add("end")(lambda _event: view.scroll(sys.maxsize))
    return bindings


def _add_sorting(bindings: KeyBindings, view: View) -> None:
    @bindings.add("s")
    def sort(_event: KeyPressEvent) -> None:
        view.sort = view.sort.next
        view.scrolled = 0

    @bindings.add("r")
    def reverse(_event: KeyPressEvent) -> None:
        view.backwards = not view.backwards
        view.scrolled = 0


def _can_show(text: str) -> bool:
    """Return whether the terminal can show the characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeError:
        return False
    return True
