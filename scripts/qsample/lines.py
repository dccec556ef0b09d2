"""The larger run: a text file, each line through the queue STRING, the forwarder, and the reply queue RPLYQ.

    lines.py [FILE]     FILE is UTF-8 text; else one that every Python installation has, of more than 10,000 lines

A thread sends while the main program takes the replies and holds each against its request. The exit status is 1 if
a reply was lost, came twice or was wrong. With APPDIR in the environment the device and the log are made there and
stay; else in a temporary directory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import qmadmin
from qmadmin import Message, QueueError, QueueSpace

SAMPLE = Path(__file__).resolve().parent
LINES_WANTED = 10_000
SPACE = "QSPACE"

# Requests on their way at one time. The queue space has room for them and their replies, and needs no more disk.
WINDOW = 500

# Messages that are sent, and at most taken, in one transaction, which is quicker than one by one.
TOGETHER = 20

LAYOUT = f"""\
crdl "{{device}}" 0 {3 * WINDOW}
qspacecreate {SPACE} 230459 {2 * WINDOW + 40} 5 10 10 {2 * WINDOW} ERRQUE n 16
qopen {SPACE}
qcreate ERRQUE fifo none 0 0 100% 0% ''
qcreate STRING fifo none 2 0 100% 0% ''
qcreate RPLYQ fifo none 0 0 100% 0% ''
"""

# Seconds without any reply after which the missing ones are taken for lost.
PATIENCE = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run it all and report; return the exit status."""
    if len(arguments) > 1:
        sys.exit("usage: lines.py [FILE]")
    signal.signal(signal.SIGTERM, end)
    name, lines = text(arguments[0] if arguments else None)
    with directory() as place:
        device = place / "QUE"
        if device.exists():
            sys.exit(f"{device} exists already; remove it, or name another directory with APPDIR")
        administer(device, LAYOUT.format(device=device))
        with forwarder(device), qmadmin.open_device(device) as opened, opened.open_space(SPACE) as space:
            run = Run(lines)
            began = time.monotonic()
            run.go(space)
            seconds = time.monotonic() - began
        shown = administer(device, f"qopen {SPACE}\nqinfo\n")
    print(f"text      {name}")
    print(f"lines     {len(lines)}")
    print(f"requests  {run.sent}")
    print(f"replies   {run.received}: {run.lost} lost, {run.doubled} doubled, {run.wrong} wrong")
    print(f"time      {seconds:.1f} seconds, {run.received / seconds:.0f} lines a second there and back")
    print(f"\n{shown}", end="")
    if run.well:
        return 0
    print("the replies are not those of the requests", file=sys.stderr)
    return 1


def text(path: str | None) -> tuple[str, list[str]]:
    """Return the name of a text and its lines, without their ends."""
    if path is not None:
        try:
            return path, Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            sys.exit(f"{path} cannot be read: {error}")
    found = importlib.util.find_spec("pydoc_data.topics")
    if found is not None and found.origin is not None:
        lines = Path(found.origin).read_text("utf-8").splitlines()
        if len(lines) >= LINES_WANTED:
            return found.origin, lines
    library = Path(os.__file__).parent
    lines = []
    for module in sorted(library.glob("*.py")):
        lines += module.read_text("utf-8").splitlines()
        if len(lines) >= LINES_WANTED:
            break
    return f"modules of {library}", lines


class Run:
    """One run: what was sent, what came back, and whether the one is the answer to the other."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.sent = 0
        self.received = 0
        self.doubled = 0
        self.wrong = 0
        self._lines = lines
        self._answered = [False] * len(lines)
        self._room = threading.Semaphore(WINDOW)
        self._failure: QueueError | None = None

    @property
    def lost(self) -> int:
        """How many lines no reply came for."""
        return self._answered.count(False)

    @property
    def well(self) -> bool:
        """Whether each line was answered once and rightly."""
        return not (self.lost or self.doubled or self.wrong)

    def go(self, space: QueueSpace) -> None:
        """Send every line and take every reply; give up when none comes any more."""
        threading.Thread(target=self._send, args=[space], daemon=True).start()
        last = time.monotonic()
        while self.lost_so_far() and time.monotonic() - last < PATIENCE and self._failure is None:
            if self._take(space, 1):
                last = time.monotonic()
        if self._failure is not None:
            print(f"sending failed: {self._failure}", file=sys.stderr)
        # One that comes twice may still be on its way.
        while self._take(space, 0):
            pass

    def lost_so_far(self) -> bool:
        """Return whether a reply is still missing."""
        return self.received - self.doubled < len(self._lines)

    def _send(self, space: QueueSpace) -> None:
        try:
            for first in range(0, len(self._lines), TOGETHER):
                part = self._lines[first : first + TOGETHER]
                for _ in part:
                    self._room.acquire()
                with space.transaction():
                    for number, line in enumerate(part, first):
                        space.enqueue("STRING", line, corrid=str(number), reply_queue="RPLYQ")
                self.sent += len(part)
        except QueueError as error:
            self._failure = error

    def _take(self, space: QueueSpace, seconds: float) -> bool:
        """Take the replies that are there, or wait for one; return whether there was any."""
        replies: list[Message] = []
        with space.transaction():
            while reply := space.dequeue("RPLYQ", wait=0 if replies else seconds):
                replies.append(reply)
                if len(replies) == TOGETHER:
                    break
        for reply in replies:
            self._check(reply)
        return bool(replies)

    def _check(self, reply: Message) -> None:
        self.received += 1
        self._room.release()
        number = int(reply.corrid or b"-1")
        if not 0 <= number < len(self._lines):
            self.wrong += 1
            return
        if self._answered[number]:
            self.doubled += 1
        self._answered[number] = True
        if reply.text != self._lines[number].upper():
            self.wrong += 1


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """Give the directory of the device and the log."""
    given = os.environ.get("APPDIR")
    if given:
        yield Path(given).absolute()
        return
    with tempfile.TemporaryDirectory(prefix="qsample.", ignore_cleanup_errors=True) as made:
        yield Path(made)


def administer(device: Path, commands: str) -> str:
    """Give commands to qmadmin, as an administrator's script does, and return what it says."""
    command = [sys.executable, "-m", "qmadmin.program", str(device)]
    done = subprocess.run(command, input=commands, capture_output=True, text=True, check=False, cwd=device.parent)
    if done.returncode:
        sys.exit(f"qmadmin failed:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def forwarder(device: Path) -> Iterator[None]:
    """Have tmqforward at work, and let it finish what it holds at the end."""
    command = [sys.executable, "-m", "qmadmin.forwarder.program", str(device), SPACE]
    command += ["-q", "STRING", "-s", str(SAMPLE / "services.toml")]
    ours = {"ULOGPFX": str(device.with_name("ULOG")), "QMADMIN_TOML": os.devnull}
    process = subprocess.Popen(command, env=os.environ | ours)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def end(number: int, _frame: FrameType | None) -> NoReturn:
    """Leave in good order, so that the forwarder is stopped and the directory removed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except QueueError as problem:
        sys.exit(f"{problem.name}: {problem.message}")
