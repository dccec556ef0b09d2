"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

IN_MEMORY = ("tmpfs", "ramfs")
"""The file systems on which nothing is durable."""


def description() -> dict[str, Any]:
    """Return the machine: processor, cores, memory in bytes, system, Python, and the load average now."""
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def sentence(box: Mapping[str, Any]) -> str:
    """Return a machine for people, where its `load_after` was added to what `description` told before."""
    parts = [box["processor"], f"{box['cores']} cores", f"{box['memory'] / 2**30:.0f} GiB", box.get("file_system")]
    return ", ".join([*filter(None, parts), f"load {box['load']} before, {box['load_after']} after"])


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


def _first(path: str, field: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")
