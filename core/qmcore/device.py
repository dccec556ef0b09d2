"""A device: the universal device list (UDL) of page ranges, and the extents cut from them (VTOC)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qmcore import names
from qmcore.checks import keep_int
from qmcore.errors import InvalidArgumentError, NoSpaceError, Resource
from qmcore.values import dataclass

PAGE_SIZE = 4096
ENTRIES_MAX = 25
EXTENTS_MAX = 100
PAGES_MAX = 2**40
FULL, RELAXED = "full", "relaxed"
DURABILITIES = (FULL, RELAXED)
"""Where a commit is when it is acknowledged: on the disk, or with the operating system or server, which writes soon."""

PARTITIONS_MAX = 256
VTOC_PAGES = 7
UDL_PAGES = 19
RESERVED_PAGES = VTOC_PAGES + UDL_PAGES
"""Pages at the start of the first entry that the table of contents and the device list take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What a device records about itself; `id` is unique and the same in each of its volumes.

    `commands` says whether the capacity commands of its queues run. `partitions` is into how many tables the messages
    of each volume are split; 0 is one table, which is not split. `schema_version` is that of its tables, 0 before they
    are created.
    """

    id: str
    page_size: int
    durability: str
    group: str
    created_at: int
    commands: bool = True
    partitions: int = 0
    schema_version: int = 0

    def __post_init__(self) -> None:
        if self.durability not in DURABILITIES:
            raise InvalidArgumentError(f"the durability must be full or relaxed, got {self.durability!r}")
        if self.partitions:
            keep_int(self, "partitions", "number of partitions", 2, PARTITIONS_MAX)


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """One entry of the device list: `pages` pages of the file `path`, from page `offset`.

    `volume` is the identifier of the volume there, and `opened` the number that it has at least; a volume that is
    behind is an older copy. Entries of one volume have the same.
    """

    index: int
    path: str
    offset: int
    pages: int
    volume: str = ""
    opened: int = 0

    @property
    def end(self) -> int:
        """The first page after the entry."""
        return self.offset + self.pages


@dataclass(frozen=True, slots=True)
class PageRange:
    """A run of `pages` pages from page `first` of a device list entry's file."""

    first: int
    pages: int

    @property
    def end(self) -> int:
        """The first page after the run."""
        return self.first + self.pages


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of pages of one device list entry that belongs to a queue space; each is a row of the VTOC."""

    space: str
    number: int
    entry: int
    first: int
    pages: int


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One row of the table of contents: a table's name, and the run of pages that it has."""

    name: str
    entry: int
    first: int
    pages: int


def checked_entry(entry: DeviceEntry, present: Sequence[DeviceEntry]) -> DeviceEntry:
    """Return `entry` if it may join the entries `present` of the device list."""
    names.path(entry.path)
    keep_int(entry, "offset", f"offset of {entry.path!r} in pages", 0, PAGES_MAX)
    keep_int(entry, "pages", f"size of {entry.path!r} in pages", 1, PAGES_MAX)
    if len(present) >= ENTRIES_MAX:
        raise NoSpaceError("the device", Resource.DEVICE_ENTRIES, used=len(present), limit=ENTRIES_MAX)
    if not present:
        return _checked_first(entry)
    refuse_overlap(entry, present)
    return entry


def refuse_overlap(entry: DeviceEntry, others: Iterable[DeviceEntry]) -> None:
    """Refuse an entry that overlaps another entry of the same file."""
    for other in others:
        if other.path == entry.path and entry.offset < other.end and other.offset < entry.end:
            raise InvalidArgumentError(
                f"pages {entry.offset} to {entry.end - 1} of {entry.path!r} overlap entry {other.index}, which has"
                f" pages {other.offset} to {other.end - 1}",
                hint="Look at the entries with lidl.",
            )


def _checked_first(entry: DeviceEntry) -> DeviceEntry:
    if entry.offset != 0:
        raise InvalidArgumentError(
            f"the first entry of the device list must have offset 0, got {entry.offset} for {entry.path!r}"
        )
    if entry.pages <= RESERVED_PAGES:
        raise InvalidArgumentError(
            f"the first entry of the device list must have more than {RESERVED_PAGES} pages, which the list itself"
            f" takes, got {entry.pages} for {entry.path!r}"
        )
    return entry


