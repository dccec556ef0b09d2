"""The redirected output of a command, to a file or to a shell command.

It is formatted as in a script. Everything else - prompts, notices, progress - stays on the screen, and waits there
while a shell command may use the terminal.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.console.formats import Format
from qmadmin.console.process import Exit, leaving_interrupts_to_child
from qmadmin.console.render import OutputLostError, PlainScreen, Screen, sync
from qmadmin.console.results import Notice, Result
from qmadmin.shell.notices import UsageError
from qmadmin.shell.redirection import (
    APPEND,
    PIPE,
    Redirection,
    for_us_only,
    refuse_a_database,
    refuse_the_device,
    sync_directory,
)
from qmadmin.shell.session_commands import cannot_be_run, checked, ended

if TYPE_CHECKING:
    import subprocess
    from contextlib import AbstractContextManager

    from _typeshed import ReadableBuffer

    from qmadmin.shell.session import Session


class _Target(io.RawIOBase):
    """The target of bytes. It is opened with the first of them, so that a refused command changes nothing.

    When it is `over`, further bytes are dropped.
    """

    has_terminal = False
    """Whether another program may be drawing on the terminal."""
    begun = False
    over = False

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        self.begin()
        return len(memoryview(data)) if self.over else self.put(data)

    def begin(self) -> None:
        """Open the target, unless it is open."""
        if self.begun or self.over:
            return
        self.begun = True
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.over = True
            raise

    @abstractmethod
    def prepare(self) -> None:
        """Check whether it can be written to, without changing anything; UsageError if it cannot."""

    @abstractmethod
    def start(self) -> None:
        """Open the target for the first byte."""

    @abstractmethod
    def put(self, data: ReadableBuffer) -> int:
        """Write some of the data and return how much."""


class _File(_Target):
    """A file, which only its owner can read if it is created here."""

    def __init__(self, session: Session, name: str, *, append: bool) -> None:
        super().__init__()
        self.name = name
        self._session = session
        self._path = os.path.expanduser(name)  # noqa: PTH111 - a text in place of a text
        self._append = append
        self._descriptor = -1
        self._made = False
        self._is_named = False

    def prepare(self) -> None:
        if self._descriptor >= 0:
            return
        refuse_the_device(self._session, self._path)
        refuse_a_database(self._path)
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_APPEND * self._append
        try:
            with contextlib.suppress(FileExistsError):
                self._descriptor = for_us_only(self._path, flags | os.O_CREAT | os.O_EXCL)
                self._made = True
            if not self._made:
                self._descriptor = for_us_only(self._path, flags | os.O_CREAT)
        except OSError as error:
            raise UsageError(f"Failed to open {self.name}: {error.strerror}") from None

    def start(self) -> None:
        if not self._append and stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.ftruncate(self._descriptor, 0)

    @property
    def descriptor(self) -> int:
        """The descriptor to which a child process can write."""
        return self._descriptor

    def put(self, data: ReadableBuffer) -> int:
        return os.write(self._descriptor, data)

    def settle(self) -> None:
        """Sync what was written and, before anything is written, the name of a new file."""
        if self.over:
            return
        if self._made and not self._is_named:
            try:
                sync_directory(Path(self._path).parent)
            except OSError as error:
                raise OutputLostError(error) from error
            self._is_named = True
        if self.begun:
            sync(self._descriptor)

    def end(self) -> list[Notice]:
        """Close what was opened, and return the notices."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return []
        if self._made and not self.begun:
            Path(self._path).unlink(missing_ok=True)
        try:
            os.close(descriptor)
        except OSError as error:
            return [Notice.error(f"Failed to write {self.name}: {error.strerror}")]
        return []

    def leave(self) -> None:
        """Close what was opened, without waiting."""
        self.end()


