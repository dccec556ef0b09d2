"""The end of a process at a place of the code that a test names: by a signal to itself, which nothing foresees.

The process counts the calls of one function, or its returns, with the profiler of Python. So it is killed between two
steps of what it does, the same on a fast and on a slow machine. What it was in the middle of is as real as any crash.

A program meets its doom where the environment says so: `environment_of` has Python load this module as it starts.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import signal
import sys
from pathlib import Path
from types import CodeType
from typing import Any

VARIABLE = "QM_TEST_DOOM"


@dataclasses.dataclass(frozen=True)
class Doom:
    """Where a process ends: at the call or the return of a function, the first time or a later one.

    `place` is a module and a name in it, with a colon between. `number` is the signal; `of_group` sends it to all
    processes of the group, as a terminal does. `who` is the driver or a worker, of which only the first one dies.
    """

    place: str
    event: str = "call"
    time: int = 1
    who: str = "driver"
    number: int = signal.SIGKILL
    of_group: bool = False

    def __str__(self) -> str:
        name = self.place.partition(":")[2]
        return f"{self.who}-{self.event}-{name}-{self.time}"


def meet(doom: Doom, mark: Path) -> None:
    """Let this process meet its end, which is noted by a file."""
    code, left = code_of(doom), doom.time

    def watch(frame: Any, event: str, _argument: Any) -> None:
        nonlocal left
        if frame.f_code is code and event == doom.event:
            left -= 1
            if left == 0:
                _end(doom, mark)

    sys.setprofile(watch)


def code_of(doom: Doom) -> CodeType:
    """Return the code of the function that is named."""
    module, _, name = doom.place.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    code: CodeType = inspect.unwrap(found).__code__
    return code


def _end(doom: Doom, mark: Path) -> None:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(0 if doom.of_group else os.getpid(), doom.number)


def environment_of(doom: Doom, mark: Path, site: Path) -> dict[str, str]:
    """Return what the environment of a program has to say besides; `site` is an empty directory for what Python loads.

    It stands first in the module path, which a driver hands on to its workers.
    """
    site.mkdir()
    (site / "sitecustomize.py").write_text("import tests.doom\n\ntests.doom.as_the_environment_says()\n")
    told = dataclasses.asdict(doom) | {"mark": str(mark)}
    return {VARIABLE: json.dumps(told)}


def as_the_environment_says() -> None:
    """Let this process meet its end if it is the one that is meant."""
    told = json.loads(os.environ[VARIABLE])
    mark = Path(told.pop("mark"))
    doom = Doom(**told)
    if (doom.who == "worker") == ("qmadmin.transfer.worker" in sys.orig_argv):
        meet(doom, mark)