def free_ranges(entry: DeviceEntry, extents: Iterable[Extent]) -> list[PageRange]:
    """Return the runs of pages of `entry` that no extent has, lowest first."""
    at = entry.offset + (RESERVED_PAGES if entry.index == 0 else 0)
    free = []
    for extent in sorted((e for e in extents if e.entry == entry.index), key=lambda e: e.first):
        if extent.first > at:
            free.append(PageRange(at, extent.first - at))
        at = max(at, extent.first + extent.pages)
    if entry.end > at:
        free.append(PageRange(at, entry.end - at))
    return free


def allocate(
    space: str, pages: int, entries: Sequence[DeviceEntry], extents: Sequence[Extent], *, path: str | None = None
) -> list[Extent]:
    """Cut `pages` pages for a queue space from the entries of one file: one run if one is long enough, else several.

    The file is `path`, or else the one with the most free pages, the first of several in the device list. The extents
    are numbered after those that the queue space has already.
    """
    file = most_free(entries, extents)[0] if path is None else path
    chosen = _cut(pages, _free_of(file, entries, extents))
    if not chosen:
        raise _no_room(pages, path, entries, extents)
    if len(extents) + len(chosen) > EXTENTS_MAX:
        raise NoSpaceError("the device", Resource.EXTENTS, used=len(extents), limit=EXTENTS_MAX, wanted=len(chosen))
    number = 1 + max((extent.number for extent in extents if extent.space == space), default=-1)
    return [Extent(space, number + at, index, run.first, run.pages) for at, (index, run) in enumerate(chosen)]


def most_free(entries: Iterable[DeviceEntry], extents: Sequence[Extent]) -> tuple[str, int]:
    """Return the file with the most free pages, the first of several in the device list, and how many they are."""
    found: dict[str, int] = {}
    for entry in entries:
        found[entry.path] = found.get(entry.path, 0) + sum(run.pages for run in free_ranges(entry, extents))
    return max(found.items(), key=lambda item: item[1], default=("", 0))


def _no_room(pages: int, path: str | None, entries: Sequence[DeviceEntry], extents: Sequence[Extent]) -> NoSpaceError:
    """Return the refusal of pages that no file, or not that of the path, has; it names an entry that has enough."""
    free = {entry: sum(run.pages for run in free_ranges(entry, extents)) for entry in entries}
    own = [entry for entry in entries if path is None or entry.path == path]
    _, most = most_free(own, extents)
    total = sum(entry.pages for entry in own)
    detail = ""
    hint = "List more pages with crdl, or destroy a queue space."
    if path is not None:
        detail = f"; {most} are free"
        end = max((entry.end for entry in own), default=0)
        hint = f"A queue space stays in its file. Add pages to that first: crdl {path} {end} {pages - most}"
        best = max((entry for entry in entries if entry.path != path), key=free.__getitem__, default=None)
        if best is not None and free[best] >= pages:
            detail += f", and entry {best.index} of the device list, with {free[best]} free, is in another file,"
            detail += f" {best.path!r}"
    return NoSpaceError(
        "the device" if path is None else f"the file {path!r}",
        Resource.PAGES,
        used=total - most,
        limit=total,
        wanted=pages,
        detail=detail,
        hint=hint,
    )


def _free_of(path: str, entries: Sequence[DeviceEntry], extents: Sequence[Extent]) -> list[tuple[int, PageRange]]:
    return [(entry.index, run) for entry in entries if entry.path == path for run in free_ranges(entry, extents)]


def _cut(pages: int, runs: Sequence[tuple[int, PageRange]]) -> list[tuple[int, PageRange]]:
    for index, run in runs:
        if run.pages >= pages:
            return [(index, PageRange(run.first, pages))]
    chosen = []
    for index, run in sorted(runs, key=lambda item: -item[1].pages):
        part = min(pages, run.pages)
        chosen.append((index, PageRange(run.first, part)))
        pages -= part
        if pages == 0:
            return chosen
    return []


def table_of_contents(extents: Iterable[Extent]) -> list[TableEntry]:
    """Return the rows of the VTOC: the table itself, the device list, then every extent of every queue space."""
    own = [TableEntry("VTOC", 0, 0, VTOC_PAGES), TableEntry("UDL", 0, VTOC_PAGES, UDL_PAGES)]
    rest = sorted(extents, key=lambda extent: (extent.entry, extent.first))
    return own + [TableEntry(f"{e.space}.{e.number}", e.entry, e.first, e.pages) for e in rest]
