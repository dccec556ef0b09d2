"""Reports on archives for users and programs: the content of one, the results of exports, imports and moves."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmadmin import console
from qmadmin.console import counted
from qmadmin.console.formats import Format
from qmadmin.console.results import (
    Column,
    Field,
    Moment,
    Notice,
    Record,
    Shown,
    Table,
    Value,
    field,
    hidden,
)
from qmcore.imports import Mode
from qmcore.message import State
from qmcore.redacted import redacted
from qmcore.times import MICROS
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.archive.file_systems import Place
    from qmadmin.archive.manifest import Manifest
    from qmadmin.archive.rows import Standing
    from qmadmin.transfer.comparing import Compared
    from qmadmin.transfer.exporting import Exported
    from qmadmin.transfer.importing import Imported
    from qmadmin.transfer.moving import Moved, Removed

MODES = {Mode.CREATE: "created", Mode.REPLACE: "replaced", Mode.APPEND: "appended to"}
"""What happens to a queue that an import names."""

_PLACE = (Column("queue", "Queue"), Column("space", "Space"))
_MESSAGES = Column("messages", "Messages", right=True)
_BYTES = Column("bytes", "Bytes", right=True)
_CONTENT = (
    *_PLACE,
    _MESSAGES,
    Column("ready", "Ready", right=True),
    Column("delayed", "Delayed", right=True),
    Column("consumed", "Consumed", right=True),
    Column("nonpersistent", "In memory", right=True),
    _BYTES,
)
_KEPT = {False: "disk", True: "memory"}
_SELDOM = ("delayed", "consumed", "nonpersistent")


@dataclass(frozen=True, slots=True)
class Told:
    """A report: a table of queues, facts about all of them, and remarks.

    A user gets the table and then the rest; a program gets one object, which has the rows of the table as `queues`.
    """

    title: str
    fields: tuple[Field, ...]
    queues: Table
    notices: tuple[Notice, ...] = ()

    def shown(self, form: Format) -> list[Shown]:
        """Return the report in a format."""
        summary = Record(self.title, self.fields)
        if form is Format.JSON:
            keys = [column.key for column in self.queues.columns]
            queues = tuple(dict(zip(keys, row, strict=True)) for row in self.queues.rows)
            return [Record(self.title, (*self.fields, hidden(queues=queues))), *self.notices]
        queues_shown = _without_zeros(self.queues) if form is Format.TABLE else self.queues
        return [queues_shown, *([] if form is Format.CSV else [summary]), *self.notices]


def written(done: Exported) -> Told:
    """Return the report on an export, or on one that would be made."""
    manifest = done.manifest
    if done.place is None:
        fields = (field("messages", "Messages", done.messages), hidden(dry_run=manifest.source.device))
        return Told(
            "Dry run, nothing is written",
            fields,
            _queues(manifest, done.counts, done.sizes),
            (*_missing(done), *_left_out(manifest)),
        )
    return Told(
        f"Archive '{done.place}'",
        (hidden(path=str(done.place)), *_identity(manifest, done.place), *_pace(done.messages, done.seconds)),
        _queues(manifest, done.counts),
        (*_missing(done), *_left_out(manifest)),
    )


def content(place: Place, manifest: Manifest) -> Told:
    """Return the report on the manifest of an archive."""
    source = manifest.source
    fields = (
        hidden(path=str(place)),
        *_identity(manifest, place),
        field("snapshot", "As it stood", Moment(source.snapshot_us)),
        field("device", "Of device", source.device),
        hidden(kind=source.kind, page_size=source.page_size),
        Field("Written by", f"qmadmin {manifest.release}", {"release": manifest.release}),
        Field("Asked for", _selection(manifest.selection), {}),
        hidden(selection=dict(manifest.selection)),
    )
    return Told(f"Archive '{place}'", fields, _queues(manifest, manifest.standings()), _left_out(manifest))


def abandoned(archive: str | None, counts: Mapping[str, int], published: Sequence[str], *, dry_run: bool) -> Told:
    """Return the report on imports of an archive (None: of all) that were or would be abandoned, by queue space.

    Those in the queue spaces `published` can no longer be abandoned.
    """
    whose = () if archive is None else (field("archive", "Archive id", archive),)
    return Told(
        "Dry run, nothing is given up" if dry_run else "Given up",
        (*whose, field("imports", "Imports", sum(counts.values()))),
        Table((_PLACE[1], Column("imports", "Imports", right=True)), list(counts.items())),
        tuple(
            Notice.error(
                f"an import into queue space {name!r} is published already and can only be completed",
                "The command that began it resumes it.",
            )
            for name in published
        ),
    )


WILL_BE_STOPPED: Final = Notice.info(
    "imported queues will be stopped for dequeuing", "With --start they are as they were in the archive."
)


def brought(done: Imported, *, dry_run: bool, started: bool) -> Told:
    """Return the report on an import, or on one that would be made."""
    rows: list[tuple[Value, ...]] = []
    for space in done.spaces:
        for source, (name, mode) in space.queues.items():
            use = space.uses[source]
            renamed = None if (space.source, source) == (space.name, name) else f"{space.source}/{source}"
            rows.append((name, space.name, MODES[mode], use.messages, use.size, renamed))
        rows += [(name, space.name, "skipped", None, None, None) for name in space.skipped]
    created = ", ".join(space.name for space in done.spaces if space.created)
    again = any(space.resumed for space in done.spaces)
    title = "Import resumed and completed" if again else "Import done"
    if dry_run:
        title = "Dry run, nothing is imported" + ("; an interrupted import would be resumed" if again else "")
    fields = (
        field("archive", "Archive id", done.archive),
        field("messages", "Messages", done.messages),
        *([Field("New queue spaces", created, {})] if created else []),
        *([] if dry_run else _pace(done.messages, done.seconds)),
        hidden(resumed=again, dry_run=dry_run),
    )
    columns = (*_PLACE, Column("mode", "How"), _MESSAGES, _BYTES, Column("archived_as", "In the archive"))
    stopped = Notice.info(
        "imported queues are stopped for dequeuing", "Start them with qstart once you have checked them."
    )
    notice = WILL_BE_STOPPED if dry_run else stopped
    notices = [*_commands(done), *([notice] if done.stops and not started else [])]
    return Told(title, fields, Table(columns, rows), tuple(notices))


def _commands(done: Imported) -> Iterator[Notice]:
    """Yield a warning for each capacity command in an archive: the author of the archive wrote it."""
    for space in done.spaces:
        for queue, command in space.commands:
            yield Notice.warning(
                f"queue {queue!r} of queue space {space.name!r} has the capacity command {command!r} from the archive",
                "It runs as the user whose process enqueues. If it is not meant to, remove it with qchange.",
            )


def compared(found: Compared, *, with_device: bool) -> Told:
    """Return the report on an archive that was verified and, if so, compared with a device."""
    rows: list[tuple[Value, ...]] = []
    for (space, queue, state, memory), digest in found.digests.items():
        row: tuple[Value, ...] = (queue, space, state.value, _KEPT[memory], digest.messages)
        judged = (_judged(found, (space, queue, state, memory)),) if with_device else ()
        rows.append((*row, *judged, digest.text))
    rows += [
        (
            each.queue,
            each.space,
            each.state and each.state.value,
            each.state and _KEPT[each.memory],
            0,
            each.sentence,
            None,
        )
        for each in found.differences
        if not any(each.is_of(standing) for standing in found.digests)
    ]
    judged_column = (Column("device", "On the device"),) if with_device else ()
    columns = (*_PLACE, Column("state", "State"), Column("kept", "Kept"), _MESSAGES)
    fields = (
        field("archive", "Archive id", found.archive),
        field("messages", "Messages", found.messages),
        *_pace(found.messages, found.seconds),
        *([field("differences", "Differences", len(found.differences))] if with_device else []),
    )
    return Told(
        "The archive is sound",
        fields,
        Table((*columns, *judged_column, Column("digest", "Digest")), rows),
        tuple(Notice.error(f"{each.whose}: {each.sentence}") for each in found.differences),
    )


def _judged(found: Compared, standing: Standing) -> str:
    """Return the result of comparing messages on the device."""
    return next((each.sentence for each in found.differences if each.is_of(standing)), "same")


def _queues(manifest: Manifest, counts: Mapping[Standing, int], sizes: Mapping[Standing, int] | None = None) -> Table:
    """Return a row for each queue of an archive, or of one that would be written, whose parts have no sizes."""
    rows: list[tuple[Value, ...]] = []
    for space in manifest.spaces:
        for queue in space.queues:
            name = (space.name, queue.name)
            own = {standing[2:]: number for standing, number in counts.items() if standing[:2] == name}
            of_state = {state: sum(n for (each, _), n in own.items() if each is state) for state in State}
            size = sum(count.size for count in queue.counts)
            if sizes is not None:
                size = sum(number for standing, number in sizes.items() if standing[:2] == name)
            rows.append(
                (
                    name[1],
                    name[0],
                    sum(own.values()),
                    of_state[State.READY],
                    of_state[State.DELAYED],
                    of_state[State.CONSUMED],
                    sum(n for (_, memory), n in own.items() if memory),
                    size if manifest.parts or not own or sizes is not None else None,
                )
            )
    return Table(_CONTENT, rows)


def _without_zeros(table: Table) -> Table:
    """Leave out zeros of rare values, so that a narrow terminal can omit their columns."""
    seldom = [column.key in _SELDOM for column in table.columns]
    return Table(
        table.columns,
        [
            [None if left_out and not value else value for value, left_out in zip(row, seldom, strict=True)]
            for row in table.rows
        ],
    )


def _identity(manifest: Manifest, place: Place) -> tuple[Field, ...]:
    size = manifest.size
    return (
        field("archive", "Archive id", manifest.archive),
        field("manifest_sha256", "Manifest SHA-256", manifest_digest(place)),
        field("messages", "Messages", manifest.messages),
        Field("Size", f"{console.count(size)} bytes in {counted(len(manifest.parts), 'part')}", {}),
        hidden(bytes=size, parts=len(manifest.parts)),
    )


def manifest_digest(place: Place) -> str:
    """Return the SHA-256 of the manifest, which is the same for two copies of an archive."""
    from qmadmin.archive import manifest_file
    from qmadmin.archive.reading import read_file

    return hashlib.sha256(read_file(place, manifest_file.NAME)).hexdigest()


def _pace(messages: int, seconds: float) -> tuple[Field, ...]:
    rate = messages / seconds if seconds else 0.0
    took = console.duration(round(seconds * MICROS))
    return (
        # A step that an earlier attempt has done took no time now.
        *([Field("Time", f"{took}, {console.rate(rate)} messages a second", {})] if seconds else []),
        hidden(seconds=round(seconds, 3), rate=round(rate, 1)),
    )


def _selection(asked: Mapping[str, Any]) -> str:
    told = [f"{name} {_asked(value)}" for name, value in asked.items() if (name, value) != ("transactions", "refuse")]
    return "; ".join(told) or "everything"


def _asked(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    # Of a move: its destination.
    return str(value.get("device", value)) if isinstance(value, Mapping) else str(value)


def _missing(done: Exported) -> tuple[Notice, ...]:
    return tuple(Notice.warning(f"{volume}; it is left out", volume.advice) for volume in done.missing)


def _left_out(manifest: Manifest) -> tuple[Notice, ...]:
    return tuple(
        Notice.warning(f"queue space {space.name!r}: {sentence}")
        for space in manifest.spaces
        for sentence in _sentences(space.left_out)
    )


def _sentences(left: Any) -> Sequence[str]:
    who = f"{left.active} active and {left.prepared} prepared transactions"
    told = (
        (left.held, f"that {who} hold", "left out"),
        (left.as_rolled_back, f"that {who} hold", "in it as if these had rolled back"),
        (left.pending, f"that {who} have not committed yet", "left out"),
    )
    return [
        f"{counted(number, 'message')} {whose} {'is' if number == 1 else 'are'} {what}"
        for number, whose, what in told
        if number
    ]


# ---- moves -----------------------------------------------------------------------------------------------------------


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
            yield Notice.info(text, "Those that the first attempt removed are no longer there.")
        else:
            yield Notice.warning(text)


def _stopped_there(done: Moved) -> Iterator[Notice]:
    if done.waiting:
        start = _starting(*done.waiting[0], done.destination, "-d ")
        yield Notice.info(
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
        yield Notice.warning(text, f"List them with qlist; to have them consumed there, {_each(names)}: {start}")
    else:
        text = "the queues stay stopped at the source, where nothing is left in them"
        yield Notice.info(text, f"Destroy them with qdestroy, or {_each(names)}: {start}")


def _each(names: Sequence[object]) -> str:
    return "start it" if len(names) == 1 else "start each of them, such as the first one"


def _starting(space: str, queue: str, device: str, how: str = "") -> str:
    """Return the command that starts a queue."""
    return shlex.join(["qmadmin", "-c", f"qopen {space}", "-c", f"qstart {how}{queue}", device])
