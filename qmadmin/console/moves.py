"""Reports, for users and programs, on messages that were removed from a device or moved to another one."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from qmadmin.console.archives import Told, written
from qmadmin.console.figures import counted
from qmadmin.console.results import Field, Notice, Severity, field
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from qmadmin.transfer.exporting import Exported
    from qmadmin.transfer.moving import Moved, Removed


def with_removed(told: Told, removed: Removed, *, resumed: bool = False) -> Told:
    """Add the messages that were removed from the device; `resumed`: an earlier attempt may have removed some."""
    return dataclasses.replace(
        told, fields=(*told.fields, *_removed(removed)), notices=(*told.notices, *_kept(removed, resumed=resumed))
    )


def with_removal_planned(told: Told, done: Exported, destination: str | None) -> Told:
    """Add the messages that would be removed from the device, and the destination if they would be moved."""
    from qmadmin.transfer.units import REMOVED_STATES

    count = sum(number for (_, _, state, _), number in done.counts.items() if state in REMOVED_STATES)
    there = () if destination is None else (field("destination", "Would be moved to", redacted(destination)),)
    return dataclasses.replace(
        told, fields=(*told.fields, *there, field("would_remove", "Would be removed here", count))
    )


def moved(done: Moved) -> Told:
    """Return the report on a move."""
    told = written(done.exported)
    spaces = ", ".join(space.name for space in done.imported.spaces)
    fields = (*told.fields, field("imported_into", "Imported into", spaces), *_removed(done.removed))
    notices = (*told.notices, *_kept(done.removed), *_stopped_there(done), *_stopped_here(done))
    return dataclasses.replace(told, fields=fields, notices=notices)


def _removed(removed: Removed) -> Iterator[Field]:
    yield field("removed", "Removed here", removed.removed)
    if removed.before:
        yield field("removed_before", "Removed before", removed.before)
    yield field("kept", "Left here", removed.kept)


def _kept(removed: Removed, *, resumed: bool = False) -> Iterator[Notice]:
    if removed.kept:
        were = "was" if removed.kept == 1 else "were"
        text = (
            f"{counted(removed.kept, 'message')} of the archive {were} not removed: no longer there, or changed since"
        )
        if resumed:
            yield Notice(Severity.INFO, text, "Those that the first attempt removed are no longer there.")
        else:
            yield Notice(Severity.WARN, text)


def _stopped_there(done: Moved) -> Iterator[Notice]:
    if done.waiting:
        start = _starting(*done.waiting[0], done.destination, "-d ")
        yield Notice(
            Severity.INFO,
            "the queues are stopped for dequeuing at the destination",
            f"After checking them, {_each(done.waiting)}: {start}",
        )


def _stopped_here(done: Moved) -> Iterator[Notice]:
    """Yield notices that queues stay stopped at the source, and how many messages are left in them."""
    manifest = done.exported.manifest
    names = [(space.name, queue.name) for space in manifest.spaces for queue in space.queues]
    if not (done.emptied and names):
        return
    start = _starting(*names[0], manifest.source.device)
    if done.left:
        is_ = "is" if done.left == 1 else "are"
        text = f"{counted(done.left, 'message')} {is_} left at the source, in queues that stay stopped"
        yield Notice(Severity.WARN, text, f"List them with qlist; to have them consumed there, {_each(names)}: {start}")
    else:
        text = "the queues stay stopped at the source, where nothing is left in them"
        yield Notice(Severity.INFO, text, f"Destroy them with qdestroy, or {_each(names)}: {start}")


def _each(names: Sequence[object]) -> str:
    return "start it" if len(names) == 1 else "start each of them, such as the first one"


def _starting(space: str, queue: str, device: str, how: str = "") -> str:
    """Return the command that starts a queue."""
    return shlex.join(["qmadmin", "-c", f"qopen {space}", "-c", f"qstart {how}{queue}", device])
