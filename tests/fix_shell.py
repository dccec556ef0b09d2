"""Fixtures of the shell: sessions in this process, the program as a process, and the program in a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pexpect
import ptyprocess
import pyte
import pytest

from qmadmin.console.render import PlainScreen
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.interpreter import Interpreter
from qmadmin.shell.lines import Script
from qmadmin.shell.session import Session
from tests.fix_store import SOURCES
from tests.fork_server import ENTRY_POINT_WITHOUT_DISMANTLING as ENTRY_POINT
from tests.fork_server import forking

ROOT = Path(__file__).parent.parent
MODULE = "qmadmin.program"
PROGRAM = [sys.executable, "-m", MODULE]
LAY_OUT = """\
crdl {device} 0 2000
qspacecreate QSPACE 54320 200 5 10 10 100 errq n 16
qopen QSPACE
qcreate errq fifo none 0 0 100% 0% ""
qcreate STRING fifo none 2 0 100% 0% ""
"""


@dataclasses.dataclass(frozen=True)
class Ran:
    """What came of a script: results, notices, both in the order in which they were written, and the status."""

    out: str
    err: str
    both: str
    status: int


class Tee(io.StringIO):
    """A stream that also writes into another one."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def write(self, text):
        self.other.write(text)
        return super().write(text)


class Typed(Script):
    """Lines that a person types, who can be asked again."""

    patient = True

    def place(self):
        return ""

    def pass_over(self, _count):
        return ""


class Shell:
    """Runs scripts on one device."""

    def __init__(self, directory, fork_server=None):
        """Have the program forked by the server, if there is one, which has loaded most of what it needs."""
        self.fork_server = fork_server
        self.directory = directory
        self.path = directory / "QUE"
        self.device = str(self.path)
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "LESS", "PAGER"))
        } | {
            "HOME": str(directory),
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("", "core", "storage")),
            "QMCONFIG": self.device,
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "ULOGPFX": str(directory / "ULOG"),
        }
        # What the tests run in is not what the shell runs in.
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            self.environ.pop(name, None)

    def run(self, script, *, name="crque", dialogue=Script):
        """Run a script in this process."""
        both = io.StringIO()
        out, err = Tee(both), Tee(both)
        screen = PlainScreen(out, err, hints=dialogue.patient)
        session = Session(self.device, Catalogue(), screen, self.environ)
        with contextlib.closing(session):
            status = Interpreter(session, dialogue(io.StringIO(script), name, session)).run()
        return Ran(out.getvalue(), err.getvalue(), both.getvalue(), status)

    def type(self, lines):
        """Run lines as a person types them, with what is asked shown before each answer."""
        return self.run(f"echo\n{lines}", dialogue=Typed)

    def lay_out(self):
        """Make the device with the queue space QSPACE and the queues errq and STRING."""
        ran = self.run(LAY_OUT.format(device=self.device))
        assert ran.status == 0, ran.both

    def process(self, script, *arguments, environ=None, stderr_to_stdout=False):
        """Run the program with a script on its standard input, and return the completed process."""
        environ = self.environ | (environ or {})
        if self.can_fork(environ):
            source = f"import os; os.dup2(1, 2)\n{ENTRY_POINT}" if stderr_to_stdout else ENTRY_POINT
            return self.fork_server.start(source, [MODULE, *arguments], environ, self.directory).ended(script or "", 90)
        return subprocess.run(
            [*PROGRAM, *arguments],
            input=script or "",
            env=environ,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if stderr_to_stdout else subprocess.PIPE,
            text=True,
            timeout=90,
            check=False,
        )

    def can_fork(self, environ):
        """Return whether the program need not be started fresh to have such an environment."""
        return self.fork_server is not None and self.fork_server.is_for(environ)

    def normal(self, text):
        """Return output without what differs from run to run: directory, times, identifiers, and what pads them."""
        text = text.replace(f"{self.directory}/", "/dir/")
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", "(time)", text)
        text = re.sub(r"\b[0-9a-f]{16}(0{8}[0-9a-f]{8})\b", r"(space)\1", text)
        text = re.sub(r"\d+ bytes on disk", "(some) bytes on disk", text)
        text = re.sub(r"\b[0-9a-f]{64}\b", "(digest)", text)
        text = re.sub(r"(rchive(?: id: +| ))[0-9a-f]{32}\b", r"\1(archive)", text)
        text = re.sub(r"\w+ bytes in (\d+ parts?)", r"(some) bytes in \1", text)
        text = re.sub(r"[\d.]+(?:us|ms|s), [\w.]+ messages a second", "(some time)", text)
        return re.sub(r"(?<=\S) {2,}", "  ", text).replace(" \n", "\n")


@pytest.fixture(scope="session")
def shell_server():
    """What forks the shell's processes; None where the system cannot tell how those end."""
    with forking(LOADED, {**os.environ, "PYTHONPATH": SOURCES}) as server:
        yield server


LOADED = (
    "qmadmin.program",
    "qmadmin.shell.catalogue",
    "qmadmin.shell.interpreter",
    "qmadmin.shell.live_screen",
    "qmadmin.shell.terminal",
    "qmadmin.console.styled",
    "qmadmin.opening",
    "qmadmin.space",
    "qmstorage.postgres.opening",
    "qmstorage.sqlite.opening",
)
"""What most of them load."""


@pytest.fixture
def shell(tmp_path, shell_server):
    """Scripts on a device that does not exist yet."""
    return Shell(tmp_path, shell_server)