class _Command(_Target):
    """The standard input of a command of sh, which writes where this program writes."""

    def __init__(self, session: Session, command: str) -> None:
        super().__init__()
        self.name = command
        self._session = session
        self._outer = session.output
        self._child: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        checked(self.name)

    def start(self) -> None:
        import subprocess

        try:
            self._child = subprocess.Popen(  # noqa: S602 - the line that was typed
                self.name,
                shell=True,
                stdin=subprocess.PIPE,
                stdout=self._outer.descriptor(),
                env=dict(self._session.environ),
                bufsize=0,
            )
        except OSError as error:
            raise cannot_be_run(error) from error
        self.has_terminal = True

    def put(self, data: ReadableBuffer) -> int:
        return os.write(self.descriptor, data)

    @property
    def descriptor(self) -> int:
        assert self._child is not None and self._child.stdin is not None  # noqa: S101, PT018 - it is started with one
        return self._child.stdin.fileno()

    def settle(self) -> None:
        # What happens to it is up to the shell command.
        pass

    def end(self) -> list[Notice]:
        child = self._child
        if child is None or child.stdin is None:
            return []
        with leaving_interrupts_to_child() as interrupts:
            child.stdin.close()
            child.wait()
        return ended(self._session, self.name, child.returncode, interrupts)

    def leave(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()


class RedirectedScreen:
    """A screen whose results are redirected."""

    def __init__(self, session: Session, to: Redirection) -> None:
        self._screen: Screen = session.screen
        self._target: _File | _Command = (
            _Command(session, to.target) if to.sign == PIPE else _File(session, to.target, append=to.sign == APPEND)
        )
        self._stream = io.TextIOWrapper(io.BufferedWriter(self._target), encoding="utf-8", errors="backslashreplace")
        self._plain = PlainScreen(self._stream, self._stream)
        self._too_early: list[str] | None = []
        self._postponed: list[Callable[[], None]] = []

    def prepare(self) -> None:
        """Check whether the target can be used, before anything is done; UsageError if it cannot."""
        if self._too_early is not None:
            self._target.prepare()
            early, self._too_early = self._too_early, None
            self.write("".join(early))

    def show(self, results: Iterable[Result], *, form: Format = Format.PLAIN, paged: bool = False) -> None:
        """Write the lines of results, for a script."""
        self._plain.show(results, form=Format.PLAIN if form is Format.TABLE else form, paged=paged)

    def write(self, text: str) -> None:
        """Write output for programs, which is buffered until it is known whether it can be written."""
        if self._too_early is None:
            self._plain.write(text)
        else:
            self._too_early.append(text)

    def notice(self, notice: Notice, place: str = "") -> None:
        """Draw a notice on the screen."""
        self._say(lambda: self._screen.notice(notice, place))

    def prompt(self, text: str) -> None:
        """Write a prompt on the screen."""
        self._say(lambda: self._screen.prompt(text))

    def tick(self, text: str) -> None:
        """Write a piece of a line that shows progress."""
        self._plain.tick(text)

    def progress(self, what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]] | None:
        """Show progress on the screen."""
        return self._screen.progress(what, total)

    def flush(self) -> None:
        """Flush everything that was written."""
        self._plain.flush()

    def settle(self) -> None:
        """Flush everything and, if the target is a file, sync it."""
        self.flush()
        self._target.settle()

    def descriptor(self) -> int:
        """Return the descriptor for the output of a child process."""
        self.prepare()
        self._target.begin()
        self._plain.flush()
        return self._target.descriptor

    def _say(self, say: Callable[[], None]) -> None:
        if self._target.has_terminal:
            self._postponed.append(say)
        else:
            say()

    # ---- the end ----

    def finish(self, *, refused: bool) -> None:
        """Flush the rest; a command that was not refused creates even an empty file."""
        try:
            self.prepare() if self._too_early else None
        except UsageError:
            self._screen.write("".join(self._too_early or ()))
            return
        if not refused:
            self._target.begin()
        self._plain.flush()

    def drop(self) -> None:
        """Write nothing more."""
        self._target.over = True

    def lost(self, error: OutputLostError) -> list[Notice]:
        """Write nothing more, and return the notices about that: none if its reader has stopped reading."""
        self.drop()
        reason = f"Failed to write {self._target.name}: {error.reason}"
        return [] if error.quiet else [Notice.error(reason)]

    def end(self) -> list[Notice]:
        """Close what was opened, wait for a shell command, and return the notices."""
        try:
            return self._target.end()
        finally:
            self.drop()
            for say in self._postponed:
                say()

    def leave(self) -> None:
        """Close what was opened, without waiting."""
        self.drop()
        self._target.leave()


@contextlib.contextmanager
def sent(session: Session, to: Redirection) -> Iterator[list[Notice]]:
    """Redirect the results of the block; at the end the yielded list has the notices."""
    told: list[Notice] = []
    elsewhere, before = RedirectedScreen(session, to), (session.output, session.is_elsewhere)
    session.output, session.is_elsewhere = elsewhere, True
    try:
        try:
            yield told
            elsewhere.finish(refused=session.status is not Exit.OK)
        except OutputLostError as error:
            told += elsewhere.lost(error)
        except SystemExit:
            elsewhere.leave()
            raise
        except BaseException:
            elsewhere.drop()
            raise
        finally:
            session.output, session.is_elsewhere = before
            told += elsewhere.end()
    except UsageError as error:
        # A shell command that cannot be started.
        told.append(error.notice)
