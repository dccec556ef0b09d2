"""The counters of all queues of a queue space at one moment, in the session or in a file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.shell.notices import UsageError

if TYPE_CHECKING:
    from qmadmin.monitoring.flow import Counts, Look

_KIND = "qmadmin counters"


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters by the names of the queues; `taken_us` is when, in microseconds UTC."""

    device: str
    space: str
    taken_us: int
    counts: Mapping[str, Counts]

    @classmethod
    def of(cls, device: str, space: str, look: Look) -> Snapshot:
        """Return the counters that a look has found."""
        return cls(os.path.abspath(device) if "://" not in device else device, space, look.time_us, look.counts)

    def seconds_since(self, before: Snapshot) -> float:
        """Return how much later this one was taken; not less than 0, be the clock set back."""
        return max(0, self.taken_us - before.taken_us) / 1e6

    def of_queue(self, name: str | None) -> Iterator[tuple[str, Counts]]:
        """Yield the counters of one queue, or of all by name."""
        return ((found, self.counts[found]) for found in sorted(self.counts) if name in (None, found))


def write(file: str, snapshot: Snapshot) -> None:
    """Write a snapshot in place of what the file has; UsageError where that cannot be."""
    content = {"kind": _KIND} | dataclasses.asdict(snapshot)
    # It costs the start of the program more than the rest of this module.
    import tempfile

    path = Path(file).resolve()
    if path.exists() and not path.is_file():
        raise UsageError(f"Failed to write the snapshot to {file}: it is not a regular file")
    try:
        # Whoever reads it meanwhile gets the old one or the new one.
        descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(descriptor, "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor has no path
                json.dump(content, opened, indent=1)
                opened.write("\n")
            Path(made).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(made).unlink()
            raise
    except OSError as error:
        raise UsageError(f"Failed to write the snapshot to {file}: {error.strerror}") from error


def read(file: str) -> Snapshot | None:
    """Return the snapshot in a file; None where there is no such file, UsageError where it is something else."""
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        if found["kind"] != _KIND:
            raise ValueError(found["kind"])
        return Snapshot(_text(found["device"]), _text(found["space"]), int(found["taken_us"]), _counts(found["counts"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"Failed to read the snapshot from {file}: {error.strerror}") from error
    except (ValueError, TypeError, LookupError) as error:
        raise UsageError(f"File {file} is not a snapshot that qstat has written") from error


def _counts(found: Any) -> dict[str, Counts]:
    from qmadmin.monitoring.flow import Counts

    return {name: Counts(**{key: int(value) for key, value in counts.items()}) for name, counts in found.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