@pytest.fixture
def laid_out(shell):
    """Scripts on a device with the queue space QSPACE and the queues errq and STRING."""
    shell.lay_out()
    return shell


class Display(pyte.Screen):
    """A terminal's screen, and the other one that a program may take for itself, which leaves the first as it was."""

    OTHER = 1049 << 5

    def set_mode(self, *modes, **settings):
        super().set_mode(*modes, **settings)
        if 1049 in modes and settings.get("private"):
            self.kept = [self.display, (self.cursor.x, self.cursor.y)]
            self.erase_in_display(2)

    def reset_mode(self, *modes, **settings):
        other = self.OTHER in self.mode
        super().reset_mode(*modes, **settings)
        if other and self.OTHER not in self.mode:
            lines, (x, y) = self.kept
            self.erase_in_display(2)
            for row, line in enumerate(lines[: self.lines]):
                self.cursor_position(row + 1, 1)
                self.draw(line[: self.columns].rstrip())
            self.cursor_position(y + 1, x + 1)


class Pty(ptyprocess.PtyProcess):
    """A process that a fork server has forked, and its terminal; it is not a child of this process."""

    def __init__(self, process, fd):
        super().__init__(process.pid, fd)
        self.process = process

    def isalive(self):
        self._note(self.process.poll())
        return not self.terminated

    def wait(self):
        self._note(self.process.wait(Terminal.SECONDS))
        return self.exitstatus

    def _note(self, status):
        if status is not None:
            self.terminated = True
            self.exitstatus, self.signalstatus = (status, None) if status >= 0 else (None, -status)


class Forked(pexpect.spawn):
    """The program in a terminal, forked by a server, as pexpect has it."""

    def __init__(self, fork_server, arguments, environ, directory, dimensions, timeout):
        super().__init__(None, timeout=timeout)
        fd, terminal = os.openpty()
        termios.tcsetwinsize(terminal, dimensions)
        process = fork_server.start_in_terminal(terminal, ENTRY_POINT, [MODULE, *arguments], environ, directory)
        os.close(terminal)
        self.ptyproc = Pty(process, fd)
        self.pid, self.child_fd = process.pid, fd
        self.terminated = self.closed = False


class Terminal:
    """The program in a terminal of some size; what it shows is kept as the screen would show it."""

    SECONDS = 90

    def __init__(self, shell, *, columns=80, lines=24, environ=None, arguments=(), program=PROGRAM):
        self.screen = Display(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        environ = shell.environ | (environ or {})
        place = {"dimensions": (lines, columns), "timeout": self.SECONDS}
        if program is PROGRAM and shell.can_fork(environ):
            self.child = Forked(shell.fork_server, arguments, environ, shell.directory, **place)
        else:
            command = [*program, *arguments]
            self.child = pexpect.spawn(command[0], command[1:], env=environ, cwd=str(shell.directory), **place)

    @property
    def shown(self):
        """The lines of the screen down to the last one that is not empty, without the bottom line."""
        bottom = self._bottom_row
        lines = [line.rstrip() for row, line in enumerate(self.screen.display) if row != bottom]
        return "\n".join(lines).rstrip("\n")

    @property
    def bottom(self):
        """The bottom line; None while there is none."""
        row = self._bottom_row
        return None if row is None else self.screen.display[row].strip()

    @property
    def _bottom_row(self):
        """The row that is in reverse from end to end."""
        across = range(self.screen.columns)
        rows = [row for row, cells in self.screen.buffer.items() if all(cells[at].reverse for at in across)]
        return max(rows, default=None)

    def send(self, keys):
        """Press keys."""
        self.child.send(keys)

    def see(self, *texts):
        """Read until the screen shows all texts."""
        self.until(lambda: all(text in self.shown for text in texts), f"{texts}")

    def at_prompt(self, prompt="> "):
        """Read until the cursor stands behind a prompt on the last line."""
        self.until(
            lambda: self.shown.split("\n")[-1] == prompt.rstrip() and self.screen.cursor.x == len(prompt),
            f"the prompt {prompt!r}",
        )

    def enter(self, line, prompt="> "):
        """Type a line and wait for the prompt that follows it."""
        self.send(f"{line}\r")
        self.until(lambda: line.strip() in self.shown, line)
        self.at_prompt(prompt)

    def until(self, condition, what):
        """Read until the condition holds."""
        while not condition():
            try:
                self.read()
            except (pexpect.TIMEOUT, pexpect.EOF) as error:
                pytest.fail(f"{type(error).__name__} while waiting for {what}; the screen shows:\n{self.shown}")

    def read(self):
        """Read what the program has written, or wait for it."""
        found = self.child.read_nonblocking(65536, self.SECONDS)
        self.raw += found
        self.stream.feed(found)

    def resize(self, columns, lines=24):
        """Give the window another size."""
        self.screen.resize(lines, columns)
        self.child.setwinsize(lines, columns)

    def ends(self):
        """Read to the end and return the exit status, negative for a signal."""
        with contextlib.suppress(pexpect.EOF):
            while True:
                self.read()
        self.child.wait()
        return self.child.exitstatus if self.child.signalstatus is None else -self.child.signalstatus

    def close(self):
        """End the program if it still runs."""
        if self.child.isalive():
            self.child.kill(signal.SIGKILL)
        self.child.close()


@pytest.fixture
def terminal(shell):
    """Start the program in terminals: terminal(columns=, lines=, environ=, arguments=, program=)."""
    opened = []

    def start(**settings):
        opened.append(Terminal(shell, **settings))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
