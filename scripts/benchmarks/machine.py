"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
import timeit
from collections.abc import Mapping
from pathlib import Path
from typing import Any

IN_MEMORY = ("tmpfs", "ramfs")
"""The file systems on which nothing is durable."""


_TIMES = 20_000
"""How often the short work is done to measure it."""


def description() -> dict[str, Any]:
    """Return the machine: processor, cores, memory in bytes, system, Python, and the load average now.

    `python_ns` is how long it takes for a short work, which differs by a factor between builds of the same version.
    """
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "python_ns": round(min(timeit.repeat(_short_work, number=_TIMES, repeat=7)) / _TIMES * 1e9),
        "load": round(os.getloadavg()[0], 2),
    }


def sentence(box: Mapping[str, Any]) -> str:
    """Return a machine for people, where its `load_after` was added to what `description` told before."""
    parts = [box["processor"], f"{box['cores']} cores", f"{box['memory'] / 2**30:.0f} GiB", box.get("file_system")]
    # What was recorded before it was measured does not have it.
    speed = f" ({box['python_ns']} ns for a short work)" if "python_ns" in box else ""
    parts += [f"Python {box['python']}{speed}", f"load {box['load']} before, {box['load_after']} after"]
    return ", ".join(filter(None, parts))


def file_system(path: Path) -> str:
    """Return the type of the file system that holds a path, such as `ext4`; "" where that cannot be told."""
    best, kind = "", ""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    for line in mounts:
        _, place, found, *_ = line.split()
        inside = f"{path.resolve()}/".startswith(place.rstrip("/") + "/")
        # A later mount on the same place covers an earlier one.
        if inside and len(place) >= len(best):
            best, kind = place, found
    return kind


class _Thing:
    def __init__(self, number: int) -> None:
        self.number = number
        self.facts: dict[str, int] = {}


def _short_work() -> str:
    """Do a little of what programs in Python do most: make an object, look something up, write a text."""
    thing = _Thing(_TIMES)
    number = thing.facts.get("number", thing.number)
    return "%d-%s" % (number, "thing")  # noqa: UP031 - it stays the same work


def _first(path: str, field: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")
