"""The end of a process at a place that a test names: by a signal to itself, which nothing foresees.

The place is a point of a durable step, such as `Point.AFTER_COMMIT` of `qmcore.probe`, or a function: then the process
counts its calls, or its returns, with the profiler of Python. So it is killed between two
steps of what it does, the same on a fast and on a slow machine. What it was in the middle of is as real as any crash.

A program meets its doom where the environment says so: `environment_of` has Python load this module as it starts. On
Spark it can be that of an executor, which takes its tasks' processes of Python with it, or has them stand still.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from qmcore.probe import Point, Probe

VARIABLE = "QM_TEST_DOOM"


@dataclasses.dataclass(frozen=True)
class Doom:
    """Where a process ends: at a point, or the call or the return of a function, the first time or a later one.

    `place` is the name of a point, or a module and a name in it, with a colon between. A point counts from the first
    call of the function `since` on, where one is named. `number` is the signal; `of_group` sends it to all processes of
    the group, as a terminal does. `who` is the driver, a worker or an executor of Spark, of which only the first one
    dies. An executor that is stopped stands still with the processes of Python that do its work, the one that is there
    as the last.
    """

    place: str
    event: str = "call"
    time: int = 1
    who: str = "driver"
    number: int = signal.SIGKILL
    of_group: bool = False
    since: str = ""

    def __str__(self) -> str:
        name = self.place.partition(":")[2] or self.place
        return f"{self.who}-{self.event}-{name}-{self.time}"


def meet(doom: Doom, mark: Path) -> None:
    """Let this process meet its end, which is noted by a file.

    One that only stood still notes when the call is over in the middle of which it was.
    """
    if doom.place in Point.__members__:
        if doom.since:
            _watch_for(doom.since, lambda: meet_at_point(doom, mark))
        else:
            meet_at_point(doom, mark)
        return
    code, left = code_of(doom.place), doom.time

    def watch(frame: Any, event: str, _argument: Any) -> None:
        nonlocal left
        if frame.f_code is not code:
            return
        if left and event == doom.event:
            left -= 1
            if left == 0 and _end(doom, mark):
                left = -1
        if left == -1 and event == "return":
            over_beside(mark).touch()

    _profile(watch)


def _watch_for(place: str, then: Callable[[], object]) -> None:
    """Do something once, when a function is called."""
    code, left = code_of(place), 1

    def watch(frame: Any, event: str, _argument: Any) -> None:
        nonlocal left
        if left and frame.f_code is code and event == "call":
            left = 0
            then()

    _profile(watch)


def _profile(watch: Callable[[Any, str, Any], None]) -> None:
    # Also in threads that it starts from now on.
    threading.setprofile(watch)
    sys.setprofile(watch)


def meet_at_point(doom: Doom, mark: Path) -> None:
    """Let this process meet its end at a point of whatever device it opens."""
    left = doom.time

    def ends(_fact: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            _end(doom, mark)

    Probe.actions = {Point[doom.place]: (ends,)}


def over_beside(mark: Path) -> Path:
    """Return the file that notes the end of a call in the middle of which a process stood still."""
    return mark.with_suffix(".over")


def woken_beside(mark: Path) -> Path:
    """Return the file without which a task that stands still does not go on, whoever continues it."""
    return mark.with_suffix(".woken")


def going_beside(mark: Path) -> Path:
    """Return the file that notes that a task which stood still goes on."""
    return mark.with_suffix(".going")


def code_of(place: str) -> CodeType:
    """Return the code of the function that is named."""
    module, _, name = place.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    code: CodeType = inspect.unwrap(found).__code__
    return code


def _end(doom: Doom, mark: Path) -> bool:
    """Return whether this process was the one, and is still there."""
    victims = _executor() if doom.who == "executor" else [os.getpid()]
    if not _is_first(mark, victims):
        return False
    if doom.of_group:
        victims = [0]
    # A process of Python ends without its executor as well, but not before it has told of a task that it just finished.
    *others, last = victims
    for victim in others:
        os.kill(victim, doom.number)
    if others and doom.number == signal.SIGSTOP:
        _stand_still(mark)
    else:
        os.kill(last, doom.number)
    return True


def _stand_still(mark: Path) -> None:
    """Stop until there is the file of one that is woken, and note that it goes on.

    When the executor ends, the kernel continues what stands still in the group of its processes, after a hang-up.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while not woken_beside(mark).exists():
        os.kill(os.getpid(), signal.SIGSTOP)
    going_beside(mark).touch()


def _executor() -> list[int]:
    """Return the executor of Spark that this process does a task for, the process between them, and this one."""
    parent = os.getppid()
    executor = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    return [executor, parent, os.getpid()]


def _is_first(mark: Path, victims: list[int]) -> bool:
    """Note who it is, unless there was one before."""
    own = mark.with_name(f"{mark.name}-{os.getpid()}")
    own.write_text(json.dumps(victims))
    try:
        os.link(own, mark)
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


def environment_of(doom: Doom, mark: Path, site: Path) -> dict[str, str]:
    """Return what the environment of a program has to say besides; `site` is a directory for what Python loads.

    It is for nothing else, and stands first in the module path, which a driver hands on to its workers.
    """
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text("import tests.doom\n\ntests.doom.as_the_environment_says()\n")
    told = dataclasses.asdict(doom) | {"mark": str(mark)}
    return {VARIABLE: json.dumps(told)}


def as_the_environment_says() -> None:
    """Let this process meet its end if it is the one that is meant."""
    told = json.loads(os.environ[VARIABLE])
    mark = Path(told.pop("mark"))
    doom = Doom(**told)
    if doom.who == _role():
        meet(doom, mark)


def _role() -> str:
    roles = {"qmadmin.transfer.pool": "worker", "pyspark.daemon": "executor"}
    return next((role for module, role in roles.items() if module in sys.orig_argv), "driver")
